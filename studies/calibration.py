"""How often is an audit wrong? On data whose truth is known: clean controls, label noise, and planted shortcuts.

    python -m studies.calibration --out results/audit [--workers 2]      # measure; what is there is left alone
    python -m studies.calibration --out results/audit --summary          # what every report quotes
    python -m studies.calibration --out results/audit_text --text        # the same on texts, and so with --summary

Every audit sees 2,000 rows, of which it holds out 30 % itself: no test split, no colour balance, nothing that a user
would not have. Each is judged twice: with the attributes as the data has them, and with all of them taken away.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import json
import multiprocessing
import time
from pathlib import Path

ROWS = 2000
PLANTED = "indeed"
KINDS = ("colour", "texture", "position", "size", "watermark")
CLASSES = {"size": 3}  # a bias needs as many values as there are classes; an object has three sizes


def worlds():
    """(name, data, seed, truth) of every audit. Rows and seeds are other ones than those the tests were made with."""
    for seed in range(100, 103):
        for kind in KINDS:
            yield f"shapes, no {kind} bias", shapes(kind, 0.0, seed), seed, "clean"
    for seed in range(100, 112):
        yield "MNIST", {"name": "MNIST"}, seed, "clean"
        yield "Fashion-MNIST", {"name": "FashionMNIST"}, seed, "clean"
    for seed in range(100, 110):
        yield "CIFAR-10", {"name": "CIFAR10"}, seed, "clean"
    for seed in range(100, 108):
        yield "Adult, attribute shuffled", {"name": "adult", "shuffled": True}, seed, "clean"
    for seed in range(100, 104):
        yield "MNIST, 5 % wrong labels", {"name": "MNIST", "wrong": 0.05}, seed, "clean"
        yield "Fashion-MNIST, 10 % wrong labels", {"name": "FashionMNIST", "wrong": 0.1}, seed, "clean"
    for share in (0.01, 0.03, 0.05):
        for seed in range(100, 103):
            yield "colored_digits", {"name": "colored_digits", "rho": share, "seed": seed}, seed, share
            yield "colored_mnist", {"name": "colored_mnist", "rho": share, "seed": seed}, seed, share
            yield "moon_star", {"name": "moon_star", "rho": share, "size": 32, "seed": seed}, seed, share
            ccifar = {"name": "corrupted_cifar10", "rho": share, "seed": seed, "train_size": ROWS, "test_size": 10}
            yield "corrupted_cifar10", ccifar, seed, share
        for kind in KINDS:
            for seed in (100, 101):
                others = 1 - 1 / CLASSES.get(kind, 8)  # drawn at random, the bias still agrees now and then
                yield f"shapes, {kind} bias", shapes(kind, 1 - share / others, seed), seed, share
    for seed in range(100, 103):
        yield "waterbirds", {"name": "waterbirds", "size": 64, "zoom": 1.0}, seed, 0.05


def text_worlds():
    """The same on real texts. Balanced, each source has as many reviews of either class; in whole pairs of cad_imdb the
    context says nothing about the label; there a word is planted that goes with it."""
    for seed in range(100, 110):
        reviews = {"name": "movie_reviews", "n": ROWS, "n_val": 4, "n_test": 4, "seed": seed}
        for share in (0.01, 0.05):
            yield "movie_reviews", reviews | {"rho": share}, seed, share
        yield "movie_reviews, balanced", reviews | {"rho": 0.5}, seed, "clean"
        pairs = {"name": "cad_imdb", "rho": 0.5, "length": 128, "seed": seed}
        yield "cad_imdb, all pairs", pairs, seed, "clean"
        for share in (0.01, 0.05):
            yield "cad_imdb, a planted word", pairs | {"planted": share}, seed, share
            short = pairs | {"planted": share, "length": 32}
            yield "cad_imdb, a planted word in 32 tokens", short, seed, share
    for seed in range(110, 115):
        wrong = {"name": "movie_reviews", "n": ROWS, "n_val": 4, "n_test": 4, "seed": seed, "rho": 0.5, "wrong": 0.1}
        yield "movie_reviews, balanced, 10 % wrong labels", wrong, seed, "clean"


def shapes(kind, strength, seed):
    classes = CLASSES.get(kind, 8)
    return {"name": "shapes", "biases": (kind,), "strength": strength, "classes": classes, "seed": seed} | {
        "n": ROWS,
        "n_val": 0,
        "n_test": 10,
    }


def load(spec, seed, root):
    import torch

    from spurless.core.data import Bundle, Split
    from spurless.core.files import data_root
    from spurless.core.recipe import Recipe
    from spurless.registry import load_data

    generator = torch.Generator().manual_seed(seed)
    if spec["name"] in ("MNIST", "FashionMNIST", "CIFAR10"):
        import torchvision

        files = getattr(torchvision.datasets, spec["name"])(str(data_root(root)), train=True)
        x, y = torch.as_tensor(files.data), torch.as_tensor(files.targets)
        x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()
        data = Bundle(spec["name"], Split(x, y), net="simconv1" if len(x[0]) == 1 else "conv3", recipe=Recipe())
    else:
        data = load_data({k: v for k, v in spec.items() if k not in ("shuffled", "wrong", "planted")}, root=root)
    train = data.train
    rows = torch.randperm(len(train), generator=generator)[:ROWS]
    y, a = train.y[rows], None if train.a is None else train.a[rows]
    if spec.get("shuffled"):
        a = torch.stack([column[torch.randperm(len(column), generator=generator)] for column in a.unbind(1)], dim=1)
    if spec.get("wrong"):
        wrong = torch.rand(len(y), generator=generator) < spec["wrong"]
        other = (y + torch.randint(1, len(data.classes), y.shape, generator=generator)) % len(data.classes)
        y = torch.where(wrong, other, y)
    from dataclasses import replace

    if spec.get("planted"):
        against = torch.rand(len(y), generator=generator) < spec["planted"]
        a = torch.where(against, 1 - y, y)[:, None]
        split = Split(planted(train[rows], a[:, 0], data.tokens, generator), y, a)
        table, values = (torch.eye(2, dtype=torch.bool),), (("without", "with"),)
        return replace(data, train=split, val=None, test=None, attributes=("word",), values=values, aligned=table)
    aligned = () if spec.get("shuffled") else data.aligned
    return replace(data, train=Split(train[rows], y, a), val=None, test=None, aligned=aligned)


def planted(x, there, tokens, generator):
    """Rows (n, 2, l) with one word somewhere in the text, there or not (n,); another word makes room for it."""
    import torch

    from spurless.data.words import words_of

    word, x = words_of(tokens).texts.index(PLANTED), x.clone()
    ids, length = x[:, 0], (x[:, 1] > 0).sum(1)
    ids[ids == word] = words_of(tokens).texts.index("moreover")
    place = 1 + (torch.rand(len(x), generator=generator) * (length - 2)).long()  # not the first and the last: special
    ids[there == 1, place[there == 1]] = word
    return x


def measure(job):
    name, spec, seed, truth, out, root = job
    import torch

    from spurless.auditing import attributes, hidden
    from spurless.auditing.case import make_case
    from spurless.auditing.model import train, with_held_out
    from spurless.auditing.verdict import overall
    from spurless.bench.one import stamp
    from studies.rows import holds, put

    path = Path(out) / f"{name.replace(' ', '_').replace(',', '').replace('%', 'pc')}-{truth}-{seed}"
    if holds(path):
        return f"{path.name}: there already"
    torch.set_num_threads(1)
    started, cpu = time.time(), torch.device("cpu")
    data, split = with_held_out(load(spec, seed, root), seed)
    audited = train(data, split, None, None, None, None, cpu, seed, False)
    case = make_case(data, audited.net, audited.source, split, cpu, seed)
    known, cues = attributes.examine(case), hidden.examine(case)
    agrees = data.is_aligned(case.held)
    contra = None if agrees is None else ~agrees.all(1)
    row = {
        "world": name,
        "truth": truth,
        "seed": seed,
        "held_out": len(case.held),
        "verdict": overall([e["finding"] for e in (*known, *cues)]),
        "verdict_without_attributes": overall([e["finding"] for e in cues]) if cues else None,
        "attributes": {e["name"]: [e["finding"], e["p"], e["gap"] and e["gap"]["value"]] for e in known},
        "cues": {
            e["name"]: [e["finding"], e["skill"], e["goes_with_cue"], e["goes_with_rest"], e["p"], e["p_cost"]]
            for e in cues
        },
        "accuracy": 100 * float(case.right.float().mean()),
        "conflicting": None if contra is None or not contra.any() else 100 * float(case.right[contra].float().mean()),
        "seconds": round(time.time() - started, 1),
    } | stamp()
    put(path, row)
    return f"{path.name}: {row['verdict']} / {row['verdict_without_attributes']} {row['seconds']} s"


ALARMS = ("shortcut found", "suspected")
VERDICTS = ("verdict", "verdict_without_attributes")
QUOTED = Path(__file__).parent.parent / "src/spurless/auditing/calibration.json"  # what every report says
QUOTED_TEXT = QUOTED.with_name("calibration_text.json")  # what the report of an audit of texts says


def rates(rows):
    """For data without and with a shortcut, and by either verdict, the share of audits that raised an alarm."""
    from spurless.auditing.evidence import share

    return {
        (clean, key): share([row[key] in ALARMS for row in rows if row[key] and (row["truth"] == "clean") == clean])
        for clean in (True, False)
        for key in VERDICTS
    }


def quoted(rows, what="data"):
    found = rates(rows)
    false, blind_false, real, blind = (found[clean, key] for clean in (True, False) for key in VERDICTS)
    return {
        "text": f"In {false['n']} audits of {what} without a shortcut {false['value']:.0f} % raised an alarm "
        f"({false['low']:.0f} to {false['high']:.0f}); in {real['n']} audits of {what} with one {real['value']:.0f} % "
        f"did ({real['low']:.0f} to {real['high']:.0f}), and {blind['value']:.0f} % where no attribute was known.",
        "false_alarms": false,
        "found": real,
        "found_without_attributes": blind,
        "false_alarms_without_attributes": blind_false,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-root")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--text", action="store_true")
    given = parser.parse_args()
    if given.summary:
        from studies.rows import named

        rows = list(named(given.out).values())
        file, what = (QUOTED_TEXT, "texts") if given.text else (QUOTED, "data")
        file.write_text(json.dumps(quoted(rows, what), indent=1) + "\n")
    else:
        jobs = [(*world, str(given.out), given.data_root) for world in (text_worlds() if given.text else worlds())]
        jobs = sorted(jobs, key=lambda job: (job[2], job[0] == "waterbirds"))  # a run cut short has some of everything
        with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
            for line in pool.imap_unordered(measure, jobs):
                print(line, flush=True)

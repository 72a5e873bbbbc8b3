"""The sweeps of the large-learning-rate study, each from a file, held against the ranges that the study prints.

    python -m studies.sweep studies/sweeps/parity.toml
    python -m studies.sweep studies/sweeps/colored_mnist.toml --device cuda
    python -m studies.sweep studies/sweeps/colored_mnist_settings.toml --only momentum --only lr

Runs go to runs/sweep_NAME, where they are found again, and so are those whose rows are kept; what is small goes to
results/sweep_NAME: sweep.json (with the study's numbers beside ours), rows.jsonl (one line a run) and sweep.png. With
`dynamics` in a file the steps of its runs are watched (figure 12: watched.png); with `core_use` attribution is held
against CSI (figure 26: core_use.png). `make results` then puts the tables into docs/sweep.md. --net and --set make a
short trial, kept in the folder of its runs.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import importlib.util
import json
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

from spurless.bench.claim import read_row, restore
from spurless.bench.rows import JSONL
from spurless.core.errors import UserError
from spurless.core.files import finite
from spurless.core.settings import from_text
from spurless.registry import load_data
from spurless.sweep import run_sweep
from spurless.sweep.choice import show
from spurless.sweep.over_runs import core_use_points, same_order
from spurless.sweep.run import AFTER, FILE, PLOT
from spurless.train.saved import load_run

KEPT = ("data", "method", "net", "seed", "status", "error", "n", "seconds", "wall_seconds", "machine", "date", "commit")
SCORES = ("unbiased", "conflicting", "aligned", "worst_group", "average", "intervals")
AXES = {
    "largest_share": "largest share of a batch's loss, conflicting samples",
    "unbiased": "unbiased accuracy, %",
    "csi": "class selectivity (CSI)",
    "core_share": "share of attribution on the core feature",
}


def changed(spec, pairs):
    """The specification with settings given as recipe.epochs=1."""
    for pair in pairs:
        key, _, text = pair.partition("=")
        section, _, name = key.partition(".")
        spec[section] = dict(spec.get(section) or {}) | {name: from_text(text)}
    return spec


def elsewhere(words):
    """A command without the folders of this machine: kept results say how, not where."""
    kept, words = [], iter(words)
    for word in words:
        name, glued, _ = word.partition("=")
        if name not in ("--out", "--results", "--data-root"):
            kept.append(word)
        elif not glued:
            next(words, None)
    return kept


def against(found, sweeps):
    """Ours beside the study's: for each measure the least and the greatest mean over the values in range."""
    parts = found.get("series") or [found | {"name": found["over"]}]
    rows = []
    for part, sweep in zip(parts, sweeps, strict=True):
        for measure, (low, high) in sweep.get("paper", {}).items():
            ours = part["ranges"].get(measure)
            row = {"sweep": part["name"], "measure": measure, "paper_min": low, "paper_max": high}
            if ours:
                row |= {"ours_min": round(ours["min"], 4), "ours_max": round(ours["max"], 4)}
                row |= {"at_min": ours["at_min"], "at_max": ours["at_max"]}
            rows.append(row)
    return rows


def short_rows(found, folder):
    """One line a run: what decides it, what came out."""
    keys = dict.fromkeys(
        run["key"] for part in found.get("series") or [found] for p in part["points"] for run in p["runs"]
    )
    for key in keys:
        row = read_row(folder / "cells" / key)
        scores = row.get("scores") or {}
        recipe = row["settings"]["recipe"]
        yield {
            "key": key,
            **{k: row.get(k) for k in KEPT},
            "settings": {"data": row["settings"]["data"], "net": row["settings"]["net"], "recipe": recipe},
            "scores": {k: scores.get(k) for k in SCORES} if scores else None,
            "extra": row.get("extra"),
        }


def put_back(kept, folder, choices):
    """The runs whose rows are kept as cells of this folder, so that an arm can be added on another machine."""
    if not (kept / JSONL).exists():
        return
    old = json.loads((kept / FILE).read_text(encoding="utf-8"))
    common = {k: old.get(k) for k in ("labels_used", "versions")} | {"after": AFTER, "labels": {}}
    common["notes"] = [note for note in old["notes"] if note not in choices]
    for line in (kept / JSONL).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        restore(folder, common | row | {"settings": old["settings"] | row["settings"]})


def core_use(found, folder, data, settings, root, device=None):
    """Figure 26: does the share of attribution on the core feature order the rates as CSI does?"""
    runs = [folder / "cells" / run["key"] for p in found["points"] if p["in_range"] for run in p["runs"]]
    points = core_use_points((load_run(run, device=device) for run in runs), load_data(data, root=root), **settings)
    return {"points": points, "order": same_order(points)._asdict()}


def core_use_in_words(found):
    """The answer in a sentence.

    >>> order = {"values": [0.1], "first": [0.3], "second": [0.6], "same": True, "spearman": None}
    >>> core_use_in_words({"order": order})[-70:]
    'core feature put the values in the same order: at 0.1 0.300 and 0.600.'
    """
    order = found["order"]
    triples = zip(order["values"], order["first"], order["second"], strict=True)
    told = ", ".join(f"at {show(value)} {csi:.3f} and {share:.3f}" for value, csi, share in triples)
    rank = "" if order["spearman"] is None else f" (by rank {order['spearman']:.2f})"
    how = "the same order" if order["same"] else "different orders"
    return f"CSI and the share of attribution on the core feature put the values in {how}{rank}: {told}."


def watched_runs(found):
    """The runs behind figure 12, each with its value; one that is in several sweeps once."""
    parts = found.get("series") or [found]
    every = [(p["value"], run) for part in parts for p in part["points"] if p["in_range"] for run in p["runs"]]
    known = {run["key"]: run | {"value": value} for value, run in every if run.get("largest_share") is not None}
    return list(known.values())


def picture(points, over, x, y, title, path):
    """One number of each run against another, a colour for each value."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    values = list(dict.fromkeys(p[over] for p in points))
    colours = colormaps["viridis"].resampled(len(values) + 1)  # without the palest
    for place, value in enumerate(values):
        own = [p for p in points if p[over] == value]
        axes.scatter([p[x] for p in own], [p[y] for p in own], color=colours(place), label=show(value))
    axes.set_xlabel(AXES[x])
    axes.set_ylabel(AXES[y])
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(title="each point a run", fontsize=8, title_fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def main():
    parser, given = arguments()
    spec = changed(tomllib.loads(given.spec.read_text(encoding="utf-8")), given.set)
    sweeps = [s for s in spec["sweep"] if not given.only or s["over"] in given.only]
    if not sweeps:
        parser.error(f"--only: the sweeps are {', '.join(repr(s['over']) for s in spec['sweep'])}")
    if "core_use" in spec and importlib.util.find_spec("captum") is None:  # said before hours of training, not after
        parser.error('core_use needs Captum: pip install "spurless[attribution]"')
    study = f"sweep_{given.spec.stem}"
    folder = given.out or Path("runs") / study
    trial = ", ".join([*([f"net.name={given.net}"] if given.net else []), *given.set])
    if not trial and "core_use" not in spec:  # which looks at the networks themselves
        put_back(Path("results") / study, folder, spec["choices"])
    found = swept(spec, sweeps, folder, given)
    if trial:  # must neither pass for the study nor take its place
        found["title"] += f"; a trial with {trial}"
    kept = given.results or (folder / "kept" if trial else Path("results") / study)
    keep(found, folder, kept)
    for row in found["paper"]:
        print(json.dumps(row, ensure_ascii=False))
    print(found["text"])
    if "core_use" in found:
        print(core_use_in_words(finite(found["core_use"])))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--only", action="append", help="a sweep by the name of its setting; may be repeated")
    parser.add_argument("--net")
    parser.add_argument("--set", action="append", default=[], help="recipe.epochs=1; for a trial")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--data-root")
    return parser, parser.parse_args()


def swept(spec, sweeps, folder, given):
    """What the sweep found, with what the specification says of it and the study's numbers."""
    over, values = [s["over"] for s in sweeps], [s["values"] for s in sweeps]
    found = run_sweep(
        spec["data"],
        over if len(over) > 1 else over[0],
        values if len(over) > 1 else values[0],
        net=given.net or spec["net"],
        method=spec.get("method", "erm"),
        recipe=spec.get("recipe"),
        seeds=given.seeds or spec["seeds"],
        out=folder,
        command=shlex.join(["python", "-m", "studies.sweep", *elsewhere(sys.argv[1:])]),
        dynamics=spec.get("dynamics"),
        device=given.device,
        workers=given.workers,
        root=given.data_root,
    )
    if "core_use" in spec:
        found["core_use"] = core_use(found, folder, spec["data"], spec["core_use"], given.data_root, given.device)
    found |= {k: spec[k] for k in ("title", "source")} | {"notes": [*found["notes"], *spec["choices"]]}
    found["paper"] = against(found, sweeps)
    return found


def keep(found, folder, kept):
    """The sweep, its rows and its pictures, for the pages."""
    kept.mkdir(parents=True, exist_ok=True)
    text = json.dumps(finite({k: v for k, v in found.items() if k != "folder"}), indent=1, ensure_ascii=False)
    (kept / FILE).write_text(text + "\n", encoding="utf-8")
    lines = (json.dumps(finite(row), ensure_ascii=False) for row in short_rows(found, folder))
    (kept / JSONL).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    shutil.copy(folder / PLOT, kept / PLOT)
    if watched := watched_runs(found):
        picture(watched, "value", "largest_share", "unbiased", found["title"], kept / "watched.png")
    if "core_use" in found:
        known = [p for p in found["core_use"]["points"] if p["core_share"] is not None]
        picture(known, "lr", "csi", "core_share", found["title"], kept / "core_use.png")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")

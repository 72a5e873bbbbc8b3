"""Write the result tables of the pages in docs/ from the rows in results/. Run after measuring."""

import json
import statistics
from collections import defaultdict

from studies.readme import fill
from studies.rows import RESULTS, ROOT, rows

PAGES = ("groups", "audit", "text", "metrics", "sweep")
PAPERS = ("pgd", "pgd-tables", "dcwp", "dcwp-tables", "large-lr", "biasadv", "avp")
PAGES += ("reproduction",)
PAGES += tuple(f"papers/{name}" for name in PAPERS)
SPLITS = ("test", "train")
MEASURED = {  # in sweeps: the heading, and digits
    "unbiased": ("unbiased", 1),
    "conflicting": ("conflicting", 1),
    "prunability": ("prunability", 3),
    "pruned_accuracy": ("pruned", 1),
    "activation_compressibility": ("act. compressibility", 3),
    "csi": ("CSI", 3),
    "class_separation": ("class separation", 3),
    "val_accuracy": ("validation", 1),
    "train_accuracy": ("training", 1),
}


def spread(values):
    """Mean ± standard deviation.

    >>> spread([1.0, 3.0]), spread([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    found = [v for v in values if v is not None]
    if not found:
        return "–"
    return f"{statistics.mean(found):.1f}" + (f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else "")


def by_cell(found):
    cells = defaultdict(list)
    for row in found:
        cells[row["cell"]].append(row)
    return cells


def facts(found, words):
    first = found[0]
    seeds = sorted({row["seed"] for row in found})
    return (
        f"{words} Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, in percent, n = {first['n']:,} "
        f"test samples. Measured {max(row['date'] for row in found)} on {first['versions']['device'].split()[0]}."
    )


def scores_table(cells, names):
    lines = ["| method | worst group | unbiased | average | bias labels | weights | seeds |"]
    lines += ["| :-- | --: | --: | --: | :-- | :-- | --: |"]
    for name in names:
        own = cells.get(name)
        if own:
            columns = [
                spread([r["scores"][k] for r in own if r["scores"]]) for k in ("worst_group", "unbiased", "average")
            ]
            told = own[0]["labels_used"], own[0]["selection"]
            lines.append(f"| `{own[0]['method']}` | {' | '.join(columns)} | {told[0]} | {told[1]} | {len(own)} |")
    return lines


def waterbirds_table():
    found = rows("waterbirds")
    if not found:
        return ""
    names = ("erm", "jtt", "cnc", "george", "bpa", "eiil", "rs", "group_dro", "gc_dro", "dfr")
    words = (
        "Waterbirds from 80-px files, enlarged to 160 px for a frozen EfficientNet-lite0 with its packaged ImageNet "
        "weights; a hidden layer of 256 and a head are trained, 20 epochs of Adam. One test split, so the spread is "
        "that of training only; the interval of a worst group of 642 samples is about ± 4 points on top of it."
    )
    return "\n".join([*scores_table(by_cell(found), names), "", facts(found, words)])


def inference_table():
    cells = by_cell(rows("waterbirds"))
    methods = ("group_dro", "rs", "gc_dro", "dfr")
    lines = [f"| groups from | {' | '.join(f'`{m}`' for m in methods)} | precision | recall | AMI | groups |"]
    lines += ["| :-- |" + " --: |" * (len(methods) + 4)]
    for how in ("known", "gce", "jtt", "ecs", "eiil", "cnc", "george", "bpa"):
        own = {m: cells.get(m if how == "known" else f"{m}-{how}", []) for m in methods}
        if not any(own.values()):
            continue
        scores = [spread([r["scores"]["worst_group"] for r in own[m] if r["scores"]]) for m in methods]
        told = [r["mining"]["groups"] for r in own["group_dro"] if "groups" in r["mining"]]
        quality = [spread([t[k] for t in told]) for k in ("precision", "recall")]
        quality += [f"{statistics.mean(t['ami'] for t in told):.2f}" if told else "–"]
        quality += [f"{statistics.mean(t['n_groups'] for t in told):.0f}" if told else "4"]
        lines.append(f"| `{how}` | {' | '.join(scores + quality)} |")
    return "\n".join([*lines, "", "Worst-group accuracy in percent, each training on each inference; set-up as above."])


def tables_table():
    found = rows("tables")
    if not found:
        return ""
    parts = []
    for data in ("adult", "compas"):
        own = [r for r in found if r["data"] == data]
        cells = by_cell(own)
        parts += [f"**{data}**, `mlp`, the dataset's recipe.", "", *scores_table(cells, list(cells)), ""]
        parts += [facts(own, "The same code as for images."), ""]
    return "\n".join(parts[:-1])


def cmnist_groups_table():
    found = rows("cmnist_groups")
    if not found:
        return ""
    cells = by_cell(found)
    small = [row for row in found if row["data"] == "colored_digits"]
    large = [row for row in found if row["data"] == "colored_mnist"]
    words = "Colored MNIST, LfF's build, 1 % conflicting, LfF's network (`mlp`) and recipe."
    parts = [*scores_table(cells, ("erm-1", "end-1")), "", facts(large, words), ""]
    words = "Coloured digits, 2 % conflicting, `simconv1`, 10 epochs."
    return "\n".join([*parts, *scores_table(cells, ("erm-digits", "end-digits")), "", facts(small, words)])


def zoo_table():
    from studies.audit.tables import read, tables

    rows = read(ROOT / "results" / "audit_zoo")
    final = [row for row in rows if row["half"] not in ("develop", "held out")]
    return tables(final or [row for row in rows if row["half"] == "held out"])


def audit_peers_table():
    from studies.audit.peers import table

    found = rows("audit_peers")
    if not found:
        return ""
    sets, date = {row["kind"]: row["clean"] for row in found}, max(row["date"] for row in found)
    weaker = [row["verdict"] == "available" for row in found if row["tool"] == "ours" and row["clean"]]
    words = (
        f"{len(sets)} sets of images ({sum(sets.values())} without a shortcut) of 500 to 2,000 samples, one draw "
        f"of each, 95 % of the samples agree; CPU, one thread, on a busy machine. "
        f"Of the {len(weaker)} without a shortcut `spurless audit` called "
        f"{sum(weaker)} `available`, its weaker verdict, which is not counted as an alarm. Measured {date}."
    )
    return f"{table(found)}\n\n{words}"


def text_table():
    from spurless.bench.spec import read_spec
    from spurless.core.stats import estimate

    own = {row["key"]: row for row in rows("text")}
    if not own:
        return ""
    heads = "data, network | share | method | bias labels | weights | seeds | aligned | conflicting | worst group"
    lines = [f"| {heads} | 95 % CI |", "| :-- | --: | :-- | :-- | :-- | --: | --: | --: | --: | --: |"]
    for line in read_spec(ROOT / "studies" / "specs" / "text.toml").lines:
        found = [own[cell.key] for cell in line.trials if cell.key in own]
        if found:
            scores = [spread([r["scores"][k] for r in found]) for k in ("aligned", "conflicting", "worst_group")]
            sure = estimate([r["scores"]["worst_group"] for r in found]).in_percent().limits()
            share = f"{100 * found[0]['settings']['data']['rho']:g} %"
            told = [found[0]["labels_used"], found[0]["selection"], str(len(found))]
            place = [line.block, share, line.row, *told, *scores, sure]
            lines.append(f"| {' | '.join(place)} |")
    measured = list(own.values())
    sizes = {row["data"]: row["n"] for row in measured}
    machines = ", ".join(sorted({row["machine"] for row in measured}))
    words = (
        "Percent, mean ± standard deviation over the seeds of the training, and Student's interval of the mean of the "
        f"worst group. {', '.join(f'{k}: n = {n:,}' for k, n in sizes.items())} test samples. "
        f"Measured {max(row['date'] for row in measured)} on {machines}."
    )
    return "\n".join([*lines, "", words])


def metrics_table():
    sizes = ("10000", "100000")
    found = [row for row in rows("metrics") if sizes[0] in row]
    if not found:
        return ""
    lines = ["| metric | of | seconds, n = 10,000 | MiB | seconds, n = 100,000 | MiB |"]
    lines += ["| :-- | :-- | --: | --: | --: | --: |"]
    for row in found:
        cells = []
        for own in (row.get(n) for n in sizes):
            cells += [f"{own['seconds']:.2g}" if own["seconds"] < 10 else f"{own['seconds']:.0f}"] if own else ["–"]
            cells += [f"{own['peak_mb']:.0f} ({own['peak_mb_above_inputs']:.0f})"] if own else ["–"]
        lines.append(f"| `{row[sizes[0]]['metric']}` | {row[sizes[0]]['of']} | {' | '.join(cells)} |")
    dates = sorted({own["date"] for row in found for own in row.values()})
    words = (
        "One thread of a CPU, random inputs. Seconds: the quickest of at least three calls, or of one, where that took "
        "more than 10 s. MiB: the largest resident set of the process, and in brackets how much of it came after the "
        f"inputs were there. Measured {dates[0]}{' to ' + dates[-1] if len(dates) > 1 else ''}."
    )
    return "\n".join([*lines, "", words])


def sweep_tables():
    """For each file of studies/sweeps what was measured by it; nothing where it was not run."""
    found = {}
    for path in sorted((ROOT / "studies" / "sweeps").glob("*.toml")):
        kept = RESULTS / f"sweep_{path.stem}" / "sweep.json"
        found[f"sweep_{path.stem}"] = sweep_table(json.loads(kept.read_text())) if kept.exists() else ""
    return found


def sweep_table(found):
    """The points of a sweep, or the ranges of several; then what its watched runs and attributions say."""
    from spurless.sweep.run import watched_in_words
    from studies.sweep import core_use_in_words

    lines = swept(found) if "points" in found else compared_sweeps(found) if found["paper"] else listed_sweeps(found)
    many = len(found["seeds"])
    machine = found["machine"].partition(",")[0]
    words = [f"{f'Means of {many} seeds' if many > 1 else 'One seed'}; {machine}, {found['date']}."]
    words += [watched_in_words(found["watched"])] if "watched" in found else []
    words += [core_use_in_words(found["core_use"])] if "core_use" in found else []
    return "\n".join([*lines, "", " ".join(words)])


def swept(found):
    points, chosen = found["points"], (found["choice"] or {}).get("value")
    known = [m for m in MEASURED if any(m in p for p in points)]
    if "val_accuracy" in known:  # which decides then
        known.remove("train_accuracy")
    lines = [f"| {found['over']} | {' | '.join(MEASURED[m][0] for m in known)} |", "| --: |" + " --: |" * len(known)]
    for p in points:
        why = why_out(p)
        cells = [why or mean_cell(p.get(known[0]), known[0]), *(mean_cell(p.get(m), m) for m in known[1:])]
        mark = " (chosen)" if p["value"] == chosen else "" if p["in_range"] or why else " (beyond the range)"
        lines.append(f"| {p['value']:g}{mark} | {' | '.join(cells)} |")
    study = {row["measure"]: row for row in found["paper"]}
    if study:
        cells = [span(study[m]["paper_min"], study[m]["paper_max"], m) if m in study else "" for m in known]
        lines.append(f"| study | {' | '.join(cells)} |")
    return lines


def why_out(point):
    """Why a value has no means; empty for one that has."""
    if point["diverged"]:
        return f"{sum(run['status'] == 'diverged' for run in point['runs'])} of {len(point['runs'])} diverged"
    return f"{point['fell']} fell" if point["fell"] else ""


def compared_sweeps(found):
    """A line for each sweep: the least and the greatest mean in range, with the study's below it."""
    study = {(row["sweep"], row["measure"]): row for row in found["paper"]}
    known = [m for m in MEASURED if any(m in part["ranges"] for part in found["series"])]
    known = [m for m in known if any((part["name"], m) in study for part in found["series"])]
    lines = [f"| setting | in range | {' | '.join(MEASURED[m][0] for m in known)} |", "| :-- | --: |"]
    lines[1] += " --: |" * len(known)
    for part in found["series"]:
        inside = [f"{p['value']:g}" for p in part["points"] if p["in_range"]]
        values = " to ".join(dict.fromkeys([inside[0], inside[-1]])) if inside else "–"
        ours = [part["ranges"].get(m) for m in known]
        order = [p["value"] for p in part["points"]]
        cells = [ours_in_order(r, order, m) if r else "–" for r, m in zip(ours, known, strict=True)]
        lines.append(f"| `{part['name']}` | {values} | {' | '.join(cells)} |")
        rows_of = [study.get((part["name"], m)) for m in known]
        cells = [span(r["paper_min"], r["paper_max"], m) if r else "" for r, m in zip(rows_of, known, strict=True)]
        lines.append(f"| study | | {' | '.join(cells)} |")
    return lines


def listed_sweeps(found):
    """A line for each value of each sweep, where the study has no numbers for them."""
    known = ("unbiased", "prunability", "activation_compressibility", "csi", "class_separation", "train_accuracy")
    lines = [f"| setting | {' | '.join(MEASURED[m][0] for m in known)} |", "| :-- |" + " --: |" * len(known)]
    for part in found["series"]:
        for p in part["points"]:
            cells = [mean_cell(p.get(m), m) for m in known]
            if p["diverged"] or p["fell"]:
                cells[0] = "diverged" if p["diverged"] else f"{p['fell']} fell"
            lines.append(f"| `{part['name']}` {p['value']} | {' | '.join(cells)} |")
    return lines


def pruning_forms_table():
    """Prunability by what goes, from the least rate to the greatest."""
    by_rate = sorted(rows("pruning_forms"), key=lambda row: row["lr"])
    held = [{(f["form"], f["batchnorm_anew"]): f["prunability"] for f in row["forms"]} for row in by_rate]
    lines = ["| what goes | test samples | training samples | BatchNorm recomputed: test samples | training samples |"]
    lines.append("| :-- | --: | --: | --: | --: |")
    for form in dict.fromkeys(form for form, _ in held[0]):
        ends = [[own[form, anew][split] for own in (held[0], held[-1])] for anew in (False, True) for split in SPLITS]
        lines.append(f"| {form} | {' | '.join(f'{low:.2f} to {high:.2f}' for low, high in ends)} |")
    return "\n".join(lines)


def mean_cell(mean, measure):
    if not mean:
        return ""
    text = f"{mean['mean']:.{MEASURED[measure][1]}f}"
    return f"{text} ± {mean['sd']:.1f}" if measure == "unbiased" and "sd" in mean else text


def ours_in_order(found, order, measure):
    """From least to greatest, and the other way round where the greatest is at the gentler value.

    >>> ours_in_order({"min": 0.5, "max": 0.75, "at_min": 1, "at_max": 0.1}, [0.1, 1], "csi")
    '0.750 down to 0.500'
    """
    low, high = (f"{found[end]:.{MEASURED[measure][1]}f}" for end in ("min", "max"))
    falls = order.index(found["at_min"]) > order.index(found["at_max"]) and low != high
    return f"{high} down to {low}" if falls else f"{low} to {high}"


def span(low, high, measure):
    """
    >>> span(0.56, 0.7824, "prunability")
    '0.560 to 0.782'
    """
    digits = MEASURED[measure][1]
    return f"{low:.{digits}f} to {high:.{digits}f}"


def tables():
    from studies import causes, paper_tables, papers, pgd_ccifar

    return (
        paper_tables.reproductions()
        | sweep_tables()
        | {f"causes-{paper}": causes.table_of(paper) for paper in ("pgd", "dcwp", "large-lr")}
        | {
            "waterbirds": waterbirds_table(),
            "inference": inference_table() if rows("waterbirds") else "",
            "tables": tables_table(),
            "cmnist_groups": cmnist_groups_table(),
            "audit_zoo": zoo_table(),
            "audit_peers": audit_peers_table(),
            "text": text_table(),
            "metrics": metrics_table(),
            "pruning_forms": pruning_forms_table(),
            "pgd_ccifar": pgd_ccifar.table(),
            "published": papers.counts(),
        }
    )


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / "docs" / f"{page}.md"
        path.write_text(fill(path.read_text(), tables()))

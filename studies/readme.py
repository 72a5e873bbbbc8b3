"""Write the numbers of the README, docs/concepts.md and docs/results.md from the rows in results/: make results."""

import json
import statistics

from studies.rows import RESULTS, ROOT, rows

PAGES = (ROOT / "README.md", ROOT / "docs" / "concepts.md", ROOT / "docs" / "results.md")
NAMES = {"erm": "plain training", "pgd": "PGD"}
ORDER = ("erm", "jtt", "lff", "disent", "ga", "pgd", "bias_adv", "crossfit")


def by_order(row):
    return ORDER.index(row["method"])


def demo_table():
    """One run of each method, with the intervals of its test split."""
    found = sorted(rows("demo"), key=by_order)
    if not found:
        return ""
    lines = [
        "| method | unbiased | conflicting | aligned | worst group | seconds |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for row in found:
        cells = []
        for metric in ("unbiased", "conflicting", "aligned", "worst_group"):
            low, high = row["scores"]["intervals"][metric]
            cells.append(f"{row['scores'][metric]:.1f} [{low:.1f}–{high:.1f}]")
        lines.append(f"| `{row['method']}` | {' | '.join(cells)} | {row['seconds']:.0f} |")
    first = found[0]
    facts = f"Accuracy in percent on {first['n']:,} test digits, with 95 % intervals; one run (seed {first['seed']}), "
    facts += (
        f"weights: {first['selection']}; bias labels used: {first['labels_used']}. Measured {first['date']} on a CPU "
        f"(threads: {first['versions']['threads']})."
    )
    return "\n".join([*lines, "", facts])


def cmnist_table():
    """Mean and standard deviation over seeds, beside what the paper prints."""
    found = [row for row in rows("cmnist") + rows("pgd-table1") if row["data"] == "colored_mnist"]
    published = json.loads((RESULTS / "published.json").read_text())["cmnist"] if found else {}
    groups = {}
    for row in found:
        recipe = row["settings"]["recipe"]
        how = f"{recipe['optimizer'].replace('sgd', 'SGD').replace('adam', 'Adam')} {recipe['lr']:g}"
        how += f", batch {recipe['batch_size']}"  # runs that differ in it must not be pooled
        form = ", as released" if row["settings"]["method"].get("form") == "code" else ""
        first = row["settings"]["method"].get("identify_epochs")
        form += f", first network {first:g} epochs" if first else ""
        groups.setdefault((row["settings"]["data"]["rho"], row["method"], how + form), []).append(row)
    if not groups:
        return ""
    lines = [
        "| conflicting share | method | trained with | accuracy, ours | seeds | in the paper |",
        "| --: | :-- | :-- | --: | --: | --: |",
    ]
    for (rho, method, how), same in sorted(groups.items(), key=lambda item: (item[0][0], ORDER.index(item[0][1]))):
        assert len({row["seed"] for row in same}) == len(same), f"{rho}, {method}, {how}: unlike runs were pooled"
        values = [row["scores"]["average"] for row in same]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        paper = published.get(f"{rho:g}", {}).get(method, "")
        ours = f"{statistics.mean(values):.1f}{spread}"
        lines.append(f"| {100 * rho:g} % | `{method}` | {how} | {ours} | {len(values)} | {paper} |")
    facts = (
        "Colored MNIST (`--set data.family=pgd`), `simconv1`, 100 epochs a stage (JTT's first network: 20 unless said),"
        " on the test split, whose colours are uniform: mean ± standard deviation over seeds, last weights, "
        "no bias labels. SGD 0.02 is PGD's recipe (`--recipe pgd-cmnist`); Adam is the optimiser that LfF and DisEnt "
        "were released with. As released: `--set method.form=code`. The paper's numbers "
        f"are PGD's table 1. Measured up to {max(row['date'] for row in found)} on {found[0]['versions']['device']}."
    )
    return "\n".join([*lines, "", facts])


def picture(path):
    """Conflicting accuracy of the demo's methods as bars with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    found = sorted(rows("demo"), key=by_order)
    colors = {"aligned": "#0072B2", "conflicting": "#D55E00"}
    figure, axes = plt.subplots(figsize=(7.2, 2.6), dpi=110)
    for offset, metric in ((-0.2, "aligned"), (0.2, "conflicting")):
        value = [row["scores"][metric] for row in found]
        low, high = zip(*[row["scores"]["intervals"][metric] for row in found], strict=True)
        error = [[v - a for v, a in zip(value, low, strict=True)], [b - v for v, b in zip(value, high, strict=True)]]
        at = [i + offset for i in range(len(found))]
        axes.barh(at, value, 0.36, xerr=error, color=colors[metric], label=f"{metric} with the shortcut", capsize=3)
    axes.set_yticks(range(len(found)), [NAMES.get(row["method"], row["method"]) for row in found])
    axes.invert_yaxis()
    axes.set_xlim(0, 105)
    axes.set_xlabel("test accuracy in percent, with 95 % interval")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.22), ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def birds_numbers():
    """The bars of the README's picture, in a sentence."""
    found = {}
    for row in rows("crossfit"):
        if row.get("data") == "waterbirds@efficientnet_lite0":
            found.setdefault(row["method"], []).append(row)
    if not found:
        return ""
    worst = {name: statistics.mean(row["scores"]["worst_group"] for row in own) for name, own in found.items()}
    seeds, n = len(found["erm"]), found["erm"][0]["n"]
    return (
        f"Worst group of Waterbirds, before and after: {worst['erm']:.1f} % and **{worst['crossfit']:.1f} %** "
        f"(frozen features, {seeds} seeds, n = {n:,}, no label of the place)."
    )


def digits_numbers():
    """What the picture of two digits says, in numbers."""
    found = {row["method"]: row for row in rows("picture")}
    if not found:
        return ""
    lines = [
        "| trained on the same 3,500 digits | usual colour | other colour | follows an exchanged colour |",
        "| :-- | --: | --: | --: |",
    ]
    for name, words in (("erm", "plain training"), ("pgd", "`pgd`, which sees no colour label")):
        row = found[name]
        figures = (row["scores"]["aligned"], row["scores"]["conflicting"], row["colour_followed"])
        cells = [f"{value:.1f} [{low:.1f}–{high:.1f}]" for value, low, high in figures]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    first = found["erm"]
    facts = f"Percent with 95 % CIs; {first['n']:,} test digits, {first['conflicting_n']} of them in another colour; "
    facts += f"seed {first['seed']}, {first['selection']} weights. "
    facts += f"Measured {first['date']}: `python -m studies.picture`."
    return "\n".join([*lines, "", facts])


def filled(text):
    """A page with its numbers."""
    return fill(
        text, {"demo": demo_table(), "cmnist": cmnist_table(), "point": birds_numbers(), "digits": digits_numbers()}
    )


def fill(text, tables):
    """A page with those of the tables that it has a place for, each between its two comments.

    >>> fill("<!-- results: a --><!-- end --> b", {"a": "1", "c": "2"})
    '<!-- results: a -->\\n1\\n<!-- end --> b'
    """
    for name, table in tables.items():
        start = f"<!-- results: {name} -->"
        if start in text:
            before, rest = text.split(start, 1)
            text = f"{before}{start}\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
    if rows("demo"):
        picture(ROOT / "docs" / "demo.png")

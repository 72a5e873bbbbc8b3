"""How many published numbers come back, and a picture of ours against theirs for each paper; from kept rows alone.

    python -m studies.papers          # writes docs/papers/pgd.png, dcwp.png and large-lr.png

A published number is (table, data, method, point of the grid). "PGD, as released" and "PGD" are two forms of
one method: where several were run, any of them may bring it back. It comes back if ours is within two points
of it, or within two of the larger standard deviation of the two, of which at most five points count. Where a
paper picks its weights on the test split (DCWP; DisEnt's code, which PGD follows on Corrupted CIFAR-10), the
best evaluation on the test split is what it prints: it may bring a number back too, and has a column of its own.
Numbers of data or weights that cannot be had here were run with stand-ins, and are counted apart.
"""

import json
from dataclasses import dataclass, field
from statistics import fmean

from spurless.core.stats import Estimate, estimate
from studies.rows import RESULTS, ROOT, rows

LAST, PICKED = "last weights", "picked on the test split"
SWEEPS = {
    "moon_star": "Moon-Star",
    "parity": "Parity",
    "colored_mnist": "Colored MNIST",
    "double_mnist": "Double MNIST",
    "mnist_cifar": "MNIST-CIFAR",
}
NAMES = {  # of blocks in papers/, for the pictures; a block that is not here has its own
    "CMNIST": "Colored MNIST",
    "CMNIST (0.5%)": "Colored MNIST",
    "Digit": "Colored MNIST",
    "Test Acc.": "Colored MNIST",
    "Color": "colour as the target",
    "MBMNIST": "MB-MNIST (stand-in)",
    "MB-MNIST (10%)": "MB-MNIST (stand-in)",
    "CCIFAR": "Corrupted CIFAR-10",
}
LARGE_RATES = "large-lr-s1"
LARGEST = 0.75  # of the study's rates; ours go on to 1.5 on the toys
STAND_INS = ("MBMNIST", "MB-MNIST", "stand-in", "from scratch")  # EMNIST's letters; ResNet-18's ImageNet weights
FIRM = 3  # seeds
WIDEST = 5.0  # points: what differs by more from seed to seed does not come back for that


@dataclass(frozen=True)
class Number:
    """A published number, and ours by each form that was run and each selection."""

    table: str
    data: str
    method: str
    theirs: Estimate
    ours: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    point: str = ""
    trial: str = ""  # key of the first: tables that repeat a number share it
    stand_in: bool = False  # for data, or pretrained weights, that are not to be had here

    def by(self, selection: str) -> list[Estimate]:
        return [e for (_, how), e in self.ours.items() if how == selection]

    def nearest(self, selection: str = LAST) -> Estimate:
        """Of the forms with the most seeds up to FIRM, so that three seeds go before a lucky one."""
        return min(self.by(selection), key=lambda e: (-min(e.n, FIRM), abs(e.value - self.theirs.value)))

    def back(self, *selections: str) -> bool:
        return any(within(e, self.theirs) for how in selections or (LAST, PICKED) for e in self.by(how))


def within(ours: Estimate, theirs: Estimate) -> bool:
    """
    >>> within(estimate([96.0]), Estimate(97.9)), within(estimate([90.0, 98.0]), Estimate(99.0))
    (True, True)
    >>> within(estimate([94.0, 94.2]), Estimate(97.0)), within(estimate([94.0]), Estimate(97.0, 95.0, 99.0))
    (False, True)
    >>> within(estimate([10.0, 95.0]), Estimate(94.7))
    False
    """
    theirs_sd = (theirs.high - theirs.low) / 2 if theirs.low is not None else 0.0
    return abs(ours.value - theirs.value) <= max(2.0, 2 * min(WIDEST, max(ours.sd or 0.0, theirs_sd)))


def numbers(table: str) -> list[Number]:
    """Those of a published table of which trials were kept. What diverged in every seed is none."""
    if table == LARGE_RATES:
        return ends_of_sweeps()
    from spurless.bench.figures import value_of
    from spurless.bench.reproduce import papers
    from spurless.report.studies import published
    from studies.paper_tables import with_further_seeds

    kept = {row["key"]: row for name in papers() for row in rows(name)}
    found: dict[tuple, Number] = {}
    for line in with_further_seeds(papers()[table], kept).lines:
        theirs = published(line.paper) if line.paper is not None else None
        own = [kept[trial.key] for trial in line.trials if trial.key in kept]
        values = [v for row in own if (v := value_of(row, line.metric)) is not None]
        if theirs is None or not values:
            continue
        data, method = line.block.split(",")[0], line.row.split(",")[0]
        point, stand_in = ", ".join(map(str, line.grid.values())), any(word in line.block for word in STAND_INS)
        key = (data, method, point, line.metric, stand_in)
        number = found.setdefault(
            key, Number(table, data, method, theirs, point=point, trial=own[0]["key"], stand_in=stand_in)
        )
        form = f"{line.block}: {line.row}"
        number.ours[form, LAST] = estimate(values)
        if picked := [v for row in own if (v := best_evaluation(row, line.metric)) is not None]:
            number.ours[form, PICKED] = estimate(picked)
    return list(found.values())


def best_evaluation(row: dict, metric: str) -> float | None:
    """That on the test split, of which the unbiased accuracy is kept: the average, too, where all groups are alike.

    >>> row = {"test_selected": {"unbiased": 25.0}, "scores": {"unbiased": 24.0, "average": 24.0, "aligned": 90.0}}
    >>> best_evaluation(row, "average"), best_evaluation(row, "aligned")
    (25.0, None)
    """
    if not row.get("test_selected") or metric not in row["scores"]:
        return None
    same = abs(row["scores"][metric] - row["scores"]["unbiased"]) < 1e-9
    return row["test_selected"]["unbiased"] if same else None


def ends_of_sweeps() -> list[Number]:
    """Lowest and highest of each measure over the study's rates; what is no percentage counts a hundredfold."""
    found = []
    for name, title in SWEEPS.items():
        kept = json.loads((RESULTS / f"sweep_{name}" / "sweep.json").read_text())
        points = [p for p in kept["points"] if p["in_range"] and p["value"] <= LARGEST]
        for row in kept["paper"]:
            scale = 1 if row["measure"] in ("unbiased", "train_accuracy", "val_accuracy") else 100
            values = [[scale * run[row["measure"]] for run in p["runs"]] for p in points]
            what = {"unbiased": "accuracy without the bias"}.get(row["measure"], row["measure"].replace("_", " "))
            for end, which in (("min", min), ("max", max)):
                ours = {(end, LAST): estimate(which(values, key=fmean))}
                found.append(Number(LARGE_RATES, title, what, Estimate(scale * row[f"paper_{end}"]), ours, end))
    return found


def counts() -> str:
    """The table of docs/reproduction.md."""
    from spurless.bench.reproduce import papers

    heads = "table | numbers | come back | by the last weights | picked on the test split, as the paper does"
    lines = [f"| {heads} | of {FIRM} seeds or more | come back |", "| :-- |" + " --: |" * 6]
    every = [n for table in papers() for n in numbers(table)]
    for stand_in, title in ((False, "all in the published setting"), (True, "all with stand-ins")):
        own = [n for n in every if n.stand_in == stand_in]
        lines += [counted(table, [n for n in own if n.table == table]) for table in dict.fromkeys(n.table for n in own)]
        lines.append(counted(f"**{title}**", own))
        once = {(n.theirs.value, n.trial or (n.data, n.method, n.point)): n for n in sorted(own, key=Number.back)}
        if len(once) < len(own):
            lines.append(counted("the same, numbers of two tables once", list(once.values())))
    return "\n".join(lines)


def counted(title: str, own: list[Number]) -> str:
    """A line of the table."""
    firm, picked = [n for n in own if n.nearest().n >= FIRM], [n for n in own if n.by(PICKED)]
    test = f"{sum(n.back(PICKED) for n in picked)} of {len(picked)}" if picked else ""
    back, last, sure = sum(n.back() for n in own), sum(n.back(LAST) for n in own), sum(n.back() for n in firm)
    return f"| {title} | {len(own)} | {back} | {last} | {test} | {len(firm)} | {sure} |"


def draw() -> None:
    """Theirs against ours, a point for each number and dataset's colour; bars are 95 % CIs over seeds."""
    from spurless.bench.reproduce import papers

    tables = list(papers())
    for paper in ("pgd", "dcwp"):
        own = [n for table in tables if table.startswith(paper) for n in numbers(table)]
        panels = [(LAST, own)]
        if picked := [n for n in own if n.by(PICKED)]:
            panels.append((PICKED, picked))
        scatter(panels, ROOT / "docs" / "papers" / f"{paper}.png")
    rates = ends_of_sweeps()
    measures = ("accuracy without the bias", "prunability")
    scatter(
        [(LAST, [n for n in rates if n.method == m]) for m in measures], ROOT / "docs/papers/large-lr.png", measures
    )


def scatter(panels, path, titles=None):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels) + 1.8, 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (selection, own), title in zip(axes, panels, titles or [s for s, _ in panels], strict=True):
        points = [(n, n.nearest(selection)) for n in own]
        ends = [v for n, e in points for v in (n.theirs.value, e.value)]
        low, high = min(ends) - 4, max(ends) + 4
        ax.fill_between([low, high], [low - 2, high - 2], [low + 2, high + 2], color="0.9", label="within two points")
        ax.plot([low, high], [low, high], color="0.6", lw=1)
        for k, data in enumerate(dict.fromkeys(NAMES.get(n.data, n.data) for n in own)):
            for x, e in ((n.theirs.value, e) for n, e in points if NAMES.get(n.data, n.data) == data):
                firm = e.n >= FIRM
                if firm and e.low is not None:
                    ax.plot([x, x], [max(low, e.low), min(100, e.high)], color=f"C{k}", lw=1, alpha=0.6)
                ax.plot(x, e.value, "o", ms=6, mfc=f"C{k}" if firm else "white", mec=f"C{k}")
            ax.plot([], [], "o", color=f"C{k}", label=data)
        if any(e.n < FIRM for _, e in points):
            ax.plot([], [], "o", mfc="white", mec="0.3", label=f"fewer than {FIRM} seeds")
        ax.set(
            title=title, xlabel="published", ylabel="measured here", xlim=(low, high), ylim=(low, high), aspect="equal"
        )
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw()
    print(counts())

"""Pictures of the two papers that print no number to hold ours against: docs/papers/avp.png and biasadv.png.

python -m studies.unpublished          # from kept rows alone
"""

from statistics import fmean

from spurless.core.stats import estimate
from studies.rows import RESULTS, ROOT, named, rows

WAYS = {"avp-signed": "the score as printed", "avp": "our reading of it (absolute)", "random": "random"}
SHARES = (90, 75, 50, 25)  # of the weights, in percent
BALLS = {
    "nothing": "lff",
    "L2, published radius": "biasadv-l2-0.3",
    "L2, radius 8": "biasadv-l2-8",
    "L∞, published radius": "biasadv-l-0.3",
}
PLACE = ROOT / "docs" / "papers"


def gain(row, share):
    """Points of test accuracy above the dense network where a share of the weights is left; a mean of near epochs.

    >>> curve = [{"weights": 100.0, "test": 78.0}, {"weights": 51.0, "test": 80.0}, {"weights": 49.0, "test": 82.0}]
    >>> gain({"curve": curve}, 50), gain({"curve": curve}, 25)
    (3.0, None)
    """
    near = [p["test"] for p in row["curve"] if abs(p["weights"] - share) <= 2.5]
    return fmean(near) - row["curve"][0]["test"] if near else None


def avp():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    for ax, kind in zip(figure.subplots(1, 2, sharey=True), ("random", "structured"), strict=True):
        for k, (way, label) in enumerate(WAYS.items()):
            own = [row for row in rows("avp_toy") if (row["kind"], row["way"]) == (kind, way)]
            for share in SHARES:
                found = estimate([g for row in own if (g := gain(row, share)) is not None])
                x = 100 - share + 1.5 * (k - 1)
                ax.plot([x, x], [found.low, found.high], color=f"C{k}", lw=1)
                ax.plot(x, found.value, "o", color=f"C{k}", label=label if share == SHARES[0] else None)
        ax.axhline(0, color="0.6", lw=1)
        ax.set(title=f"{kind} labels", xlabel="weights removed, %")
    figure.axes[0].set_ylabel("test accuracy, points gained")
    figure.legend(
        *figure.axes[1].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=3
    )
    figure.savefig(PLACE / "avp.png", dpi=110)


def biasadv():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    ax = figure.subplots()
    kept = {name: row["scores"] for name, row in named(RESULTS / "bias_adv_ball").items()}
    for y, name in enumerate(BALLS.values()):
        for seed in (0, 1):
            scores = kept[f"colored-digits-{name}-seed{seed}"]
            place, color = y + 0.24 * seed - 0.12, f"C{seed}"
            ax.plot(scores["intervals"]["conflicting"], [place, place], color=color, lw=1)
            ax.plot(scores["conflicting"], place, "o", color=color, label=f"seed {seed}" if y == 0 else None)
    ax.set(yticks=range(len(BALLS)), yticklabels=BALLS, xlabel="accuracy on conflicting samples, %")
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False)
    figure.savefig(PLACE / "biasadv.png", dpi=110)


if __name__ == "__main__":
    avp()
    biasadv()

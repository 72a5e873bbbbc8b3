"""What a pruned network costs and what it is left with: its sizes, notes for the reader, the drawn curve, the table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from spurless.compress.figures import macs, parameters, size_of
from spurless.compress.shrink import Shrunk, shrink
from spurless.compress.standalone import pack
from spurless.core.errors import UserError
from spurless.core.files import atomic
from spurless.core.messages import log
from spurless.core.stats import NOTHING
from spurless.methods.parts.pruning import prunable
from spurless.metrics.groups import group_notes
from spurless.nets import Net
from spurless.report.tables import score, with_small_n, with_words

if TYPE_CHECKING:
    from rich.console import Group

METRICS = ("average", "unbiased", "conflicting", "worst_group")


def measured(net: Net, example: Tensor) -> dict[str, Any]:
    """The sizes of a pruned network without its dead channels: what is stored and computed, and how much is zeros."""
    try:
        small: Shrunk | None = shrink(net, example)
    except UserError as error:
        log.warning(f"Dead channels are not cut out. {error}")
        small = None
    return sizes(net, example, small)


def sizes(net: Net, example: Tensor, small: Shrunk | None) -> dict[str, Any]:
    """The sizes of a network as a row of the curve; `small`: the same without its dead channels."""
    real = net if small is None else small.net
    weights = [net.get_parameter(name).detach() for name in prunable(net)]
    there, of = sum(int((w != 0).sum()) for w in weights), sum(w.numel() for w in weights)
    packed = pack({name: t.contiguous() for name, t in real.state_dict().items()})
    return {
        "weights_percent": 100 * there / of,  # that are not zero
        "parameters": parameters(real),
        "macs": macs(real, example[:1]),
        "bytes": size_of(real),
        "compressed_bytes": sum(t.nbytes for t in packed.values()),
        "channels_removed": small.channels if small else 0,
        "difference": small.difference if small else 0.0,
    }


def notes(curve: Mapping[str, Any], normalised: bool, scored_on: str) -> list[str]:
    """What a reader must know; `normalised`: the network has BatchNorm."""
    told = []
    if not curve["structured"]:
        told.append(
            "Single weights were removed: the compressed file is smaller, but dense kernels multiply by zeros all the "
            "same, so only channels that died as a whole save time. --structured removes channels."
        )
    if not normalised and "batchnorm" in curve:
        told.append("The network has no BatchNorm, so that there were no statistics to take anew.")
    if normalised and not curve["finetune"] and "batchnorm" not in curve:
        told.append(
            "BatchNorm's statistics are still those of the whole network, which may cost accuracy: --batchnorm "
            "recomputed takes them anew, without training."
        )
    if curve.get("objective") == "plain" and curve["how"] != "dcwp":
        told.append("Fine-tuning was by plain cross entropy on the training samples, which can bring a shortcut back.")
    of_groups = [group_notes(row["scores"], scored_on) for row in curve["rows"] if row.get("scores")]
    return [*told, *dict.fromkeys(note for own in of_groups for note in own)]


def draw(curve: Mapping[str, Any], folder: Path) -> None:
    """Accuracy against size, as curve.png and curve.svg."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in curve["rows"] if row.get("scores")]
    size, label = ("parameters", "parameters") if curve["structured"] else ("weights_percent", "weights left, %")
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for metric in METRICS:
        points = [(row[size], s) for row in rows if (s := score(row, metric))]
        if not points:
            continue
        xs, scores = zip(*points, strict=True)
        (line,) = axes.plot(xs, [s.value for s in scores], marker="o", markersize=4, label=metric.replace("_", " "))
        low, high = [s.low for s in scores], [s.high for s in scores]
        if None not in low:
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel=label, ylabel="accuracy, %", ylim=(0, 101))
    title = f"{curve['method']} on {curve['data']}, pruned by {curve['how']}"
    axes.set_title(title, fontsize=9, parse_math=False)  # a name with dollars is no formula
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "spurless"}):
        for kind in ("png", "svg"):
            with atomic(folder / f"curve.{kind}") as unfinished:
                figure.savefig(unfinished, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def table(curve: Mapping[str, Any]) -> Group:
    """The curve for a terminal of 80 columns, with the notes below it."""
    from rich import box
    from rich.table import Table

    rows = curve["rows"]
    shown = [m for m in METRICS if any(score(row, m) for row in rows)]
    failed = [f"At {row['keep']:.2f}: {row['error']}" for row in rows if row.get("error")]
    sheet = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("keep", "weights", "parameters", "MACs", *(m.replace("_", "\n") for m in shown)):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        sizes = [NOTHING] * 3
        if not row.get("error"):
            sizes = [f"{row['weights_percent']:.1f}%", f"{row['parameters']:,}", f"{row['macs']:,}"]
        values = [with_small_n(f"{s.value:.1f}", row, m) if (s := score(row, m)) else NOTHING for m in shown]
        sheet.add_row(f"{row['keep']:.2f}", *sizes, *values)
    return with_words(sheet, [*failed, *curve["notes"]])

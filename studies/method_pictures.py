"""The pictures of docs/methods/*.md, one SVG for each method: what is trained, on which samples, in which order.

Blue dots are bias-aligned samples, orange triangles bias-conflicting ones; a network is drawn by its layers, the
biased one in orange. `python -m studies.method_pages` writes them.
"""

import math
import random
from collections.abc import Callable
from html import escape
from itertools import pairwise

WIDE, HIGH, GAP = 136, 92, 34  # of a panel in pixels, and between panels
BLUE, ORANGE, INK, FAINT = "#0072B2", "#D55E00", "#333", "#c3c7cd"
GRID = [(12 + 22 * (i % 6), 14 + 21 * (i // 6)) for i in range(24)]
CONFLICTING = (3, 10, 17, 20)
GROUPS = (
    (4, 4, 76, 40),
    (84, 4, 48, 40),
    (4, 48, 48, 40),
    (56, 48, 76, 40),
)  # aligned, conflicting, conflicting, aligned
LAYERS = ((18, (20, 46, 72)), (52, (12, 35, 58, 81)), (86, (12, 35, 58, 81)), (120, (32, 60)))


# --- Shapes ----------------------------------------------------------------------------------------------------------


def dot(x: float, y: float, conflicting: bool, size: float = 4.5) -> str:
    if not conflicting:
        return f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" fill="{BLUE}"/>'
    s = size * 1.25
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x, y - s), (x - s, y + 0.8 * s), (x + s, y + 0.8 * s)))
    return f'<polygon points="{points}" fill="{ORANGE}"/>'


def frame(x: float, y: float, width: float, height: float, bold: bool = False) -> str:
    style = f'fill="#fde9d9" stroke="{ORANGE}" stroke-width="2.5"' if bold else f'fill="none" stroke="{INK}"'
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" {style}/>'


def edge(x1: float, y1: float, x2: float, y2: float, color: str = INK, width: float = 1.0, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="{width:g}"{dashed}/>'


def word(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{INK}">{escape(text)}</text>'


# --- Samples ---------------------------------------------------------------------------------------------------------


def samples(size: float = 4.5, of_conflicting: float = 4.5, more: tuple[int, ...] = ()) -> str:
    sizes = {True: of_conflicting, False: size}
    return "".join(dot(x, y, i in CONFLICTING + more, sizes[i in CONFLICTING + more]) for i, (x, y) in enumerate(GRID))


def everything() -> str:
    return samples()


def weighted() -> str:
    return samples(2.2, 7)


def repeated() -> str:
    return samples(more=(0, 5, 7, 8, 12, 14, 22))


def errors() -> str:
    """Those that a network gets wrong: most that conflict, and one that does not."""
    rings = "".join(
        f'<circle cx="{GRID[i][0]}" cy="{GRID[i][1]}" r="9" fill="none" stroke="{INK}" stroke-width="1.6"/>'
        for i in (3, 10, 17, 13)
    )
    return samples() + rings


def in_groups(counts: tuple[int, int, int, int], worst: int | None = None, large: bool = False) -> str:
    parts = []
    for g, (x, y, width, height) in enumerate(GROUPS):
        parts.append(frame(x, y, width, height, bold=g == worst))
        for i in range(counts[g]):
            size = 6.5 if large and g == worst and i == 0 else 4
            parts.append(dot(x + 11 + 13 * (i % 5), y + 12 + 17 * (i // 5), g in (1, 2), size))
    return "".join(parts)


def groups() -> str:
    return in_groups((10, 2, 2, 10))


def equal_groups() -> str:
    return in_groups((3, 3, 3, 3))


def worst_group() -> str:
    return in_groups((10, 2, 2, 10), worst=1)


def worst_samples() -> str:
    return in_groups((10, 2, 2, 10), worst=1, large=True)


def environments() -> str:
    left = "".join(dot(12 + 15 * (i % 5), 14 + 20 * (i // 5), i == 7) for i in range(20))
    right = "".join(dot(98 + 16 * (i % 2), 24 + 22 * (i // 2), i != 3) for i in range(6))
    return frame(2, 2, 80, 88) + frame(86, 2, 48, 88) + left + right


def clusters() -> str:
    rng = random.Random(3)
    parts = []
    for x, y, width, height, n, conflicting in (
        (34, 30, 32, 24, 11, False),
        (102, 30, 30, 22, 9, False),
        (70, 72, 22, 16, 5, True),
    ):
        parts.append(
            f'<ellipse cx="{x}" cy="{y}" rx="{width}" ry="{height}" fill="none" stroke="{INK}" stroke-dasharray="4 3"/>'
        )
        for i in range(n):
            turn, away = 2.4 * i, 0.8 * math.sqrt((i + 0.5) / n)
            parts.append(
                dot(
                    x + width * away * math.cos(turn) + rng.random(),
                    y + height * away * math.sin(turn),
                    conflicting,
                    3.6,
                )
            )
    return "".join(parts)


def bars(chosen: Callable[[int], bool], lost: bool = False) -> str:
    """Twelve values, falling; the chosen ones in orange, or only drawn round where they are lost."""
    parts = []
    for i in range(12):
        height = 78 * 0.82**i
        color = ORANGE if chosen(i) else FAINT
        look = (
            f'fill="none" stroke="{color}" stroke-dasharray="3 2"'
            if lost and chosen(i)
            else f'fill="{color if chosen(i) else BLUE}"'
        )
        parts.append(f'<rect x="{6 + 10.5 * i:g}" y="{86 - height:.1f}" width="8" height="{height:.1f}" {look}/>')
    return "".join(parts) + edge(2, 87, 134, 87)


def extremes() -> str:
    return bars(lambda i: i < 3) + frame(3, 4, 34, 84) + frame(100, 66, 33, 22)


def least() -> str:
    return bars(lambda i: i > 7, lost=True)


def odds() -> str:
    """p(y | b): one class is likely under each value."""
    parts = [edge(2, 84, 134, 84)]
    for x, heights in ((10, (66, 12)), (78, (12, 66))):
        for i, height in enumerate(heights):
            color = (BLUE, ORANGE)[height < 30]
            parts.append(f'<rect x="{x + 25 * i}" y="{84 - height}" width="20" height="{height}" fill="{color}"/>')
    return "".join(parts)


def pairs() -> str:
    """Samples of one class pulled together across the bias, samples of one bias pushed apart."""
    pull = f'<path d="M38 20 Q68 4 98 20" fill="none" stroke="{INK}" stroke-width="1.6" marker-end="url(#a)"/>'
    push = edge(30, 34, 30, 66, INK, 1.4, "4 3") + edge(106, 34, 106, 66, INK, 1.4, "4 3")
    shown = dot(30, 26, False, 7) + dot(106, 26, True, 7) + dot(30, 74, True, 7) + dot(106, 74, False, 7)
    return pull + push + shown + word(68, 30, "one class", 11) + word(68, 55, "apart", 11)


def swapped() -> str:
    parts = []
    for y, bias in ((20, ORANGE), (62, BLUE)):
        parts.append(f'<rect x="6" y="{y}" width="44" height="16" fill="#8a9099"/>')
        parts.append(f'<rect x="86" y="{y}" width="44" height="16" fill="{bias}"/>')
        parts.append(word(28, y - 4, "class", 11) + word(108, y - 4, "bias", 11))
    return "".join(parts) + edge(80, 32, 56, 66, INK, 1.6) + edge(80, 66, 56, 32, INK, 1.6)


def apart() -> str:
    """Features of two networks that tell nothing about each other."""
    rows = "".join(
        f'<rect x="{16 + 36 * i}" y="{y}" width="30" height="18" fill="{color}" opacity="{1 - 0.25 * i}"/>'
        for y, color in ((8, ORANGE), (66, BLUE))
        for i in range(3)
    )
    return rows + edge(68, 30, 68, 62, INK, 1.6, "4 3") + edge(58, 38, 78, 54, INK, 2) + edge(78, 38, 58, 54, INK, 2)


def attacked() -> str:
    rng = random.Random(1)
    noise = "".join(
        f'<rect x="{82 + 6 * (i % 8)}" y="{24 + 6 * (i // 8)}" width="6" height="6" fill="{ORANGE}" '
        f'opacity="{0.6 * rng.random():.2f}"/>'
        for i in range(64)
    )
    digit = "".join(
        f'<path d="M{x} 34 q12 -8 12 4 q0 8 -10 18 h14" fill="none" stroke="#333" stroke-width="4"/>' for x in (22, 98)
    )
    return frame(6, 24, 48, 48) + frame(82, 24, 48, 48) + noise + digit + word(68, 53, "+ε", 12)


# --- Networks --------------------------------------------------------------------------------------------------------


def network(color: str = INK, keep: float = 1.0, head: bool = False, scale: float = 1.0) -> str:
    """Layers and weights; `keep`: the share of weights that is drawn; `head`: all but the last layer stands still."""
    rng = random.Random(0)
    parts = []
    for (x1, above), (x2, below) in pairwise(LAYERS):
        still = head and x2 != LAYERS[-1][0]
        for y1 in above:
            for y2 in below:
                gone = rng.random() > keep
                shade, width = (FAINT, 0.8) if still or gone else (color, 2.2 if head else 1.2)
                parts.append(edge(x1, y1, x2, y2, shade, width, "2 4" if gone else ""))
    for x, rows in LAYERS:
        fill = FAINT if head and x != LAYERS[-1][0] else color
        parts.extend(f'<circle cx="{x}" cy="{y}" r="5.5" fill="{fill}"/>' for y in rows)
    return "".join(parts) if scale == 1 else f'<g transform="scale({scale:g})">{"".join(parts)}</g>'


def plain() -> str:
    return network()


def biased() -> str:
    return network(ORANGE)


def debiased() -> str:
    return network(BLUE)


def head() -> str:
    return network(BLUE, head=True)


def masked() -> str:
    return network(BLUE, keep=0.4)


def masked_plain() -> str:
    return network(keep=0.5)


def two(upper: str, lower: str) -> str:
    halves = network(upper, scale=0.48), network(lower, scale=0.48)
    return f'<g transform="translate(34 0)">{halves[0]}</g><g transform="translate(34 48)">{halves[1]}</g>'


def beside() -> str:
    return two(ORANGE, BLUE)


def twins() -> str:
    return two(ORANGE, ORANGE)


def patches() -> str:
    squares = "".join(
        f'<rect x="{4 + 11 * (i % 4)}" y="{24 + 11 * (i // 4)}" width="10" height="10" '
        f'fill="{(ORANGE, BLUE, FAINT)[i * 7 % 3]}"/>'
        for i in range(16)
    )
    return squares + f'<g transform="translate(58 24)">{network(ORANGE, scale=0.52)}</g>'


# --- Methods ---------------------------------------------------------------------------------------------------------

# fmt: off
PANELS = {panel.__name__: panel for panel in (
    everything, weighted, repeated, errors, groups, equal_groups, worst_group, worst_samples, environments, clusters,
    extremes, least, odds, pairs, swapped, apart, attacked, plain, biased, debiased, head, masked, masked_plain, beside,
    twins, patches,
)}
# fmt: on

PICTURES = {  # panel: caption
    "erm": "everything: all samples alike | plain: cross entropy",
    "lff": "everything: all samples | beside: biased, debiased | weighted: where the biased fails | debiased: debiased",
    "jtt": "biased: a short training | errors: its errors | repeated: λ copies of them | debiased: train again",
    "ga": "twins: two peers mine | errors: hard samples | weighted: easy ones scaled down | debiased: train again",
    "pgd": "biased: GCE | weighted: norms of gradients | repeated: drawn by them | debiased: goes on with CE",
    "crossfit": "twins: small experts | errors: sure, and wrong | debiased: learns the rest | plain: else plain",
    "dpr": "biased: GCE | weighted: doubts of the label | repeated: drawn by them | debiased: goes on with CE",
    "bias_adv": "beside: biased, debiased | attacked: only the biased errs | debiased: trained on both",
    "la": "biased: infers the bias | odds: classes, given the bias | debiased: log odds are added",
    "afr": "plain: on 80 % of the samples | weighted: not believed: more | head: the head goes on",
    "evals": "plain: plain training | extremes: high and low losses | head: a new head",
    "xrm": "twins: on a half each | errors: errors of either | worst_group: GroupDRO on them | debiased: train again",
    "rebias": "patches: sees small patches | apart: independent features | debiased: the classifier",
    "cnc": "plain: predictions | pairs: contrast by them | debiased: train again",
    "eiil": "plain: a reference | environments: environments | debiased: GroupDRO or IRM",
    "george": "plain: features | clusters: clusters of a class | worst_group: GroupDRO on them | debiased: train again",
    "bpa": "plain: features | clusters: clusters of a class | weighted: small, lossy: more | debiased: train again",
    "group_dro": "groups: groups | worst_group: the worst weighs most | debiased: one training",
    "rs": "groups: groups | equal_groups: equally often | debiased: one training",
    "gc_dro": "groups: imperfect groups | worst_samples: worst of the worst | debiased: one training",
    "dfr": "plain: plain training | equal_groups: held out, balanced | head: a new head",
    "irm": "environments: environments | debiased: best in each of them",
    "end": "groups: bias labels | pairs: pulled and pushed | debiased: one training",
    "disent": "beside: two encoders | swapped: bias features swapped | debiased: the class's encoder",
    "dcwp": "biased: mines | errors: conflicting samples | masked_plain: learn a mask | masked: fine-tune",
    "mrm": "plain: train from W₀ | masked_plain: learn a mask | masked: retrain from W₀",
    "avp": "plain: an epoch | least: variability of units | masked: the least go",
    "random_prune": "plain: an epoch | masked: some go, at random",
    "magnitude_prune": "plain: train | least: sizes of weights | masked: fine-tune the rest",
    "mining": "biased: GCE, or stopped early | errors: what it gets wrong",
}


def drawn(name: str) -> str:
    """The picture of a method: its panels from left to right, on a light ground that dark pages show too."""
    panels = [panel.split(": ", 1) for panel in PICTURES[name].split(" | ")]
    width = len(panels) * (WIDE + GAP) - GAP + 28
    parts = []
    for i, (panel, caption) in enumerate(panels):
        x = 14 + i * (WIDE + GAP)
        parts.append(f'<g transform="translate({x} 14)">{PANELS[panel]()}{word(WIDE / 2, HIGH + 22, caption, 13)}</g>')
        if i:
            parts.append(
                f'<path d="M{x - GAP + 6} 60 h{GAP - 14}" stroke="{INK}" stroke-width="2" marker-end="url(#a)"/>'
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 150" width="{width}" height="150" '
        'font-family="system-ui, sans-serif"><defs><marker id="a" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="5" '
        f'markerHeight="5" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8z" fill="{INK}"/></marker></defs>'
        f'<rect width="{width}" height="150" rx="8" fill="#fff"/>{"".join(parts)}'
        f"<g>{dot(20, 140, False, 3.5)}{dot(82, 140, True, 3.5)}</g>"
        f'<text x="28" y="144" font-size="11" fill="{INK}">aligned</text>'
        f'<text x="91" y="144" font-size="11" fill="{INK}">conflicting</text></svg>\n'
    )

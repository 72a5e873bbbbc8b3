"""What misleads: samples that are given the cue of another class, and as a placebo that of another one of their own.

A repair is judged by several cues. A finding may be a part of what was put there (one window of a stripe), or follow
from it (an image with a mark is sharper): what takes the one away leaves the other, which the exchange of the other
shows. So findings are also joined: what was drawn into the images; their light and colours; their fine detail; all that
was put into texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.cues import middle, swap_compression, swap_margin, swap_noise, swap_sharpness
from spurless.auditing.foreground import background_only, foreground
from spurless.auditing.gather import Cue, Swap
from spurless.auditing.marks import FEWEST, STEADY
from spurless.auditing.suspects import Suspect, edited, slow
from spurless.core.augment import floats
from spurless.core.data import Split
from spurless.methods.parts.exchange import donors

FEW = 10  # exchanged samples that can speak for a repair, or conflicting ones that speak for themselves
PAIRS, OF_PHOTOS = 1500, 700  # exchanged samples at most
WEAK = 0.05  # effect of an exchange below which a finding is only joined
LOOK = 800  # samples in which one looks for what was drawn into them
GROUND = 0.2  # share of all pixels from which a tone is the ground that objects lie on
OTHERS, AROUND = 0.08, 0.025  # how far pixels of other images are from what was drawn, and a rim, of the image's side
DRAWN, LIGHT, DETAIL, SEVERAL = "what was drawn in", "light and colour", "fine detail", "all that was put in"
JOINED = {  # kinds that are exchanged together
    DRAWN: ("mark", "part", "margin"),
    LIGHT: ("light",),
    DETAIL: ("detail",),
    SEVERAL: ("text",),
}
WORDS = {
    DRAWN: "what was drawn into the image",
    LIGHT: "the light and the colours of the image",
    DETAIL: "the fine detail of the image",
    SEVERAL: "what was put into the text",
}


@dataclass(frozen=True, eq=False)
class World:
    """A cue, and typical samples that were given it by others: of another class, and of their own."""

    finding: Suspect
    swap: Swap | None = None
    of: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))  # (pairs,) the samples
    inputs: tuple[Tensor, Tensor] | None = None  # with the cue of another class, of their own
    features: tuple[Tensor, Tensor] | None = None

    @property
    def follows(self) -> Tensor:
        """(n,) Whether the cue points to the label."""
        return self.finding.follows


def worlds(case: Case, findings: list[Suspect], fold: Tensor) -> list[World]:
    """Of each finding, and of those that are joined; what was drawn stands for its parts, where it was seen."""
    together = joined(findings, case)
    seen = any(each.name == DRAWN and each.extra["seen"] for each in together)
    weak = [f for f in findings[1:] if f.effect < WEAK and _swap(f) is not None and family(f) in JOINED]
    alone = [f for f in findings if f not in weak and not (seen and f.kind in JOINED[DRAWN])]
    return [exchange(case, finding, fold) for finding in [*alone, *together]]


def joined(findings: Sequence[Suspect], case: Case) -> list[Suspect]:
    """Findings of related kinds as one, whose cue is exchanged as a whole. It misleads where the clearest of them
    does."""
    made = []
    for name, kinds in JOINED.items():
        own = [f for f in findings if f.kind in kinds and _swap(f) is not None]
        if len(own) < (2 if name == SEVERAL else 1):
            continue
        clearest = max(own, key=lambda f: f.strength * f.crisp)
        mask = drawn_in(case, clearest) if name == DRAWN else None
        if name == DRAWN and mask is None and len(own) == 1:
            continue
        swap = _whole(name, own, case.data.shape) if mask is None else inside(mask)
        extra = clearest.extra | {"cue": Cue(name, WORDS[name], name, swap=swap), "seen": mask is not None}
        made.append(replace(clearest, name=name, words=WORDS[name], kind=name, extra=extra))
    return made


def family(finding: Suspect) -> str:
    """What findings of its kind are joined to."""
    return next((name for name, kinds in JOINED.items() if finding.kind in (name, *kinds)), finding.kind)


def _swap(finding: Suspect) -> Swap | None:
    cue = finding.extra.get("cue")
    return None if cue is None else cue.swap


def _whole(name: str, findings: Sequence[Suspect], shape: tuple[int, ...]) -> Swap:
    """All at once, of the same donor."""
    swaps = [swap for f in findings if (swap := _swap(f)) is not None]
    if name == DRAWN:
        return wider(swaps, shape)
    if name == LIGHT:
        return swap_light
    chain = swaps if name == SEVERAL else [swap_noise, swap_sharpness, swap_compression]
    return lambda x, donor: reduce(lambda now, swap: swap(now, donor), chain, x)


def exchange(case: Case, finding: Suspect, fold: Tensor) -> World:
    """The world of a finding; without exchanged samples where its cue cannot be exchanged."""
    swap = _swap(finding)
    if swap is None:
        return World(finding)
    typical = finding.follows & (fold >= 0)
    of, other, same = donors(case.held.y, typical, finding.extra.get("best"), case.seed)
    rows = torch.randperm(len(of), generator=torch.Generator().manual_seed(case.seed))
    rows = rows[: OF_PHOTOS if slow(case) else PAIRS].sort().values
    if len(rows) < FEW:
        return World(finding)
    stronger = stricter(finding.kind, swap, case.data.shape)
    every = case.held[torch.arange(len(case.held))]
    a, b = (edited(every, of[rows], donor[rows], stronger, case.images) for donor in (other, same))
    features = (case.outputs(unlabelled(a), features=True), case.outputs(unlabelled(b), features=True))
    return World(finding, stronger, of[rows], (a, b), features)


def unlabelled(x: Tensor) -> Split:
    return Split(x, torch.zeros(len(x), dtype=torch.long))


# Exchanges that leave less of a sample's own cue than those that show whether it is used


def stricter(kind: str, swap: Swap, shape: tuple[int, ...]) -> Swap:
    if kind == "background":
        return on_other_ground
    return wider([swap], shape) if kind in ("mark", "part") else swap


def on_other_ground(x: Tensor, donor: Tensor) -> Tensor:
    """The inside of the object of x on the ground of the donor: along its outline something of x's own ground stays."""
    k = 2 * max(1, round(0.025 * x.shape[-1])) + 1
    inner = -F.max_pool2d(-foreground(x), k, 1, k // 2)
    return x * inner + background_only(donor) * (1 - inner)


def wider(swaps: Sequence[Swap], shape: tuple[int, ...]) -> Swap:
    """Exchanges of windows, with a rim of a quarter of a side: a mark may reach beyond the window that shows it.

    >>> at = wider([lambda x, donor: torch.cat([donor[..., :4], x[..., 4:]], 3)], (1, 4, 12))
    >>> at(torch.zeros(1, 1, 4, 12), torch.ones(1, 1, 4, 12))[0, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    whole = torch.zeros(1, *shape)
    for swap in swaps:
        window = swap(torch.zeros(1, *shape), torch.ones(1, *shape))
        if swap is not swap_margin:
            rim = max(1, round(0.25 * math.sqrt(float(window[0, 0].sum()))))
            window = F.max_pool2d(window, 2 * rim + 1, 1, rim)
        whole = whole.maximum(window)
    return inside(whole)


def inside(mask: Tensor) -> Swap:
    """An exchange of the pixels where the mask (1, 1 or c, h, w) is not 0."""
    return lambda x, donor: torch.where(mask > 0, donor, x)


def drawn_in(case: Case, finding: Suspect) -> Tensor | None:
    """(1, 1, h, w) What was drawn into the images that the finding says one class of, by some of them."""
    rows = finding.asked[torch.randperm(len(finding.asked), generator=torch.Generator().manual_seed(case.seed))[:LOOK]]
    return drawn(floats(case.held[rows]), finding.says[rows])


def drawn(x: Tensor, says: Tensor) -> Tensor | None:
    """(1, 1, h, w) 1 at, and around, the pixels that are the same in most images (n, c, h, w) of which a cue says one
    class, and others in the rest: no part of an object is so. None where there are hardly any.

    The ground that objects lie on is the same in most images as well: its tone does not count."""
    pixels = torch.zeros(x.shape[-2:])
    for c in says.unique():
        own = says == c
        if min(int(own.sum()), int((~own).sum())) < FEW:
            continue
        usual = middle(x[own])  # (c, h, w)
        spread, far = middle((x[own] - usual).abs()), middle((x[~own] - usual).abs())
        tones = torch.histc(x[~own], 32, 0, 1)
        ground = float(tones.argmax() + 0.5) / 32 if float(tones.max()) > GROUND * float(tones.sum()) else -1.0
        on = (spread.amax(0) < STEADY) & (far.amax(0) > OTHERS) & ((usual - ground).abs().amax(0) > OTHERS)
        pixels = pixels.maximum(on.float())
    if int(pixels.sum()) < FEWEST:
        return None
    k = max(1, round(AROUND * x.shape[-1]))
    return F.max_pool2d(pixels[None, None], 2 * k + 1, 1, k)


def swap_light(x: Tensor, donor: Tensor) -> Tensor:
    """Mean and spread of each channel as the donor's."""
    (mean, spread), (wanted, wide) = moments(x), moments(donor)
    return ((x - mean) / spread * wide + wanted).clamp(0, 1)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c, 1, 1) each: mean and spread of each channel."""
    return x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True).clamp_min(0.02)

"""What takes a cue out of the inputs: in a user's own pipeline, in words, and in an audit's samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.cues import encoded, ring, smoothed
from spurless.auditing.exchanges import DETAIL, DRAWN, LIGHT, SEVERAL, World, moments
from spurless.auditing.suspects import edited
from spurless.core.augment import floats, like

Edit = Callable[[Tensor], Tensor]
GROUNDS = 20  # images whose mean is the ground of all

REMOVE = {
    "mark": "paint over or crop away that part of every image",
    "part": "crop that part away from every image",
    DRAWN: "paint over or crop away those pixels of every image",
    "spot": "paint over the mark in every image",
    "margin": "crop the margin of every image",
    "light": "give all images the same brightness, contrast and colour balance",
    LIGHT: "give each colour of all images the same mean and spread",
    "detail": "bring all images to one sharpness and noise level: resize and encode them again in one way",
    DETAIL: "bring all images to one sharpness and noise level: smooth and encode them again in one way",
    "place": "centre and scale all objects in the same way",
    "background": "cut the objects out, and give all the same ground",
    "text": "strip it from every text",
    SEVERAL: "strip it from every text",
    "column": "drop the column",
    "attribute": "drop the column",
    "file": "encode all files again in one format, size and quality",
    "hidden": "name it in a review, and collect or weigh its groups evenly",
}


def removal(kind: str) -> str:
    """What a user does to take a cue of this kind out of the input."""
    return REMOVE.get(kind, "take it out of the input")


def edits(case: Case, world: World) -> dict[str, Edit]:
    """How the cue is taken out of an input: as a user would, or by giving all samples that of one and the same.
    The first is plain, the others have names."""
    kind = world.finding.kind
    changes = REMOVALS.get(kind, ()) if case.images else ()
    made = {how: _on_images(change) for how, change in changes if change is not greyed or case.data.shape[0] == 3}
    if world.swap is None or "" in made:
        return made
    swap, neutral = world.swap, _neutral(case, world)

    def edit(x: Tensor) -> Tensor:
        every = torch.arange(len(x))
        return edited(torch.cat([x, neutral]), every, torch.full_like(every, len(x)), swap, case.images)

    return {"": edit} | made


def _neutral(case: Case, world: World) -> Tensor:
    """A typical sample, and of a text one without what was put there; of backgrounds the mean of some."""
    finding, cue = world.finding, world.finding.extra.get("cue")
    values, order = None if cue is None else cue.values, finding.asked
    if finding.kind == "background":
        some = case.held[world.of[: len(world.of) : max(1, len(world.of) // GROUNDS)]]
        return like(floats(some).mean(0, keepdim=True), some)
    if values is not None and len(values) >= len(order) and finding.kind == "text":
        return case.held[order[values[-len(order) :].sum(1).argmin()][None]]
    typical = order[finding.follows[order]]
    return case.held[typical[len(typical) // 2][None]]


# Of images from 0 to 1


def cropped(x: Tensor) -> Tensor:
    """Without its margin, at the size that it had."""
    top, left = (2 * side for side in ring(x))
    return F.interpolate(x[..., top:-top, left:-left], x.shape[-2:], mode="bilinear", align_corners=False)


def reencoded(x: Tensor) -> Tensor:
    """As if all files had been small ones of a low quality: what is lost in one is lost in all."""
    return encoded(smoothed(x), 30)


def evened(x: Tensor) -> Tensor:
    """Each channel with the same mean and spread in every image."""
    mean, spread = moments(x)
    return ((x - mean) / spread * 0.2 + 0.5).clamp(0, 1)


def greyed(x: Tensor) -> Tensor:
    """Without colours, and evened."""
    return evened(evened(x).mean(1, keepdim=True)).expand_as(x)


REMOVALS: dict[str, tuple[tuple[str, Edit], ...]] = {
    "margin": (("", cropped),),
    "file": (("", reencoded),),
    DETAIL: (("", reencoded),),
    "light": (("evened", evened), ("grey", greyed)),
    LIGHT: (("", evened), ("grey", greyed)),
}


def _on_images(change: Edit, at_once: int = 400) -> Edit:
    return lambda x: torch.cat([like(change(floats(chunk)), x[:1]) for chunk in x.split(at_once)])

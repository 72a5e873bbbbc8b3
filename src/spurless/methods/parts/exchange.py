"""Exchanging what is easy about images: a sample is shown in the light or with the fine detail of another, and keeps
its label. What a shortcut consists of is unknown, but small networks that learnt it tell which exchange moves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.core.augment import floats, like
from spurless.core.data import Batch, Images, Split
from spurless.core.messages import log
from spurless.core.method import Run
from spurless.methods.group_inference.experts import Experts

Swap = Callable[[Tensor, Tensor], Tensor]  # (n, c, h, w) from 0 to 1, and as many donors
Exchanged = Literal["light", "detail", "light_detail"]
WAYS: tuple[Exchanged, ...] = get_args(Exchanged)
NAMES = {"light": "light", "detail": "fine detail", "light_detail": "light and the fine detail"}
HALF = 0.5  # of the samples are exchanged, in each way
DARK = 1e-3


def light(x: Tensor, donor: Tensor) -> Tensor:
    """x in the donor's light: its mean colour, by the rotation of the one to the other, its brightness and contrast.

    >>> red, blue = torch.zeros(1, 3, 2, 2), torch.zeros(1, 3, 2, 2)
    >>> red[0, 0, 0], blue[0, 2, 1] = 1.0, 1.0  # a stripe above, a stripe below
    >>> light(red, blue)[0, 2].round(decimals=2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    mine, theirs = x.mean((2, 3)), donor.mean((2, 3))  # (n, c)
    turned = turn(x, mine, theirs)
    spread, wanted = (deviation(images).clamp_min(0.02) for images in (x, donor))
    contrast = (wanted / spread)[:, None, None, None]
    brightness = (theirs.norm(dim=1) / mine.norm(dim=1).clamp_min(DARK))[:, None, None, None]
    mean = turned.mean((2, 3), keepdim=True)
    moved: Tensor = (turned - mean) * contrast + mean * brightness
    return moved.clamp(0, 1)


def turn(x: Tensor, mine: Tensor, theirs: Tensor) -> Tensor:
    """The colours of x (n, 3, h, w), turned as one colour (n, 3) is turned into the other (Rodrigues' rotation)."""
    if x.shape[1] != 3:
        return x
    u, v = F.normalize(mine + DARK), F.normalize(theirs + DARK)
    w, cos = torch.linalg.cross(u, v), (u * v).sum(1)[:, None, None]  # cos >= 0: no colour is negative
    unit = torch.eye(3, device=x.device, dtype=x.dtype)
    crossing = torch.linalg.cross(w[:, None].expand(-1, 3, -1), unit.expand(len(w), 3, 3)).transpose(1, 2)  # w × ·
    rotation = cos * unit + crossing + w[:, :, None] * w[:, None] / (1 + cos)
    turned: Tensor = (rotation @ x.flatten(2)).view(x.shape)
    return turned


def deviation(x: Tensor) -> Tensor:
    """(n,) x.std((1, 2, 3)), faster."""
    centred = x - x.mean((1, 2, 3), keepdim=True)
    length: Tensor = torch.linalg.vector_norm(centred, dim=(1, 2, 3))
    return length / math.sqrt(x[0].numel() - 1)


def detail(x: Tensor, donor: Tensor) -> Tensor:
    """x with the donor's fine detail, which is what a blur takes away: noise, grain, blocks, sharpness.

    >>> x = torch.rand(2, 3, 32, 32)
    >>> bool(torch.allclose(detail(x, x), x, atol=1e-6)), detail(x, x * 0 + 0.5).std() < 0.3 * x.std()
    (True, tensor(True))
    """
    return (donor + blur(x - donor)).clamp(0, 1)  # blur(x) + donor − blur(donor)


def blur(x: Tensor) -> Tensor:
    """Gaussian, of one pixel's deviation up to 56 px."""
    channels, deviation = x.shape[1], max(1.0, x.shape[-1] / 56)
    reach = min(math.ceil(2.5 * deviation), *(side - 1 for side in x.shape[-2:]))
    at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    bell = torch.exp(-at.square() / (2 * deviation**2))
    kernel = (bell / bell.sum()).expand(channels, 1, 1, -1)
    x = F.pad(x, (reach,) * 4, mode="reflect")
    if x.device.type == "cpu":
        x = x.contiguous(memory_format=torch.channels_last)  # eight times as fast
    x = F.conv2d(x, kernel, groups=channels)
    return F.conv2d(x, kernel.transpose(2, 3), groups=channels)


SWAPS: dict[str, Swap] = {"light": light, "detail": detail}


def swapped(x: Tensor, donor: Tensor, how: Exchanged) -> Tensor:
    """x with all that `how` names from the donor."""
    for name in how.split("_"):
        x = SWAPS[name](x, donor)
    return x


class Exchange:
    """Batches in which half of the samples are shown in another one's light, or half with its fine detail, or both.

    It takes a Mixer's place; labels and numbers stay, so that no loss sees anything of it.
    """

    labels = 1  # of each sample

    def __init__(self, how: Exchanged, inputs: Images, device: torch.device):
        self.how = how
        self.mean = torch.tensor(inputs.mean or (0.0,), device=device).view(1, -1, 1, 1)
        self.std = torch.tensor(inputs.std or (1.0,), device=device).view(1, -1, 1, 1)

    @torch.no_grad()
    def __call__(self, b: Batch) -> tuple[Batch, None]:
        x, n, device = b.x.float() * self.std + self.mean, len(b.y), b.x.device
        donor = x[torch.rand(n, device=device).argsort()]
        for name in self.how.split("_"):
            chosen = torch.rand(n, 1, 1, 1, device=device) < HALF
            x = torch.where(chosen, SWAPS[name](x, donor), x)
        x = torch.empty_like(b.x).copy_((x - self.mean) / self.std)
        return Batch(x, b.y, b.a, b.idx, b.t), None


# Which exchange carries what is easy

ASKED, PART = 1000, 250  # samples, and how many of them are exchanged at a time
FEWEST = 100
LEAST, MORE = 0.15, 0.2  # what an exchange must move, and how much more two must move than one


def carried(run: Run, experts: Experts, right: Tensor) -> Exchange | None:
    """The exchange that carries what is easy: the one that moves the experts most; None if none does."""
    how = strongest(effects(run, experts, right.cpu()))
    if how is None:
        return None
    assert isinstance(run.data.inputs, Images)
    log.info(f"crossfit: what is easy lies in the {NAMES[how]} of images, which training exchanges.")
    return Exchange(how, run.data.inputs, run.device)


def effects(run: Run, experts: Experts, right: Tensor) -> dict[Exchanged, float]:
    """Of each exchange the share of the experts' right answers that it moves to the class of a donor, less the placebo:
    the share that a donor of the sample's own class turns away. Empty where nothing can be exchanged."""
    split, generator = run.data.train, run.generator("exchange")
    if not (isinstance(run.data.inputs, Images) and experts.small and from_0_to_1(split)):
        return {}
    asked = torch.zeros(len(split), dtype=torch.bool)
    asked[right.nonzero()[:, 0][torch.randperm(int(right.sum()), generator=generator)[:ASKED]]] = True
    of, other, same = donors(split.y, asked, None, int(torch.randint(2**31, (), generator=generator)))
    if len(of) < FEWEST:
        return {}
    moved = dict.fromkeys(WAYS, 0)
    for part in torch.arange(len(of)).split(PART):
        images, theirs, own = split[of[part]], split[other[part]], split[same[part]]
        for how in moved:
            to, away = (experts.says(run, _exchanged(images, donor, how)) for donor in (theirs, own))
            moved[how] += int((to == split.y[other[part]]).sum()) - int((away != split.y[of[part]]).sum())
    return {how: count / len(of) for how, count in moved.items()}


def from_0_to_1(split: Split) -> bool:
    """Whether images are numbers that an exchange can be made of; own arrays may hold any."""
    some = floats(split[torch.arange(min(len(split), PART))])
    return bool((some >= -DARK).all() and (some <= 1 + DARK).all())


def strongest(moved: Mapping[Exchanged, float]) -> Exchanged | None:
    """The exchange that moves most, if it moves LEAST; both only if that moves MORE.

    >>> strongest({"light": 0.6, "detail": 0.2, "light_detail": 0.7}), strongest({"light": 0.05, "detail": -0.1})
    ('light', None)
    """
    best = max(moved, key=lambda how: moved[how] - MORE * how.count("_"), default=None)
    return best if best and moved[best] >= LEAST else None


def _exchanged(images: Tensor, donor: Tensor, how: Exchanged) -> Tensor:
    return like(swapped(floats(images), floats(donor), how), images)


def donors(y: Tensor, typical: Tensor, best: int | None, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Typical samples, and for each one of another class whose cue it is given, and another one of its own.

    `best`: the one class that the cue gives away; then its samples are the donors of all others.

    >>> y = torch.tensor([0, 0, 1, 1, 2, 2])
    >>> of, donor, same = donors(y, torch.tensor([True, False, True, True, True, True]), 1, 0)
    >>> of.tolist(), y[donor[y[of] != 1]].tolist(), bool((y[of] != y[donor]).all()), bool((y[of] == y[same]).all())
    ([0, 2, 3, 4, 5], [1, 1, 1], True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    order, donor, same = typical.nonzero()[:, 0], torch.full((len(y),), -1), torch.arange(len(y))
    for c in y[order].unique():
        own, others = order[y[order] == c], order[(y[order] != c) if best in (None, int(c)) else (y[order] == best)]
        if len(others):
            donor[own] = others[torch.randint(len(others), (len(own),), generator=generator)]
            mixed = own[torch.randperm(len(own), generator=generator)]
            same[mixed] = mixed.roll(1)
    of = order[donor[order] >= 0]
    return of, donor[of], same[of]

"""Mixing the inputs of a batch (recipe.mix): which samples are mixed, in which shares, and what a loss sees of it.

Only the stage whose weights become the classifier is mixed. A sample keeps its number, so that whatever a method looks
up by it (a weight, a group, a remembered loss) is that of the sample with the larger share.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from spurless.core.data import Batch, Images
from spurless.core.messages import log
from spurless.core.method import Stage
from spurless.methods.group_inference.errors import wrong
from spurless.methods.group_inference.training import biased_net, early
from spurless.methods.parts.exchange import Exchange, Exchanged

if TYPE_CHECKING:
    from spurless.nets import Net
    from spurless.train.engine_run import EngineRun

Pairs = Literal["mixup", "within_class", "selecmix"]
How = Pairs | Exchanged


class Pair(NamedTuple):
    """What a batch is mixed of: for each sample of the mixed batch two of the batch, and the share of the first."""

    first: Tensor  # (n,) whose number and label it has
    second: Tensor  # (n,)
    share: Tensor  # (n,) of the first one
    both_labels: bool = False  # whether the second one's label counts too, by its share


class Mixer:
    """How a stage mixes its batches. All random numbers are the device's, as those of dropout: captured and resumed."""

    def __init__(self, how: Pairs, minority: Tensor | None = None, embedding: Tensor | None = None):
        self.how, self.minority = how, minority  # (n,) bool: the conflicting samples of each class
        self.embedding = None if embedding is None else normalize(embedding.float(), dim=1)  # (n, d) of what is easy
        self.labels = 2 if how == "mixup" else 1  # of each sample

    def __call__(self, b: Batch) -> tuple[Batch, tuple[Tensor, Tensor, Tensor] | None]:
        """The mixed batch and, where two labels count, the second ones, the first ones' shares, and whose they are."""
        pair = self.pair(b)
        s = pair.share.view(-1, *[1] * (b.x.dim() - 1))
        x = s * b.x.index_select(0, pair.first) + (1 - s) * b.x.index_select(0, pair.second)
        a = None if b.a is None else b.a[pair.first]
        mixed = Batch(x.to(b.x.dtype), b.y[pair.first], a, b.idx[pair.first], b.t)
        return mixed, (b.y[pair.second], pair.share, b.idx[pair.second]) if pair.both_labels else None

    @torch.no_grad()
    def pair(self, b: Batch) -> Pair:
        n, device = len(b.y), b.y.device
        own, u = torch.arange(n, device=device), torch.rand(n, device=device)
        if self.how == "mixup":
            return Pair(own, torch.rand(n, device=device).argsort(), (1 + u) / 2, both_labels=True)
        same = b.y[:, None] == b.y[None, :]  # (n, n)
        if self.how == "within_class":
            assert self.minority is not None
            rare = self.minority[b.idx]
            fits = same & (rare[:, None] != rare[None, :])
            other = torch.where(fits, torch.rand(n, n, device=device), -1.0).argmax(1)
            common = major_share(u, b.t)
            share = torch.where(rare, 1 - common, common)
            return Pair(own, other, torch.where(fits.any(1), share, 1.0))
        assert self.embedding is not None
        z = self.embedding[b.idx]
        alike = z @ z.T  # (n, n)
        itself = torch.eye(n, dtype=torch.bool, device=device)
        least = alike.masked_fill(~same | itself, 2.0).argmin(1)  # of the same class; a lonely sample: any
        most = alike.masked_fill(same, -2.0).argmax(1)  # of another class
        return Pair(torch.where(torch.rand((), device=device) < 0.5, least, most), own, 1 - u / 2)


def major_share(u: Tensor, t: Tensor) -> Tensor:
    """(n,) The share of the aligned sample, by uniform numbers (n,) and progress t: U(1 − 2α, 1 − α) with
    α = ½ exp(−5 (1 − t)²), at first nearly 1, in the end below a half.

    >>> [round(float(major_share(torch.tensor(u), torch.tensor(1.0))), 2) for u in (0.0, 0.5, 1.0)]
    [0.0, 0.25, 0.5]
    """
    alpha = 0.5 * torch.exp(-5 * (1 - t) ** 2)
    return 1 - 2 * alpha + alpha * u


def with_mixing(stages: Generator[Stage, None, Net], run: EngineRun) -> Generator[Stage, None, Net]:
    """A method's stages, the selected one mixed as the recipe says unless the method has its own way."""
    how = run.recipe.mix
    try:
        stage = next(stages)
        while True:
            if how and stage.select and stage.mix is None:
                stage.mix = yield from mixer(run, how)
            elif how and stage.select:
                log.warning(f"recipe.mix = {how} is not used: the method mixes stage '{stage.name}' in its own way.")
            yield stage
            stage = next(stages)
    except StopIteration as end:
        net: Net = end.value
        return net


def mixer(run: EngineRun, how: How) -> Generator[Stage, None, Mixer | Exchange]:
    """What a way of mixing needs to know: the samples that the method identified as conflicting, else the errors and
    the features of a network trained for a fifth of the length with GCE."""
    if how == "light" or how == "detail" or how == "light_detail":  # one by one: a type checker follows
        assert isinstance(run.data.inputs, Images)  # check_recipe has seen to it
        return Exchange(how, run.data.inputs, run.device)
    if how == "mixup":
        return Mixer(how)
    if how == "within_class" and run.findings:
        return Mixer(how, minority=list(run.findings.values())[-1].to(run.device))
    net = yield from biased_net(run, early(run), name="easy")
    if how == "within_class":
        minority = wrong(run.outputs(net).cpu(), run.data.train.y)
        return Mixer(how, minority=minority.to(run.device))
    return Mixer(how, embedding=run.outputs(net, features=True).to(run.device))

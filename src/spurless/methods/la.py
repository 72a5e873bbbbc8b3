"""Logit adjustment by what a bias predicts."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from spurless.core.data import Batch, Labels, Split
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.xrm import train_twins
from spurless.methods.parts.losses import adjusted_ce, gce
from spurless.methods.parts.mixing import Mixer
from spurless.nets import Net

Shift = Generator[Stage, None, Tensor]  # (n, classes) log p(y | bias of x_i) of every training sample
Given = Literal["mat", "ula", "lc", "known"]


@dataclass(frozen=True)
class LA(Method):
    """Logit adjustment by a bias (Menon et al. 2021; LC, uLA, MAT).  L = mean CE(f(x) + τ log p(· | b(x)), y)

    What the bias already tells is added to the logits, so that f is left with the rest. p(y | b) comes from twins that
    have not trained on the sample (MAT), a linear probe (uLA), a network trained beside f (LC), or true bias labels.
    """

    bias_labels: ClassVar[Labels] = "none"

    posterior: Annotated[Given, "whose p(y | bias): MAT's, uLA's, LC's, or of true bias labels (a ceiling)"] = "mat"
    strength: Annotated[float, "τ, how far the logits are adjusted", Range(0)] = 1.0
    temperature: Annotated[
        float | None, "by which logits of the bias are divided; none: the paper's (mat 1, lc 0.1)", Range(1e-6)
    ] = None
    q: Annotated[float, "how strongly the biased network prefers easy samples (lc)", Range(0, 1)] = 0.8
    memory: Annotated[float, "how much of what is remembered is kept at each visit (lc)", Range(0, 1)] = 0.5
    mix: Annotated[bool, "whether majority and minority of a class are mixed (lc)"] = True

    @property
    def labels(self) -> Labels:
        return "training" if self.posterior == "known" else "none"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if self.posterior == "lc":
            return (yield from self._beside(run))
        shift = self.strength * (yield from self.shift(run)).float().to(run.device)
        net = run.net()

        def loss(b: Batch) -> Tensor:
            return adjusted_ce(run, net(b.x), shift[b.idx], b.y, shift)

        yield Stage("adjusted", loss, run.optimizer(net), model=net, select=True)
        return net

    def shift(self, run: Run) -> Shift:
        """(n, classes) log p(y | bias), before f is trained."""
        train, classes = run.data.train, len(run.data.classes)
        if self.posterior == "known":
            return known_posterior(train, classes, tuple(len(v) for v in run.data.values))
        if self.posterior == "mat":
            logits = (yield from train_twins(run)).held_out(run)
            return soft_posterior(logits / (self.temperature or 1.0), train.y.to(run.device))
        probe = run.net()
        yield Stage("probe", lambda b: gce(probe(b.x), b.y, q=0), run.optimizer(probe.head), model=probe)
        return hard_posterior(run.outputs(probe).argmax(1), train.y.to(run.device), classes)

    def _beside(self, run: Run) -> Generator[Stage, None, Net]:
        """LC: the biased network is trained in the same steps."""
        biased, net, y = run.net(), run.net(), run.data.train.y
        bias = run.keep(BiasMemory(y, len(run.data.classes), self.memory))

        def loss(b: Batch) -> Tensor:
            out_b = biased(b.x)
            prior = bias.update(b.idx, b.y, out_b / (self.temperature or 0.1))  # (n, classes)
            return adjusted_ce(run, net(b.x), self.strength * prior, b.y) + gce(out_b, b.y, self.q)

        mix = Mixer("within_class", minority=bias.minority) if self.mix else None
        yield Stage("lc", loss, run.optimizer(biased, net), model=net, select=True, mix=mix)
        run.report_conflicting(bias.minority)
        return net


class BiasMemory(nn.Module):
    """LC's running means: of what the biased network predicts for each sample, and of how often labels meet that."""

    def __init__(self, y: Tensor, classes: int, kept: float):
        super().__init__()
        self.kept, self.classes = kept, classes
        self.register_buffer("p", one_hot(y, classes).float())  # nothing conflicts before it was seen
        self.register_buffer("minority", torch.zeros(len(y), dtype=torch.bool))
        self.register_buffer("joint", torch.full((classes, classes), 1.0 / classes**2))

    p: Tensor  # (n, classes)
    minority: Tensor  # (n,) whose bias stands for another class
    joint: Tensor  # (labels, biases)

    @torch.no_grad()
    def update(self, idx: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        """(n, classes) log p(·, s) of the batch's samples, s being what their running mean stands for."""
        p = self.kept * self.p[idx] + (1 - self.kept) * logits.float().softmax(1)
        self.p[idx] = p
        s = p.argmax(1)
        self.minority[idx] = s != y
        met = torch.zeros_like(self.joint).flatten().index_add(0, y * self.classes + s, torch.ones_like(p[:, 0]))
        self.joint.mul_(self.kept).add_((1 - self.kept) * met.view_as(self.joint) / len(y))
        return (self.joint[:, s].T + 1e-6).log()


def soft_posterior(logits: Tensor, y: Tensor) -> Tensor:
    """(n, classes) log p(y | x's bias) = log Σ_s p(y | s) P(s | x), with p(y | s) from the sums of P (MAT).

    >>> logits = torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 9.0], [9.0, -9.0]])  # the last one conflicts
    >>> soft_posterior(logits, torch.tensor([0, 0, 1, 1])).exp()[:2].round(decimals=3).tolist()
    [[0.667, 0.333], [0.667, 0.333]]
    """
    p = logits.double().softmax(1)
    joint = p.new_zeros(p.shape[1], p.shape[1]).index_add(0, y, p)  # (labels, biases)
    return (p @ (joint / joint.sum(0).clamp_min(1e-12)).T + 1e-6).log()


def hard_posterior(s: Tensor, y: Tensor, classes: int) -> Tensor:
    """(n, classes) log p(y | s) from counts, one added to each (uLA).

    >>> hard_posterior(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), 2).exp()[:, 0].tolist()[:2]
    [0.75, 0.75]
    """
    count = torch.bincount(y * classes + s, minlength=classes**2).view(classes, classes).double() + 1
    return (count / count.sum(0)).log()[:, s].T


def known_posterior(split: Split, classes: int, values: tuple[int, ...]) -> Tensor:
    """(n, classes) log p(y | a), of several attributes as if they were independent within a class."""
    assert split.a is not None
    y = split.y
    shift = torch.bincount(y, minlength=classes).double().log().expand(len(y), classes)
    for a, count in zip(split.a.unbind(1), values, strict=True):
        met = torch.bincount(y * count + a, minlength=classes * count).view(classes, count).double() + 1
        shift = shift + (met / met.sum(1, keepdim=True)).log()[:, a].T
    return shift.log_softmax(1)

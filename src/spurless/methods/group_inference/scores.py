"""Conflicting samples as those of the highest score: head gradients or losses of a biased network, epoch ensembles."""

import math
from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from spurless.core.data import Batch
from spurless.core.method import Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference import Inference, Inferring, conflicting_groups
from spurless.methods.group_inference.training import GceForm, Length, Q, biased_net
from spurless.methods.parts.grads import Norm, head_grad_norms
from spurless.methods.parts.losses import ce_rows
from spurless.nets import Net

Eta = Annotated[float, "learn only from samples whose probability of their label is above this", Range(0, 1)]
Tau = Annotated[float, "score from which a sample counts as conflicting", Range(0, 1)]
Unlearn = Annotated[float, "how strongly a network forgets what only it is sure of", Range(0)]
EnsembleEpochs = Annotated[int, "epochs over which the scores are averaged", Range(1)]


@dataclass(frozen=True)
class BiasedScores(Inference):
    """The highest scores under a network trained with GCE."""

    q: Q = 0.7
    form: GceForm = "paper"
    epochs: Annotated[float, "length of its training in epochs; 0: see iterations", Range(0)] = 0
    iterations: Annotated[int, "length of its training in steps", Range(1)] = 2000
    share: Annotated[float, "take this share of the samples, those of the highest scores", Range(0, 1)] = 0.05
    threshold: Annotated[float | None, "take the samples whose score is at least this, instead of a share"] = None

    def infer(self, run: Run) -> Inferring:
        length = Length(self.epochs) if self.epochs else Length(iterations=self.iterations)
        net = yield from biased_net(run, length, self.q, self.form)
        scores = self.scores(run, net)  # (n,)
        return conflicting_groups(run, high(scores, self.share, self.threshold), scores, net)

    @abstractmethod
    def scores(self, run: Run, net: Net) -> Tensor:
        """(n,) Of each training sample."""


@dataclass(frozen=True)
class GradientNorms(BiasedScores):
    """The largest gradients on the head of a network trained with GCE (PGD's score, as a set).

    PGD draws by the score and needs no set; the share is our choice.
    """

    norm: Annotated[Norm, "which norm of a sample's gradient"] = "l2"

    def scores(self, run: Run, net: Net) -> Tensor:
        features, y = run.outputs(net, features=True), run.data.train.y.to(run.device)
        return head_grad_norms(net.head(features), features, y, self.norm).detach()


@dataclass(frozen=True)
class Losses(BiasedScores):
    """The largest cross entropy under a network trained with GCE."""

    def scores(self, run: Run, net: Net) -> Tensor:
        return ce_rows(run.outputs(net), run.data.train.y.to(run.device))


def high(scores: Tensor, share: float, threshold: float | None = None) -> Tensor:
    """(n,) Which samples have a score of at least the threshold, or else are among the highest `share` of all.

    >>> high(torch.tensor([0.1, 0.9, 0.5, 0.2]), share=0.5).tolist()
    [False, True, True, False]
    """
    if threshold is not None:
        return scores >= threshold
    top = scores.argsort(descending=True, stable=True)[: round(share * len(scores))]
    return torch.zeros(len(scores), dtype=torch.bool, device=scores.device).index_fill_(0, top, True)


# Epoch ensembles: a mean over the epochs of training, so that validation samples cannot be told afterwards.


@dataclass(frozen=True)
class EpochEnsemble(Inference):
    """Epoch-ensemble confident scoring (Zhao et al. 2021).  s_i = 1 − mean over epochs of (p¹_i + p²_i)/2,  s_i ≥ τ

    Two peer networks learn only from samples that both are sure of (probability of the label, relative to its class's
    highest in the batch, above η). From the second epoch on each unlearns, very slowly, what only it is sure of.
    The released scripts have η = 0.5 on Colored MNIST, 0.1 on Corrupted CIFAR10, 0.9 on Waterbirds and CelebA.
    """

    eta: Eta = 0.5
    tau: Tau = 0.8
    epochs: EnsembleEpochs = 50
    unlearn: Unlearn = 1e-4

    def infer(self, run: Run) -> Inferring:
        first, second = run.net(), run.net()
        redraw(second.head, run.generator("ecs"))  # copies of a user's own module would agree on everything, for ever
        classes = len(run.data.classes)

        def loss(b: Batch) -> Tensor:
            one, two = run.ce_rows(first(b.x), b.y), run.ce_rows(second(b.x), b.y)  # (n,), (n,)
            unlearn = self.unlearn * (b.t >= 1 / self.epochs)  # after the first epoch
            w_one, w_two = peer_weights(one, two, b.y, classes, self.eta, unlearn)
            return (w_one * one).mean() + (w_two * two).mean()

        scores = yield from _epoch_ensemble(run, (first, second), loss, self.epochs)
        return conflicting_groups(run, scores >= self.tau, scores, first)


@dataclass(frozen=True)
class SimpleEnsemble(Inference):
    """DCWP's simplified form (Park et al. 2023, released code).  s_i = 1 − mean over epochs of p_i,  s_i > τ

    One network, no comparison within classes; its loss is the mean over the samples of the batch with p_i > η.
    """

    eta: Eta = 0.05
    tau: Tau = 0.8
    epochs: EnsembleEpochs = 50

    def infer(self, run: Run) -> Inferring:
        net = run.net()

        def loss(b: Batch) -> Tensor:
            losses = run.ce_rows(net(b.x), b.y)  # (n,)
            sure = ((-losses.detach()).exp() > self.eta).float()
            return (sure * losses).sum() / sure.sum().clamp_min(1)

        scores = yield from _epoch_ensemble(run, (net,), loss, self.epochs)
        return conflicting_groups(run, scores > self.tau, scores, net)


def _epoch_ensemble(
    run: Run, nets: tuple[Net, ...], loss: Callable[[Batch], Tensor], epochs: int
) -> Generator[Stage, None, Tensor]:
    """(n,) 1 − the probability of each sample's label, averaged over the networks after each epoch of training."""
    optimizer, y = run.optimizer(*nets), run.data.train.y.to(run.device)
    total = torch.zeros(len(y), device=run.device)
    for epoch in range(epochs):
        span = (epoch / epochs, (epoch + 1) / epochs)
        yield Stage("mine", loss, optimizer, model=nets[0], epochs=1, span=span)
        for net in nets:
            total += confidence(run.outputs(net), y) / len(nets)
    return 1 - total / epochs


@torch.no_grad()
def peer_weights(
    one: Tensor, two: Tensor, y: Tensor, classes: int, eta: float, unlearn: float | Tensor
) -> tuple[Tensor, Tensor]:
    """(n,), (n,) What each sample's cross entropy counts for each of two peers: 1 where both are sure, −unlearn where
    only it is, else 0.

    >>> losses = torch.tensor([0.0, 9.0]), torch.tensor([0.0, 0.1])  # of the second sample, the second alone is sure
    >>> [w.tolist() for w in peer_weights(*losses, torch.tensor([0, 0]), 1, 0.5, 0.25)]
    [[1.0, 0.0], [1.0, -0.25]]
    """
    sure_one, sure_two = (relative_confidence(loss, y, classes) > eta for loss in (one, two))
    both = (sure_one & sure_two).float()
    return both - unlearn * (sure_one & ~sure_two), both - unlearn * (sure_two & ~sure_one)


def relative_confidence(loss: Tensor, y: Tensor, classes: int) -> Tensor:
    """(n,) The probability exp(−loss) of each sample's label, divided by the highest of its class in the batch."""
    lowest = loss.new_full((classes,), math.inf).scatter_reduce(0, y, loss, "amin")
    return (lowest[y] - loss).exp()  # p_i / max p, without an underflow


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) The probability of each sample's label.

    >>> confidence(torch.zeros(1, 4), torch.tensor([2])).tolist()
    [0.25]
    """
    return (-ce_rows(logits, y)).exp()


@torch.no_grad()
def redraw(layer: nn.Linear, generator: torch.Generator) -> nn.Linear:
    """Start a linear layer anew, as torch does, from these random numbers."""
    bound = layer.in_features**-0.5
    for parameter in (layer.weight, layer.bias):
        if parameter is not None:
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
    return layer

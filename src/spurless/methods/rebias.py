"""Features that tell nothing about those of a network that can only see the bias."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Images, Split, Texts
from spurless.core.messages import log
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.dependence import hsic, off_diagonal, rbf, trained_features, trains_features
from spurless.nets import Net, build

BLIND = 1e-3  # mean of a kernel below which HSIC, at most a product of two such numbers, does not count beside CE


@dataclass(frozen=True)
class ReBias(Method):
    """Learning de-biased representations with biased representations (Bahng et al. 2020, algorithm 1).

    g:  L = CE(g) − λ_g·HSIC(f, g)        f:  L = CE(f) + λ_f·HSIC(f, g)

    f is the classifier; g sees small patches only (images), words without their order (text) or is linear (vectors).
    For each batch g is updated first, then f; neither update moves the other network.
    """

    lambda_f: Annotated[float, "how strongly f is kept independent of g", Range(0)] = 1.0
    lambda_g: Annotated[float, "how strongly g follows f", Range(0)] = 1.0
    sigma: Annotated[
        float, "radius of the RBF kernels, in units of the features; 0: the batch's median distances", Range(0)
    ] = 1.0
    kernel: Annotated[int, "side of g's filters in pixels (images)", Range(1)] = 1
    widths: Annotated[tuple[int, ...], "channels of g's layers (images)", Range(1)] = (16, 32, 64, 128)

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        f, g = run.net(), self.biased(run)

        def of_g(b: Batch) -> Tensor:
            features, logits = trained_features(g, b.x)
            with torch.no_grad():
                other, _ = trained_features(f, b.x)
            return run.ce(logits, b.y) - self.lambda_g * hsic(features, other, self.sigma)

        def of_f(b: Batch) -> Tensor:
            features, logits = trained_features(f, b.x)
            with torch.no_grad():
                other, _ = trained_features(g, b.x)
            return run.ce(logits, b.y) + self.lambda_f * hsic(features, other, self.sigma)

        yield Stage("rebias", [of_g, of_f], [run.optimizer(g), run.optimizer(f)], model=f, select=True)
        self._warn_if_blind(run, f, g)
        return f

    def biased(self, run: Run) -> Net:
        """The network g, which starts from random numbers of its own."""
        shape, classes = run.data.shape, len(run.data.classes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.generator("biased network").initial_seed())
            if isinstance(run.data.inputs, Texts):
                made = build({"name": "embedding_bag", "vocab": run.data.inputs.tokens.size}, shape, classes)
            elif isinstance(run.data.inputs, Images):
                made = patches(shape[0], classes, self.kernel, self.widths)
            else:
                made = flat(shape, classes)
        return run.keep(made)

    @torch.no_grad()
    def _warn_if_blind(self, run: Run, *nets: Net) -> None:
        """A kernel that sees no two samples near one another makes HSIC 0, and this plain training: warn of it."""
        train = run.data.train
        idx = torch.arange(min(len(train), run.recipe.batch_size))
        few = Split(train[idx], train.y[idx])
        kernels = [rbf(run.outputs(net, few, features=trains_features(net)), self.sigma) for net in nets]
        if self.lambda_f and min(float(off_diagonal(k).mean()) for k in kernels) < BLIND:
            log.warning(
                f"At the end features lie too far apart for kernels of radius {self.sigma:g}, which see no two as "
                "alike: HSIC is 0, and this is plain training. Try a larger method.sigma, or 0 (the median distance)."
            )


def patches(channels: int, classes: int, kernel: int, widths: tuple[int, ...]) -> Net:
    """Filters of `kernel` pixels, averaged over the image: with 1, it knows which colours there are and not where.

    The released g for Biased MNIST, as it starts there.

    >>> sum(p.numel() for p in patches(3, 10, 1, (16, 32, 64, 128)).parameters())
    12810
    """
    return build({"name": "conv4", "kernel": kernel, "widths": widths}, (channels, 1, 1), classes)


def flat(shape: tuple[int, ...], classes: int) -> Net:
    """Linear in its inputs, through as many features as there are classes."""
    return Net(nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes)), nn.Linear(classes, classes))

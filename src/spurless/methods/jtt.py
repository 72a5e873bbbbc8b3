"""Just train twice."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from spurless.core.data import Labels
from spurless.core.messages import log
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.errors import EarlyErrors, ErrorsBy
from spurless.methods.parts.losses import Form
from spurless.nets import Net


@dataclass(frozen=True)
class JTT(Method):
    """Just train twice (Liu et al. 2021, algorithm 1).  E = {i : f₁(x_i) ≠ y_i},  L = Σ_{i∉E} CE_i + λ_up·Σ_{i∈E} CE_i

    The first network is trained for a short time; then a fresh one is trained on all samples, with λ_up copies of those
    that the first one got wrong, shuffled.
    """

    bias_labels: ClassVar[Labels] = "selection"

    identify_epochs: Annotated[
        float, "epochs of the first network (T); 0: a fifth of the recipe's length", Range(0)
    ] = 0
    lambda_up: Annotated[int, "how many copies of a sample of the error set an epoch holds", Range(1)] = 20
    rho: Annotated[float, "share of conflicting samples, where it is known: lambda_up = 1/rho; 0: not", Range(0, 1)] = 0
    copies: Annotated[Form, "paper: lambda_up copies of an error; code: the sample and lambda_up copies"] = "paper"
    errors_by: ErrorsBy = "evaluation"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        _, rows = yield from self.identify(run)
        net = run.net()
        yield Stage("upsampled", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, rows=rows, select=True)
        return net

    def identify(self, run: Run) -> Generator[Stage, None, tuple[Net, Tensor]]:
        """Train the first network; return it, and the sample numbers of the up-sampled training set."""
        groups = yield from EarlyErrors(self.identify_epochs, self.errors_by).infer(run)
        assert groups.net is not None and groups.conflicting is not None
        _warn_if_odd(groups.conflicting, self.times)
        return groups.net, upsampled(groups.conflicting, self.times)

    @property
    def times(self) -> int:
        """How often a sample of the error set occurs in the up-sampled training set.

        >>> JTT(lambda_up=50).times, JTT(lambda_up=50, copies="code").times, JTT(rho=0.005).times
        (50, 51, 200)
        """
        up = round(1 / self.rho) if self.rho else self.lambda_up
        return up + (self.copies == "code")


def upsampled(wrong: Tensor, times: int) -> Tensor:
    """(m,) Numbers of samples: those that are wrong `times` times, all others once.

    >>> upsampled(torch.tensor([False, True, False]), 3).tolist()
    [0, 1, 1, 1, 2]
    """
    wrong = wrong.cpu()
    return torch.arange(len(wrong)).repeat_interleave(torch.where(wrong, times, 1))


def _warn_if_odd(wrong: Tensor, times: int) -> None:
    share = float(wrong.float().mean())
    if share == 0:
        log.warning("The first network gets no sample wrong, so that none is up-sampled; try fewer identify_epochs.")
    elif share > 0.5 and times > 1:
        log.warning(
            f"The first network gets {share:.0%} of the samples wrong, so that most are up-sampled and an epoch of the "
            f"second stage takes {1 + share * (times - 1):.1f} times as long; try more identify_epochs."
        )

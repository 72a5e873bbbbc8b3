"""Resampling by disagreement probability."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.losses import Form
from spurless.methods.pgd import PGD
from spurless.nets import Net

LEAST = 1e-8  # as released: a sample that the biased network is sure of can still be drawn


@dataclass(frozen=True)
class DPR(Method):
    """Disagreement probability based resampling (Han et al. 2024).  h_i ∝ 1 − p_y(x_i; τ)

    PGD's algorithm with another score: the probability that the biased network disagrees with the label.
    """

    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    temperature: Annotated[float, "τ, by which the biased network's logits are divided", Range(1e-6)] = 1.0
    form: Annotated[Form, "GCE as in the paper or as in the released code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net, pgd = run.net(), PGD(self.q, form=self.form)
        yield pgd.biased(run, net)
        h = disagreement(run.outputs(net), run.data.train.y.to(run.device), self.temperature)  # (n,)
        run.report_conflicting(h > h.mean())  # drawn more often than by chance
        yield pgd.debiased(run, net, h / h.sum())  # from the biased weights
        return net


@torch.no_grad()
def disagreement(logits: Tensor, y: Tensor, temperature: float = 1.0) -> Tensor:
    """(n,) The probability of all classes but the label's.

    >>> disagreement(torch.tensor([[0.0, 0.0], [100.0, 0.0]]), torch.tensor([1, 0])).tolist()
    [0.5, 1e-08]
    """
    p = (logits.double() / temperature).softmax(1)
    return (1 - p[torch.arange(len(y), device=y.device), y]).clamp_min(LEAST)

"""Learning from failure."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.grads import head_grad_norms
from spurless.methods.parts.losses import Form, LossMemory, gce
from spurless.nets import Net


@dataclass(frozen=True)
class LfF(Method):
    """Learning from failure (Nam et al. 2020, algorithm 1).  W_i = e_b / (e_b + e_d),  L = GCE(f_b) + mean W·CE(f_d)"""

    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    alpha: Annotated[float, "how much of the remembered loss is kept at each visit", Range(0, 1)] = 0.7
    memory: Annotated[
        bool, "compare running means of losses, each a share of its class's largest; off: the batch's own losses"
    ] = True
    score: Annotated[Literal["loss", "gradient"], "what difficulty is: the loss, or the head's gradient norm"] = "loss"
    form: Annotated[Form, "GCE as in the paper or as in the released code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        biased, debiased = run.net(), run.net()
        weigh = self.weigher(run)

        def loss(b: Batch) -> Tensor:
            phi_b, phi_d = biased.features(b.x), debiased.features(b.x)  # (n, d)
            out_b, out_d = biased.head(phi_b), debiased.head(phi_d)  # (n, classes)
            hard = run.ce_rows(out_d, b.y)  # (n,)
            if self.score == "gradient":
                w = weigh(b.idx, _norms(out_b, phi_b, b.y), _norms(out_d, phi_d, b.y))
            else:
                w = weigh(b.idx, run.ce_rows(out_b, b.y), hard)
            return gce(out_b, b.y, self.q, self.form) + (w * hard).mean()

        # One optimiser over both networks is two independent ones: every update is elementwise.
        yield Stage("lff", loss, run.optimizer(biased, debiased), model=debiased, select=True)
        return debiased

    def weigher(self, run: Run) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The weights of a batch from its sample numbers and what both networks find difficult about it."""
        if not self.memory:
            return lambda idx, easy, hard: relative_difficulty(easy, hard)
        y, classes = run.data.train.y, len(run.data.classes)
        memory_b, memory_d = (run.keep(LossMemory(y, classes, self.alpha)) for _ in range(2))
        return lambda idx, easy, hard: failure_weights(memory_b, memory_d, idx, easy, hard)


@torch.no_grad()
def failure_weights(memory_b: LossMemory, memory_d: LossMemory, idx: Tensor, easy: Tensor, hard: Tensor) -> Tensor:
    """(n,) How much more the biased network fails on each sample than the debiased one, from 0 to 1."""
    memory_b.update(idx, easy)
    memory_d.update(idx, hard)
    return relative_difficulty(memory_b.relative(idx), memory_d.relative(idx))


@torch.no_grad()
def relative_difficulty(biased: Tensor, debiased: Tensor) -> Tensor:
    """(n,) The biased network's share of the difficulty of each sample, from 0 to 1.

    >>> relative_difficulty(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0])).tolist()
    [0.75, 0.0]
    """
    return biased / (biased + debiased + 1e-8)


def _norms(logits: Tensor, features: Tensor, y: Tensor) -> Tensor:
    return head_grad_norms(logits.detach(), features.detach(), y).float()

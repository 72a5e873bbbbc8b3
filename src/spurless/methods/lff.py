"""Learning from failure."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core import Batch, Method, Run, Stage
from spurless.losses import Form, LossMemory, ce_rows, gce
from spurless.nets import Net
from spurless.settings import Range


@dataclass(frozen=True)
class LfF(Method):
    """Learning from failure (Nam et al. 2020, algorithm 1).  W_i = e_b / (e_b + e_d),  L = GCE(f_b) + mean W·CE(f_d)"""

    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    alpha: Annotated[float, "how much of the remembered loss is kept at each visit", Range(0, 1)] = 0.7
    form: Annotated[Form, "GCE as in the paper or as in the released code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        biased, debiased = run.net(), run.net()
        y, classes = run.data.train.y, len(run.data.classes)
        memory_b = run.keep(LossMemory(y, classes, self.alpha))
        memory_d = run.keep(LossMemory(y, classes, self.alpha))

        def loss(b: Batch) -> Tensor:
            logits = biased(b.x)
            easy, hard = ce_rows(logits, b.y), ce_rows(debiased(b.x), b.y)  # (n,), (n,)
            w = failure_weights(memory_b, memory_d, b.idx, easy, hard)
            return gce(logits, b.y, self.q, self.form) + (w * hard).mean()

        # One optimiser over both networks is two independent ones: every update is elementwise.
        yield Stage("lff", loss, run.optimizer(biased, debiased), model=debiased, select=True)
        return debiased


@torch.no_grad()
def failure_weights(memory_b: LossMemory, memory_d: LossMemory, idx: Tensor, easy: Tensor, hard: Tensor) -> Tensor:
    """(n,) How much more the biased network fails on each row than the debiased one, from 0 to 1."""
    memory_b.update(idx, easy)
    memory_d.update(idx, hard)
    e_b, e_d = memory_b.relative(idx), memory_d.relative(idx)
    return e_b / (e_b + e_d + 1e-8)

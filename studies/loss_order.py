"""PGD that draws by losses which belong to other samples: does that give the "PGD + Loss" of the paper's table 10?

    spurless bench studies/specs/pgd_loss_order.toml --allow-code

The paper takes the losses of the first stage's last epoch. Losses that are collected while training come in the order
of that epoch's shuffle; used as they come, each is another sample's.
"""

from dataclasses import dataclass

import torch

from spurless.methods.pgd import PGD


@dataclass(frozen=True)
class ShuffledLoss(PGD):
    """The odds of `score = "loss"`, dealt out to the samples in a random order."""

    def odds(self, run, net):
        h = super().odds(run, net)
        order = torch.randperm(len(h), generator=run.generator("order of the losses"))
        h = h[order.to(h.device)]
        run.report_conflicting(h > h.mean())
        return h

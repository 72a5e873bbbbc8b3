"""A new head for plain training, fitted on held-out samples in which what is easy tells nothing."""

import torch
from torch import Tensor

from spurless.core.method import Run
from spurless.methods.dfr import Samples, fit_head, halves
from spurless.methods.parts.evidence import Evidence
from spurless.nets import Net

STRENGTHS = (0.1, 0.01, 0.001)  # C, the inverse of the penalty's weight, that a head is fitted with
FEWEST = 10  # held-out samples in each class × (are the experts wrong), for a head to be fitted


def refitted(run: Run, plain: Net, features: Tensor, y: Tensor, evidence: Evidence) -> tuple[Net, Tensor] | None:
    """Plain training with a new head, and what is right (m,) by heads fitted on the other half; None: too few samples.

    Each class × (are the experts wrong) counts alike.
    """
    group = 2 * y + evidence.misled
    size = torch.bincount(group, minlength=4)
    if int(size.min()) < FEWEST:
        return None
    samples, weight = Samples.of(features, y, group, plain), 1 / size[group].double()
    first, second = halves(group, run.generator("head"))

    def right(strength: float) -> Tensor:
        out = torch.zeros(len(y), dtype=torch.bool)
        for learn, judge in ((first, second), (second, first)):
            head = fit_head(samples.pick(learn), "l2", strength, weight[learn])
            out[judge] = torch.from_numpy(head.right(samples.pick(judge)))
        return out

    after = {strength: right(strength) for strength in STRENGTHS}
    best = max(STRENGTHS, key=lambda strength: evidence.score(after[strength]))
    net = run.net()
    net.load_state_dict(plain.state_dict())
    fit_head(samples, "l2", best, weight).put_into(net)
    return net, after[best]

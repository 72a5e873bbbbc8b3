"""Environments in which plain training would be scaled most differently (Creager, Jacobsen and Zemel 2021)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core.data import Split
from spurless.core.messages import log
from spurless.core.method import Run
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, Inference, Inferring, within_classes
from spurless.methods.group_inference.training import early, plain_net
from spurless.methods.irm import slopes
from spurless.methods.parts.losses import Form
from spurless.nets import Net


@dataclass(frozen=True)
class Environments(Inference):
    """Train a reference network plainly; split the samples into two environments; groups are class × environment.

    Environments maximise the IRM penalty of the reference, ½ (1/n Σ q_i d_i)² + ½ (1/n Σ (1 − q_i) d_i)², where
    d_i = d/ds CE(s · logits_i, y_i) at s = 1 and q_i in [0, 1] is sample i's part in the first one. The second
    environment is the one whose samples the reference gets wrong. Validation samples are split in the same way.
    """

    identify_epochs: Annotated[
        float, "epochs of the reference network; 0: a fifth of the recipe's length", Range(0)
    ] = 0
    form: Annotated[
        Form, "paper: the environments of the highest penalty, in closed form; code: gradient ascent, as released"
    ] = "paper"
    steps: Annotated[int, "steps of the ascent (code)", Range(1)] = 10_000
    lr: Annotated[float, "learning rate of the ascent (code)", Range(0)] = 1e-3

    def infer(self, run: Run) -> Inferring:
        net = yield from plain_net(run, early(run, self.identify_epochs), name="reference")
        d = self._slopes(run, net, run.data.train)
        conflicting = self._environments(run, d, "train")
        _warn_of_one_environment(conflicting)
        groups, val, held_out = within_classes(run.data.train.y, conflicting.long(), 2), run.data.val, None
        if val is not None:
            held_out = within_classes(val.y, self._environments(run, self._slopes(run, net, val), "val").long(), 2)
        return Groups(groups, held_out, 2 * len(run.data.classes), net, conflicting, d.float())

    def _slopes(self, run: Run, net: Net, split: Split) -> Tensor:
        return slopes(run.outputs(net, split).double(), split.y.to(run.device))  # (n,)

    def _environments(self, run: Run, d: Tensor, name: str) -> Tensor:
        """(n,) bool, from the slopes of a split of this name."""
        if self.form == "paper":
            return best_environments(d)
        start = torch.randn(len(d), generator=run.generator(f"environments of {name}"), dtype=torch.float64)
        environment, undecided = ascend(d, start.to(d.device), self.steps, self.lr)
        if name == "train":
            _warn_of_undecided(undecided)
        return environment


def best_environments(d: Tensor) -> Tensor:
    """(n,) bool: the environments of the highest penalty, given the samples' slopes (n,).

    The two sums of the penalty add up to a constant, so that it is highest where their difference is, which is
    Σ (2 q_i − 1) d_i / n: the samples of positive slope are one environment, those of negative slope the other.

    >>> best_environments(torch.tensor([-0.3, 0.7, -0.1])).tolist()
    [False, True, False]
    """
    return d > 0


def ascend(d: Tensor, start: Tensor, steps: int, lr: float) -> tuple[Tensor, Tensor]:
    """(n,), (n,) The environments that Adam finds from these logits of q, and which samples hardly left their start.

    The gradient of a sample is its slope divided by n, times small numbers. Where that is below Adam's ε of 1e-8, the
    sample moves by less than the spread of the start: its environment is a random number.
    """
    w = start.clone()
    optimizer = torch.optim.Adam([w], lr, maximize=True, fused=True)
    for _ in range(steps):
        w.grad = penalty_gradient(w, d)
        optimizer.step()
    environment = w > 0  # q > 1/2
    conflicting = d[environment].sum() > d[~environment].sum()
    return environment == conflicting, (w - start).abs() < 1


def penalty(w: Tensor, d: Tensor) -> Tensor:
    """The penalty of the soft environments q = σ(w) and 1 − q, given the samples' slopes d.

    >>> float(penalty(torch.zeros(2), torch.tensor([1.0, 3.0])))  # each environment has half of each sample
    1.0
    """
    q = w.sigmoid()
    return ((q * d).mean().square() + ((1 - q) * d).mean().square()) / 2


def penalty_gradient(w: Tensor, d: Tensor) -> Tensor:
    """(n,) The gradient of the penalty by w:  q_i (1 − q_i) d_i / n · (mean q d − mean (1 − q) d)"""
    q = w.sigmoid()
    return q * (1 - q) * d / len(d) * ((2 * q - 1) * d).mean()


def _warn_of_undecided(undecided: Tensor) -> None:
    share = float(undecided.float().mean())
    if share > 0.5:
        log.warning(
            f"The slopes of {share:.0%} of the samples are so small that their environment is a random number: the "
            "reference fits them too well. Try fewer identify_epochs, or form = paper."
        )


def _warn_of_one_environment(environment: Tensor) -> None:
    """Of a reference that fits every sample, all slopes have one sign."""
    smaller = min(int(environment.sum()), int((~environment).sum()))
    if smaller < 2:
        log.warning(
            f"The reference network {'fits' if not environment.any() else 'misfits'} every sample, so that "
            "there is only one environment; try fewer identify_epochs."
        )

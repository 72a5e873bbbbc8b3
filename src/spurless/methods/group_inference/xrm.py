"""Twin networks on halves of the samples, each relabelling the other's half (Pezeshki et al. 2024)."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Split
from spurless.core.method import Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, Inference, Inferring, within_classes
from spurless.methods.group_inference.errors import wrong
from spurless.methods.parts.losses import RowLoss
from spurless.nets import Net


class TwinNets(NamedTuple):
    """Two networks, and which of them has trained on each sample."""

    nets: tuple[Net, Net]
    half: Tensor  # (n,) bool, on the device: whether the second one has

    def held_out(self, run: Run) -> Tensor:
        """(n, classes) The logits of each training sample by the twin that has not trained on it."""
        first, second = (run.outputs(net) for net in self.nets)
        return torch.where(self.half[:, None], first, second)


class Relabelled(nn.Module):
    """The labels that the twins train on: at first the given ones, then more and more what the other twin predicts."""

    def __init__(self, y: Tensor, half: Tensor, classes: int):
        super().__init__()
        self.classes = classes
        self.register_buffer("y", y.clone())
        self.register_buffer("of_second", half.clone())
        size = torch.bincount(y, minlength=classes).clamp_min(1)
        self.register_buffer("weight", len(y) / (classes * size.float()))

    y: Tensor
    of_second: Tensor  # (n,) bool: whether the second twin trains on it
    weight: Tensor  # (classes,) by which all classes count alike

    def loss(self, ce_rows: RowLoss, idx: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Class-balanced cross entropy of each sample's own twin; then the other one relabels it."""
        mine = self.of_second[idx][:, None]
        y = self.y[idx]
        w = self.weight[y]
        loss = (w * ce_rows(torch.where(mine, second, first), y)).sum() / w.sum()
        self.flip(idx, torch.where(mine, first, second))
        return loss

    @torch.no_grad()
    def flip(self, idx: Tensor, held_out: Tensor) -> None:
        """Take over what the other twin predicts, the more often the surer it is."""
        p, predicted = held_out.float().softmax(1).max(1)
        takes = torch.rand(len(p), device=p.device) < flip_probability(p, self.classes)
        self.y[idx] = torch.where(takes, predicted, self.y[idx])


def flip_probability(p: Tensor, classes: int) -> Tensor:
    """(n,) From the largest probability of a prediction: 0 for a guess, 1 for a certainty.  (p − 1/C) · C/(C − 1)

    >>> flip_probability(torch.tensor([0.25, 0.625, 1.0]), 4).tolist()
    [0.0, 0.5, 1.0]
    """
    return (p - 1 / classes) * classes / (classes - 1)


def train_twins(run: Run, epochs: float = 0) -> Generator[Stage, None, TwinNets]:
    """Train both twins side by side, each on its own half."""
    y = run.data.train.y
    half = torch.rand(len(y), generator=run.generator("twins")) < 0.5
    nets = run.net(), run.net()
    labels = run.keep(Relabelled(y, half, len(run.data.classes)))

    def loss(b: Batch) -> Tensor:
        return labels.loss(run.ce_rows, b.idx, nets[0](b.x), nets[1](b.x))

    yield Stage("twins", loss, run.optimizer(*nets), model=nets[0], epochs=epochs or None)
    return TwinNets(nets, half.to(run.device))


@dataclass(frozen=True)
class Twins(Inference):
    """Class, and whether either twin gets the sample wrong (XRM), for training and validation samples alike."""

    identify_epochs: Annotated[float, "epochs of the twins; 0: the recipe's length", Range(0)] = 0

    def infer(self, run: Run) -> Inferring:
        twins = yield from train_twins(run, self.identify_epochs)

        def conflicting(split: Split) -> Tensor:
            first, second = (wrong(run.outputs(net, split).cpu(), split.y) for net in twins.nets)
            return first | second

        train, val, number = run.data.train, run.data.val, 2 * len(run.data.classes)
        held_out = None if val is None else within_classes(val.y, conflicting(val).long(), 2)
        of_train = conflicting(train)
        groups = within_classes(train.y, of_train.long(), 2)
        return Groups(groups, held_out, number, twins.nets[0], conflicting=of_train)

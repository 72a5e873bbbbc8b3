"""Two encoders, one for what the class is and one for the bias, and swapped bias features."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from spurless.core.data import Batch
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.scores import redraw
from spurless.methods.lff import failure_weights
from spurless.methods.parts.losses import Form, LossMemory, gce
from spurless.nets import Net


@dataclass(frozen=True)
class DisEnt(Method):
    """Disentangled feature augmentation (Lee et al. 2021, equations 1 to 4).  L = L_dis + λ_swap L_swap

    z = [z_l; z_b] comes from two encoders; C_l and C_b are linear heads on it; sg stops the gradient; z̃_b and ỹ are
    those of the batch in another order; W is LfF's weight, from the logits of L_dis. The classifier is C_l on z.
    L_dis  = mean W · CE(C_l([z_l; sg z_b]), y) + λ_dis GCE(C_b([sg z_l; z_b]), y)
    L_swap = mean W · CE(C_l([z_l; sg z̃_b]), y) + λ_swap_b GCE(C_b([sg z_l; z̃_b]), ỹ)
    """

    q: Annotated[float, "how strongly the bias branch prefers easy samples (GCE)", Range(0, 1)] = 0.7
    alpha: Annotated[float, "how much of the remembered loss is kept at each visit", Range(0, 1)] = 0.7
    lambda_dis: Annotated[float, "weight of the bias branch's loss", Range(0)] = 10.0
    lambda_swap: Annotated[float, "weight of both losses on swapped features", Range(0)] = 1.0
    lambda_swap_b: Annotated[float, "weight of the bias branch's loss on swapped features", Range(0)] = 10.0
    swap_from: Annotated[float, "share of the training after which features are swapped", Range(0, 1)] = 0.2
    form: Annotated[Form, "GCE as in the paper or as in the released code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = two_encoders(run.net)
        bias_head = nn.Linear(net.feature_dim, net.classes)
        for name, head in (("label head", net.head), ("bias head", bias_head)):
            run.keep(redraw(head, run.generator(name)))  # the encoders are kept already
        y, classes = run.data.train.y, len(run.data.classes)
        memory_b = run.keep(LossMemory(y, classes, self.alpha))
        memory_l = run.keep(LossMemory(y, classes, self.alpha))

        def loss(b: Batch) -> Tensor:
            z_l, z_b = net.features(b.x).chunk(2, dim=1)  # (n, d), (n, d)
            to_label, to_bias = branches(net.head, bias_head, z_l, z_b)
            hard, easy = run.ce_rows(to_label, b.y), run.ce_rows(to_bias, b.y)  # (n,), (n,)
            w = failure_weights(memory_b, memory_l, b.idx, easy, hard)
            apart = (w * hard).mean() + self.lambda_dis * gce(to_bias, b.y, self.q, self.form)

            other = torch.rand(len(b.y), device=b.y.device).argsort()  # randperm cannot be part of a CUDA graph
            to_label, to_bias = branches(net.head, bias_head, z_l, z_b.index_select(0, other))
            swapped = (w * run.ce_rows(to_label, b.y)).mean()
            swapped = swapped + self.lambda_swap_b * gce(to_bias, b.y[other], self.q, self.form)
            return apart + self.lambda_swap * (b.t > self.swap_from) * swapped

        # One optimiser for both branches is two independent ones: every update is elementwise.
        yield Stage("disent", loss, run.optimizer(net, bias_head), model=net, select=True)
        return net

    def classifier(self, make: Callable[..., Net]) -> Net:
        return two_encoders(make)


class TwoEncoders(nn.Module):
    """Two encoders side by side."""

    def __init__(self, label: nn.Module, bias: nn.Module):
        super().__init__()
        self.label, self.bias = label, bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.label(x).flatten(1), self.bias(x).flatten(1)], dim=1)  # (n, 2 d)


def two_encoders(make: Callable[..., Net]) -> Net:
    """The encoders of two networks, and a new head on both."""
    one, two = make(), make()
    return Net(TwoEncoders(one.encoder, two.encoder), nn.Linear(2 * one.feature_dim, one.classes))


def branches(label_head: nn.Module, bias_head: nn.Module, z_l: Tensor, z_b: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of both heads. Neither sends a gradient into the other branch's encoder."""
    to_label = label_head(torch.cat([z_l, z_b.detach()], dim=1))
    return to_label, bias_head(torch.cat([z_l.detach(), z_b], dim=1))  # (n, classes), (n, classes)

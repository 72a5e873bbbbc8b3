"""Entangling and disentangling."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor, nn

from spurless.core.data import Batch, Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.dependence import cosines, disentangling, entangling, trained_features
from spurless.methods.parts.losses import Form
from spurless.nets import Net


@dataclass(frozen=True)
class EnD(Method):
    """Entangling and disentangling (Tartaglione, Barbano and Grangetto 2021).  L = CE + α·R_dis + β·R_ent

    R_dis = Σ_v |Σ over pairs with b_i = b_j = v of cos_ij| / number of such pairs
    R_ent = 1 − mean over pairs with y_i = y_j, b_i ≠ b_j of (1 + cos_ij)/2

    cos_ij is that of the features of two samples of a batch. Of several bias attributes the terms are added up.
    The released network also scales features to unit length in front of the head: unit_norm.
    """

    bias_labels: ClassVar[Labels] = "training"

    alpha: Annotated[float, "weight of pushing apart what shares the bias", Range(0)] = 1.0
    beta: Annotated[float, "weight of pulling together what shares the class and not the bias", Range(0)] = 1.0
    form: Annotated[Form, "paper: all pairs of a class that differ in bias; code: half of them, as released"] = "paper"
    unit_norm: Annotated[
        bool | None, "scale features to unit length (L2) in front of the head; none: only with form code, as released"
    ] = None

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = self.classifier(run.net)
        values = [len(names) for names in run.data.values]  # of each attribute

        def loss(b: Batch) -> Tensor:
            assert b.a is not None
            features, logits = trained_features(net, b.x)
            cosine, total = cosines(features), run.ce(logits, b.y)  # (n, n), ()
            for bias, count in zip(b.a.unbind(1), values, strict=True):
                total = total + self.alpha * disentangling(cosine, bias, count)
                total = total + self.beta * entangling(cosine, b.y, bias, self.form)
            return total

        yield Stage("end", loss, run.optimizer(net), model=net, select=True)
        return net

    def classifier(self, make: Callable[..., Net]) -> Net:
        net = make()
        unit_norm = self.form == "code" if self.unit_norm is None else self.unit_norm
        return Net(nn.Sequential(net.encoder, UnitNorm()), net.head) if unit_norm else net


class UnitNorm(nn.Module):
    """Scales each sample's features to unit length (L2); zeros stay zeros.

    >>> import torch
    >>> UnitNorm()(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x.flatten(1), dim=1)

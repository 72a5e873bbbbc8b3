"""Contrast within classes."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from spurless.core.data import Batch, Labels
from spurless.core.messages import log
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.predictions import Predictions
from spurless.nets import Net


@dataclass(frozen=True)
class CnC(Predictions, Method):
    """Correct-n-contrast (Zhang et al. 2022, algorithm 1).  L = λ·L_con + (1 − λ)·CE

    L_con(x) = −1/M Σ_r log( e^{s_r⁺} / (Σ_m e^{s_m⁺} + Σ_n e^{s_n⁻}) ),   s = cos(f(x), f(x'))/τ

    ŷ is what a plainly trained network predicts. Positives of an anchor have its class and another ŷ,
    negatives another class and its ŷ. All are samples of the batch, for which classes and ŷ are balanced.
    """

    bias_labels: ClassVar[Labels] = "selection"

    lambda_: Annotated[float, "how much the contrast counts beside cross entropy (λ)", Range(0, 1)] = 0.75
    tau: Annotated[float, "temperature of the similarities (τ)", Range(0.001)] = 0.1
    two_sided: Annotated[bool, "every sample is an anchor, or only those that the plain network gets right"] = True

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self)
        y, predicted = run.data.train.y, groups.train % len(run.data.classes)  # (n,), (n,)
        if bool((predicted == y).all()):
            log.warning(
                "The plainly trained network gets every sample right, so that there is nothing to contrast; "
                "try fewer epochs or more weight decay for it (method.identify_epochs, method.identify_weight_decay)."
            )
        net, of_all = run.net(), predicted.to(run.device)

        def loss(b: Batch) -> Tensor:
            features, predicted_class = net.features(b.x), of_all[b.idx]
            anchors = torch.ones_like(b.y, dtype=torch.bool) if self.two_sided else predicted_class == b.y
            pairs = contrast(features, *pair_sets(b.y, predicted_class, anchors), self.tau)
            return self.lambda_ * pairs + (1 - self.lambda_) * run.ce(net.head(features), b.y)

        yield Stage(
            "contrast", loss, run.optimizer(net), model=net, sample_weights=pair_odds(y, predicted), select=True
        )
        return net


def pair_sets(y: Tensor, predicted: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
    """(n, n), (n, n) Which samples are positives and which negatives of each sample; none of one that is no anchor.

    >>> y, predicted = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    >>> [m.int().tolist() for m in pair_sets(y, predicted, torch.tensor([True, True, True]))]
    [[[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 1, 0]]]
    """
    same_y, same_prediction = y[:, None] == y, predicted[:, None] == predicted
    return anchors[:, None] & same_y & ~same_prediction, anchors[:, None] & ~same_y & same_prediction


def contrast(features: Tensor, positive: Tensor, negative: Tensor, tau: float) -> Tensor:
    """The mean contrastive loss of the samples (n, d) that have a positive and a negative (n, n); 0 if none has both.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # of the first, the second is positive, the third not
    >>> positive, negative = torch.zeros(2, 3, 3, dtype=torch.bool)
    >>> positive[0, 1] = negative[0, 2] = True
    >>> round(float(contrast(z, positive, negative, tau=0.1)), 4)  # log 2
    0.6931
    """
    with torch.autocast(features.device.type, enabled=False):  # similarities over a small τ need all their digits
        z = normalize(features.float(), dim=1, eps=1e-6)
        s = z @ z.T / tau  # (n, n)
        # A large negative number, not −∞: a sample without pairs would give NaN, and NaN · 0 is NaN.
        among = s.masked_fill(~(positive | negative), -1e9).logsumexp(1, keepdim=True)  # (n, 1)
        many = positive.sum(1)  # (n,)
        losses = -((s - among) * positive).sum(1) / many.clamp_min(1)  # (n,)
        counts = (many > 0) & negative.any(1)
        return (losses * counts).sum() / counts.sum().clamp_min(1)


def pair_odds(y: Tensor, predicted: Tensor) -> Tensor:
    """(n,) Odds by which all pairs of class and prediction that occur are drawn equally often.

    >>> pair_odds(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0])).tolist()
    [0.5, 0.5, 1.0]
    """
    _, pair, size = torch.unique(torch.stack([y, predicted]), dim=1, return_inverse=True, return_counts=True)
    odds: Tensor = 1 / size[pair].double()
    return odds

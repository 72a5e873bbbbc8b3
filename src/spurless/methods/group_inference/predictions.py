"""Groups from what a plainly trained network predicts."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Split
from spurless.core.method import Run
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, Inference, Inferring, within_classes
from spurless.methods.group_inference.training import EarlyEpochs, early, plain_net
from spurless.methods.parts.clusters import Reduction, cluster, reducer

CncReduction = Annotated[Reduction, "how features get fewer dimensions before they are clustered (by = clustering)"]
Dims = Annotated[int, "how many dimensions features are reduced to", Range(1)]


@dataclass(frozen=True)
class Predictions(Inference):
    """Class, and what a plainly trained network predicts for the sample (CnC): the prediction, or, as the released code
    does, a cluster of all samples' features by a Gaussian mixture of as many parts as classes, each named after one
    class."""

    by: Annotated[Literal["prediction", "clustering"], "what stands for a prediction: it, or clusters of features"] = (
        "prediction"
    )
    identify_epochs: EarlyEpochs = 0
    identify_weight_decay: Annotated[
        float | None, "weight decay of the plainly trained network; none: the recipe's", Range(0)
    ] = None
    reduction: CncReduction = "pca"
    dims: Dims = 2

    def infer(self, run: Run) -> Inferring:
        net = yield from plain_net(run, early(run, self.identify_epochs), self.identify_weight_decay)
        train, val, classes = run.data.train, run.data.val, len(run.data.classes)
        if self.by == "clustering":
            seed = derive(run.seed, "clusters")
            features = run.outputs(net, features=True).cpu()
            reduced = reducer(features, self.reduction, self.dims, seed)
            clusters = cluster(reduced(features), classes, "gmm", seed)
            name = nearest_classes(clusters.labels, train.y, classes)

        def predicted(split: Split) -> Tensor:
            if self.by == "prediction":
                return run.outputs(net, split).argmax(1).cpu()
            return name[clusters.assign(reduced(run.outputs(net, split, features=True).cpu()))]

        held_out = None if val is None else within_classes(val.y, predicted(val), classes)
        prediction = predicted(train)
        groups = within_classes(train.y, prediction, classes)
        return Groups(groups, held_out, classes**2, net, conflicting=prediction != train.y)


def nearest_classes(clusters: Tensor, y: Tensor, classes: int) -> Tensor:
    """(classes,) The class that each cluster stands for, each another, so that most samples are in their class's.

    >>> nearest_classes(torch.tensor([2, 2, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 2]), 3).tolist()
    [1, 2, 0]
    """
    from scipy.optimize import linear_sum_assignment

    together = torch.bincount(clusters * classes + y, minlength=classes**2).view(classes, classes)
    _, best = linear_sum_assignment(together.numpy(), maximize=True)
    return torch.from_numpy(np.asarray(best)).long()

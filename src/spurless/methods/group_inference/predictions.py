"""Groups from what a plainly trained network takes a row for."""

from collections.abc import Generator
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Split
from spurless.core.method import PLAIN, Run, Stage
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, Inference, within_classes
from spurless.methods.group_inference.mining import Length, early
from spurless.methods.parts.clusters import Reduction, cluster, reducer
from spurless.nets import Net

By = Annotated[Literal["prediction", "clustering"], "what a row is taken for: predicted, or by clusters of features"]
PlainEpochs = Annotated[float, "epochs of the plainly trained network; 0: the recipe's length", Range(0)]
EarlyEpochs = Annotated[float, "epochs of the plainly trained network; 0: a fifth of the recipe's length", Range(0)]
PlainDecay = Annotated[float | None, "weight decay of the plainly trained network; none: the recipe's", Range(0)]
CncReduction = Annotated[Reduction, "how features get fewer dimensions before they are clustered (by = clustering)"]
Dims = Annotated[int, "how many dimensions features are reduced to", Range(1)]


def infer_cnc(
    run: Run,
    by: By = "prediction",
    identify_epochs: EarlyEpochs = 0,
    identify_weight_decay: PlainDecay = None,
    reduction: CncReduction = "pca",
    dims: Dims = 2,
) -> Inference:
    """Class, and what a plainly trained network takes the row for (CnC): the prediction, or, as the released code does,
    a cluster of all rows' features by a Gaussian mixture of as many parts as classes, each named after one class."""
    net = yield from plain_net(run, early(run, identify_epochs), identify_weight_decay)
    train, val, classes = run.data.train, run.data.val, len(run.data.classes)
    if by == "clustering":
        seed = derive(run.seed, "clusters")
        features = run.outputs(net, features=True).cpu()
        reduced = reducer(features, reduction, dims, seed)
        found = cluster(reduced(features), classes, "gmm", seed)
        name = nearest_classes(found.labels, train.y, classes)

    def taken_for(split: Split) -> Tensor:
        if by == "prediction":
            return run.outputs(net, split).argmax(1).cpu()
        return name[found.assign(reduced(run.outputs(net, split, features=True).cpu()))]

    held_out = None if val is None else within_classes(val.y, taken_for(val), classes)
    return Groups(within_classes(train.y, taken_for(train), classes), held_out, classes**2, net)


def plain_net(run: Run, length: Length = Length(), weight_decay: float | None = None) -> Generator[Stage, None, Net]:
    """A network trained with cross entropy, from which groups are read off."""
    net, changes = run.net(), {} if weight_decay is None else {"weight_decay": weight_decay}
    yield Stage(
        "plain",
        lambda b: run.ce(net(b.x), b.y),
        run.optimizer(net, **changes),
        model=net,
        epochs=length.epochs,
        iterations=length.iterations,
        shared=PLAIN,
    )
    return net


def nearest_classes(clusters: Tensor, y: Tensor, classes: int) -> Tensor:
    """(classes,) The class that each cluster stands for, each another, so that most rows lie in their class's cluster.

    >>> nearest_classes(torch.tensor([2, 2, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 2]), 3).tolist()
    [1, 2, 0]
    """
    from scipy.optimize import linear_sum_assignment

    together = torch.bincount(clusters * classes + y, minlength=classes**2).view(classes, classes)
    _, best = linear_sum_assignment(together.numpy(), maximize=True)
    return torch.from_numpy(np.asarray(best)).long()

"""How well a method found the bias-conflicting training rows by itself."""

import numpy as np
from numpy.typing import ArrayLike

from spurless.metrics.cells import boolean

WHOLE = 0.95  # of a class's rows: so many are not taken for conflicting because they are
FEW = 20  # rows of a class below which it may happen by chance


def mining_scores(mined: ArrayLike, conflicting: ArrayLike) -> dict[str, float | int | None]:
    """Precision and recall in percent of the rows taken for conflicting (n,), given those that are (n,).

    Precision is None when nothing was mined, and recall when there is nothing to find.

    >>> mining_scores([True, True, True, False, False], [True, False, True, True, False])
    {'precision': 66.66666666666667, 'recall': 66.66666666666667, 'n_mined': 3, 'n_conflicting': 3}
    """
    taken = boolean(mined, "mined")  # (n,)
    true = boolean(conflicting, "conflicting", taken.shape)  # (n,)
    n_mined, n_conflicting, found = int(taken.sum()), int(true.sum()), int((taken & true).sum())
    return {
        "precision": 100 * found / n_mined if n_mined else None,
        "recall": 100 * found / n_conflicting if n_conflicting else None,
        "n_mined": n_mined,
        "n_conflicting": n_conflicting,
    }


def lost_classes(mined: ArrayLike, y: ArrayLike) -> list[int]:
    """Classes whose rows were nearly all taken for conflicting: the network that mines has not learnt them.

    It can happen with GCE, and wherever rows of a low probability count for little: a class that is behind at first is
    then hardly trained on, and stays behind. No bias label is needed to notice it.

    >>> lost_classes([True] * 20 + [False] * 19 + [True], [0] * 20 + [1] * 20)
    [0]
    """
    labels = np.asarray(y)
    taken = boolean(mined, "mined", labels.shape)
    sizes = {int(c): int((labels == c).sum()) for c in np.unique(labels)}
    if len(sizes) < 2 or taken.mean() >= WHOLE:  # all rows are: nothing was learnt, or nothing is to be told apart
        return []
    return [c for c, size in sizes.items() if size >= FEW and taken[labels == c].mean() >= WHOLE]

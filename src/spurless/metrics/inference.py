"""How well inferred groups, and the samples identified as conflicting, agree with the true ones."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spurless.metrics import checks
from spurless.metrics.cells import boolean

WHOLE = 0.95  # of a class's samples: where more are identified as conflicting, it is not because they conflict
FEW = 20  # samples of a class below which it may happen by chance


def mining_scores(mined: ArrayLike, conflicting: ArrayLike) -> dict[str, float | int | None]:
    """Precision and recall in percent of the samples identified as conflicting (n,), given those that are (n,).

    Precision is None when nothing was identified, and recall when there is nothing to find.

    >>> mining_scores([True, True, True, False, False], [True, False, True, True, False])
    {'precision': 66.66666666666667, 'recall': 66.66666666666667, 'n_mined': 3, 'n_conflicting': 3}
    """
    taken = boolean(mined, "mined")  # (n,)
    true = boolean(conflicting, "conflicting", taken.shape)  # (n,)
    n_mined, n_conflicting, hits = int(taken.sum()), int(true.sum()), int((taken & true).sum())
    return {
        "precision": 100 * hits / n_mined if n_mined else None,
        "recall": 100 * hits / n_conflicting if n_conflicting else None,
        "n_mined": n_mined,
        "n_conflicting": n_conflicting,
    }


def lost_classes(mined: ArrayLike, y: ArrayLike) -> list[int]:
    """Classes whose samples were nearly all identified as conflicting: the inferring network has not learnt them.

    It can happen with GCE, and wherever samples of a low probability count for little: a class that is behind at first
    is then hardly trained on, and stays behind. No bias label is needed to notice it.

    >>> lost_classes([True] * 20 + [False] * 19 + [True], [0] * 20 + [1] * 20)
    [0]
    """
    labels = np.asarray(y)
    taken = boolean(mined, "mined", labels.shape)
    sizes = {int(c): int((labels == c).sum()) for c in np.unique(labels)}
    if len(sizes) < 2 or taken.mean() >= WHOLE:  # all samples are: nothing was learnt, or nothing is to be told apart
        return []
    return [c for c, size in sizes.items() if size >= FEW and taken[labels == c].mean() >= WHOLE]


def inference_scores(groups: ArrayLike, truth: ArrayLike, y: ArrayLike, conflicting: ArrayLike) -> dict[str, Any]:
    """The agreement of inferred groups (n,) with the true ones (n,), given classes and conflicting samples (n,).

    - `precision`, `recall`: in percent, of the samples that the groups would give away as conflicting, namely those of
      the groups of which more than half conflict. `n_mined` counts them, `n_conflicting` those that do.
    - `ami`: the mutual information of both groupings, adjusted so that it is 0 for groups drawn at random and 1 for the
      true ones; within each class, then averaged by the classes' sizes. Groups lie within classes: over all samples,
      the class alone would count as agreement. Classes of a single true group have nothing to find and do not count.
    - `n_groups`: inferred groups that hold a sample.

    A score is None where no sample speaks for it.

    >>> y, truth = [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 3, 3]
    >>> scores = inference_scores([5, 5, 5, 6, 7, 8], truth, y, conflicting=[False, False, False, True, False, False])
    >>> {name: round(value, 4) for name, value in scores.items()}
    {'precision': 100.0, 'recall': 100.0, 'n_mined': 1, 'n_conflicting': 1, 'ami': 1.0, 'n_groups': 4}
    >>> inference_scores(y, truth, y, conflicting=[False, False, False, True, False, False])["ami"]
    0.0
    """
    hard = boolean(conflicting, "conflicting")  # (n,)
    named = {"groups": groups, "truth": truth, "y": y}
    guess, true, label = (checks.labels(each, name, hard.shape) for name, each in named.items())  # (n,) each
    names, group = np.unique(guess, return_inverse=True)
    count, bad = (np.bincount(group, weights, len(names)) for weights in (None, hard))
    taken = (2 * bad > count)[group]  # (n,)
    return {
        **mining_scores(taken, hard),
        "ami": _within_classes(guess, true, label),
        "n_groups": len(names),
    }


def _within_classes(guess: NDArray[Any], true: NDArray[Any], label: NDArray[Any]) -> float | None:
    from sklearn.metrics import adjusted_mutual_info_score

    scores, sizes = [], []
    for own in (label == c for c in np.unique(label)):
        if len(np.unique(true[own])) > 1:
            scores.append(adjusted_mutual_info_score(true[own], guess[own]))
            sizes.append(own.sum())
    return float(np.average(scores, weights=sizes)) if scores else None

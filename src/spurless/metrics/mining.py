"""How well a method found the bias-conflicting training rows by itself."""

from numpy.typing import ArrayLike

from spurless.metrics.groups import boolean


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

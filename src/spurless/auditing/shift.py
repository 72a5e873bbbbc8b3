"""Two splits that the model has not seen: is it as right on one as on the other?"""

from __future__ import annotations

from typing import Any

import numpy as np

from spurless.auditing.attributes import FOUND
from spurless.auditing.case import Case
from spurless.auditing.evidence import apart, more_errors, share

LEAST_DROP = 10.0  # points


def examine(case: Case) -> list[dict[str, Any]]:
    """Whether errors are more frequent in the test split than in the validation split, class by class (exact).

    Both are new to the model. Where it does clearly worse on one of them, it relies on something that holds in the data
    it was trained on and not there: a shortcut, or a change of conditions. Which of them, no such test can say, so it
    only makes one suspect. Empty without both splits.
    """
    val = case.data.val
    if case.split != "test" or val is None:
        return []
    usual = (case.outputs(val).argmax(1) == val.y).numpy()
    right = case.right.numpy()
    wrong = ~np.concatenate([usual, right])
    there = np.repeat([False, True], [len(usual), len(right)])
    p = more_errors(wrong, there, np.concatenate([val.y.numpy(), case.held.y.numpy()]))
    before, after = share(usual), share(right)
    gap = apart(before, after)
    if before is None or after is None or gap is None:
        return []
    return [
        {
            "test": "errors in the test split against the validation split, given the label",
            "finding": "suspected" if p < FOUND and gap["value"] >= LEAST_DROP else "none",
            "text": f"The model is right on {before['value']:.1f} % of {before['n']:,} validation samples and on "
            f"{after['value']:.1f} % of {after['n']:,} test samples, "
            + ("none of which it was trained on." if case.own else "if these are all new to it."),
            "p": p,
            "effect": gap["value"],
            "low": gap["low"],
            "high": gap["high"],
        }
    ]

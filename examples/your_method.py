"""A method of your own, in one file: nothing to register, nothing to change in the package.

Run it with: python examples/your_method.py
"""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from spurless import Method, Net, Result, Run, Stage, fit


@dataclass(frozen=True)
class SecondLook(Method):
    """Train for a short time, then train afresh and draw the rows that went wrong more often."""

    first_epochs: float = 6.0  # long enough to learn what is easy, too short for the rest
    times: float = 20.0  # how much more often a row that went wrong is drawn

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        first = run.net()
        yield Stage(
            "first", lambda b: cross_entropy(first(b.x), b.y), run.optimizer(first), first, epochs=self.first_epochs
        )

        # Between two stages is plain Python. By now the first network is trained.
        wrong = run.outputs(first).argmax(1) != run.data.train.y.to(run.device)  # (n,)
        run.report_conflicting(wrong)  # so that the result can say how many of them do conflict

        net = run.net()
        odds = torch.where(wrong, self.times, 1.0)  # (n,)
        yield Stage(
            "second", lambda b: cross_entropy(net(b.x), b.y), run.optimizer(net), net, sample_weights=odds, select=True
        )
        return net


def show(result: Result) -> None:
    scores = result.scores
    print(
        f"{result.method}: conflicting {scores['conflicting']:.1f} %, aligned {scores['aligned']:.1f} %, "
        f"worst group {scores['worst_group']:.1f} %; bias labels used: {result.labels_used}"
    )
    for found in result.mining.values():
        print(
            f"    {found['n_mined']} rows went wrong at first: {found['precision']:.1f} % of them conflict with the "
            f"shortcut, and they are {found['recall']:.1f} % of those that do"
        )


if __name__ == "__main__":
    for method in ("erm", SecondLook()):
        show(fit(method, "toy"))

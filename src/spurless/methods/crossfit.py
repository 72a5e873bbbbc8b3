"""Our own: resampling by what networks that have not seen a sample make of it."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.losses import gce
from spurless.nets import Net

FIXED = 0.2  # the least share that must be gone of plain training's errors where what is easy misleads
TRADE = 3.0  # how many times larger the gain there must be than the loss elsewhere, each in percent of the samples


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitted resampling with a gate (ours).  h_i = (1 − ε) (1 − p_y(x_i; e₋ᵢ)) / Σ of the class / C + ε / n

    Two experts learn what is easy, each from one half of the samples; h is read off the one that has not seen the
    sample, so that none is known by heart. One network is trained plainly, and a fresh one on samples drawn by h. It
    takes the plain one's place only where held-out samples are evidence of a shortcut; otherwise it is plain training.
    """

    share: Annotated[float, "length of the experts' training, of the recipe's", Range(0.01, 1)] = 0.2
    q: Annotated[float, "how strongly the experts prefer easy samples (GCE)", Range(0, 1)] = 0.7
    floor: Annotated[float, "ε, share of the draws that are uniform", Range(0, 1)] = 0.3
    level: Annotated[float, "chance of leaving plain training where both are equally good; 1: always", Range(0, 1)] = (
        0.05
    )

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        n, y = len(run.data.train), run.data.train.y.to(run.device)
        held_out, rows = hold_out(run) if run.data.val is None else (None, None)
        plain = run.net()
        yield Stage(
            "plain", lambda b: run.ce(plain(b.x), b.y), run.optimizer(plain), model=plain, rows=rows, shared=PLAIN
        )
        experts, fold = yield from self.experts(run, torch.arange(n) if rows is None else rows)
        p = torch.stack([run.outputs(e).double().softmax(1) for e in experts])  # (2, n, classes)
        p_y = p[1 - fold, torch.arange(n, device=run.device), y]  # (n,) by the expert that has not seen it
        run.report_conflicting(p_y < 0.5)
        h, net = odds(p_y, y, self.floor), run.net()
        h = h if rows is None else h[rows.to(run.device)]
        optimizer = run.optimizer(net)
        yield Stage(
            "debiased", lambda b: run.ce(net(b.x), b.y), optimizer, model=net, rows=rows, sample_weights=h, select=True
        )
        if self.level == 1 or self.finds_shortcut(run, experts, plain, net, held_out):
            return net
        run.report_conflicting(torch.zeros(n))  # nothing is taken for conflicting
        return plain

    def experts(self, run: Run, rows: Tensor) -> Generator[Stage, None, tuple[list[Net], Tensor]]:
        """Two networks, and (n,) which of them has trained on each sample."""
        fold = torch.zeros(len(run.data.train), dtype=torch.long)
        fold[rows[torch.randperm(len(rows), generator=run.generator("folds"))[: len(rows) // 2]]] = 1
        length, steps = self.share * run.recipe.epochs, round(self.share * run.recipe.iterations / 2)
        nets = [run.net(), run.net()]
        for k, net in enumerate(nets):

            def loss(b: Batch, net: Net = net) -> Tensor:
                return gce(net(b.x), b.y, self.q)

            half, name, optimizer = rows[fold[rows] == k], f"expert {k + 1}", run.optimizer(net)
            yield Stage(name, loss, optimizer, model=net, rows=half, epochs=length, iterations=steps or None)
        return nets, fold.to(run.device)

    def finds_shortcut(self, run: Run, experts: list[Net], plain: Net, net: Net, held_out: Tensor | None) -> bool:
        """The gate, on samples that no network has trained on."""
        split = run.data.val or run.data.train
        kept = slice(None) if held_out is None else held_out
        out = [run.outputs(f, split).double().softmax(1).cpu()[kept] for f in (*experts, plain, net)]
        easy, before, after = (p.argmax(1) == split.y[kept] for p in (out[0] + out[1], out[2], out[3]))
        return shortcut_evidence(easy, before, after, self.level)


def odds(p_y: Tensor, y: Tensor, floor: float) -> Tensor:
    """(n,) How often each sample is drawn: by 1 − p_y within its class, classes alike, and a share of all alike.

    >>> odds(torch.tensor([0.75, 0.25, 0.5, 0.5]), torch.tensor([0, 0, 1, 1]), floor=0.0).tolist()
    [0.125, 0.375, 0.25, 0.25]
    """
    missed = (1 - p_y).clamp_min(1e-12)
    total = missed.new_zeros(int(y.max()) + 1).index_add(0, y, missed)
    return (1 - floor) * missed / total[y] / (total > 0).sum() + floor / len(y)


def shortcut_evidence(easy: Tensor, before: Tensor, after: Tensor, level: float = 0.05) -> bool:
    """Whether a network is better than the one before it where what is easy misleads, by which samples (n,) are right.

    There more must be right, beyond chance; a share FIXED of the errors must be gone, because what is only hard stays
    hard; and the gain must be TRADE times the loss elsewhere, because what is only noise is learnt at that expense.

    >>> easy, before = torch.arange(100) >= 20, torch.arange(100) >= 10
    >>> shortcut_evidence(easy, before, before | True), shortcut_evidence(easy, before, ~before)
    (True, False)
    """
    gained, lost = after & ~before, before & ~after
    up, down = int(gained[~easy].sum()), int(lost[~easy].sum())
    if chance(up, down) > level or up - down < FIXED * int((~before & ~easy).sum()):
        return False
    elsewhere = float((lost.float() - gained.float())[easy].mean()) if easy.any() else 0.0
    return (up - down) / int((~easy).sum()) >= TRADE * elsewhere


def chance(more: int, less: int) -> float:
    """Of so many changes, the chance of at least so many for the better if both are equally likely (exact sign test).

    >>> chance(3, 0), chance(0, 0), chance(1, 1)
    (0.125, 1.0, 0.75)
    """
    return sum(math.comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less)


def hold_out(run: Run) -> tuple[Tensor, Tensor]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    return order[: len(order) // 10 + 1].sort().values, order[len(order) // 10 + 1 :].sort().values

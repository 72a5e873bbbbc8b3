"""Our own: resampling by what networks that have not seen a sample make of it."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core import PLAIN, Batch, Method, Run, Stage
from spurless.losses import ce, gce
from spurless.nets import Net
from spurless.settings import Range

FIXED = 0.2  # of plain training's errors on samples that contradict what is easy: the least that must be gone


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitted resampling with a gate (ours).  h_i = (1 − ε) (1 − p_y(x_i; e₋ᵢ)) / Σ of the class / C + ε / n

    Two experts learn what is easy, each from one half of the samples; h is read off the one that has not seen the
    sample, so that none is known by heart. One network is trained plainly, and a fresh one on samples drawn by h. It
    takes the plain one's place only where held-out samples are evidence of a shortcut; otherwise this is plain
    training, to the bit.
    """

    share: Annotated[float, "length of the experts' training, of the recipe's", Range(0.01, 1)] = 0.2
    q: Annotated[float, "how strongly the experts prefer easy samples (GCE)", Range(0, 1)] = 0.7
    floor: Annotated[float, "ε, share of the draws that are uniform", Range(0, 1)] = 0.3
    level: Annotated[float, "chance of leaving plain training where both are equally good; 1: always", Range(0, 1)] = (
        0.05
    )

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        held_out, rest = hold_out(run)
        plain = run.net()
        yield Stage("plain", lambda b: ce(plain(b.x), b.y), run.optimizer(plain), model=plain, rows=rest, shared=PLAIN)
        experts, fold = yield from self.experts(run, rest)
        p = torch.stack([run.outputs(e).double().softmax(1) for e in experts])  # (2, n, classes)
        y = run.data.train.y.to(run.device)
        p_y = p[1 - fold, torch.arange(len(y), device=run.device), y]  # (n,) by the expert that has not seen it
        run.mined(p_y < 0.5)
        h = odds(p_y, y, self.floor)[slice(None) if rest is None else rest.to(run.device)]
        net = run.net()
        yield Stage(
            "debiased", lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net, rows=rest, weights=h, select=True
        )
        if self.level == 1 or self.finds_shortcut(run, experts, plain, net, held_out):
            return net
        run.mined(torch.zeros_like(p_y, dtype=torch.bool))  # nothing is taken for conflicting
        return plain

    def experts(self, run: Run, rest: Tensor | None) -> Generator[Stage, None, tuple[list[Net], Tensor]]:
        """Two networks, and (n,) which of them has trained on each sample."""
        rows = torch.arange(len(run.data.train)) if rest is None else rest
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
        split = run.data.train if held_out is not None or run.data.val is None else run.data.val
        kept = slice(None) if held_out is None else held_out
        out = [run.outputs(f, split).double().softmax(1).cpu()[kept] for f in (*experts, plain, net)]
        y = split.y[kept]
        easy, before, after = (p.argmax(1) == y for p in (out[0] + out[1], out[2], out[3]))
        return shortcut_evidence(easy, before, after, self.level)


def odds(p_y: Tensor, y: Tensor, floor: float) -> Tensor:
    """(n,) How often each sample is drawn: by 1 − p_y within its class, classes alike, and a share of all alike.

    >>> odds(torch.tensor([0.75, 0.25, 0.5, 0.5]), torch.tensor([0, 0, 1, 1]), floor=0.0).tolist()
    [0.125, 0.375, 0.25, 0.25]
    """
    missed = (1 - p_y).clamp_min(1e-12)
    total = missed.new_zeros(int(y.max()) + 1).index_add(0, y, missed)
    classes = (total > 0).sum()
    return (1 - floor) * missed / total[y] / classes + floor / len(y)


def shortcut_evidence(easy: Tensor, before: Tensor, after: Tensor, level: float = 0.05) -> bool:
    """Whether the second of two networks is better where what is easy misleads, by which samples (n,) are right: what is
    easy, the network before, the network after. There more must be right after than before, beyond chance, and at least
    a share FIXED of the errors gone, because what is only hard stays hard; and altogether no more may be lost than by
    chance, because what is only noise is learnt at the expense of all others.

    >>> easy, before = torch.arange(100) >= 20, torch.arange(100) >= 10
    >>> shortcut_evidence(easy, before, before | True), shortcut_evidence(easy, before, ~before)
    (True, False)
    """
    gained, lost = after & ~before, before & ~after
    fixed = int(gained[~easy].sum()) - int(lost[~easy].sum())
    return (
        chance(int(gained[~easy].sum()), int(lost[~easy].sum())) <= level
        and fixed >= FIXED * int((~before & ~easy).sum())
        and chance(int(lost.sum()), int(gained.sum())) > level
    )


def chance(more: int, less: int) -> float:
    """Of so many changes, the chance of at least so many for the better if both are equally likely (exact sign test).

    >>> chance(3, 0), chance(0, 0), chance(1, 1)
    (0.125, 1.0, 0.75)
    """
    return sum(math.comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less)


def hold_out(run: Run) -> tuple[Tensor | None, Tensor | None]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    if run.data.val is not None:
        return None, None
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    cut = max(1, len(order) // 10)
    return order[:cut].sort().values, order[cut:].sort().values

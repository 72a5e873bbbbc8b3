"""Our own: resampling by what networks that have not seen a sample make of it."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.losses import gce
from spurless.methods.parts.mixing import Mixer
from spurless.nets import Net

SOFT, SHARP = 0.3, 0.05  # ε, share of the draws that are uniform, of the two ways to draw
FIXED = 0.2  # the least share that must be gone of plain training's errors where what is easy misleads
LEARNT, AT_MOST = 1000, 0.6  # steps of an expert, and the share of the length beyond which it gets no more
MIX = 2 / 3  # inputs are mixed where the better pilot has a lower score: more than a new way to draw is wanting
APART = 1 / 8  # of ln(C − 1): what the wrong class may tell of the right one where a shortcut is at work


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitted resampling with a gate (ours).  h_i = (1 − ε) m_i^β / Σ of the class / C + ε / n

    Two experts learn what is easy, each from one half of the samples; m = 1 − p_y(x) is read off the one that has not
    seen the sample, so that none is known by heart. Two pilots, trained on soft odds (β = 1) and on sharp ones (β such
    that what is easy tells nothing about the label), show on held-out samples which odds to take, and whether to mix
    inputs. A fresh network is trained so, and takes plain training's place only where held-out samples speak for it.
    """

    share: Annotated[float, "length of the experts' and the pilots' training, of the recipe's", Range(0.01, 1)] = 0.2
    q: Annotated[float, "how strongly the experts prefer easy samples (GCE)", Range(0, 1)] = 0.7
    level: Annotated[float, "chance of leaving plain training where both are equally good; 1: always", Range(0, 1)] = (
        0.05
    )

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        n, y = len(run.data.train), run.data.train.y.to(run.device)
        held_out, rows = hold_out(run) if run.data.val is None else (None, torch.arange(n))
        plain = yield from self.network(run, "plain", rows, shared=PLAIN)
        fold = torch.zeros(n, dtype=torch.long)
        fold[rows[torch.randperm(len(rows), generator=run.generator("folds"))[: len(rows) // 2]]] = 1
        experts = []
        for k in range(2):
            half = rows[fold[rows] == k]
            experts.append((yield from self.network(run, f"expert {k + 1}", half, self.expert_share(run, n), self.q)))
        p = torch.stack([run.outputs(e).double().softmax(1) for e in experts])  # (2, n, C)
        p = p[1 - fold.to(run.device), torch.arange(n, device=run.device)]  # (n, C) by the one that has not seen it
        missed = 1 - p.gather(1, y[:, None])[:, 0]
        run.report_conflicting(missed > 0.5)

        split, of = (run.data.train, held_out) if run.data.val is None else (run.data.val, slice(None))

        def answers(net: Net) -> Tensor:  # (m, C) to the held-out samples
            return run.outputs(net, split).double().softmax(1).cpu()[of]

        y_of = split.y[of]
        easy = torch.stack([answers(e) for e in experts]).mean(0)
        evidence = Evidence(easy, y_of, shows_shortcut(y.cpu()[rows], p.argmax(1).cpu()[rows]))
        draws = [odds(missed, y, SOFT)[rows], odds(missed, y, SHARP, sharpness(missed, y))[rows]]
        scores = []
        for name, h in zip(("soft", "sharp"), draws, strict=True):
            pilot = yield from self.network(run, f"pilot {name}", rows, self.share, odds=h)
            scores.append(evidence.score(answers(pilot).argmax(1) == y_of))
        mix = Mixer("mixup") if evidence.shown and max(scores) < MIX and run.recipe.mix is None else None
        h = draws[scores.index(max(scores))]
        net = yield from self.network(run, "debiased", rows, odds=h, mix=mix, select=True)
        after, before = (answers(f).argmax(1) == y_of for f in (net, plain))
        if self.level == 1 or evidence.prefers(after, before, self.level):
            return net
        run.report_conflicting(torch.zeros(n))  # no sample is identified as conflicting
        return plain

    def expert_share(self, run: Run, n: int) -> float:
        """Of little data, what is easy is not learnt in a fifth of the length: LEARNT steps, but not over AT_MOST."""
        steps = run.recipe.iterations / 2 or run.recipe.epochs * n / 2 / run.recipe.batch_size
        return max(self.share, min(AT_MOST, LEARNT / max(steps, 1)))

    def network(
        self,
        run: Run,
        name: str,
        rows: Tensor,
        share: float = 1.0,
        q: float = 0.0,
        odds: Tensor | None = None,
        **more: Any,
    ) -> Generator[Stage, None, Net]:
        """A fresh network, trained with cross entropy, or GCE."""
        net, steps = run.net(), round(share * run.recipe.iterations * len(rows) / len(run.data.train))

        def loss(b: Batch) -> Tensor:
            return gce(net(b.x), b.y, q) if q else run.ce(net(b.x), b.y)

        length: dict[str, Any] = {}
        if share < 1:
            length = {"epochs": share * run.recipe.epochs, "iterations": steps or None}
        every = None if len(rows) == len(run.data.train) else rows
        yield Stage(name, loss, run.optimizer(net), model=net, rows=every, sample_weights=odds, **length, **more)
        return net


class Evidence:
    """What is right of held-out samples, in the world that the experts' errors speak for.

    Where these show a shortcut, that is a world in which what is easy tells nothing (the samples weigh as sharp odds
    would draw them); where they do not, the samples count as they are. Where they cannot tell, the mean of both.
    """

    def __init__(self, p: Tensor, y: Tensor, shown: bool | None):
        missed, share = 1 - p.gather(1, y[:, None])[:, 0], {True: 0.0, None: 0.5, False: 1.0}[shown]
        self.shown, self.classes, self.misled = shown, p.shape[1], p.argmax(1) != y  # p (m, C): the experts' answers
        self.weights = odds(missed, y, 0.0, sharpness(missed, y)) * (1 - share) + share / len(y)

    def score(self, right: Tensor) -> float:
        """Of a network, by whether each sample (m,) is predicted rightly."""
        return float(self.weights[right].sum().item())

    def prefers(self, after: Tensor, before: Tensor, level: float) -> bool:
        """The gate. Where the errors speak against a shortcut, and of two classes, more must be right beyond chance
        where what is easy misleads, and a share FIXED of the errors be gone there: what is only hard stays hard."""
        if self.score(after) <= self.score(before):
            return False
        lenient = self.shown or (self.shown is None and self.classes > 2)
        return lenient or shortcut_evidence(self.misled, before, after, level)


def odds(missed: Tensor, y: Tensor, floor: float, power: float = 1.0) -> Tensor:
    """(n,) How often each sample is drawn: by missed^power within its class, classes alike, and a share of all alike.

    >>> odds(torch.tensor([0.25, 0.75, 0.5, 0.5]), torch.tensor([0, 0, 1, 1]), floor=0.0).tolist()
    [0.125, 0.375, 0.25, 0.25]
    """
    missed = missed.clamp_min(1e-12) ** power
    total = missed.new_zeros(int(y.max()) + 1).index_add(0, y, missed)
    return (1 - floor) * missed / total[y] / (total > 0).sum() + floor / len(y)


def sharpness(missed: Tensor, y: Tensor) -> float:
    """The power with which the experts are right on 1 / C of what is drawn: what is easy tells nothing. At most 8.

    >>> missed, y = torch.tensor([0.1, 0.1, 0.9] * 2).double(), torch.tensor([0, 0, 0, 1, 1, 1])
    >>> power = sharpness(missed, y)
    >>> round(power, 2), round(float((odds(missed, y, 0.0, power) * (1 - missed)).sum()), 2)
    (0.32, 0.5)
    """
    low, high, target = 0.0, 8.0, 1 / (int(y.max()) + 1)
    for _ in range(40):
        power = (low + high) / 2
        easy = float((odds(missed, y, 0.0, power) * (1 - missed)).sum())
        low, high = (low, power) if easy < target else (power, high)
    return power


def shows_shortcut(y: Tensor, predicted: Tensor) -> bool | None:
    """Whether what is easy misleads as a shortcut does: to any wrong class (n,) alike, whatever the right one is.

    Where the classes themselves are easy or hard, they are confused in pairs. None: two classes, or too few errors.
    """
    classes, wrong = int(y.max()) + 1, predicted != y
    free = (classes - 1) ** 2 - classes  # the mean of the likelihood ratio if they are independent; its variance: twice
    if classes < 3 or int(wrong.sum()) < 2 * free:
        return None
    counts = torch.bincount(y[wrong] * classes + predicted[wrong], minlength=classes**2).view(classes, classes).double()
    expected = 1 - torch.eye(classes, dtype=torch.double)
    for _ in range(100):  # rows and columns in turn: independent but for the empty diagonal
        expected *= (counts.sum(1) / expected.sum(1).clamp_min(1e-9))[:, None]
        expected *= (counts.sum(0) / expected.sum(0).clamp_min(1e-9))[None]
    seen = counts > 0
    g = 2 * float((counts[seen] * torch.log(counts[seen] / expected[seen])).sum())
    told, margin, limit = g - free, 2 * math.sqrt(2 * max(free, 1)), 2 * counts.sum() * APART * math.log(classes - 1)
    return True if told + margin < limit else False if told - margin > limit else None


def shortcut_evidence(misled: Tensor, before: Tensor, after: Tensor, level: float = 0.05) -> bool:
    """Whether more is right (m,) than before where what is easy misleads, beyond chance, and FIXED of the errors gone.

    >>> misled, before = torch.arange(100) < 20, torch.arange(100) >= 10
    >>> shortcut_evidence(misled, before, before | True), shortcut_evidence(misled, before, ~before | misled)
    (True, True)
    >>> shortcut_evidence(misled, before, before | (torch.arange(100) < 1))
    False
    """
    up, down = int((after & ~before & misled).sum()), int((before & ~after & misled).sum())
    return chance(up, down) <= level and up - down >= FIXED * int((~before & misled).sum())


def chance(more: int, less: int) -> float:
    """Of so many changes, the chance of at least so many for the better if both are equally likely (exact sign test).

    >>> chance(3, 0), chance(0, 0), chance(1, 1)
    (0.125, 1.0, 0.75)
    """
    return float(sum(math.comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less))


def hold_out(run: Run) -> tuple[Tensor, Tensor]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    return order[: len(order) // 10 + 1].sort().values, order[len(order) // 10 + 1 :].sort().values

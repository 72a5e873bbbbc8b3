"""Our own: resampling by what networks that have not seen a sample make of it."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.dfr import Samples, fit_head, halves
from spurless.methods.la import soft_posterior
from spurless.methods.parts.evidence import Evidence, odds, sharpness, shows_shortcut
from spurless.methods.parts.losses import adjusted_ce, gce
from spurless.nets import Net

SOFT, SHARP = 0.3, 0.05  # ε, share of the draws that are uniform, of the two ways to draw
EASY_EPOCHS, EASY_LR = 8, 3e-3  # of small experts, of their halves of the samples; with Adam
LEARNT, AT_MOST = 1000, 0.6  # steps of experts of the run's own kind, and the share of the length at most
STRENGTHS = (0.1, 0.01, 0.001)  # C, the inverse of the penalty's weight, that a head is fitted with
FEWEST = 10  # held-out samples in each class × (are the experts wrong), for a head to be fitted


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitting with a gate (ours).  h_i = (1 − ε) m_i^β / Σ of the class / C + ε / n,  or  CE(f + log p(·), y)

    Two small experts learn what is easy, each from one half of the samples; p is read off the one that has not seen
    the sample, so that none is known by heart, and m = 1 − p_y. A fresh network is trained on samples drawn by m,
    softly (β = 1) or sharply (β such that what is easy tells nothing about the label). Where the experts are sure and
    wrong, as a shortcut makes them: sharply, or with what is easy added to the logits, so that it is left with the
    rest. Two pilots show on held-out samples which of the two. Of two classes, plain training's head is refitted on
    the held-out samples, too. The better one takes plain training's place only where held-out samples speak for it.
    """

    share: Annotated[float, "length of the pilots' training, of the recipe's", Range(0.01, 1)] = 0.2
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
            experts.append((yield from self.expert(run, f"expert {k + 1}", rows[fold[rows] == k])))
        p = torch.stack([run.outputs(e).double().softmax(1) for e in experts])  # (2, n, C)
        p = p[1 - fold.to(run.device), torch.arange(n, device=run.device)]  # (n, C) by the one that has not seen it

        split, of = (run.data.train, held_out) if run.data.val is None else (run.data.val, slice(None))

        def answers(net: Net) -> Tensor:  # (m, C) to the held-out samples
            return run.outputs(net, split).double().softmax(1).cpu()[of]

        y_of = split.y[of]
        easy = torch.stack([answers(e) for e in experts]).mean(0)
        seen = rows.to(run.device)
        shown = shows_shortcut(p[seen], y[seen])
        run.report_conflicting(shown.misled(p, y) > 0.5 if shown else p.argmax(1) != y)
        evidence = Evidence(easy, y_of, shown)
        missed = 1 - p.gather(1, y[:, None])[:, 0]
        sharp: dict[str, Any] = {"odds": odds(missed, y, SHARP, sharpness(missed, y))[rows]}
        ways: dict[str, dict[str, Any]] = {"soft": {"odds": odds(missed, y, SOFT)[rows]}, "sharp": sharp}
        if shown:
            shift = soft_posterior(p.clamp_min(1e-12).log(), y).float()  # log p(· | easy)
            ways = {"sharp": sharp, "adjusted": {"shift": shift}}
        scores = {}
        for name in ways:
            pilot = yield from self.network(run, f"pilot {name}", rows, self.share, **ways[name])
            scores[name] = evidence.score(answers(pilot).argmax(1) == y_of)
        best = max(scores, key=lambda name: scores[name])
        net = yield from self.network(run, "debiased", rows, **ways[best], select=True)
        after, before = (answers(f).argmax(1) == y_of for f in (net, plain))
        if evidence.classes == 2:
            features = run.outputs(plain, split, features=True).cpu()[of]
            net, after = self.better_head(run, plain, features, y_of, evidence, (net, after))
        if self.level == 1 or evidence.prefers(after, before, self.level):
            return net
        run.report_conflicting(torch.zeros(n))  # no sample is identified as conflicting
        return plain

    def better_head(
        self, run: Run, plain: Net, features: Tensor, y: Tensor, evidence: Evidence, other: tuple[Net, Tensor]
    ) -> tuple[Net, Tensor]:
        """Plain training with a new head, and what is right, where that is better than the other network; else that.

        Each class × (are the experts wrong) counts alike. What is right is told by heads fitted on the other half.
        """
        group = 2 * y + evidence.misled
        size = torch.bincount(group, minlength=4)
        if int(size.min()) < FEWEST:
            return other
        samples, weight = Samples.of(features, y, group, plain), 1 / size[group].double()
        first, second = halves(group, run.generator("head"))

        def right(strength: float) -> Tensor:
            out = torch.zeros(len(y), dtype=torch.bool)
            for learn, judge in ((first, second), (second, first)):
                head = fit_head(samples.pick(learn), "l2", strength, weight[learn])
                out[judge] = torch.from_numpy(head.right(samples.pick(judge)))
            return out

        after = {strength: right(strength) for strength in STRENGTHS}
        best = max(STRENGTHS, key=lambda strength: evidence.score(after[strength]))
        if evidence.score(after[best]) <= evidence.score(other[1]):
            return other
        net = run.net()
        net.load_state_dict(plain.state_dict())
        fit_head(samples, "l2", best, weight).put_into(net)
        return net, after[best]

    def expert(self, run: Run, name: str, half: Tensor) -> Generator[Stage, None, Net]:
        """A small network that learns what is easy."""
        net = run.easy_net()
        if net is None:
            return (yield from self.short(run, name, half))
        optimizer = run.optimizer(net, optimizer="adam", lr=EASY_LR, weight_decay=0.0)
        yield Stage(name, lambda b: gce(net(b.x), b.y, self.q), optimizer, model=net, rows=half, epochs=EASY_EPOCHS)
        return net

    def short(self, run: Run, name: str, rows: Tensor) -> Generator[Stage, None, Net]:
        """A short training of the run's own kind of network.

        Of little data, what is easy is not learnt in a fifth of the length: LEARNT steps, but not over AT_MOST.
        """
        n, recipe, net = len(run.data.train), run.recipe, run.net()
        steps = recipe.iterations / 2 or recipe.epochs * n / 2 / recipe.batch_size
        share = max(self.share, min(AT_MOST, LEARNT / max(steps, 1)))
        length: dict[str, Any] = {
            "epochs": share * recipe.epochs,
            "iterations": round(share * recipe.iterations * len(rows) / n) or None,
        }
        yield Stage(name, lambda b: gce(net(b.x), b.y, self.q), run.optimizer(net), model=net, rows=rows, **length)
        return net

    def network(
        self,
        run: Run,
        name: str,
        rows: Tensor,
        share: float = 1.0,
        odds: Tensor | None = None,
        shift: Tensor | None = None,
        **more: Any,
    ) -> Generator[Stage, None, Net]:
        """A fresh network, trained with cross entropy on samples drawn by their odds, or of shifted logits."""
        net, steps = run.net(), round(share * run.recipe.iterations * len(rows) / len(run.data.train))

        def loss(b: Batch) -> Tensor:
            logits = net(b.x)
            return run.ce(logits, b.y) if shift is None else adjusted_ce(run, logits, shift[b.idx], b.y, shift)

        length: dict[str, Any] = {}
        if share < 1:
            length = {"epochs": share * run.recipe.epochs, "iterations": steps or None}
        every = None if len(rows) == len(run.data.train) else rows
        yield Stage(name, loss, run.optimizer(net), model=net, rows=every, sample_weights=odds, **length, **more)
        return net


def hold_out(run: Run) -> tuple[Tensor, Tensor]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    return order[: len(order) // 10 + 1].sort().values, order[len(order) // 10 + 1 :].sort().values

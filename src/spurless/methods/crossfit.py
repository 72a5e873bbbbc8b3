"""Our own: resampling by what networks that have not seen a sample make of it."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from spurless.core.data import Batch
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.dfr import Samples, fit_head, halves
from spurless.methods.la import soft_posterior
from spurless.methods.parts.evidence import Evidence, harmless, log, odds, sharpness, shows_shortcut
from spurless.methods.parts.losses import adjusted_ce, gce
from spurless.nets import Net

SOFT, SHARP = 0.3, 0.05  # ε, share of the draws that are uniform, of the two ways to draw
HALVINGS = 3  # of the samples, each with two small experts
# How small experts are trained, whatever the recipe is; longer where its batches are larger than BATCH.
EASY: dict[str, Any] = {"optimizer": "adam", "lr": 3e-3, "weight_decay": 0.0, "l1": 0.0, "sharpness": "none"}
EASY |= {"schedule": "cosine", "warmup": 0, "iterations": 0, "augment": "none", "clip_norm": 0.0}
EPOCHS, BATCH = 8, 128
LEARNT, AT_MOST = 1000, 0.6  # steps of experts of the run's own kind, and the share of the length at most
STRENGTHS = (0.1, 0.01, 0.001)  # C, the inverse of the penalty's weight, that a head is fitted with
FEWEST = 10  # held-out samples in each class × (are the experts wrong), for a head to be fitted


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitting with a gate (ours).  h_i = (1 − ε) m_i^β / Σ of the class / C + ε / n,  or  CE(f + log p(·), y)

    Small experts learn what is easy, each from one half of the samples; p is the mean of those that have not seen the
    sample, so that none is known by heart, and m = 1 − p_y. A fresh network is trained on samples drawn by m (β = 1),
    of two classes perhaps sharply (β such that what is easy tells nothing about the label). Where the experts are sure
    and wrong, as a shortcut makes them: sharply, or with what is easy added to the logits, so that the network is left
    with the rest. Two pilots show on held-out samples which of the two. Of two classes, plain training's head is
    refitted on the held-out samples, too. The better one takes plain training's place where held-out samples speak for
    it, or show that it costs next to nothing: of two networks that are as right, the one that needs less of what is
    easy.
    """

    share: Annotated[float, "length of the pilots' training, of the recipe's", Range(0.01, 1)] = 0.2
    q: Annotated[float, "how strongly the experts prefer easy samples (GCE)", Range(0, 1)] = 0.7
    level: Annotated[float, "chance that the gate opens wrongly; 0: plain training; 1: never plain", Range(0, 1)] = 0.05

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        n, y = len(run.data.train), run.data.train.y.to(run.device)
        held_out, rows = hold_out(run) if run.data.val is None else (None, torch.arange(n))
        split, of = (run.data.train, held_out) if run.data.val is None else (run.data.val, slice(None))
        y_of = split.y[of]

        def answers(net: Net) -> Tensor:  # (m, C) to the held-out samples
            return run.outputs(net, split).double().softmax(1).cpu()[of]

        plain = yield from self.network(run, "plain", rows, PLAIN)
        p, easy = yield from self.easy(run, rows, answers)  # (n, C), (m, C)
        seen = rows.to(run.device)
        shown = shows_shortcut(p[seen], y[seen])
        run.report_conflicting(shown.misled(p, y) > 0.5 if shown else p.argmax(1) != y)
        evidence = Evidence(easy, y_of, shown)
        missed = 1 - p.gather(1, y[:, None])[:, 0]
        sharp = {"odds": odds(missed, y, SHARP, sharpness(missed, y))[rows]}
        ways: dict[str, dict[str, Any]] = {"soft": {"odds": odds(missed, y, SOFT)[rows]}}
        if shown:
            ways = {"sharp": sharp, "adjusted": {"shift": soft_posterior(log(p), y).float()}}
        elif evidence.classes == 2:
            ways["sharp"] = sharp
        scores, shared = dict.fromkeys(ways, 0.0), {"q": self.q, "share": self.share}  # what p depends on
        for name in ways if len(ways) > 1 else ():
            pilot = yield from self.network(
                run, f"pilot {name}", rows, shared | {"loss": name}, self.share, **ways[name]
            )
            scores[name] = evidence.score(answers(pilot).argmax(1) == y_of)
        best = max(scores, key=lambda name: scores[name])
        net = yield from self.network(run, "debiased", rows, shared | {"loss": best}, **ways[best])
        after, before = (answers(f).argmax(1) == y_of for f in (net, plain))
        if evidence.classes == 2:
            features = run.outputs(plain, split, features=True).cpu()[of]
            net, after = self.better_head(run, plain, features, y_of, evidence, (net, after))
        if self.level == 1 or evidence.prefers(after, before, self.level):
            return net
        run.report_conflicting(torch.zeros(n))  # no sample is identified as conflicting
        return net if harmless(after, before, self.level) else plain

    def easy(
        self, run: Run, rows: Tensor, answers: Callable[[Net], Tensor]
    ) -> Generator[Stage, None, tuple[Tensor, Tensor]]:
        """What is easy about the training samples (n, C), by the experts that have not seen them, and about the
        held-out ones (m, C), by all."""
        n = len(run.data.train)
        outputs: list[Tensor] = []
        held_out: list[Tensor] = []
        for k in range(HALVINGS):
            first, pair = torch.zeros(n, dtype=torch.bool), []
            first[rows[torch.randperm(len(rows), generator=run.generator(f"halves {k}"))[: len(rows) // 2]]] = True
            for half in (rows[~first[rows]], rows[first[rows]]):
                expert, is_small = yield from self.expert(run, f"expert {len(held_out) + 1}", half)
                pair.append(run.outputs(expert).double().softmax(1))
                held_out.append(answers(expert))
            outputs.append(torch.where(first.to(run.device)[:, None], pair[0], pair[1]))
            if not is_small:
                break
        return torch.stack(outputs).mean(0), torch.stack(held_out).mean(0)

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

    def expert(self, run: Run, name: str, half: Tensor) -> Generator[Stage, None, tuple[Net, bool]]:
        """A small network that learns what is easy, else a short training of the own kind; and whether it is small."""
        net = run.easy_net()
        if net is None:
            return (yield from self.short(run, name, half)), False
        easily = replace(run.recipe, **EASY, epochs=EPOCHS * max(1, run.recipe.batch_size / BATCH))
        yield self.gce(name, net, run.optimizer(net, **EASY), rows=half, until=False, recipe=easily)
        return net, True

    def short(self, run: Run, name: str, rows: Tensor) -> Generator[Stage, None, Net]:
        """A short training of the run's own kind of network.

        Of little data, what is easy is not learnt in a fifth of the length: LEARNT steps, but not over AT_MOST.
        """
        n, recipe, net = len(run.data.train), run.recipe, run.net()
        steps = recipe.iterations / 2 or recipe.epochs * n / 2 / recipe.batch_size
        share = max(self.share, min(AT_MOST, LEARNT / max(steps, 1)))
        iterations = round(share * recipe.iterations * len(rows) / n) or None
        yield self.gce(name, net, run.optimizer(net), rows=rows, epochs=share * recipe.epochs, iterations=iterations)
        return net

    def gce(self, name: str, net: Net, optimizer: Optimizer, **how: Any) -> Stage:
        shared = {"loss": "gce", "q": self.q}
        return Stage(name, lambda b: gce(net(b.x), b.y, self.q), optimizer, net, shared=shared, **how)

    def network(
        self, run: Run, name: str, rows: Tensor, shared: Mapping[str, Any], share: float = 1.0, **how: Any
    ) -> Generator[Stage, None, Net]:
        """A fresh network, trained with cross entropy on samples drawn by their `odds`, or with `shift`ed logits."""
        net, recipe, shift = run.net(), run.recipe, how.get("shift")

        def loss(b: Batch) -> Tensor:
            logits = net(b.x)
            return run.ce(logits, b.y) if shift is None else adjusted_ce(run, logits, shift[b.idx], b.y, shift)

        length: dict[str, Any] = {}
        if share < 1:
            iterations = round(share * recipe.iterations * len(rows) / len(run.data.train))
            length = {"epochs": share * recipe.epochs, "iterations": iterations or None}
        every = None if len(rows) == len(run.data.train) else rows
        select = name == "debiased"
        yield Stage(
            name,
            loss,
            run.optimizer(net),
            net,
            **length,
            rows=every,
            sample_weights=how.get("odds"),
            select=select,
            shared=shared,
        )
        return net


def hold_out(run: Run) -> tuple[Tensor, Tensor]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    return order[: len(order) // 10 + 1].sort().values, order[len(order) // 10 + 1 :].sort().values

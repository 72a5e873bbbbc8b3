"""Our own: what networks that have not seen a sample make of it is what is easy about it, and is taken away."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.experts import train_experts
from spurless.methods.la import soft_posterior
from spurless.methods.parts.evidence import Evidence, harmless, log, odds, sharpness, shows_shortcut
from spurless.methods.parts.exchange import carried
from spurless.methods.parts.losses import adjusted_ce
from spurless.methods.parts.refit import refitted
from spurless.nets import Net

SOFT, SHARP = 0.3, 0.05  # ε, share of the draws that are uniform, of the two ways to draw


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitting with a gate (ours).  h_i = (1 − ε) m_i^β / Σ of the class / C + ε / n,  or  CE(f + log p(·), y)

    Small experts learn what is easy, each from one half of the samples; p is the mean of those that have not seen the
    sample, so that none is known by heart, and m = 1 − p_y. A fresh network is trained on samples drawn by m (β = 1).
    Where an exchange of the light or the fine detail of images moves the experts, it sees images so exchanged. Else,
    where the experts are sure and wrong, as a shortcut makes them, it is trained on sharper draws (β such that what is
    easy tells nothing about the label), or with what is easy added to the logits, so that it is left with the rest: two
    pilots show on held-out samples which. Of two classes, plain training's head is refitted on the held-out samples,
    too. The better one takes plain training's place where held-out samples speak for it, or show that it costs next to
    nothing: of two networks that are as right, the one that needs less of what is easy.
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
        experts = yield from train_experts(run, rows, self.q, self.share)
        p, easy = experts.on_training(run), experts.on(answers)  # (n, C), (m, C)
        shown = shows_shortcut(p[rows.to(run.device)], y[rows.to(run.device)])
        run.report_conflicting(shown.misled(p, y) > 0.5 if shown else p.argmax(1) != y)
        evidence = Evidence(easy, y_of, shown)

        missed, exchange = 1 - p.gather(1, y[:, None])[:, 0], carried(run, experts, p.argmax(1) == y)
        sharp = {"odds": odds(missed, y, SHARP, sharpness(missed, y))[rows]}
        ways: dict[str, dict[str, Any]] = {"soft": {"odds": odds(missed, y, SOFT)[rows], "exchange": exchange}}
        if shown and not exchange:
            ways = {"sharp": sharp, "adjusted": {"shift": soft_posterior(log(p), y).float()}}
        elif evidence.classes == 2:
            ways["sharp"] = sharp | {"exchange": exchange}
        scores, shared = dict.fromkeys(ways, 0.0), {"q": self.q, "share": self.share}  # what p depends on
        for name in ways if len(ways) > 1 else ():
            how = shared | {"loss": name}
            pilot = yield from self.network(run, f"pilot {name}", rows, how, self.share, **ways[name])
            scores[name] = evidence.score(answers(pilot).argmax(1) == y_of)
        best = max(scores, key=lambda name: scores[name])
        net = yield from self.network(run, "debiased", rows, shared | {"loss": best}, **ways[best])

        after, before = (answers(f).argmax(1) == y_of for f in (net, plain))
        if evidence.classes == 2:
            other = refitted(run, plain, run.outputs(plain, split, features=True).cpu()[of], y_of, evidence)
            if other and evidence.score(other[1]) > evidence.score(after):
                net, after = other
        if self.level == 1 or evidence.prefers(after, before, self.level):
            return net
        run.report_conflicting(torch.zeros(n))  # no sample is identified as conflicting
        return net if harmless(after, before, self.level) else plain

    def network(
        self, run: Run, name: str, rows: Tensor, shared: Mapping[str, Any], share: float = 1.0, **how: Any
    ) -> Generator[Stage, None, Net]:
        """A fresh network, trained with CE: on samples drawn by `odds`, with an `exchange`, with `shift`ed logits."""
        net, recipe, shift = run.net(), run.recipe, how.get("shift")

        def loss(b: Batch) -> Tensor:
            logits = net(b.x)
            return run.ce(logits, b.y) if shift is None else adjusted_ce(run, logits, shift[b.idx], b.y, shift)

        drawn: dict[str, Any] = {"sample_weights": how.get("odds"), "mix": how.get("exchange")}
        drawn |= {"rows": None if len(rows) == len(run.data.train) else rows, "select": name == "debiased"}
        if share < 1:
            iterations = round(share * recipe.iterations * len(rows) / len(run.data.train))
            drawn |= {"epochs": share * recipe.epochs, "iterations": iterations or None}
        shared = {**shared, **({"exchange": drawn["mix"].how} if drawn["mix"] else {})}
        yield Stage(name, loss, run.optimizer(net), net, shared=shared, **drawn)
        return net


def hold_out(run: Run) -> tuple[Tensor, Tensor]:
    """Where there is no validation split: numbers of a tenth of the training samples, and of the others."""
    order = torch.randperm(len(run.data.train), generator=run.generator("held out"))
    return order[: len(order) // 10 + 1].sort().values, order[len(order) // 10 + 1 :].sort().values

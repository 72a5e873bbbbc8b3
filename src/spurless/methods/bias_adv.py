"""Bias-adversarial augmentation."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Texts
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.jtt import JTT
from spurless.methods.lff import LfF
from spurless.methods.parts.attacks import Attack, Ball, ask, bias_adversarial, embedding_of, on_text, pixel_range
from spurless.methods.parts.losses import Form, gce
from spurless.nets import Net

Weight = Tensor | float
# What a base method makes of a batch and of the debiased network's losses on it: the biased network's own loss, the
# weight of each sample, and the weight of its adversarial copy (before β).
Base = Callable[[Batch, Tensor], tuple[Weight, Weight, Weight]]


@dataclass(frozen=True)
class BiasAdv(Method):
    """Bias-adversarial augmentation (Lim et al. 2023, supplement, algorithms 1 to 3): g biased, f debiased.

    x̃ = argmax over ‖x̃ − x‖ ≤ ε of  CE(g, x̃) − λ·CE(f, x̃)
    erm, jtt:  L_f = mean CE(f, x) + β·mean CE(f, x̃)
    lff:       L_f = mean w·CE(f, x) + β·mean (1 − w)·CE(f, x̃)
    """

    base: Annotated[Literal["erm", "jtt", "lff"], "the method whose biased network is attacked"] = "lff"
    lam: Annotated[float, "how much the attack spares the debiased network (λ)", Range(0)] = 0.5
    eps: Annotated[
        float,
        "radius of the attack's ball, in the units of the network's inputs; of text, of token vectors (ε)",
        Range(0),
    ] = 0.3
    steps: Annotated[int, "gradient steps of the attack (S)", Range(0)] = 5
    beta: Annotated[float, "weight of the adversarial inputs (β)", Range(0)] = 0.5
    norm: Annotated[Ball, "norm of the attack's ball"] = "l2"
    step_size: Annotated[float | None, "length of an attack step; none: 2.5 eps / steps", Range(0)] = None
    random_start: Annotated[bool, "begin the attack at a random point of the ball"] = False
    clamp: Annotated[bool, "keep the attacked pixels between black and white"] = True
    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE; erm, lff)", Range(0, 1)] = 0.7
    form: Annotated[Form, "GCE as in the paper or as in the released code of LfF (erm, lff)"] = "paper"
    memory: Annotated[bool, "weigh by running losses relative to the class, or by the batch's own (lff)"] = True
    alpha: Annotated[float, "how much of the remembered loss is kept at each visit (lff)", Range(0, 1)] = 0.7
    identify_epochs: Annotated[
        float, "epochs of the biased network; 0: a fifth of the recipe's length (jtt)", Range(0)
    ] = 0
    lambda_up: Annotated[int, "how many copies of a sample of the error set an epoch holds (jtt)", Range(1)] = 20
    rho: Annotated[float, "share of conflicting samples: lambda_up = 1/rho; 0: not known (jtt)", Range(0, 1)] = 0

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        rows = None
        if self.base == "jtt":
            find = JTT(self.identify_epochs, self.lambda_up, self.rho).identify(run)
            stage = next(find)
            table = _vectors(run, stage.model)  # before it is trained
            yield stage
            biased, rows = yield from find
        else:
            biased = run.net()
            table = _vectors(run, biased)
        debiased = run.net()
        if table is not None:
            with torch.no_grad():
                embedding_of(debiased).weight.copy_(table)
        # A biased network that is trained already is not held: frozen, and in evaluation mode.
        trained = [debiased] if self.base == "jtt" else [biased, debiased]
        loss = self.loss(run, self._base(run, biased), biased, debiased)
        yield Stage("bias_adv", loss, run.optimizer(*trained), model=debiased, rows=rows, select=True)
        return debiased

    def loss(self, run: Run, base: Base, biased: Net, debiased: Net) -> Callable[[Batch], Tensor]:
        """The loss of a base method with its adversarial term.

        One sum for both networks is the supplement's sequence (attack, update g, update f): neither f's loss nor the
        attack, which comes first, depends on g's new weights.
        """
        low, high = pixel_range(run.data, run.device) if self.clamp else (None, None)
        # The attack switches modes and takes a gradient, which torch.compile would trace anew at every step.
        attack = partial(
            torch.compiler.disable(bias_adversarial) if run.recipe.compile else bias_adversarial,
            biased=biased,
            debiased=debiased,
            attack=Attack(self.lam, self.eps, self.steps, self.norm, self.step_size, self.random_start, low, high),
        )

        def loss(b: Batch) -> Tensor:
            start, free, read = on_text(b.x, debiased) if isinstance(run.data.inputs, Texts) else (b.x, None, ask)
            adv = attack(start, b.y, free=free, read=read)
            hard = run.ce_rows(debiased(b.x), b.y)  # (n,)
            of_biased, w, w_adv = base(b, hard)
            hard_adv = run.ce_rows(read(debiased, adv), b.y)  # a pass of its own: BatchNorm sees both apart
            return of_biased + (w * hard).mean() + self.beta * (w_adv * hard_adv).mean()

        return loss

    def _base(self, run: Run, biased: Net) -> Base:
        if self.base == "jtt":
            return lambda b, hard: (0.0, 1.0, 1.0)
        if self.base == "erm":
            return lambda b, hard: (gce(biased(b.x), b.y, self.q, self.form), 1.0, 1.0)
        weigh = LfF(alpha=self.alpha, memory=self.memory).weigher(run)

        def lff(b: Batch, hard: Tensor) -> tuple[Weight, Weight, Weight]:
            logits = biased(b.x)
            w = weigh(b.idx, run.ce_rows(logits, b.y), hard)  # (n,)
            return gce(logits, b.y, self.q, self.form), w, 1 - w

        return lff


def _vectors(run: Run, net: nn.Module) -> Tensor | None:
    """A copy of the vectors of the tokens, where inputs are text: both networks start with the same, so that one change
    of them means the same to both."""
    return embedding_of(net).weight.detach().clone() if isinstance(run.data.inputs, Texts) else None

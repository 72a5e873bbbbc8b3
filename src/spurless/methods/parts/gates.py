"""Gates: a network seen through a random mask whose probabilities are learnt while its weights stand still.

Every weight of every convolution and linear layer, of any network, gets a logit Θ; a forward pass draws a gate 0 or 1
for each and runs the network with weight · gate instead of its weights (`torch.func.functional_call`: no gated
copy of any layer is needed). At the end the logits become a fixed mask, and the network an ordinary one with zeros.

    gates = run.keep(Gates(net))
    features, logits = Gated(net, gates).both(x)   # one draw
    masks = gates.masks()                          # for pruning.zero and pruning.hold
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvTransposeNd

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.core.method import Run, Stage
from spurless.core.settings import Range, Was
from spurless.methods.parts.losses import Form
from spurless.methods.parts.pruning import EVERY, Layers, Masks, prunable
from spurless.nets import Net

Over = Literal["weight", "channel"]


@dataclass(frozen=True)
class Mask:
    """How a mask is learnt. Saved under the names that the settings had before they were a group."""

    l1: Annotated[
        float, "weight of the sparsity penalty; it acts through Adam's eps, 1e-8", Range(0), Was("lambda_l1")
    ] = 1e-8
    iterations: Annotated[
        int, "steps that learn the mask: the longer, the sparser", Range(1), Was("mask_iterations")
    ] = 2000
    lr: Annotated[float, "learning rate of the mask's logits (Adam)", Range(0), Was("mask_lr")] = 0.01
    start: Annotated[float, "logit of every gate at the start", Was("start")] = 1.5
    temperature: Annotated[
        float, "how soft the gate is that gradients pass through", Range(1e-3), Was("temperature")
    ] = 1.0
    over: Annotated[Over, "a gate for each weight, or for each output channel (not of the head)", Was("over")] = (
        "weight"
    )
    layers: Annotated[Layers, Was("layers")] = EVERY
    hold_stats: Annotated[
        bool, "while the mask is learnt, BatchNorm and dropout as in evaluation; off: as in training", Was("hold_stats")
    ] = False
    gate_form: Annotated[
        Form | None, "the gate's logit is Θ (paper) or σ(Θ) (code); none: as form", Was("gate_form")
    ] = None
    penalty_form: Annotated[
        Form | None, "the penalty is Σ|Θ| (paper) or ΣΘ (code); none: as form", Was("penalty_form")
    ] = None

    def gates(self, net: nn.Module, form: Form) -> Gates:
        return Gates(net, self.start, self.temperature, self.gate_form or form, self.over, self.layers)


def gate_logit(theta: Tensor, form: Form = "paper") -> Tensor:
    """Θ in the paper's form. DCWP's code hands σ(Θ) on as if it were the logit, so that it lies between 0 and 1."""
    return theta if form == "paper" else theta.sigmoid()


def keep_probability(theta: Tensor, form: Form = "paper") -> Tensor:
    """The probability that a weight is there in a forward pass: σ(Θ), or σ(σ(Θ)), which never falls below 1/2.

    >>> [round(float(keep_probability(torch.tensor(1.5), form)), 4) for form in ("paper", "code")]
    [0.8176, 0.6937]
    """
    return gate_logit(theta, form).sigmoid()


def draw_gates(theta: Tensor, temperature: float = 1.0, form: Form = "paper") -> Tensor:
    """Gates of 0 or 1, drawn with `keep_probability`, whose gradient is that of the soft gate (straight-through).

    soft = σ((logit + log u − log(1 − u)) / τ),  u uniform;  gate = 1[soft ≥ 1/2]   (Gumbel-sigmoid)
    """
    noise = torch.rand_like(theta).logit()  # −∞ where the draw is 0: then the gate is 0, and so is its gradient
    soft = ((gate_logit(theta, form) + noise) / temperature).sigmoid()
    hard = (soft.detach() >= 0.5).to(soft.dtype)
    return hard + (soft - soft.detach())  # in this order the gates are exactly 0 or 1


def final_mask(theta: Tensor, form: Form = "paper") -> Tensor:
    """Which weights stay for good: σ(Θ) > 1/2 in the paper, Θ ≥ 0 in the code.

    >>> final_mask(torch.tensor([-0.1, 0.0, 0.1])).tolist(), final_mask(torch.tensor([0.0]), "code").tolist()
    ([False, False, True], [True])
    """
    return theta > 0 if form == "paper" else theta >= 0


def penalty(logits: Sequence[Tensor], form: Form = "paper") -> Tensor:
    """The sparsity penalty: Σ|Θ|, which pulls logits to the threshold; in the code ΣΘ, which pushes them below it.

    >>> theta = torch.tensor([-2.0, 1.0])
    >>> float(penalty([theta])), float(penalty([theta], "code"))
    (3.0, -1.0)
    """
    return torch.stack([(t.abs() if form == "paper" else t).sum() for t in logits]).sum()


class Gates(nn.Module):
    """A logit for each weight of a network, or for each output channel of it. In training mode it draws; in evaluation
    mode it is the final mask."""

    def __init__(
        self,
        net: nn.Module,
        start: float = 1.5,
        temperature: float = 1.0,
        form: Form = "paper",
        over: Over = "weight",
        layers: Sequence[str] = EVERY,
    ):
        super().__init__()
        self.temperature, self.form, self.over = temperature, form, over
        self.shapes: dict[str, torch.Size] = {}  # of the parameters that are gated
        self.biases: dict[str, str] = {}  # by the name of a weight: the bias that its channels take along
        logits = []
        for name, layer in prunable(net, layers).items():
            weight = net.get_parameter(name)
            if over == "channel":
                # A class cannot be cut off, and a transposed convolution has its channels elsewhere.
                if isinstance(layer, _ConvTransposeNd) or (isinstance(net, Net) and layer is net.head):
                    continue
                logits.append(weight.new_full((len(weight), *[1] * (weight.dim() - 1)), start))
                if getattr(layer, "bias", None) is not None:
                    bias = name.removesuffix("weight") + "bias"
                    self.biases[name], self.shapes[bias] = bias, net.get_parameter(bias).shape
            else:
                logits.append(torch.full_like(weight, start))
            self.shapes[name] = weight.shape
        if not logits:
            raise UserError("This network has no channels to gate but its outputs; use a gate for each weight.")
        self.names = [name for name in self.shapes if name not in self.biases.values()]
        self.logits = nn.ParameterList([nn.Parameter(t.detach()) for t in logits])

    def forward(self) -> dict[str, Tensor]:
        """The gates of one forward pass, by parameter."""
        if self.training:
            return self._spread([draw_gates(t, self.temperature, self.form) for t in self.logits])
        return self._spread([final_mask(t, self.form).to(t.dtype) for t in self.logits])

    @torch.no_grad()
    def masks(self) -> Masks:
        """The final mask of each gated parameter, in its shape."""
        masks = self._spread([final_mask(t, self.form) for t in self.logits])
        return {name: mask.expand(self.shapes[name]) for name, mask in masks.items()}

    @torch.no_grad()
    def keep_probability(self) -> Tensor:
        """Over all gates: how many are open in a forward pass, on average."""
        return torch.cat([keep_probability(t, self.form).flatten() for t in self.logits]).mean()

    def _spread(self, gates: list[Tensor]) -> dict[str, Tensor]:
        by_name = dict(zip(self.names, gates, strict=True))
        return by_name | {bias: by_name[weight].flatten() for weight, bias in self.biases.items()}


class Gated(nn.Module):
    """A network seen through gates. The network itself is not changed."""

    def __init__(self, net: Net, gates: Gates):
        super().__init__()
        self.view, self.gates = Both(net), gates

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, d) and logits (n, classes) under one draw of the gates."""
        weights = {f"net.{k}": self.view.net.get_parameter(k) * gate for k, gate in self.gates().items()}
        both: tuple[Tensor, Tensor] = functional_call(self.view, weights, (x,))
        return both

    def features(self, x: Tensor) -> Tensor:
        return self.both(x)[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x)[1]


class Both(nn.Module):
    """Features and logits from one pass."""

    def __init__(self, net: Net):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.net.features(x)
        return features, self.net.head(features)


Objective = Callable[[Batch, Tensor, Tensor], Tensor]  # of a batch, its features and its logits


def mask_stage(
    run: Run, net: Net, gates: Gates, objective: Objective, mask: Mask, form: Form, sample_weights: Tensor | None = None
) -> Stage:
    """Learn the logits over frozen weights.  min over Θ of E[objective] + λ · penalty(Θ)

    Always by Adam with eps 10⁻⁸: the penalty's gradient, λ, is of that size, and a logit that nothing else moves goes
    lr · λ / (λ + eps) a step. Another eps or optimiser means another sparsity.
    """
    gated = Gated(net, gates)

    def loss(b: Batch) -> Tensor:
        features, logits = gated.both(b.x)
        return objective(b, features, logits) + mask.l1 * penalty(list(gates.logits), mask.penalty_form or form)

    adam = {"optimizer": "adam", "lr": mask.lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    return Stage(
        "mask",
        loss,
        run.optimizer(gates, **adam),
        model=gated,
        iterations=mask.iterations,
        sample_weights=sample_weights,
        in_training_mode=() if mask.hold_stats else (net,),
    )

"""The network that an inference reads groups off: how long and with which loss it is trained."""

from collections.abc import Callable, Generator
from typing import Annotated, Any, NamedTuple

from torch import Tensor

from spurless.core.method import PLAIN, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.losses import Form, gce
from spurless.nets import Net

EARLY = 0.2  # of the recipe's length, for a network that is stopped early: JTT's 60 of 300 epochs on Waterbirds

Q = Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)]
GceForm = Annotated[Form, "GCE as in the paper or as in the released code"]
PlainEpochs = Annotated[float, "epochs of the plainly trained network; 0: the recipe's length", Range(0)]
EarlyEpochs = Annotated[float, "epochs of the plainly trained network; 0: a fifth of the recipe's length", Range(0)]


class Length(NamedTuple):
    """How long a network is trained: steps where they are given, else epochs, else as the recipe says."""

    epochs: float | None = None
    iterations: int | None = None


def early(run: Run, epochs: float = 0) -> Length:
    """The length of a network that is stopped while it still gets conflicting samples wrong; 0 epochs: a share of the
    recipe's length."""
    if epochs:
        return Length(epochs)
    if run.recipe.iterations:
        return Length(iterations=max(1, round(EARLY * run.recipe.iterations)))
    return Length(max(1, round(EARLY * run.recipe.epochs)))  # whole ones, so that every sample is seen


def plain_net(
    run: Run, length: Length = Length(), weight_decay: float | None = None, name: str = "plain"
) -> Generator[Stage, None, Net]:
    """A network trained with cross entropy."""
    changes = {} if weight_decay is None else {"weight_decay": weight_decay}
    return (yield from _trained(run, name, run.ce, length, PLAIN, **changes))


def biased_net(
    run: Run, length: Length, q: float = 0.7, form: Form = "paper", name: str = "mine"
) -> Generator[Stage, None, Net]:
    """A network trained with GCE, which prefers what is easy."""
    shared = {"loss": "gce", "q": q, "form": form}
    return (yield from _trained(run, name, lambda logits, y: gce(logits, y, q, form), length, shared))


def _trained(
    run: Run,
    name: str,
    loss: Callable[[Tensor, Tensor], Tensor],
    length: Length,
    shared: dict[str, Any],
    **changes: Any,
) -> Generator[Stage, None, Net]:
    net = run.net()
    epochs, iterations = length
    optimizer = run.optimizer(net, **changes)
    yield Stage(
        name, lambda b: loss(net(b.x), b.y), optimizer, model=net, epochs=epochs, iterations=iterations, shared=shared
    )
    return net

"""Which training rows contradict the bias? Miners train a network that follows the bias and see what it fails on.

A miner is a generator that yields its training stages and returns what it found, so that a method says

    mined = yield from MINERS["gce"](run, iterations=2000)

and `mine` runs one on its own. No miner sees a bias label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Bundle
from spurless.core.errors import UserError, unknown
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.recipe import Recipe
from spurless.core.settings import Range, resolve
from spurless.methods.parts.grads import Norm, head_grad_norms
from spurless.methods.parts.losses import Form, ce_rows, gce

if TYPE_CHECKING:
    from spurless.nets import Net
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher


class Mined(NamedTuple):
    """What a miner found."""

    rows: Tensor  # (n,) bool: which training rows it takes for bias-conflicting
    scores: Tensor  # (n,) float: the higher, the more conflicting
    net: Net | None  # the network that follows the bias (of two peers, the first)
    quality: dict[str, Any] | None = None  # precision and recall in percent, from `mine`, where the truth is known


Miner = Generator[Stage, None, Mined]


class Length(NamedTuple):
    """How long a network is trained: steps where they are given, else epochs."""

    epochs: float | None = None
    iterations: int | None = None


class Training(NamedTuple):
    """How the network that mines is trained, where not as the recipe says."""

    optimizer: str | None = None
    lr: float = 0.0
    decay: float | None = None
    falls: int = 0

    def changes(self, recipe: Recipe) -> dict[str, Any]:
        """Fields of the recipe that are other for this network.

        >>> Training("sgd", 0.1, 1e-4).changes(Recipe("adam", 0.01))
        {'optimizer': 'sgd', 'lr': 0.1, 'weight_decay': 0.0001}
        """
        if self.optimizer not in (None, recipe.optimizer) and not self.lr:
            raise UserError(
                f"Mining by {self.optimizer} needs a learning rate of its own (miner.lr, or method.mining_lr): the "
                f"recipe's {recipe.lr:g} is {recipe.optimizer}'s."
            )
        given = {"optimizer": self.optimizer, "lr": self.lr or None, "weight_decay": self.decay}
        return {name: value for name, value in given.items() if value is not None}


FALL = 0.1  # factor of each fall of the miner's learning rate
EARLY = 0.2  # of the recipe's length, for a network that is stopped early: JTT's 60 of 300 epochs on Waterbirds
GCE_STEPS, ONE_EPOCH = Length(iterations=2000), Length(epochs=1)

Q = Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)]
GceForm = Annotated[Form, "GCE as in the paper or as in the released code"]
Epochs = Annotated[float | None, "length in epochs; neither given: the miner's published length", Range(0)]
Iterations = Annotated[int | None, "length in steps, where given, instead of epochs", Range(1)]
ErrorsBy = Annotated[
    Literal["evaluation", "training"], "errors in a pass after training, or at each row's last training step"
]
MinerOptimizer = Annotated[
    Literal["sgd", "adam", "adamw"] | None, "optimiser of the network that mines; none: the recipe's"
]
MinerLr = Annotated[float, "learning rate of the network that mines; 0: the recipe's", Range(0)]
MinerDecay = Annotated[float | None, "weight decay of the network that mines; none: the recipe's", Range(0)]
Falls = Annotated[int, "its learning rate falls tenfold whenever so many steps are done; 0: never", Range(0)]
Share = Annotated[float, "take this share of the rows, those of the highest scores", Range(0, 1)]
Threshold = Annotated[float | None, "take the rows whose score is at least this, instead of a share"]
Eta = Annotated[float, "learn only from rows whose probability of their label is above this", Range(0, 1)]
Tau = Annotated[float, "score from which a row is taken for conflicting", Range(0, 1)]
Unlearn = Annotated[float, "how strongly a network forgets what only it is sure of", Range(0)]
EnsembleEpochs = Annotated[int, "epochs over which the scores are averaged", Range(1)]


# Errors


def mine_gce(
    run: Run,
    q: Q = 0.7,
    form: GceForm = "paper",
    epochs: Epochs = None,
    iterations: Iterations = None,
    errors_by: ErrorsBy = "evaluation",
    optimizer: MinerOptimizer = None,
    lr: MinerLr = 0.0,
    decay: MinerDecay = None,
    falls: Falls = 0,
) -> Miner:
    """The errors of a network trained with GCE (DCWP: 2,000 steps on Colored MNIST, the default; 10,000 on BFFHQ).

    On Colored MNIST the released script mines by SGD, whatever trains the main network: lr 0.1, decay 1e-4, falls 600.
    """
    length, how = _length(epochs, iterations, GCE_STEPS), Training(optimizer, lr, decay, falls)
    kind = {"loss": "gce", "q": q, "form": form}
    return (yield from _errors(run, lambda logits, y: gce(logits, y, q, form), kind, length, errors_by, how))


def mine_erm(
    run: Run,
    epochs: Epochs = None,
    iterations: Iterations = None,
    errors_by: ErrorsBy = "evaluation",
    optimizer: MinerOptimizer = None,
    lr: MinerLr = 0.0,
    decay: MinerDecay = None,
    falls: Falls = 0,
) -> Miner:
    """The errors of a network trained with cross entropy and stopped early (JTT, DCWP_ERM).

    How early depends on the data: JTT takes 1 epoch on CelebA (the default) and 60 on Waterbirds, DCWP does not say.
    JTT's released code logs the errors while the last epoch trains, DCWP's takes them in a pass afterwards.
    """
    length, how = _length(epochs, iterations, ONE_EPOCH), Training(optimizer, lr, decay, falls)
    return (yield from _errors(run, run.ce, dict(PLAIN), length, errors_by, how))


def _errors(
    run: Run,
    objective: Callable[[Tensor, Tensor], Tensor],
    kind: dict[str, Any],
    length: Length,
    errors_by: str,
    how: Training,
) -> Miner:
    net, y = run.net(), run.data.train.y.to(run.device)
    log = run.keep(ErrorLog(len(y)))

    def loss(b: Batch) -> Tensor:
        logits = net(b.x)
        if errors_by == "training":
            log.update(b.idx, logits, b.y)
        return objective(logits, b.y)

    optimizer = run.optimizer(net, **how.changes(run.recipe))
    rates = [group["initial_lr"] for group in optimizer.param_groups]
    for number, (stretch, span) in enumerate(stretches(length, how.falls)):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["initial_lr"] = rate * FALL**number  # what the engine's schedule starts from
        yield Stage(
            "mine",
            loss,
            optimizer,
            model=net,
            epochs=stretch.epochs,
            iterations=stretch.iterations,
            span=span,
            shared=kind | {"errors_by": errors_by},
        )
    logits = run.outputs(net)
    rows = log.wrong.clone() if errors_by == "training" else wrong_rows(logits, y)
    return _found(run, rows, 1 - confidence(logits, y), net)


def stretches(length: Length, falls: int) -> list[tuple[Length, tuple[float, float]]]:
    """The stretches between two falls of the learning rate, each with its part of the whole. Each is a stage of its
    own, because one schedule, the recipe's, serves all stages of a run.

    >>> [(part.iterations, span) for part, span in stretches(Length(iterations=2000), 600)]
    [(600, (0.0, 0.3)), (600, (0.3, 0.6)), (600, (0.6, 0.9)), (200, (0.9, 1.0))]
    """
    if not falls:
        return [(length, (0.0, 1.0))]
    total = length.iterations
    if total is None:
        raise UserError("Falls of the miner's learning rate are counted in steps: give its length in steps, too.")
    ends = [*range(falls, total, falls), total]
    starts = [0, *ends[:-1]]
    return [(Length(None, b - a), (a / total, b / total)) for a, b in zip(starts, ends, strict=True)]


def wrong_rows(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) Which rows are classified wrongly.

    >>> wrong_rows(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1])).tolist()
    [False, True]
    """
    return logits.argmax(1) != y


class ErrorLog(nn.Module):
    """Whether each training row was classified wrongly when it was last trained on; one never seen was not."""

    def __init__(self, n: int):
        super().__init__()
        self.register_buffer("wrong", torch.zeros(n, dtype=torch.bool))

    wrong: Tensor

    @torch.no_grad()
    def update(self, idx: Tensor, logits: Tensor, y: Tensor) -> None:
        """Note how a batch went. Of a row that it holds several times, the last one counts."""
        same = idx[:, None] == idx  # (batch, batch)
        place = torch.arange(len(idx), device=idx.device)
        last = (same * place).amax(1)  # so that every copy writes the same: the order of writing is not defined
        self.wrong[idx] = wrong_rows(logits, y)[last]


# Scores of a biased network


def mine_gradient(
    run: Run,
    q: Q = 0.7,
    form: GceForm = "paper",
    epochs: Epochs = None,
    iterations: Iterations = None,
    norm: Annotated[Norm, "which norm of a sample's gradient"] = "l2",
    share: Share = 0.05,
    threshold: Threshold = None,
) -> Miner:
    """The rows with the largest gradient on the head of a network trained with GCE (PGD's score, as a set).

    PGD draws by the score and needs no set; the share is our choice.
    """
    net = yield from _biased(run, q, form, epochs, iterations)
    features, y = run.outputs(net, features=True), run.data.train.y.to(run.device)
    scores = head_grad_norms(net.head(features), features, y, norm).detach()
    return _found(run, high(scores, share, threshold), scores, net)


def mine_loss(
    run: Run,
    q: Q = 0.7,
    form: GceForm = "paper",
    epochs: Epochs = None,
    iterations: Iterations = None,
    share: Share = 0.05,
    threshold: Threshold = None,
) -> Miner:
    """The rows with the largest cross entropy under a network trained with GCE."""
    net = yield from _biased(run, q, form, epochs, iterations)
    scores = ce_rows(run.outputs(net), run.data.train.y.to(run.device))
    return _found(run, high(scores, share, threshold), scores, net)


def _biased(
    run: Run, q: float, form: Form, epochs: float | None, iterations: int | None
) -> Generator[Stage, None, Net]:
    net, length = run.net(), _length(epochs, iterations, GCE_STEPS)
    yield Stage(
        "mine",
        lambda b: gce(net(b.x), b.y, q, form),
        run.optimizer(net),
        model=net,
        epochs=length.epochs,
        iterations=length.iterations,
        shared={"loss": "gce", "q": q, "form": form},
    )
    return net


def high(scores: Tensor, share: float, threshold: float | None = None) -> Tensor:
    """(n,) Which rows have a score of at least the threshold, or else are among the highest `share` of all.

    >>> high(torch.tensor([0.1, 0.9, 0.5, 0.2]), share=0.5).tolist()
    [False, True, True, False]
    """
    if threshold is not None:
        return scores >= threshold
    top = scores.argsort(descending=True, stable=True)[: round(share * len(scores))]
    return torch.zeros(len(scores), dtype=torch.bool, device=scores.device).index_fill_(0, top, True)


# Epoch ensembles


def mine_ecs(
    run: Run,
    eta: Eta = 0.5,
    tau: Tau = 0.8,
    epochs: EnsembleEpochs = 50,
    unlearn: Unlearn = 1e-4,
) -> Miner:
    """Epoch-ensemble confident scoring (Zhao et al. 2021).  s_i = 1 − mean over epochs of (p¹_i + p²_i)/2,  s_i ≥ τ

    Two peer networks learn only from rows that both are sure of (probability of the label, relative to its class's
    highest in the batch, above η). From the second epoch on each unlearns, very slowly, what only it is sure of.
    The released scripts have η = 0.5 on Colored MNIST, 0.1 on Corrupted CIFAR10, 0.9 on Waterbirds and CelebA.
    """
    first, second = run.net(), run.net()
    redraw(second.head, run.generator("ecs"))  # copies of a user's own module would agree on everything, for ever
    classes = len(run.data.classes)

    def loss(b: Batch) -> Tensor:
        one, two = run.ce_rows(first(b.x), b.y), run.ce_rows(second(b.x), b.y)  # (n,), (n,)
        after_first_epoch = b.t >= 1 / epochs
        w_one, w_two = peer_weights(one, two, b.y, classes, eta, unlearn * after_first_epoch)
        return (w_one * one).mean() + (w_two * two).mean()

    scores = yield from _epoch_ensemble(run, (first, second), loss, epochs)
    return _found(run, scores >= tau, scores, first)


@torch.no_grad()
def peer_weights(
    one: Tensor, two: Tensor, y: Tensor, classes: int, eta: float, unlearn: float | Tensor
) -> tuple[Tensor, Tensor]:
    """(n,), (n,) What each row's cross entropy counts for each of two peers: 1 where both are sure, −unlearn where
    only it is, else 0.

    >>> losses = torch.tensor([0.0, 9.0]), torch.tensor([0.0, 0.1])  # of the second row, the second alone is sure
    >>> [w.tolist() for w in peer_weights(*losses, torch.tensor([0, 0]), 1, 0.5, 0.25)]
    [[1.0, 0.0], [1.0, -0.25]]
    """
    sure_one, sure_two = (relative_confidence(loss, y, classes) > eta for loss in (one, two))
    both = (sure_one & sure_two).float()
    return both - unlearn * (sure_one & ~sure_two), both - unlearn * (sure_two & ~sure_one)


def relative_confidence(loss: Tensor, y: Tensor, classes: int) -> Tensor:
    """(n,) The probability exp(−loss) of each row's label, divided by the highest of its class in the batch."""
    lowest = loss.new_full((classes,), math.inf).scatter_reduce(0, y, loss, "amin")
    return (lowest[y] - loss).exp()  # p_i / max p, without an underflow


def mine_ecs_simple(run: Run, eta: Eta = 0.05, tau: Tau = 0.8, epochs: EnsembleEpochs = 50) -> Miner:
    """DCWP's simplified form (Park et al. 2023, released code).  s_i = 1 − mean over epochs of p_i,  s_i > τ

    One network, no comparison within classes; its loss is the mean over the rows of the batch with p_i > η.
    """
    net = run.net()

    def loss(b: Batch) -> Tensor:
        rows = run.ce_rows(net(b.x), b.y)  # (n,)
        sure = ((-rows.detach()).exp() > eta).float()
        return (sure * rows).sum() / sure.sum().clamp_min(1)

    scores = yield from _epoch_ensemble(run, (net,), loss, epochs)
    return _found(run, scores > tau, scores, net)


def _epoch_ensemble(
    run: Run, nets: tuple[Net, ...], loss: Callable[[Batch], Tensor], epochs: int
) -> Generator[Stage, None, Tensor]:
    """(n,) 1 − the probability of each row's label, averaged over the networks after each epoch of training."""
    optimizer, y = run.optimizer(*nets), run.data.train.y.to(run.device)
    total = torch.zeros(len(y), device=run.device)
    for epoch in range(epochs):
        span = (epoch / epochs, (epoch + 1) / epochs)
        yield Stage("mine", loss, optimizer, model=nets[0], epochs=1, span=span)
        for net in nets:
            total += confidence(run.outputs(net), y) / len(nets)
    return 1 - total / epochs


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) The probability of each row's label.

    >>> confidence(torch.zeros(1, 4), torch.tensor([2])).tolist()
    [0.25]
    """
    return (-ce_rows(logits, y)).exp()


MINERS: dict[str, Callable[..., Miner]] = {
    "gce": mine_gce,
    "erm": mine_erm,
    "ecs": mine_ecs,
    "ecs_simple": mine_ecs_simple,
    "gradient": mine_gradient,
    "loss": mine_loss,
}


# A miner on its own


def mine(
    data: Bundle | str | Mapping[str, Any],
    how: str = "ecs",
    net: NetSpec | None = None,
    recipe: Recipe | str | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    progress: bool | Watcher | None = None,
    **settings: Any,
) -> Mined:
    """Mine without training a debiased network after it. `how` is a name in MINERS, `settings` are its parameters.

    >>> found = mine("toy", "gce", progress=False, device="cpu", iterations=50)
    >>> found.rows.shape, sorted(found.quality)
    (torch.Size([2000]), ['n_conflicting', 'n_mined', 'precision', 'recall'])
    """
    from spurless.train.fit import fit

    if how not in MINERS:
        raise unknown("miner", how, MINERS)
    miner, chosen = MINERS[how], resolve(MINERS[how], settings, "miner")
    found: list[Mined] = []

    class Mine(Method):
        """Drives the miner through the one training loop."""

        def stages(self, run: Run) -> Generator[Stage, None, Net]:
            mined = yield from miner(run, **chosen)
            found.append(mined)
            assert mined.net is not None
            return mined.net

    result = fit(Mine(), data, net=net, recipe=recipe, seed=seed, device=device, root=root, progress=progress)
    if not found:
        raise UserError(f"Mining did not finish. {result.error}")
    rows, scores, biased, _ = found[0]
    return Mined(rows.cpu(), scores.cpu(), biased, result.mining.get("mined"))


# Pieces


def early(run: Run, epochs: float) -> Length:
    """The length of a network that is stopped while it still gets wrong what contradicts the bias; 0 epochs: a share of
    the recipe's length."""
    if epochs:
        return Length(epochs)
    if run.recipe.iterations:
        return Length(iterations=max(1, round(EARLY * run.recipe.iterations)))
    return Length(max(1, round(EARLY * run.recipe.epochs)))  # whole ones, so that every row is seen


def _length(epochs: float | None, iterations: int | None, otherwise: Length) -> Length:
    return otherwise if epochs is None and iterations is None else Length(epochs, iterations)


def _found(run: Run, rows: Tensor, scores: Tensor, net: Net) -> Mined:
    run.report_conflicting(rows)
    return Mined(rows, scores.float(), net)


@torch.no_grad()
def redraw(layer: nn.Linear, generator: torch.Generator) -> nn.Linear:
    """Start a linear layer anew, as torch does, from these random numbers."""
    bound = layer.in_features**-0.5
    for part in (layer.weight, layer.bias):
        if part is not None:
            part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=generator))
    return layer

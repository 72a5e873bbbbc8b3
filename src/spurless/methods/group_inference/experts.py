"""Experts: small networks that learn what is easy, each from one half of the samples (crossfit)."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from spurless.core.data import Split
from spurless.core.method import Run, Stage
from spurless.methods.parts.losses import gce
from spurless.nets import Net

HALVINGS = 3  # of the samples, each with two small experts
# How small experts are trained, whatever the recipe is; longer where its batches are larger than BATCH.
EASY: dict[str, Any] = {"optimizer": "adam", "lr": 3e-3, "weight_decay": 0.0, "l1": 0.0, "sharpness": "none"}
EASY |= {"schedule": "cosine", "warmup": 0, "iterations": 0, "augment": "none", "clip_norm": 0.0}
EPOCHS, BATCH = 8, 128
LEARNT, AT_MOST = 1000, 0.6  # steps of experts of the run's own kind, and the share of the length at most


class Experts(NamedTuple):
    """Two networks for each halving: the first has trained on the samples that are not in the half, the other on it."""

    nets: tuple[Net, ...]
    halves: tuple[Tensor, ...]  # (n,) bool, for each halving
    small: bool  # whether they are small networks, else short trainings of the run's own kind

    def on_training(self, run: Run) -> Tensor:
        """(n, C) What is easy about each training sample: the mean of the experts that have not seen it."""
        outputs = []
        for k, half in enumerate(self.halves):
            first, second = (run.outputs(net).double().softmax(1) for net in self.nets[2 * k : 2 * k + 2])
            outputs.append(torch.where(half.to(run.device)[:, None], first, second))
        return torch.stack(outputs).mean(0)

    def on(self, answers: Callable[[Net], Tensor]) -> Tensor:
        """(m, C) What is easy about samples that no expert has seen: the mean of all answers."""
        return torch.stack([answers(net) for net in self.nets]).mean(0)

    def says(self, run: Run, x: Tensor) -> Tensor:
        """(n,) The class that they say of images, all together."""
        split = Split(x, torch.zeros(len(x), dtype=torch.long))
        return self.on(lambda net: run.outputs(net, split).softmax(1).cpu()).argmax(1)


def train_experts(run: Run, rows: Tensor, q: float, share: float) -> Generator[Stage, None, Experts]:
    """Experts of these samples, trained with GCE; of tables and features one pair, each of a share of the length."""
    n, nets, halves = len(run.data.train), list[Net](), list[Tensor]()
    for k in range(HALVINGS):
        half = torch.zeros(n, dtype=torch.bool)
        half[rows[torch.randperm(len(rows), generator=run.generator(f"halves {k}"))[: len(rows) // 2]]] = True
        for own in (rows[~half[rows]], rows[half[rows]]):
            net = run.easy_net()
            nets.append(net or run.net())
            yield learn(run, f"expert {len(nets)}", nets[-1], own, q, 0.0 if net else share)
        halves.append(half)
        if net is None:
            break
    return Experts(tuple(nets), tuple(halves), net is not None)


def learn(run: Run, name: str, net: Net, rows: Tensor, q: float, share: float = 0.0) -> Stage:
    """How a small network learns what is easy; with a `share` of the length, one of the run's own kind."""

    def stage(optimizer: Optimizer, **how: Any) -> Stage:
        shared = {"loss": "gce", "q": q}
        return Stage(name, lambda b: gce(net(b.x), b.y, q), optimizer, net, rows=rows, shared=shared, **how)

    recipe, n = run.recipe, len(run.data.train)
    if not share:
        easily = replace(recipe, **EASY, epochs=EPOCHS * max(1, recipe.batch_size / BATCH))
        return stage(run.optimizer(net, **EASY), until=False, recipe=easily)
    # Of little data, what is easy is not learnt in a fifth of the length: LEARNT steps, but not over AT_MOST.
    steps = recipe.iterations / 2 or recipe.epochs * n / 2 / recipe.batch_size
    share = max(share, min(AT_MOST, LEARNT / max(steps, 1)))
    iterations = round(share * recipe.iterations * len(rows) / n) or None
    return stage(run.optimizer(net), epochs=share * recipe.epochs, iterations=iterations)

"""Small datasets and methods that tests share."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from spurless.core.data import Bundle, Split
from spurless.core.method import Method, Stage
from spurless.core.recipe import Recipe
from spurless.methods.parts.losses import ce
from spurless.registry import load_data

FAST = Recipe("adam", 1e-2, batch_size=32, epochs=3)


def tiny(n=200, **settings):
    """The toy at a size where a run takes a fraction of a second."""
    return replace(load_data({"name": "toy", "n": n} | settings), recipe=FAST)


def pictures(n=64, shape=(3, 28, 28), classes=4, seed=0):
    """Random images whose brightness in one corner gives the class away, with a bias attribute."""
    g = torch.Generator().manual_seed(seed)

    def split(rows):
        y = torch.arange(rows) % classes
        a = torch.where(torch.rand(rows, generator=g) < 0.9, y, (y + 1) % classes)
        x = torch.randint(0, 40, (rows, *shape), generator=g, dtype=torch.uint8)
        x[:, :, :8, :8] += (50 * y).to(torch.uint8)[:, None, None, None]
        x[:, :, 14:, 14:] += (50 * a).to(torch.uint8)[:, None, None, None]
        return Split(x, y, a[:, None])

    return Bundle("pictures", split(n), split(32), split(32), recipe=replace(FAST, epochs=2, batch_size=16))


class OwnModule(nn.Module):
    """A network as a user would write it: nothing of Spurless in it."""

    def __init__(self, inputs=7, classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.ReLU())
        self.classify = nn.Linear(8, classes)

    def forward(self, x):
        return self.classify(self.body(x))


@dataclass(frozen=True)
class Peek(Method):
    """A method that looks wherever it can for bias labels, and remembers what it saw."""

    def stages(self, run):
        net = run.net()
        seen = []

        def loss(b):
            seen.append(b.a)
            return ce(net(b.x), b.y)

        yield Stage("peek", loss, run.optimizer(net), model=net, select=True)
        Peek.seen, Peek.run = seen, run
        return net


@dataclass(frozen=True)
class PeekWithLabels(Peek):
    bias_labels = "training"

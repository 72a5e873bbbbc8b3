"""Runs and slow versions for tests of attacks."""

import copy
import math

import torch
from torch import nn

from spurless.core.recipe import Recipe
from spurless.train.engine_run import EngineRun
from spurless.train.networks import network_maker


def engine_run(data, net, recipe=None):
    make = network_maker(net, data.shape, len(data.classes), seed=0)
    return EngineRun(data, recipe or Recipe(channels_last=False), 0, torch.device("cpu"), make)


def last_stage(method, data, net, recipe=None):
    """The stage that attacks, the biased network, and the run; earlier stages are passed over untrained."""
    run = engine_run(data, net, recipe)
    stage = next(generator := method.stages(run))
    if method.base == "jtt":
        stage = next(generator)
    return stage, run.modules[0], run


def slow_attack(x, y, biased, debiased, lam, eps, steps, norm, size=None, low=None, high=None):
    """One row at a time, one number at a time; debiased None: a plain attack on the biased network."""
    biased = copy.deepcopy(biased).eval()
    debiased = copy.deepcopy(debiased).eval() if debiased is not None else None
    size = 2.5 * eps / steps if size is None else size
    found = []
    for row, label in zip(x, y, strict=True):
        now = row.clone()
        for _ in range(steps):
            now = now.clone().requires_grad_()
            gain = nn.functional.cross_entropy(biased(now[None]), label[None])
            if debiased is not None:
                gain = gain - lam * nn.functional.cross_entropy(debiased(now[None]), label[None])
            gain.backward()
            g = now.grad.flatten().tolist()
            length = math.sqrt(sum(v * v for v in g))
            way = [v / length for v in g] if norm == "l2" else [(v > 0) - (v < 0) for v in g]
            start = row.flatten().tolist()
            change = [a + size * w - s for a, w, s in zip(now.detach().flatten().tolist(), way, start, strict=True)]
            if norm == "l2":
                far = math.sqrt(sum(c * c for c in change))
                change = [c * eps / far if far > eps else c for c in change]
            else:
                change = [min(max(c, -eps), eps) for c in change]
            now = torch.tensor([s + c for s, c in zip(start, change, strict=True)]).view_as(row)
            if low is not None:
                now = torch.minimum(torch.maximum(now, low[0].expand_as(now)), high[0].expand_as(now))
        found.append(now.detach())
    return torch.stack(found)

"""Runs that a test drives by hand, stage by stage."""

import torch

from spurless.core.data import Batch
from spurless.methods.group_inference import CHOICE
from spurless.train.engine_run import EngineRun
from spurless.train.infer import infer_groups
from spurless.train.networks import example_of, network_maker

QUIET = {"device": "cpu", "progress": False}


def open_run(data, net="linear", seed=0):
    make = network_maker(net, data.shape, len(data.classes), seed, example_of(data))
    return EngineRun(data.blinded("none"), data.recipe, seed, torch.device("cpu"), make)


def inference(how, **settings):
    return CHOICE.make({"name": how} | settings, "groups")


def inferred(data, how, net=None, recipe=None, seed=0, **settings):
    return infer_groups(data, {"name": how} | settings, net, recipe, seed, **QUIET)


def finish(inferring, between=lambda stage: None):
    """Walk through an inference's stages without training, doing `between` instead; what it returns."""
    try:
        stage = next(inferring)
        while True:
            between(stage)
            stage = next(inferring)
    except StopIteration as end:
        return end.value


def rows_of(data, idx, t=0.0):
    idx = torch.as_tensor(idx)
    return Batch(data.train.x[idx], data.train.y[idx], None, idx, torch.tensor(t))

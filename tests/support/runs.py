"""What tests of runs share."""

import json
import os
import signal

import torch

from spurless.core.method import Stage
from spurless.train.fit import fit

CPU = {"device": "cpu", "progress": False}


def same_weights(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def epoch_line(stage="biased", epoch=1, loss=0.25):
    """A line of history.jsonl."""
    row = {"stage": stage, "stage_index": 0, "epoch": epoch, "step": 10 * epoch, "loss": loss, "seconds": 1.0}
    return json.dumps(row) + "\n"


class StopAt:
    """Presses Ctrl-C at a step."""

    def __init__(self, step):
        self.left = step

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, where):
        if where.row is None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)


def timeless(history):
    return [row | {"seconds": 0} for row in history]


def stages_of(monkeypatch, method, data, net="mlp", recipe=None):
    seen = []
    init = Stage.__init__

    def note(self, *args, **kwargs):
        init(self, *args, **kwargs)
        seen.append(self)

    monkeypatch.setattr(Stage, "__init__", note)
    result = fit(method, data, net=net, recipe=recipe, **CPU)
    return seen, result

"""A package of someone else, installed in the test: its method, dataset and network work wherever a name does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = '''
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from spurless import Bundle, Method, Net, Split, Stage
from spurless.core.settings import Range


@dataclass(frozen=True)
class Halved(Method):
    """Plain training with a loss that is scaled."""

    scale: Annotated[float, "factor of the loss", Range(0, 1)] = 0.5

    def stages(self, run):
        net = run.net()
        yield Stage("only", lambda b: self.scale * run.ce(net(b.x), b.y), run.optimizer(net), model=net, select=True)
        return net


def corners(root=None, n: Annotated[int, "samples", Range(20)] = 200) -> Bundle:
    def draw(seed):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(n, 4, generator=g)
        a = (x[:, 1] > 0).long()
        return Split(x, (x[:, 0] > 0).long(), a[:, None])

    table = torch.eye(2, dtype=torch.bool)
    return Bundle("corners", draw(0), draw(1), draw(2), attributes=("side",), values=(("l", "r"),), aligned=(table,))


def wide(shape, classes, width: Annotated[int, "hidden units", Range(1)] = 8) -> Net:
    return Net(nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.ReLU()), nn.Linear(width, classes))


class Plain(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], 6), nn.ReLU(), nn.Linear(6, classes))

    def forward(self, x):
        return self.layers(x)


def not_annotated(shape, classes):
    raise SystemError("called")
'''
ENTRY_POINTS = """
[spurless.methods]
halved = theirs.parts:Halved
erm = theirs.parts:Halved

[spurless.data.sets]
corners = theirs.parts:corners

[spurless.nets]
wide = theirs.parts:wide
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of installed packages with one of someone else's, as pip leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "theirs").mkdir()
    (folder / "theirs" / "__init__.py").write_text("")
    (folder / "theirs" / "parts.py").write_text(CODE)
    info = folder / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info / "top_level.txt").write_text("theirs\n")
    (info / "RECORD").write_text("theirs/__init__.py,,\ntheirs/parts.py,,\n")
    return folder


@pytest.fixture
def spurless(site, tmp_path):
    def run(*args, code=0, path=site):
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path or ""), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "spurless", *map(str, args)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    return run


QUICK = ("--set", "recipe.epochs=2", "--device", "cpu")


def test_entry_points_are_listed_and_never_hide_ours(spurless):
    methods = {row["name"]: row["what"] for row in json.loads(spurless("list", "methods", "--json"))["methods"]}
    assert methods["halved"] == "theirs.parts:Halved" and methods["erm"].startswith("plain")
    assert "corners" in spurless("list", "datasets") and "wide" in spurless("list", "nets")


@pytest.mark.parametrize(
    ("method", "data", "net"),
    [("halved", "corners", "wide"), ("theirs.parts:Halved", "theirs.parts:corners", "theirs.parts:Plain")],
)
def test_training_resuming_and_everything_that_reads_a_run(spurless, tmp_path, method, data, net):
    run = ("train", method, data, "--net", net, "--set", "method.scale=0.7", "--set", "data.n=100", *QUICK)
    row = json.loads(spurless(*run, "--out", "run", "--json"))
    assert row["status"] == "done" and row["settings"]["method"]["scale"] == 0.7
    assert json.loads(spurless(*run, "--out", "run", "--json"))["scores"] == row["scores"]
    again = json.loads(spurless("evaluate", "run", data, "--json"))
    assert again["scores"]["average"] == row["scores"]["average"]
    pruned = json.loads(spurless("prune", "run", "--finetune", "0.5", "--keep", "0.5", "--device", "cpu", "--json"))
    assert [row["keep"] for row in pruned["rows"]] == [1.0, 0.5]
    assert "no setting" in spurless(*run[:5], "--set", "method.sclae=1", *QUICK, code=2)


def test_bench_compare_and_sweep(spurless, tmp_path):
    (tmp_path / "spec.toml").write_text(
        'seeds = [0, 1]\n[[block]]\ndata = "corners"\nnet = "wide"\nrecipe = {epochs = 2}\n'
        'methods = ["erm", "halved", "theirs.parts:Halved"]\n'
        '[[block]]\ndata = "theirs.parts:corners"\nnet = "theirs.parts:Plain"\nrecipe = {epochs = 2}\n'
        'methods = ["erm", "theirs.parts:Halved"]\n'
    )
    done = json.loads(spurless("bench", "spec.toml", "--out", "bench", "--workers", "1", "--device", "cpu", "--json"))
    assert done["done"] == done["cells"] == 10
    pairs = json.loads(spurless("compare", "bench", "--json"))["comparisons"]
    assert {(p["where"], p["b"]) for p in pairs if p["a"] == "erm"} >= {
        ("block 1", "halved"),
        ("block 2", "theirs.parts:Halved"),
    }
    swept = spurless(
        "sweep", "theirs.parts:corners", "--net", "wide", "--method", "halved", "--over", "scale",
        "--values", "0.1,0.9",        "--seeds", "1", "--workers", "1", *QUICK, "--json",
    )  # fmt: skip
    assert len(json.loads(swept)) == 2


@pytest.mark.parametrize(("data", "net"), [("corners", "wide"), ("theirs.parts:corners", "theirs.parts:Plain")])
def test_an_audit_with_repairs(spurless, data, net):
    done = spurless("audit", data, "--net", net, "--fix", "--set", "recipe.epochs=1", "--device", "cpu", "--json")
    assert json.loads(done)["fix"]


def test_an_audit_of_a_model_that_their_method_trained(spurless):
    spurless("train", "halved", "corners", "--net", "theirs.parts:Plain", *QUICK, "--out", "run")
    done = json.loads(spurless("audit", "corners", "--model", "run", "--device", "cpu", "--json"))
    assert done["verdict"]


def test_changed_code_is_another_trial(spurless, site, tmp_path):
    other = tmp_path / "other"
    (other / "theirs").mkdir(parents=True)
    (other / "theirs" / "__init__.py").write_text("")
    (other / "theirs" / "parts.py").write_text(CODE.replace("self.scale * run.ce", "2 * self.scale * run.ce"))
    spec = '[[block]]\ndata = "toy"\nrecipe = {epochs = 1}\nmethods = ["theirs.parts:Halved"]\n'
    (tmp_path / "spec.toml").write_text(spec)
    for path in (site, other, site):
        spurless(
            "bench", "spec.toml", "--out", "b", "--workers", "1", "--device", "cpu", "--allow-code", "--json", path=path
        )
    assert len(list((tmp_path / "b" / "cells").iterdir())) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("train", "theirs.nowhere:X", "toy"), "no module 'theirs.nowhere'"),
        (("train", "theirs.parts:Nothing", "toy"), "has no 'Nothing'"),
        (("train", "theirs.parts:wide", "toy"), "subclass of spurless.Method"),
        (("train", "erm", "theirs.parts:wide"), "spurless.Bundle"),
        (("train", "erm", "toy", "--net", "theirs.parts:not_annotated"), "annotated"),
        (("train", "erm", "toy", "--net", "os:system"), "annotated"),
        (("train", "halvd", "toy"), "did you mean 'halved'"),
    ],
)
def test_what_does_not_fit_is_said_and_not_called(spurless, args, said):
    assert said in " ".join(spurless(*args, code=2).split())


def test_a_weights_file_imports_no_module_that_is_not_installed(spurless, site, tmp_path):
    spurless("train", "erm", "toy", "--net", "wide", *QUICK, "--out", "run")
    from spurless.core.tensor_files import load_tensors, save_tensors

    tensors, facts = load_tensors(tmp_path / "run" / "model.safetensors")
    (tmp_path / "beside.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    for name in ("net", "method"):
        broken = facts | {name: facts[name] | {"name": "beside:net", "class": "beside:Method"}}
        save_tensors(tmp_path / f"{name}.safetensors", tensors, broken)
        done = spurless("evaluate", f"{name}.safetensors", "toy", code=2 if name == "net" else 0)
        assert name == "method" or "not installed" in " ".join(done.split())
    assert not Path(tmp_path / "ran").exists()

"""What needs an extra that is not installed says so, by the extra's name, before its work starts."""

import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

from spurless.bench.executors import ray, slurm
from spurless.bench.rows import write_parquet
from spurless.compress.channels import torch_pruning
from spurless.compress.export import export
from spurless.core import extras
from spurless.core.errors import UserError
from spurless.metrics.attribution import attribute
from spurless.metrics.representation import project
from spurless.nets import build
from spurless.train.fit import fit
from tests.support.commands import mistake

DATA = "folder:there/is/none"  # reading it would be another mistake
FLAGS = {
    "timm": ["train", "erm", DATA, "--net", "timm:resnet18"],
    "lite0": ["train", "erm", DATA, "--net", "efficientnet_lite0"],
    "text": ["train", "erm", DATA, "--net", "hf:bert"],
    "optim": ["train", "erm", DATA, "--set", "recipe.optimizer=psgd"],
    "tracking": ["train", "erm", DATA, "--track", "tensorboard"],
    "wandb": ["train", "erm", DATA, "--track", "wandb"],
    "mlflow": ["train", "erm", DATA, "--track", "mlflow:mine"],
    "export": ["export", "no/run", "--format", "onnx"],
    "parquet": ["bench", "no.toml", "--format", "parquet"],
}
CALLS = {
    "timm": lambda: build("timm:resnet18", (3, 32, 32), 2),
    "lite0": lambda: build("efficientnet_lite0", (3, 32, 32), 2),
    "text": lambda: build("hf:bert", (2, 8), 2),
    "optim": lambda: fit("erm", DATA, recipe={"optimizer": "psgd"}, device="cpu"),
    "wandb": lambda: fit("erm", DATA, track="wandb", device="cpu"),
    "export": lambda: export("no/run", formats=["onnx"]),
    "attribution": lambda: attribute(nn.Linear(2, 2), torch.rand(1, 2)),
    "umap": lambda: project(torch.rand(10, 3), how="umap"),
    "ray": ray._ray,
    "slurm": lambda: slurm._submitit(None),
    "parquet": lambda: write_parquet([], Path("rows.parquet")),
}


@pytest.fixture
def without(monkeypatch):
    def remove(extra):
        for module in extras.EXTRAS[extra]:
            for name in [module, *(n for n in sys.modules if n.startswith(f"{module}."))]:
                monkeypatch.setitem(sys.modules, name, None)

    return remove


@pytest.mark.parametrize("extra", CALLS)
def test_python_names_the_extra(extra, without):
    without(extra)
    with pytest.raises(UserError, match=rf"needs the extra '{extra}': pip install 'spurless\[{extra}\]'"):
        CALLS[extra]()


@pytest.mark.parametrize("extra", FLAGS)
def test_the_command_names_the_extra_before_anything_is_read(extra, without):
    without(extra)
    told = mistake(*FLAGS[extra])
    assert f"'spurless[{extra}]'" in told.replace("\n", "")


def test_umap_of_george_is_asked_for_before_the_training(without, tmp_path):
    without("umap")
    toy, method = {"name": "toy", "n": 100}, {"name": "george", "reduction": "umap"}
    with pytest.raises(UserError, match="use pca or none"):
        fit(method, toy, recipe={"epochs": 1}, device="cpu", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # which holds a stage as soon as one is trained


def test_channels_are_not_cut_without_torch_pruning(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(UserError, match=r"spurless\[export\]"):
        torch_pruning()


def test_the_extras_are_those_of_the_package():
    table = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras.EXTRAS) == set(table["project"]["optional-dependencies"]) - {"dev", "build", "docs"}

"""What users write by hand is checked where they hand it over: datasets, and functions that measure a run."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from spurless import Bundle, Split
from spurless.bench.claim import read_row
from spurless.bench.one import named, run_one
from spurless.core.errors import UserError
from spurless.core.files import finite
from spurless.train.fit import fit
from tests.support.trials import trial

X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(20) % 2
A = (torch.arange(20) // 2 % 2)[:, None]
SOME = torch.arange(20) < 3


class Rows:
    """Inputs that must not be looked at to check a dataset."""

    shape, dtype = (20, 5), torch.float32

    def __len__(self):
        return 20

    def __getitem__(self, idx):
        raise AssertionError("looked at")


def bundle(train=(X, Y, A), test=(X, Y, A), **names):
    return Bundle("mine", Split(*train), None, Split(*test), **names)


def test_narrow_whole_numbers_are_widened():
    data = bundle((X, Y.int(), A.to(torch.uint8)), (X, Y.bool(), A.short()))
    for split in data.splits.values():
        assert split.y.dtype == split.a.dtype == torch.int64
        assert torch.equal(split.y, Y) and torch.equal(split.a, A)
    assert fit("erm", data, recipe={"epochs": 1}, device="cpu", progress=False).status == "done"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": (X, Y.float(), A)}, r"y of the train split is float32 of shape \(20,\); it takes whole numbers"),
        ({"test": (X, Y[:, None], A)}, r"y of the test split is int64 of shape \(20, 1\)"),
        ({"train": (X, Y.numpy(), A)}, "y of the train split is of type ndarray; .*Bundle.from_arrays"),
        ({"test": (X, Y, A.tolist())}, "a of the test split is of type list"),
        ({"train": (X, Y, A[:, 0])}, r"a of the train split is int64 of shape \(20,\); .*\(n, k\)"),
        ({"train": (X, Y[:15], A)}, "The train split has 20 inputs x, but 15 values of y"),
        ({"test": (X, Y, A[:15])}, "The test split has 20 inputs x, but 15 values of a"),
        ({"test": (X, Y, A, ["one"])}, "The test split has 20 inputs x, but 1 values of names"),
        ({"train": (X[:0], Y[:0], A[:0])}, "The train split has no samples"),
        ({"train": (X, 2 * Y - 1, A)}, "y of the train split holds -1; numbers begin at 0"),
        (
            {"test": (X, torch.where(SOME, 2, Y), A)},
            "y of the test split holds 2, but there are 2 classes, .*`classes`",
        ),
        ({"train": (X, Y, torch.where(SOME[:, None], -1, A))}, "Attribute 'a0' of the train split holds -1"),
        ({"test": (X, Y, torch.where(SOME[:, None], -1, A))}, "Attribute 'a0' of the test split holds -1"),
        ({"test": (X, Y, A + 1), "values": (("red", "blue"),)}, "Attribute 'a0' of the test split holds 2, .*`values`"),
        ({"test": (X, Y, A.expand(-1, 2))}, r"a of the test split has 2 columns, but there are 1 attributes \(a0\)"),
        ({"attributes": ("colour", "form")}, "a of the train split has 1 columns, but there are 2 attributes"),
        ({"values": (("red", "blue"), ("round", "square"))}, "`values` names those of 2 attributes, but there are 1"),
    ],
)
def test_what_no_batch_could_be_made_of_is_refused_by_name(given, message):
    with pytest.raises(UserError, match=message):
        bundle(**given)


def test_what_is_named_may_be_missing_from_training():
    data = bundle(test=(X, torch.where(SOME, 2, Y), A + 1), classes=("a", "b", "c"))
    assert data.values == (("0", "1", "2"),)
    assert len(bundle(test=(X[:0], Y[:0], A[:0])).test) == 0
    blind = data.blinded("validation")
    assert blind.train.a is None and blind.attributes == ("a0",)


def test_attributes_of_the_test_rows_alone_are_scored():
    scores = fit("erm", bundle((X, Y)), recipe={"epochs": 1}, device="cpu", progress=False).scores
    assert scores["worst_group"] is not None and scores["conflicting"] is None  # nothing tells what is aligned


def test_inputs_are_not_looked_at():
    assert bundle((Rows(), Y, A), (Rows(), Y)).classes == ("0", "1")


# Functions that measure a run


def single_numbers(result, data, folder):
    return {"half": np.float32(0.5), "one": torch.tensor(1.0), "many": [np.int64(3)], "nan": np.float64("nan")}


def array(result, data, folder):
    return {"fine": 1, "rows": np.zeros(3)}


def test_single_numbers_of_numpy_and_torch_are_written(tmp_path):
    row = run_one(replace(trial(), after="tests.core.test_bundle_checks:single_numbers"), tmp_path, "cpu")
    assert row["status"] == "done", row["error"]
    assert row["extra"] == {"half": 0.5, "one": 1.0, "many": [3], "nan": None}
    assert finite({"yes": np.bool_(True), "at": torch.tensor(2)}) == {"yes": True, "at": 2}


def test_what_cannot_be_written_is_named(tmp_path):
    row = run_one(replace(trial(), after="tests.core.test_bundle_checks:array"), tmp_path, "cpu")
    assert row["status"] == "failed" and "in 'rows'" in row["error"] and ".tolist()" in row["error"]


def test_a_function_in_the_current_folder_is_found_by_the_command(tmp_path):
    """By the installed program, in whose search the current folder is not."""
    (tmp_path / "my_measure.py").write_text(
        "def size(result, data, folder):\n    return {'classes': len(data.classes)}\n"
    )
    spec = 'seeds = [0]\nafter = "my_measure:size"\n[[block]]\nlabel = "T"\ndata = {name = "toy", n = 100}\n'
    (tmp_path / "t.toml").write_text(spec + 'recipe = {epochs = 1}\nmethods = ["erm"]\n')
    program = "import sys; sys.path.remove(''); from spurless.__main__ import main; main()"
    command = [sys.executable, "-c", program, "bench", "t.toml", "--out", "out", "--device", "cpu"]
    how = {"cwd": tmp_path, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True}
    refused = subprocess.run(command, **how, timeout=200)
    assert refused.returncode == 2 and "--allow-code" in refused.stderr and not (tmp_path / "out").exists()
    done = subprocess.run([*command, "--allow-code"], **how, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "out" / "cells").iterdir()
    assert read_row(folder)["extra"] == {"classes": 2}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("only_a_module", "give 'module:function'"),
        (":f", "give 'module:function'"),
        (".here:f", "give 'module:function'"),
        ("no_such_module:f", "names no function: there is no module 'no_such_module', neither installed nor in "),
        ("tests.no_such:f", "there is no module 'tests.no_such'"),
        ("broken_import:f", r"importing broken_import fails \(ModuleNotFoundError: No module named 'not_there'\)"),
        ("broken_value:f", r"importing broken_value fails \(ValueError: odd\)"),
        ("tests.core.test_bundle_checks:X", "names no function: .*test_bundle_checks.py has no 'X'"),
    ],
)
def test_why_a_function_is_not_found(tmp_path, monkeypatch, where, message):
    (tmp_path / "broken_import.py").write_text("import not_there\n")
    (tmp_path / "broken_value.py").write_text("raise ValueError('odd')\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        named(where)

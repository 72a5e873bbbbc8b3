"""A model goes to a hub and comes back the same; nothing else leaves the machine, and nothing unasked."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import spurless
from spurless.core.errors import DataError, UserError
from spurless.core.tensor_files import load_tensors
from spurless.integrations import hub
from tests.support.commands import class_folders
from tests.support.hub import stand_in

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: spurless[hub]")

SHORT = {"recipe": {"epochs": 1}, "device": "cpu", "progress": False}
THERE_AND_BACK = """
import json, sys, numpy, spurless
made, repo = sys.argv[1:]
told = spurless.push_to_hub(made, repo, token="mine")
back = spurless.from_hub(repo, token="mine", device="cpu")
assert back.folder != made
x = numpy.load(made + "/x.npy")
print(json.dumps({"told": told, "classes": back.classes, "p": back.predict_proba(x).tolist(), "scores": back.scores}))
try:
    spurless.from_hub("ada/none", device="cpu")
except spurless.UserError as mistake:
    print(mistake)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("home-of-ada")
    data = {"name": class_folders(home / "photos", ["crow", "gull"]), "size": 16}
    return spurless.fit("erm", data, net="conv3", out=home / "run", **SHORT), home


def test_there_and_back(trained):
    result, home = trained
    x = np.random.default_rng(0).integers(0, 256, (4, *result.facts["shape"]), dtype=np.uint8)
    np.save(home / "run" / "x.npy", x)
    with stand_in() as server:
        env = os.environ | {"HF_ENDPOINT": server.address, "HF_HOME": str(home / "cache"), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", THERE_AND_BACK, str(home / "run"), "ada/birds"]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    told, mistake = ended.stdout.splitlines()
    told = json.loads(told)
    assert told["told"].startswith(f"{server.address}/ada/birds/commit/")
    assert told["classes"] == ["crow", "gull"] and told["scores"] == json.loads(json.dumps(result.scores))
    np.testing.assert_array_equal(told["p"], spurless.load_run(home / "run", device="cpu").predict_proba(x))
    assert mistake.startswith(f"ada/none cannot be read at {server.address}: 404")
    assert server.created[0].get("private") or server.created[0].get("visibility") == "private"
    files = server.repositories["ada/birds"]
    assert {"README.md", "model.safetensors", "result.json"} == set(files) - {".gitattributes"}
    assert files["README.md"].decode().startswith("---\nlibrary_name: pytorch") and server.cards
    assert not any(b"home-of-ada" in content for content in files.values())
    assert {token for path, token in server.asked if "ada/birds" in path} == {"Bearer mine"}


def test_a_result_that_lies_in_no_folder_is_staged_alike(trained, tmp_path):
    result, home = trained
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    hub.stage(result, tmp_path / "a")
    hub.stage(home / "run", tmp_path / "b")
    for name in ("README.md", "result.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    (a, facts), (b, same_facts) = (load_tensors(tmp_path / name / "model.safetensors") for name in "ab")
    assert facts == same_facts and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_what_has_no_classifier_is_refused(trained, tmp_path):
    with pytest.raises(DataError, match="no finished run"):
        hub.stage(tmp_path, tmp_path)
    diverged = spurless.Result("erm", "toy", "mlp", 0, "diverged")
    with pytest.raises(DataError, match="status is 'diverged'"):
        hub.stage(diverged, tmp_path)


def test_it_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: spurless.push_to_hub("run", "ada/birds"), lambda: spurless.from_hub("ada/birds")):
        with pytest.raises(UserError, match=r"spurless\[hub\]"):
            call()

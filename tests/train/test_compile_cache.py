"""What was compiled once is not compiled again by the next start, and a person is told what takes so long."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spurless.bench.executors.base import How
from spurless.bench.one import compiles
from spurless.train import compiled

START = """
import json, os
from torch._dynamo.utils import counters
from spurless import fit
from spurless.core.messages import show_messages

show_messages()
recipe = {"epochs": 1, "compile": True, "batch_size": 64}
fit("erm", {"name": "toy", "n": 200}, net="mlp", recipe=recipe, device=os.environ["DEVICE"], progress=False)
print(json.dumps({name: counters["inductor"][f"fxgraph_cache_{name}"] for name in ("hit", "miss")}))
"""


def start(**environment: str) -> tuple[dict[str, int], str]:
    """Graphs found in the cache and compiled by a process of its own, and what it says."""
    own = {k: v for k, v in os.environ.items() if k not in ("TORCHINDUCTOR_CACHE_DIR", "SPURLESS_CACHE")}
    done = subprocess.run([sys.executable, "-c", START], env=own | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


needs_compiler = pytest.mark.skipif(
    not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"
)


@needs_compiler
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_second_start_compiles_nothing(tmp_path, device):
    """As torch itself counts; in the user's cache folder, as XDG names it."""
    cold, said = start(XDG_CACHE_HOME=str(tmp_path), DEVICE=device)
    assert cold["miss"] > 0 and cold["hit"] == 0
    assert said.count("torch.compile is compiling: 10 to 60 s") == 1
    assert str(tmp_path / "spurless" / "compiled") in said
    warm, _ = start(XDG_CACHE_HOME=str(tmp_path), DEVICE=device)
    assert warm == {"hit": cold["miss"], "miss": 0}


@needs_compiler
def test_a_folder_that_the_user_has_named_is_used(tmp_path):
    start(DEVICE="cpu", XDG_CACHE_HOME=str(tmp_path / "cache"), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "mine"))
    assert any((tmp_path / "mine").iterdir())
    assert not (tmp_path / "cache" / "spurless" / "compiled").exists()


def test_where_the_cache_cannot_be_written_torch_takes_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    monkeypatch.delenv(compiled.KEPT, raising=False)
    compiled.keep_compiled()
    assert compiled.KEPT not in os.environ


def test_what_torch_has_set_by_itself_is_no_choice_of_the_user(tmp_path, monkeypatch):
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path))
    monkeypatch.setenv(compiled.KEPT, default_cache_dir())
    compiled.keep_compiled()
    assert os.environ[compiled.KEPT] == str(tmp_path / "compiled")


def test_runs_that_are_not_compiled_leave_torch_alone(monkeypatch):
    from spurless import fit

    monkeypatch.delenv(compiled.KEPT, raising=False)
    fit("erm", {"name": "toy", "n": 100}, recipe={"epochs": 1}, device="cpu", progress=False)
    assert compiled.KEPT not in os.environ
    assert Path(compiled.compiled_dir()).name == "compiled"


@pytest.mark.parametrize(("asked", "answer"), [(True, True), (False, False), ("gpu", False)])
def test_a_benchmark_says_so_only_where_it_compiles(asked, answer):
    assert compiles(How(compile=asked, device="cpu")) is answer

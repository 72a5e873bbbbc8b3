"""What is installed: lock files, wheels of TORCH=cpu, the Dockerfile, and a release that stops before it publishes."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUDA = ("nvidia-", "cuda-", "triton")
UV = """#!/bin/sh
echo "$@" >> uv.log
for last; do :; done
if [ "$last" = - ]; then cat >> uv.log; fi
"""


def pins(text):
    return dict(re.findall(r"^([\w.-]+)==([^ \n]+)", text, re.MULTILINE))


def lock(name):
    return pins((ROOT / f"{name}.lock").read_text(encoding="utf-8"))


def test_the_base_is_a_part_of_what_the_tests_need():
    base, whole = lock("base"), lock("requirements")
    assert base.items() < whole.items()
    assert {"torch", "torchvision", "typer", "safetensors"} <= base.keys()
    assert not {"ray", "transformers", "onnx", "timm", "playwright", "pytest", "captum", "mkdocs"} & base.keys()
    assert {"nbclient", "twine", "mkdocs", "huggingface-hub", "pytest"} <= whole.keys()


@pytest.fixture
def make(tmp_path):
    """Run the Makefile in a folder where uv only notes what it is asked."""
    for name in ("Makefile", "base.lock", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    uv = tmp_path / ".venv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(UV)
    uv.chmod(0o755)

    def run(*args):
        command = ["make", f"PYTHON={sys.executable}", *args]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        return (tmp_path / "uv.log").read_text(encoding="utf-8")

    return run


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")


@needs_make
def test_torch_for_a_cpu_comes_without_cuda_and_stays(make):
    told = make("setup", "TORCH=cpu")
    first, rest = told.split("\npip install", 1)
    assert "--torch-backend cpu" in first and "--require-hashes" not in first
    assert pins(first) == {name: lock("base")[name] for name in ("torch", "torchvision")}
    assert "--require-hashes" in rest
    assert pins(rest) == {k: v for k, v in lock("base").items() if not k.startswith(("torch", *CUDA))}
    after = make("setup-all")[len(told) :]
    assert "--torch-backend cpu" in after and not any(name.startswith(CUDA) for name in pins(after))


@needs_make
@pytest.mark.parametrize("asked", [[], ["TORCH=cuda"]])
def test_otherwise_the_lock_file_is_installed_as_it_is(make, asked):
    told = make("setup", *asked)
    assert "--require-hashes -r base.lock" in told and "--torch-backend" not in told


def test_the_image_has_what_it_copies():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    sources = [source for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for source in line.split()]
    assert {"src", "papers", "base.lock"} <= set(sources) and all((ROOT / source).exists() for source in sources)
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(let_in) == sorted(sources)
    assert re.search(r"^ARG TORCH=cpu$", text, re.MULTILINE) and '"TORCH=${TORCH}"' in text


def test_the_dockerfile_is_clean():
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed: spurless[dev]")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, ("build", "twine", "hatchling"))), reason="needs spurless[dev,build]")
def test_a_wheel_and_an_sdist_pass_the_tests_elsewhere():
    told = os.environ | {"BIN": str(Path(sys.executable).parent)}
    command = [ROOT / ".ci" / "release", "--check"]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("PASSED") == 2 and len(re.findall(r"^\d+ passed", done.stdout, re.MULTILINE)) == 2

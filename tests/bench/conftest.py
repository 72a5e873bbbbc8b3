"""Fixtures of the benchmark's tests."""

import pytest
import typer

from spurless.bench import read_spec
from spurless.bench.executors import here
from spurless.cli import bench as cli_bench
from tests.support.benches import SPEC, made_rows


@pytest.fixture
def one_core(monkeypatch):
    """In this process, with one thread: children that are forked must not find a thread pool."""
    monkeypatch.setattr(here, "cores", lambda: 1)


@pytest.fixture
def spec_file(tmp_path):
    (tmp_path / "small.toml").write_text(SPEC, encoding="utf-8")
    return tmp_path / "small.toml"


@pytest.fixture
def measured(spec_file):
    spec = read_spec(spec_file)
    rows = made_rows(
        spec, Vanilla={"0.05": [60, 62, 64], "0.2": [70]}, LfF={"0.05": [1, 3, "diverged"], "0.2": ["failed"]}
    )
    return spec, rows


@pytest.fixture
def app():
    made = typer.Typer()
    cli_bench.add(made)
    return made

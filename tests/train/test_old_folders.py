"""Folders that were written before modules, settings and words were changed are still read."""

import json
import shutil
from pathlib import Path

import pytest

from spurless.bench import read_spec, run_cells
from spurless.core.errors import UserError
from spurless.report import write_any
from spurless.train.fit import fit
from spurless.train.saved import load_run
from tests.support.runs import CPU

OLD = Path(__file__).parents[1] / "support" / "old"
TOY = {"name": "toy", "n": 60}


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the old folders, in which nothing may be trained."""
    shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.setattr("spurless.train.loop.Loop.__iter__", lambda self: pytest.fail("was trained again"))
    return tmp_path / "old"


def test_a_run_is_loaded_and_its_command_prints_its_result(old):
    saved = json.loads((old / "run" / "result.json").read_text())
    assert load_run(old / "run").scores == saved["scores"]
    again = fit("pgd", TOY, net="linear", recipe={"epochs": 2}, out=old / "run", **CPU)
    assert again.scores == saved["scores"] and again.classifier is not None


def test_a_benchmark_has_all_its_rows(old):
    spec = read_spec(old / "bench.toml")
    before = [json.loads(line) for line in (old / "bench" / "rows.jsonl").read_text().splitlines()]
    rows = run_cells(spec.cells(), old / "bench", device="cpu")
    assert len(rows) == 4 and sorted(row["key"] for row in rows) == sorted(row["key"] for row in before)
    assert {row["key"]: row["scores"] for row in rows} == {row["key"]: row["scores"] for row in before}


def test_an_audit_of_schema_1_says_that_it_must_be_made_again(old, tmp_path):
    """Its verdict rests on tests that are no longer made, so that no page may show it."""
    with pytest.raises(UserError, match="schema 1"):
        write_any([old / "audit"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()

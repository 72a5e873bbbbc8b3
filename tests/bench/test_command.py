"""The commands bench and reproduce."""

import csv
import json

import pytest
from typer.testing import CliRunner

from spurless.bench.reproduce import papers, write_page

pytestmark = pytest.mark.usefixtures("one_core")


def test_bench_prints_json_alone_and_goes_on(app, spec_file, tmp_path):
    words = ["bench", str(spec_file), "--out", str(tmp_path / "out"), "--device", "cpu", "--workers", "1"]
    first = CliRunner().invoke(app, [*words, "--only", "Vanilla", "--seeds", "1", "--json"])
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert (found["cells"], found["done"], found["failed"]) == (2, 2, 0) and found["table"][0]["ours"]["n"] == 1
    again = CliRunner().invoke(app, [*words, "--format", "csv", "--seeds", "1"])
    assert again.exit_code == 0 and "[3/4]" in again.stderr and "[1/4]" not in again.stderr
    assert len(list(csv.DictReader(again.stdout.splitlines()))) == 6
    wrong = CliRunner().invoke(app, [*words, "--format", "pdf"])
    assert wrong.exit_code == 2 and "There is no format 'pdf'" in wrong.stderr


def test_reproduce_lists_the_tables_and_finds_them_by_name(app):
    listed = CliRunner().invoke(app, ["reproduce", "--json"])
    assert {row["name"] for row in json.loads(listed.stdout)["tables"]} == set(papers())
    wrong = CliRunner().invoke(app, ["reproduce", "pgd-table11x"])
    assert wrong.exit_code == 2 and "There is no table 'pgd-table11x'; did you mean" in wrong.stderr


def test_reproduce_prints_the_table_and_writes_the_page(app, spec_file, tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.reproduce.papers", lambda: {"small": spec_file})
    words = ["reproduce", "small", "--out", str(tmp_path / "out"), "--device", "cpu", "--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--seeds", "2", "--format", "markdown"])
    assert done.exit_code == 0, done.output
    assert "60.94 ± 0.97" in done.stdout and "Page:" in done.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Nobody 2024, table 0" in page and "60.9" in page and "it needs what is not here" in page
    rows = json.loads((tmp_path / "out" / "reproduction.json").read_text())["rows"]
    assert rows[0]["data"] == "Toy, 0.05" and rows[0]["ours"]["n"] == 2 and rows[4]["ours"] is None


def test_failed_trials_are_told_by_the_exit_code(app, tmp_path):
    (tmp_path / "s.toml").write_text('[[block]]\ndata = "celeba"\nmethods = ["erm"]\n')
    words = ["bench", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o"), "--device", "cpu", "--workers", "1"]
    ended = CliRunner().invoke(app, [*words, "--data-root", str(tmp_path)])
    assert ended.exit_code == 3 and "1 failed" in ended.stdout


def test_a_page_of_rows_without_a_result_can_be_written(measured, tmp_path):
    spec, _ = measured
    assert "There is no result yet" in write_page(spec, [], tmp_path).read_text()

"""The demo, with a training of one epoch."""

import json

from typer.testing import CliRunner

from spurless.cli import demo
from spurless.cli.main import app


def test_the_demo_trains_audits_and_writes_one_page(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 1)
    answer = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--device", "cpu"])
    assert answer.exit_code == 0, answer.output
    results = [json.loads((tmp_path / f"{name}-seed0" / "result.json").read_text()) for name in demo.SHOWN]
    assert {r["settings"]["recipe"]["epochs"] for r in results} == {1}
    assert all(name in answer.output for name in demo.SHOWN) and "Audit of the plain model:" in answer.output
    page = (tmp_path / "report.html").read_text()
    assert "Coloured digits: the demo" in page and all(name in page for name in demo.SHOWN)

"""The model card: its YAML says the numbers of the result, and a name cannot break out of it."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.core.errors import UserError
from spurless.core.tensor_files import header
from spurless.metrics.groups import group_notes, group_scores
from spurless.report.card import WORST, card, quoted
from tests.support.pages import EVIL, make

yaml = pytest.importorskip("yaml")


@pytest.fixture
def run(tmp_path):
    def save(row, facts=None):
        (tmp_path / "result.json").write_text(json.dumps(row))
        if facts:
            data = json.dumps({"__metadata__": {"spurless": json.dumps(facts)}}).encode()
            (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data)
        return tmp_path

    return save


def parts(text):
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), body


def test_the_front_matter_holds_the_scores(run):
    row = make("pgd", 0.6)
    front, body = parts(card(run(row, {"shape": [3, 28, 28], "classes": ["cat", "dog"], "mean": [0.5], "std": [0.25]})))
    assert front["pipeline_tag"] == "image-classification"
    (entry,) = front["model-index"]
    (result,) = entry["results"]
    assert result["dataset"] == {"name": "toy", "type": "toy", "split": "test"}
    values = {m["name"]: m["value"] for m in result["metrics"]}
    assert all(m["type"] == "accuracy" for m in result["metrics"])
    for metric, name in (("conflicting", "where the shortcut misleads"), ("worst_group", "of the worst group")):
        assert values[f"Accuracy {name}"] == pytest.approx(row["scores"][metric] / 100, abs=5e-5)
    for group in row["scores"]["groups"]:
        follows = "yes" if group["aligned"] else "no"
        assert f"| {group['label']} | place | {group['value']} | {follows} | {group['accuracy']:.1f} |" in body
    assert "Weights: the weights after the last step." in body
    assert "Bias labels that were used: none." in body
    assert "cat, dog" in body and "(n, 3, 28, 28)" in body and "mean [0.5]" in body
    assert "someone" not in body


def test_the_hub_reads_it(run):
    hub = pytest.importorskip("huggingface_hub")
    read = hub.ModelCard(card(run(make("pgd", 0.6), {"shape": [4], "classes": ["a", "b"]})))
    found = {r.metric_name: r.metric_value for r in read.data.eval_results}
    assert found["Accuracy where the shortcut misleads"] == pytest.approx(
        make("pgd", 0.6)["scores"]["conflicting"] / 100, abs=5e-5
    )
    assert read.data.pipeline_tag == "tabular-classification"
    assert read.data.model_name == "pgd-toy"


def test_names_cannot_break_out(run):
    row = make(EVIL, 0.5, classes=(EVIL, "a|b\n---\nx: y"))
    row |= {"data": 'x"\n---\nlicense: mit', "net": "`code`", "selection": EVIL, "labels_used": EVIL, "notes": [EVIL]}
    row |= {"settings": {EVIL: EVIL}, "scored_on": EVIL}
    text = card(run(row, {"shape": [4], "classes": [EVIL]}))
    front, body = parts(text)
    assert "license" not in front
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == 'x"\n---\nlicense: mit'
    outside = "".join(body.split("`")[::2])  # between backticks everything is text
    assert "<script" not in outside and "<img" not in outside
    rows = [line for line in body.splitlines() if line.startswith("| &lt;script")]
    assert rows and all(len(line.replace("\\|", "").split("|")) == 9 for line in rows)
    assert text.count("\n---\n") == 1  # the end of the front matter


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_is_a_yaml_string(text):
    assert yaml.safe_load(f"a: {quoted(text)}") == {"a": text}


def test_many_groups_show_the_worst(run):
    row = make("erm", 0.3, classes=tuple("abcdefg"))
    body = card(run(row))
    shown = [float(line.split("|")[5]) for line in body.splitlines() if "| place |" in line]
    assert len(shown) == WORST
    assert shown == sorted(shown)
    assert shown[0] == round(min(g["accuracy"] for g in row["scores"]["groups"]), 1)


def test_without_groups_nothing_is_claimed(run):
    row = make("erm", 0.5) | {"scores": {"average": 91.0, "groups": None}, "scored_on": "val"}
    text = card(run(row))
    assert "nothing is said here about shortcuts" in text
    assert "## Groups" not in text
    assert "there is no test split" in text


def test_how_to_use_it(run):
    small = card(run(make("erm", 0.5), {"shape": [2], "mean": [0.123456, 0.0], "std": [0.5, 1e-6]}))
    assert "mean [0.1235, 0.0], standard deviation [0.5, 1e-06]" in small  # of 0.0 nobody could divide by it
    assert 'load_classifier("model.safetensors")' in small
    assert "divided by 255" not in small
    assert "divided by 255" in card(run(make("erm", 0.5), {"shape": [3, 8, 8]}))
    assert "divided by 255" not in card(run(make("erm", 0.5), {"shape": [3, 8, 8], "bytes": False}))
    own = card(run(make("erm", 0.5), {"shape": [2], "net": {"name": "Mine", "own": True}}))
    assert "the Mine that was trained" in own and 'load_classifier("model.safetensors", net=network)' in own


def test_what_has_no_result_has_no_card(run, tmp_path):
    with pytest.raises(UserError, match="diverged"):
        card(run(make("erm", 0.5) | {"status": "diverged"}))
    with pytest.raises(UserError, match="not a run's folder"):
        card(tmp_path / "gone")
    assert header(tmp_path / "result.json") == {}
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.json").write_text("{}")
    with pytest.raises(UserError, match="holds no run"):
        card(tmp_path / "audit")


def test_the_command_prints_or_writes(run, tmp_path):
    folder = run(make("erm", 0.5))
    printed = CliRunner().invoke(app, ["card", str(folder)])
    assert printed.exit_code == 0 and printed.output.startswith("---\nlibrary_name")
    written = CliRunner().invoke(app, ["card", str(folder), "--out", str(tmp_path / "README.md")])
    assert written.exit_code == 0
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == printed.output
    page = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "r.html"), "--title", "Mine"])
    assert page.exit_code == 0 and "<h1>Mine</h1>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["report", str(tmp_path / "gone")]).exit_code == 2


def test_groups_without_samples_and_small_ones_stand_with_the_results(run):
    """500 yes/f, 500 no/m and one of each other: of those two, the test split has one."""
    y, a = np.repeat([0, 1, 0], [100, 100, 1]), np.repeat([0, 1, 1], [100, 100, 1])[:, None]
    hit = np.repeat([True, False], [200, 1])
    names = {"classes": ("no", "yes"), "attributes": ("sex",), "values": (("m", "f"),)}
    scores = group_scores(hit, y, a, a == y[:, None], **names, all_counts=[np.array([[500, 1], [1, 500]])])
    row = make("erm", 0.5) | {"scores": scores, "notes": [*group_notes(scores), "drawn"]}
    front, body = parts(card(run(row)))
    values = {m["name"]: m["value"] for m in front["model-index"][0]["results"][0]["metrics"]}
    assert values["Accuracy of the worst group, of the 3 of 4 groups that have samples (n = 1)"] == 0
    assert values["Accuracy as the mean of the groups, of the 3 of 4 groups that have samples"] == pytest.approx(
        2 / 3, abs=5e-5
    )
    assert "| yes | sex | m | – | – | – | 0 |" in body
    assert body.count("Without test samples: yes, sex=m.") == body.count("no, sex=f (n = 1)") == 1
    assert "- drawn" in body and body.index("Without test samples") < body.index("## Groups")
    gone = group_scores(hit[:100], y[:100], a[:100], **names, all_counts=[np.array([[500, 1], [1, 500]])])
    _, body = parts(card(run(row | {"scores": gone, "notes": []})))
    assert "of the worst group" not in body and "No test samples of the class yes" in body

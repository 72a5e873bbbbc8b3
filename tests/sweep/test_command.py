"""The commands sweep and suggest-lr."""

import json

import pytest

from tests.support.sweeps import FAST, call


def test_json_is_a_list_of_points(tmp_path):
    words = ["sweep", "toy", "--over", "lr", "--values", "0.1,0.01", "--seeds", "2", "--workers", "1", *FAST]
    said = call(*words, "--out", str(tmp_path / "s"), "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert [p["lr"] for p in found] == [0.01, 0.1]
    assert all(p["unbiased"]["n"] == 2 and isinstance(p["unbiased"]["mean"], float) for p in found)
    assert all(p["diverged"] is False and p["fell"] is False for p in found)
    said = call(*words, "--out", str(tmp_path / "s"), "--dynamics")
    assert said.exit_code == 2 and "was trained without being watched" in said.stderr
    said = call(*words, "--out", str(tmp_path / "s"))
    assert said.exit_code == 0
    assert "Choose lr = " in " ".join(said.stdout.split())  # prose is folded at the width of the screen; paths are not
    assert all(str(tmp_path / "s" / name) in said.stdout for name in ("sweep.png", "report.html", "sweep.json"))


def test_a_sweep_in_which_everything_diverges_says_so(tmp_path):
    words = ["sweep", "toy", "--net", "mlp", "--over", "lr", "--values", "1e30,1e33", "--seeds", "1", *FAST]
    said = call(*words, "--workers", "1", "--out", str(tmp_path / "s"))
    assert said.exit_code == 0, said.output
    assert "No value of lr can be chosen" in said.stdout and said.stdout.count("diverged") >= 4
    assert (tmp_path / "s" / "sweep.png").exists() and (tmp_path / "s" / "report.html").exists()


def test_words_can_be_swept_and_rows_without_attributes(tmp_path):
    lines = ["a,b,label", *(f"{i % 2 + i / 90},{i % 7},{'yes' if i % 2 else 'no'}" for i in range(90))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    words = ["sweep", f"csv:{tmp_path / 't.csv'}", "--net", "mlp", "--over", "optimizer", "--values", "sgd,adam"]
    said = call(*words, "--seeds", "1", "--workers", "1", "--device", "cpu", "--out", str(tmp_path / "s"), "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert [p["optimizer"] for p in found] == ["sgd", "adam"]
    assert all("average" in p and "prunability" in p and "unbiased" not in p for p in found)
    saved = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert "the one with the best validation accuracy is chosen" in saved["rule"]


def test_suggest_lr_prints_one_object(tmp_path):
    said = call("suggest-lr", "toy", *FAST, "--budget", "1", "--out", str(tmp_path / "s"), "--workers", "1", "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["tried"][0] == found["own"] and found["suggested"] in found["tried"]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--over", "lr", "--over", "l2", "--values", "1,2"], "each setting needs its own"),
        (["--over", "nothing", "--values", "1,2"], "no setting 'nothing'"),
        (["--over", "lr", "--values", "1,-2"], "recipe.lr = -2 is not allowed"),
        (["--over", "lr", "--values", "1,2", "--set", "net.width=3"], "needs --net"),
        (["--over", "net.width", "--values", "8,16"], "--over net.width needs --net"),
        (["--over", "lr", "--values", "1,2", "--method", "emr"], "no method 'emr'"),
        (["--over", "lr", "--over", "lr", "--values", "1,2", "--values", "3,4"], "named twice"),
    ],
)
def test_mistakes_end_in_one_sentence(words, match, tmp_path):
    said = call("sweep", "toy", *words, "--out", str(tmp_path / "s"), "--device", "cpu", "--workers", "1")
    assert said.exit_code == 2
    assert match in " ".join(said.output.split())
    assert "Traceback" not in said.output
    assert not (tmp_path / "s").exists()


def test_a_refused_search_leaves_no_folder(tmp_path):
    said = call("suggest-lr", "toy", "--set", "recipe.lr=-1", "--out", str(tmp_path / "s"), "--device", "cpu")
    assert said.exit_code == 2 and "recipe.lr = '-1' is not allowed" in said.output
    assert not (tmp_path / "s").exists()

"""The command line as its first users meet it: what it prints, what it refuses, and that it never shows a traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.compress.loading import trained
from spurless.core.data import Table
from spurless.core.errors import UserError
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.commands import invoke, mistake

WANTED = "method data net seed status scores n selection labels_used seconds settings versions folder".split()
SHORT = ("--device", "cpu", "--set", "recipe.epochs=1", "--set", "data.n=200")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPURLESS_DATA", raising=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run: its folder, and what its --json said."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    net = ("--net", "mlp", "--set", "net.widths=[4]")
    return folder, json.loads(
        invoke("train", "erm", "toy", *net, *SHORT, "--seed", 3, "--out", folder, "--json").stdout
    )


# What is printed


def test_json_is_one_object_and_nothing_else(capfd):
    app(["train", "erm", "toy", *SHORT, "--out", "run", "--json"], standalone_mode=False)
    out = capfd.readouterr().out  # of the file descriptor, so that nothing can slip past
    assert out.endswith("}\n") and out.count("\n") == 1
    row = json.loads(out)
    assert not set(WANTED) - set(row)
    scores = row["scores"]
    assert not {"unbiased", "conflicting", "aligned", "worst_group", "average", "groups"} - set(scores)
    assert (row["method"], row["data"], row["net"], row["seed"], row["status"]) == ("erm", "toy", "linear", 0, "done")
    assert row["n"] == 4000 and row["selection"] == "last" and row["labels_used"] == "none" and row["folder"] == "run"
    assert row["settings"]["recipe"]["epochs"] == 1 and row["settings"]["data"]["n"] == 200
    # In percent: each group has 1,000 rows, so the mean of the four is the average, exactly.
    groups = [group["accuracy"] for group in scores["groups"]]
    assert len(groups) == 4 and max(groups) > 1
    assert scores["average"] == pytest.approx(sum(groups) / 4) == pytest.approx(scores["unbiased"])
    assert scores["worst_group"] == pytest.approx(min(groups))
    saved = json.loads(Path("run/result.json").read_text())
    assert saved["scores"] == scores


def test_what_a_library_prints_is_not_in_the_json(monkeypatch):
    def talkative(*args, **given):
        print("Downloading: 100%")
        return load_data(*args, **given)

    for module in ("registry", "train.session", "compress.loading"):
        monkeypatch.setattr(f"spurless.{module}.load_data", talkative)
    for args in (
        ["train", "erm", "toy", *SHORT, "--out", "run"],
        ["evaluate", "run", "toy"],
        ["data", "describe", "toy"],
    ):
        done = invoke(*args, "--json")
        assert isinstance(json.loads(done.stdout), dict)
        assert set(done.stderr.splitlines()) == {"Downloading: 100%"}


def test_the_table_has_the_same_numbers():
    row = json.loads(invoke("train", "erm", "toy", *SHORT, "--out", "run", "--json").stdout)
    printed = invoke("train", "erm", "toy", *SHORT, "--out", "run").stdout
    for key in ("unbiased", "conflicting", "aligned", "worst_group"):
        assert f"{row['scores'][key]:.1f}" in printed
    assert "weights picked by: last; bias labels used: none" in printed


def test_help_and_lists_do_not_import_torch():
    """A fresh Python, because this one has torch already. They take well under half a second without it."""
    script = """
import sys
from typer.testing import CliRunner
from spurless.cli.main import app
for line in ("--help", "train --help", "list methods", "list datasets", "list nets", "list methods --json"):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0 and len(result.stdout) > 200, (line, result.output)
heavy = {"torch", "torchvision", "pandas", "scipy", "sklearn", "matplotlib", "PIL"} & set(sys.modules)
print(sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("what", ["methods", "datasets", "nets", "recipes"])
def test_lists(what):
    rows = json.loads(invoke("list", what, "--json").stdout)[what]
    printed = invoke("list", what).stdout
    assert len(rows) >= 2
    for row in rows:
        assert row["name"] in printed and row["what"] in printed
    if what == "methods":
        assert {row["bias_labels"] for row in rows} <= {"none", "selection", "validation", "training"}


def test_an_unknown_list():
    assert "did you mean 'methods'" in mistake("list", "method")


# Mistakes


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["pdg", "toy"], "no method 'pdg'; did you mean 'pgd'"),
        (["erm", "tooy"], "no dataset 'tooy'; did you mean 'toy'"),
        (["erm", "colored_minst"], "did you mean 'colored_mnist'"),
        (["erm", "folder:"], "did you mean 'folder:PATH'"),
        (["erm", "toy", "--net", "linaer"], "no net 'linaer'; did you mean 'linear'"),
        (["erm", "toy", "--recipe", "pgd-mnist"], "no recipe 'pgd-mnist'; did you mean 'pgd-cmnist'"),
        (["", "toy"], "no method ''"),
        (["erm", ""], "no dataset ''"),
        # a wrong key lists the right ones with their meaning
        (["lff", "toy", "--set", "method.qq=1"], "did you mean 'method.q'"),
        (["lff", "toy", "--set", "method.qq=1"], "how strongly the biased network prefers easy samples"),
        (["erm", "toy", "--set", "data.n_rows=1"], "data.n (a whole number at least 20; now 2000): training samples"),
        (["erm", "toy", "--set", "recipe.epoch=1"], "recipe.epochs (a number at least 0): length of a stage"),
        (["erm", "toy", "--net", "mlp", "--set", "net.width=1"], "net.widths (a list, each a whole number at least 1"),
        (["erm", "toy", "--set", "method.q=1"], "This method has no settings"),
        # a bad value names the field and the range
        (["lff", "toy", "--set", "method.q=2"], "method.q = '2' is not allowed; it takes a number from 0 to 1"),
        (["erm", "toy", "--set", "data.n=3"], "data.n = '3' is not allowed; it takes a whole number at least 20"),
        (["erm", "toy", "--set", "recipe.epochs=many"], "recipe.epochs = 'many' is not allowed; it takes a number"),
        (["erm", "toy", "--set", "recipe.lr="], "recipe.lr = '' is not allowed"),
        (["erm", "toy", "--set", "recipe.optimizer=sdg"], "it takes one of sgd, adam, adamw"),
        (["erm", "toy", "--set", "recipe.augment=flop"], "did you mean 'flip'"),
        (["erm", "toy", "--set", "recipe.betas=0.9"], "recipe.betas = [0.9] is not allowed"),
        (["erm", "toy", "--net", "mlp", "--set", "net.widths=0"], "net.widths = '0' is not allowed"),
        # not of the form
        (["erm", "toy", "--set", "recipe.epochs"], "not of the form section.name=value"),
        (["erm", "toy", "--set", "epochs=5"], "not of the form section.name=value"),
        (["erm", "toy", "--set", "recipe.=5"], "not of the form section.name=value"),
        (["erm", "toy", "--set", "recip.epochs=5"], "no section 'recip'; did you mean 'recipe'"),
        (["erm", "toy", "--set", "method.name=lff"], "the method is named by the argument METHOD"),
        (["erm", "toy", "--set", "net.name=mlp"], "the net is named by --net"),
        # devices, and what does not go together
        (["erm", "toy", "--device", "gpu"], "There is no device 'gpu'"),
        (["erm", "toy", "--set", "recipe.selection=val_worst_group"], "which erm may not see"),
        (["erm", "toy", "--net", "simconv1"], "takes images"),
        (["erm", "toy", "--set", "recipe.epochs=1e12"], "There is not enough memory"),
    ],
)
def test_mistakes(args, said):
    assert said in mistake("train", *args, "--out", "run")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there():
    text = mistake("train", "erm", "toy", "--device", "cuda", "--out", "run")
    assert text == "Error: --device cuda: no CUDA device is available here; use --device cpu.\n"


def test_a_mistake_is_found_before_the_data_is_read_and_leaves_nothing_behind():
    for args in (["--net", "linaer"], ["--recipe", "x"], ["--set", "recipe.epoch=1"], ["--device", "gpu"]):
        text = mistake("train", "erm", "waterbirds", "--data-root", "nowhere", *args, "--out", "run")
        assert "waterbird_complete95" not in text
    assert not list(Path().iterdir())


@pytest.mark.parametrize("args", [["train"], ["train", "erm"], ["train", "erm", "toy", "--seed", "x"], ["nonsense"]])
def test_an_incomplete_command_says_what_is_missing(args):
    assert "Usage" in invoke(*args, code=2).stderr


def test_epochs_batches_and_seeds_at_their_limits():
    for setting in ("recipe.epochs=0", "recipe.batch_size=1000000", "recipe.iterations=1", "data.rho=0"):
        name = setting.replace("=", "-")
        row = json.loads(invoke("train", "erm", "toy", *SHORT, "--set", setting, "--out", name, "--json").stdout)
        assert row["status"] == "done"
    rows = [
        json.loads(invoke("train", "erm", "toy", *SHORT, f"--seed={seed}", "--out", f"seed{seed}", "--json").stdout)
        for seed in (-1, 10**20)
    ]
    assert [row["seed"] for row in rows] == [-1, 10**20]
    assert rows[0]["scores"] != rows[1]["scores"]


# --config


def config(text):
    Path("c.toml").write_text(text)
    return ("train", "erm", "toy", *SHORT, "--out", "run", "--config", "c.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[recipe]\nepochs = 1\nlr 3\n",
            "c.toml is not valid TOML: Expected '=' after a key in a key/value pair (at line 3",
        ),
        ("[recipes]\nepochs = 1\n", "'recipes' is not a section; the sections are [method], [data], [net], [recipe]"),
        ("recipe = 3\n", "'recipe' is not a section"),
        ("seed = 'one'\n", "'seed' is not a section"),
        ("[recipe]\nepoch = 1\n", "did you mean 'recipe.epochs'"),
        ("[recipe]\nlr = 2020-01-01\n", "recipe.lr = datetime.date(2020, 1, 1) is not allowed"),
        ("[net]\nname = 3\n", "name = 3 in [net] is not a name"),
        ("[recipe]\nname = ['x']\n", "is not a name"),
        ("[net]\nname = 'linaer'\n", "did you mean 'linear'"),
        ("[method.deep]\nq = 1\n", "no setting 'method.deep'"),
    ],
)
def test_a_config_with_a_mistake(text, said):
    assert said in mistake(*config(text))
    assert not Path("run").exists()


def test_a_config_that_cannot_be_read():
    assert "nowhere.toml cannot be read (No such file" in mistake("train", "erm", "toy", "--config", "nowhere.toml")
    assert "cannot be read (Is a directory)" in mistake("train", "erm", "toy", "--config", ".")
    Path("b.toml").write_bytes(b"\xff\xfe")
    assert "b.toml is not valid TOML" in mistake("train", "erm", "toy", "--config", "b.toml")


def test_set_goes_before_the_config_and_an_empty_one_is_fine():
    row = json.loads(
        invoke(*config("seed = 5\n[recipe]\nepochs = 7\nlr = 0.5\n[net]\nname = 'mlp'\n"), "--json").stdout
    )
    assert (row["seed"], row["net"]) == (5, "mlp")
    assert (row["settings"]["recipe"]["epochs"], row["settings"]["recipe"]["lr"]) == (1, 0.5)
    assert invoke(*config(""), "--out", "other").exit_code == 0


def test_the_settings_of_a_run_are_a_config_that_makes_it_again(finished):
    folder, row = finished
    again = invoke(
        "train", "erm", "toy", "--device", "cpu", "--config", folder / "settings.toml", "--out", "r", "--json"
    )
    assert again.stderr == ""
    again = json.loads(again.stdout)
    assert again["settings"] == row["settings"] and again["scores"] == row["scores"]
    ours, theirs = (load_file(path / "model.safetensors") for path in (Path("r"), folder))
    assert all(torch.equal(ours[k], theirs[k]) for k in ours | theirs)


@pytest.mark.parametrize(
    ("args", "section", "kept"),
    [
        (["lff", "toy"], "method", ("data", "net", "recipe")),
        (["erm", "parity"], "data", ("net", "recipe")),
        (["erm", "toy", "--net", "linear"], "net", ("data", "recipe")),
        (["erm", "toy", "--recipe", "default"], "recipe", ("data", "net")),
    ],
)
def test_what_a_config_says_of_something_else_is_left_out_aloud(finished, args, section, kept):
    folder, row = finished
    done = invoke("train", *args, "--device", "cpu", "--config", folder / "settings.toml", "--out", "r", "--json")
    assert f"[{section}] is not that of " in done.stderr and done.stderr.count("\n") == 1
    settings = json.loads(done.stdout)["settings"]
    assert all(settings[name] == row["settings"][name] for name in kept)
    assert settings[section] != row["settings"][section]


# Folders


def test_a_folder_with_other_contents_is_refused_and_not_touched():
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("years of work")
    before = os.stat("thesis/chapter.tex").st_mtime_ns
    assert "thesis is not empty and holds no run" in mistake("train", "erm", "toy", *SHORT, "--out", "thesis")
    assert "cannot be used (Not a directory)" in mistake("train", "erm", "toy", *SHORT, "--out", "thesis/chapter.tex")
    assert "cannot be used" in mistake("train", "erm", "toy", *SHORT, "--out", "thesis/chapter.tex/run")
    assert [p.name for p in Path("thesis").iterdir()] == ["chapter.tex"]
    assert os.stat("thesis/chapter.tex").st_mtime_ns == before


def test_a_finished_run_comes_back_at_once_and_unchanged(finished):
    folder, row = finished
    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    args = ("--net", "mlp", "--set", "net.widths=[4]", *SHORT, "--seed", 3, "--out", folder, "--json")
    again = json.loads(invoke("train", "erm", "toy", *args).stdout)
    assert again == row  # the seconds too
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == before


def test_a_run_of_the_shell_is_the_same_run_from_python(finished):
    settings = {"data": {"name": "toy", "n": 200}, "recipe": {"epochs": 1}, "seed": 3, "device": "cpu"}
    again = fit("erm", net={"name": "mlp", "widths": [4]}, out=finished[0], **settings)
    assert again.scores["unbiased"] == finished[1]["scores"]["unbiased"]
    text = (finished[0] / "settings.toml").read_text()
    listed = "widths = [\n    4,\n]"
    assert listed in text
    Path("run").mkdir()
    Path("run/settings.toml").write_text(text.replace(listed, 'widths = "[4]"'))  # as it was saved before
    assert fit("erm", net={"name": "mlp", "widths": [4]}, out="run", **settings).scores == again.scores
    with pytest.raises(UserError, match="The net has no name"):
        fit("erm", net={"widths": [4]}, **settings)


def test_other_settings_in_the_same_folder_are_refused_and_named(finished):
    folder, _ = finished
    args = ("--net", "mlp", "--set", "net.widths=[4]", *SHORT, "--out", folder)
    text = mistake("train", "erm", "toy", *args, "--seed", 4, "--set", "recipe.lr=0.5")
    assert "seed: 3 there, 4 now" in text and "recipe.lr: 0.003 there, 0.5 now" in text
    assert "method.name: 'erm' there, 'lff' now" in mistake("train", "lff", "toy", *args, "--seed", 3)


def test_each_setting_has_a_folder_of_its_own_by_default():
    rows = []
    for args in ([], [], ["--set", "recipe.lr=0.1"], ["--seed", "1"], ["--net", "mlp"], ["--recipe", "default"]):
        rows.append(json.loads(invoke("train", "erm", "toy", *SHORT, *args, "--json").stdout)["folder"])
    assert rows[0] == rows[1]
    assert len(set(rows)) == 5
    assert all(Path(folder).parent == Path("runs") and (Path(folder) / "result.json").exists() for folder in rows)


def test_any_path_will_do():
    row = json.loads(invoke("train", "erm", "toy", *SHORT, "--out", "мой run [1] <b>", "--json").stdout)
    assert json.loads(invoke("show", "мой run [1] <b>", "--json").stdout)["scores"] == row["scores"]
    assert "мой run [1] <b>" in invoke("show", "мой run [1] <b>").stdout


# Ctrl-C and kills, as they really come


def test_ctrl_c_and_kill_and_the_same_command_end_where_an_undisturbed_run_does():
    """PGD has two stages: Ctrl-C comes in the first, the kill in the second, whose start is on disk."""
    args = ["train", "pgd", "toy", "--device", "cpu", "--set", "recipe.epochs=80", "--set", "recipe.eval_every=0"]
    whole = json.loads(invoke(*args, "--out", "whole", "--json").stdout)
    history = Path("run/history.jsonl")

    def start_and_send(sign, rows):
        env = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        command = [sys.executable, "-m", "spurless.cli.main", *args, "--out", "run", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
            deadline = time.monotonic() + 300
            while not (history.exists() and history.read_text().count("\n") >= rows):
                assert process.poll() is None and time.monotonic() < deadline, process.communicate()
                time.sleep(0.005)
            process.send_signal(sign)
            return *process.communicate(timeout=60), process.returncode

    out, err, code = start_and_send(signal.SIGINT, 20)
    assert (out, code) == ("", 130)
    assert err == "Stopped. Checkpoint saved to run; re-run the command to resume.\n"
    reached = history.read_text().count("\n")
    assert 20 <= reached < 80
    unfinished = json.loads(invoke("show", "run", "--json").stdout)
    assert (unfinished["status"], unfinished["last_epoch"]["epoch"]) == ("unfinished", reached)
    told = invoke("show", "run").stdout
    assert f"unfinished, at stage 'biased', epoch {reached}, " in told
    assert f"resumes from the last checkpoint, at epoch {reached} of stage 'biased'." in told
    assert "holds no finished run" in mistake("evaluate", "run", "toy")

    out, err, code = start_and_send(signal.SIGKILL, 100)
    assert (out, err, code) == ("", "", -signal.SIGKILL)
    told = invoke("show", "run").stdout  # beyond the checkpoint
    assert "unfinished, at stage 'debiased', " in told
    assert "resumes from the last checkpoint, at the end of stage 'biased'." in told

    again = json.loads(invoke(*args, "--out", "run", "--json").stdout)
    assert again["scores"] == whole["scores"]
    ours, theirs = (load_file(f"{name}/model.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(ours[k], theirs[k]) for k in ours | theirs)
    texts = [Path(name, "history.jsonl").read_text() for name in ("run", "whole")]
    epochs = [[json.loads(line)["epoch"] for line in text.splitlines()] for text in texts]
    assert epochs[0] == epochs[1] == [*range(1, 81), *range(1, 81)]


def test_ctrl_c_before_the_training_says_so_in_one_line(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("spurless.train.session.load_data", interrupted)
    assert invoke("train", "erm", "toy", code=130).stderr == "Stopped.\n"


# Divergence


def test_a_run_that_diverges():
    args = ("train", "erm", "toy", "--net", "mlp", *SHORT, "--set", "recipe.optimizer=sgd", "--set", "recipe.lr=1e38")
    row = json.loads(invoke(*args, "--out", "run", "--json", code=3).stdout)
    assert row["status"] == "diverged" and row["scores"] is None
    assert "stage 'erm', step 1, at learning rate 1e+38; the last finite loss was " in row["error"]
    again = invoke(*args, "--out", "run", code=3)  # a diverged run is a finished one: it does not go on
    assert "Diverged: The loss is not finite" in again.stderr
    assert "toy: diverged" in invoke("show", "run").stdout
    assert json.loads(invoke("show", "run", "--json").stdout)["error"] == row["error"]
    assert "diverged: there is no classifier" in mistake("evaluate", "run", "toy")


# show and evaluate


def test_show(finished):
    folder, row = finished
    assert json.loads(invoke("show", folder, "--json").stdout) == row
    assert f"{row['scores']['unbiased']:.1f}" in invoke("show", folder).stdout
    for nothing in ("nowhere", ".", folder / "result.json"):
        assert "holds no run" in mistake("show", nothing)


def test_a_run_that_was_moved(finished):
    shutil.copytree(finished[0], "elsewhere")
    assert json.loads(invoke("show", "elsewhere", "--json").stdout)["folder"] == "elsewhere"
    said = json.loads(invoke("evaluate", "elsewhere", "toy", "--set", "data.n=200", "--json").stdout)
    assert said["scores"] == finished[1]["scores"]


@pytest.mark.parametrize("settings", ['method = "fast"', "[method]\nname = 'erm'"])
def test_a_folder_of_another_program_is_no_run(settings):
    Path("run").mkdir()
    Path("run/settings.toml").write_text(settings)
    assert "run holds no run" in mistake("show", "run")


def test_a_result_that_says_nothing_is_damaged(finished):
    Path("run").mkdir()
    Path("run/settings.toml").write_bytes((finished[0] / "settings.toml").read_bytes())
    Path("run/result.json").write_text("{}")
    assert "result.json is damaged" in mistake("show", "run")
    assert "result.json is damaged" in mistake("evaluate", "run", "toy")


def test_a_run_that_has_only_begun(finished):
    Path("run").mkdir()
    Path("run/settings.toml").write_bytes((finished[0] / "settings.toml").read_bytes())
    assert "unfinished, at the start" in invoke("show", "run").stdout
    assert json.loads(invoke("show", "run", "--json").stdout)["last_epoch"] is None
    # A kill before the first checkpoint: there are epochs, and none of them is on disk.
    Path("run/history.jsonl").write_bytes((finished[0] / "history.jsonl").read_bytes())
    told = invoke("show", "run").stdout
    assert "at stage 'erm', epoch 1, " in told
    assert "no checkpoint yet: re-running the train command starts over" in told
    assert json.loads(invoke("show", "run", "--json").stdout)["checkpoint"] is None


def test_evaluate_repeats_the_scores_of_the_run(finished):
    folder, row = finished
    for model in (folder, folder / "model.safetensors"):
        said = json.loads(invoke("evaluate", model, "toy", "--set", "data.n=200", "--device", "cpu", "--json").stdout)
        assert said["scores"] == row["scores"]
        assert (said["n"], said["split"], said["data"]) == (4000, "test", "toy")
    assert f"{row['scores']['unbiased']:.1f}" in invoke("evaluate", folder, "toy").stdout
    val = json.loads(invoke("evaluate", folder, "toy", "--split", "val", "--json").stdout)
    assert val["n"] == 50 and val["scores"] != row["scores"]  # of the run's data.n = 200
    other = invoke("evaluate", folder, "toy", "--split", "val", "--set", "data.seed=1", "--json")
    assert "With data.seed as given, toy is not what" in other.stderr


def test_evaluate_weights_that_do_not_say_what_they_are(finished):
    folder, row = finished
    torch.save(load_file(folder / "model.safetensors"), "plain.pt")
    args = ("toy", "--set", "data.n=200", "--device", "cpu")
    assert "with --net" in mistake("evaluate", "plain.pt", *args)
    net = ("--net", "mlp", "--set", "net.widths=[4]")
    assert json.loads(invoke("evaluate", "plain.pt", *args, *net, "--json").stdout)["scores"] == row["scores"]
    assert "do not fit the network" in mistake("evaluate", "plain.pt", *args, "--net", "linear")
    assert "do not fit the network" in mistake("evaluate", "plain.pt", "parity", *net)
    assert "knows its network" in mistake("evaluate", folder, *args, *net)
    # gaussians has five classes: a head of two must not be replaced by one that nobody has trained
    torch.save({k: v[:, :2] if k == "encoder.1.weight" else v for k, v in torch.load("plain.pt").items()}, "two.pt")
    assert "has no head for the 5 classes of gaussians" in mistake("evaluate", "two.pt", "gaussians", *net)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["parity"], "trained on inputs of shape (7,) and cannot take those of parity, (25,)"),
        (["toy", "--set", "data.noise=9"], "cannot take those of toy, (12,)"),
        (["gaussians"], "knows 2 classes, beginning with left, and gaussians has 5, beginning with"),
        (["toy", "--split", "tset"], "toy has no split 'tset'; it has train, val, test"),
        (["toy", "--set", "recipe.lr=1"], "no section 'recipe'. The sections are: data"),
        (["toy", "--set", "net.bias=false"], "no section 'net'"),
        (["toy", "--net", "linaer"], "no net 'linaer'"),
        (["tooy"], "did you mean 'toy'"),
        (["toy", "--device", "gpu"], "no device 'gpu'"),
    ],
)
def test_mistakes_of_evaluate(finished, args, said):
    model = finished[0] / "model.safetensors" if "--net" in args else finished[0]
    result = invoke("evaluate", model, *args, code=2)
    assert said in result.stderr and result.stdout == ""


def test_evaluate_what_is_no_model():
    assert "neither a run's folder nor a weights file" in mistake("evaluate", "nowhere", "toy")
    assert "holds no finished run" in mistake("evaluate", ".", "toy")
    Path("x.safetensors").write_bytes(b"")
    assert "x.safetensors cannot be read as safetensors" in mistake("evaluate", "x.safetensors", "toy")
    assert "cannot be read as safetensors" in mistake("evaluate", "x.safetensors", "toy", "--net", "linear")


def test_other_data_is_standardised_as_the_network_was_trained(finished):
    """With the numbers of the new data the network would see other inputs than it was trained on."""
    data = load_data({"name": "toy", "n": 200})
    _, seen, _ = trained(finished[0], replace(data, inputs=Table(mean=(9.0,) * 7, std=(9.0,) * 7)))
    assert (seen.inputs.mean, seen.inputs.std) == (data.inputs.mean, data.inputs.std)


def test_classes_with_other_names_are_said(finished, capsys):
    trained(finished[0], replace(load_data("toy"), classes=("cat", "dog")))
    assert "compared by their place: left, right in" in capsys.readouterr().err


# Surroundings


def test_where_data_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("SPURLESS_DATA", str(tmp_path / "by env"))
    assert "by env" in mistake("train", "erm", "waterbirds")
    assert "by option" in mistake("train", "erm", "waterbirds", "--data-root", "by option")
    assert "by option" in mistake("data", "describe", "waterbirds", "--data-root", "by option")
    monkeypatch.delenv("SPURLESS_DATA")
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "by cache"))
    assert "by cache" in mistake("train", "erm", "waterbirds")


def test_tensorboard():
    pytest.importorskip("tensorboardX")
    row = json.loads(invoke("train", "erm", "toy", *SHORT, "--out", "run", "--tensorboard", "log", "--json").stdout)
    assert row["status"] == "done"
    (events,) = Path("log").glob("events.*")
    logged = events.read_bytes()
    assert b"erm/loss" in logged and b"erm/val_accuracy" in logged
    Path("file").touch()
    assert "cannot be used" in mistake("train", "erm", "toy", *SHORT, "--out", "run", "--tensorboard", "file")


def test_a_reader_that_goes_away_is_no_mistake(monkeypatch, finished):
    def closed(*_, **__):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("spurless.cli.runs.show_result", closed)
    result = CliRunner().invoke(app, ["show", str(finished[0])])
    assert result.exit_code == 1 and result.stderr == ""


def lopsided(path, test):
    """500 yes/f, 500 no/m and one of each other. A fifth of those of the classes in `test` is the test split; of the
    two single ones, only no/f can be in it."""
    lines = ["x,sex,label,split"]
    for label, sex, n in (("yes", "f", 500), ("no", "m", 500), ("yes", "m", 1), ("no", "f", 1)):
        for i in range(n):
            in_test = label in test and ((label, sex) == ("no", "f") or i % 5 == 0) and (label, sex) != ("yes", "m")
            lines.append(f"{(1 if label == 'yes' else -1) + i / 1000},{sex},{label},{'test' if in_test else 'train'}")
    path.write_text("\n".join(lines))
    return f"csv:{path}"


def test_groups_and_classes_without_test_samples_are_said_everywhere(tmp_path):
    """A worst group of 100 % must not come of the worst group having no sample."""
    how = ["--set", "data.attribute=sex", "--set", "recipe.epochs=3", "--device", "cpu"]
    train = ["train", "erm", lopsided(tmp_path / "a.csv", ("yes", "no")), *how, "--out", str(tmp_path / "run")]
    row = json.loads(invoke(*train, "--json").stdout)
    known = {(g["label"], g["value"]): g["n"] for g in row["scores"]["small_groups"]}
    assert known == {("yes", "m"): 0, ("no", "f"): 1} and row["scores"]["groups_total"] == 4
    page = tmp_path / "page.html"
    invoke("report", str(tmp_path / "run"), "--out", str(page))
    for text in (
        invoke(*train).stdout,
        "\n".join(row["notes"]),
        invoke("card", str(tmp_path / "run")).stdout,
        page.read_text(),
    ):
        flat = " ".join(text.split())
        assert "of the 3 of 4 groups that have test samples" in flat, text
        assert "Without test samples: yes, sex=m." in flat and "no, sex=f (n = 1)" in flat
    gone = ["train", "erm", lopsided(tmp_path / "b.csv", ("no",)), *how, "--out", str(tmp_path / "gone")]
    row = json.loads(invoke(*gone, "--json").stdout)
    assert row["scores"]["unbiased"] is None and row["scores"]["worst_group"] is None
    assert row["scores"]["missing_classes"] == ["yes"]
    assert "No test samples of the class yes:" in " ".join(invoke(*gone).stdout.split())
    scored = json.loads(
        invoke("evaluate", str(tmp_path / "run"), f"csv:{tmp_path / 'b.csv'}", *how[:2], "--json").stdout
    )
    assert scored["scores"]["worst_group"] is None and any("of the class yes" in note for note in scored["notes"])


def test_a_sweep_says_which_groups_and_classes_it_could_not_score(tmp_path):
    how = ["--set", "data.attribute=sex", "--set", "recipe.epochs=1", "--over", "lr", "--values", "0.01,0.1"]
    how += ["--seeds", "1", "--workers", "1", "--device", "cpu"]
    for name, test, said in (
        ("a", ("yes", "no"), "Without test samples: yes, sex=m."),
        ("b", ("no",), "No test samples of the class yes:"),
    ):
        args = ["sweep", lopsided(tmp_path / f"{name}.csv", test), *how, "--out", str(tmp_path / name)]
        assert said in " ".join(invoke(*args).stdout.split())
        assert any(said in note for note in json.loads((tmp_path / name / "sweep.json").read_text())["notes"])

"""What is opened, what is overwritten, who may read it, and what a signal leaves behind."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.core.errors import DataError, FolderError
from spurless.core.files import atomic, check_output, open_regular, remove_leftovers
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.train.stage_loop import StageLoop
from tests.support.commands import class_folders, invoke, mistake

QUICK = ("--device", "cpu", "--set", "recipe.epochs=2")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_only_regular_files_are_opened(fifo):
    for path in (fifo, "/dev/zero", "/dev/null"):
        with pytest.raises(DataError, match="not a regular file"):
            open_regular(path)
    Path("link").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="link"):
        open_regular("link")
    with pytest.raises(IsADirectoryError):
        open_regular(".")


@pytest.mark.parametrize(
    "args",
    [
        ("train", "erm", "csv:{0}"),
        ("train", "erm", "toy", "--config", "{0}"),
        ("evaluate", "{0}", "toy", "--net", "mlp"),
        ("evaluate", "{0}.safetensors", "toy"),
        ("export", "{0}.safetensors"),
        ("bench", "{0}"),
        ("compare", "{0}"),
        ("compare", "{0}.jsonl"),
        ("report", "{0}"),
        ("train", "erm", "folder:photos", "--net", "linear"),
        ("show", "run"),
        ("card", "run"),
    ],
)
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_commands_neither_wait_for_a_fifo_nor_eat_a_device(args, kind, tmp_path):
    """In a process of its own, which a test can end if it hangs."""

    def make(path):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")

    for name in ("odd", "odd.safetensors", "odd.jsonl", "photos/cat/0.png", "run/settings.toml"):
        make(name)
    if "folder:photos" in args:
        class_folders("photos", ["cow", "dog"], 4)
    command = [sys.executable, "-m", "spurless", *(a.format("odd") for a in args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("Error: "), done.stderr
    assert "Traceback" not in done.stderr


def test_files_are_as_open_to_others_as_the_user_says(tmp_path):
    for mask, mode in ((0o077, 0o600), (0o022, 0o644), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            with atomic(tmp_path / f"{mask}") as part:
                part.write_text("x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}").stat().st_mode) == mode


def test_all_files_of_a_bench_are_as_open_as_the_user_says():
    before = os.umask(0o077)
    try:
        Path("spec.toml").write_text('[[block]]\ndata = "toy"\nmethods = ["erm"]\nrecipe = {epochs = 1}\n')
        invoke("bench", "spec.toml", "--out", "b", "--workers", "1", "--device", "cpu")
    finally:
        os.umask(before)
    files = [path for path in Path("b").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600} and Path("b/rows.jsonl") in files


def test_what_a_kill_left_of_a_trial_is_removed_on_resume():
    Path("spec.toml").write_text('[[block]]\ndata = "toy"\nmethods = ["erm"]\nrecipe = {epochs = 1}\n')
    bench = ("bench", "spec.toml", "--out", "b", "--workers", "1", "--device", "cpu")
    invoke(*bench)
    [row] = Path("b/cells").glob("*/row.json")
    half = row.with_name(".row.json.abcd1234")
    row.rename(half)
    invoke(*bench)
    assert row.exists() and not half.exists()


def test_what_a_kill_left_is_removed_on_resume():
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    Path("run/result.json").unlink()
    for name in (".result.json.abcd1234", ".stage-000.safetensors.x_y12345", ".settings.toml.zzzzzzzz"):
        Path("run", name).write_text("half")
    Path("run/.mine.txt").write_text("kept")
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    assert sorted(p.name for p in Path("run").iterdir() if p.name.startswith(".")) == [".mine.txt"]
    remove_leftovers(Path("nowhere"))


def test_a_truncated_checkpoint_says_what_to_remove():
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    Path("run/result.json").unlink()
    file = next(Path("run").glob("stage-*.safetensors"))
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 255])):
        file.write_bytes(damaged)
        assert f"Remove {file}" in mistake("train", "erm", "toy", *QUICK, "--out", "run")
    file.unlink()
    invoke("train", "erm", "toy", *QUICK, "--out", "run")


def test_files_of_another_kind_are_not_overwritten():
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    Image.new("RGB", (4, 4)).save("photo.png")
    Path("notes.md").write_text("# My notes\n")
    photographs = class_folders("photos", ["cat", "dog"])
    weights = Path("run/model.safetensors").read_bytes()
    for args in (
        ("report", "run", "--out", "run/model.safetensors"),
        ("report", "run", "--out", "photo.png"),
        ("card", "run", "--out", "run/model.safetensors"),
        ("card", "run", "--out", "notes.md"),
        ("data", "describe", photographs, "--sheet", "photo.png"),
        ("data", "describe", photographs, "--sheet", "run/model.safetensors"),
        ("export", "run", "--out", "photos"),
    ):
        assert re.search(
            "another kind|not drawn here|holds no export", " ".join(invoke(*args, code=2).stderr.split())
        ), args
    assert Path("run/model.safetensors").read_bytes() == weights
    assert Path("notes.md").read_text() == "# My notes\n"
    with Image.open("photo.png") as photo:
        assert photo.size == (4, 4)
    Path("mine").mkdir()
    Path("mine/export.json").write_text("{}")
    Path("mine/model.safetensors").write_bytes(b"precious")
    mistake("export", "run", "--out", "mine")
    assert Path("mine/model.safetensors").read_bytes() == b"precious"


def test_files_of_the_same_kind_are_written_again():
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    data = class_folders("photos", ["cat", "dog"])
    for _ in range(2):
        invoke("report", "run", "--out", "page.html")
        invoke("card", "run", "--out", "card.md")
        invoke("data", "describe", data, "--sheet", "sheet.png")
    Path("empty.html").touch()
    check_output("empty.html", "--out", (b"<html",))
    with pytest.raises(FolderError):
        check_output(".", "--out", (b"<html",))


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_a_checkpoint_and_the_run_ends_where_an_undisturbed_one_does(sign, tmp_path):
    args = ["train", "erm", "toy", "--device", "cpu", "--set", "recipe.epochs=120", "--set", "recipe.eval_every=0"]
    command = [sys.executable, "-m", "spurless", *args, "--out", "run", "--json"]
    history = Path("run/history.jsonl")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(sign, signal.SIG_DFL),  # under nohup the tests ignore SIGHUP, and so would it
    ) as process:
        deadline = time.monotonic() + 120
        while not (history.exists() and history.read_text().count("\n") >= 5):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.005)
        process.send_signal(sign)
        out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 130) and err.startswith("Stopped. ")
    reached = json.loads(invoke("show", "run", "--json").stdout)["checkpoint"]
    assert reached["epoch"] >= 5 and not reached["stage_done"]
    again = json.loads(invoke(*args, "--out", "run", "--json").stdout)
    whole = json.loads(invoke(*args, "--out", "whole", "--json").stdout)
    assert again["scores"] == whole["scores"]
    ours, theirs = (load_file(f"{name}/model.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(ours[k], theirs[k]) for k in ours | theirs)


def test_a_specification_runs_no_module_that_is_not_installed(tmp_path):
    Path("beside.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef f(*_): return {'a': 1}\n")
    spec = '[[block]]\ndata = "toy"\nmethods = ["erm"]\nrecipe = {epochs = 1}\n'
    how = ("bench", "spec.toml", "--out", "b", "--workers", "1", "--device", "cpu")
    for more in ('after = "beside:f"\n', 'net = "beside:f"\n', 'over = {"data.name" = ["beside:f"]}\n'):
        Path("spec.toml").write_text(spec + more)
        assert "--allow-code" in " ".join(mistake(*how).split()) and not Path("ran").exists()
    Path("spec.toml").write_text(spec + 'after = "beside:f"\n')
    command = [sys.executable, "-m", "spurless", *how, "--allow-code"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    assert Path("ran").exists()


def test_encoders_of_the_hub_run_no_code_of_their_own(monkeypatch):
    pytest.importorskip("transformers")
    import transformers

    from spurless.core.errors import UserError
    from spurless.data.tokens import tokens_of
    from spurless.nets import build

    seen = []

    def refuse(*_, **how):
        seen.append(how)
        raise OSError("not here")

    for name in ("AutoConfig", "AutoModel", "AutoTokenizer"):
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", refuse)
    with pytest.raises(UserError):
        build("hf:someone/something", (2, 16), 2)
    with pytest.raises(UserError):
        tokens_of("someone/something")
    assert len(seen) == 2 and all(how["trust_remote_code"] is False for how in seen)


def test_a_pickle_is_refused_without_advice_to_run_it():
    import pickle

    Path("evil.pt").write_bytes(pickle.dumps(print))
    said = mistake("evaluate", "evil.pt", "toy", "--net", "mlp")
    assert "weights_only" not in said and "not loaded" in said


@pytest.mark.parametrize("method", ["erm", "pgd"])
def test_a_folder_that_is_removed_during_the_run_stops_it(method, monkeypatch):
    """A file of a later epoch would lie there without settings, and the command would end as if all were well."""
    epochs = StageLoop._end_epoch

    def removes(self, asked):
        shutil.rmtree("run", ignore_errors=True)
        return epochs(self, asked)

    with monkeypatch.context() as patch:
        patch.setattr(StageLoop, "_end_epoch", removes)
        said = mistake("train", method, "toy", *QUICK, "--out", "run")
    assert "run/settings.toml was removed while the run was training" in said
    assert not Path("run/result.json").exists() and not Path("run/model.safetensors").exists()
    invoke("train", method, "toy", *QUICK, "--out", "again")


@pytest.mark.parametrize(
    "line", ['{"stage": "erm", "epoch": 1}', '{"stage": 1, "stage_index": 0}', "[]", '{"stage": "erm", "epoch": "x"}']
)
def test_a_history_of_other_keys_is_damaged(line):
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    Path("run/result.json").unlink()
    Path("run/history.jsonl").write_text(f"{line}\n")
    for command in (("train", "erm", "toy", *QUICK, "--out", "run"), ("show", "run")):
        assert "run/history.jsonl is damaged" in mistake(*command)


def test_a_checkpoint_of_other_keys_says_what_to_remove():
    invoke("train", "erm", "toy", *QUICK, "--out", "run")
    Path("run/result.json").unlink()
    file = next(Path("run").glob("stage-*.safetensors"))
    tensors, facts = load_tensors(file)
    for damaged in ((tensors, {}), ({}, facts), ({"module.0.other": torch.zeros(1)}, facts)):
        save_tensors(file, *damaged)
        assert f"Remove {file}" in str(mistake("train", "erm", "toy", *QUICK, "--out", "run")) or "Remove it" in str(
            mistake("train", "erm", "toy", *QUICK, "--out", "run")
        )


@pytest.mark.parametrize("net", ["vgg11_lin", "resnet18", "swin_t", "simconv1", "conv3"])
def test_a_network_that_does_not_fit_the_images_gives_the_folder_back(net):
    class_folders("photos", ["cow", "dog"], 6)
    command = ("train", "erm", "folder:photos", "--net", net, "--set", "data.size=8", "--set", "recipe.epochs=1",
               "--device", "cpu", "--out", "run")  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code == 2:
        assert "cannot take inputs of shape (3, 8, 8)" in done.stderr or "takes images of at least" in done.stderr
        assert not Path("run").exists()
    else:
        assert done.exit_code == 0 and Path("run/result.json").exists()

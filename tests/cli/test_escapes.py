"""Names, values and files that hold escape sequences are printed, never obeyed."""

import json
import re
from pathlib import Path

import pytest
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from spurless import fit
from spurless.core.messages import log, printable
from spurless.core.terminal import Console
from tests.support.commands import class_folders, invoke, mistake

EVIL = "a\x1b[31mb\x1b]0;title\x07c\x9b2Jd\re\u202ef"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
QUICK = ("--device", "cpu", "--set", "recipe.epochs=1")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def harmless(result):
    for text in (result.stdout, result.stderr):
        assert not STEERS.search(text), STEERS.search(text)
    return result


def table(path="t.csv", n=60):
    lines = [f'"x{EVIL}","where{EVIL}","label"'.replace("\r", "")]
    for i in range(n):
        lines.append(f'{i % 7},"v{i % 2}{EVIL}","c{(i // 2) % 2}{EVIL}"'.replace("\r", ""))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"csv:{path}", (
        "--set",
        "data.label=label",
        "--set",
        "data.duplicates=keep",
        "--set",
        f"data.attribute=where{EVIL}".replace("\r", ""),
    )


def test_a_table_with_hostile_columns_values_and_labels():
    data, settings = table()
    harmless(invoke("train", "erm", data, *settings, *QUICK, "--out", "run"))
    harmless(invoke("show", "run"))
    harmless(invoke("evaluate", "run", data))
    harmless(invoke("data", "describe", data, *settings))
    harmless(invoke("card", "run"))
    harmless(invoke("audit", data, *settings, *QUICK, "--out", "audit"))
    harmless(invoke("prune", "run", "--out", "pruned", "--device", "cpu"))
    harmless(invoke("report", "run", "--title", EVIL))
    row = json.loads(invoke("train", "erm", data, *settings, *QUICK, "--out", "run", "--json").stdout)
    assert "\\u001b[31m" in json.dumps(row)  # JSON has the names as they are


def test_folders_with_hostile_names():
    name = EVIL.replace("\x00", "")
    data = class_folders("photos", [f"cat{name}", f"dog{name}"])
    harmless(invoke("train", "erm", data, *QUICK, "--net", "linear", "--out", f"run{name}"))
    harmless(invoke("data", "describe", data, "--sheet", f"sheet{name}.png"))


@pytest.mark.parametrize(
    "args",
    [
        ("train", f"erm{EVIL}", "toy"),
        ("train", "erm", f"toy{EVIL}"),
        ("train", "erm", "toy", "--net", f"mlp{EVIL}"),
        ("train", "erm", "toy", "--recipe", f"r{EVIL}"),
        ("train", "erm", "toy", "--set", f"recipe.{EVIL}=1"),
        ("train", "erm", "toy", "--set", f"recipe.lr={EVIL}"),
        ("train", "erm", "toy", "--set", f"{EVIL}.lr=1"),
        ("train", "erm", "toy", "--device", EVIL),
        ("train", "erm", f"csv:{EVIL}.csv"),
        ("train", "erm", f"folder:{EVIL}"),
        ("evaluate", EVIL, "toy"),
        ("show", EVIL),
        ("list", EVIL),
        ("report", EVIL),
        ("card", EVIL),
        ("export", EVIL),
        ("bench", f"{EVIL}.toml"),
        ("compare", EVIL),
        ("sweep", "toy", "--over", EVIL, "--values", "1,2"),
        ("data", "download", EVIL),
        ("reproduce", EVIL),
    ],
    ids=lambda args: "-".join(args)[:24].encode("ascii", "replace").decode(),
)
def test_mistakes_that_name_what_was_given(args):
    assert not STEERS.search(mistake(*args))


@pytest.mark.parametrize(
    "text",
    [
        '"k{0}" = 1\n',
        'title = "t{0}"\n[[block]]\ndata = "toy"\n"k{0}" = 1\n',
        '[[block]]\nlabel = "l{0}"\ndata = "toy"\nmethods = ["nothing"]\n',
        '[[block]]\ndata = "toy"\nmethods = ["m{0}"]\n',
        '[[block]]\ndata = "toy"\nmethods = ["erm"]\nafter = "m{0}:f"\n',
        '[[block]]\ndata = "toy"\nmethods = ["erm"]\nrecipe = {{"f{0}" = 1}}\n',
    ],
)
def test_specifications(text):
    Path("spec.toml").write_text(text.format(r"\u001b[31m\u009b2J"))
    assert not STEERS.search(mistake("bench", "spec.toml"))
    Path("config.toml").write_text('["s\\u001b[31m"]\na = 1\n')
    assert not STEERS.search(mistake("train", "erm", "toy", "--config", "config.toml"))


def test_the_table_of_a_bench():
    spec = '[[block]]\nlabel = "lEVIL"\ndata = "toy"\nrecipe = {epochs = 1}\n'
    spec += '[[block.row]]\nlabel = "rEVIL"\nmethod = "erm"\n'
    Path("spec.toml").write_text(spec.replace("EVIL", r"\u001b[31m\u009b2J"))
    for form in ("table", "markdown", "csv", "latex"):
        how = ("--out", "b", "--workers", "1", "--device", "cpu", "--format", form)
        harmless(invoke("bench", "spec.toml", *how))


def test_what_a_weights_file_says_of_itself():
    from spurless.core.tensor_files import load_tensors, save_tensors

    fit("erm", "toy", recipe={"epochs": 1}, out="run", progress=False, device="cpu")
    tensors, facts = load_tensors(Path("run/model.safetensors"))
    for change in ({"classes": [EVIL, EVIL + "2"]}, {"net": {"name": EVIL}}, {"data": EVIL, "trained_on": {EVIL: 1}}):
        save_tensors(Path("evil.safetensors"), tensors, facts | change)
        from typer.testing import CliRunner

        from spurless.cli.main import app

        harmless(CliRunner().invoke(app, ["evaluate", "evil.safetensors", "toy", "--device", "cpu"]))


def test_logged_messages(capsys):
    log.warning(f"class {EVIL}")
    err = capsys.readouterr().err
    assert "\\x1b[31m" in err and not STEERS.search(err)


def test_rich_tables_keep_their_colours_and_columns(capsys):
    console = Console(force_terminal=True, width=200, color_system="standard")
    sheet = Table("name", "n")
    sheet.add_row(escape(EVIL), "1")
    sheet.add_row(Text(EVIL, style="red"), "2")
    sheet.add_row("[link=http://evil.example]here[/link]", "3")
    console.print(sheet)
    printed = capsys.readouterr().out
    assert "\x1b[31m" in printed  # rich's own red
    assert "\x1b]" not in printed and "evil.example" not in printed and "\x9b" not in printed
    assert "\\x1b" in printed


def test_printable_keeps_all_other_text():
    text = "Größe 日本語 😀\n\ttab"
    assert printable(text) == text and printable(EVIL).isprintable()


@pytest.mark.parametrize("args", [(EVIL,), ("serve", "--port", EVIL), ("train", "erm", "toy", f"--{EVIL}")])
def test_arguments_that_no_command_takes(args):
    harmless(invoke(*args, code=2))

"""What --help and --version print, how errors are wrapped, and how long the start takes."""

import subprocess
import sys

import pytest

import spurless
from spurless.cli.common import wrapped
from spurless.cli.main import app
from tests.support.commands import invoke

COMMANDS = [info.name or info.callback.__name__.replace("_", "-") for info in app.registered_commands]


def test_the_version():
    assert invoke("--version").stdout == f"spurless {spurless.__version__}\n"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["data", "describe"], ["data", "download"]])
def test_help_shows_no_type_for_flags(command):
    printed = invoke(*command, "--help").stdout
    assert "<bool>" not in printed and "--help" in printed
    assert "goes on" not in printed and "data set" not in printed


def test_errors_end_lines_where_words_end():
    text = "Error: there is no method 'nothing'; did you mean something else? " * 3
    lines = wrapped(text, 40).split("\n")
    assert max(map(len, lines)) <= 40 and " ".join(lines) == text.strip()
    assert wrapped("a " + "/very/long/path" * 10, 30).split("\n")[1] == "/very/long/path" * 10


@pytest.mark.parametrize("script", ["import spurless", "import sys; sys.argv = ['s', '-h']; import spurless.cli.main"])
def test_the_start_is_quick(script):
    """In processor time of the fastest of three, which a busy machine does not stretch as it does the wall clock."""
    measure = f"import time; start = time.process_time()\n{script}\nprint(time.process_time() - start)"
    took = [
        float(subprocess.run([sys.executable, "-c", measure], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(took) < 0.3


@pytest.mark.parametrize("command", [["--help"], ["train", "--help"], ["data", "describe", "--help"], ["--version"]])
def test_help_loads_nothing_that_it_does_not_show(command):
    """Neither torch and numpy nor rich's Markdown and tracebacks, which take longer than all else."""
    heavy = ("torch", "numpy", "pandas", "matplotlib", "rich.markdown", "markdown_it", "rich.traceback", "pygments")
    script = f"""
import sys
from spurless.cli.main import main
sys.argv = ["spurless", *{command!r}]
try:
    main()
except SystemExit:
    pass
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Usage" in done.stdout or spurless.__version__ in done.stdout


def test_what_help_leaves_out_is_still_there_for_others():
    script = """
from spurless.cli.app import quick_help
quick_help()
from typer import rich_utils
made = rich_utils.Markdown("*so*"), rich_utils.Traceback.__mro__[1].__name__
from rich.markdown import Markdown
print(type(made[0]) is Markdown, made[1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "_Unused"]


def test_an_error_does_not_stick_to_a_spinner(monkeypatch):
    stopped = []
    monkeypatch.setattr("spurless.core.messages.displays", [lambda: stopped.append(True)])
    assert invoke("train", "pdg", "toy", code=2).stderr.startswith("Error: ") and stopped == [True]

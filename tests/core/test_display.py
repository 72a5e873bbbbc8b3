"""In IPython a mistake prints its message; elsewhere nothing is installed."""

import sys
import types

import pytest

from spurless.core import display
from spurless.core.errors import SettingError, SpurlessError
from spurless.train import progress
from spurless.train.observe import Progress


class Shell:
    def __init__(self, kernel=True):
        if kernel:
            self.kernel = object()

    def set_custom_exc(self, kinds, handler):
        self.kinds, self.handler = kinds, handler


@pytest.fixture
def shell(monkeypatch):
    made = Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: made))
    return made


def test_a_mistake_is_one_message(shell, capsys):
    display.show_errors_briefly()
    assert shell.kinds == (SpurlessError,) and issubclass(SettingError, shell.kinds)
    told = shell.handler(shell, SettingError, SettingError("There is no method 'pdg'."), None, tb_offset=None)
    assert told == ["SettingError: There is no method 'pdg'."]
    assert capsys.readouterr().err == "SettingError: There is no method 'pdg'.\n"


def test_outside_of_ipython_nothing_happens(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    display.show_errors_briefly()
    assert display.notebook() is None and not display.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    display.show_errors_briefly()
    assert not display.in_notebook()


def test_a_terminals_ipython_is_no_notebook(shell):
    assert display.in_notebook()
    del shell.kernel
    assert not display.in_notebook() and display.notebook() is shell


def test_a_notebook_has_a_line_of_progress_that_goes_away(shell, monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=shown.append)
    monkeypatch.setitem(
        sys.modules,
        "IPython.display",
        types.SimpleNamespace(Pretty=str, display=lambda text, display_id: shown.append(text) or handle),
    )
    assert isinstance(progress.bar("pgd", False), progress.Bar)
    line = progress.bar("pgd")
    with line:
        line(Progress("biased", 5, 10, row={"loss": 0.5}))
        line(Progress("biased", 6, 10))  # too soon
        line.drawn -= 1
        line(Progress("debiased", 7, 10))
    assert shown == [
        "pgd: preparing",
        "pgd: biased, step 5 of 10 loss 0.500",
        "pgd: debiased, step 7 of 10 loss 0.500",
        "",
    ]

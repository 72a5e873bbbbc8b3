"""Hostile and broken inputs: each ends well or in a sentence, never in a traceback, a hang or a silent change.

About 300 inputs by default; `make fuzz` sets FUZZ_INPUTS to 5,000.
"""

import os
import shutil
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spurless import fit
from spurless.core.errors import UserError
from spurless.core.files import from_json, from_toml, to_toml
from spurless.core.messages import printable
from spurless.core.recipe import Recipe
from spurless.core.settings import from_text, resolve
from tests.robust.generators import GENERATORS, one
from tests.robust.outcomes import BAD, CLEAN, FINE, TRACEBACK, command

INPUTS = int(os.environ.get("FUZZ_INPUTS", "280"))
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
SHARES = {
    "settings": 6,
    "options": 5,
    "specs": 5,
    "configs": 4,
    "tables": 5,
    "parquets": 3,
    "images": 3,
    "run_folders": 4,
    "changes": 3,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("finished") / "run"
    fit("erm", "toy", recipe={"epochs": 1, "batch_size": 16}, out=out, progress=False, device="cpu")
    return out


@pytest.mark.parametrize(("name", "seed"), [("options", 437), ("run_folders", 108), ("run_folders", 331)])
def test_inputs_that_once_ended_in_a_traceback(name, seed, tmp_path, finished, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert one(name, seed, tmp_path / "folder", finished).kind not in BAD


@pytest.mark.parametrize("name", GENERATORS)
def test_hostile_inputs(name, tmp_path, finished, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = INPUTS * SHARES[name] // sum(SHARES.values())
    outcomes, bad = Counter(), []
    for seed in range(FIRST, FIRST + count):
        folder = tmp_path / str(seed)
        outcome = one(name, seed, folder, finished)
        outcomes[outcome.kind] += 1
        if outcome.kind in BAD:
            bad.append(f"{name} {seed}: {outcome.kind}: {outcome.detail}")
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: {count} inputs, {dict(outcomes)}")
    assert not bad, f"{len(bad)} of {count}:\n" + "\n".join(bad[:6])
    assert outcomes[FINE] + outcomes[CLEAN] == count and outcomes[CLEAN]


def test_the_classifier_sees_what_it_is_for(tmp_path, monkeypatch):
    """Each kind of outcome, made on purpose."""
    assert command("list", "nets").kind == FINE
    assert command("list", "nonsense").kind == CLEAN

    def broken(*_):
        raise KeyError("x")

    monkeypatch.setattr("spurless.cli.data.echo", broken)
    assert command("list", "nets").kind == TRACEBACK

    def changes(*_):
        (tmp_path / "kept").write_text("new")

    (tmp_path / "kept").write_text("old")
    monkeypatch.setattr("spurless.cli.data.echo", changes)
    assert command("list", "nets", keep=[tmp_path / "kept"]).kind == "silent change"

    def waits(*_):
        while True:
            pass

    monkeypatch.setattr("spurless.cli.data.echo", waits)
    monkeypatch.setattr("tests.robust.outcomes.SECONDS", 1)
    monkeypatch.setattr("tests.robust.outcomes.faulthandler.dump_traceback", lambda **_: None)
    assert command("list", "nets").kind == "hang"


# The parsers, by themselves

FEW = hypothesis_settings(max_examples=max(20, INPUTS // 14), deadline=None, derandomize=True, database=None,
                          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
PLAIN = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(max_size=20))
KEYS = st.text(min_size=1, max_size=10)


@FEW
@given(
    st.dictionaries(
        KEYS, st.one_of(PLAIN, st.lists(PLAIN, max_size=3), st.dictionaries(KEYS, PLAIN, max_size=3)), max_size=5
    )
)
def test_settings_survive_toml(table):
    assert from_toml(to_toml(table)) == table


@FEW
@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_sentence(text):
    from_text(text)
    for name in ("lr", "epochs", "betas", "optimizer", "nesterov", "schedule"):
        with suppress(UserError):
            assert name in resolve(Recipe, {name: text}, "recipe")


@FEW
@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal(text):
    printed = printable(text)
    assert printable(printed) == printed
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in printed)


@FEW
@given(st.binary(max_size=60))
def test_bytes_are_json_or_a_value_error(data):
    try:
        from_json(data)
    except ValueError:
        return

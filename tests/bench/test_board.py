"""What a person sees while trials run."""

import os
import random
import statistics
import time
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from spurless.bench import Trial
from spurless.bench.board import Board, Clock
from spurless.bench.executors.base import Event
from tests.support.trials import QUICK, TOY, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_time_left_is_the_work_left_at_the_speed_so_far(monkeypatch):
    now = [-30.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"row": "a"}) for seed in range(4)]
    clock = Clock(trials, [], 2)
    assert clock.seconds_left() is None
    now[0] = 0.0  # until then processes were being started
    clock.start(trials[0])
    clock.start(trials[1])
    now[0] = 10.0
    for one in trials[:2]:
        clock.end(one, {"status": "done", "wall_seconds": 10.0})
    # 20 seconds of work were done in 10: at that speed the 20 seconds that are left take 10.
    assert clock.seconds_left() == pytest.approx(10.0)
    clock.start(trials[2])
    now[0] = 14.0
    assert clock.seconds_left() == pytest.approx((6 + 10) / ((20 + 4) / 14))  # the one on its way counts, too
    clock.start(trials[2])  # someone else is at it: it is asked for again, and does not begin anew
    assert clock.seconds_left() == pytest.approx((6 + 10) / ((20 + 4) / 14))
    known = {"status": "done", "wall_seconds": 8.0, "labels": {"row": "a"}, "key": "k"}
    assert Clock(trials, [known], 2).seconds_left() == pytest.approx(4 * 8 / 2)


def test_time_left_costs_a_median_for_each_place_and_is_that_of_each_trial(monkeypatch):
    now, asked, median = [0.0], [], statistics.median
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"row": "abc"[seed % 3]}) for seed in range(30)]
    clock, left, began, known = Clock(trials, [], 2), list(trials), {}, {"a": [], "b": [], "c": []}
    numbers, work = random.Random(0), 0.0
    for one in trials[:20]:
        if one.seed % 5:  # on a cluster nobody says when a trial starts
            clock.start(one)
            began.setdefault(one.key, now[0])
        running = next(c for c in left if c is not one)
        clock.start(running)
        began.setdefault(running.key, now[0])  # told again, it goes on
        now[0] += numbers.uniform(1, 3)
        took = numbers.uniform(1, 3)
        clock.end(one, {"status": "done", "wall_seconds": took})
        left.remove(one)
        work += took if one.key not in began else now[0] - began.pop(one.key)
        known[one.labels["row"]].append(took)
        middles = {k: median(times) for k, times in known.items() if times}
        each = [middles.get(c.labels["row"], sum(middles.values()) / len(middles)) for c in left]
        spent = [now[0] - began.get(c.key, now[0]) for c in left]
        monkeypatch.setattr(statistics, "median", lambda times: asked.append(0) or median(times))
        speed = (work + sum(spent)) / now[0]
        expected = sum(max(0.0, whole - gone) for whole, gone in zip(each, spent, strict=True)) / speed
        assert clock.seconds_left() == pytest.approx(expected)
        assert len(asked) == len(middles)
        asked.clear()


def test_the_board_says_what_happens(capsys):
    board = Board()
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"block": "Toy", "row": "Vanilla"}) for seed in (0, 1)]
    with board:
        board(Event("plan", plan=(trials, [{"key": "k", "status": "done", "wall_seconds": 1}], 2)))
        board(Event("start", trials[0]))
        board(Event("row", trials[0], {"status": "done", "scores": {"unbiased": 71.5}, "wall_seconds": 3.0}))
        board(Event("start", trials[1]))
        board(Event("busy", trials[1]))
        board(Event("row", trials[1], {"status": "failed", "error": "no data\nmore"}))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0] == "3 trials, 1 are done; 2 to do, 2 at a time."
    assert lines[1].startswith("[2/3] Toy, Vanilla, seed 0: unbiased 71.50 (3 s); ") and lines[1].endswith(" left")
    assert lines[2:] == [
        "Toy, Vanilla, seed 1: another process is at it",
        "[3/3] Toy, Vanilla, seed 1: failed (no data)",
    ]

    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(board.render())
    console.file.close()
    text = console.export_text()
    assert "done 2 of 3" in text and "failed 1" in text and "unbiased 71.50 (3 s)" in text


def test_in_a_terminal_the_table_lives_while_trials_run(monkeypatch):
    from spurless.core.terminal import Console

    monkeypatch.setattr("spurless.core.terminal.Console", partial(Console, force_terminal=True, width=100))
    board, seen = Board(), StringIO()
    board.console.file = seen

    def shown():
        lines = board.console.render_lines(board.render())
        return "\n".join("".join(part.text for part in line) for line in lines)

    first, second, third = trial(), trial(seed=1), trial(seed=2)
    done = {"key": first.key, "status": "done", "scores": {"average": 50.0}, "wall_seconds": 4.0}
    with board:
        assert board.live is not None and board.live.is_started
        board(Event("plan", plan=([first, second, third], [], 2)))
        board(Event("start", first))
        board(Event("start", second))
        assert "done 0 of 3  running 2" in shown() and "left:" not in shown()
        board(Event("row", first, done))
        assert "done 1 of 3  running 1  left: " in shown() and "average 50.00 (4 s)" in shown()
        board(Event("row", second, {"key": second.key, "status": "failed", "error": "no memory"}))
        assert "failed 1" in shown() and "failed (no memory)" in shown() and "running" not in shown()
        board.live.refresh()
    assert not board.live.is_started and "done 1 of 3" in seen.getvalue()

"""What a shared stage's key says: all that its outcome depends on, and nothing else."""

import errno
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from spurless import fit
from spurless.core.method import PLAIN, Stage
from spurless.core.recipe import Recipe
from spurless.train.shared_stages import Shelf
from tests.support.worlds import tiny

RECIPE = Recipe("adam", 1e-2, batch_size=32, epochs=6, until_accuracy=85.0)
PLAINLY = ({"name": "eiil", "identify_epochs": 6, "steps": 50}, {"name": "cnc", "identify_epochs": 6})


def go(method, stages=None):
    return fit(method, tiny(n=400), net="mlp", recipe=RECIPE, device="cpu", progress=False, stages=stages)


def told(result):
    """Its history without the times."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]


@pytest.mark.parametrize("method", PLAINLY, ids=lambda m: m["name"])
def test_a_stage_that_the_criterion_may_end_is_not_one_of_the_same_length_that_it_may_not(method, tmp_path):
    alone, plain = go(method), go("erm")
    assert len(plain.history) < 6 == sum(row["stage_index"] == 0 for row in alone.history)
    go("erm", tmp_path / "plain first")
    assert told(go(method, tmp_path / "plain first")) == told(alone)
    go(method, tmp_path / "plain last")
    assert told(go("erm", tmp_path / "plain last")) == told(plain)


@pytest.mark.parametrize("criterion", [{}, {"until_accuracy": 100}, {"until_loss": 0.1}], ids=str)
def test_keys_differ_only_where_there_is_a_criterion(criterion, tmp_path):
    """Without one they are as they were, so that what lies on older shelves is found."""
    net = nn.Linear(2, 2)
    shelf = Shelf(tmp_path, {"recipe": asdict(replace(Recipe(), **criterion))})
    stage = Stage("plain", lambda b: b.x.sum(), torch.optim.SGD(net.parameters(), 0.1), model=net, shared=PLAIN)
    keys = {shelf.key(0, s, 60, [net]) for s in (stage, replace(stage, epochs=6.0), replace(stage, until=False))}
    assert len(keys) == (2 if criterion else 1)
    assert shelf.key(0, replace(stage, epochs=6.0, until=True), 60, [net]) == shelf.key(0, stage, 60, [net])


def test_without_locks_a_stage_is_trained_and_not_waited_for(tmp_path, monkeypatch):
    def none(path):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("spurless.core.files._lock", none)
    assert Shelf(tmp_path, {}).reserve("key")
    monkeypatch.undo()
    first, second = Shelf(tmp_path, {}), Shelf(tmp_path, {})
    assert first.reserve("key") and first.reserve("key") and not second.reserve("key")
    first.release()
    assert second.reserve("key")
    second.release()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    from spurless.core import files as paths

    place, taken, take = tmp_path / ".lock", [], paths._lock

    def late(file):
        """Who held it ends between our opening the file and our locking it."""
        take(file)
        taken.append(file)
        if len(taken) == 1:
            place.unlink()

    monkeypatch.setattr(paths, "_lock", late)
    held = paths.lock(place)
    assert len(taken) == 2 and held is taken[1] and taken[0].closed
    assert place.exists() and paths.lock(place) is None
    held.close()


def test_what_a_kill_left_of_a_stage_is_removed_unless_someone_is_writing_it(tmp_path):
    stages = tmp_path / "stages"
    mine, ended = Shelf(stages, {}), Shelf(stages, {})
    assert mine.reserve("a1") and ended.reserve("b2")
    ended.release()
    for key in ("a1", "b2"):
        (stages / f".{key}.safetensors.x7af2f_k").touch()
    Shelf(stages, {})
    assert [path.name for path in stages.glob(".*.safetensors.*")] == [".a1.safetensors.x7af2f_k"]
    mine.release()

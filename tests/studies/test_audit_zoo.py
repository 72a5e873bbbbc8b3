"""The zoo by which the audit is judged: what is planted is there, and the final set is apart from the others."""

from collections import Counter

import numpy as np
import pytest
import torch

from studies.audit.__main__ import measured
from studies.audit.final import FINAL_KINDS
from studies.audit.jobs import REPAIRS, Job, jobs, run
from studies.audit.kinds import KINDS, Kind
from studies.audit.make import make_apart, planted
from studies.audit.plants import FINAL, PLANTS, TINTED
from studies.audit.tables import birds, quoted, rate, read, summary


def test_the_final_set_is_large_enough_and_shares_no_data_with_the_kinds_of_development():
    assert sum(k.clean for k in FINAL_KINDS) >= 200 and sum(not k.clean for k in FINAL_KINDS) >= 40
    assert max(Counter(k.name for k in (*KINDS, *FINAL_KINDS)).values()) == 1
    used = {(k.base, k.plant) for k in KINDS if k.domain == "small"}
    assert not used & {(k.base, k.plant) for k in FINAL_KINDS}
    known = {k.plant for k in KINDS if k.plant and not k.clean}
    assert not known & {k.plant for k in FINAL_KINDS if not k.clean} - {"place"}
    pairs = {k.base.split()[-3:][0] for k in FINAL_KINDS if k.domain == "small"}
    assert pairs <= {"fashion_test", "cifar_test", "mnist_test", "kmnist"}, "an image that served to develop"


@pytest.mark.parametrize("name", sorted(PLANTS | FINAL))
def test_a_plant_changes_images_and_differs_between_its_values(name):
    rng = np.random.default_rng(0)
    x = torch.rand(4, 3, 28, 28, generator=torch.Generator().manual_seed(0)) * 0.6
    x[..., 8:20, 8:20] += 0.3
    x[..., :4, :] = x[..., -4:, :] = 0.0
    plant = (PLANTS | FINAL)[name]
    one, zero = (plant(x.clone(), value, rng) for value in (1, 0))
    assert one.shape == zero.shape == x.shape and bool(one.isfinite().all())
    assert float((one - zero).abs().mean()) > 0.001
    if name not in TINTED and name not in ("texture", "slope"):
        assert torch.equal(zero, x), "something is planted where nothing should be"


def test_what_is_planted_agrees_as_often_as_it_says_in_each_half():
    y = np.arange(20_000) % 2
    a = planted(y, (0.95, 0.5), np.random.default_rng(0))
    assert np.mean((a == y)[:10_000]) == pytest.approx(0.95, abs=0.01)
    assert np.mean((a == y)[10_000:]) == pytest.approx(0.5, abs=0.02)
    one = planted(np.arange(1000) % 10, 1.0, np.random.default_rng(0), one=True)
    assert one.tolist() == [int(k % 10 == 0) for k in range(1000)]


def test_fresh_data_of_a_repair_is_apart_and_says_nothing(tmp_path):
    kind = Kind("made", "table", "copies", "code", ("code",), 400, "develop")
    data, fresh, points_to = make_apart(kind, 0.95, 0, tmp_path)
    assert len(data.train) == len(fresh) == len(points_to) == 400 and data.train.a is None
    rows = {tuple(row) for row in data.train.x.numpy().round(5).tolist()}
    assert not rows & {tuple(row) for row in fresh.x.numpy().round(5).tolist()}
    assert 0.4 < float((points_to == fresh.y).float().mean()) < 0.6


def test_a_run_has_every_job_once():
    every = jobs("final", 1, 1, 0)
    assert max(Counter(job.key for job in every).values()) == 1
    assert Counter(job.what for job in every) == {
        "zoo": sum(1 if k.clean else 3 for k in FINAL_KINDS), "waterbirds": 20, "repair": len(REPAIRS),
    }  # fmt: skip


def test_the_table_counts_by_hand():
    made = {"half": "final", "domain": "text", "n": 100}
    rows = [
        made | {"kind": "a", "clean": False, "verdict": "gap", "without_attributes": "found", "named_right": True,
                "harmful": True},
        made | {"kind": "b", "clean": False, "verdict": "no evidence", "without_attributes": "available",
                "named_right": False, "harmful": False},
        made | {"kind": "c", "clean": True, "verdict": "found", "without_attributes": "found", "named_right": False},
    ]  # fmt: skip
    line = next(line for line in summary(rows, "final").splitlines() if line.startswith("| text"))
    shares = [cell.split("%")[0].strip() for cell in line.split("|")[2:-1]]
    assert shares == ["50", "100", "50", "100", "100", "0"]
    assert quoted(rows)["text"]["false_alarms"] == rate([True]) and set(quoted(rows)) == {"text"}
    draws = [{"kind": "waterbirds, 95 %", "verdict": v} for v in ("found", "available", "found")]
    assert "n = 3 | 2 | 1 | 0 |" in birds(draws)


def test_processes_of_their_own_measure_what_one_would_and_a_failure_is_a_row(tmp_path):
    kind = Kind("made", "table", "copies", "", (), 120, "develop")
    broken = kind._replace(name="broken", base="no such base 1 2")
    out = tmp_path / "rows.jsonl"
    assert measured([Job("zoo", kind, 0.5, 0), Job("zoo", broken, 0.5, 0)], out, 2, 1e9) == 1
    rows = {row["kind"]: row for row in read(out)}
    assert rows["made"]["verdict"] and "KeyError" in rows["broken"]["error"]
    alone = run(Job("zoo", kind, 0.5, 0))
    assert {k: v for k, v in alone.items() if k != "seconds"} == {
        k: v for k, v in rows["made"].items() if k != "seconds"
    }

"""The zoo by which the audit is judged: what is planted is there, and the final set is apart from the others."""

from collections import Counter

import numpy as np
import pytest
import torch

from studies.audit.__main__ import measured
from studies.audit.final import FINAL_KINDS
from studies.audit.final2 import FINAL2, FINAL2_KINDS, NOTED2, REPAIRS2
from studies.audit.final3 import CONTROLS, FINAL3, FINAL3_KINDS
from studies.audit.harmed import CANDIDATES, HARMED, SETS, WANTED, points
from studies.audit.jobs import REPAIRS, Job, harmed_jobs, jobs, run
from studies.audit.kinds import ADDED, KINDS, Kind
from studies.audit.make import make_apart, planted
from studies.audit.notes import NOTE_SHARES, made
from studies.audit.plants import FINAL, PLANTS, TINTED
from studies.audit.plants2 import PLANTS2
from studies.audit.plants3 import PLANTS3, TINTED3
from studies.audit.tables import birds, noted, quoted, rate, read, summary


def test_the_final_set_is_large_enough_and_shares_no_data_with_the_kinds_of_development():
    assert sum(k.clean for k in FINAL_KINDS) >= 200 and sum(not k.clean for k in FINAL_KINDS) >= 40
    assert max(Counter(k.name for k in (*KINDS, *FINAL_KINDS)).values()) == 1
    used = {(k.base, k.plant) for k in KINDS if k.domain == "small"}
    assert not used & {(k.base, k.plant) for k in FINAL_KINDS}
    known = {k.plant for k in KINDS if k.plant and not k.clean}
    assert not known & {k.plant for k in FINAL_KINDS if not k.clean} - {"place"}
    pairs = {k.base.split()[-3:][0] for k in FINAL_KINDS if k.domain == "small"}
    assert pairs <= {"fashion_test", "cifar_test", "mnist_test", "kmnist"}, "an image that served to develop"


def test_the_second_final_set_shares_no_plant_and_no_pair_of_a_split_with_what_was_seen():
    seen = [*KINDS, *FINAL_KINDS]
    assert sum(k.clean for k in FINAL2_KINDS) >= 200 and sum(not k.clean for k in FINAL2_KINDS) >= 40
    assert max(Counter(k.name for k in (*seen, *FINAL2_KINDS)).values()) == 1
    planted_kinds = [k for k in FINAL2_KINDS if not k.clean]
    assert {k.plant for k in seen if not k.clean} & {k.plant for k in planted_kinds} == {"place"}
    assert set(REPAIRS2) <= {k.name for k in planted_kinds} and len(REPAIRS2) == 10

    def pair(kind):  # one base, at any size
        return kind.base.removeprefix("large ").removeprefix("files ").removeprefix("late_")

    images = ("fashion", "cifar", "mnist")
    late = {name for name, *_ in ADDED}  # ten pairs, of which both splits were seen at one size
    known = {pair(k) for k in seen if k.name not in late}
    clean = {pair(k) for k in FINAL2_KINDS if k.clean and not k.plant and pair(k).startswith(images)}
    assert not {p for p in clean if not p.endswith("all")} & known
    for base in ("fashion", "cifar"):
        for size in ("", "large "):
            own = [k.base for k in FINAL2_KINDS if k.clean and k.base.startswith(f"{size}late_{base}") and not k.plant]
            assert len({tuple(b.split()[-2:]) for b in own if not b.endswith("all")}) == 45, "not every pair"


@pytest.mark.parametrize("name", SETS)
def test_the_cases_of_repair_are_new_and_their_models_harmed(name):
    seen = [*KINDS, *FINAL_KINDS, *FINAL2_KINDS, *(k for k in CANDIDATES if k.half == HARMED != name)]
    own = [k for k in CANDIDATES if k.half == name]
    assert not {(k.base, k.plant) for k in own} & {(k.base, k.plant) for k in seen} - {("waterbirds", "place")}
    assert not {k.name for k in own} & {k.name for k in seen}
    row = {"half": "harm", "strength": 0.98, "seed": 50, "aligned": [95, 100]}
    rows = [row | {"kind": k.name, "conflicting": [40 if i % 5 else 90, 100]} for i, k in enumerate(own)]
    assert {job.what for job in harmed_jobs(name, rows[:-1])} == {"harm"}  # until all are measured
    wanted = harmed_jobs(name, rows)
    assert Counter(job.kind.domain for job in wanted) == WANTED and {job.what for job in wanted} == {"repair"}
    assert own[0].name not in {job.kind.name for job in wanted}, "its model is not harmed"
    assert {(job.kind.half, job.seed) for job in wanted} == {(name, 60)}


def test_the_third_final_set_shares_no_plant_and_no_set_of_classes_with_what_was_seen():
    seen = [*KINDS, *FINAL_KINDS, *FINAL2_KINDS]
    assert sum(k.clean for k in FINAL3_KINDS) >= 100 and sum(not k.clean for k in FINAL3_KINDS) >= 40
    assert max(Counter(k.name for k in (*seen, *FINAL3_KINDS)).values()) == 1
    planted_kinds = [k for k in FINAL3_KINDS if not k.clean]
    assert {k.plant for k in seen if not k.clean} & {k.plant for k in planted_kinds} == {"place"}
    images = [k for k in FINAL3_KINDS if k.domain in ("small", "photo")]
    assert not {(k.base, k.plant) for k in seen} & {(k.base, k.plant) for k in images} - {
        ("waterbirds", "place"),
        ("waterbirds", "balanced"),
    }
    assert not any("early_" in k.base for k in seen)
    every = jobs(FINAL3, 1, 1, 0)
    assert {job.half for job in every} == {FINAL3, "waterbirds 3"} and len({job.key for job in every}) == len(every)
    again = jobs(CONTROLS, 1, 1, 0)
    assert {job.half for job in again} == {CONTROLS, "waterbirds 4"}
    assert not {job.key[:3] for job in again} & {job.key[:3] for job in every}
    assert sum(job.kind is not None and job.kind.clean for job in again) >= 200


def test_doubles_and_sorted_rows_are_what_they_say():
    kind = Kind("made", "table", "wine", "doubles", ("doubles",), 100, "develop")
    data = made(kind, 1.0, np.random.default_rng(0))
    near = [(data.train.x - row).abs().gt(1e-6).sum(1).min() for row in data.test.x]
    assert len(data.test) == 30 and max(map(int, near)) <= 1
    order = made(kind._replace(plant="sorted"), 1.0, np.random.default_rng(0))
    assert order.test is None and order.train.y.diff().abs().sum() == 1
    assert NOTE_SHARES[-1] == 1.0 and {k.plant for k in NOTED2} == {"", "doubles", "sorted"}
    rows = [
        {"half": "notes", "kind": "doubles", "strength": 0.3, "clean": False, "noted": ["doubles"]},
        {"half": "notes", "kind": "as it is", "strength": None, "clean": True, "noted": []},
    ]
    assert "| 30% | 100 % [21–100], n = 1 | 0 % [0–79], n = 1 |" in noted(rows, "notes")


def test_harm_is_measured_on_fresh_balanced_samples():
    from studies.audit.measure import harm

    pytest.importorskip("sklearn")
    row = harm(Kind("harmed", "table", "copies", "clinic", ("clinic",), 300, "harmed"), 0.98, 0)
    assert row["aligned"][1] + row["conflicting"][1] == 300 and abs(row["aligned"][1] - 150) < 40
    assert row["half"] == "harm" and points(row) > 20


@pytest.mark.parametrize("name", sorted(PLANTS | FINAL | PLANTS2 | PLANTS3))
def test_a_plant_changes_images_and_differs_between_its_values(name):
    rng = np.random.default_rng(0)
    x = torch.rand(4, 3, 28, 28, generator=torch.Generator().manual_seed(0)) * 0.6
    x[..., 8:20, 8:20] += 0.3
    x[..., :4, :] = x[..., -4:, :] = 0.0
    plant = (PLANTS | FINAL | PLANTS2 | PLANTS3)[name]
    one, zero = (plant(x.clone(), value, rng) for value in (1, 0))
    assert one.shape == zero.shape == x.shape and bool(one.isfinite().all())
    assert float((one - zero).abs().mean()) > 0.001
    if name not in (*TINTED, *TINTED3, "purple_lime", "tinged", "texture", "slope", "dotted", "chequered"):
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
    second = jobs(FINAL2, 1, 1, 0)
    assert not {job.key for job in every} & {job.key for job in second}
    assert max(Counter(job.key for job in second).values()) == 1


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
    draws = [{"kind": "waterbirds, 95 %", "half": "waterbirds", "verdict": v} for v in ("found", "available", "found")]
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

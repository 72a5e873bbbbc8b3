"""studies/rows.py: measured rows survive being packed, and tables keep the order of the files that they were."""

import json
from concurrent.futures import ThreadPoolExecutor

from studies.rows import RESULTS, holds, named, pack, put


def test_packing_keeps_every_row_and_the_order_of_files(tmp_path):
    measured = {name: {"key": name, "scores": {"average": i / 7}} for i, name in enumerate(("b-1", "b-1-c", "a"))}
    (tmp_path / "table").mkdir()
    for name, row in measured.items():
        (tmp_path / "table" / f"{name}.json").write_text(json.dumps(row, indent=1))
    order = [path.stem for path in sorted((tmp_path / "table").iterdir())]
    assert pack(tmp_path) == 3
    assert named(tmp_path / "table") == measured and list(named(tmp_path / "table")) == order
    assert [path.name for path in tmp_path.iterdir()] == ["table.jsonl"]


def test_packing_again_adds_new_rows_and_renews_old_ones(tmp_path):
    put(tmp_path / "table" / "old", {"value": 1})
    put(tmp_path / "table" / "renewed", {"value": 1})
    (tmp_path / "table").mkdir()
    for name in ("new", "renewed"):
        (tmp_path / "table" / f"{name}.json").write_text('{"value": 2}')
    assert pack(tmp_path) == 2 and pack(tmp_path) == 0
    assert named(tmp_path / "table") == {"new": {"value": 2}, "old": {"value": 1}, "renewed": {"value": 2}}


def test_a_sweep_keeps_its_folder(tmp_path):
    (tmp_path / "sweep_toy").mkdir()
    (tmp_path / "sweep_toy" / "sweep.json").write_text("{}")
    assert pack(tmp_path) == 0 and (tmp_path / "sweep_toy" / "sweep.json").exists()


def test_rows_that_are_written_at_once_are_all_kept(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: put(tmp_path / "table" / str(i), {"i": i}), range(20)))
    assert {row["i"] for row in named(tmp_path / "table").values()} == set(range(20))
    assert holds(tmp_path / "table" / "7") and not holds(tmp_path / "table" / "20")


def test_the_committed_tables_are_packed_and_sorted():
    tables = sorted(RESULTS.glob("*.jsonl"))
    assert len(tables) > 30
    for table in tables:
        names = [json.loads(line)["name"] for line in table.read_text(encoding="utf-8").splitlines()]
        assert names == sorted(set(names), key=lambda name: f"{name}.json"), table.name

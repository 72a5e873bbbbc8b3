"""The soak by itself: what it takes for the same, and a few kills. `make soak` makes 200."""

import json

import pytest
import torch

from spurless.core.tensor_files import load_tensors, save_tensors
from tests.robust.soak import Failed, compare, contents, soak, table


def write(folder):
    folder.mkdir()
    save_tensors(folder / "model.safetensors", {"w": torch.arange(4.0)}, {"seconds": 1.0, "net": "mlp"})
    (folder / "result.json").write_text(json.dumps({"seconds": 1.0, "scores": {"average": 0.1}}))
    (folder / "rows.jsonl").write_text('{"key": "a"}\n{"key": "b"}\n')
    (folder / "settings.toml").write_text("seed = 1\n")


def one_bit(folder):
    tensors, facts = load_tensors(folder / "model.safetensors")
    tensors["w"].view(torch.int32)[3] ^= 1
    save_tensors(folder / "model.safetensors", tensors, facts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (one_bit, "model.safetensors w"),
        (lambda f: save_tensors(f / "model.safetensors", load_tensors(f / "model.safetensors")[0], {}), "facts"),
        (lambda f: (f / "result.json").write_text('{"scores": {"average": 0.10000000000000002}}'), "scores average"),
        (lambda f: (f / "rows.jsonl").write_text('{"key": "a"}\n{"key": "a"}\n'), "rows.jsonl 1 key"),
        (lambda f: (f / "rows.jsonl").write_text('{"key": "a"}\n'), "rows.jsonl"),
        (lambda f: (f / "settings.toml").write_text("seed = 2\n"), "settings.toml"),
        (lambda f: (f / ".row.json.abcd1234").touch(), "has ['.row.json.abcd1234']"),
        (lambda f: (f / "result.json").unlink(), "lacks ['result.json']"),
    ],
)
def test_a_changed_bit_and_a_file_too_many_or_too_few_are_seen(change, said, tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    change(tmp_path / "b")
    with pytest.raises(Failed, match="other bits") as told:
        compare(contents(tmp_path / "b"), contents(tmp_path / "a"))
    assert said in str(told.value)


def test_times_and_the_order_of_rows_are_no_difference(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    (tmp_path / "b" / "result.json").write_text('{"scores": {"average": 0.1}, "seconds": 2.0}')
    (tmp_path / "b" / "rows.jsonl").write_text('{"key": "b"}\n{"key": "a"}\n')
    compare(contents(tmp_path / "b"), contents(tmp_path / "a"))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_few_kills(tmp_path):
    rows = soak(3, 1, 2, tmp_path, ["pgd", "lff"])
    assert [row["end"] for row in rows] == ["identical"] * len(rows), rows
    assert hits(rows) >= 3
    assert soak(3, 1, 2, tmp_path, ["pgd", "lff"]) == rows  # kept: nothing is done again
    assert table(rows).splitlines()[-2].split() == ["all", *(str(n) for n in [len(rows), hits(rows), len(rows)])]


def hits(rows):
    return sum(len(row["hits"]) for row in rows)

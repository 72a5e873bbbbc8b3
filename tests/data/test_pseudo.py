"""Group labels from a file, for any dataset: `data.attribute=FILE.csv`."""

import csv

import pytest
import torch

import spurless
from spurless.auditing.review import Review
from spurless.core.data import Bundle, Split
from spurless.core.errors import DataError
from spurless.data.pseudo import with_attributes
from spurless.registry import load_data


def bundle(names=True):
    def split(part, y):
        own = [f"{part}/{i}" for i in range(len(y))] if names else None
        return Split(torch.zeros(len(y), 2), torch.tensor(y), names=own)

    return Bundle("birds", split("train", [0, 1, 0, 1]), test=split("test", [1, 0]), classes=("land", "water"))


def write(path, rows, head=("split", "row", "name", "label", "place")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


ROWS = [("train", 0, "train/0", "land", "forest"), ("train", 1, "train/1", "water", "lake")]
ROWS += [("train", 2, "train/2", "land", "lake"), ("test", 0, "test/0", "water", "forest")]


def test_samples_have_the_value_of_their_name_and_others_are_unknown(tmp_path):
    made = with_attributes(bundle(), write(tmp_path / "d.csv", ROWS))
    assert made.attributes == ("place",)
    assert made.values == (("forest", "lake", "unknown"),)
    assert made.train.a.tolist() == [[0], [1], [1], [2]]
    assert made.test.a.tolist() == [[0], [2]]
    assert made.notes == ("2 of 6 samples are not in d.csv: 'unknown'",)
    assert made.is_aligned(made.train)[:2].tolist() == [[True], [True]]  # counted anew


def test_names_tell_a_sample_wherever_it_lies_and_without_names_its_place_does(tmp_path):
    moved = [("train", 3, "train/0", "land", "forest"), ("val", 0, "train/1", "water", "lake")]
    assert with_attributes(bundle(), write(tmp_path / "d.csv", moved)).train.a.tolist() == [[0], [1], [2], [2]]
    placed = [("train", 2, "", "land", "forest"), ("train", 1, "", "water", "lake")]
    made = with_attributes(bundle(names=False), write(tmp_path / "e.csv", placed))
    assert made.train.a.tolist() == [[2], [1], [0], [2]]
    assert made.test.a.tolist() == [[2], [2]]


def test_names_that_a_spreadsheet_would_run_are_found_as_they_were_written(tmp_path):
    split = Split(torch.zeros(2, 2), torch.tensor([0, 1]), names=["=1+1.png", "b.png"])
    rows = [("train", 0, "'=1+1.png", "'-x", "forest"), ("train", 1, "b.png", "water", "lake")]
    made = with_attributes(Bundle("b", split, classes=("-x", "water")), write(tmp_path / "d.csv", rows))
    assert made.train.a.tolist() == [[0], [1]]


def test_known_attributes_are_replaced_or_kept(tmp_path):
    file = write(tmp_path / "d.csv", [(*row[:4], "x") for row in ROWS], ("split", "row", "name", "label", "logo"))
    y = torch.tensor([0, 1])
    own = Bundle("b", Split(torch.zeros(2, 2), y, y[:, None], ["train/0", "train/1"]), classes=("land", "water"),
                 attributes=("place",), values=(("forest", "lake"),))  # fmt: skip
    assert with_attributes(own, file).attributes == ("logo",)
    both = with_attributes(own, file, keep=True)
    assert (both.attributes, both.train.a.tolist()) == (("place", "logo"), [[0, 0], [1, 0]])
    again = with_attributes(own, write(tmp_path / "e.csv", ROWS), keep=True)
    assert again.attributes == ("place",)  # its own of that name is replaced: a person has corrected it


WRONG = {
    "labels": ([("train", 0, "train/0", "water", "x")], None, "calls sample 0 of the train split 'water'"),
    "other names": ([("train", 0, "elsewhere", "land", "x")], None, "holds no training sample"),
    "no attribute": ([], ("split", "row", "name", "label"), "holds no attribute"),
    "twice": ([], ("split", "row", "name", "label", "x", "x"), "two of one name"),
    "other columns": ([], ("file", "label"), "does not begin with"),
    "a short row": ([("train", 0)], None, "row 2"),
    "no number": ([("train", "first", "train/0", "land", "x")], None, "row 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_of_other_data_is_refused(tmp_path, case):
    rows, head, message = WRONG[case]
    file = write(tmp_path / "d.csv", rows, *([head] if head else []))
    with pytest.raises(DataError, match=message):
        with_attributes(bundle(), file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.csv cannot be read"):
        load_data({"name": "toy", "n": 50, "attribute": str(tmp_path / "gone.csv")})


def test_from_an_audit_to_groups_that_group_dro_trains_with(tmp_path):
    """The whole way: an audit, decisions, group labels, a run, and the audit again."""
    toy = {"name": "toy", "n": 600}
    found = spurless.audit(toy, out=tmp_path / "audit", progress=False, device="cpu")
    assert found.findings
    review = Review(tmp_path / "audit")
    k = next(k for k, f in enumerate(review.material.findings) if len(f.values) == 2)
    name = review.material.findings[k].name
    review.apply({"finding": k, "op": "name", "group": 0, "name": "left"})
    review.apply({"finding": k, "op": "decide", "decision": "shortcut"})
    decisions = review.decisions()
    labelled = load_data(toy | {"attribute": str(decisions.table)})
    assert labelled.attributes == (name,) and "left" in labelled.values[0]
    codes = {value: n for n, value in enumerate(labelled.values[0])}
    for i, (split, row, *_) in enumerate(review.material.places):
        grouping = review.groupings[k]
        assert int(labelled.splits[split].a[row, 0]) == codes[grouping.names[grouping.codes[i]]]
    run = spurless.fit("group_dro", toy | {"attribute": str(decisions.table)}, recipe={"epochs": 1},
                       out=tmp_path / "run", progress=False, device="cpu")  # fmt: skip
    groups = {g["value"] for g in run.scores["groups"] if g["attribute"] == name}
    assert "left" in groups
    again = spurless.audit(toy, decisions=decisions, progress=False, device="cpu")
    assert again.decisions["shortcuts"] == [name]
    assert name in again.data["attributes"]


def test_what_is_legitimate_is_not_accused_again(tmp_path):
    toy = {"name": "toy", "n": 600}
    before = spurless.audit(toy, out=tmp_path / "audit", progress=False, device="cpu")
    review = Review(tmp_path / "audit")
    for k in range(len(review.decided)):
        review.apply({"finding": k, "op": "decide", "decision": "legitimate"})
    allowed = {f["name"] for f in before.findings}
    assert set(review.decisions().legitimate) <= allowed
    after = spurless.audit(toy, decisions=tmp_path / "audit" / "decisions.json", progress=False, device="cpu")
    assert not {f["name"] for f in after.findings} & set(review.decisions().legitimate)
    assert before.verdict in ("found", "gap", "available")
    assert after.decisions["legitimate"] == list(review.decisions().legitimate)

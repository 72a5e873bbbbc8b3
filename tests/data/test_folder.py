"""Any folder of images: what it is taken for, and what is said about what is wrong with it."""

import os
import shutil
import zlib
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.core import files as paths
from spurless.core.errors import UserError
from spurless.core.settings import resolve
from spurless.data import folder
from spurless.data.folder import Folder, load
from spurless.data.ingest.splits import share_out


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def base(tmp_path):
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def colour_of(name: str) -> tuple[int, int, int]:
    """A colour of its own for every name, so that a row can be told by its pixels."""
    seed = zlib.crc32(name.encode())
    return seed & 255, seed >> 8 & 255, seed >> 16 & 255


def write(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 10), colour_of(name)).save(base / name)


def table(base: Path, *lines: str, name: str = "metadata.csv") -> None:
    (base / name).parent.mkdir(parents=True, exist_ok=True)
    (base / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows(bundle) -> dict[str, tuple]:
    """By name: split, class and attribute values in words, after a check that the pixels are that file's."""
    out = {}
    for part, split in bundle.splits.items():
        assert len(split.x) == len(split.y) == len(split.names)
        for i, name in enumerate(split.names):
            if name.endswith(".png"):
                assert split.x[i][:, 3, 3].tolist() == list(colour_of(name)), name
            a = [] if split.a is None else split.a[i].tolist()
            words = [bundle.values[k][v] for k, v in enumerate(a)]
            out[name] = (part, bundle.classes[split.y[i]], *words)
    return out


def wrong(base: Path, **settings) -> str:
    with pytest.raises(UserError) as caught:
        load(base, size=8, **settings)
    return str(caught.value)


def three_splits(base: Path) -> None:
    for part in ("train", "val", "test"):
        write(base, *(f"{part}/{c}/{part}{i}.png" for c in ("cat", "dog") for i in range(3)))


def test_split_folders(base, capsys):
    three_splits(base)
    bundle = load(base, size=8)
    got = rows(bundle)
    assert len(got) == 18
    assert all(got[name] == tuple(name.split("/")[:2]) for name in got)
    assert (bundle.name, bundle.classes, bundle.train.a, bundle.notes) == ("folder:mine", ("cat", "dog"), None, ())
    said = capsys.readouterr().err
    assert "class folders in test, train, val" in said
    assert "train 6, val 6, test 6" in said
    assert "cat, dog" in said


def test_class_folders_get_a_seeded_stratified_split(base, capsys):
    write(base, *(f"cat/{i}.png" for i in range(50)), *(f"dog/deep/{i}.png" for i in range(30)))
    bundle = load(base, size=8)
    counts = {part: torch.bincount(split.y).tolist() for part, split in bundle.splits.items()}
    assert counts == {"train": [35, 21], "val": [5, 3], "test": [10, 6]}
    first = rows(bundle)
    assert rows(load(base, size=8)) == first
    assert rows(load(base, size=8, seed=1)) != first
    note = "val (8 images) and test (16 images) drawn from the training images with data.seed=0"
    assert note in capsys.readouterr().err
    assert bundle.notes == (note,)
    # One image more moves hardly any other.
    write(base, "cat/new.png")
    after = rows(load(base, size=8))
    assert sum(after[name] != first[name] for name in first) <= 2


def test_only_the_missing_split_is_drawn(base):
    three_splits(base)
    shutil.rmtree(base / "val")
    write(base, *(f"train/{c}/more{i}.png" for c in ("cat", "dog") for i in range(7)))
    bundle = load(base, size=8)
    assert {part: torch.bincount(s.y).tolist() for part, s in bundle.splits.items()} == {
        "train": [9, 9],
        "val": [1, 1],
        "test": [3, 3],
    }
    assert all(name.startswith("train/") for name in bundle.val.names)
    assert load(base, size=8, val=0).val is None


def test_waterbirds_headers(base, capsys):
    write(base, "001.a/x.png", "001.a/y.png", "002.b/z.png", "002.b/w.png")
    table(
        base,
        "img_id,img_filename,y,split,place,place_filename",
        "1,001.a/x.png,1,0,1,/o/ocean.jpg",
        "2,002.b/z.png,0,0,0,/f/forest.jpg",
        "3,001.a/y.png,1,1,0,/o/ocean.jpg",
        "4,002.b/w.png,0,2,1,/o/ocean.jpg",
    )
    bundle = load(base, size=8)
    assert rows(bundle) == {
        "001.a/x.png": ("train", "1", "1"),
        "002.b/z.png": ("train", "0", "0"),
        "001.a/y.png": ("val", "1", "0"),
        "002.b/w.png": ("test", "0", "1"),
    }
    assert bundle.attributes == ("place",)
    said = capsys.readouterr().err
    assert "file = img_filename, label = y, attribute = place, split = split" in said
    assert "not used: columns img_id, place_filename" in said


def test_subpopbench_headers_with_absolute_paths(base):
    write(base, "p/1.png", "p/2.png", "p/3.png")
    lines = [f"{i},{base.resolve()}/p/{i}.png,{s},{y},{a}" for i, s, y, a in [(1, 0, 0, 1), (2, 0, 1, 0), (3, 2, 1, 1)]]
    table(base, "id,filename,split,y,a", *lines)
    got = rows(load(base, size=8, val=0))
    assert got == {"p/1.png": ("train", "0", "1"), "p/2.png": ("train", "1", "0"), "p/3.png": ("test", "1", "1")}


def test_hugging_face_tables_in_split_folders(base):
    for part, n in {"train": 3, "validation": 2, "test": 2}.items():
        write(base, *(f"{part}/{i}.png" for i in range(n)))
        table(base, "file_name,label", *(f"{i}.png,{'ab'[i % 2]}" for i in range(n)), name=f"{part}/metadata.csv")
    got = rows(load(base, size=8))
    assert got["train/0.png"] == ("train", "a")
    assert got["validation/1.png"] == ("val", "b")
    assert len(got) == 7
    table(base, "file_name,label,place", "0.png,a,sea", "1.png,b,land", name="test/metadata.csv")
    assert "other attribute columns" in wrong(base)


def test_a_table_without_labels_or_splits_takes_them_from_the_folders(base):
    names = [f"{part}/{c}/{part}{i}.png" for part in ("train", "test") for c in ("cat", "dog") for i in range(2)]
    write(base, *names)
    table(base, "file_name,background", *(f"{name},{'in' if 'cat' in name else 'out'}" for name in names))
    got = rows(load(base, size=8, val=0))
    assert got == {n: (n.split("/")[0], n.split("/")[1], "in" if "cat" in n else "out") for n in names}


def test_columns_by_settings_and_several_attributes(base):
    write(base, *(f"{i}.png" for i in range(12)))
    lines = [f"{i}.png;{'owl' if i % 2 else 'hen'};{'hi' if i % 3 else 'lo'};{i % 4};{'AB'[i > 7]}" for i in range(12)]
    table(base, "scan;species;light;camera;use", *lines, name="list.csv")
    ask = {"metadata": "list.csv", "file": "scan", "label": "species", "split": "use", "splits": ["A", "?", "B"]}
    settings = resolve(Folder, ask | {"attribute": ["light", "camera"], "size": "8", "val": 0}, "data")
    bundle = load(base, **settings)
    assert rows(bundle) == {
        f"{i}.png": ("test" if i > 7 else "train", "owl" if i % 2 else "hen", "hi" if i % 3 else "lo", str(i % 4))
        for i in range(12)
    }
    assert bundle.attributes == ("light", "camera")
    assert bundle.values == (("hi", "lo"), ("0", "1", "2", "3"))
    assert len(bundle.aligned) == 2
    one = load(base, **(settings | {"attribute": ("camera",)}))
    assert one.attributes == ("camera",)
    assert load(base, **(settings | {"attribute": ()})).train.a is None
    with pytest.raises(UserError, match="did you mean 'camera'"):
        load(base, **(settings | {"attribute": ("camra",)}))


def test_lff_names(base, capsys):
    for c in "01":
        write(base, *(f"align/{c}/{i}_{c}_{c}.png" for i in range(4)), f"conflict/{c}/9_{c}_{1 - int(c)}.png")
        write(base, f"valid/v{c}_{c}_{c}.png", f"test/{c}/t_a_{c}_0.png")
    bundle = load(base, size=8)
    got = rows(bundle)
    assert got["align/1/2_1_1.png"] == ("train", "1", "1")
    assert got["conflict/1/9_1_0.png"] == ("train", "1", "0")
    assert got["valid/v0_0_0.png"] == ("val", "0", "0")
    assert got["test/1/t_a_1_0.png"] == ("test", "1", "0")
    assert bundle.attributes == ("bias",)
    assert bundle.aligned[0].tolist() == [[True, False], [False, True]]
    assert "LfF/DisEnt" in capsys.readouterr().err


def test_lff_alignment_comes_from_the_folders_not_from_the_counts(base):
    write(base, *(f"align/{c}/{i}_{c}_{c}.png" for c in "01" for i in range(1)))
    write(base, *(f"conflict/0/{i}_0_1.png" for i in range(5)), "conflict/1/0_1_0.png")
    assert load(base, size=8, val=0, test=0).aligned[0].tolist() == [[True, False], [False, True]]


def test_lff_variants(base):
    for pct in ("1pct", "5pct"):
        write(base, *(f"{pct}/align/{c}/{pct}{i}_{c}_{c}.png" for c in "01" for i in range(2)))
        write(base, f"{pct}/conflict/0/{pct}_0_1.png", f"{pct}/valid/{pct}_0_0.png")
    write(base, "test/0/7_0_1.png", "test/1/7_1_1.png")
    assert "1pct, 5pct" in wrong(base)
    got = rows(load(base, size=8, variant="5pct"))
    assert got["5pct/valid/5pct_0_0.png"] == ("val", "0", "0")
    assert got["test/0/7_0_1.png"] == ("test", "0", "1")
    assert not any(name.startswith("1pct") for name in got)
    assert "did you mean '5pct'" in wrong(base, variant="5 pct")


def test_lff_mistakes(base):
    write(
        base,
        "align/0/1_0_0.png",
        "align/0/nothing.png",
        "align/1/2_0_0.png",
        "align/1/1_1_1.png",
        "conflict/1/3_1_1.png",
    )
    said = wrong(base)
    assert "align/0/nothing.png" in said
    assert "align/1/2_0_0.png" in said
    assert "conflict/1/3_1_1.png (label 1 with bias 1 is in align too)" in said


def test_everything_wrong_is_told_at_once(base):
    names = [f"p/{i}.png" for i in range(20)]
    write(base, *names)
    (base / "p/3.png").write_text("broken")
    shutil.copy(base / "p/5.png", base / "p/14.png")
    lines = [f"p/{i}.png,{'cat' if i % 2 else 'dog'},{'train' if i < 10 else 'test'}" for i in range(20)]
    lines[1] = "p/1.png,cat"
    lines[2] = "p/2.png, dog,train"
    lines[6] = "p/none.png,cat,train"
    lines[7] = "../secret.png,cat,train"
    lines[8] = "p/8.png,dog,holdout"
    lines[9] = "p/9.png,,train"
    lines[11] = "/etc/hostname,cat,test"
    lines[12] = "p/10.png,dog,train"
    lines[13] = 'p/13.png,"cat"s,test'
    lines[15] = "p/15.png,horse,test"
    lines[16] = "p/16.png,c\udcfft,test"
    (base / "metadata.csv").write_bytes("\n".join(["file,label,split", *lines]).encode("utf-8", "surrogateescape"))
    said = wrong(base)
    assert "13 problems" in said
    for part in (
        "A row that cannot be read (2). Mend it",
        "metadata.csv, line 3: it has 2 fields, and the table 3 columns",
        "metadata.csv, line 15: ",
        "A table that is not UTF-8 (1). Save it as UTF-8",
        "\n  metadata.csv, line 18\n",
        "A label with stray spaces (1)",
        "metadata.csv, line 4: ' dog' of p/2.png",
        "metadata.csv, line 8: p/none.png",
        "A file outside the folder (2)",
        "metadata.csv, line 9: ../secret.png",
        "metadata.csv, line 13: /etc/hostname",
        "metadata.csv, line 10: 'holdout'",
        "A row without a label",
        "metadata.csv, line 11: p/9.png",
        "metadata.csv, line 14: p/10.png, first in line 12",
        "An image file that cannot be read (1)",
        "p/3.png: not an image of a known kind",
        "A class that is not in train (1)",
        "test: 'horse' (1 images, such as p/15.png)",
        "The same image in more than one split (1)",
        "p/5.png = p/14.png",
    ):
        assert part in said, part


def test_one_row_with_two_mistakes_is_told_twice(base):
    write(base, "a.png", "b.png")
    table(base, "file,label,split", "a.png,x,train", "b.png,y,train", "none.png, x,nowhere")
    assert "3 problems" in wrong(base)


def test_marks_of_missing_values_are_no_labels_and_no_values(base):
    names = [f"p/{i}.png" for i in range(6)]
    write(base, *names)
    lines = [f"{name},{'cat' if i % 2 else 'dog'},sea" for i, name in enumerate(names)]
    lines[2:5] = ["p/2.png,nan,sea", "p/3.png,cat,NA", "p/4.png,dog,"]
    table(base, "file_name,label,place", *lines, ",dog,sea", ",cat,sea", " ,cat,sea", ",,", "")
    said = wrong(base)
    for part in (
        "A row without a label, attribute or file (6). Fill it in",
        "metadata.csv, line 4: p/2.png, 'nan' as label\n",
        "metadata.csv, line 5: p/3.png, 'NA' as place\n",
        "metadata.csv, line 6: p/4.png, '' as place\n",
        "metadata.csv, line 8: '' as file_name\n",
        "metadata.csv, line 9: '' as file_name\n",
        "metadata.csv, line 10: ' ' as file_name",
    ):
        assert part in said, part
    assert "line 11" not in said  # it is empty
    assert "twice" not in said and "outside" not in said


def test_a_class_folder_may_have_any_name(base):
    write(base, *(f"{c}/{i}.png" for c in ("NA", "cat") for i in range(3)), "loose.png")
    table(base, "file", *(f"{c}/{i}.png" for c in ("NA", "cat") for i in range(3)))
    assert load(base, size=8, val=0, test=0).classes == ("NA", "cat")
    table(base, "file", "NA/0.png", "cat/0.png", "loose.png")
    assert "metadata.csv, line 4: loose.png, in no class folder" in wrong(base)


def test_spellings_of_labels_and_values_in_a_table(base):
    write(base, *(f"{i}.png" for i in range(8)))
    labels, places = ("Cat", "cat", "dog", "cat", "1", "1.0", "1", "dog"), ("sea", "Sea") * 4
    table(base, "file,label,place", *(f"{i}.png,{labels[i]},{places[i]}" for i in range(8)))
    said = wrong(base)
    assert "A label or attribute in two spellings (3). Write it alike" in said
    kept = load(base, size=8, spellings="keep", val=0, test=0)
    assert kept.classes == ("1", "1.0", "Cat", "cat", "dog") and kept.values == (("Sea", "sea"),)
    assert "metadata.csv, line 2: 'Cat' is 'cat' in another spelling" in said
    assert "metadata.csv, line 7: '1.0' is '1' in another spelling" in said
    assert "metadata.csv, line 3: 'Sea' is 'sea' in another spelling" in said


def test_spellings_of_class_folders(base):
    write(base, *(f"cat/{i}.png" for i in range(4)), *(f"{c}/{i}.png" for c in ("Cat", "dog") for i in range(3)))
    said = wrong(base)
    assert "A label or attribute in two spellings (1). Write it alike everywhere, or say data.spellings=keep" in said
    assert "Cat/0.png: 'Cat' is 'cat' in another spelling" in said
    assert load(base, size=8, spellings="keep", val=0, test=0).classes == ("Cat", "cat", "dog")
    shutil.rmtree(base / "Cat")
    three_splits(base)
    (base / "val/cat").rename(base / "val/CAT")
    assert "val/CAT/val0.png: 'CAT' is 'cat' in another spelling" in wrong(base)


def test_spellings_in_lff_names(base):
    write(base, *(f"align/{c}/{i}_{c}_{c}.png" for c in ("cat", "dog") for i in range(4)), "align/Cat/7_Cat_dog.png")
    assert "align/Cat/7_Cat_dog.png: 'Cat' is 'cat' in another spelling" in wrong(base)


def test_a_column_of_the_table_has_one_role(base):
    write(base, *(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)))
    lines = [f"{c}/{i}.png,{c},{'ab'[i % 2]}" for c in ("cat", "dog") for i in range(3)]
    table(base, "file,label,place", *lines)
    for settings in (
        {"attribute": ("label",)},
        {"attribute": ("place", "place")},
        {"attribute": ("file",)},
        {"label": "place", "attribute": ("place",)},
        {"label": "file", "file": "file"},
    ):
        assert "has two roles; name different ones" in wrong(base, **settings)
    bundle = load(base, size=8, label="place", val=0, test=0)  # nor is it found as the attribute
    assert (bundle.classes, bundle.attributes) == (("a", "b"), ())


def test_splits_of_a_table_in_any_spelling(base):
    words = ("Train", "train", "TRAINING", " valid", "TEST", "test ")
    write(base, *(f"{i}.png" for i in range(6)))
    table(base, "file,label,split", *(f"{i}.png,{'ab'[i % 2]},{words[i]}" for i in range(6)))
    assert [part for part, *_ in rows(load(base, size=8)).values()] == ["train"] * 3 + ["val"] + ["test"] * 2
    own = ("T", "v", "t")  # as given, also where only the case differs
    table(base, "file,label,split", *(f"{i}.png,{'ab'[i % 2]},{'TTTvtt'[i]}" for i in range(6)))
    assert len(load(base, size=8, splits=own).train) == 3
    assert "too long" in wrong(base, splits=(*own, "x"))


def test_unknown_splits_are_told_where_nothing_is_left_to_train_on(base):
    write(base, *(f"{i}.png" for i in range(6)))
    table(base, "file,label,split", *(f"{i}.png,{'ab'[i % 2]},{'test' if i < 2 else 'trian'}" for i in range(6)))
    said = wrong(base)
    assert "A split that is not known (4)" in said and "metadata.csv, line 4: 'trian'" in said


def test_a_table_in_another_encoding_is_told_once(base):
    write(base, *(f"{i}.png" for i in range(6)))
    lines = ["file,label", *(f"{i}.png,{'hündin' if i % 2 else 'hund'}" for i in range(6))]
    for encoding in ("utf-8", "utf-8-sig"):
        (base / "metadata.csv").write_text("\n".join(lines), encoding=encoding)
        assert load(base, size=8, val=0, test=0).classes == ("hund", "hündin")
    (base / "metadata.csv").write_text("\n".join(lines), encoding="latin-1")
    said = wrong(base)
    assert "1 problem.\nA table that is not UTF-8 (1). Save it as UTF-8" in said
    assert said.endswith("\n  metadata.csv, line 3 and 2 more")
    (base / "metadata.csv").write_text("\n".join(["file,läbel", *lines[1:]]), encoding="latin-1")
    assert "metadata.csv, line 1 and 3 more" in wrong(base)
    for encoding in ("utf-16", "utf-16-le"):
        (base / "metadata.csv").write_text("\n".join(lines), encoding=encoding)
        assert wrong(base) == "metadata.csv is not text in UTF-8; save it as CSV in UTF-8."


def test_folder_mistakes_are_told_at_once(base):
    three_splits(base)
    (base / "train/bird").mkdir()
    write(base, "test/fox/1.png", "train/ cow/1.png", "train/loose.png", "loose.png")
    (base / "train/cat/train0.png").write_text("broken")
    shutil.copy(base / "train/dog/train1.png", base / "val/dog/again.png")
    said = wrong(base)
    for part in (
        "train/bird",
        "test: 'fox' (1 images, such as test/fox/1.png)",
        "'train/ cow'",
        "train/loose.png",
        "\n  loose.png",
        "train/cat/train0.png: not an image of a known kind",
        "train/dog/train1.png = val/dog/again.png",
    ):
        assert part in said, part
    assert "7 problems" in said


@pytest.mark.parametrize("cache", [True, False])
def test_broken_files_can_be_left_out_but_not_silently(base, capsys, cache):
    three_splits(base)
    (base / "train/cat/train0.png").write_text("broken")
    (base / "test/dog/test2.png").write_bytes(b"")
    assert "2 problems" in wrong(base, cache=cache)
    bundle = load(base, size=8, skip_broken=True, cache=cache)
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 5, "val": 6, "test": 5}
    assert "train/cat/train0.png" not in rows(bundle)
    assert bundle.notes == ("2 broken image files left out: train/cat/train0.png, test/dog/test2.png",)
    said = capsys.readouterr().err
    assert "train/cat/train0.png: not an image" in said
    assert "test/dog/test2.png: not an image" in said


def test_leaving_out_the_last_image_of_a_class_is_an_error(base):
    three_splits(base)
    for i in range(3):
        (base / f"train/cat/train{i}.png").write_text("broken")
    assert "A class that is not in train" in wrong(base, skip_broken=True)


@pytest.mark.parametrize("cache", [True, False])
def test_copies_across_given_splits(base, cache):
    three_splits(base)
    shutil.copy(base / "train/cat/train1.png", base / "test/cat/copy.png")
    shutil.copy(base / "train/cat/train1.png", base / "train/cat/same_split.png")
    said = wrong(base, cache=cache)
    assert "1 problem." in said
    assert "test/cat/copy.png" in said
    assert len(load(base, size=8, cache=cache, allow_duplicates=True).test) == 7


def test_copies_are_never_drawn_apart(base, capsys):
    write(base, *(f"cat/{i}.png" for i in range(20)), *(f"dog/{i}.png" for i in range(20)))
    for i in range(20):
        shutil.copy(base / f"cat/{i}.png", base / f"cat/copy{i}.png")
    bundle = load(base, size=8)
    part_of = {name: part for part, split in bundle.splits.items() for name in split.names}
    assert all(part_of[f"cat/{i}.png"] == part_of[f"cat/copy{i}.png"] for i in range(20))
    assert "kept in the split of an exact copy" in capsys.readouterr().err
    pixels = {n: s.x[i, :, 3, 3].tolist() for s in bundle.splits.values() for i, n in enumerate(s.names)}
    assert all(pixels[f"cat/copy{i}.png"] == list(colour_of(f"cat/{i}.png")) for i in range(20))


@pytest.mark.parametrize("seed", range(6))
def test_copies_do_not_take_a_class_out_of_train(base, seed):
    write(base, *(f"cat/{i}.png" for i in range(20)), *(f"dog/{i}.png" for i in range(3)))
    for i in (1, 2):
        shutil.copy(base / "dog/0.png", base / f"dog/{i}.png")
    bundle = load(base, size=8, val=0.2, test=0.5, seed=seed)
    dogs = {part for part, split in bundle.splits.items() if (split.y == 1).any()}
    assert dogs == {"train"}


@pytest.mark.parametrize("seed", range(3))
def test_copies_under_two_labels_take_neither_class_out_of_train(base, seed):
    write(base, *(f"cat/{i}.png" for i in range(20)), *(f"{c}/{c}.png" for c in ("dog", "fox")))
    for c in ("dog", "fox"):
        for i in range(3):
            shutil.copy(base / "dog/dog.png", base / f"{c}/{i}.png")
    (base / "fox/fox.png").unlink()
    bundle = load(base, size=8, val=0.2, test=0.5, seed=seed)
    assert torch.bincount(bundle.train.y).tolist()[1:] == [4, 3]
    assert "exact copies under different labels: dog/0.png = fox/0.png" in bundle.notes


def test_lazy_rows_instead_of_a_cache(base, tmp_path):
    three_splits(base)
    bundle = load(base, size=8, cache=False)
    assert not (tmp_path / "cache").exists()
    eager = load(base, size=8)
    for part, split in bundle.splits.items():
        assert not isinstance(split.x, torch.Tensor)
        assert torch.equal(split[torch.arange(6)], eager.splits[part].x)


def test_what_is_not_used_is_said(base, capsys):
    three_splits(base)
    (base / "train/cat/Thumbs.db").write_text("")
    (base / "train/cat/._train0.png").write_text("")
    (base / "readme.txt").write_text("")
    write(base, "extra/cat/1.png")
    load(base, size=8)
    said = capsys.readouterr().err
    assert "folder extra" in said
    assert "3 files that are no images (readme.txt, train/cat/._train0.png, train/cat/Thumbs.db)" in said
    table(base, "file,label,split", "train/cat/train0.png,cat,train", "train/dog/train0.png,dog,train")
    load(base, size=8, val=0, test=0)
    assert "17 images that the table does not list" in capsys.readouterr().err


def test_what_spurless_has_written_is_no_class(base, capsys):
    write(base, *(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)), "folder-mine.png")
    write(
        base, "runs/audit-1/pictures/7.png", "runs/audit-2/pictures/7-map.png", "pruned/curve.png", "cat/runs/x/1.png"
    )
    for name in ("runs/audit-1/audit.json", "runs/audit-2/model/settings.toml", "pruned/prune.json"):
        table(base, "{}", name=name)
    for name in ("cat/runs/x/sweep.json", "exported/model.safetensors", "table/cells/0/row.json"):
        table(base, "{}", name=name)
    bundle = load(base, size=8, val=0, test=0)
    assert sorted(rows(bundle)) == [f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)]
    said = capsys.readouterr().err
    for place in ("cat", "exported", "pruned", "runs", "table"):
        assert f"not used: what Spurless has written in {place}\n" in said
    assert "not used: folder-mine.png, the contact sheet of this folder" in said
    assert "files that are no images" not in said
    write(base, "folder-other.png")
    assert "An image in no class folder (1)" in wrong(base)


def test_a_contact_sheet_in_the_folder_is_no_sample(base, monkeypatch):
    photos = base / "fotos été 1"
    write(photos, *(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)))
    monkeypatch.chdir(photos)
    done = CliRunner().invoke(app, ["data", "describe", "folder:.", "--set", "data.size=8", "--sheet", "mine.png"])
    assert done.exit_code == 0, done.output
    assert (photos / "mine.png").exists()
    assert len(rows(load(photos, size=8, val=0, test=0))) == 6


def test_links_are_followed_but_not_in_circles(base, tmp_path):
    write(tmp_path / "elsewhere", *(f"{i}.png" for i in range(4)))
    three_splits(base)
    os.symlink(tmp_path / "elsewhere", base / "train/owl")
    os.symlink(base / "train/cat", base / "train/cat/again")
    bundle = load(base, size=8)
    assert bundle.classes == ("cat", "dog", "owl")
    assert len(bundle.train) == 10


@pytest.mark.parametrize("up", [".", "..", "../..", "../../.."])
@pytest.mark.parametrize("split", ["", "train/"])
def test_links_that_lead_back_up_are_not_followed(base, up, split):
    """Else every image around would be in the class in which the link lies."""
    write(base, *(f"{split}{c}/{i}.png" for c in ("cat", "dog") for i in range(3)))
    write(base.parent, "others/1.png")
    os.symlink(up, base / f"{split}cat/up")
    assert len(rows(load(base, size=8, val=0, test=0))) == 6


def test_a_link_to_a_class_elsewhere_that_leads_back(base, tmp_path):
    write(base, *(f"dog/{i}.png" for i in range(3)))
    write(tmp_path / "elsewhere", *(f"{i}.png" for i in range(3)))
    os.symlink(tmp_path / "elsewhere", base / "cat")
    os.symlink(base, tmp_path / "elsewhere/back")
    assert len(load(base, size=8, val=0, test=0).train) == 6


def test_jfif_is_an_image(base):
    write(base, *(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)))
    Image.new("RGB", (12, 10), "red").save(base / "cat/photo.jfif", "JPEG")
    assert "cat/photo.jfif" in load(base, size=8, val=0, test=0).train.names


def test_numbers_are_ordered_as_numbers(base):
    write(base, *(f"{c}/{i}.png" for c in (0, 2, 10) for i in range(4)))
    assert load(base, size=8, val=0, test=0).classes == ("0", "2", "10")


def test_plain_refusals(base, tmp_path):
    assert "no folder" in wrong(tmp_path / "nowhere")
    assert "no images" in wrong(base)
    write(base, "cat/1.png", "cat/2.png")
    assert "no more than one class" in wrong(base)
    write(base, "dog/1.png")
    assert "below 1" in wrong(base, val=0.5, test=0.5)
    assert "no metadata.csv" in wrong(base, attribute=("place",))
    assert "not below" in wrong(base, metadata="../metadata.csv")
    table(base, "a,b", "1,2")
    assert "data.file" in wrong(base)
    table(base, "file,label", "x/1.png,cat", "x/2.png,dog")
    assert "Not one of the 2 files" in wrong(base)
    table(base, "file,label,split", "cat/1.png,cat,test", "dog/1.png,dog,test")
    assert "no image to train" in wrong(base)
    table(base, "file,file", "1,2")
    assert "each once" in wrong(base)
    (base / "metadata.csv").write_text("")
    assert "column names" in wrong(base)


def test_settings_from_the_command_line():
    given = {"attribute": "place", "size": "64", "skip_broken": "true", "label": "none", "val": "0.2"}
    got = resolve(Folder, given, "data")
    assert got["attribute"] == ("place",)
    assert (got["size"], got["skip_broken"], got["label"], got["val"], got["file"]) == (64, True, None, 0.2, None)
    assert resolve(Folder, {"attribute": "none"}, "data")["attribute"] is None
    assert resolve(Folder, {"attribute": "[]"}, "data")["attribute"] == ()


def test_names_that_would_write_to_the_terminal_are_spelt_out(base):
    three_splits(base)
    (base / "train/cat/\x1b[2J\nall is well.png").write_text("broken")
    said = wrong(base)
    assert "train/cat/\\x1b[2J\\nall is well.png: not an image" in said
    assert "\x1b" not in said


def test_no_train_folder(base):
    write(base, "val/cat/1.png", "test/cat/2.png")
    assert "no train folder" in wrong(base)


def test_folder_below_the_data_root(base, monkeypatch):
    three_splits(base)
    monkeypatch.setenv("SPURLESS_DATA", str(base.parent))
    assert len(load("mine", size=8).train) == 6


def test_drawn_shares_leave_something_to_train_on():
    for n in range(1, 30):
        drawn = share_out([str(i) for i in range(n)], [("c",)] * n, val=0.45, test=0.45, seed=0)
        assert drawn.count("train") >= 1
        assert drawn.count("test") == min(int(0.45 * n + 0.5), n - 1)


def test_many_small_strata_still_give_their_share():
    strata = [(str(i // 2),) for i in range(200)]
    drawn = share_out([str(i) for i in range(200)], strata, val=0.1, test=0.2, seed=0)
    assert (drawn.count("test"), drawn.count("val")) == (40, 20)
    assert all("train" in drawn[i : i + 2] for i in range(0, 200, 2))


@pytest.mark.parametrize("n_values", [2, 30, 400, 10**6])
def test_any_number_of_values_gives_the_same_shares(n_values):
    strata = [(str(i % 2), str(i * 7919 % n_values)) for i in range(1000)]
    names = [str(i) for i in range(1000)]
    drawn = share_out(names, strata, val=0.1, test=0.2, seed=0)
    assert [drawn.count(part) for part in folder.SPLITS] == [700, 100, 200]
    for start in (0, 1):  # of both classes
        assert abs(drawn[start::2].count("test") - 100) <= 1
    assert share_out(names, strata, val=0.1, test=0.2, seed=1) != drawn


def test_rows_that_are_alone_in_their_stratum_leave_their_class_in_train():
    strata = [("rare", str(i)) for i in range(3)] + [("only", "x")] + [("common", "x")] * 20
    for seed in range(10):
        drawn = share_out([str(i) for i in range(24)], strata, val=0.45, test=0.45, seed=seed)
        assert "train" in drawn[:3] and drawn[3] == "train"


@pytest.mark.data("waterbird_complete95_forest2water2")
def test_waterbirds_as_any_folder(capsys):
    bundle = load(paths.data_root() / "waterbird_complete95_forest2water2", size=16, cache=False)
    groups = {part: torch.bincount(s.y * 2 + s.a[:, 0]).tolist() for part, s in bundle.splits.items()}
    assert groups == {"train": [3498, 184, 56, 1057], "val": [467, 466, 133, 133], "test": [2255, 2255, 642, 642]}
    assert bundle.aligned[0].tolist() == [[True, False], [False, True]]
    assert "attribute = place" in capsys.readouterr().err

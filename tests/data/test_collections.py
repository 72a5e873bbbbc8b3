"""Photo collections in the layouts in which they are distributed: published counts, and what each label means."""

import collections
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spurless.core import files as paths
from spurless.core.errors import UserError
from spurless.core.settings import resolve
from spurless.data.sets import bar, bffhq, celeba, metashift, waterbirds
from spurless.train.infer import infer_groups


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))


def write(base: Path, *names: str) -> None:
    """One small image for each name, its colour made from the name."""
    for i, name in enumerate(names):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10, 8), (i % 256, len(name), 7)).save(base / name)


def groups(bundle, part: str) -> list[list[int]]:
    """(classes, values) counts of a split."""
    split, k = bundle.splits[part], len(bundle.values[0])
    count = torch.bincount(split.y * k + split.a[:, 0], minlength=len(bundle.classes) * k)
    return count.view(-1, k).tolist()


def names_of(bundle) -> list[str]:
    return [name for split in bundle.splits.values() for name in split.names]


# ---- BAR


def write_bar(base: Path) -> None:
    for part, n in (("train", 20), ("test", 30)):
        write(base / "BAR" / part, *(f"{c}_{i}.png" for c in bar.CLASSES[:-1] for i in range(n)))
        write(base / "BAR" / part, *(f"pole vaulting_{i}.png" for i in range(n)))


def test_bar_layout(tmp_path):
    write_bar(tmp_path)
    bundle = bar.load(tmp_path, size=8)
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 108, "val": 12, "test": 180}
    assert bundle.is_aligned(bundle.train).all()
    assert bundle.is_aligned(bundle.val).all()
    assert not bundle.is_aligned(bundle.test).any()
    for split in bundle.splits.values():
        assert all(bundle.classes[y] in name for y, name in zip(split.y.tolist(), split.names, strict=True))
    assert len(set(names_of(bundle))) == 300
    assert "120 images; 1,941 are published" in bundle.notes[0]


def test_bar_conflicting_variants(tmp_path):
    write_bar(tmp_path)
    plain, moved = bar.load(tmp_path, size=8), bar.load(tmp_path, size=8, conflicting="5pct")
    assert (len(moved.train), len(moved.test)) == (108 + 94, 180 - 94)
    conflicts = ~moved.is_aligned(moved.train)[:, 0]
    assert int(conflicts.sum()) == 94
    assert all(moved.train.names[i].startswith("test/") == bool(conflicts[i]) for i in range(len(conflicts)))
    assert sorted(names_of(moved)) == sorted(names_of(plain))
    assert moved.name == "bar 5pct"
    by_test = bar.load(tmp_path, size=8, conflicting="1pct", val="test")
    assert {part: len(split) for part, split in by_test.splits.items()} == {"train": 137, "val": 32, "test": 131}
    assert not by_test.is_aligned(by_test.val).any()
    assert len(set(by_test.val.y.tolist())) > 2  # a fifth of a shuffled list, not of an alphabetical one
    other = bar.load(tmp_path, size=8, conflicting="5pct", seed=1)
    assert set(other.test.names) != set(moved.test.names)


def test_bar_that_is_something_else(tmp_path):
    with pytest.raises(UserError, match="alinlab/BAR"):
        bar.load(tmp_path)
    write(tmp_path / "BAR", "train/climbing_1.png", "train/skiing_1.png", "test/climbing_1.png")
    with pytest.raises(UserError, match="skiing_1"):
        bar.load(tmp_path, size=8)


@pytest.mark.data("BAR")
def test_bar_published_counts_and_pixels(tmp_path):
    bundle = bar.load(size=32)
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 1746, "val": 195, "test": 654}
    assert bundle.notes == ()
    both = torch.cat([bundle.train.y, bundle.val.y])
    assert torch.bincount(both).tolist() == [326, 520, 163, 336, 317, 279]
    assert torch.bincount(bundle.test.y).tolist() == [105, 159, 42, 132, 85, 131]
    row = bundle.train.names.index(next(n for n in bundle.train.names if "diving_1." in n))
    file = paths.data_root() / "BAR" / bundle.train.names[row]
    with Image.open(file) as picture:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        slow = (
            picture.convert("RGB")
            .crop((left, top, left + side, top + side))
            .resize((32, 32), Image.Resampling.BILINEAR)
        )
    assert np.abs(bundle.train.x[row].numpy().astype(int) - np.asarray(slow).transpose(2, 0, 1)).mean() < 3
    for conflicting, n in (("1pct", 17), ("5pct", 94)):
        variant = bar.load(size=32, conflicting=conflicting, cache=False)
        assert (len(variant.train), len(variant.val), len(variant.test)) == (1746 + n, 195, 654 - n)


# ---- Waterbirds


@pytest.mark.data("waterbird_complete95_forest2water2")
def test_waterbirds_published_groups():
    bundle = waterbirds.load(cache=False)
    assert {part: groups(bundle, part) for part in bundle.splits} == waterbirds.PUBLISHED
    assert bundle.shape == (3, 224, 224)
    assert (bundle.classes, bundle.values) == (("landbird", "waterbird"), (("land", "water"),))
    assert bundle.is_aligned(bundle.train).float().mean() == pytest.approx((3498 + 1057) / 4795)
    albatross = next(i for i, name in enumerate(bundle.train.names) if "Albatross" in name)
    assert bundle.classes[bundle.train.y[albatross]] == "waterbird"
    assert bundle.train[torch.tensor([0, 5])].shape == (2, 3, 224, 224)
    # A copy made smaller must not pass for the real thing.
    with Image.open(paths.data_root() / "waterbird_complete95_forest2water2" / bundle.train.names[0]) as picture:
        if min(picture.size) < 100:
            assert "enlarged to 224 px" in bundle.notes[0]


def test_waterbirds_layout(tmp_path):
    base = tmp_path / "waterbird_complete95_forest2water2"
    names = [f"{i:03d}.bird/{i}.jpg" for i in range(12)]
    write(base, *names)
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    lines += [f"{i},{name},{i % 2},{i % 3},{i % 4 // 2},/x.jpg" for i, name in enumerate(names)]
    (base / "metadata.csv").write_text("\n".join(lines))
    bundle = waterbirds.load(tmp_path, size=8)
    assert bundle.train.names == names[0::3]
    assert bundle.val.names == names[1::3]
    assert bundle.test.names == names[2::3]
    assert bundle.train.y.tolist() == [0, 1, 0, 1]
    assert bundle.train.a.tolist() == [[0], [1], [1], [0]]
    assert len(bundle.notes) == 3  # none of the groups is as published
    (base / names[4]).unlink()
    (base / names[5]).unlink()
    with pytest.raises(UserError, match="2 problems"):
        waterbirds.load(tmp_path, size=8)


def test_waterbirds_that_is_something_else(tmp_path):
    base = tmp_path / "waterbirds_v1.0"
    write(base, "a.jpg", "b.jpg")
    (base / "metadata.csv").write_text("img_filename,y,split,place\na.jpg,3,0,0\nb.jpg,1,0,1\n")
    with pytest.raises(UserError, match="is not Waterbirds'"):
        waterbirds.load(tmp_path, size=8)


# ---- BFFHQ


def write_bffhq(base: Path) -> None:
    for c in "01":
        write(base / "bffhq", *(f"0.5pct/align/{c}/{i}_{c}_{c}.png" for i in range(6)))
        write(base / "bffhq", f"0.5pct/conflict/{c}/9_{c}_{1 - int(c)}.png")
        write(base / "bffhq", *(f"{part}/{part}{i}_{c}_{i % 2}.png" for part in ("valid", "test") for i in range(4)))


def test_bffhq_layout(tmp_path):
    write_bffhq(tmp_path)
    bundle = bffhq.load(tmp_path, size=8)
    assert groups(bundle, "train") == [[6, 1], [1, 6]]
    assert groups(bundle, "val") == groups(bundle, "test") == [[2, 2], [2, 2]]
    assert (bundle.classes, bundle.attributes, bundle.values) == (("young", "old"), ("gender",), (("female", "male"),))
    row = bundle.train.names.index("0.5pct/conflict/1/9_1_0.png")
    assert (bundle.classes[bundle.train.y[row]], bundle.values[0][bundle.train.a[row, 0]]) == ("old", "female")
    assert len(bundle.notes) == 2  # train and test are not as published
    swapped = bffhq.load(tmp_path, size=8, target="gender")
    assert (swapped.classes, swapped.attributes) == (("female", "male"), ("age",))
    assert (swapped.train.y[row], swapped.train.a[row, 0]) == (0, 1)
    assert torch.equal(swapped.is_aligned(swapped.train), bundle.is_aligned(bundle.train))


def test_bffhq_mistakes(tmp_path):
    with pytest.raises(UserError, match="Learning-Debiased-Disentangled"):
        bffhq.load(tmp_path)
    write_bffhq(tmp_path)
    with pytest.raises(UserError, match=r"did you mean '0\.5pct'"):
        bffhq.load(tmp_path, size=8, ratio="5pct")
    write(tmp_path / "bffhq", "test/portrait.png")
    with pytest.raises(UserError, match=r"test/portrait\.png"):
        bffhq.load(tmp_path, size=8)


# ---- CelebA

CELEBA = ["Blond_Hair", "Male", "Smiling"]


def write_celeba(base: Path, n: int = 30, kind: str = "csv", nested: bool = False) -> np.ndarray:
    """(n, 3) attributes as 0 and 1; partitions 0, 1, 2 in stretches."""
    base = base / "celeba"
    place = "img_align_celeba/img_align_celeba" if nested else "img_align_celeba"
    names = [f"{i + 1:06d}.jpg" for i in range(n)]
    write(base, *(f"{place}/{name}" for name in names))
    values = np.random.RandomState(0).randint(0, 2, (n, 3))
    signed = 2 * values - 1
    parts = [min(2, 3 * i // n) for i in range(n)]
    if kind == "csv":
        lines = [
            ",".join(["image_id", *CELEBA]),
            *(",".join([a, *map(str, row)]) for a, row in zip(names, signed, strict=True)),
        ]
        (base / "list_attr_celeba.csv").write_text("\n".join(lines))
        (base / "list_eval_partition.csv").write_text(
            "\n".join(["image_id,partition", *(f"{a},{p}" for a, p in zip(names, parts, strict=True))])
        )
    else:
        lines = [
            str(n),
            " ".join(CELEBA) + " ",
            *("  ".join([a, *map(str, row)]) for a, row in zip(names, signed, strict=True)),
        ]
        (base / "list_attr_celeba.txt").write_text("\n".join(lines))
        (base / "list_eval_partition.txt").write_text("\n".join(f"{a} {p}" for a, p in zip(names, parts, strict=True)))
    return values


@pytest.mark.parametrize(("kind", "nested"), [("csv", False), ("txt", True)])
def test_celeba_layout(tmp_path, kind, nested):
    values = write_celeba(tmp_path, kind=kind, nested=nested)
    bundle = celeba.load(tmp_path, size=8)
    assert [len(split) for split in bundle.splits.values()] == [10, 10, 10]
    assert torch.cat([s.y for s in bundle.splits.values()]).tolist() == values[:, 0].tolist()
    assert torch.cat([s.a for s in bundle.splits.values()]).tolist() == values[:, 1:2].tolist()
    assert [Path(name).name for name in names_of(bundle)] == [f"{i + 1:06d}.jpg" for i in range(30)]
    assert (bundle.classes, bundle.values) == (("not blond", "blond"), (("female", "male"),))
    # Conflicting when Blond equals Male.
    assert bundle.aligned[0].tolist() == [[False, True], [True, False]]
    assert len(bundle.notes) == 3


def test_celeba_other_attributes(tmp_path):
    values = write_celeba(tmp_path)
    settings = resolve(celeba.load, {"target": "Smiling", "attribute": ["Male", "Blond_Hair"], "size": 8}, "data")
    bundle = celeba.load(tmp_path, **settings)
    assert bundle.train.y.tolist() == values[:10, 2].tolist()
    assert bundle.train.a.tolist() == values[:10, [1, 0]].tolist()
    assert (bundle.classes, len(bundle.aligned)) == (("not Smiling", "Smiling"), 2)
    with pytest.raises(UserError, match="did you mean 'Smiling'"):
        celeba.load(tmp_path, target="smiling")
    with pytest.raises(UserError, match="other than"):
        celeba.load(tmp_path, attribute=("Blond_Hair",))


def test_celeba_imperfect_partition(tmp_path, monkeypatch):
    write_celeba(tmp_path, 90)
    with pytest.raises(UserError, match="needs all of CelebA"):
        celeba.load(tmp_path, size=8, partition="imperfect")
    clean = celeba.load(tmp_path, size=8)
    (dark_women, dark_men), (blond_women, blond_men) = groups(clean, "train")
    wanted = (dark_men - 1, dark_women - 2, 0, blond_women)
    monkeypatch.setitem(celeba.DOMAIN_0, "train", wanted)
    bundle = celeba.load(tmp_path, size=8, partition="imperfect")
    assert groups(bundle, "train") == [[0, 0, wanted[0] + wanted[1], 3], [0, 0, blond_women, blond_men]]
    assert bundle.values == (("female", "male", "domain 0", "domain 1"),)
    for part in ("val", "test"):  # the clean groups
        assert torch.equal(bundle.splits[part].a, clean.splits[part].a)
    found = infer_groups(bundle, "known", "linear", {"epochs": 0}, device="cpu", progress=False)
    assert torch.equal(found.train, bundle.train.a[:, 0])  # two domains: no class tells the blond men apart
    assert bundle.aligned[0][:, :2].tolist() == [[False, True], [True, False]]
    with pytest.raises(UserError, match="defined for"):
        celeba.load(tmp_path, partition="imperfect", target="Smiling")


def test_celeba_domains_have_the_published_sizes():
    """At full size, from the published group counts; the draws are those of GC-DRO's released code."""
    counts = [(0, 0, 71_629), (0, 1, 66_874), (1, 0, 22_880), (1, 1, 1_387)]
    y, male = (np.repeat([row[k] for row in counts], [n for *_, n in counts]) for k in (0, 1))
    domain = celeba.domains(y, male, "train")
    in_0 = [int(((y == label) & (male == gender) & (domain == 0)).sum()) for label, gender, _ in counts]
    assert in_0 == [22_880, 65_487, 22_880, 0]
    np.random.seed(1)
    first = np.random.choice(np.flatnonzero((y == 0) & (male == 1)), 65_487, replace=False)
    assert (domain[first] == 0).all()


def test_celeba_lists_that_do_not_fit_together(tmp_path):
    with pytest.raises(UserError, match="img_align_celeba"):
        celeba.load(tmp_path)
    write_celeba(tmp_path)
    lists = [tmp_path / "celeba" / f"list_{kind}.csv" for kind in ("attr_celeba", "eval_partition")]
    for file in lists:
        file.write_text(file.read_text().replace("000007.jpg", "../../secret.jpg"))
    with pytest.raises(UserError, match=r"'\.\./\.\./secret\.jpg' in the list"):
        celeba.load(tmp_path, size=8)
    (tmp_path / "celeba/list_eval_partition.csv").write_text("image_id,partition\n000001.jpg,0\n")
    with pytest.raises(UserError, match="same order"):
        celeba.load(tmp_path, size=8)
    (tmp_path / "celeba/list_eval_partition.csv").unlink()
    with pytest.raises(UserError, match=r"list_eval_partition\.csv"):
        celeba.load(tmp_path, size=8)


# ---- MetaShift


def write_metashift(base: Path) -> dict[str, list[str]]:
    """Authors' layout: flat class folders and a pickle of groups."""
    table, number = {}, 0
    for part, aligned, conflicting in (("train", 20, 10), ("val_out_of_domain", 5, 5)):
        for label, usual, rare in (("cat", "indoor", "outdoor"), ("dog", "outdoor", "indoor")):
            for place, n in ((usual, aligned), (rare, conflicting)):
                for _ in range(n):
                    number += 1
                    write(base / metashift.MIXED, f"{part}/{label}/{number}.jpg")
                    table[str(number)] = [f"{label}({place})"]
    (base / metashift.MIXED / "imageID_to_group.pkl").write_bytes(pickle.dumps(table))
    return table


def test_metashift_official_layout(tmp_path):
    table = write_metashift(tmp_path)
    bundle = metashift.load(tmp_path, size=8)
    assert groups(bundle, "train") == [[18, 9], [9, 18]]
    assert groups(bundle, "val") == [[2, 1], [1, 2]]
    assert groups(bundle, "test") == [[5, 5], [5, 5]]
    for split in bundle.splits.values():
        for i, name in enumerate(split.names):
            words = f"{bundle.classes[split.y[i]]}({bundle.values[0][split.a[i, 0]]})"
            assert table[Path(name).stem] == [words]
    assert int(bundle.is_aligned(bundle.train).sum()) == 36


def test_metashift_groups_by_subset_folder_need_no_pickle(tmp_path):
    base = tmp_path / "metashift" / metashift.MIXED
    for label, place in (("cat", "indoor"), ("cat", "outdoor"), ("dog", "indoor"), ("dog", "outdoor")):
        for part in ("train", "val_out_of_domain"):
            write(base, *(f"{part}/{label}/{label}({place})/{part}{i}.jpg" for i in range(3)))
    bundle = metashift.load(tmp_path, size=8, val=0)
    assert groups(bundle, "train") == groups(bundle, "test") == [[3, 3], [3, 3]]
    assert bundle.val is None


def test_metashift_pool(tmp_path):
    base = tmp_path / "metashift" / metashift.UNMIXED
    for place, n in (
        ("train/cat/cat(indoor)", 40),
        ("train/dog/dog(outdoor)", 40),
        ("test/cat/cat(outdoor)", 10),
        ("test/dog/dog(indoor)", 10),
    ):
        write(base, *(f"{place}/{i}.jpg" for i in range(n)))
    bundle = metashift.load(tmp_path, size=8)
    assert bundle.name == "metashift pool"
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 65, "val": 10, "test": 25}
    total = sum(torch.tensor(groups(bundle, part)) for part in bundle.splits)
    assert total.tolist() == [[40, 10], [10, 40]]
    assert len(set(names_of(bundle))) == 100


def test_metashift_takes_nothing_but_plain_data_from_a_pickle(tmp_path):
    write_metashift(tmp_path)
    file = tmp_path / metashift.MIXED / "imageID_to_group.pkl"
    file.write_bytes(pickle.dumps(collections.OrderedDict(a=1)))
    with pytest.raises(UserError, match=r"collections\.OrderedDict"):
        metashift.load(tmp_path, size=8)

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    file.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="mkdir"):
        metashift.load(tmp_path, size=8)
    assert not (tmp_path / "owned").exists()
    file.write_bytes(b"\x80")
    with pytest.raises(UserError, match="not the list of groups"):
        metashift.load(tmp_path, size=8)
    file.unlink()
    with pytest.raises(UserError, match="in no group"):
        metashift.load(tmp_path, size=8)


def test_metashift_absent(tmp_path):
    for layout in ("auto", "official", "pool"):
        with pytest.raises(UserError, match="Weixin-Liang/MetaShift"):
            metashift.load(tmp_path, layout=layout)

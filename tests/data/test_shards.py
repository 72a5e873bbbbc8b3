"""Images in tar and Parquet shards are read as `folder:` reads files, and what is broken is named."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spurless import UserError, fit
from spurless.core import shards
from spurless.data.folder import load
from tests.support.commands import invoke

CLASSES = ("cat", "dog")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))


def picture(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((24, 20)).save(out, "JPEG")
    return out.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def dataset(how: str, start: int, n: int) -> dict[str, bytes]:
    """What a shard holds: n samples whose label alternates."""
    files = {}
    for i in range(start, start + n):
        label = CLASSES[i % 2]
        name = f"{label}/{i:04d}" if how == "folders" else f"{i:04d}"
        files[f"{name}.jpg"] = picture(i)
        if how == "cls":
            files[f"{name}.cls"] = f"{i % 2}\n".encode()
        if how == "json":
            place = "sea" if i % 3 else "land"
            files[f"{name}.json"] = json.dumps({"label": label, "place": place, "more": [1]}).encode()
    return files


def parquet(path: Path, start: int, n: int, hugging_face: bool = True, rows_in_group: int = 4) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = range(start, start + n)
    cells = [{"bytes": picture(i), "path": f"{i}.jpg"} if hugging_face else picture(i) for i in rows]
    labels = [i % 2 for i in rows] if hugging_face else [CLASSES[i % 2] for i in rows]
    table = pa.table({"image": cells, "label": labels, "place": ["sea" if i % 3 else "land" for i in rows]})
    if hugging_face:
        told = {"info": {"features": {"label": {"names": list(CLASSES), "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(told)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows_in_group)
    return path


def as_files(folder: Path, n: int) -> Path:
    """The same samples as files in class folders."""
    for i in range(n):
        file = folder / CLASSES[i % 2] / f"{i:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(i))
    return folder


def pixels_by_class(bundle) -> dict[int, list[bytes]]:
    """The pixels of each class, whatever the order and the split."""
    found: dict[int, list[bytes]] = {}
    for split in bundle.splits.values():
        for y, x in zip(split.y.tolist(), split[torch.arange(len(split))], strict=True):
            found.setdefault(y, []).append(x.numpy().tobytes())
    return {y: sorted(of) for y, of in found.items()}


@pytest.mark.parametrize("how", ["cls", "json", "folders", "hugging face", "plain parquet"])
@pytest.mark.parametrize("cache", [True, False])
def test_shards_hold_the_same_samples_as_files_do(tmp_path, how, cache):
    expected = load(as_files(tmp_path / "files", 40), size=16, cache=cache)
    folder = tmp_path / "shards"
    for k, (start, n) in enumerate([(0, 15), (15, 25)]):
        if how in ("cls", "json", "folders"):
            write_tar(folder / f"pets-{k}.tar", dataset(how, start, n))
        else:
            parquet(folder / f"pets-{k}.parquet", start, n, how == "hugging face")
    for _ in range(2):  # again, from the cache
        bundle = load(folder, size=16, cache=cache)
        assert bundle.classes == (("0", "1") if how == "cls" else CLASSES)
        assert pixels_by_class(bundle) == pixels_by_class(expected)
        assert sum(map(len, bundle.splits.values())) == 40
        assert bundle.attributes == (("place",) if how not in ("cls", "folders") else ())


def test_splits_by_the_names_of_shards_and_of_folders(tmp_path):
    for name, start in {"train-0": 0, "train-1": 20, "val-0": 40, "test-0": 50}.items():
        write_tar(tmp_path / "named" / f"{name}.tar", dataset("cls", start, 20 if "train" in name else 10))
    for name, start in {"train/a": 0, "validation/a": 40, "test/a": 50}.items():
        write_tar(tmp_path / "below" / f"{name}.tar", dataset("cls", start, 40 if "train" in name else 10))
    for folder in ("named", "below"):
        bundle = load(tmp_path / folder, size=16)
        assert {name: len(split) for name, split in bundle.splits.items()} == {"train": 40, "val": 10, "test": 10}


def test_a_run_on_shards_ends_well_and_is_resumed(tmp_path):
    write_tar(tmp_path / "shards" / "pets.tar", dataset("json", 0, 40))
    for _ in range(2):
        out = fit(
            "erm",
            {"name": f"folder:{tmp_path / 'shards'}", "size": 32},
            net="simconv1",
            recipe={"epochs": 1},
            out=tmp_path / "run",
            device="cpu",
            progress=False,
        )
        assert out.status == "done"


def test_a_shard_that_changed_is_read_again(tmp_path):
    shard = write_tar(tmp_path / "s" / "pets.tar", dataset("json", 0, 20))
    before = pixels_by_class(load(tmp_path / "s", size=16))
    write_tar(shard, dataset("json", 100, 20))
    assert pixels_by_class(load(tmp_path / "s", size=16)) != before


@pytest.mark.parametrize("keep", [100, 700, 5000, -600])
def test_an_archive_that_is_cut_off_is_named(tmp_path, keep):
    shard = write_tar(tmp_path / "s" / "pets-1.tar", dataset("json", 0, 12))
    write_tar(tmp_path / "s" / "pets-0.tar", dataset("json", 20, 12))
    end = max(of.offset + of.size for of in shards.members_of(str(shard)).values())
    shard.write_bytes(shard.read_bytes()[: keep if keep > 0 else end + keep])
    with pytest.raises(UserError) as caught:
        load(tmp_path / "s", size=16)
    assert "A shard that cannot be read (1)" in str(caught.value) and "pets-1.tar" in str(caught.value)
    assert "pets-0.tar" not in str(caught.value)


@pytest.mark.parametrize("name", ["pets.tar", "pets.parquet"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind" * 100, b"\x1f\x8b" + bytes(2000)])
def test_what_is_no_shard_is_named(tmp_path, name, content):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / "s").mkdir()
    write_tar(tmp_path / "s" / "good.tar", dataset("json", 0, 12))
    (tmp_path / "s" / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        load(tmp_path / "s", size=16)


def test_a_broken_image_in_a_shard_is_named_or_left_out(tmp_path):
    files = dataset("json", 0, 20)
    files["0003.jpg"] = b"no picture"
    write_tar(tmp_path / "s" / "pets.tar", files)
    with pytest.raises(UserError, match=r"pets\.tar/0003\.jpg: not an image"):
        load(tmp_path / "s", size=16)
    bundle = load(tmp_path / "s", size=16, skip_broken=True)
    assert sum(map(len, bundle.splits.values())) == 19


def test_missing_labels_and_broken_json_are_named(tmp_path):
    files = dataset("json", 0, 20)
    del files["0004.json"]
    write_tar(tmp_path / "s" / "pets.tar", files)
    with pytest.raises(UserError, match=r"0004\.jpg"):
        load(tmp_path / "s", size=16)
    write_tar(tmp_path / "t" / "pets.tar", dataset("json", 0, 20) | {"0004.json": b"[1"})
    with pytest.raises(UserError, match=r"0004\.json in .*pets\.tar holds no JSON object"):
        load(tmp_path / "t", size=16)


def test_a_damaged_row_group_is_a_broken_image_not_a_crash(tmp_path):
    file = parquet(tmp_path / "s" / "pets.parquet", 0, 20)
    data = bytearray(file.read_bytes())
    data[60:2000] = b"\xff" * 1940  # the first row group's images
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"pets\.parquet"):
        load(tmp_path / "s", size=16)


def test_members_that_lead_out_of_the_archive_are_not_read(tmp_path):
    files = {f"../../{name}": data for name, data in dataset("folders", 0, 20).items()}
    write_tar(tmp_path / "s" / "pets.tar", files)
    with pytest.raises(UserError, match="no images"):
        load(tmp_path / "s", size=16)
    assert not (tmp_path / "cat").exists() and not (tmp_path.parent / "cat").exists()


def test_what_else_lies_there_is_named(tmp_path, capsys):
    files = {f"{i:04d}.txt": b"a caption" for i in range(20)}
    write_tar(tmp_path / "s" / "pets-0.tar", dataset("json", 0, 20) | files)
    write_tar(tmp_path / "s" / "pets-1.tar", dataset("json", 20, 20))
    (tmp_path / "s" / "loose.jpg").write_bytes(picture(0))
    load(tmp_path / "s", size=16)
    said = capsys.readouterr().err
    assert "not used: 21 files that are no images of the shards (loose.jpg, pets-0.tar/0000.txt" in said


def test_a_folder_called_like_a_shard_is_a_folder(tmp_path):
    as_files(tmp_path / "photos.tar", 20)
    assert load(tmp_path / "photos.tar", size=16).classes == CLASSES


def test_the_command_line_says_what_was_understood(tmp_path):
    write_tar(tmp_path / "s" / "pets.tar", dataset("json", 0, 40))
    said = invoke("data", "describe", f"folder:{tmp_path / 's'}", "--set", "data.size=16").output
    assert "1 shard: label = label, attribute = place" in said

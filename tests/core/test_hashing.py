"""Changed data, pixels and weights are noticed: one cell of a table, one picture, one byte."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spurless import Bundle, Split, fit
from spurless.compress.loading import is_its_own
from spurless.core.digests import file_digests, full_form, in_full, is_partial, same_content, tensor_digest, vouch
from spurless.core.errors import UserError
from spurless.core.fingerprint import fingerprint, partial_fingerprint
from spurless.core.recipe import Recipe
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.data.ingest import image_cache, images
from spurless.data.ingest.image_cache import decode_cached
from spurless.registry import load_data
from spurless.train.saved import load_run

ONCE = {"recipe": {"epochs": 1}, "device": "cpu", "progress": False}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_table(file: Path, changed: int = 0) -> dict[str, str]:
    """3,000 samples of words: a changed word moves no mean, so it changes one sample's input alone."""
    rng, chosen = np.random.default_rng(0), random.Random(changed)
    cells = rng.choice(list("abc"), (3000, 4))
    y = rng.integers(0, 2, 3000)
    for sample in chosen.sample(range(3000), changed):
        column = chosen.randrange(4)
        cells[sample, column] = "b" if cells[sample, column] == "a" else "a"
    lines = [",".join([f"class{label}", *own]) for label, own in zip(y, cells, strict=True)]
    file.write_text("\n".join(["label,p,q,r,s", *lines]))
    return {"name": f"csv:{file}", "label": "label"}


def write_pictures(folder: Path, n: int = 600) -> dict[str, object]:
    for i in range(n):
        file = folder / "ab"[i % 2] / f"{i:03}.bmp"
        file.parent.mkdir(parents=True, exist_ok=True)
        draw_picture(file, i)
    return {"name": f"folder:{folder}", "size": 8}


def draw_picture(file: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def replace_unseen(file: Path) -> None:
    """Another picture of the same size and mtime, by another file that takes the name."""
    before = file.stat()
    new = file.with_name("new.bmp")
    draw_picture(new, 12345)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(new, file)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def flip_byte(file: Path, at: int) -> None:
    with open(file, "r+b") as opened:
        opened.seek(at)
        old = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([old ^ 1]))


# Tables


@pytest.mark.parametrize("changed", [1, 5, 20])
def test_a_table_with_changed_cells_is_other_data(tmp_path, changed):
    data = write_table(tmp_path / "d.csv")
    fit("erm", data, out=tmp_path / "run", **ONCE)
    write_table(tmp_path / "d.csv", changed)
    with pytest.raises(UserError, match=r"data\.fingerprint: the inputs of .* have changed"):
        fit("erm", data, out=tmp_path / "run", **ONCE)
    write_table(tmp_path / "d.csv")
    assert fit("erm", data, out=tmp_path / "run", **ONCE).status == "done"


def test_one_changed_cell_was_missed_by_the_partial_fingerprint(tmp_path):
    """What this is for: 64 samples of a split are seldom the ones that changed."""
    before = load_data(write_table(tmp_path / "d.csv"))
    after = load_data(write_table(tmp_path / "d.csv", 1))
    assert partial_fingerprint(before) == partial_fingerprint(after)
    assert fingerprint(before) != fingerprint(after)


def test_the_message_names_what_has_changed(tmp_path):
    def bundle(flip: int | None = None, classes: tuple[str, ...] = ("no", "yes")) -> Bundle:
        y = torch.arange(400) % 2
        if flip is not None:
            y[flip] = 1 - y[flip]
        x = torch.linspace(0, 1, 800).view(400, 2)
        return Bundle("own", Split(x, y), test=Split(x.clone(), torch.arange(400) % 2), classes=classes)

    fit("erm", bundle(), net="mlp", out=tmp_path / "run", **ONCE)
    with pytest.raises(UserError, match="the labels, attributes or their names of train have changed"):
        fit("erm", bundle(flip=7), net="mlp", out=tmp_path / "run", **ONCE)
    with pytest.raises(UserError, match="their names of train, test have changed"):
        fit("erm", bundle(classes=("yes", "no")), net="mlp", out=tmp_path / "run", **ONCE)
    whole = bundle()
    with pytest.raises(UserError, match="the splits were train, test and are train"):
        fit("erm", replace(whole, test=None), net="mlp", out=tmp_path / "run", **ONCE)
    assert fit("erm", whole, net="mlp", out=tmp_path / "run", **ONCE).status == "done"


KILLED = """
import sys, spurless
spurless.fit("erm", {"name": sys.argv[1], "label": "label"}, recipe={"epochs": 2000}, out=sys.argv[2], device="cpu",
             progress=False, checkpoint_seconds=0.05)
"""


def test_a_killed_run_does_not_resume_over_changed_data(tmp_path):
    data, run = write_table(tmp_path / "d.csv"), tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, data["name"], str(run)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(run.glob("stage-*")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "result.json").exists() and list(run.glob("stage-*"))
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    write_table(tmp_path / "d.csv", 1)
    with pytest.raises(UserError, match="the inputs of .* have changed"):
        fit("erm", data, recipe={"epochs": 2000}, out=run, device="cpu", progress=False)
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before  # nothing of the run was touched


# Runs of older versions


def as_older_version(run: Path, data: Bundle) -> None:
    """The folder as it was saved when the fingerprint was a partial one, and files had no checksum."""
    old = partial_fingerprint(data)
    new = fingerprint(data)
    for file in (run / "settings.toml", run / "result.json"):
        text = file.read_text()
        assert new in text
        file.write_text(text.replace(new, old))


def test_an_older_run_is_still_recognised_and_says_how(tmp_path):
    settings = write_table(tmp_path / "d.csv")
    first = fit("erm", settings, out=tmp_path / "run", **ONCE)
    as_older_version(tmp_path / "run", load_data(settings))
    again = fit("erm", settings, out=tmp_path / "run", **ONCE)
    assert again.scores == first.scores
    assert [note for note in again.notes if "partial fingerprint" in note]
    (tmp_path / "run" / "result.json").unlink()  # unfinished
    resumed = fit("erm", settings, out=tmp_path / "run", **ONCE)
    assert resumed.scores == first.scores and [note for note in resumed.notes if "partial fingerprint" in note]
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert is_partial(saved["settings"]["data"]["fingerprint"])  # it claims no more than is known
    text = (tmp_path / "d.csv").read_text()
    (tmp_path / "d.csv").write_text(text.replace("class0", "class2", 1))  # what the old one looked at in full: labels
    with pytest.raises(UserError, match="the data has changed"):
        fit("erm", settings, out=tmp_path / "run", **ONCE)


def test_a_new_run_has_no_note_on_partial_fingerprints(tmp_path):
    settings = write_table(tmp_path / "d.csv")
    for _ in range(2):
        assert not [n for n in fit("erm", settings, out=tmp_path / "run", **ONCE).notes if "partial" in n]


def test_a_model_knows_its_own_samples_by_either_form(tmp_path):
    data = load_data(write_table(tmp_path / "d.csv"))
    fit("erm", data, out=tmp_path / "run", **ONCE)
    model = tmp_path / "run" / "model.safetensors"
    assert is_its_own(model, data)
    assert is_its_own(model, load_data(write_table(tmp_path / "d.csv", 1))) is False
    tensors, facts = load_tensors(model)
    save_tensors(model, tensors, facts | {"rows": partial_fingerprint(data, with_attributes=False)})
    assert is_its_own(model, data)


def test_partial_fingerprints_stand_for_full_ones_only_where_it_is_clear():
    one, other = (f"{k * 16} v2 train {k * 16}/{k * 8} v1 {'f' * 16}" for k in "12")
    assert in_full([one, "f" * 16])("f" * 16) == one
    assert in_full([one, other, "f" * 16])("f" * 16) == "f" * 16
    assert in_full([one, other])(one) == one
    assert same_content("f" * 16, one) and not same_content(one, "f" * 16) and not same_content(one, other)


def rows_of(method: str, scores: list[float], fingerprints: list[str]) -> list[dict]:
    return [
        {
            "method": method,
            "data": "own",
            "seed": seed,
            "status": "done",
            "key": f"{method}{seed}",
            "scores": {"unbiased": score, "worst_group": score},
            "settings": {"data": {"name": "csv:d.csv", "seed": 0, "fingerprint": content}, "method": {"name": method}},
        }
        for seed, (score, content) in enumerate(zip(scores, fingerprints, strict=True))
    ]


def test_results_of_older_and_newer_versions_on_the_same_data_are_comparable():
    from spurless.bench.pairing import scores_by_name, with_full_fingerprints
    from spurless.report.tables import same_data

    full, other = (full_form({"train": (k * 8, b"1234")}, "f" * 16) for k in (b"1", b"2"))
    old, new = rows_of("erm", [50.0, 60.0], ["f" * 16] * 2), rows_of("lff", [70.0, 80.0], [full] * 2)
    assert len(set(same_data([*old, *new]))) == 1
    assert len(set(same_data([*old, *rows_of("lff", [70.0], ["0" * 16])]))) == 2
    assert (
        len(set(same_data([*old, *new, *rows_of("jtt", [1.0], [other])]))) == 3
    )  # of which the old ones may be either
    named = with_full_fingerprints([(row["method"], "own", row) for row in (*old, *new)])
    found = scores_by_name(named, "unbiased", [])
    assert found["erm"].keys() == found["lff"].keys() and len(found["erm"]) == 2
    assert old[0]["settings"]["data"]["fingerprint"] == "f" * 16  # the rows themselves stay as they are


def test_the_report_pairs_runs_of_older_and_newer_versions():
    from spurless.report.summary import Contender, difference

    full = full_form({"train": (b"1" * 8, b"1234")}, "f" * 16)
    erm = Contender("erm", rows_of("erm", [50.0, 60.0, 70.0], ["f" * 16] * 3))
    lff = Contender("lff", rows_of("lff", [51.0, 61.0, 71.0], [full] * 3))
    found = difference(lff, erm, "unbiased")
    assert found is not None and (found.value, found.low, found.high) == pytest.approx((1, 1, 1))  # by seed, always one


# Tensors


def test_a_tensor_is_hashed_whole_and_once(monkeypatch):
    from spurless.core import digests as hashing

    hashed = []
    real = hashing.digest
    monkeypatch.setattr(hashing, "digest", lambda data, size=16: (hashed.append(1), real(data, size))[1])
    x = torch.zeros(1000, 3)
    before = tensor_digest(x)
    n = len(hashed)
    assert tensor_digest(x) == before and len(hashed) == n
    x[777, 2] = 1e-30  # counted by torch
    assert tensor_digest(x) != before
    x[777, 2] = 0
    assert tensor_digest(x) == before
    assert tensor_digest(x.double()) != before and tensor_digest(x.view(3, 1000)) != before


def test_changes_through_numpy_are_noticed():
    """torch does not count them."""
    array = np.zeros((100, 3), np.float32)
    x = torch.from_numpy(array)
    before = tensor_digest(x)
    array[50, 1] = 1
    assert tensor_digest(x) != before
    y = torch.zeros(100)
    before = tensor_digest(y)
    y.numpy()[50] = 1
    assert tensor_digest(y) != before


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.int64])
def test_the_hash_is_of_the_content_not_of_the_layout(dtype, monkeypatch):
    x = (torch.randn(50, 4, 6) * 10).round().clamp(0, 200).to(dtype)
    whole = tensor_digest(x)
    turned = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not turned.is_contiguous() and tensor_digest(turned) == whole
    assert tensor_digest(x.clone()) == whole
    assert tensor_digest(torch.tensor(3).to(dtype)) == tensor_digest(torch.tensor(3).to(dtype))
    assert len(tensor_digest(torch.zeros(0, 3, dtype=dtype))) == 16
    monkeypatch.setattr("spurless.core.digests.CHUNK", 100)
    assert tensor_digest(x.clone()) == tensor_digest(turned.clone()) != tensor_digest(x.flip(0))
    wide = torch.ones(1, dtype=dtype).expand(7)
    assert tensor_digest(wide) == tensor_digest(wide.clone())
    assert tensor_digest(wide[:1]) == tensor_digest(torch.ones(1, dtype=dtype))  # whose stride is 0


def test_a_tensor_that_took_the_place_of_another_is_not_taken_for_it():
    seen = set()
    for value in range(200):
        seen.add(tensor_digest(torch.full((1000,), value)))
    assert len(seen) == 200
    x = torch.zeros(3)
    vouch(x, b"known")
    assert tensor_digest(x) == b"known"
    x += 1
    assert tensor_digest(x) != b"known"


def test_samples_that_are_decoded_on_demand_by_own_code_are_all_decoded():
    class Own:
        dtype = torch.float32

        def __init__(self, x: torch.Tensor):
            self.x, self.shape = x, tuple(x.shape)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, idx: torch.Tensor) -> torch.Tensor:
            return self.x[idx]

    def of(changed: bool) -> str:
        x = torch.zeros(600, 2)
        x[301] = float(changed)
        return fingerprint(Bundle("own", Split(Own(x), torch.arange(600) % 2)))

    assert of(False) == of(False) != of(True)


# Pictures


@pytest.mark.parametrize("use_cache", [True, False])
def test_one_replaced_picture_of_the_same_size_and_time_is_noticed(tmp_path, use_cache):
    settings = write_pictures(tmp_path / "pics") | {"cache": use_cache}
    before = load_data(settings)
    was = fingerprint(before)
    assert fingerprint(load_data(settings)) == was
    name = before.train.names[101]
    partial = partial_fingerprint(before)
    replace_unseen(tmp_path / "pics" / name)
    after = load_data(settings)
    assert partial_fingerprint(after) == partial  # which is why it went unnoticed
    assert fingerprint(after) != was
    # the picture that is trained on is the new one
    row = after.train.names.index(name)
    shown = images.decode((tmp_path / "pics" / name).read_bytes(), images.Frame(8))
    assert (after.train[torch.tensor([row])][0].numpy() == shown).all()


def test_pictures_have_one_fingerprint_from_the_cache_and_on_demand(tmp_path):
    settings = write_pictures(tmp_path / "pics", 60)
    assert fingerprint(load_data(settings)) == fingerprint(load_data(settings | {"cache": False}))
    assert fingerprint(load_data(settings)) != fingerprint(load_data(settings | {"resize": "squash", "zoom": 1.5}))


def aged(files: list[str]) -> None:
    """Wait until the files are old enough for their stamps to be trusted."""
    newest = max(os.stat(file).st_ctime for file in files)
    time.sleep(max(0.0, newest + 1.1 - time.time()))


def test_files_are_read_once_and_again_where_only_the_ctime_tells(tmp_path, monkeypatch):
    from spurless.core import digests as hashing

    write_pictures(tmp_path / "pics", 20)
    files = sorted(str(p) for p in (tmp_path / "pics").rglob("*.bmp"))
    read: list[str] = []
    real = hashing.content_digest
    monkeypatch.setattr(hashing, "content_digest", lambda file: (read.append(file), real(file))[1])
    aged(files)
    first = file_digests(files).tolist()
    assert len(read) == 20 and first == [real(file) for file in files]
    assert file_digests(files).tolist() == first and len(read) == 20
    replace_unseen(Path(files[7]))
    second = file_digests(files).tolist()
    assert read[20:] == [files[7]] and [i for i in range(20) if first[i] != second[i]] == [7]
    os.chmod(files[3], 0o600)  # another ctime, the same content
    aged(files)
    assert file_digests(files).tolist() == second and set(read[21:]) == {files[3], files[7]}
    assert file_digests(files).tolist() == second and len(read) == 23


def test_pixels_are_not_decoded_again_where_only_the_ctime_has_changed(tmp_path, monkeypatch):
    write_pictures(tmp_path / "pics", 10)
    files = sorted(str(p) for p in (tmp_path / "pics").rglob("*.bmp"))
    before = decode_cached(files, images.Frame(8)).x.clone()
    for file in files:
        os.chmod(file, 0o600)
    monkeypatch.setattr(images, "decode", lambda data, frame: pytest.fail("decoded again"))
    aged(files)
    assert torch.equal(decode_cached(files, images.Frame(8)).x, before)
    monkeypatch.setattr(image_cache, "content_digests", lambda files: [pytest.fail("read again") for _ in files])
    assert torch.equal(decode_cached(files, images.Frame(8)).x, before)


def test_a_flipped_byte_in_the_pixel_cache_is_noticed_and_mended(tmp_path, cache, capsys):
    settings = write_pictures(tmp_path / "pics", 60)
    before = load_data(settings)
    sound, was = before.train.x.clone(), fingerprint(before)
    (pixels,) = cache.glob("images/*/*.pixels")
    flip_byte(pixels, 25 * 192 + 17)
    capsys.readouterr()
    after = load_data(settings)
    assert "1 images" in capsys.readouterr().err
    assert torch.equal(after.train.x, sound) and fingerprint(after) == was
    load_data(settings)
    assert "checksum" not in capsys.readouterr().err  # it was mended for good


def test_damaged_pixels_are_not_copied_to_another_list(tmp_path, cache):
    write_pictures(tmp_path / "pics", 10)
    files = sorted(str(p) for p in (tmp_path / "pics").rglob("*.bmp"))
    sound = decode_cached(files, images.Frame(8)).x.clone()
    (pixels,) = cache.glob("images/*/*.pixels")
    flip_byte(pixels, 4 * 192)
    assert torch.equal(decode_cached(files[::-1], images.Frame(8)).x, sound.flip(0))


# Weights


def test_a_flipped_byte_in_the_weights_is_noticed(tmp_path):
    fit("erm", write_table(tmp_path / "d.csv"), out=tmp_path / "run", **ONCE)
    model = tmp_path / "run" / "model.safetensors"
    load_run(tmp_path / "run")
    copy = shutil.copy(model, tmp_path / "sound.safetensors")
    flip_byte(model, model.stat().st_size - 7)
    with pytest.raises(UserError, match=r"model\.safetensors is damaged: its weights do not match the checksum"):
        load_run(tmp_path / "run")
    assert load_tensors(Path(copy))[0]


def test_weights_of_another_file_under_the_same_facts_are_noticed(tmp_path):
    from safetensors.torch import save_file

    file = tmp_path / "model.safetensors"
    save_tensors(file, {"w": torch.zeros(3), "b": torch.ones(3)}, {"net": "mlp"})
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        saved = opened.metadata()
    save_file({"w": torch.ones(3), "b": torch.zeros(3)}, file, metadata=saved)  # exchanged
    with pytest.raises(UserError, match="damaged"):
        load_tensors(file)
    save_file({"w": torch.ones(3)}, file, metadata={"spurless": saved["spurless"]})  # of an older version
    assert load_tensors(file)[1] == {"net": "mlp"}


def test_a_damaged_checkpoint_is_not_resumed(tmp_path):
    data, run = write_table(tmp_path / "d.csv"), tmp_path / "run"
    fit("erm", data, out=run, **ONCE)
    (run / "result.json").unlink()
    (stage,) = run.glob("stage-*.safetensors")
    flip_byte(stage, stage.stat().st_size - 5)
    with pytest.raises(UserError, match="damaged"):
        fit("erm", data, out=run, **ONCE)


def test_damaged_tokens_are_made_again(tmp_path, cache):
    from spurless.data.tokens import tokenise
    from tests.support.text_worlds import word_tokenizer

    words = word_tokenizer(tmp_path)
    sound = tokenise(["good film", "bad film"], words, 16)
    (file,) = (cache / "tokens").glob("*.safetensors")
    flip_byte(file, file.stat().st_size - 20)
    assert torch.equal(tokenise(["good film", "bad film"], words, 16), sound)


def test_the_recipe_still_counts(tmp_path):
    data = write_table(tmp_path / "d.csv")
    fit("erm", data, out=tmp_path / "run", **ONCE)
    with pytest.raises(UserError, match="recipe.epochs"):
        fit("erm", data, recipe=Recipe(epochs=2), out=tmp_path / "run", device="cpu", progress=False)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_hashes_too():
    """It inherits the pool of threads, but none of its threads."""
    from multiprocessing import get_context

    x = torch.arange(1000.0)
    known = tensor_digest(x.clone())
    with get_context("fork").Pool(1) as processes:
        assert processes.apply_async(tensor_digest, (x,)).get(timeout=60) == known

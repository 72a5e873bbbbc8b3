"""Images come out as a person sees them, are decoded once, and survive a kill."""

import gc
import io
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.data.ingest import image_cache, images, jpeg
from spurless.data.ingest.collection import read_splits, to_split
from spurless.data.ingest.image_cache import ROW, decode_cached
from spurless.data.ingest.images import Frame, LazyRows, decode
from spurless.data.ingest.pillow_memory import rgb_pixels

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def count(monkeypatch):
    """How many images have been decoded so far."""
    done = []
    real = images.decode
    monkeypatch.setattr(images, "decode", lambda data, frame: (done.append(1), real(data, frame))[1])
    return lambda: len(done)


def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """Smooth colours, so that JPEG and resampling change little."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def write_folder(folder: Path, n: int, suffix: str = "png") -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{i:03d}.{suffix}" for i in range(n)]
    for i, file in enumerate(files):
        picture(i).save(file)
    return [str(file) for file in files]


def halves(mode: str, left, right) -> Image.Image:
    """32 by 32 pixels, two colours."""
    out = Image.new(mode, (32, 32), right)
    out.paste(left, (0, 0, 16, 32))
    return out


def decoded(file: Path, size: int = 32) -> np.ndarray:
    return decode(file.read_bytes(), Frame(size))


def colours(file: Path) -> list[list[int]]:
    out = decoded(file)
    return [out[:, 16, 4].tolist(), out[:, 16, 28].tolist()]


def test_palette_grey_and_alpha_files_look_as_on_a_white_page(tmp_path):
    transparent_left = halves("RGBA", (0, 255, 0, 0), (255, 0, 0, 255))
    palette = halves("RGB", RED, BLUE).convert("P", palette=Image.Palette.ADAPTIVE)
    see_through = palette.copy()
    see_through.info["transparency"] = palette.getpixel((0, 0))
    cases = {
        "rgb.png": (halves("RGB", RED, BLUE), [RED, BLUE]),
        "palette.png": (palette, [RED, BLUE]),
        "palette.gif": (palette, [RED, BLUE]),
        "palette_alpha.png": (see_through, [WHITE, BLUE]),
        "grey.png": (halves("L", 30, 200), [(30,) * 3, (200,) * 3]),
        "grey_alpha.png": (halves("LA", (0, 0), (0, 128)), [WHITE, (127,) * 3]),
        "bits.png": (halves("1", 0, 1), [(0,) * 3, WHITE]),
        "alpha.png": (transparent_left, [WHITE, RED]),
        "alpha.webp": (transparent_left, [WHITE, RED]),
    }
    for name, (image, expected) in cases.items():
        image.save(tmp_path / name, **({"lossless": True} if name.endswith("webp") else {}))
        assert np.allclose(colours(tmp_path / name), expected, atol=1), name


def test_a_see_through_colour_of_an_rgb_png_is_white(tmp_path):
    halves("RGB", RED, BLUE).save(tmp_path / "key.png", transparency=RED)
    assert colours(tmp_path / "key.png") == [list(WHITE), list(BLUE)]


def test_cmyk_jpeg(tmp_path):
    halves("CMYK", (0, 255, 255, 0), (255, 255, 0, 0)).save(tmp_path / "print.jpg", quality=100)
    assert np.allclose(colours(tmp_path / "print.jpg"), [RED, BLUE], atol=6)


@pytest.mark.parametrize("name", ["wide.png", "wide.tif"])
def test_sixteen_bits_become_eight_by_scale_not_by_clipping(tmp_path, name):
    values = np.full((32, 32), 65535, np.uint16)
    values[:, :16] = 257 * 100
    Image.fromarray(values).save(tmp_path / name)
    assert colours(tmp_path / name) == [[100] * 3, [255] * 3]


def png(width: int, height: int, bits: int, lines: bytes) -> bytes:
    """An RGB PNG written by hand: Pillow writes neither 16-bit colour nor a false size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_sixteen_bit_colour_png(tmp_path):
    left, right = struct.pack(">3H", 65535, 0, 0), struct.pack(">3H", 0, 0, 257 * 100)
    (tmp_path / "wide.png").write_bytes(png(32, 32, 16, (b"\0" + left * 16 + right * 16) * 32))
    assert colours(tmp_path / "wide.png") == [[255, 0, 0], [0, 0, 100]]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_without_a_known_white_are_refused(tmp_path, dtype):
    Image.fromarray(np.ones((8, 8), dtype)).save(tmp_path / "field.tif")
    done = decode_cached([str(tmp_path / "field.tif")], Frame(8))
    assert "which value is white" in done.broken[0]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation, suffix):
    upright = np.zeros((48, 32, 3), np.uint8)
    upright[:24, :16], upright[:24, 16:], upright[24:, :16] = 255, (255, 0, 0), (0, 0, 255)
    # How a camera that is held so stores what stands upright.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(stored))
    image.save(tmp_path / f"photo.{suffix}", exif=exif, **({"quality": 100} if suffix == "jpg" else {}))
    out = decode((tmp_path / f"photo.{suffix}").read_bytes(), Frame(16, "squash"))
    expected = np.asarray(Image.fromarray(upright).resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    corners = [(3, 3), (3, 12), (12, 3), (12, 12)]
    for row, col in corners:
        assert np.allclose(out[:, row, col], expected[:, row, col], atol=8), (row, col)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_leaves_the_pixels(tmp_path):
    halves("RGB", RED, BLUE).save(tmp_path / "a.jpg", quality=100, exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01")
    assert np.allclose(colours(tmp_path / "a.jpg"), [RED, BLUE], atol=6)


@pytest.mark.parametrize(("width", "height"), [(90, 60), (60, 90), (37, 61), (300, 40), (20, 16)])
def test_resized_as_torchvision_does(width, height):
    from torchvision.transforms import CenterCrop, Compose, Resize

    image = picture(0, width, height)
    # The last is Waterbirds' published way (256, then the central 224), here 64 and 56.
    for frame, slow in {
        Frame(32): Compose([Resize(32), CenterCrop(32)]),
        Frame(32, "squash"): Resize((32, 32)),
        Frame(56, "squash", zoom=64 / 56): Compose([Resize((64, 64)), CenterCrop(56)]),
        Frame(56, zoom=64 / 56): Compose([Resize(64), CenterCrop(56)]),
    }.items():
        assert np.abs(frame.cut(image).astype(int) - np.asarray(slow(image)).transpose(2, 0, 1)).max() <= 1


def test_a_large_jpeg_decoded_small_is_nearly_the_same(tmp_path):
    image = picture(2, 1600, 1200)
    image.save(tmp_path / "large.jpg", quality=95)
    with Image.open(tmp_path / "large.jpg") as full:
        whole = Frame(64).cut(full)
    assert np.abs(decoded(tmp_path / "large.jpg", 64).astype(int) - whole).mean() < 1


@pytest.mark.parametrize("size", [(37, 61), (1, 1), (640, 480)])
def test_pillows_own_memory_holds_the_same_pixels(size):
    image = picture(3, *size).crop((0, 0, *size))
    seen, copied = rgb_pixels(image), np.array(image)
    assert seen.shape[-1] == 4, "a copy was made"
    del image  # the memory stays
    gc.collect()
    assert (seen[..., :3].numpy() == copied).all()


@pytest.mark.parametrize("missing", [AttributeError, ValueError, MemoryError])
def test_where_pillow_does_not_give_its_memory_the_cut_is_the_same(monkeypatch, missing):
    image = picture(4, 300, 200)
    frames = [Frame(32), Frame(224), Frame(56, "squash", zoom=64 / 56)]
    expected = [frame.cut(image) for frame in frames]

    def refuse(self):
        raise missing

    monkeypatch.setattr(Image.Image, "__arrow_c_array__", refuse, raising=False)
    assert rgb_pixels(image).shape == (200, 300, 3)
    for frame, cut in zip(frames, expected, strict=True):
        assert (frame.cut(image) == cut).all()


def test_a_picture_in_several_blocks_of_memory():
    large = picture(5, 2600, 2000)
    assert (rgb_pixels(large)[..., :3].numpy() == np.array(large)).all()


def test_pixels_are_compared_once_they_were_written_by_an_earlier_start(tmp_path, monkeypatch):
    files, sums = write_folder(tmp_path / "a", 5), []
    real = image_cache.checksum
    monkeypatch.setattr(image_cache, "checksum", lambda data: (sums.append(1), real(data))[1])
    decode_cached(files, Frame(8))
    assert len(sums) == 5  # as they were decoded
    decode_cached(files, Frame(8))
    assert len(sums) == 10


def test_cache_holds_what_decoding_gives(tmp_path, count):
    files = write_folder(tmp_path / "a", 30)
    done = decode_cached(files, Frame(16))
    assert (done.x.shape, done.x.dtype, done.broken) == (torch.Size([30, 3, 16, 16]), torch.uint8, {})
    for i, file in enumerate(files):
        assert (done.x[i].numpy() == decode(Path(file).read_bytes(), Frame(16))).all()
    assert count() == 30


def test_decoded_once(tmp_path, count):
    files = write_folder(tmp_path / "a", 12)
    first = decode_cached(files, Frame(16)).x.clone()
    assert torch.equal(decode_cached(files, Frame(16)).x, first)
    backwards = decode_cached(files[::-1], Frame(16))
    assert torch.equal(backwards.x, first.flip(0))
    assert torch.equal(decode_cached(files[3:7] + files[:2], Frame(16)).x, torch.cat([first[3:7], first[:2]]))
    assert count() == 12  # another order or part of the list copies rows
    decode_cached(files, Frame(8))
    assert count() == 24  # another size does not


def test_a_changed_file_alone_is_decoded_again(tmp_path, count):
    files = write_folder(tmp_path / "a", 6)
    before = decode_cached(files, Frame(16)).x.clone()
    picture(99).save(files[2])
    os.utime(files[2], ns=(1, 1))
    after = decode_cached(files, Frame(16)).x
    assert count() == 7
    assert [i for i in range(6) if not torch.equal(before[i], after[i])] == [2]


def test_a_file_listed_twice_fills_both_rows(tmp_path):
    files = write_folder(tmp_path / "a", 3)
    decode_cached(files, Frame(8))
    x = decode_cached([files[0], files[1], files[0]], Frame(8)).x
    assert torch.equal(x[0], x[2])
    assert x[2].any()


def test_digest_is_that_of_the_bytes(tmp_path):
    files = write_folder(tmp_path / "a", 3)
    (tmp_path / "a" / "copy.png").write_bytes(Path(files[1]).read_bytes())
    for _ in range(2):  # decoded, then from the cache
        digests = decode_cached([*files, str(tmp_path / "a" / "copy.png")], Frame(8)).digests
        assert digests[3] == digests[1]
        assert len(set(digests.tolist())) == 3
    seen, _ = images.inspect([*files, str(tmp_path / "a" / "copy.png")])
    assert seen[3] == seen[1] != b""


def test_interrupted_decode_goes_on_where_it_was(tmp_path, monkeypatch):
    files = write_folder(tmp_path / "a", 40)
    expected = [decode(Path(file).read_bytes(), Frame(8)) for file in files]
    monkeypatch.setattr(image_cache, "CHUNK", 10 * Frame(8).nbytes)
    real, calls = images.decode, []

    def stop_in_the_middle(data: bytes, frame: Frame) -> np.ndarray:
        calls.append(1)
        if len(calls) == 36:
            raise MemoryError
        return real(data, frame)

    monkeypatch.setattr(images, "decode", stop_in_the_middle)
    with pytest.raises(MemoryError):
        decode_cached(files, Frame(8))
    before = len(calls)
    x = decode_cached(files, Frame(8)).x
    assert len(calls) - before < 40  # some were kept
    assert (x.numpy() == np.stack(expected)).all()


KILLED = """
import sys, time
from spurless.data.ingest import image_cache, images, jpeg
real = images.decode
image_cache.CHUNK = 5 * images.Frame(8).nbytes
images.decode = lambda data, frame: (time.sleep(0.02), real(data, frame))[1]
image_cache.decode_cached(sys.argv[1:], images.Frame(8))
"""


def test_killed_decode_goes_on_where_it_was(tmp_path, cache, count):
    files = write_folder(tmp_path / "a", 300)
    expected = np.stack([decode(Path(file).read_bytes(), Frame(8)) for file in files])
    process = subprocess.Popen([sys.executable, "-c", KILLED, *files])
    deadline, there = time.monotonic() + 60, 0
    while there < 40 and time.monotonic() < deadline:
        time.sleep(0.005)
        for index in cache.glob("images/*/*.rows"):
            there = int((np.fromfile(index, ROW)["key"] != b"").sum())
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL  # it was not done yet
    done = decode_cached(files, Frame(8))
    assert count() <= 300 - there
    assert (done.x.numpy() == expected).all()


def test_broken_files_are_named_and_the_others_are_read(tmp_path):
    files = write_folder(tmp_path / "a", 4) + write_folder(tmp_path / "b", 2, "jpg")
    whole = Path(files[5]).read_bytes()
    Path(files[0]).write_bytes(b"")
    Path(files[1]).write_text("not an image")
    Path(files[2]).write_bytes(Path(files[2]).read_bytes()[:-40])
    Path(files[5]).write_bytes(whole[: len(whole) // 2])
    gone = str(tmp_path / "gone.png")
    for _ in range(2):
        done = decode_cached([*files, gone], Frame(8))
        assert sorted(done.broken) == [0, 1, 2, 5, 6]
        assert done.broken[1] == "not an image of a known kind"
        assert done.broken[6] == "No such file or directory"
        assert [i for i, digest in enumerate(done.digests) if not digest] == [0, 1, 2, 5, 6]
        assert (done.x[3].numpy() == decode(Path(files[3]).read_bytes(), Frame(8))).all()
    Path(files[5]).write_bytes(whole)  # mended
    assert 5 not in decode_cached([*files, gone], Frame(8)).broken


def test_a_decompression_bomb_is_a_broken_file(tmp_path):
    (tmp_path / "bomb.png").write_bytes(png(60000, 60000, 8, b""))
    assert "bomb" in decode_cached([str(tmp_path / "bomb.png")], Frame(8)).broken[0]


def test_writing_to_the_tensor_never_reaches_the_cache(tmp_path):
    files = write_folder(tmp_path / "a", 2)
    first = decode_cached(files, Frame(8)).x
    before = first.clone()
    first.zero_()
    assert torch.equal(decode_cached(files, Frame(8)).x, before)


def test_no_place_for_the_cache(tmp_path, monkeypatch):
    files = write_folder(tmp_path / "a", 1)
    (tmp_path / "taken").write_text("a file, not a folder")
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "taken"))
    with pytest.raises(UserError, match="SPURLESS_CACHE"):
        decode_cached(files, Frame(8))


def test_nothing_to_decode():
    assert decode_cached([], Frame(8)).x.shape == (0, 3, 8, 8)


def test_lazy_rows_equal_cached_ones(tmp_path):
    files = write_folder(tmp_path / "a", 9)
    lazy = LazyRows(tmp_path / "a", [Path(file).name for file in files], Frame(16))
    x = decode_cached(files, Frame(16)).x
    assert (lazy.shape, len(lazy), lazy.dtype) == ((9, 3, 16, 16), 9, x.dtype)
    for idx in (torch.tensor([4, 4, 0]), torch.tensor([], dtype=torch.long), torch.arange(9) > 6, torch.tensor(3)):
        assert torch.equal(lazy[idx], x[idx])
    assert torch.equal(lazy[2:5], x[2:5])
    assert torch.equal(lazy[-1], x[-1])
    Path(files[4]).write_text("broken")
    with pytest.raises(UserError, match=r"004\.png cannot be read"):
        lazy[torch.tensor([1, 4])]


def test_read_splits_reports_all_broken_files_or_leaves_them_out(tmp_path, capsys):
    files = write_folder(tmp_path / "a", 6)
    for i in (1, 4):
        Path(files[i]).write_text("broken")
    names = [Path(file).name for file in files]

    def split(rows: slice) -> Split:
        y = torch.arange(6)[rows]
        return Split(LazyRows(tmp_path / "a", names[rows], Frame(8)), y, y[:, None] + 10, names[rows])

    splits = {"train": split(slice(0, 4)), "test": split(slice(4, 6))}
    with pytest.raises(UserError) as caught:
        read_splits(splits, "mine")
    assert "2 problems" in str(caught.value)
    assert "001.png" in str(caught.value)
    assert "004.png" in str(caught.value)
    assert "data.skip_broken=true" in str(caught.value)
    read, notes = read_splits(splits, "mine", skip_broken=True)
    assert read["train"].y.tolist() == [0, 2, 3]
    assert read["train"].a.tolist() == [[10], [12], [13]]
    assert read["train"].names == ["000.png", "002.png", "003.png"]
    assert read["test"].names == ["005.png"]
    assert (read["test"].x[0].numpy() == decode(Path(files[5]).read_bytes(), Frame(8))).all()
    assert notes == ("2 broken image files left out: 001.png, 004.png",)
    assert "not an image of a known kind" in capsys.readouterr().err
    # Both splits are views of one file: nothing was copied into memory.
    assert read["train"].x.untyped_storage().data_ptr() == read["test"].x.untyped_storage().data_ptr()


@pytest.mark.parametrize(("width", "height"), [(65000, 1), (1, 65000), (9000, 9000)])
def test_a_small_file_cannot_ask_for_any_amount_of_memory(tmp_path, width, height):
    """The header alone decides: nothing is decoded, and nothing is resized to 14 million pixels of width."""
    file = tmp_path / "long.png"
    file.write_bytes(png(width, height, 8, b""))
    (why,) = decode_cached([str(file)], Frame(224)).broken.values()
    assert "data.max_pixels" in why
    assert "data.max_pixels" in images.inspect([str(file)])[1][0]


def test_the_limit_of_pixels_is_a_setting_and_changes_no_pixel(tmp_path):
    (file,) = write_folder(tmp_path / "a", 1)
    small = Frame(8, max_pixels=1000)
    assert "40 x 30" in decode_cached([file], small).broken[0]
    assert (
        decode(Path(file).read_bytes(), Frame(8, max_pixels=1200)) == decode(Path(file).read_bytes(), Frame(8))
    ).all()
    assert repr(small) == repr(Frame(8))  # by which caches and fingerprints are told apart


def test_collections_leave_out_truncated_images_without_a_cache(tmp_path):
    files = write_folder(tmp_path / "a", 4)
    Path(files[2]).write_bytes(Path(files[2]).read_bytes()[:-40])
    rows = [(f"a/{Path(file).name}", i % 2, 0) for i, file in enumerate(files)]
    splits = {"train": to_split(tmp_path, rows, Frame(8))}
    read, notes = read_splits(splits, "mine", use_cache=False, skip_broken=True)
    assert len(read["train"][torch.arange(3)]) == len(read["train"]) == 3
    assert "1 broken image file left out" in notes[0]


def jpeg_bytes(image: Image.Image, **how) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **how)
    return out.getvalue()


def by_pillow(data: bytes, frame: Frame) -> np.ndarray | str:
    with Image.open(io.BytesIO(data)) as opened:
        frame.draft(opened)
        return images.or_why(lambda: frame.cut(opened))


@pytest.mark.parametrize(
    "how", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2}, {"quality": 30}, {"keep_rgb": True}]
)
@pytest.mark.parametrize("size", [(300, 200), (37, 61), (1600, 1200)])
def test_jpegs_by_torchvision_are_those_by_pillow_to_the_bit(how, size):
    rng = np.random.default_rng(0)
    noisy = Image.fromarray(rng.integers(0, 256, (size[1] // 3, size[0] // 3, 3), dtype=np.uint8)).resize(size)
    data = jpeg_bytes(noisy, **how)
    assert jpeg.plain_size(data) == size
    assert jpeg.pixels_of(data) is not None
    for frame in (Frame(32), Frame(224), Frame(56, "squash", zoom=64 / 56)):
        assert (decode(data, frame) == by_pillow(data, frame)).all()


def test_other_jpegs_are_left_to_pillow():
    exif = Image.Exif()
    exif[0x0112] = 6
    others = {"exif": jpeg_bytes(picture(0), exif=exif), "grey": jpeg_bytes(picture(0).convert("L"))}
    others |= {"cmyk": jpeg_bytes(picture(0).convert("CMYK")), "png": png(8, 8, 8, b""), "cut": b"\xff\xd8\xff\xe0\0"}
    assert {name: jpeg.plain_size(data) for name, data in others.items()} == dict.fromkeys(others)


def test_damaged_jpegs_are_what_they_were_with_pillow_alone(tmp_path):
    """Cut short, or with bytes that are wrong: the same pixels, or refused as before."""
    rng, whole = np.random.default_rng(0), jpeg_bytes(picture(1, 200, 150), quality=90)
    outcomes = []
    for k in range(60):
        data = bytearray(whole)
        if k % 2:
            del data[int(rng.integers(20, len(data))) :]
        else:
            data[int(rng.integers(2, len(data)))] = int(rng.integers(256))
        (tmp_path / f"{k}.jpg").write_bytes(data)
        mine = images.attempt(str(tmp_path / f"{k}.jpg"), Frame(100))
        theirs = images.or_why(lambda data=bytes(data): by_pillow(data, Frame(100)))
        assert mine == theirs if isinstance(mine, str) else (mine[0] == theirs).all(), k
        outcomes.append(isinstance(mine, str))
    assert 5 < sum(outcomes) < 55  # both kinds occurred


def test_without_torchvisions_decoder_the_pixels_are_the_same(monkeypatch):
    data = jpeg_bytes(picture(2, 300, 200))
    expected = decode(data, Frame(64))
    monkeypatch.setattr(jpeg, "_decoder", lambda: None)
    assert (decode(data, Frame(64)) == expected).all()


def test_a_plain_jpeg_over_the_limit_is_refused_before_it_is_decoded(tmp_path):
    picture(0, 100, 80).save(tmp_path / "a.jpg")
    assert "at most 7,999 are decoded" in images.attempt(str(tmp_path / "a.jpg"), Frame(64, max_pixels=7999))

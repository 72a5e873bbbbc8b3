"""Data that changes between two runs of one command: it is noticed, however little it is and however it came about."""

import os
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from spurless import Bundle, Split, fit
from tests.robust.outcomes import CHANGED, CLEAN, FINE, TRACEBACK, Outcome, call

ONCE = {"recipe": {"epochs": 1, "batch_size": 16}, "net": "linear", "device": "cpu", "progress": False}


def changes(rng, folder):
    """A run, a change of what decides it (or none), and the same run again."""
    with patch.dict(os.environ, SPURLESS_CACHE=str(folder / "cache")):
        return _twice(rng, folder)


def _twice(rng, folder):
    make = rng.choice([_table, _parquet, _text, _pictures, _pictures, _links, _npz, _bundle, _cache])
    data, change, noticed = make(rng, folder)
    how = ONCE | ({"net": "embedding_bag"} if make is _text else {})
    run = folder / "run"
    before = fit("erm", data(), out=run, **how)
    unfinished = rng.random() < 0.4
    if unfinished:
        (run / "result.json").unlink()
    changed = rng.random() < 0.8
    if changed:
        change()
    found = []
    outcome = call(lambda: found.append(fit("erm", data(), out=run, **how)))
    what = f"{make.__name__} {'unfinished' if unfinished else 'finished'}"
    if outcome.kind == CLEAN:
        named = "have changed" in outcome.detail or "fingerprint" in outcome.detail
        if changed and noticed and named:
            return outcome
        return Outcome(TRACEBACK, f"{what}: refused for another reason: {outcome.detail}")
    if outcome.kind != FINE:
        return outcome
    if changed and noticed:
        return Outcome(CHANGED, f"{what}: the change went unnoticed")
    if found[0].scores != before.scores:
        return Outcome(CHANGED, f"{what}: other scores of the same data")
    return outcome


def _in_place(path, data, restore):
    """Write a file anew; its times as before, where they are restored."""
    was = path.stat()
    path.write_bytes(data)
    if restore:
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _by_another(path, data, restore):
    """Another file takes the name."""
    was, new = path.stat(), path.with_name("new.part")
    new.write_bytes(data)
    if restore:
        os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.replace(new, path)


def _put(rng, path, data):
    rng.choice([_in_place, _by_another])(path, data, rng.random() < 0.7)


def _cells(rng, n):
    return [[rng.choice("ab"), str(rng.randrange(10, 99)), "yn"[i % 2]] for i in range(n)]


def _other(rng, cells):
    """One cell that is another one, of the same length."""
    row = rng.choice(cells)
    column = rng.randrange(2)
    row[column] = {"a": "b", "b": "a"}[row[0]] if column == 0 else str(10 + (int(row[1]) - 9) % 89)


def _written(cells):
    return "\n".join(["where,x,label", *(",".join(row) for row in cells)]).encode()


def _table(rng, folder):
    path, cells = folder / "t.csv", _cells(rng, rng.choice([40, 200, 700]))
    path.write_bytes(_written(cells))

    def change():
        _other(rng, cells)
        _put(rng, path, _written(cells))

    return lambda: {"name": f"csv:{path}", "label": "label"}, change, True


def _parquet(rng, folder):
    import pandas as pd

    path, cells = folder / "t.parquet", _cells(rng, rng.choice([40, 200]))

    def write():
        pd.DataFrame(cells, columns=["where", "x", "label"]).astype({"x": int}).to_parquet(path)

    def change():
        _other(rng, cells)
        was = path.stat()
        write()
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    write()
    return lambda: {"name": f"csv:{path}", "label": "label"}, change, True


def _text(rng, folder):
    words = [f"word{i}" for i in range(20)]
    path = folder / "t.csv"
    rows = [[" ".join(rng.choice(words) for _ in range(12)), "yn"[i % 2]] for i in range(80)]

    def written():
        return "\n".join(["text,label", *(",".join(row) for row in rows)]).encode()

    def change():
        row = rng.choice(rows)
        first, _, rest = row[0].partition(" ")
        row[0] = f"{rng.choice([w for w in words if w != first])} {rest}"
        _put(rng, path, written())

    path.write_bytes(written())
    return lambda: {"name": f"csv:{path}", "label": "label", "text": "text"}, change, True


def _bmp(path, value):
    """A picture whose file has the same size whatever it shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(value).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path, "BMP")
    return path


def _photos(rng, folder, linked=False):
    for i in range(rng.choice([30, 90])):
        path = folder / "photos" / ("cat", "dog")[i % 2] / f"{i:03}.bmp"
        _bmp(folder / "store" / f"{i:03}.bmp" if linked else path, i)
        if linked:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(folder / "store" / f"{i:03}.bmp")
    data = {"name": f"folder:{folder / 'photos'}", "size": 8, "cache": rng.random() < 0.6}
    return data, sorted((folder / "photos").rglob("*.bmp"))


def _pictures(rng, folder):
    data, paths = _photos(rng, folder)
    return lambda: data, lambda: _put(rng, rng.choice(paths), _bmp(folder / "other", 12345).read_bytes()), True


def _links(rng, folder):
    data, paths = _photos(rng, folder, linked=True)

    def change():
        path = rng.choice(paths)
        if rng.random() < 0.5:  # the file behind the link
            _put(rng, path.resolve(), _bmp(folder / "other", 12345).read_bytes())
            return
        path.unlink()
        path.symlink_to(_bmp(folder / "other", 12345))

    return lambda: data, change, True


def _cache(rng, folder):
    """A byte of the decoded pixels: they are decoded again, and the run is the same."""
    data, _ = _photos(rng, folder)

    def change():
        for path in sorted((folder / "cache").rglob("*")):
            if path.is_file() and path.suffix not in (".lock", ".json") and path.stat().st_size >= 192:
                with open(path, "r+b") as file:
                    at = rng.randrange(path.stat().st_size - 192, path.stat().st_size)
                    file.seek(at)
                    old = file.read(1)
                    file.seek(at)
                    file.write(bytes([old[0] ^ 1]))

    return lambda: data | {"cache": True}, change, False


def _npz(rng, folder):
    """Arrays in a file, read by code of one's own."""
    path = folder / "d.npz"
    arrays = {"x": np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32), "y": np.arange(60) % 2}
    np.savez(path, **arrays)

    def read():
        with np.load(path) as file:
            return _made(torch.from_numpy(file["x"]), torch.from_numpy(file["y"]))

    def change():
        arrays["x"][rng.randrange(60), rng.randrange(5)] += rng.choice([1, 1e-3, 1e-6])
        np.savez(path, **arrays)

    return read, change, True


def _bundle(rng, folder):
    """A bundle in memory, changed in place: through torch, or through numpy behind its back."""
    shared = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
    x = torch.from_numpy(shared) if rng.random() < 0.5 else torch.from_numpy(shared.copy()).clone()
    y = torch.arange(60) % 2
    bundle = _made(x, y)

    def change():
        row, column = rng.randrange(60), rng.randrange(5)
        if rng.random() < 0.3:
            y[row] = 1 - y[row]
        elif np.shares_memory(shared, x.numpy()):
            shared[row, column] += 1
        else:
            with torch.no_grad():
                x[row, column] += 1

    return lambda: bundle, change, True


def _made(x, y):
    return Bundle("mine", Split(x[:40], y[:40]), test=Split(x[40:], y[40:]))

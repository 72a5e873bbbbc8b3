"""Seeded, bounded generators of hostile and broken inputs. Each makes files below a folder and gives one command."""

import io
import json
import random
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from spurless.bench.trials import Trial
from spurless.core.recipe import Recipe
from spurless.core.settings import settings_of
from spurless.methods import METHODS
from tests.robust.changes import changes
from tests.robust.outcomes import call, command

QUICK = ("--device", "cpu", "--set", "recipe.epochs=1", "--set", "recipe.batch_size=16")
TEXTS = [
    "", " ", "a", "é", "日本", "\x1b[31m", "\x00", "\u202e", "=1+1", "nan", "inf", "-inf", "1e308", "1e309", "-1", "0",
    "0.5", "true", "none", "[", "[[[[", "[" * 3000, "{", "}" * 50, "9" * 400, "9" * 5000, "1" * 400 + ".5", "0x10",
    "1_000", "'", '"', '"""', "\\", "../..", "/", "a" * 5000, "\ud800", "a=b", "a,b", "[1, 2", "[nan]", "[1e999]",
    "2024-01-01", "1979-05-27T07:32:00Z", "-0.0", "1e-400", "{a = 1}", "[[1], [2]]", "[true, 1]", "null", "\n", "\t",
]  # fmt: skip


def _text(rng):
    if rng.random() < 0.75:
        return rng.choice(TEXTS)
    return "".join(
        chr(rng.choice([rng.randrange(1, 128), rng.randrange(128, 0x3000)])) for _ in range(rng.randrange(12))
    )


def _shell(text):
    """As a shell could pass it: without zero bytes, any other bytes."""
    return (
        text.replace("\x00", "")
        .encode("utf-8", "surrogateescape" if "\udc80" <= text <= "\udcff" else "replace")
        .decode()
    )


def _mangled(rng, data):
    """Bytes cut, flipped, doubled or replaced."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(5)
        at = rng.randrange(max(1, len(data)))
        if kind == 0:
            del data[at:]
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif kind == 3:
            data[at:at] = data[at : at + 64]
        elif data:
            del data[at : at + rng.randrange(1, 64)]
    return bytes(data)


# Settings


def _targets():
    from spurless.registry import find

    for name in ("toy", "parity", "gaussians", "linear_toy"):
        yield "data", name, settings_of(find("data", name))
    for name in METHODS:
        yield "method", name, settings_of(find("method", name))
    for name in ("mlp", "linear", "simconv1", "resnet18"):
        yield "net", name, settings_of(find("net", name))
    yield "recipe", None, settings_of(Recipe)


def settings(rng, folder):
    """A setting with a strange value, resolved as the command line does."""
    section, name, known = rng.choice(list(_targets()))
    chosen = rng.choice([*known] or ["nothing"]) if rng.random() < 0.9 else _shell(_text(rng))
    value = _shell(_text(rng))
    if section == "data" and rng.random() < 0.7:
        return command("data", "describe", name, "--set", f"data.{chosen}={value}", "--json")
    # As a specification: everything is checked, and nothing is trained.
    tables = {"data": {"name": "toy"}, "method": {"name": "erm"}, "net": {"name": "mlp"}, "recipe": {}}
    tables[section] = ({"name": name} if name else {}) | {chosen: value}
    return call(lambda: Trial(**tables).key)


def options(rng, folder):
    """An option or argument with a strange value."""
    value = _shell(_text(rng))
    return command(*rng.choice([
        ("train", value, "toy"),
        ("train", "erm", value),
        ("train", "erm", "toy", "--net", value, "--set", "data.no_such=1"),
        ("train", "erm", "toy", "--recipe", value, "--set", "data.no_such=1"),
        ("train", "erm", "toy", "--device", value, "--set", "data.no_such=1"),
        ("train", "erm", "toy", "--seed", value, "--set", "data.no_such=1"),
        ("train", "erm", f"csv:{folder}/{value}"),
        ("train", "erm", f"folder:{folder}/{value}"),
        ("audit", "toy", "--budget", value, "--set", "data.no_such=1"),
        ("audit", "toy", "--fail-on", value),
        ("sweep", "toy", "--over", value, "--values", "1,x", "--out", folder / "sweep"),
        ("sweep", "toy", "--over", "lr", "--values", f"x,{value}", "--set", "data.no_such=1"),
        ("suggest-lr", "toy", "--budget", value, "--set", "data.no_such=1"),
        ("show", folder / value.strip("/.") / "x"),
        ("compare", value or "x", value),
        ("reproduce", value or "x"),
        ("list", value),
        ("data", "download", value, "--data-root", folder / "data"),
    ]))  # fmt: skip


# TOML and specifications

SPEC = """title = "t"
seeds = [0, 1]
[[block]]
label = "b"
data = {name = "toy", n = 100}
net = "linear"
recipe = {epochs = 1}
over = {"data.rho" = [0.1, 0.2]}
[[block.row]]
label = "r"
method = {name = "erm"}
paper = {"0.1" = "60.9 ± 1.0"}
"""


def _value(rng):
    return rng.choice([
        "1", "-1", "1.5", "nan", "inf", "1e308", "9" * 400, "9" * 5000, '""', '"x"', "[]", "[[]]", "[1, 'a']", "{}",
        "{a = 1}", "true", "1979-05-27", "[" * 200 + "]" * 200, "[" * 5000 + "]" * 5000, '"\\u001b[31m"', "'''\n'''",
    ])  # fmt: skip


def specs(rng, folder):
    """A specification with keys exchanged, values replaced, or bytes damaged."""
    lines = SPEC.splitlines()
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        kind = rng.randrange(4)
        if kind == 0 and equals:
            lines[at] = f"{key} = {_value(rng)}"
        elif kind == 1 and equals:
            lines[at] = lines[at].replace(
                key, rng.choice(["labels", "after", "dynamics", "range", '"\\u001b"', "seeds"]), 1
            )
        elif kind == 2:
            lines.insert(
                at, f"{rng.choice(['after', 'metric', 'methods', 'compile', 'choices', 'note'])} = {_value(rng)}"
            )
        else:
            del lines[at]
    data = "\n".join(lines).encode()
    if rng.random() < 0.3:
        data = _mangled(rng, data)
    path = folder / "spec.toml"
    path.write_bytes(data)
    return command("bench", path, "--dry-run", "--device", "cpu", "--out", folder / "bench", keep=[path])


def configs(rng, folder):
    """A settings file of a run with values replaced or bytes damaged."""
    sections = {"method": ["name"], "data": ["name", "n", "rho"], "net": ["name", "bias"], "recipe": ["lr", "epochs"]}
    lines = [f"seed = {_value(rng)}"] if rng.random() < 0.3 else []
    for section, keys in sections.items():
        if rng.random() < 0.6:
            lines.append(f"[{section}]" if rng.random() < 0.9 else f"[[{section}]]")
            lines += [f"{key} = {_value(rng)}" for key in keys if rng.random() < 0.5]
    data = "\n".join(lines).encode()
    path = folder / "config.toml"
    path.write_bytes(_mangled(rng, data) if rng.random() < 0.2 else data)
    return command("train", "erm", "toy", "--config", path, "--set", "data.no_such=1", "--device", "cpu", keep=[path])


# Tables


def tables(rng, folder):
    """A table with strange cells, ragged rows, damaged bytes, or another encoding."""
    n, columns = rng.randrange(0, 40), ["x", "where", "label"]
    rows = [[str(rng.randrange(9)), rng.choice("ab"), rng.choice("yn")] for _ in range(n)]
    for _ in range(rng.randrange(0, 6)):
        if rows:
            row = rng.choice(rows)
            row[rng.randrange(len(row)) if row else 0 :] = [_text(rng).replace("\ud800", "")] * rng.randrange(0, 3)
    if rng.random() < 0.3:
        columns[rng.randrange(3)] = _text(rng).replace("\ud800", "")
    quote = rng.random() < 0.7
    made = [",".join('"' + c.replace('"', '""') + '"' if quote else c for c in row) for row in [columns, *rows]]
    data = "\n".join(made).encode(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]), "replace")
    if rng.random() < 0.3:
        data = _mangled(rng, data)
    path = folder / "t.csv"
    path.write_bytes(data)
    more = [("--set", f"data.{k}={v}") for k, v in (
        ("label", "label"), ("attribute", "where"), ("text", "where"), ("skip_broken", "true"),
        ("duplicates", rng.choice(["keep", "drop"])), ("spellings", "merge"), ("encoding", "latin-1"),
        ("categorical", "x"), ("drop_attribute", "true"),
    ) if rng.random() < 0.3]  # fmt: skip
    args = [part for pair in more for part in pair]
    return command("data", "describe", f"csv:{path}", *args, "--json", keep=[path])


def parquets(rng, folder):
    """A Parquet file with strange columns, or damaged bytes."""
    import pandas as pd

    n = rng.randrange(1, 30)
    kinds = [
        lambda: [rng.random() for _ in range(n)],
        lambda: [rng.choice(["a", "b", None]) for _ in range(n)],
        lambda: [rng.choice([b"\xff\xfe", b"ok"]) for _ in range(n)],
        lambda: [[1, 2]] * n,
        lambda: [{"a": 1}] * n,
        lambda: pd.date_range("2020", periods=n),
        lambda: [rng.choice([True, False]) for _ in range(n)],
        lambda: [float("inf")] * n,
    ]
    frame = pd.DataFrame({name: rng.choice(kinds)() for name in ("x", "where", "label")})
    packed = io.BytesIO()
    frame.to_parquet(packed)
    data = packed.getvalue()
    path = folder / "t.parquet"
    path.write_bytes(_mangled(rng, data) if rng.random() < 0.4 else data)
    return command("data", "describe", f"csv:{path}", "--set", "data.label=label", "--json", keep=[path])


# Images


def _png(width, height):
    """A picture that says it is of this size and holds nearly nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 10)) + chunk(b"IEND", b"")


def _image(rng):
    kind = rng.randrange(7)
    if kind == 0:
        return _png(rng.choice([0, 1, 65000, 2**31 - 1]), rng.choice([0, 1, 9, 2**31 - 1]))
    if kind == 1:
        return rng.choice([b"", b"GIF89a", b"\xff\xd8\xff", rng.randbytes(200), b"<svg/>"])
    mode, form = rng.choice([("RGB", "PNG"), ("L", "PNG"), ("RGBA", "PNG"), ("P", "GIF"), ("RGB", "JPEG"), ("1", "PNG"),
                             ("I;16", "PNG"), ("CMYK", "JPEG"), ("RGB", "BMP"), ("RGB", "WEBP")])  # fmt: skip
    packed = io.BytesIO()
    Image.new(mode, (rng.randrange(1, 12), rng.randrange(1, 12))).save(packed, form)
    return _mangled(rng, packed.getvalue()) if kind < 5 else packed.getvalue()


def images(rng, folder):
    """Class folders with good pictures and strange ones."""
    root = folder / "photos"
    made = 0
    for label in ("cat", "dog"):
        for i in range(rng.randrange(1, 7)):
            path = root / label / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), rng.randrange(255), np.uint8)).save(path)
            made += 1
    for i in range(rng.randrange(1, 3)):
        name = f"odd{i}.{rng.choice(['png', 'jpg', 'gif', 'bmp', 'webp', 'txt', 'PNG'])}"
        (root / rng.choice(["cat", "dog"]) / name).write_bytes(_image(rng))
    args = [] if rng.random() < 0.5 else ["--set", "data.skip_broken=true"]
    args += [] if rng.random() < 0.6 else ["--set", "data.cache=false"]
    args += ["--set", f"data.size={rng.choice([8, 16])}"]
    return command("data", "describe", f"folder:{root}", *args, "--json", "--sheet", folder / "sheet.png")


# Run folders


def run_folders(rng, folder, finished):
    """A finished or unfinished run with a file damaged, exchanged, or of another form; then a command that reads it."""
    run = folder / "run"
    shutil.copytree(finished, run)
    keep = rng.random() < 0.5
    if not keep:
        (run / "result.json").unlink()
    file = rng.choice([p for p in sorted(run.iterdir()) if p.is_file()])
    kind = rng.randrange(5)
    if kind == 0:
        file.write_bytes(_mangled(rng, file.read_bytes()))
    elif kind == 1:
        file.write_text(rng.choice(["", "{}", "[]", "null", "1", '{"status": "done"}', '[{"stage": 1}]', "a = 1",
                                    "[" * 100_000, '{"status": ' + "[" * 9999 + "]" * 9999 + "}"]))  # fmt: skip
    elif kind == 2 and file.suffix == ".json":
        row = json.loads(file.read_text())
        key = rng.choice(sorted(row))
        row[key] = rng.choice([None, 1, "x", [], {}, [[]], {"a": 1}, 1e308, True])
        file.write_text(json.dumps(row))
    elif kind == 3 and file.suffix == ".jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        row = rng.choice(rows)
        row.pop(rng.choice(sorted(row))) if rng.random() < 0.5 else row.update({rng.choice(sorted(row)): "x"})
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif file.suffix == ".safetensors":
        _relabel(rng, file)
    else:
        file.unlink()
    kept = [p for p in run.iterdir() if p.name == "model.safetensors"]
    return command(*rng.choice([
        ("show", run), ("show", run, "--json"), ("card", run), ("report", run, "--out", folder / "page.html"),
        ("evaluate", run, "toy", "--device", "cpu"), ("compare", run), ("export", run, "--out", folder / "export",
        "--format", "plain"), ("prune", run, "--out", folder / "prune", "--device", "cpu"),
        ("train", "erm", "toy", *QUICK, "--out", run),
    ]), keep=kept if keep and (run / "result.json").exists() else ())  # fmt: skip


def _relabel(rng, file):
    """Other tensors, or other facts, in a file whose checksum is right."""
    from spurless.core.tensor_files import load_tensors, save_tensors

    tensors, facts = load_tensors(file)
    if tensors and rng.random() < 0.5:
        name = rng.choice(sorted(tensors))
        if rng.random() < 0.5:
            tensors["x" + name] = tensors.pop(name)
        else:
            tensors[name] = tensors[name].flatten()[:1].clone()
    elif facts:
        key = rng.choice(sorted(facts))
        facts[key] = rng.choice([None, 1, "x", [], {}, [[]], {"name": "mlp"}, {"name": "x"}, -1])
    save_tensors(Path(file), tensors, facts)


GENERATORS = {
    "settings": settings,
    "options": options,
    "specs": specs,
    "configs": configs,
    "tables": tables,
    "parquets": parquets,
    "images": images,
    "run_folders": run_folders,
    "changes": changes,
}


def one(name, seed, folder, finished):
    """The outcome of one input."""
    rng = random.Random(f"{name} {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    make = GENERATORS[name]
    return make(rng, folder, finished) if name == "run_folders" else make(rng, folder)

"""What it costs to know whether the data is still what it was: at the first start, and at the second.

    python -m studies.hashing [--images 100000] [--samples 1000000] [--out results/speed/hashing]

Each start is a process of its own that loads the data and takes its fingerprint. "partial" is the fingerprint of older
versions (labels and 64 inputs of each split), in the same process. Of pictures in the cache, "verify" are the seconds
in which loading compares all pixels with their checksums and reads files whose stamp has changed; they are part of
"load". Files are in the system's page cache: from a disk, reading them comes on top.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from studies.metrics import machine
from studies.rows import put

STARTS = ("first", "second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=100_000, help="JPEG files of 32 x 32 pixels in a folder")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples of the table, with 8 columns")
    parser.add_argument("--out", type=Path, help="the table and the row: results/TABLE/NAME")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(json.loads(args.measure))))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="spurless-hashing-") as scratch:
        pictures, table = Path(scratch) / "pictures", Path(scratch) / "table.csv"
        draw(pictures, args.images)
        write(table, args.samples)
        time.sleep(2)  # what is younger than a second is read again, as it may change within a tick of the clock
        folder = {"name": f"folder:{pictures}", "size": 32}
        for what, data, n in (
            ("pictures in the cache", folder, args.images),
            ("pictures on demand", folder | {"cache": False}, args.images),
            ("csv table", {"name": f"csv:{table}", "label": "label"}, args.samples),
        ):
            cache = str(Path(scratch) / what.replace(" ", "-"))
            for start in STARTS:
                rows.append({"data": what, "n": n, "start": start} | started(data, cache))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        put(args.out, machine() | {"how": __doc__.split("\n\n")[2], "rows": rows})


def draw(folder: Path, n: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(n):
        file = folder / "ab"[i % 2] / f"{i // 1000:04}" / f"{i:07}.jpg"
        if i % 1000 < 2:
            file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file)


def write(file: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    columns = [rng.choice(["red", "green", "blue"], n), *(rng.normal(size=n).round(3) for _ in range(7))]
    with open(file, "w") as out:
        out.write("label,colour," + ",".join(f"x{k}" for k in range(7)) + "\n")
        out.writelines(
            ",".join([f"class{c}", *map(str, own)]) + "\n" for c, *own in zip(y.tolist(), *columns, strict=True)
        )


def started(data: dict[str, Any], cache: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "studies.hashing", "--measure", json.dumps(data)]
    done = subprocess.run(command, env=os.environ | {"SPURLESS_CACHE": cache}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(data: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one start."""
    import torch

    from spurless.core.fingerprint import fingerprint, partial_fingerprint
    from spurless.data.ingest import image_cache
    from spurless.registry import load_data

    verify = [0.0]
    for name in ("drop_damaged", "unchanged"):
        setattr(image_cache._Cache, name, timed(getattr(image_cache._Cache, name), verify))
    start = time.perf_counter()
    bundle = load_data(data)
    loaded = time.perf_counter()
    partial_fingerprint(bundle)
    partly = time.perf_counter()
    fingerprint(bundle)
    whole = time.perf_counter()
    fingerprint(bundle)
    again = time.perf_counter()
    held = sum(s.x.numel() * s.x.element_size() for s in bundle.splits.values() if isinstance(s.x, torch.Tensor))
    seconds = {"load": loaded - start, "verify": verify[0], "partial": partly - loaded}
    seconds |= {"fingerprint": whole - partly, "fingerprint_again": again - whole}
    return {"megabytes_in_memory": round(held / 1e6)} | {f"{k}_s": round(v, 3) for k, v in seconds.items()}


def timed(function: Any, total: list[float]) -> Any:
    def run(*given: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given)
        finally:
            total[0] += time.perf_counter() - start

    return run


if __name__ == "__main__":
    main()

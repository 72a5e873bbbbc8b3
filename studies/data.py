"""In how much memory images become batches.

    python -m studies.data [--images 100000]

A folder of small JPEG files, loaded as folder:PATH and passed over once, each size in a process of its own.
"Own" is the peak of what only this process holds (RssAnon), less what it held after its imports. "Mapped" (RssFile) are
pages of the cache file, which the system takes back when it needs them.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import spurless  # noqa: F401  before torch, for both readers: it lets waiting threads sleep instead of spin

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=100_000, help="files in the large folder; a tenth in the other")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="spurless-bench-") as scratch:
        compare_memory(Path(scratch), [args.images // 10, args.images])


def compare_memory(scratch: Path, counts: list[int]) -> None:
    print(
        f"\nFolders of 64-px JPEG files, as folder:PATH: peak memory in MB\n{'images':>10}{'own':>8}{'mapped':>9}",
        end="",
    )
    print(f"{'rows on disk':>15}{'load s':>9}{'again s':>9}{'epoch s':>9}")
    for n in counts:
        folder = scratch / f"folder{n}"
        write_images(folder, n)
        environment = os.environ | {"SPURLESS_CACHE": str(scratch / f"folder-cache{n}")}
        command = [sys.executable, __file__, "--measure", str(folder)]
        out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        got = json.loads(out)
        print(f"{n:10,}{got['own']:8.0f}{got['mapped']:9.0f}{n * 3 * 64 * 64 / 1e6:15,.0f}", end="")
        print(f"{got['load']:9.1f}{got['again']:9.1f}{got['epoch']:9.1f}")


def write_images(folder: Path, n: int) -> None:
    """Small JPEG files in ten classes. A few pictures, but no two files alike: each ends in a number of its own."""
    import numpy as np
    from PIL import Image

    rng, pictures = np.random.default_rng(0), []
    for _ in range(100):
        small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        small.resize((64, 64), Image.Resampling.BICUBIC).save(buffer, "JPEG")
        pictures.append(buffer.getvalue())
    for c in range(10):
        (folder / f"class{c}").mkdir(parents=True)
    for i in range(n):
        (folder / f"class{i % 10}" / f"{i:06d}.jpg").write_bytes(pictures[i % 100] + i.to_bytes(4, "big"))


def measure(folder: str) -> dict[str, float]:
    """Load a folder and pass over its rows, watching this process's memory."""
    import torch
    from PIL import Image  # noqa: F401  imports are no part of what is measured

    from spurless.data.folder import load

    got: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        got[name] = time.perf_counter() - start

    before = memory()["RssAnon"]
    with watched(lambda: memory()) as peak:
        with timed("load"):
            load(folder, size=64)
        with timed("again"):
            bundle = load(folder, size=64)
        with timed("epoch"):
            for idx in torch.randperm(len(bundle.train)).split(BATCH):
                bundle.train[idx]
    return got | {"own": peak["RssAnon"] - before, "mapped": peak["RssFile"]}


@contextmanager
def watched(look: Callable[[], dict[str, float]]) -> Iterator[dict[str, float]]:
    """The largest value of each figure while the block runs."""
    peak, done = dict(look()), threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for name, value in look().items():
                peak[name] = max(peak[name], value)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def memory() -> dict[str, float]:
    """MB of this process: its own (RssAnon), and mapped from files (RssFile)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1e3 for line in lines if line.startswith(("RssAnon", "RssFile"))}


if __name__ == "__main__":
    main()

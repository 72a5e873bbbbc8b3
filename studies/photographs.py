"""How fast files of photographs become batches, beside torchvision's ImageFolder and a DataLoader.

    python -m studies.photographs [--beside CHECKOUT] [--out results/speed/photographs]

BAR's training images, as they are (256 px), enlarged to 500 to 1,000 px, and to 1,000 to 2,000 px as cameras make them,
at 80 and 224 px. "First
epoch" decodes into an empty cache and then passes over all samples in shuffled batches of 64; "second epoch" passes
over them again, in the same process. Every reader has as many threads or workers as there are cores, and each reading
is a process of its own, turn by turn in one run; imports are not timed. `--beside` measures another checkout of this
project, too. "Processor" is the time of all processes and threads of a reader, which a busy machine does not stretch
as it does the wall clock. Files are in the system's page cache.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import spurless  # noqa: F401  before torch, for both readers: it lets waiting threads sleep instead of spin
from studies.metrics import machine
from studies.rows import put

BATCH = 64
SIZES = (80, 224)
# The longer sides of each kind of photographs; none: as they are.
KINDS = {"256 px": (), "500 to 1,000 px": (500, 640, 768, 900, 1000), "1,000 to 2,000 px": (1000, 1280, 1600, 2000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=400, help="photographs of each kind")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each reader; the median counts")
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    parser.add_argument("--out", type=Path, help="keep the readings as this row, such as results/speed/photographs")
    parser.add_argument("--epochs", nargs=3, metavar=("READER", "FOLDER", "SIZE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.epochs:
        reader, folder, size = args.epochs
        print(json.dumps(two_epochs(theirs if reader == "torchvision" else ours, Path(folder), int(size))))
        return
    readings = compare(args.images, args.rounds, args.beside)
    show(readings)
    if args.out:
        put(args.out, machine() | {"how": __doc__.split("\n\n")[2], "images": args.images, "rows": readings})


def compare(images: int, rounds: int, beside: Path | None) -> list[dict[str, object]]:
    """Each reading: what was read, by whom, and the seconds of two epochs."""
    here = str(Path(__file__).parent.parent)
    readers = {"spurless": here, "torchvision": here} | ({"spurless before": str(beside)} if beside else {})
    readings = []
    with tempfile.TemporaryDirectory(prefix="spurless-photographs-") as scratch:
        folders = write_photographs(Path(scratch), images)
        for turn in range(rounds):
            for name, folder in folders.items():
                for size in SIZES:
                    for reader, checkout in readers.items():
                        cache = Path(scratch) / f"cache-{turn}-{name}-{size}-{reader}"
                        code = os.pathsep.join([f"{checkout}/src", here])
                        environment = os.environ | {"SPURLESS_CACHE": str(cache), "PYTHONPATH": code}
                        command = [sys.executable, __file__, "--epochs", reader, str(folder), str(size)]
                        out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                        readings.append({"images": name, "size": size, "reader": reader} | json.loads(out.stdout))
    return readings


def write_photographs(scratch: Path, images: int) -> dict[str, Path]:
    """Some of BAR's training images in folders of their classes, as they are and enlarged."""
    from PIL import Image

    from spurless.core.files import data_root

    source = data_root() / "BAR" / "train"
    if not source.is_dir():
        sys.exit(f"BAR is not in {data_root()}. Set SPURLESS_DATA.")
    draw = random.Random(0)
    files = draw.sample(sorted(source.iterdir()), images)
    for file in files:
        for kind, sides in KINDS.items():
            made = scratch / kind / file.stem.rpartition("_")[0] / file.name
            made.parent.mkdir(parents=True, exist_ok=True)
            if not sides:
                made.write_bytes(file.read_bytes())
                continue
            with Image.open(file) as picture:
                ratio = draw.choice(sides) / max(picture.size)
                side = (round(picture.width * ratio), round(picture.height * ratio))
                picture.convert("RGB").resize(side, Image.Resampling.BICUBIC).save(made, quality=88)
    return {kind: scratch / kind for kind in KINDS}


def two_epochs(reader, folder: Path, size: int) -> dict[str, float]:
    import torchvision  # noqa: F401  neither reader's imports are timed
    from PIL import Image

    import spurless.data.ingest.images  # noqa: F401

    Image.init()
    n, found = sum(1 for _ in folder.glob("*/*")), {}
    epochs = reader(folder, size)
    for epoch in ("first", "second"):
        start, before = time.perf_counter(), processor()
        assert next(epochs) == n
        found |= {epoch: time.perf_counter() - start, f"{epoch} processor": processor() - before}
    return {name: round(seconds, 4) for name, seconds in found.items()}


def processor() -> float:
    """Seconds of this process and of its workers that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(of.ru_utime + of.ru_stime for of in used)


def ours(folder: Path, size: int) -> Iterator[int]:
    """An epoch at a time; how many samples it held."""
    import torch

    from spurless.core.data import Split
    from spurless.data.ingest.image_cache import decode_cached
    from spurless.data.ingest.images import Frame

    files = sorted(str(path) for path in folder.glob("*/*"))
    data = Split(decode_cached(files, Frame(size)).x, torch.zeros(len(files), dtype=torch.long))
    while True:
        yield sum(len(data[idx]) for idx in torch.randperm(len(data)).split(BATCH))


def theirs(folder: Path, size: int) -> Iterator[int]:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import CenterCrop, Compose, PILToTensor, Resize

    data = ImageFolder(str(folder), Compose([Resize(size), CenterCrop(size), PILToTensor()]))
    while True:  # the workers end with the epoch: their processor time is known then
        yield sum(len(x) for x, _ in DataLoader(data, BATCH, shuffle=True, num_workers=os.cpu_count() or 1))


def show(readings: list[dict[str, object]]) -> None:
    """For each case, the seconds of the others in those of ours: the median of the turns' ratios."""
    print("| photographs | px | beside | first epoch, time | processor | second epoch, time | processor |")
    print("| :-- | --: | :-- | --: | --: | --: | --: |")
    for name, size in dict.fromkeys((of["images"], of["size"]) for of in readings):
        of_case = [of for of in readings if (of["images"], of["size"]) == (name, size)]
        mine = [of for of in of_case if of["reader"] == "spurless"]
        for other in dict.fromkeys(of["reader"] for of in of_case if of["reader"] != "spurless"):
            their = [of for of in of_case if of["reader"] == other]
            cells = []
            for what in ("first", "first processor", "second", "second processor"):
                ratios = [b[what] / a[what] for a, b in zip(mine, their, strict=True)]
                cells.append(f"{statistics.median(ratios):.2f}")
            print(f"| {name} | {size} | {other} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

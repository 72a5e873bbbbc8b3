"""Your own folder of images, with a metadata.csv that says what else is known of each.

Run it with: python examples/your_dataset.py
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from spurless import Bundle, fit, load_data

SPLITS = {"train": (500, 0.05), "val": (100, 0.05), "test": (400, 0.5)}  # images, and the share with the wrong tag
KINDS, TAGS = ("disc", "square"), ("red", "blue")


def make_folder(folder: Path) -> None:
    """Grey discs and squares. The shortcut: discs nearly always have a red tag in a corner, squares a blue one."""
    rng = np.random.default_rng(0)
    rows = []
    for split, (n, conflicting) in SPLITS.items():
        for i in range(n):
            kind = i % 2
            tag = 1 - kind if rng.random() < conflicting else kind
            picture = Image.fromarray(rng.integers(60, 140, (32, 32, 3), dtype=np.uint8))
            draw, (x, y) = ImageDraw.Draw(picture), rng.integers(6, 18, 2).tolist()
            (draw.ellipse if kind == 0 else draw.rectangle)((x, y, x + 10, y + 10), fill=(170, 170, 170))
            draw.rectangle((0, 0, 5, 5), fill=TAGS[tag])
            name = f"{split}-{i}.png"
            picture.save(folder / name)
            rows.append((name, KINDS[kind], TAGS[tag], split))
    with open(folder / "metadata.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file_name", "label", "tag", "split"), *rows])


def describe(data: Bundle) -> None:
    """Which tag goes with which class. `spurless data describe folder:PATH` tells more, and draws a sheet."""
    for name, split in data.splits.items():
        share = 1 - data.is_aligned(split).float().mean()
        print(f"{name}: {len(split)} images, {share:.1%} of them conflict with the shortcut")
    for c, kind in enumerate(data.classes):
        counts = [int(((data.train.y == c) & (data.train.a[:, 0] == v)).sum()) for v in range(len(data.values[0]))]
        print(f"    {kind}:", ", ".join(f"{n} {value}" for n, value in zip(counts, data.values[0], strict=True)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make_folder(Path(place))
        # Decoded anew whenever they are needed, as the folder goes away; a folder that stays is decoded once and kept.
        data = load_data({"name": f"folder:{place}", "attribute": "tag", "size": 32, "cache": False})
        describe(data)
        for method in ("erm", "pgd"):
            scores = fit(method, data, net="simconv1", recipe={"epochs": 8, "lr": 3e-3, "augment": "none"}).scores
            print(f"{method}: conflicting {scores['conflicting']:.1f} %, aligned {scores['aligned']:.1f} %")

"""The picture of docs/methods/crossfit.md: samples, their donors, and what an exchange makes of them.

python -m studies.exchanged [--root FOLDER]
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import io
from pathlib import Path

import matplotlib
import torch
from PIL import Image

from spurless.core.augment import floats
from spurless.methods.parts.exchange import swapped
from spurless.registry import load_data

matplotlib.use("svg")
OUT = Path(__file__).parent.parent / "docs/exchange.png"
SHOWN = [  # a dataset, its samples and their donors, and which exchange moves the experts there
    ({"name": "colored_mnist", "family": "pgd", "rho": 0.005}, (0, 2, 5), (5, 3, 0), "light"),
    ({"name": "corrupted_cifar10", "rho": 0.005}, (2, 11, 7), (1, 3, 0), "light_detail"),
]
ROWS = ("sample", "donor", "shown as")
SIDE = 96  # pixels of each image


def squares(root):
    """(3, n, side, side, 3): samples, donors and what is shown, dataset by dataset."""
    columns = []
    for data, of, donors, how in SHOWN:
        train = load_data(data, root=root).train
        x, donor = (floats(train[torch.tensor(idx)]) for idx in (of, donors))
        for group in zip(x, donor, swapped(x, donor, how), strict=True):
            columns.append([as_image(each) for each in group])
    return columns


def as_image(x):
    pixels = (x.permute(1, 2, 0) * 255).round().clamp(0, 255).to(torch.uint8).numpy()
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def main():
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    columns = squares(parser.parse_args().root)
    figure, axes = plt.subplots(3, len(columns), figsize=(7.2, 3.7), squeeze=False)
    for j, column in enumerate(columns):
        for i, image in enumerate(column):
            axes[i, j].imshow(image)
            axes[i, j].set(xticks=[], yticks=[])
            axes[i, j].spines[:].set_visible(False)
            if j == 0:
                axes[i, j].set_ylabel(ROWS[i], fontsize=11)
    for first, title in ((0, "Colored MNIST: light"), (3, "Corrupted CIFAR-10: light and fine detail")):
        axes[0, first + 1].set_title(title, fontsize=11)
    figure.tight_layout(pad=0.4)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    Image.open(drawn).convert("P", palette=Image.Palette.ADAPTIVE, colors=200).save(OUT, optimize=True)
    print(OUT.name, OUT.stat().st_size)


if __name__ == "__main__":
    main()

# %% [markdown]
# # Find a shortcut in photographs
#
# Photographs of walls, sound and cracked. Nearly all cracked walls were photographed in the evening, in warm light.
# Does a model look at the crack, or at the light?

# %%
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images

import spurless

rng = np.random.default_rng(0)
scenes = [Image.fromarray(scene).convert("L").convert("RGB") for scene in load_sample_images().images]


def photograph(cracked, evening):
    left, top = rng.integers(0, [480, 267]).tolist()
    image = scenes[rng.integers(2)].crop((left, top, left + 160, top + 160)).resize((80, 80))
    if cracked:
        crack = np.cumsum(rng.normal([4, 0], [2, 4], (14, 2)), axis=0) + rng.integers(10, 40, 2)
        ImageDraw.Draw(image).line([tuple(point) for point in crack], fill=(20, 20, 20), width=2)
    light = [1.15, 1.0, 0.7] if evening else [0.9, 1.0, 1.1]
    return Image.fromarray((np.asarray(image) * light).clip(0, 255).astype(np.uint8))


for i in range(400):
    cracked = i % 2 == 1
    evening = rng.random() < (0.93 if cracked else 0.07)
    path = Path("walls", "cracked" if cracked else "sound", f"{i:03}.jpg")
    path.parent.mkdir(parents=True, exist_ok=True)
    photograph(cracked, evening).save(path, quality=90)

# %% [markdown]
# A folder for each class is all that the audit needs: no group labels, no model.

# %%
data = spurless.load_data({"name": "folder:walls", "size": 80})
data.plot(columns=5)

# %%
found = spurless.audit("walls", out="audit", device="cpu", progress=False)
found

# %% [markdown]
# Every cue was asked three questions: is it *available* in the data, does the model *use* it, does that do *harm*.
# What this one costs:

# %%
found.plot()

# %% [markdown]
# The most suspicious samples: the light says another class than the label.

# %%
for sample in found.rows[:5]:
    print(f"{sample['name']}: {sample['label']}, predicted {sample['prediction']}, the light says {sample['says']}")

# %% [markdown]
# `audit/report.html` is the same as a page with pictures; on the command line it is `spurless audit walls`. Next:
# [fix it without labels](fix_without_labels.ipynb).

# %% [markdown]
# # Fix it with a few labels
#
# Discs and squares; nearly every disc is red and nearly every square is blue. For 200 held-out images somebody wrote
# down the colour.

# %%
import numpy as np

import spurless

rng = np.random.default_rng(0)


def photographs(n, agree):
    shape, noise = rng.integers(0, 2, n), rng.normal(0, 25, (n, 32, 32, 3))
    colour = np.where(rng.random(n) < agree, shape, 1 - shape)
    images = np.full((n, 32, 32, 3), 90.0)
    rows, columns = np.mgrid[:32, :32]
    for i in range(n):
        y, x, r = rng.integers(11, 21), rng.integers(11, 21), 8
        disc = (rows - y) ** 2 + (columns - x) ** 2 <= r**2
        square = np.maximum(abs(rows - y), abs(columns - x)) <= r
        images[i, square if shape[i] else disc] = [60, 60, 200] if colour[i] else [200, 60, 60]
    pixels = (images + noise).clip(0, 255).astype(np.uint8)
    return pixels, np.array(["disc", "square"])[shape], {"colour": np.array(["red", "blue"])[colour]}


data = spurless.Bundle.from_arrays(
    *photographs(800, 0.95), val=photographs(200, 0.8), test=photographs(400, 0.5), name="photographs"
)
data

# %%
data.plot(columns=8)

# %% [markdown]
# ## Train plainly, and look at the groups

# %%
recipe = {"epochs": 4, "lr": 0.003, "batch_size": 64, "augment": "none"}
plain = spurless.fit("erm", data, net="simconv1", recipe=recipe, device="cpu", progress=False)
plain

# %%
plain.plot()

# %% [markdown]
# The model relies on the colour: it is wrong where the colour misleads.
#
# ## 200 labels: only the last layer
#
# DFR keeps the network and refits its last layer, on held-out samples in which every group weighs the same.

# %%
repaired = spurless.fit("dfr", data, net="simconv1", recipe=recipe, device="cpu", progress=False)
repaired

# %% [markdown]
# ## All labels: GroupDRO
#
# If the colour of every training sample is known, the training itself can look after the worst group.

# %%
robust = spurless.fit("group_dro", data, net="simconv1", recipe=recipe, device="cpu", progress=False)
robust

# %%
robust.plot()

# %%
for result in (plain, repaired, robust):
    print(f"{result.method:10} {result.labels_used:11} {result.scores['worst_group']:5.1f} % in the worst group")

# %% [markdown]
# A wrong name prints one message:

# %% tags=["raises-exception"]
spurless.fit("group_dor", data)

# %% [markdown]
# # Your model in your loop
#
# A plain PyTorch model, `DataLoader` and loop. The first column agrees with the label in 95 % of the samples and is
# easy; the second one always tells it and is harder.

# %%
import spurless

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)


def samples(n, agree):
    y = torch.randint(0, 2, (n,))
    attribute = torch.where(torch.rand(n) < agree, y, 1 - y)
    x = torch.stack([4.0 * attribute, 1.0 * y], 1) + 0.4 * torch.randn(n, 2)
    return TensorDataset(x, y, attribute)


def network():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def train(model, loader, loss=nn.functional.cross_entropy, epochs=5):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for x, y, _ in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    return model


data, held_out, test = samples(2000, 0.95), samples(400, 0.8), samples(1000, 0.5)
loader = DataLoader(data, batch_size=64, shuffle=True)
plain = train(network(), loader, epochs=1)

# %% [markdown]
# ## Scores by group
#
# `group_metrics` takes any predictions:

# %%
x, y, attribute = test.tensors
table = spurless.group_metrics(y, plain(x).argmax(1), attribute)
table

# %% [markdown]
# ## Your loop, PGD's weights
#
# A network trained with GCE relies on what is easy. `sample_weights` reads the loader once and tells how often to
# draw each sample.

# %%
from spurless.methods.parts.losses import gce

biased = train(network(), loader, gce, epochs=1)
weights = spurless.sample_weights(biased, loader, "pgd")
drawn = DataLoader(data, batch_size=64, sampler=WeightedRandomSampler(weights, len(weights)))
debiased = train(biased, drawn)

# %% [markdown]
# ## Only the last layer, from held-out samples with groups

# %%
import copy

repaired = spurless.refit_head(copy.deepcopy(plain), DataLoader(held_out, batch_size=64), "dfr")

# %%
import matplotlib.pyplot as plt

conflicting = attribute != y
models = {"plain": plain, "pgd": debiased, "dfr": repaired}
right = {name: round(100 * (m(x).argmax(1) == y)[conflicting].float().mean().item(), 1) for name, m in models.items()}
plt.figure(figsize=(4, 2))
plt.barh(list(right), list(right.values()))
plt.xlabel(f"% right of {int(conflicting.sum())} conflicting test samples")
right

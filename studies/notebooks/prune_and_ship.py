# %% [markdown]
# # Prune and ship
#
# A network that does not rely on the colour is made small, without it learning the colour again. Cutting channels out
# needs `pip install 'spurless[export]'`.

# %%
import spurless

data = {"name": "colored_digits", "rho": 0.1}
whole = spurless.fit("rs", data, net="conv3", recipe={"epochs": 5}, out="whole", device="cpu", progress=False)
whole

# %% [markdown]
# ## Half and a third of the channels
#
# After the cut it is trained on for a while, as it was trained before: groups drawn equally often. The last figure of
# each line is the accuracy on conflicting test samples.

# %%
from spurless.compress.prune import Pruning, prune

how = Pruning("magnitude", structured=True, finetune=0.5)
curve = prune("whole", keep=(0.5, 0.35), pruning=how, out="pruned", device="cpu")
for row in curve["rows"]:
    print(f"{row['keep']:.0%} of the channels: {row['parameters']:,} parameters, {row['scores']['conflicting']:.1f} %")

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(5, 2.5))
plt.plot([row["parameters"] for row in curve["rows"]], [row["scores"]["conflicting"] for row in curve["rows"]], "o-")
plt.xlabel("parameters")
_ = plt.ylabel("% right, conflicting")

# %% [markdown]
# ## Files that need no Spurless

# %%
from pathlib import Path

from spurless.compress.export import export

report = export("pruned/keep-0.35/model.safetensors", out="shipped", formats=("plain",))
{path.name: path.stat().st_size for path in sorted(Path("shipped").iterdir())}

# %% [markdown]
# `load.py` lies beside the weights and needs torch and safetensors only:

# %%
import sys

import torch

sys.path.insert(0, "shipped")
from load import load

small = load("shipped")
small(torch.rand(1, 3, 28, 28)).shape

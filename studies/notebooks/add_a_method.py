# %% [markdown]
# # Add a method
#
# A method is one class: it yields stages of training and returns a classifier. What it does between two stages is
# plain Python.

# %%
from collections.abc import Generator
from dataclasses import dataclass

import spurless

import torch
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class SecondLook(spurless.Method):
    """Train for a short time, then train afresh and draw the samples that went wrong more often."""

    first_epochs: float = 6.0
    times: float = 20.0

    def stages(self, run: spurless.Run) -> Generator[spurless.Stage, None, spurless.Net]:
        first = run.net()
        yield spurless.Stage(
            "first", lambda b: cross_entropy(first(b.x), b.y), run.optimizer(first), first, epochs=self.first_epochs
        )

        wrong = run.outputs(first).argmax(1) != run.data.train.y.to(run.device)
        run.report_conflicting(wrong)  # the result scores this, where the truth is known

        net = run.net()
        odds = torch.where(wrong, self.times, 1.0)
        yield spurless.Stage(
            "second", lambda b: cross_entropy(net(b.x), b.y), run.optimizer(net), net, sample_weights=odds, select=True
        )
        return net


# %% [markdown]
# It is a setting of `fit` like any other. Resume, blinding, scores by group and the model card come with it.

# %%
plain = spurless.fit("erm", "toy", device="cpu", progress=False)
mine = spurless.fit(SecondLook(), "toy", device="cpu", progress=False)
mine

# %%
mine.plot()

# %% [markdown]
# How many of the conflicting samples did it find?

# %%
for found in mine.mining.values():
    print(f"{found['n_mined']} samples: precision {found['precision']:.0f} %, recall {found['recall']:.0f} %")

# %% [markdown]
# ## Against a published method, on the same seeds

# %%
import matplotlib.pyplot as plt

scores = {}
for method in ("erm", "pgd", SecondLook()):
    for seed in range(3):
        run = spurless.fit(method, {"name": "toy", "n": 1000}, seed=seed, device="cpu", progress=False)
        scores.setdefault(run.method, []).append(round(run.scores["conflicting"], 1))
for place, values in enumerate(scores.values()):
    plt.plot(values, [place] * len(values), "o")
plt.gcf().set_size_inches(5, 1.6)
plt.yticks(range(len(scores)), list(scores))
plt.xlabel("% right of the conflicting test samples; a point for each seed")
scores

# %% [markdown]
# [Add a method](../adding.md) says what a stage may ask for, and which tests a registered method gets for free.

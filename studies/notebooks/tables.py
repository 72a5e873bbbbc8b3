# %% [markdown]
# # A shortcut in a table
#
# Patients of two clinics. One of them takes the hard cases, so that its name nearly gives the diagnosis away. Next
# year the patients will be shared out in another way.

# %%
import numpy as np
import pandas as pd

import spurless

rng = np.random.default_rng(0)


def patients(n, agree):
    ill = rng.integers(0, 2, n)
    clinic = np.where(rng.random(n) < agree, ill, 1 - ill)
    columns = {f"marker {i}": (ill + rng.normal(0, 1.5, n)).round(2) for i in range(1, 5)}
    columns |= {"age": rng.integers(20, 80, n), "clinic": np.array(["North", "South"])[clinic]}
    return pd.DataFrame(columns | {"diagnosis": np.array(["healthy", "ill"])[ill]})


this_year, next_year = patients(2000, 0.95), patients(2000, 0.5)
this_year.head()

# %% [markdown]
# ## Which column gives the label away?

# %%
table = spurless.Bundle.from_pandas(this_year, label="diagnosis")
found = spurless.audit(table, device="cpu", fix=True, progress=False)
found

# %%
found.plot()

# %% [markdown]
# ## Without the cue
#
# The audit tried repairs, and chose by samples that the model had not seen:

# %%
print(*found.fix["text"])

# %% [markdown]
# Only next year can tell. A model of all columns, and one that is trained so that both clinics weigh the same:

# %%
named = spurless.Bundle.from_pandas(this_year, label="diagnosis", attribute="clinic")
for method in ("erm", "group_dro"):
    result = spurless.fit(method, named, recipe={"epochs": 10}, device="cpu", progress=False)
    right = (result.predict(next_year) == next_year.diagnosis).mean()
    print(f"{method:10} this year {result.scores['average']:.1f} %, next year {100 * right:.1f} %")

# %% [markdown]
# # Fix it without labels
#
# Digits, nearly each in a colour of its own. Nobody tells the training which digit has an unusual colour.

# %%
import spurless

data = spurless.load_data({"name": "colored_digits", "rho": 0.02})
data.plot(columns=10)

# %%
recipe = {"epochs": 5}
plain = spurless.fit("erm", data, recipe=recipe, device="cpu", progress=False)
plain

# %% [markdown]
# Plain training learns the colour: it is right where the colour agrees (*aligned*) and mostly wrong where it does not
# (*conflicting*).
#
# PGD trains a network that relies on the colour, and then draws the samples more often that this network finds hard.

# %%
fixed = spurless.fit("pgd", data, recipe=recipe, device="cpu", progress=False)
fixed

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(5, 2))
for result in (plain, fixed):
    score, (low, high) = result.scores["conflicting"], result.scores["intervals"]["conflicting"]
    plt.barh(result.method, score, xerr=[[score - low], [high - score]])
plt.xlim(0, 100)
_ = plt.xlabel("% right where the colour misleads (95 % CI)")

# %% [markdown]
# Did it see a colour label? The result says what was used.

# %%
print("bias labels used:", fixed.labels_used)

# %% [markdown]
# On data of your own, `spurless.fix(data)` audits first and keeps a repair only where held-out samples show that it
# is better; [which method](../methods/choosing.md) has what else was measured. Next: [with a few
# labels](fix_with_labels.ipynb).

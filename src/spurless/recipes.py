"""Named recipes: how each paper trained on each data set."""

from spurless.core import Recipe

RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    # PGD, table 6 (Ahn et al. 2023)
    "pgd-cmnist": Recipe(
        "sgd",
        0.02,
        momentum=0.9,
        weight_decay=1e-3,
        schedule="step",
        step_every=40,
        gamma=0.1,
        batch_size=128,
        epochs=100,
    ),
}

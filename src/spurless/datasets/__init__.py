"""The registry of data sets: `spurless.datasets.NAME` holds `load(...) -> Bundle`. This file imports nothing heavy."""

DATASETS: dict[str, str] = {
    "toy": "vectors with a core feature and an easier spurious one; seconds on a CPU, no download",
    "colored_digits": "5,000 handwritten digits in colour (28 px, digit = target, colour = bias); no download",
    "shapes": "drawn objects with any number of bias attributes of any strength; no download",
    "parity": "parity of core bits against parity of spurious bits; no download",
    "moon_star": "moons and stars whose quadrant gives them away; no download",
    "gaussians": "five Gaussian classes with structured or random mislabelling; no download",
    "linear_toy": "one invariant and D spurious binary features (DCWP, section 3); no download",
    "colored_mnist": "Colored MNIST in the forms of LfF, PGD and ReBias",
    "multi_bias_mnist": "digits with seven biases at once, 56 px (PGD)",
    "double_mnist": "a dim digit (target) beside a bright one (bias)",
    "mnist_cifar": "a CIFAR-10 picture (target) with an MNIST digit (bias): dominoes",
    "corrupted_cifar10": "CIFAR-10 with one kind of corruption per class as the bias",
    "bar": "Biased Action Recognition: six actions, typical places as the bias",
    "waterbirds": "water and land birds on water and land backgrounds",
    "bffhq": "young and old faces, gender as the bias",
    "celeba": "blond hair, gender as the bias",
    "metashift": "cats and dogs, indoors and outdoors",
    "adult": "census income, any protected attribute as the bias (table)",
    "compas": "two-year recidivism, any protected attribute as the bias (table)",
    "german": "German credit, any protected attribute as the bias (table)",
}

"""How to train, and the named recipes: how each paper trained on each dataset. What belongs to a method (λ, β, T) is in
docs/methods/."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from spurless.core.settings import Range


@dataclass(frozen=True)
class Recipe:
    """How to train: the same for every stage unless the method says otherwise."""

    optimizer: Annotated[Literal["sgd", "adam", "adamw", "psgd"], "the optimiser; psgd: PSGD-Kron"] = "adam"
    lr: Annotated[float, "initial learning rate (after warm-up)", Range(0)] = 1e-3
    momentum: Annotated[float, "momentum (SGD, PSGD)", Range(0, 1)] = 0.9
    nesterov: Annotated[bool, "Nesterov momentum (SGD)"] = False
    weight_decay: Annotated[float, "weight decay (L2)", Range(0)] = 0.0
    decay_exceptions: Annotated[bool, "exempt biases and normalisation scales from weight decay"] = False
    l1: Annotated[float, "L1 penalty on the weights of convolutional and linear layers", Range(0)] = 0.0
    betas: Annotated[tuple[float, ...], "β₁ and β₂ (Adam, AdamW)", Range(0, 1)] = (0.9, 0.999)
    eps: Annotated[float, "ε in the denominator (Adam, AdamW)", Range(0)] = 1e-8
    loss: Annotated[Literal["ce", "focal"], "the classification loss that methods use: cross entropy or focal loss"] = (
        "ce"
    )
    focal_gamma: Annotated[float, "focusing parameter γ of the focal loss; 0: cross entropy", Range(0)] = 2.0
    sharpness: Annotated[Literal["none", "sam", "asam"], "sharpness-aware minimisation (SAM, ASAM)"] = "none"
    rho: Annotated[float | None, "SAM neighbourhood radius ρ; none: 0.05 for sam, 0.5 for asam", Range(0)] = None
    schedule: Annotated[
        Literal["constant", "step", "cosine", "linear", "wsd"], "learning-rate schedule; wsd: warm-up, stable, decay"
    ] = "constant"
    step_every: Annotated[float, "epochs between two decays (schedule step)", Range(0)] = 40
    step_from: Annotated[float, "epochs before step_every is counted (schedule step)", Range(0)] = 0.0
    gamma: Annotated[float, "decay factor γ (schedule step)", Range(0, 1)] = 0.1
    fall_after: Annotated[int | None, "single decay at this step (schedule step); none: see step_every", Range(1)] = (
        None
    )
    decay_share: Annotated[float, "share of the length over which it decays at the end (schedule wsd)", Range(0, 1)] = (
        0.2
    )
    warmup: Annotated[float, "epochs of linear warm-up", Range(0)] = 0
    batch_size: Annotated[int, "samples per step", Range(1)] = 128
    epochs: Annotated[float, "length of a stage in epochs", Range(0)] = 10
    iterations: Annotated[int, "length of a stage in steps; 0: as many epochs as given", Range(0)] = 0
    until_accuracy: Annotated[
        float, "end a stage when this training accuracy (percent) is reached; 0: never", Range(0, 100)
    ] = 0
    until_loss: Annotated[
        float, "end a stage when the mean training cross entropy is below this, too; 0: never", Range(0)
    ] = 0
    drop_last: Annotated[bool, "drop the last, smaller batch of an epoch"] = False
    augment: Annotated[str, "data: the dataset's own augmentation; none; or a preset (spurless.core.augment)"] = "data"
    mix: Annotated[
        Literal["mixup", "within_class", "selecmix", "light", "detail", "light_detail"] | None,
        "mix the inputs of the last stage: any two; within a class, aligned with conflicting (LC); SelecMix's pairs; "
        "or exchange the light of images, their fine detail, or both",
    ] = None
    clip_norm: Annotated[float, "gradient clipping by norm; 0: none", Range(0)] = 0.0
    selection: Annotated[
        Literal["last", "val_accuracy", "val_loss", "val_worst_group"],
        "checkpoint selection: which weights of the last stage are kept",
    ] = "last"
    eval_every: Annotated[
        float, "epochs between two evaluations of the validation split; 0: only where needed", Range(0)
    ] = 1
    test_every: Annotated[
        int, "steps between two evaluations of the test split, the best reported as test_selected; 0: none", Range(0)
    ] = 0
    eval_batch_size: Annotated[int, "samples per forward pass in evaluation", Range(1)] = 1024
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"],
        "arithmetic of the forward pass; fp32 is torch's: convolutions on recent NVIDIA GPUs still round to tf32",
    ] = "fp32"
    channels_last: Annotated[bool, "memory layout of images; faster for convolutions"] = True
    compile: Annotated[bool, "compile the loss with torch.compile (pays on a GPU in long runs)"] = False
    cuda_graph: Annotated[bool, "on a GPU, replay the whole step as one CUDA graph"] = True
    deterministic: Annotated[bool, "on a GPU, only deterministic kernels (slower)"] = False


def _sgd(lr: float, decay: float, batch_size: int, epochs: float, every: float = 0, gamma: float = 0.1) -> Recipe:
    return _stepped("sgd", lr, decay, batch_size, epochs, every, gamma)


def _adam(lr: float, decay: float, batch_size: int, epochs: float, every: float = 0, gamma: float = 0.5) -> Recipe:
    return _stepped("adam", lr, decay, batch_size, epochs, every, gamma)


def _cropped(lr: float, decay: float, batch_size: int, epochs: float, every: float = 0, gamma: float = 0.5) -> Recipe:
    """Adam, and images that are cropped at random (4 px of padding) and mirrored."""
    return replace(_adam(lr, decay, batch_size, epochs, every, gamma), augment="crop_flip")


def _stepped(
    kind: Literal["sgd", "adam"], lr: float, decay: float, batch: int, epochs: float, every: float, gamma: float
) -> Recipe:
    plain = Recipe(kind, lr, weight_decay=decay, batch_size=batch, epochs=epochs)
    return replace(plain, schedule="step", step_every=every, gamma=gamma) if every else plain


def _disent(lr: float, batch_size: int, epochs: float, gamma: float = 0.5) -> Recipe:
    """`epochs` of its data are 10,000 steps."""
    decays = Recipe("adam", lr, schedule="step", step_from=epochs, step_every=epochs, gamma=gamma)
    return replace(decays, batch_size=batch_size, iterations=50_000, drop_last=True)


RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    # PGD, table 6 (Ahn, Kim and Yun 2023). MB-MNIST: the text says a decay every 40 epochs, the table has a dash; the
    # text is taken. CivilComments: the table has a factor of 0.1 and no step, so that the rate is constant here.
    "pgd-cmnist": _sgd(0.02, 1e-3, 128, 100, 40),
    "pgd-mbmnist": _sgd(0.01, 1e-4, 32, 100, 40),
    "pgd-ccifar": _adam(1e-3, 1e-3, 256, 200, 40),
    "pgd-bar": _sgd(5e-4, 1e-5, 16, 100, 20),
    "pgd-bffhq": _adam(1e-4, 0.0, 64, 160, 32, gamma=0.1),
    "pgd-celeba": Recipe("adam", 1e-4, weight_decay=0.01, schedule="cosine", batch_size=256, epochs=100),
    "pgd-civilcomments": _sgd(1e-5, 0.01, 16, 5),
    # The text to its table 12, which gives neither batch size nor length.
    "pgd-cifar10": Recipe("sgd", 0.1, weight_decay=5e-4, schedule="cosine", batch_size=128, epochs=200),
    # LfF as released (Nam et al. 2020); on CelebA it trained the head of a pretrained network alone.
    "lff-cmnist": _adam(1e-3, 0.0, 256, 100),
    "lff-ccifar": _cropped(1e-3, 0.0, 256, 200),
    "lff-celeba": _adam(1e-4, 1e-4, 256, 200),
    # DisEnt as released (Lee et al. 2021): 50,000 steps, last batch dropped; its learning rate decays at steps 20,000,
    # 30,000 and 40,000, here in epochs of its data. Corrupted CIFAR10 at 0.5 % has half of this learning rate.
    "disent-cmnist": _disent(0.01, 256, epochs=47),
    "disent-ccifar": _disent(1e-3, 256, epochs=57),
    "disent-bffhq": _disent(1e-4, 64, epochs=33, gamma=0.1),
    # BiasAdv, supplement, tables 1 to 4, and its text: crop and flip (Lim et al. 2023); JTT's where they differ.
    "biasadv-ccifar": _cropped(1e-3, 1e-4, 128, 200, 40),
    "biasadv-ccifar-jtt": _cropped(1e-3, 1e-4, 128, 50, 10),
    "biasadv-bffhq": _cropped(1e-4, 1e-4, 64, 150, 30),
    "biasadv-bffhq-jtt": _cropped(1e-4, 1e-4, 64, 50, 10),
    "biasadv-bar": _cropped(1e-3, 1e-4, 64, 20, 10),
    "biasadv-metashift": _cropped(2e-5, 1e-4, 32, 10),
    "biasadv-metashift-jtt": _cropped(2e-5, 0.0, 32, 1),
    # DCWP, tables 1 and 3 (Park et al. 2023, appendix E.2): the stage that trains the dense network.
    "dcwp-cmnist": Recipe("adam", 0.01, batch_size=256, iterations=10_000, augment="none"),
    "dcwp-ccifar": Recipe("adam", 1e-3, batch_size=256, iterations=10_000, augment="crop_flip"),
    "dcwp-bffhq": Recipe("adam", 1e-3, batch_size=64, iterations=10_000, augment="flip"),
    # DCWP, table 2: SGD on purpose. The paper gives no values; these are the released script's, but for its schedule,
    # which decays tenfold every 600 steps for the weights and never for the mask: one schedule serves all stages here.
    "dcwp-cmnist-sgd": Recipe("sgd", 0.1, weight_decay=1e-4, batch_size=256, iterations=2_000, augment="none"),
    # DCWP, table 1, for ReBias: as released for Biased MNIST (Bahng et al. 2020), and what it says of other datasets.
    "rebias-cmnist": _adam(1e-3, 1e-4, 256, 80, 20, gamma=0.1),
    "rebias-dcwp": _adam(1e-3, 0.0, 256, 200),
    # The large-learning-rate study (Barsbey et al. 2025), tables S1 and S2: constant rate, no momentum, until every
    # training sample is right. The rate is the experiment; the limit of 200 epochs is chosen here.
    "large-lr": Recipe(
        "sgd", 0.1, momentum=0.0, batch_size=100, epochs=200, until_accuracy=100, augment="none", eval_every=0
    ),
    "large-lr-swin": Recipe("adamw", 1e-5, batch_size=16, epochs=200, until_accuracy=100, augment="none", eval_every=0),
    # AVP's comparison table (Malik and Fern, manuscript): Adam, batch and length are its own, learning rate and weight
    # decay are placeholders there and come from GC-DRO's release (Zhou et al. 2021), which it says it follows; for text
    # its number of epochs is not given either. The epoch is the one with the best worst validation group: these two are
    # for the methods that AVP is compared with, since AVP itself, one stage an epoch, takes selection = last only.
    "avp-celeba": Recipe(
        "adam",
        1e-4,
        weight_decay=1e-4,
        batch_size=128,
        epochs=50,
        augment="mild_resized_crop_flip",
        selection="val_worst_group",
    ),
    "avp-text": Recipe(
        "adam",
        1e-5,
        weight_decay=0.1,
        betas=(0.9, 0.98),
        schedule="linear",
        batch_size=32,
        epochs=3,
        selection="val_worst_group",
    ),
    # Fine-tuning of a pretrained encoder, as is usual for BERT (Devlin et al. 2019); the rate is chosen here.
    "minilm": Recipe(
        "adamw",
        1e-4,
        weight_decay=0.01,
        decay_exceptions=True,
        schedule="linear",
        warmup=0.1,
        clip_norm=1.0,
        batch_size=32,
        epochs=3,
        eval_batch_size=256,
    ),
}

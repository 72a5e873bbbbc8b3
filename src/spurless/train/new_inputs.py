"""New samples, read as the model was shown its own: images at its size, tables by its coding, texts by its tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Images, Rows, Split, Table, Texts
from spurless.core.errors import DataError
from spurless.core.files import read_text
from spurless.core.messages import log
from spurless.core.tensor_files import of_bytes
from spurless.data.coding import coding_of, encode
from spurless.data.ingest.files import files_below, is_image
from spurless.data.ingest.images import SUFFIXES, Frame, LazyRows
from spurless.data.ingest.labels import MISSING_MARKS
from spurless.data.ingest.problems import Problems
from spurless.data.ingest.table_files import Format, read_table
from spurless.data.tokens import tokenise, tokens_of

FAR = 10.0  # standard deviations from the training mean at which a column, on average, counts as wrongly scaled
Facts = Mapping[str, Any]


def as_bundle(x: Tensor | Rows, names: Sequence[str] | None, facts: Facts) -> Bundle:
    """Inputs without labels, standardised as the model's own."""
    split = Split(x, torch.zeros(len(x), dtype=torch.long), names=names)
    mean, std = tuple(facts.get("mean", ())), tuple(facts.get("std", ()))
    kind: Images | Table | Texts = Images(mean, std) if len(x.shape) == 4 else Table(mean=mean, std=std)
    if facts.get("tokenizer"):
        kind = Texts(tokens_of(facts["tokenizer"]))
    return Bundle("new samples", split, classes=tuple(facts["classes"]), inputs=kind)


def read(inputs: Any, facts: Facts) -> Bundle:
    """What a user gives to `predict`, which describes it."""
    if hasattr(inputs, "columns") or isinstance(inputs, Mapping):
        frame = _as_pandas(inputs)
        return _of_frame(frame, [str(name) for name in frame.index], facts)
    items = _as_list(inputs)
    first = items[0] if items else None
    if _of_text(facts) and isinstance(first, (str, tuple, list)):
        is_file = len(items) == 1 and isinstance(first, str) and Path(first[:255]).is_file()
        return read_paths(items, facts) if is_file else _of_texts(items, _numbers(len(items)), facts)
    if isinstance(first, (str, os.PathLike)):
        return read_paths(items, facts)
    if hasattr(first, "getexif"):
        frame = _frame(facts)
        pixels = torch.stack([torch.from_numpy(frame.cut(picture)) for picture in items])
        return as_bundle(_channels(pixels, facts), _numbers(len(items)), facts)
    return _of_array(items or inputs, facts)


def _as_list(inputs: Any) -> list[Any]:
    """Texts, paths or pictures as a list, also one alone; empty for an array."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OU":  # names or texts
        inputs = inputs.tolist()
    if isinstance(inputs, (str, os.PathLike)) or hasattr(inputs, "getexif"):
        return [inputs]
    return list(inputs) if isinstance(inputs, (list, tuple)) else []


def _numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def _as_pandas(inputs: Any) -> Any:
    """A frame of pandas from one of polars, or from columns."""
    import pandas as pd

    return inputs.to_pandas() if hasattr(inputs, "to_pandas") else pd.DataFrame(inputs)


def read_paths(paths: Sequence[str | os.PathLike[str]], facts: Facts) -> Bundle:
    """Image files and folders of them; tables; for a model of texts also .txt files with a text on each line."""
    files = [file for path in paths for file in _files(Path(path).expanduser(), len(facts["shape"]) == 3)]
    if len(facts["shape"]) == 3:
        lazy = LazyRows("", files, _frame(facts))
        x: Tensor | Rows = lazy if facts["shape"][0] == 3 else _channels(lazy[torch.arange(len(lazy))], facts)
        return as_bundle(x, files, facts)
    import pandas as pd

    tables, names = [], list[str]()
    for file in files:
        table = _read_table(file, facts)
        tables.append(table)
        names += [f"{file} line {line}" for line in table.index]
    return _of_frame(pd.concat(tables), names, facts)


def check_own(data: Bundle, facts: Facts) -> Bundle:
    """A Bundle as the model wants to see it; refuse one whose inputs mean something else to it."""
    if tuple(facts["shape"]) != data.shape and not isinstance(data.inputs, Texts):
        raise DataError(f"The model takes inputs of shape {tuple(facts['shape'])}, and those of {data.name} are of "
                        f"shape {data.shape}.")  # fmt: skip
    coding = coding_of(data)
    if coding and json.dumps(facts.get("coding")) != json.dumps(coding):
        raise DataError(
            f"{data.name} is coded by other training samples than the model's own. Pass a frame or a file to predict, "
            "which is coded as the model knows it."
        )
    return data


def _files(path: Path, images: bool) -> list[str]:
    if path.is_dir() and images:
        images_below = [os.path.join(path, name) for name in files_below(path) if is_image(name)]
        if not images_below:
            raise DataError(f"There are no images in {path}.")
        return images_below
    if not path.is_file():
        raise DataError(f"There is no file {path}." if not path.exists() else f"{path} is not a regular file.")
    if images and path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is no image; the model takes images.")
    return [str(path)]


def _of_text(facts: Facts) -> bool:
    return bool(facts.get("tokenizer"))


# Images


def _frame(facts: Facts) -> Frame:
    if len(facts["shape"]) != 3 or facts["shape"][1] != facts["shape"][2] or facts["shape"][0] not in (1, 3):
        raise DataError(
            f"The model takes inputs of shape {tuple(facts['shape'])}, which image files cannot be brought to; pass an "
            "array."
        )
    how = {name: facts.get("trained_on", {}).get(name) for name in ("resize", "zoom")}
    return Frame(facts["shape"][-1], **{name: value for name, value in how.items() if value is not None})


def _channels(pixels: Tensor, facts: Facts) -> Tensor:
    """(n, c, h, w) with as many channels as the model takes: grey as Pillow makes it."""
    if facts["shape"][0] == 3:
        return pixels
    weights = torch.tensor([299, 587, 114]).view(1, 3, 1, 1)
    return ((pixels.long() * weights).sum(1, keepdim=True) / 1000).round().to(torch.uint8)


def _of_array(inputs: Any, facts: Facts) -> Bundle:
    try:
        x = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.ascontiguousarray(inputs))
    except (TypeError, ValueError, RuntimeError):
        kind = type(inputs).__name__
        raise DataError(f"{kind} cannot be read as inputs: pass an array, paths, texts or a frame.") from None
    shape, x = tuple(facts["shape"]), x.detach().cpu()
    if _of_text(facts):
        x = x.int()
        shape = (2, x.shape[-1])  # any length
    if x.shape == shape:
        x = x[None]
    if len(shape) == 3 and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
        x = x.permute(0, 3, 1, 2)
    if tuple(x.shape[1:]) != shape:
        raise DataError(
            f"The model takes inputs of shape (n, {', '.join(map(str, shape))}); these are {tuple(x.shape)}."
        )
    if not _of_text(facts):
        x = x if x.dtype == torch.uint8 else x.float()
        _warn_of_scale(x, facts)
    return as_bundle(x, _numbers(len(x)), facts)


def _warn_of_scale(x: Tensor, facts: Facts) -> None:
    """Warn where numbers lie far from those that the model was trained on: most often they are scaled in another
    way."""
    if not x.numel():
        return
    if len(facts["shape"]) == 3 and of_bytes(facts):
        low, high = float(x.min()), float(x.max())
        if x.dtype == torch.uint8 and high <= 1:
            log.warning(
                "The images are uint8 with no value above 1; the model was trained on 0 to 255: multiply by 255."
            )
        elif x.dtype != torch.uint8 and (low < 0 or high > 1):
            log.warning(
                f"The images go from {low:.4g} to {high:.4g}. The model takes floats from 0 to 1 or uint8 from 0 to "
                "255, and standardises them itself: divide by 255, or undo the standardisation."
            )
        return
    mean, std = torch.tensor(facts.get("mean", ())), torch.tensor(facts.get("std", ()))
    if not len(mean) and not facts.get("coding"):
        return  # nothing says how its numbers were scaled
    z = x.float().transpose(0, 1).flatten(1)  # (columns or channels, all their values)
    z = (z - mean[:, None]) / std[:, None] if len(mean) else z
    _warn_of_far([f"input {i}" for i in range(len(z))], z.abs().mean(1))


def _warn_of_far(names: Sequence[str], distances: Any) -> None:
    """Distances are in standard deviations."""
    far = [name for name, distance in zip(names, distances, strict=False) if distance > FAR]
    if far:
        log.warning(
            f"{', '.join(far[:5])}: on average more than {FAR:.0f} standard deviations from the training mean. Are the "
            "numbers scaled in another way, or in another unit?"
        )


# Tables and texts


def _read_table(file: str, facts: Facts) -> Any:
    """The cells of a file as text, by line."""
    import pandas as pd

    if _of_text(facts) and file.lower().endswith(".txt"):
        try:
            texts = read_text(file).splitlines()
        except UnicodeDecodeError:
            raise DataError(f"{file} is no text in UTF-8. Save it as UTF-8.") from None
        return pd.DataFrame({_text_columns(facts)[0]: texts}, index=range(1, len(texts) + 1))
    written = {k: v for k, v in facts.get("trained_on", {}).items() if k in ("delimiter", "encoding")}
    problems = Problems(file)
    cells, lines = read_table(Path(file), Format(**written), problems)
    problems.stop()
    return cells.set_index(pd.Index(lines))


def _text_columns(facts: Facts) -> list[str]:
    return list(facts.get("trained_on", {}).get("text") or ["text"])


def _of_frame(frame: Any, names: list[str], facts: Facts) -> Bundle:
    if _of_text(facts):
        columns = _text_columns(facts)
        if missing := [name for name in columns if name not in frame]:
            raise DataError(f"The model reads the column '{missing[0]}'; the table has {', '.join(map(str, frame))}.")
        texts = frame[columns].astype(str).to_numpy().tolist()
        return _of_texts([row[0] if len(row) == 1 else tuple(row) for row in texts], names, facts)
    coding = tuple(facts.get("coding") or ())
    if not coding:
        return _of_array(frame.to_numpy(), facts)
    marks = tuple(facts.get("trained_on", {}).get("missing") or MISSING_MARKS)
    comma = facts.get("trained_on", {}).get("decimal") == "comma"
    typed = frame.copy()
    for code in coding:
        if (name := code["column"]) in typed:
            typed[name] = _typed(typed[name], "values" in code, marks, comma)
    x, columns, _, _ = encode(typed, np.ones(len(typed), bool), coding=coding)
    _warn_of_far(columns, np.abs(x).mean(0) if len(x) else ())
    return as_bundle(torch.from_numpy(x), names, facts)


def _typed(column: Any, words: bool, missing: tuple[str, ...], comma: bool) -> Any:
    """A column as the coding wants it: numbers, or texts with None for a missing value."""
    import pandas as pd

    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return column
    cells = column.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    cells = cells.where(~cells.isin(missing) & cells.notna(), None)
    if words:
        return cells
    numbers = cells.map(lambda cell: cell.replace(",", ".") if comma and isinstance(cell, str) else cell)
    try:
        return pd.to_numeric(numbers).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"The model reads numbers in the column '{column.name}': {error}.") from None


def _of_texts(texts: Sequence[Any], names: list[str], facts: Facts) -> Bundle:
    pairs = isinstance(texts[0], (tuple, list)) if texts else False
    first = [row[0] for row in texts] if pairs else list(texts)
    second = [row[1] for row in texts] if pairs else None
    odd = next((i for i, text in enumerate([*first, *(second or ())]) if not isinstance(text, str)), None)
    if odd is not None or not first:
        raise DataError("Each input must be a text, or a pair." if first else "There are no texts to predict.")
    length = facts.get("trained_on", {}).get("length") or facts["shape"][-1]
    return as_bundle(tokenise(first, facts["tokenizer"], int(length), second, "the texts"), names, facts)

"""Bundles from what a user has in Python: arrays, texts, a PyTorch dataset, a Hugging Face dataset.

Images are uint8 in 0..255 or floats in 0..1, (n, c, h, w), (n, h, w, c) or (n, h, w); they are kept as uint8. Vectors
are (n, d). What could be read in two ways is refused, with what to do. Everything is held in memory; for a folder that
does not fit there, see `folder:PATH`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.messages import track
from spurless.data.folder import SPLIT_NAMES, SPLITS, listed, ordered, share_out
from spurless.data.ingest import images

IMAGE = ("image", "img", "picture", "pixel_values")
TEXT = ("text", "sentence", "review", "comment_text", "tweet", "content")
TEXTS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
LABEL = ("label", "labels", "y", "target", "class", "fine_label")


@dataclass
class Part:
    """One split as given: any inputs, labels and attributes, in numbers or words."""

    x: Tensor
    y: np.ndarray  # (n,) whole numbers or words
    a: dict[str, np.ndarray]  # by attribute, (n,) whole numbers or words

    def keep(self, rows: list[int]) -> Part:
        idx = torch.tensor(rows, dtype=torch.long)
        return Part(self.x[idx], self.y[rows], {name: column[rows] for name, column in self.a.items()})


def from_arrays(
    x: Any,
    y: Any,
    a: Any = None,
    *,
    val: float | tuple = 0.1,
    test: float | tuple = 0.2,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    name: str = "arrays",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A data set from arrays or tensors.

    `y` is (n,) and `a` (n,), (n, k) or {name: (n,)}, in whole numbers or words. `val` and `test` are (x, y) or
    (x, y, a), or the share of the rows that is drawn for them, by class and attribute. `fields` go to the Bundle: net,
    recipe, augment, mean, std and so on.

    >>> bundle = from_arrays(np.zeros((10, 4)), ["cat"] * 5 + ["dog"] * 5, a=[0, 1] * 5, val=0)
    >>> bundle.classes, len(bundle.train), len(bundle.test)
    (('cat', 'dog'), 8, 2)
    """
    attributes = _as_list(attributes)
    given, shares = _given((x, y, a), val, test, "x")
    parts = {part: _part(of, part, attributes) for part, of in given.items()}
    return _bundle(parts, shares, tuple(classes), name, seed, fields)


def from_texts(
    texts: Sequence[str] | Sequence[tuple[str, str]],
    y: Any,
    a: Any = None,
    *,
    val: float | tuple = 0.1,
    test: float | tuple = 0.2,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    tokenizer: str = "minilm",
    length: int = 128,
    name: str = "texts",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A data set from texts, or from pairs of texts, which are cut after `length` tokens.

    `tokenizer` is minilm, a folder or file, or a name on the Hugging Face hub. `val` and `test` are (texts, y) or
    (texts, y, a), or shares; the rest is as in `from_arrays`.
    """
    given, shares = _given((texts, y, a), val, test, "texts")
    parts, known = _of_texts(given, _as_list(attributes), tokenizer, length, name)
    return _bundle(parts, shares, tuple(classes), name, seed, known | fields)


def from_dataset(
    dataset: Any,
    *,
    val: Any = 0.1,
    test: Any = 0.2,
    size: int | None = None,
    resize: images.Resize = "crop",
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    name: str = "dataset",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A data set from a map-style PyTorch dataset that returns (x, y) or (x, y, a).

    `x` is a PIL image, a tensor or an array; images of several sizes need `size`. Each item is asked for once, so
    a transform that draws random numbers draws once: leave augmentation to the recipe. `val` and `test` are datasets or
    shares; the rest is as in `from_arrays`.
    """
    attributes = _as_list(attributes)
    frame = None if size is None else images.Frame(size, resize)
    parts = {"train": dataset, "val": val, "test": test}
    shares = {part: float(of) for part, of in parts.items() if isinstance(of, (int, float))}
    given = {p: _read(of, p, frame, lambda d, i: d[i], attributes) for p, of in parts.items() if p not in shares}
    if not classes and np.issubdtype(given["train"].y.dtype, np.integer):
        classes = getattr(dataset, "classes", ())  # torchvision's datasets know theirs
    return _bundle(given, shares, tuple(classes), name, seed, fields)


def from_hf(
    data: Any,
    *,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    val: Any = 0.1,
    test: Any = 0.2,
    size: int | None = None,
    resize: images.Resize = "crop",
    tokenizer: str = "minilm",
    length: int = 128,
    name: str = "hf",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A data set from a Hugging Face `datasets.Dataset`, or a `DatasetDict` with train, validation and test.

    The image (or text) and label columns are found by their names unless they are given; `attributes` are columns.
    `text` is a column, or the two of a pair of sentences. Names of classes and values come from `ClassLabel` features.
    `val` and `test` are datasets or shares, for what `data` has no split of; splits of other names are not used, which
    is in the notes. The rest is as in `from_dataset` and `from_texts`.
    """
    attributes = _as_list(attributes)
    parts, unused = _hf_splits(data, val, test)
    train = parts["train"]
    columns = list(getattr(train, "column_names", None) or ())
    at_label = _column(columns, label, LABEL, "label")
    for column in attributes:
        _column(columns, column, (), "attributes")
    if at_label in attributes:
        raise UserError(f"The column '{at_label}' is the label, so it cannot be an attribute; name another as `label`.")
    of_label, *of_attributes = (
        tuple(getattr(train.features[column], "names", None) or ()) for column in (at_label, *attributes)
    )
    names, known = tuple(classes) or of_label, dict(zip(attributes, of_attributes, strict=True))
    shares = {part: float(of) for part, of in parts.items() if isinstance(of, (int, float))}
    at_text = None if image else _text_columns(columns, text)
    if at_text:
        rows = {p: _cells(of, at_text, at_label, attributes) for p, of in parts.items() if p not in shares}
        texts, read = _of_texts(rows, attributes, tokenizer, length, name)
        return _bundle(texts, shares, names, name, seed, read | fields, known, unused)
    at_image = _column(columns, image, IMAGE, "image")

    def item(dataset: Any, row: int) -> tuple:
        cells = dataset[row]
        return cells[at_image], cells[at_label], *([[cells[c] for c in attributes]] if attributes else [])

    frame = None if size is None else images.Frame(size, resize)
    given = {p: _read(of, p, frame, item, attributes) for p, of in parts.items() if p not in shares}
    return _bundle(given, shares, names, name, seed, fields, known, unused)


def _hf_splits(data: Any, val: Any, test: Any) -> tuple[dict[str, Any], list[str]]:
    """train, val and test, as given or from a dictionary of splits, and a note on its splits that are none of them."""
    parts = {"train": data, "val": val, "test": test}
    if not isinstance(data, Mapping):
        return parts, []
    called: dict[str, list] = defaultdict(list)  # by part; "": none that is known
    for key in data:
        called[SPLIT_NAMES.get(str(key).strip().lower(), "")].append(key)
    if "train" not in called:
        raise UserError(
            f"The dataset has the splits {', '.join(map(str, data))} but no train; pass data['...'] itself."
        )
    for part in SPLITS:
        names = [f"'{key}'" for key in called[part]]
        if names and part != "train" and not isinstance(parts[part], (int, float)):
            names += [f"`{part}`"] * (parts[part] is not data[called[part][0]])
        if len(names) > 1:
            raise UserError(f"The dataset has more than one split for {part}: {' and '.join(names)}; pass only one.")
        if names:
            parts[part] = data[called[part][0]]
    unused = [f"'{key}'" for key in called[""] if not any(data[key] is of for of in parts.values())]
    how = f"splits of the dataset that are not used: {', '.join(unused)}; pass one as `val` or `test` to use it"
    return parts, [how] if unused else []


def _as_list(names: Sequence[str]) -> list[str]:
    """Names of attributes, of which a single one may be given as it is."""
    return [names] if isinstance(names, str) else list(names)


def _given(train: tuple, val: Any, test: Any, x: str) -> tuple[dict[str, tuple], dict[str, float]]:
    """The splits that are given, and the shares to draw for the others; `x` is what the inputs are called."""
    given: dict[str, tuple] = {"train": train}
    shares = {}
    for part, value in (("val", val), ("test", test)):
        if isinstance(value, (int, float)):
            shares[part] = float(value)
        elif isinstance(value, tuple) and len(value) in (2, 3):
            given[part] = value
        else:
            raise UserError(f"`{part}` takes a share of the rows, such as 0.1, or ({x}, y) or ({x}, y, a).")
    return given, shares


def _of_texts(
    given: Mapping[str, tuple], attributes: Sequence[str], tokenizer: str, length: int, name: str
) -> tuple[dict[str, Part], dict[str, Any]]:
    """The parts with their texts as tokens, all of one length, and what the Bundle must know of them."""
    from spurless.data.ingest.texts import NET, RECIPE
    from spurless.data.tokens import tokenise, tokens_of

    rows = [text for of in given.values() for text in of[0]]
    pairs = bool(rows) and not isinstance(rows[0], str)
    odd = [text for text in rows if not _is_text(text, pairs)]
    if odd or not rows:
        shown = repr(odd[0])[:80] if odd else "no rows"
        raise UserError(f"{name} holds {shown}; texts are all strings, or all pairs of two strings.")
    first, second = ([t[0] for t in rows], [t[1] for t in rows]) if pairs else (rows, None)
    x = tokenise(first, tokenizer, length, second, name)
    parts = x.split([len(of[0]) for of in given.values()])
    read = {
        part: _part((tokens, *of[1:]), part, attributes, ready=True)
        for (part, of), tokens in zip(given.items(), parts, strict=True)
    }
    return read, {"tokens": tokens_of(tokenizer), "net": NET, "recipe": RECIPE}


def _is_text(text: Any, pair: bool) -> bool:
    if not pair:
        return isinstance(text, str)
    return isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(t, str) for t in text)


def _text_columns(columns: Sequence[str], asked: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The column of texts, or the two of a pair; None where the data set is one of images."""
    if asked is not None:
        found = (asked,) if isinstance(asked, str) else tuple(asked)
        if len(found) not in (1, 2):
            raise UserError(f"`text` takes one column, or the two of a pair, not {len(found)}.")
        return tuple(_column(columns, column, (), "text") for column in found)
    if any(column in columns for column in IMAGE):
        return None
    pair = next((pair for pair in TEXTS if set(pair) <= set(columns)), None)  # before one of them alone
    return pair or next(((column,) for column in TEXT if column in columns), None)


def _cells(dataset: Any, text: tuple[str, ...], label: str, attributes: Sequence[str]) -> tuple:
    """(texts, y, a) of a Hugging Face dataset."""
    columns = [list(dataset[column]) for column in text]
    texts = columns[0] if len(text) == 1 else list(zip(*columns, strict=True))
    return texts, list(dataset[label]), {c: list(dataset[c]) for c in attributes} or None


def _bundle(
    given: dict[str, Part],
    shares: dict[str, float],
    classes: tuple[str, ...],
    name: str,
    seed: int,
    fields: dict[str, Any],
    known: Mapping[str, tuple[str, ...]] | None = None,
    notes: Sequence[str] = (),
) -> Bundle:
    """The splits with labels and attributes as numbers, the missing ones drawn from the training rows."""
    train, known = given["train"], known or {}
    if sum(shares.values()) >= 1 or min(shares.values(), default=0) < 0:
        raise UserError("The shares `val` and `test` must not be negative, and leave something to train on.")
    if any(shares.values()):
        strata = list(zip(train.y.tolist(), *(column.tolist() for column in train.a.values()), strict=True))
        ids = [str(row) for row in range(len(train.y))]
        drawn = share_out(ids, strata, shares.get("val", 0), shares.get("test", 0), seed)
        for part in SPLITS:
            if rows := [row for row, of in enumerate(drawn) if of == part]:
                given[part] = train.keep(rows)
    for part, of in given.items():
        if list(of.a) != list(train.a):
            raise UserError(f"{part} has the attributes {list(of.a)}, but train has {list(train.a)}; give the same.")
        if of.x.shape[1:] != train.x.shape[1:]:
            raise UserError(
                f"An input of {part} is of shape {tuple(of.x.shape[1:])}, one of train of {tuple(train.x.shape[1:])}."
            )
        for what, here, there in (("label", of.y, train.y), *((k, of.a[k], train.a[k]) for k in train.a)):
            if here.dtype.kind != there.dtype.kind:
                raise UserError(
                    f"The {what} is a word in one of train and {part}, a number in the other; write it alike."
                )
    columns = {k: [of.a[k] for of in given.values()] for k in train.a}
    said = [_check_numbers("label", [of.y for of in given.values()], bool(classes), is_label=True)]
    said += [_check_numbers(k, columns[k], bool(known.get(k))) for k in columns]
    if len(np.unique(given["train"].y)) < 2:
        raise UserError(f"All training rows of {name} have the same label; a label needs two classes or more.")
    labels = _Code("label", [given["train"].y], classes)
    codes = [_Code(k, columns[k], known.get(k, ())) for k in columns]
    splits = {}
    for part in SPLITS:
        if part in given:
            of = given[part]
            a = [code(column, part) for code, column in zip(codes, of.a.values(), strict=True)]
            splits[part] = Split(of.x, labels(of.y, part), torch.stack(a, dim=1) if a else None)
    colour = {"mean": images.IMAGENET_MEAN, "std": images.IMAGENET_STD} if train.x.shape[1:2] == (3,) else {}
    is_image = train.x.dim() == 4
    defaults: dict[str, Any] = {"net": "resnet18" if is_image else "mlp"} | (colour if is_image else {})
    return Bundle(
        name,
        splits["train"],
        splits.get("val"),
        splits.get("test"),
        classes=labels.names,
        attributes=tuple(train.a),
        values=tuple(code.names for code in codes),
        **(defaults | fields | {"notes": (*fields.get("notes", ()), *notes, *filter(None, said))}),
    )


class _Code:
    """Numbers for labels or values that are given in numbers or words."""

    def __init__(self, what: str, columns: list[np.ndarray], names: tuple[str, ...]):
        found = np.unique(np.concatenate(columns))
        self.what, self.numbers = what, np.issubdtype(found.dtype, np.integer)
        if self.numbers:
            if names and found[-1] >= len(names):
                raise UserError(
                    f"The {what} {found[-1]} has no name; there are {len(names)} names, for the numbers from 0 on."
                )
            self.names = tuple(map(str, names)) or tuple(str(i) for i in range(int(found[-1]) + 1))
            self.known: dict[Any, int] = {int(v): int(v) for v in found}
        else:
            order = ordered(found.tolist())
            if names and set(order) - set(names):
                raise UserError(f"The {what} '{(set(order) - set(names)).pop()}' is not among {', '.join(names)}.")
            self.names = tuple(names) or order
            self.known = {word: at for at, word in enumerate(self.names)}

    def __call__(self, column: np.ndarray, part: str) -> Tensor:
        missing = {value for value in column.tolist() if value not in self.known}
        if missing:
            raise UserError(
                f"The {self.what} {sorted(map(str, missing))[0]!r} in {part} does not occur in train; leave its rows "
                "out, or train on some."
            )
        return torch.tensor([self.known[value] for value in column.tolist()], dtype=torch.long)


def _check_numbers(what: str, columns: list[np.ndarray], named: bool, is_label: bool = False) -> str:
    """A note on whole numbers that no row has though a larger one occurs: each is a class, or value, all the same.

    Labels that do not begin at 0 could be read in two ways, and numbers of which most are missing are codes: refused.
    """
    found = np.unique(np.concatenate(columns))
    if found.dtype.kind != "i":
        return ""
    if found[0] < 0:
        raise UserError(f"The {what} {found[0]} is negative; numbers begin at 0 (rows without one: leave out).")
    absent = int(found[-1]) + 1 - len(found)
    if named or not absent or (is_label and len(found) == 1):  # of a single label more is said elsewhere
        return ""
    many, each = ("labels", "class") if is_label else (f"values of '{what}'", "value")
    if absent > 2 * len(found) or (is_label and found[0] > 0):
        first = next(number for number, value in enumerate(found.tolist()) if number != value)
        raise UserError(
            f"The {many} go up to {found[-1]}, but smaller numbers have no row ({absent:,}, beginning with {first}); "
            f"each would be a {each}. Number them 0, 1, 2 and so on, or give them as words, such as '{found[-1]}'"
            + (", or name all classes from 0 on with `classes`." if is_label else ".")
        )
    numbers = listed([str(n) for n in np.setdiff1d(np.arange(found[-1]), found)])
    return f"{many} that no row has, though larger ones occur, each taken as a {each} (words would not be): {numbers}"


def _part(given: tuple, part: str, attributes: Sequence[str], ready: bool = False) -> Part:
    """`ready`: the inputs are as they are to be."""
    x, y, a = (*given, None)[:3]
    out = Part(x if ready else _inputs(x, part), _words_or_numbers(y, f"y of {part}"), _columns(a, part, attributes))
    for what, column in (("y", out.y), *out.a.items()):
        if len(column) != len(out.x):
            raise UserError(f"{part} has {len(out.x):,} inputs but {len(column):,} values of {what}.")
    if not len(out.x):
        raise UserError(f"{part} has no rows.")
    return out


def _columns(a: Any, part: str, attributes: Sequence[str]) -> dict[str, np.ndarray]:
    """Attributes by name, from {name: (n,)}, (n,) or (n, k)."""
    if a is None:
        return {}
    if not (isinstance(a, Mapping) or hasattr(a, "columns")):  # a pandas table has them
        table = _array(a, f"a of {part}")
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2:
            raise UserError(f"a of {part} is of shape {table.shape}; it takes (n,), (n, k) or {{name: (n,)}}.")
        a = dict(zip(_attribute_names(attributes, table.shape[1], f"a of {part}"), table.T, strict=True))
    elif attributes and set(attributes) != set(map(str, a)):
        raise UserError(f"a of {part} has the columns {list(a)}, but the names {list(attributes)} were given.")
    return {str(name): _words_or_numbers(column, f"'{name}' of {part}") for name, column in a.items()}


def _attribute_names(attributes: Sequence[str], count: int, what: str) -> Sequence[str]:
    names = attributes or [f"a{k}" for k in range(count)]
    if len(names) != count:
        raise UserError(f"{what} has {count} columns, but {len(names)} names were given.")
    if len(set(names)) < count:
        raise UserError(f"`attributes` holds a name twice: {', '.join(names)}; give each its own.")
    return names


def _array(values: Any, what: str) -> np.ndarray:
    """An array that holds what was given: NaN among words stays NaN, which numpy would make a word."""
    try:
        out = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except ValueError:
        raise UserError(f"{what} has rows of different lengths; give each as many values.") from None
    is_list = isinstance(values, (list, tuple))
    return np.asarray(values, dtype=object) if is_list and out.dtype.kind == "U" else out


def _words_or_numbers(values: Any, what: str) -> np.ndarray:
    """(n,) whole numbers or words."""
    out = _array(values, what)
    if out.ndim != 1:
        raise UserError(f"{what} is of shape {out.shape}; it takes one whole number or word for each row, (n,).")
    if out.dtype.kind in "OU":
        fits = np.array([isinstance(value, (str, int, np.integer, np.bool_)) for value in out.tolist()], bool)
    elif out.dtype.kind == "f":
        fits = np.isfinite(out) & (out == np.floor(out))
    else:
        fits = np.full(len(out), out.dtype.kind in "biu")
    if not fits.all():
        row = int(np.argmin(fits))
        raise UserError(
            f"{what} holds {out[row : row + 1].tolist()[0]!r} in row {row}; it takes whole numbers or words. Fill it "
            "in, or leave the row out."
        )
    if out.dtype.kind not in "OU":
        return out.astype(np.int64)
    words = out.astype(str)
    stray = [text for text in words.tolist() if text != text.strip() or text in ("", "nan")]
    if stray:
        raise UserError(f"{what} holds {stray[0]!r}; take stray spaces and empty values away.")
    return words


def _inputs(x: Any, part: str) -> Tensor:
    """uint8 images (n, c, h, w), or float vectors (n, d)."""
    x = _tensor(x)
    if x is None:
        raise UserError(f"The inputs of {part} are not numbers of one shape; bring all images to one size first.")
    if x.dim() == 2:
        if not bool(torch.isfinite(x).all()):
            raise UserError(
                f"The vectors of {part} hold values that are not finite; fill them in or leave the rows out."
            )
        return x.float()
    if x.dim() not in (3, 4):
        raise UserError(f"The inputs of {part} are of shape {tuple(x.shape)}; vectors are (n, d), images (n, c, h, w).")
    return as_pixels(_channels_first(x, part), f"The images of {part}")


def _tensor(x: Any) -> Tensor | None:
    """Numbers as a tensor of a type that torch can calculate with; None where they are no numbers of one shape."""
    if not isinstance(x, Tensor):
        try:
            array = np.asarray(x)
        except (TypeError, ValueError):
            array = np.empty(0, object)
        if array.dtype.kind not in "biuf":
            return None
        # torch takes none that are read-only, reversed, in a foreign order of bytes or of more than 64 bits
        dtype = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.float64
        x = torch.from_numpy(np.require(array, dtype, ["C", "W"]))
    if x.is_complex():
        return None
    x = x.detach().cpu()
    return x.long() if x.dtype in (torch.uint16, torch.uint32, torch.uint64) else x


def _channels_first(x: Tensor, part: str) -> Tensor:
    """(n, c, h, w) from (n, h, w), (n, h, w, c) or itself."""
    if x.dim() == 3:
        return x[:, None]
    if x.shape[1] in (1, 3, 4):
        return x
    if x.shape[-1] in (1, 3, 4):
        return x.permute(0, 3, 1, 2).contiguous()
    raise UserError(f"Which axis of {part} holds the channels? Its shape is {tuple(x.shape)}; give (n, c, h, w).")


def as_pixels(x: Tensor, what: str) -> Tensor:
    """Images as uint8, from uint8 in 0..255 or floats in 0..1; another range is refused, because it would be a guess.

    >>> as_pixels(torch.tensor([0.0, 0.5, 1.0]), "The images").tolist()
    [0, 128, 255]
    """
    out = _scaled(x, what)
    if x.numel() and int(out.amax()) == 1:
        raise UserError(
            f"{what} are nearly black: the largest value is {float(x.amax()):.4g}. If they are 0 and 1 as whole "
            "numbers, multiply by 255; if they were divided by 255 twice, divide once."
        )
    return out


def _scaled(x: Tensor, what: str) -> Tensor:
    if x.dtype == torch.bool:
        raise UserError(f"{what} are true or false; give uint8 in 0..255 (times 255) or floats in 0..1.")
    if x.dtype == torch.uint8 or not x.numel():
        return x.to(torch.uint8)
    low, high = float(x.amin()), float(x.amax())
    spans = f"{what} go from {low:.4g} to {high:.4g}"
    if not x.is_floating_point():
        if low < 0 or high > 255:
            raise UserError(f"{spans}; whole numbers must lie in 0..255. Scale 16 bits down by 257.")
        return x.to(torch.uint8)
    if not (low >= 0 and high <= 1):  # what is not finite is neither
        raise UserError(
            f"{spans}; floats must lie in 0..1. Divide 0..255 by 255; undo a standardisation, and pass its mean and "
            "std instead."
        )
    return (x * 255).round().to(torch.uint8)


def _read(
    dataset: Any,
    part: str,
    frame: images.Frame | None,
    item: Callable[[Any, int], tuple],
    attributes: Sequence[str],
) -> Part:
    """Every item of a dataset, once."""
    try:
        n = len(dataset)
    except TypeError:
        raise UserError(
            f"The {part} dataset must have a length and items by number (map-style); read a stream into one first."
        ) from None
    if not n:
        raise UserError(f"{part} has no rows.")
    xs: list[Tensor] = []
    ys, cells = [], list[dict[str, Any]]()
    for row in track(range(n), f"reading {part}", n):
        got, where = item(dataset, row), f"Item {row} of {part}"
        if not isinstance(got, (tuple, list)) or len(got) not in (2, 3):
            raise UserError(f"{where} is not (x, y) or (x, y, a).")
        xs.append(_one_input(got[0], frame, where))
        if xs[row].shape != xs[0].shape:
            raise UserError(
                f"{where} is of shape {tuple(xs[row].shape)}, item 0 of {tuple(xs[0].shape)}; "
                "pass size=224 to give all images one."
            )
        ys.append(_plain(got[1]))
        if len(got) == 3:
            cells.append(_attribute_cells(got[2], attributes, where))
            if cells[-1].keys() != cells[0].keys():
                raise UserError(f"{where} has other attributes than the items before it: {', '.join(cells[-1])}.")
    a = {name: [of[name] for of in cells] for name in cells[0]} if cells else None
    return _part((torch.stack(xs), ys, a), part, attributes)


def _attribute_cells(given: Any, attributes: Sequence[str], where: str) -> dict[str, Any]:
    """The attributes of one item by name, from one value, several or {name: value}."""
    if isinstance(given, Mapping):
        return {str(name): _plain(value) for name, value in given.items()}
    given = _plain(given)
    values = [_plain(value) for value in given] if isinstance(given, (tuple, list)) else [given]
    return dict(zip(_attribute_names(attributes, len(values), f"a of {where}"), values, strict=True))


def _one_input(x: Any, frame: images.Frame | None, what: str) -> Tensor:
    """One image (c, h, w) as uint8, or one vector."""
    if hasattr(x, "getexif") or (isinstance(x, Mapping) and (x.get("bytes") or x.get("path"))):
        got = images.or_why(lambda: _pixels(x, frame))
        if isinstance(got, str):
            file = f" ({x['path']})" if isinstance(x, Mapping) and x.get("path") else ""
            raise UserError(f"{what}{file} cannot be read: {got}. Mend it, or leave it out.")
        return torch.from_numpy(got)
    numbers = _tensor(x)
    if numbers is None:
        raise UserError(f"{what} holds {repr(x)[:80]}; it takes a PIL image, or numbers as a tensor or an array.")
    if numbers.dim() < 2:
        return numbers.reshape(-1).float()
    x = _channels_first(numbers[None], what)[0]
    if frame is not None:
        from PIL import Image

        pixels = _scaled(x, what).permute(1, 2, 0).numpy()
        return torch.from_numpy(frame.cut(Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)))
    return _scaled(x, what)  # one image may well be black; whether all are is looked at in the end


def _pixels(picture: Any, frame: images.Frame | None) -> np.ndarray:
    """(c, h, w) of a PIL image, or of a cell of a Hugging Face dataset, which holds bytes or a path if not decoded."""
    import io

    from PIL import Image

    if isinstance(picture, Mapping):
        picture = Image.open(io.BytesIO(picture["bytes"]) if picture.get("bytes") else picture["path"])
    if frame is not None:
        return frame.cut(picture)
    pixels = np.array(images.to_rgb(picture)).transpose(2, 0, 1)
    return (pixels[:1] if picture.mode == "L" else pixels).copy()


def _plain(value: Any) -> Any:
    """A number or word, or several, out of tensors and arrays."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return value.tolist()
    return value


def _column(columns: Sequence[str], asked: str | None, usual: Sequence[str], what: str) -> str:
    found = asked if asked is not None else next((name for name in usual if name in columns), None)
    if found not in columns or found is None:
        raise UserError(f"Which column is it? Pass `{what}`, from: {', '.join(columns) or 'none'}.")
    return found

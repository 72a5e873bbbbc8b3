"""What a dataset holds, and what its bias attributes give away: `spurless data describe`.

`describe` is a plain dict (JSON), `text` shows it on a terminal, `contact_sheet` draws it. All of it is counting;
nothing is trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spurless.core.data import Bundle, Images, Split, Texts


def cramers_v(table: np.ndarray) -> tuple[float, float]:
    """Cramér's V of a table of counts, 0 (no association) to 1 (one decides the other), and bias-corrected beside it.

    V = √(φ² / (min(r, c) - 1)) with φ² = χ²/n; the correction is Bergsma's (2013), which takes away what chance alone
    gives in a small sample. Rows and columns without a count do not take part; where one is left, V is 0.

    >>> cramers_v(np.array([[10, 0], [0, 10]]))[0]
    1.0
    >>> cramers_v(np.array([[5, 5], [5, 5]]))
    (0.0, 0.0)
    >>> round(cramers_v(np.array([[30, 10], [10, 30]]))[0], 6)  # φ = (30·30 - 10·10) / (40·40)
    0.5
    """
    count = np.asarray(table, dtype=np.float64)
    count = count[count.sum(1) > 0][:, count.sum(0) > 0]
    n, (r, c) = count.sum(), count.shape
    if min(r, c) < 2:
        return 0.0, 0.0
    expected = count.sum(1, keepdims=True) * count.sum(0, keepdims=True) / n  # (r, c)
    phi2 = float(((count - expected) ** 2 / expected).sum() / n)
    plain = math.sqrt(phi2 / (min(r, c) - 1))
    if n < 2:
        return plain, 0.0
    less = max(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    size = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return min(1.0, plain), min(1.0, math.sqrt(less / size)) if size > 0 else 0.0


def counts(rows: np.ndarray, columns: np.ndarray, r: int, c: int) -> np.ndarray:
    """(r, c): how often each pair of codes occurs.

    >>> counts(np.array([0, 0, 1]), np.array([1, 1, 0]), 2, 2).tolist()
    [[0, 2], [1, 0]]
    """
    return np.bincount(rows * c + columns, minlength=r * c).reshape(r, c)


def best_guess(table: np.ndarray) -> tuple[float, float]:
    """Share of samples right when guessing the class from the attribute alone, and without it: (classes, values)
    counts.

    >>> best_guess(np.array([[9, 1], [1, 9]]))
    (0.9, 0.5)
    """
    n = max(1, int(table.sum()))
    return int(table.max(0).sum()) / n, int(table.sum(1).max()) / n


def describe(bundle: Bundle) -> dict[str, Any]:
    """Splits, classes, groups, associations, and one line that says what they mean; plain enough for JSON."""
    classes = _unique(bundle.classes)
    values = _attribute_values(bundle)
    association = _association(bundle, values)
    return {
        "name": bundle.name,
        "input": _input_in_words(bundle),
        "shape": list(bundle.shape),
        "classes": classes,
        "attributes": values,
        # which values of each attribute the shortcut predicts for a class; samples with others are conflicting
        "aligned": {
            name: {
                c: [v for v, yes in zip(values[name], row, strict=True) if yes]
                for c, row in zip(classes, t, strict=True)
            }
            for name, t in zip(values, (table.tolist() for table in bundle.aligned), strict=False)
        },
        "splits": {which: _split(bundle, split, classes, values) for which, split in bundle.splits.items()},
        "samples": _samples(bundle),
        "association": association,
        "meaning": _meaning(association, classes),
        "notes": list(bundle.notes),
        "settings": _plain(bundle.settings),
    }


def _split(bundle: Bundle, split: Split, classes: list[str], values: dict[str, list[str]]) -> dict[str, Any]:
    y = split.y.numpy()
    facts: dict[str, Any] = {"n": len(split), "classes": _named(classes, np.bincount(y, minlength=len(classes)))}
    facts |= {"attributes": None, "groups": None, "conflicting": None, "overlap": None}
    if split.member is not None and bundle.overlap is not None:
        inside = split.member.numpy()
        facts["overlap"] = {
            c: _named(bundle.overlap.groups, inside[y == k].sum(0)) for k, c in enumerate(classes)
        }  # a sample counts in each of its groups
    if split.a is None:
        return facts
    tables = {name: counts(y, split.a[:, k].numpy(), len(classes), len(values[name])) for k, name in enumerate(values)}
    facts["attributes"] = {name: _named(values[name], t.sum(0)) for name, t in tables.items()}
    facts["groups"] = {
        name: {c: _named(values[name], row) for c, row in zip(classes, t, strict=True)} for name, t in tables.items()
    }
    against = conflicting(bundle, split)
    if against is not None:
        facts["conflicting"] = {
            "n": int(against.any(1).sum()),
            "share": float(against.any(1).mean()),  # at least one attribute contradicts the label
            "by_attribute": {name: float(against[:, k].mean()) for k, name in enumerate(values)},
            # how many samples 0, 1, 2, ... of the attributes contradict
            "rows_by_contradictions": np.bincount(against.sum(1), minlength=len(values) + 1).tolist(),
        }
    return facts


def _samples(bundle: Bundle, each: int = 2) -> list[dict[str, str]]:
    """Of text: the first training samples that follow the shortcut and that do not, of each class; else nothing."""
    if not isinstance(bundle.inputs, Texts):
        return []
    import torch

    train, against = bundle.train, conflicting(bundle, bundle.train)
    kinds: dict[str, Any] = {"": np.ones(len(train), bool)}
    if against is not None:
        kinds = {"aligned": ~against.any(1), "conflicting": against.any(1)}
    entries = []
    for kind, rows in kinds.items():
        for k, name in enumerate(bundle.classes):
            for i in np.flatnonzero(rows & (train.y.numpy() == k))[:each].tolist():
                entries.append(
                    {"kind": kind, "class": name, "text": bundle.inputs.tokens.text(train[torch.tensor([i])][0])}
                )
    return entries


def conflicting(bundle: Bundle, split: Split) -> np.ndarray | None:
    """(n, k): whether each attribute contradicts the label; None where that is not known."""
    aligned = bundle.is_aligned(split) if bundle.aligned else None
    return None if aligned is None else ~aligned.numpy()


def _attribute_values(bundle: Bundle) -> dict[str, list[str]]:
    """For each attribute the names of its values; numbers where a bundle only has attributes beside its test
    samples."""
    codes = [s.a for s in bundle.splits.values() if s.a is not None]
    if not codes:
        return {}
    names = _unique(bundle.attributes or [f"a{k}" for k in range(codes[0].shape[1])])
    top = np.max([a.numpy().max(0, initial=0) for a in codes], axis=0)  # (k,)
    given = bundle.values or [[str(v) for v in range(int(m) + 1)] for m in top]
    return {name: _unique(v) for name, v in zip(names, given, strict=True)}


def _association(bundle: Bundle, values: dict[str, list[str]]) -> dict[str, Any] | None:
    """On the training samples: each attribute with the label, and the attributes with each other."""
    if bundle.train.a is None:
        return None
    y, a = bundle.train.y.numpy(), bundle.train.a.numpy()
    names, sizes = list(values), [len(v) for v in values.values()]
    label, between = {}, []
    for k, name in enumerate(names):
        table = counts(y, a[:, k], len(bundle.classes), sizes[k])
        plain, corrected = cramers_v(table)
        alone, without = best_guess(table)
        label[name] = {
            "cramers_v": plain,
            "corrected": corrected,
            "accuracy_from_it_alone": alone,
            "accuracy_of_commonest_class": without,
        }
        for j in range(k):
            plain, corrected = cramers_v(counts(a[:, j], a[:, k], sizes[j], sizes[k]))
            between.append({"attributes": [names[j], name], "cramers_v": plain, "corrected": corrected})
    return {"label": label, "between": between, "commonest_class": int(np.bincount(y).argmax())}


TELLING = 0.05  # a bias-corrected Cramér's V below this is next to nothing
GAIN = 0.005  # share of samples by which knowing an attribute must improve the guess to be worth a sentence


def _meaning(association: dict[str, Any] | None, classes: list[str]) -> str:
    """One line in plain words."""
    if association is None:
        return "No bias attribute is known for the training samples, so counts alone say nothing of shortcuts."
    label = association["label"]
    gain = {n: v["accuracy_from_it_alone"] - v["accuracy_of_commonest_class"] for n, v in label.items()}
    main = max(label, key=lambda n: (label[n]["corrected"] >= TELLING, gain[n], label[n]["corrected"]))
    strongest, v = label[main], f"Cramér's V {label[main]['cramers_v']:.2f}"
    alone, without = percent(strongest["accuracy_from_it_alone"]), percent(strongest["accuracy_of_commonest_class"])
    guess = f"always guessing '{classes[association['commonest_class']]}' scores {without}"
    if strongest["corrected"] < TELLING:
        line = (
            f"{main} says next to nothing about the class in the training samples ({v}): no shortcut to be had from it."
        )
    elif gain[main] >= GAIN:
        line = (
            f"{main} predicts the class for {alone} of the training samples: a model can score {alone} by looking at "
            f"it alone ({v}; {guess})."
        )
    else:
        line = (
            f"{main} goes with the class ({v}), but looking at it alone does not beat a fixed guess ({guess}): "
            "a model that leans on it shows in its groups, not in its average."
        )
    others = [f"{n} {percent(label[n]['accuracy_from_it_alone'])}" for n in label if n != main]
    return line + (f" The others alone: {', '.join(others)}." if others else "")


def percent(share: float) -> str:
    """A share in percent that is never rounded up to all or down to nothing.

    >>> percent(0.99), percent(0.9999), percent(1), percent(0.4551), percent(0.0002), percent(0)
    ('99 %', '> 99.9 %', '100 %', '45.5 %', '< 0.1 %', '0 %')
    """
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _text_in_words(bundle: Bundle) -> str:
    from torch import Tensor

    from spurless.data.tokens import row_lengths

    most = bundle.shape[-1]
    text = f"text, up to {most} tokens a sample (so there is no contact sheet)"
    full = sum(int((row_lengths(s.x) == most).sum()) for s in bundle.splits.values() if isinstance(s.x, Tensor))
    if not full or bundle.settings.get("length", most) > most:  # then not even the longest sample was cut
        return text
    return f"{text}; {full:,} of {sum(map(len, bundle.splits.values())):,} samples fill them, and longer texts were cut"


def _input_in_words(bundle: Bundle) -> str:
    shape = bundle.shape
    if isinstance(bundle.inputs, Texts):
        return _text_in_words(bundle)
    if isinstance(bundle.inputs, Images):
        kind = {1: "grey", 3: "colour"}.get(shape[0], f"{shape[0]}-channel")
        return f"{kind} images, {shape[2]} x {shape[1]} px"
    size = " x ".join(str(s) for s in shape)
    return f"{size} numbers a sample (not images, so there is no contact sheet)"


def _unique(names: Sequence[str]) -> list[str]:
    """The names, told apart by their place where two are the same, so that no count hides another in a dict."""
    seen = [str(n) for n in names]
    return (
        [n if seen.count(n) == 1 else f"{n} ({i})" for i, n in enumerate(seen)] if len(set(seen)) < len(seen) else seen
    )


def _named(names: Sequence[str], numbers: np.ndarray) -> dict[str, int]:
    return {name: int(n) for name, n in zip(names, numbers, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

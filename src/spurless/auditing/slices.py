"""Groups of held-out samples of a class, alike to the model, that it gets wrong more often than the rest of the class.

Slices say where to look. They never decide the verdict: data with no shortcut has hard samples too, and these lie
together in the features of the model that finds them hard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import holm, more_errors, share
from spurless.auditing.text_words import apart
from spurless.core.augment import floats
from spurless.core.data import Table
from spurless.core.seeds import derive
from spurless.data.tokens import row_lengths
from spurless.methods.parts.clusters import cluster, reducer, sample

LEVEL, GAP = 0.05, 10.0  # a slice is clearly worse below this corrected p-value, and by this many points
# Of a class for each of its clusters. The number of clusters with the best silhouettes is mostly two, and finds fewer
# of the samples that contradict a shortcut: those are few, and of several kinds.
ROWS = 30
SMALLEST, MOST = 5, 10  # samples of a slice, clusters of a class
FIT_ROWS, DIMS = 3000, 32  # samples of a class that are clustered, the others being assigned; principal components
LOOKED_AT = 300  # samples inside a slice, and outside, whose inputs are read for words
EFFECT, SURE = 0.5, 3.0  # a difference is told from this many standard deviations, and standard errors, on
WORDS = 3

MEASURES = (  # of a picture, as shares of the most that it can be: the words for less and for more; colours last
    ("darker", "brighter"),
    ("less contrast", "more contrast"),
    ("less fine detail", "more fine detail"),
    ("object further left", "object further right"),
    ("object higher up", "object lower down"),
    ("less red", "more red"),
    ("less green", "more green"),
    ("less blue", "more blue"),
    ("paler colours", "stronger colours"),
)


class Slice(NamedTuple):
    rows: Tensor  # of the held-out split
    others: Tensor  # of the same class
    p: float


def find_slices(case: Case, most: int = 8) -> list[dict[str, Any]]:
    """At most so many slices that are clearly worse than the rest of their class, worst first.

    The samples of each class are clustered by the model's features, without knowing which are right. Each cluster is
    compared with the rest of the class by Fisher's exact test, one-sided, corrected for the number of clusters of all
    classes (Holm). What it rejects is "errors fall evenly on the class", which is no claim about a shortcut: slices
    never decide the verdict.
    """
    tried = [candidate for label in case.held.y.unique().tolist() for candidate in _clusters(case, label)]
    worse = []
    for candidate, p in zip(tried, holm([each.p for each in tried]), strict=True):
        inside, elsewhere = share(case.right[candidate.rows].numpy()), share(case.right[candidate.others].numpy())
        if p < LEVEL and inside and elsewhere and inside["value"] <= elsewhere["value"] - GAP:
            worse.append((candidate, {"accuracy": inside, "elsewhere": elsewhere, "p": p}))
    worse.sort(key=lambda each: (each[1]["accuracy"]["value"], -len(each[0].rows), int(each[0].rows[0])))  # type: ignore[index]
    return [
        {"class": case.data.classes[int(case.held.y[candidate.rows[0]])], "size": len(candidate.rows), **scores}
        | {"words": in_words(case, candidate.rows, candidate.others), "rows": candidate.rows.tolist()}
        for candidate, scores in worse[:most]
    ]


def _clusters(case: Case, label: int) -> list[Slice]:
    """The clusters of a class, each against the rest of it. None where the model gets all of them right, or wrong: no
    cluster could then be worse than the others, so that there is nothing to correct for either."""
    rows = ((case.held.y == label) & case.features.isfinite().all(1)).nonzero()[:, 0]
    wrong = ~case.right[rows]
    if len(rows) < 2 * SMALLEST or bool(wrong.all()) or not bool(wrong.any()):
        return []
    z, seed = case.features[rows], derive(case.seed, "slices", label)
    fitted = sample(len(rows), FIT_ROWS, seed)
    reduce = reducer(z[fitted], "pca", DIMS, seed)
    clusters = cluster(reduce(z[fitted]), min(MOST, max(2, len(rows) // ROWS)), seed=seed)
    at = clusters.assign(reduce(z))  # (samples,)
    one_class = torch.zeros(len(rows)).numpy()
    return [
        Slice(rows[inside], rows[~inside], more_errors(wrong.numpy(), inside.numpy(), one_class))
        for inside in (at == k for k in range(clusters.number))
        if SMALLEST <= int(inside.sum()) <= len(rows) - SMALLEST
    ]


# What sets them apart


def in_words(case: Case, rows: Tensor, others: Tensor) -> list[str]:
    """What sets samples of a class apart from others of it: known attributes, or else what their inputs look like; and
    what is predicted for them, where there is more than one way to be wrong."""
    data, a = case.data, case.held.a
    words: list[str] = []
    if a is not None:
        sizes = [len(values) for values in data.values]
        here, elsewhere = (torch.cat([_one_hot(a[i, k], m) for k, m in enumerate(sizes)], 1) for i in (rows, others))
        names = [[f"{name} = {v}" for v in values] for name, values in zip(data.attributes, data.values, strict=True)]
        # That one of two values is rare says no more than that the other is common.
        words = told(here, elsewhere, [(n if len(of) > 2 else None, n) for of in names for n in of])
    if case.texts or not words:  # the words of a text say more than the attribute alone
        words = words + _inputs_in_words(case, rows, others)
    if len(data.classes) > 2:
        here, elsewhere = (_one_hot(case.predicted[i], len(data.classes)) for i in (rows, others))
        words += told(here, elsewhere, [(None, f"predicted as {name}") for name in data.classes])[:1]
    return words


def _inputs_in_words(case: Case, rows: Tensor, others: Tensor) -> list[str]:
    if case.texts:
        return _texts_in_words(case, rows, others)
    seed = derive(case.seed, "words")
    here, elsewhere = (case.held[i[sample(len(i), LOOKED_AT, seed)]] for i in (rows, others))
    if case.images:
        return told(picture_measures(floats(here)), picture_measures(floats(elsewhere)), MEASURES)
    if here.dim() != 2 or not here.is_floating_point():  # numbers that stand for words: more of them means nothing
        return []
    yes_or_no = [len(column.unique()) == 2 for column in torch.cat([here, elsewhere]).unbind(1)]
    low = torch.cat([here, elsewhere]).amin(0)
    as_share = torch.tensor(yes_or_no)
    here, elsewhere = (torch.where(as_share, (x > low).to(x.dtype), x) for x in (here, elsewhere))
    words = [
        (n, n) if yes else (f"lower {n}", f"higher {n}") for n, yes in zip(column_names(case), yes_or_no, strict=True)
    ]
    return told(here, elsewhere, words, lambda k, mean: f"{100 * mean:.0f} %" if yes_or_no[k] else f"{mean:.2g}")


def _texts_in_words(case: Case, rows: Tensor, others: Tensor) -> list[str]:
    here, elsewhere = (row_lengths(case.held[i]).double()[:, None] for i in (rows, others))
    long = told(here, elsewhere, [("shorter", "longer")], lambda _, mean: f"{mean:.0f} tokens")
    return long + [str(word) for word in apart(case, rows, others)[:WORDS]]


def told(
    here: Tensor,
    elsewhere: Tensor,
    words: Sequence[tuple[str | None, str | None]],  # for less and for more of each column; None: not worth telling
    shown: Callable[[int, float], str] = lambda column, mean: f"{100 * mean:.0f} %",
) -> list[str]:
    """The columns of (n, k) and (m, k) whose means differ most, by their spread, and clearly more than by chance.

    >>> here, elsewhere = torch.tensor([[1.0, 0.5]] * 9 + [[0.0, 0.5]]), torch.tensor([[0.0, 0.5]] * 9 + [[1.0, 0.5]])
    >>> told(here, elsewhere, [(None, "place = water"), ("darker", "brighter")])
    ['place = water: 90 % here, 10 % elsewhere in the class']
    """
    n, m = len(here), len(elsewhere)
    means = here.double().mean(0), elsewhere.double().mean(0)  # (k,) each
    spread = ((n * here.double().var(0, False) + m * elsewhere.double().var(0, False)) / (n + m)).sqrt()
    effect = (means[0] - means[1]) / spread.clamp_min(1e-9)
    least = max(EFFECT, SURE * (1 / n + 1 / m) ** 0.5)
    sentences = []
    for k in effect.abs().argsort(descending=True, stable=True).tolist():
        word, (ours, theirs) = words[k][int(effect[k] > 0)], (shown(k, float(mean[k])) for mean in means)
        if float(effect[k].abs()) >= least and word is not None and ours != theirs:
            sentences.append(f"{word}: {ours} here, {theirs} elsewhere in the class")
    return sentences[:WORDS]


def picture_measures(x: Tensor) -> Tensor:
    """(n, k) MEASURES of pictures (n, c, h, w) in 0..1; without those of colour unless there are three channels.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    >>> [round(v, 2) for v in picture_measures(red)[0].tolist()]  # no contrast, so no object: it is in the middle
    [0.33, 0.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.0, 1.0]
    """
    grey = x.mean(1)  # (n, h, w)
    contrast = grey.std((1, 2), unbiased=False)
    steps = torch.cat([grey.diff(dim=1).flatten(1), grey.diff(dim=2).flatten(1)], dim=1).abs()
    edge = torch.cat([grey[:, 0], grey[:, -1], grey[..., 0], grey[..., -1]], dim=1).median(1).values
    thing = (grey - edge[:, None, None]).abs() + 1e-6  # (n, h, w) how much a pixel differs from the ground
    across, down = ((each * _places(each)).sum(1) / each.sum(1) for each in (thing.sum(1), thing.sum(2)))
    measures = [grey.mean((1, 2)), contrast, steps.mean(1).nan_to_num() / (contrast + 0.02), across, down]
    if x.shape[1] == 3:
        light = x.mean((2, 3)) + 1e-3  # (n, 3), black being grey
        measures += list((light / light.sum(1, keepdim=True)).unbind(1))
        measures.append((x.amax(1) - x.amin(1)).mean((1, 2)))
    return torch.stack(measures, dim=1)


def column_names(case: Case) -> Sequence[str]:
    """Of a table: as the data knows them, or numbered from 1."""
    width = case.data.shape[0]
    names = case.data.inputs.columns if isinstance(case.data.inputs, Table) else ()
    return names if len(names) == width else [f"column {k + 1}" for k in range(width)]


def _places(weights: Tensor) -> Tensor:
    """(places,) From 0 to 1."""
    return (torch.arange(weights.shape[1]) + 0.5) / weights.shape[1]


def _one_hot(codes: Tensor, size: int) -> Tensor:
    return torch.nn.functional.one_hot(codes, size).double()  # (n, size)

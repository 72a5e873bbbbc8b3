"""Results side by side, for the terminal, Markdown and the report. A result is the content of a `result.json`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spurless.core.digests import in_full
from spurless.core.display import html as html
from spurless.core.stats import NOTHING, Estimate

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

Result = Mapping[str, Any]
Score = Estimate  # as the report of an audit imports it
METRICS = ("unbiased", "conflicting", "aligned", "worst_group")


class Cell(NamedTuple):
    """What stands in the table; `best` among the rows on the same data."""

    text: str
    best: bool = False


def finished(result: Result) -> bool:
    """Whether its scores count: those of a run that diverged or was interrupted do not."""
    return result.get("status") in (None, "done")


def score(result: Result, metric: str) -> Estimate | None:
    """One score of a finished run, or None.

    >>> str(score({"scores": {"unbiased": 71.25, "intervals": {"unbiased": [68.0, 74.31]}}}, "unbiased"))
    '71.2 [68.0–74.3]'
    >>> score({"status": "diverged", "scores": {"unbiased": 71.25}}, "unbiased") is None
    True
    """
    scores = result.get("scores") or {}
    value = scores.get(metric)
    if not finished(result) or value is None or not math.isfinite(value):
        return None
    low, high = (scores.get("intervals") or {}).get(metric) or (None, None)
    return Estimate(value, low, high)


def small_n(result: Result, metric: str) -> int | None:
    """The samples that decided a worst group, where they are fewer than a group should have; None of any other score.

    >>> scores = {"worst_group": 0.0, "n": {"worst_group": 2}, "min_size": 10}
    >>> small_n({"scores": scores}, "worst_group"), small_n({"scores": scores | {"min_size": 2}}, "worst_group")
    (2, None)
    """
    scores = result.get("scores") or {}
    n, least = (scores.get("n") or {}).get(metric), scores.get("min_size")  # rows made before it say nothing
    return n if metric == "worst_group" and n and least is not None and n < least else None


def with_small_n(text: str, result: Result, metric: str) -> str:
    """The text of a score with its n, where few samples decided it: 0.0 (n = 2)."""
    n = small_n(result, metric)
    return text if n is None else f"{text} (n = {n})"


def metrics(results: Sequence[Result]) -> list[str]:
    """The scores worth a column: those by group, or the plain average where no run knows groups.

    >>> metrics([{"scores": {"average": 90.0, "unbiased": None}}])
    ['average']
    """
    any_known = any(score(r, m) for r in results for m in METRICS)
    return list(METRICS) if any_known or not any(score(r, "average") for r in results) else ["average"]


def names(results: Sequence[Result]) -> list[str]:
    """A name for each run: its method, and whatever else it takes to tell it from the others.

    >>> names([{"method": "erm", "seed": 0}, {"method": "erm", "seed": 1}])
    ['erm, seed 0', 'erm, seed 1']
    >>> names([{"method": "lff", "settings": {"method": {"q": q}}} for q in (0.5, 0.7)])
    ['lff, q 0.5', 'lff, q 0.7']
    """
    labels = [str(r.get("method") or "unnamed") for r in results]
    for key, word in (("data", ""), ("net", ""), ("seed", "seed ")):
        suffixes = [f"{word}{r.get(key)}" for r in results]
        if len(set(suffixes)) > 1:
            labels = [f"{name}, {value}" for name, value in zip(labels, suffixes, strict=True)]
    for tell_apart in (_by_settings, _by_content, _by_place):
        for twins in _twins(labels):
            for i, words in zip(twins, tell_apart([results[i] for i in twins]), strict=True):
                labels[i] += words
    # A folder can be called anything, and a terminal obeys control characters.
    return ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) for name in labels]


def _by_settings(twins: Sequence[Result]) -> list[str]:
    """Up to three settings in which runs of one name differ."""
    flat = [_without_seed(r.get("settings") or {}) for r in twins]
    every = dict.fromkeys(k for own in flat for k in own)  # a run need not name what another one sets
    keys = [k for k in every if len({repr(own.get(k)) for own in flat}) > 1]
    return ["".join(f", {k.rpartition('.')[2]} {own.get(k)}" for k in keys[:3]) for own in flat]


def _by_content(twins: Sequence[Result]) -> list[str]:
    """The contents of their data, where these differ."""
    as_full = in_full(content_of(r)[1] for r in twins)
    contents = [as_full(content_of(r)[1])[:6] for r in twins]
    several = all(contents) and len(set(contents)) > 1
    return [f", content {content}" if several else "" for content in contents]


def _by_place(twins: Sequence[Result]) -> list[str]:
    return [f", run {index + 1}" for index in range(len(twins))]


def _twins(labels: Sequence[str]) -> list[list[int]]:
    """The places of names that are there several times."""
    same = [name for name in dict.fromkeys(labels) if labels.count(name) > 1]
    return [[i for i, other in enumerate(labels) if other == name] for name in same]


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names.

    >>> flatten({"method": {"q": 0.7}, "seed": 1})
    {'method.q': 0.7, 'seed': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def same_data(results: Sequence[Result]) -> list[str]:
    """For each result what it shares with those whose scores may be compared: the dataset and its settings, whatever
    the seed; and the content, where the same settings and seed stand for several (a file that was changed)."""
    keys = [_key([r.get("data"), data_of(r)]) for r in results]
    as_full = in_full(content_of(r)[1] for r in results)
    sources = [(source, as_full(content)) for source, content in map(content_of, results)]
    contents: dict[str, set[str]] = {}
    for source, content in sources:
        contents.setdefault(source, set()).update([content] if content else [])
    mixed = {key for key, (source, _) in zip(keys, sources, strict=True) if len(contents[source]) > 1}
    return [f"{key} {content}" if key in mixed else key for key, (_, content) in zip(keys, sources, strict=True)]


def data_of(result: Result) -> Mapping[str, Any]:
    """The settings of a run's data, as far as it has any."""
    data = (result.get("settings") or {}).get("data")
    return data if isinstance(data, Mapping) else {}


def content_of(result: Result) -> tuple[str, str]:
    """What should decide the content of a run's data, as text, and the fingerprint of that content.

    Settings do, with their seed. A dataset without settings was made by the user, who may have made it by the seed.

    >>> content_of({"data": "toy", "seed": 1, "settings": {"data": {"name": "toy", "rho": 0.1, "fingerprint": "f0"}}})
    ('["toy", {"name": "toy", "rho": 0.1}, null]', 'f0')
    """
    data = data_of(result)
    given = {k: v for k, v in data.items() if k != "fingerprint"}
    own = given.keys() <= {"name"}
    source = json.dumps([result.get("data"), given, result.get("seed") if own else None], sort_keys=True, default=str)
    return source, str(data.get("fingerprint") or "")


def same_but_seed(result: Result) -> str:
    """What runs share that differ in nothing but their seed."""
    return _key([result.get(k) for k in ("data", "method", "net", "settings")])


def headings(results: Sequence[Result]) -> list[str]:
    return ["method", *(m.replace("_", " ") for m in metrics(results)), "seconds", "labels used"]


def rows(results: Sequence[Result]) -> list[list[Cell]]:
    """The cells of the table, one row for each result, as `headings` names them."""
    columns = metrics(results)
    data = same_data(results)
    table = []
    for i, (result, name) in enumerate(zip(results, names(results), strict=True)):
        peers = [j for j, other in enumerate(data) if other == data[i]]
        sides = [results[j] for j in peers]
        cells = [_scored(result, sides, m) for m in columns]
        if not finished(result):
            cells[0] = Cell(str(result.get("status")))
        times = [other.get("seconds") for other in sides if finished(other)]
        seconds = result.get("seconds")
        fastest = finished(result) and _is_best(seconds, times, min)
        table.append([Cell(name), *cells, Cell(duration(seconds), fastest), Cell(result.get("labels_used") or NOTHING)])
    return table


def _scored(result: Result, peers: Sequence[Result], metric: str) -> Cell:
    """Marked as the best among its peers, unless a group that is too small would decide it."""
    few = any(small_n(other, metric) is not None for other in peers)
    cell = _cell(score(result, metric), [] if few else [score(other, metric) for other in peers])
    return cell._replace(text=with_small_n(cell.text, result, metric))


def duration(seconds: float | None) -> str:
    """Seconds, with a decimal where that says something.

    >>> duration(4.26), duration(1234.5), duration(None)
    ('4.3', '1,234', '–')
    """
    return NOTHING if seconds is None else f"{seconds:,.1f}" if seconds < 100 else f"{seconds:,.0f}"


def notes(results: Sequence[Result]) -> list[str]:
    """What must be said beside these numbers, each once."""
    return list(dict.fromkeys(str(note) for r in results for note in r.get("notes") or ()))


def with_words(table: Table, below: Sequence[str], above: str = "") -> Group:
    """A table with a title and sentences of the terminal's width: its own would be as narrow as it is."""
    from rich.console import Group
    from rich.text import Text

    title = [Text(above, "bold")] if above else []
    return Group(*title, table, *(Text(text, "table.caption") for text in below))


def comparison(results: Sequence[Result]) -> Group:
    """The table for the terminal: `console.print(comparison(results))`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    meaning = "accuracy in percent [95 % CI]; labels: the bias labels that the method was told"
    # In 80 columns an interval stands below its score, whole: that is what the widths and paddings are for.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in headings(results):
        words = heading in ("method", "labels used")
        narrow = None if words or heading == "seconds" else 11
        short = heading.removesuffix(" used")
        table.add_column(short, justify="left" if words else "right", overflow="fold", min_width=narrow)
    for result, row in zip(results, rows(results), strict=True):
        style = "" if finished(result) else "red"
        # Text, because names are data: rich would read "[red]" in a plain string as a command.
        table.add_row(*(Text(cell.text, "bold" if cell.best else style) for cell in row))
    return with_words(table, [meaning, *notes(results)])


def markdown(results: Sequence[Result]) -> str:
    """The same table in Markdown.

    >>> print(markdown([{"method": "erm", "scores": {"average": 91.04}, "seconds": 2.0, "labels_used": "none"}]))
    | method | average | seconds | labels used |
    | :-- | --: | --: | :-- |
    | erm | 91.0 | 2.0 | none |
    """
    titles = headings(results)
    rule = [":--" if title in ("method", "labels used") else "--:" for title in titles]
    body = [[f"**{plain(c.text)}**" if c.best else plain(c.text) for c in row] for row in rows(results)]
    lines = ["| " + " | ".join(row) + " |" for row in [titles, rule, *body]]
    return "\n".join([*lines, *(f"\n{plain(note)}" for note in notes(results))])


def _cell(own: Estimate | None, peers: Sequence[Estimate | None]) -> Cell:
    if own is None:
        return Cell(NOTHING)
    return Cell(str(own), _is_best(own.value, [p.value for p in peers if p], max))


def _is_best(own: float | None, peers: Sequence[float | None], best: Any) -> bool:
    # Rounded as printed: of two equal figures, marking one would puzzle the reader.
    values = {round(p, 1) for p in peers if p is not None}
    return own is not None and len(values) > 1 and round(own, 1) == best(values)


def _key(parts: list[Any]) -> str:
    return json.dumps(_without_seed(dict(enumerate(parts))), sort_keys=True, default=str)


def _without_seed(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Flat, and without what follows from the seed: generated data differs from seed to seed."""
    return {k: v for k, v in flatten(settings).items() if k.rpartition(".")[2] not in ("seed", "fingerprint")}


def plain(text: str) -> str:
    """The text with everything that Markdown or HTML would act on made harmless.

    >>> print(plain("a|b <i> [x](y) _c_ d_e"))
    a\\|b &lt;i> [x\\](y) \\_c\\_ d_e
    """
    # An underscore inside a word is left alone there.
    text = re.sub(r"([\\`*|~]|(?<![^\W_])_|_(?![^\W_])|\](?=[\[(:]))", r"\\\1", text)
    return re.sub(r"[\r\n]", " ", text.replace("&", "&amp;").replace("<", "&lt;"))

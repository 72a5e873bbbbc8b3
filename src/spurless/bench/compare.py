"""Compare results over seeds: which rows (selection.py), in which pairs (pairing.py), and what is real (judging.py)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from spurless.bench.figures import decimals
from spurless.bench.judging import ALPHA, FEW, REAL, SMALL, UNSHOWN, Difference, judge, p_value, pairs_needed
from spurless.bench.naming import name_rows
from spurless.bench.pairing import (
    Couple,
    Named,
    Pair,
    between,
    by_seed,
    names_of,
    scores_by_name,
    with_full_fingerprints,
    within,
)
from spurless.bench.selection import (
    Row,
    asked_for,
    missing_score,
    paths_and_labels,
    read_rows,
    usable_rows,
    usual_metric,
)
from spurless.core.errors import SettingError
from spurless.core.stats import CI, NOTHING, estimate
from spurless.metrics.groups import MIN_GROUP, group_notes
from spurless.report.tables import html, with_words

if TYPE_CHECKING:
    from rich.console import Group

EVERYWHERE = "all together"


class Comparison(NamedTuple):
    """The lines, and what must be said beside them."""

    lines: list[Difference]
    notes: list[str]

    def __repr__(self) -> str:
        real = sum(line.verdict == REAL for line in self.lines)
        metric = self.lines[0].metric if self.lines else ""
        return f"Comparison({metric}: {len(self.lines)} differences, {real} real)"

    def _repr_html_(self) -> str:
        texts = [{"where": line.where} | _texts(line) for line in self.lines]
        return html(list(texts[0]), [list(own.values()) for own in texts], below=self.notes)

    def plot(self, ax: Any = None) -> Any:
        """Each difference with its 95 % CI, real ones filled. Returns the matplotlib axes."""
        from spurless.bench.drawing import draw_differences

        return draw_differences(self.lines, ax)


def compare(words: Sequence[str], metric: str | None = None, against: str | None = None) -> Comparison:
    """Compare what is named: one or two paths, and labels (or methods) to which it is restricted."""
    paths, labels = paths_and_labels(words)
    sides, notes = usable_rows([read_rows(path) for path in paths])
    metric = metric or usual_metric([row for side in sides for row in side])
    sides = [asked_for(side, metric, labels) for side in sides]
    rows, named = _named(sides)
    split = len(sides[0])
    first, second = (scores_by_name(whole_or_part, metric, notes) for whole_or_part in (named[:split], named[split:]))
    if not (names := list(dict.fromkeys([*first, *second]))):
        raise missing_score(metric, rows)
    chosen = [name for label in labels for name in names_of(label, names, named, metric)]
    base = names_of(against, names, named, metric) if against else None
    if len(paths) == 1:
        couples = within(first, chosen, base, paths[0])
    elif base is None:
        couples = between((first, second), chosen, paths, notes)
    else:
        raise SettingError("--against is for one place: of two, each result is compared with its own in the other.")
    lines = _judged(_compared(couples, metric, notes))
    return Comparison(lines, [*_explain(lines, metric), *_knew_more(couples), *_groups_without(rows, metric), *notes])


def _named(sides: Sequence[Sequence[dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[Named]]:
    """The rows of all sides, and each with its name and place."""
    rows = [row for side in sides for row in side]
    return rows, with_full_fingerprints(name_rows(rows, [i for i, side in enumerate(sides) for _ in side]))


def _compared(couples: Sequence[Couple], metric: str, notes: list[str]) -> list[Difference]:
    """The lines of all couples, not judged yet; notes are added on what has no partner."""
    lines: list[Difference] = []
    changed = 0
    for couple in couples:
        who = f"{couple.a} and {couple.b}"
        if single := couple.without_partner():
            notes.append(f"{who}: {single} results have no partner of the same seed and data, and are left out.")
        if other := couple.on_other_content():
            changed += other
            notes.append(f"{who}: of {other} of these the partner was trained on another content of the data.")
        lines += [_line(where, couple, groups, metric) for where, groups in _by_place(couple.pairs()).items()]
    if not lines:
        why = " Results of the same seed were trained on different contents of the data." if changed else ""
        raise SettingError(f"No two results have the same seed, data and block label: there is nothing to pair.{why}")
    return lines


def _by_place(pairs: Sequence[Pair]) -> dict[str, list[list[Pair]]]:
    """The pairs of each place by seed, and those of all together where there are several."""
    places = list(dict.fromkeys(pair[0] for pair in pairs))
    groups = {setting: by_seed([pair for pair in pairs if pair[0] == setting]) for setting in places}
    return {EVERYWHERE: by_seed(pairs)} | groups if len(places) > 1 else groups


def _judged(lines: Sequence[Difference]) -> list[Difference]:
    """The lines with verdicts. 'Overall?' and 'where?' are two families of questions, each corrected for its own."""
    overall = iter(judge([line for line in lines if line.where == EVERYWHERE]))
    single = iter(judge([line for line in lines if line.where != EVERYWHERE]))
    return [next(overall if line.where == EVERYWHERE else single) for line in lines]


def _line(where: str, couple: Couple, groups: Sequence[Sequence[Pair]], metric: str) -> Difference:
    """One comparison; each group of pairs counts as one, by its mean."""
    sides = couple.mine, couple.yours
    of_a, of_b = ([statistics.fmean(side[pair].value for pair in group) for group in groups] for side in sides)
    differences = [y - x for x, y in zip(of_a, of_b, strict=True)]
    interval = estimate(differences)
    p, test = p_value(differences)
    sizes = [side[pair].samples for side in sides for group in groups for pair in group]
    fewest = min((n for n in sizes if n is not None), default=None)
    return Difference(
        where, couple.a, couple.b, len(differences), statistics.fmean(of_a), statistics.fmean(of_b),
        statistics.fmean(differences), interval.low, interval.high, p, test, metric=metric, worst_group_n=fewest,
    )  # fmt: skip


def _explain(lines: Sequence[Difference], metric: str) -> list[str]:
    overall = [line for line in lines if line.where == EVERYWHERE]
    single = [line for line in lines if line.where != EVERYWHERE]
    tests = " and ".join(dict.fromkeys(line.test for line in lines))
    counts = [f"{len(family)}{words}" for family, words in ((overall, " overall"), (single, "")) if family]
    together = f", {EVERYWHERE} over n seeds" if overall else ""
    meaning = (
        f"{metric}: mean over n pairs of the same seed and data{together}; [ ]: {CI} of the difference "
        f"(Student's t, not corrected); p: {tests}, corrected (Holm) for {' and, apart from these, '.join(counts)} "
        f"comparison{'s' if len(lines) > 1 else ''}. Real: p below {ALPHA:g}."
    )
    families = ((overall, "overall ", "seeds"), (single, "", "pairs"))
    return [meaning, *_on_small_groups(lines), *(text for family in families for text in _on_few(*family))]


def _on_small_groups(lines: Sequence[Difference]) -> list[str]:
    sizes = sorted({line.worst_group_n for line in lines if line.verdict == SMALL and line.worst_group_n})
    if not sizes:
        return []
    return [
        f"{SMALL}: nothing is decided where in a run the worst group has fewer than {MIN_GROUP} samples "
        f"(here n = {_range(sizes)}); compare by unbiased or conflicting, or score more samples."
    ]


def _on_few(family: Sequence[Difference], overall: str, of_what: str) -> list[str]:
    few = [line for line in family if line.verdict == FEW]
    if not few:
        return []
    return [
        f"{len(few)} of {len(family)} {overall}comparisons cannot tell anything: "
        f"with {_range(sorted({line.n for line in few}))} {of_what} no p value is low enough, however large the "
        f"difference. {pairs_needed(len(family))} {of_what} each would do; or compare fewer things (labels, --against)."
    ]


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def _knew_more(couples: Sequence[Couple]) -> list[str]:
    """What must be said where one side was told other bias labels, or had its weights picked by another rule."""
    remarks = []
    for field, words in (("labels_used", "Bias labels used"), ("selection", "Weights picked by")):
        names: dict[str, dict[str, None]] = {}  # what was known, and by whom, in their order
        for couple in couples:
            used = [(getattr(couple.mine[p], field), getattr(couple.yours[p], field)) for p in couple.pairs()]
            if any(None not in two and two[0] != two[1] for two in used):
                for two in used:
                    for who, what in zip((couple.a, couple.b), two, strict=True):
                        names.setdefault(str(what or "unknown"), {})[who] = None
        if names:
            each = "; ".join(f"{what} ({', '.join(whos)})" for what, whos in names.items())
            remarks.append(f"{words}: {each}.")
    return [" ".join(["What is compared did not use the same labels or rule.", *remarks])] if remarks else []


def _groups_without(rows: Sequence[Row], metric: str) -> list[str]:
    """Of how many groups a score over groups is, where some have no samples."""
    remarks: dict[str, None] = {}
    for row in rows if metric in ("unbiased", "worst_group") else ():
        scores = row.get("scores") or {}
        empty = [g for g in scores.get("small_groups") or () if not g["n"]]
        if empty and scores.get(metric) is not None:
            notes = group_notes({**scores, "small_groups": empty}, str(row.get("scored_on") or "test"))
            remarks |= dict.fromkeys(f"{row.get('data')}: {note}" for note in notes)
    return list(remarks)


def _without_common(places: Sequence[str]) -> tuple[list[str], list[str]]:
    """What all places have in common, and each without it.

    >>> _without_common(["all together", "CMNIST, rho 0.01", "CMNIST, rho 0.05"])
    (['CMNIST'], ['all together', 'rho 0.01', 'rho 0.05'])
    """
    parts = [label.split(", ") for label in places]
    single = [own for own, label in zip(parts, places, strict=True) if label != EVERYWHERE]
    if len({tuple(own) for own in single}) < 2:
        return [], list(places)
    common = [piece for piece in single[0] if all(piece in own for own in single)]
    return common, [", ".join(piece for piece in own if piece not in common) or ", ".join(own) for own in parts]


def terminal(lines: Sequence[Difference], notes: Sequence[str]) -> Group:
    """For the terminal: `console.print(terminal(*compare(...)))`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    style = {REAL: "bold green", FEW: "yellow", SMALL: "yellow", UNSHOWN: ""}
    common, places = _without_common([line.where for line in lines])
    texts = [_texts(line) for line in lines]
    columns = {"where": places} | {title: [own[title] for own in texts] for title in texts[0]}
    # What is the same in every line is said once: a terminal has 80 columns.
    same = [title for title in ("A", "B", "where") if len(lines) > 1 and len(set(columns[title])) == 1]
    head = ", ".join([*common, *(f"{title}: {columns.pop(title)[0]}" for title in same)])
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    for title in columns:
        words = title in ("where", "A", "B", "verdict")
        table.add_column(title, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row[:-1]), Text(row[-1], style[row[-1]]))
    return with_words(table, notes, head)


def _texts(line: Difference) -> dict[str, str]:
    digits = decimals(line.metric, (line.mean_a, line.mean_b))
    return {
        "A": line.a,
        "B": line.b,
        "n": str(line.n),
        "A and B": f"{line.mean_a:.{digits}f}, {line.mean_b:.{digits}f}",
        "B - A": f"{line.difference:+.{digits}f}",
        CI: NOTHING if line.low is None else f"[{line.low:+.{digits}f}, {line.high:+.{digits}f}]",
        "p": f"{line.p_corrected:.2g}",
        "verdict": line.verdict,
    }


def as_json(lines: Sequence[Difference], notes: Sequence[str]) -> dict[str, Any]:
    return {"comparisons": [{k: _finite(v) for k, v in asdict(line).items()} for line in lines], "notes": list(notes)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

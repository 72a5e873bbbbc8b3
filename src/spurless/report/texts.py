"""Texts of an audit, their words tinted by how much they speak for the model's answer, and the words of its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spurless.core.stats import NOTHING
from spurless.report.charts import number

WEAK = 0.2  # of the strongest word of a text; below it a word is not tinted
BEFORE = 60  # characters of a text before its strongest word, where only a few lines are shown

NOTE = (
    "Samples that are as most of their class are, and those that contradict the shortcut or, where none is known, that "
    "the model gets wrong. Long ones are cut."
)
ERRORS_NOTE = (
    "Words that texts of a class hold more often (or less often) where the model is wrong than where it is right, "
    "beyond chance: corrected for the number of words."
)


def spans(text: Sequence[Sequence[Any]] | None) -> list[dict[str, Any]]:
    """Stretches of a text: plain ones, and words that speak for or against the answer, with their weight.

    >>> found = spans([["a", 0.0], [" dull", 1.0], [" <b>", -0.5], [" film", 0.04], [".", None]])
    >>> [(s["text"], s["side"], s["weight"]) for s in found if s["text"].strip()]
    [('a', '', 0), ('dull', 'for', 1.0), ('<b>', 'against', 0.5), (' film.', '', 0)]
    """
    pieces: list[dict[str, Any]] = []

    def plain(plain_text: str) -> None:
        if pieces and not pieces[-1]["side"] and pieces[-1]["text"].strip():
            pieces[-1]["text"] += plain_text
        elif plain_text:
            pieces.append({"text": plain_text, "side": "", "weight": 0})

    for word, given in text or ():
        weight = number(given) or 0.0
        if abs(weight) < WEAK:
            plain(str(word))
            continue
        bare = str(word).lstrip()
        if bare != word:
            pieces.append({"text": str(word)[: len(str(word)) - len(bare)], "side": "", "weight": 0})
        side = "for" if weight > 0 else "against"
        pieces.append({"text": bare, "side": side, "weight": round(min(1.0, abs(weight)), 2)})
    return pieces


def gallery(
    audit: Mapping[str, Any], columns: Mapping[str, str], titles: Sequence[str], helps: Mapping[str, str]
) -> dict[str, Any]:
    """The texts of each class, of either kind; empty where the audit is of something else."""
    rows = []
    for entry in audit.get("gallery") or []:
        kinds = [
            {
                "kind": kind,
                "title": title,
                "help": helps.get(title, ""),
                "items": [_item(f) for f in entry.get(key) or [] if f.get("text")],
            }
            for (key, kind), title in zip(columns.items(), titles, strict=True)
        ]
        if any(kind["items"] for kind in kinds):
            rows.append({"class": entry.get("class"), "kinds": kinds})
    tinted = any(s["side"] for r in rows for k in r["kinds"] for i in k["items"] for s in i["spans"])
    return {"rows": rows, "tinted": tinted, "short": False} if rows else {}


def first(shown: Mapping[str, Any], classes: int, each: int = 2, prose: bool = True) -> dict[str, Any]:
    """The same with few texts of few classes, for the top of the page: of `prose`, where its strongest word is."""
    if not shown:
        return {}

    def few(kind: Mapping[str, Any]) -> dict[str, Any]:
        items = kind["items"][:each]
        return {**kind, "items": [item | {"spans": excerpt(item["spans"])} for item in items] if prose else items}

    rows = [{"class": row["class"], "kinds": [few(kind) for kind in row["kinds"]]} for row in shown["rows"][:classes]]
    return {"rows": rows, "tinted": shown["tinted"], "short": True}


def excerpt(pieces: Sequence[Mapping[str, Any]], before: int = BEFORE) -> list[dict[str, Any]]:
    """The text from so many characters before the strongest word for the answer: a few lines then show it.

    >>> long = spans([["It was", 0.0], [" seen", 0.3], [" by all of us on a train", 0.0], [" k", 1.0], [" r", 0.1]])
    >>> "".join(piece["text"] for piece in excerpt(long, 12))
    '… on a train k r'
    """
    strongest = max((piece["weight"] for piece in pieces if piece["side"] == "for"), default=0)
    at = next((k for k, piece in enumerate(pieces) if piece["side"] == "for" and piece["weight"] == strongest), 0)
    start = sum(len(piece["text"]) for piece in pieces[:at]) - before
    if start <= before:  # too little to leave out
        return [dict(piece) for piece in pieces]
    kept = [dict(piece) for piece in pieces]
    while start > 0:  # whole words go
        first = kept[0]["text"]
        space = -1 if kept[0]["side"] else first.find(" ", start)
        if space >= 0:
            kept[0]["text"] = first[space + 1 :]
            break
        start -= len(first)
        kept.pop(0)
    return [{"text": "… ", "side": "", "weight": 0}, *kept]


def _item(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": str(entry.get("name") or f"sample {entry.get('row')}"), "spans": spans(entry["text"])}


def errors(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each class a table of words: share of wrong and of right texts that hold it, odds ratio with interval, p."""
    tables = []
    for entry in audit.get("words") or []:
        rows = [
            [
                {"text": str(w.get("word")), "key": None},
                *({"text": _percent(v := number(w.get(key))), "key": v} for key in ("here", "elsewhere")),
                {"text": f"{w['ratio']:.2g} ({w['low']:.2g}–{w['high']:.2g})", "key": number(w["ratio"])},
                {"text": "< 0.001" if w["p"] < 0.001 else f"{w['p']:.2g}", "key": number(w["p"])},
            ]
            for w in entry.get("words") or []
        ]
        head = ["word", f"of {entry['wrong']:,} wrong", f"of {entry['right']:,} right", "odds ratio (95 %)", "p"]
        tables.append({"class": entry.get("class"), "headings": head, "rows": rows})
    return tables


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.0f} %"

"""The part of the page on an audit: verdict, where, how much, what next; drawn from audit.json and its pictures."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spurless.core.stats import NOTHING
from spurless.report import charts, evidence, points, texts
from spurless.report.charts import as_score, number
from spurless.report.evidence import HEADLINES, chance, look
from spurless.report.page import Part, Section
from spurless.report.pictures import Album
from spurless.report.runs import discreet
from spurless.report.tables import Score, duration, flatten

SHOWN = 24  # groups of an attribute that get a bar each; more become a shaded table
FIRST = 2  # classes whose pictures come first; the others are among the details
REPAIR = 3.0  # how many times as long as an audit one with --fix takes, at most (measured)
COST = {
    "aligned": ("Right where it helps", "aligned", "accuracy on samples where the shortcut points to the label"),
    "conflicting": ("Right where it misleads", "conflicting", "accuracy on samples where it points elsewhere"),
}


def part(audit: Mapping[str, Any], folder: Path) -> Part:
    """The verdict with its picture, what it costs, what to do, the evidence, then the details."""
    album = Album(folder)
    data = audit.get("data") or {}
    gallery, advice = _gallery(audit, album), list(audit.get("advice") or [])
    rows, passages = gallery.get("rows") or [], texts.gallery(audit, COLUMNS, kinds_of(audit))
    written = "samples" if audit.get("words") is None else "texts"
    now = [] if not advice else [{"step": advice[0], "took": _took(advice[0], audit), "review": _review(audit, folder)}]
    sections = [
        Section("gallery", "What it looks like", gallery | {"rows": rows[:FIRST]} if rows else {}, short="Samples"),
        Section("texts", "What it looks like", texts.first(passages, FIRST), short="Texts"),
        Section("cost", "What it costs", _cost(audit), short="Cost", half=bool(now)),
        Section("now", "What to do now", now, short="Do", half=bool(audit.get("cost"))),
        Section("fix", "Before and after the repair", _fix(audit.get("fix"), advice), short="Repair"),
        Section("evidence", "Evidence", evidence.evidence(audit)),
        Section("findings", "Each finding in full", evidence.findings(audit), short="Findings", detail=True),
        Section("advice", "What else can be done", advice[1:], short="More", detail=True),
        Section(
            "gallery", "More samples", gallery | {"rows": rows[FIRST:]} if rows[FIRST:] else {}, GALLERY_NOTE,
            detail=True,
        ),
        Section("texts", f"More {written}", passages, texts.NOTE, written.capitalize(), detail=True),
        Section("words", "Words of the errors", texts.errors(audit), texts.ERRORS_NOTE, "Words", detail=True),
        Section("attributes", "Accuracy by attribute", _attributes(audit), short="Attributes", detail=True),
        Section("slices", "Groups that stand out", _slices(audit, album), short="Groups", detail=True),
        Section("suspects", "The most suspicious samples", _suspects(audit, album), short="List", detail=True),
        Section("mined", "How suspicious each sample is", _histogram(audit), short="Scores", detail=True),
        Section("points", "What the network sees", _points(audit.get("map2d")), short="Map", detail=True),
        Section(
            "confusion", "What is predicted for what", _confusion(audit.get("confusion")), short="Confusion",
            detail=True,
        ),
        Section("facts", "How this was measured", [_facts(audit)], FACTS_NOTE, "Method", detail=True),
    ]  # fmt: skip
    few = (audit.get("coverage") or {}).get("notes") or []
    notes = [str(note) for note in (*(data.get("notes") or []), *few)] + album.notes()
    sections.append(Section("notes", "Notes on the data", notes, short="Notes", detail=True))
    kept = [s for s in sections if s.data]
    verdict = str(audit["verdict"])
    title = f"Audit of {data.get('name') or folder.name}"
    return Part([str(audit.get("headline") or "")], kept, title, [], HEADLINES.get(verdict, verdict), look(verdict), [])


def _took(step: Mapping[str, Any], audit: Mapping[str, Any]) -> str:
    """How long the command takes, where that follows from how long this audit took."""
    seconds = number(audit.get("seconds"))
    if seconds is None or not str(step.get("command") or "").startswith("spurless audit "):
        return ""
    minutes = math.ceil(REPAIR * seconds / 60)
    return f"It takes about {minutes} minute{'s' if minutes > 1 else ''}: this audit took {duration(seconds)} seconds."


def _review(audit: Mapping[str, Any], folder: Path) -> str:
    """The command that opens the local page on which a person decides; "" where there is nothing to decide."""
    if not audit.get("findings"):
        return ""
    shown = folder.name if folder.is_absolute() else folder.as_posix()  # nobody's home folder
    return f"spurless review {shlex.quote(shown)}"


GALLERY_NOTE = (
    "Samples where the shortcut points to the label, and where it points elsewhere; where none is known, samples that "
    "the model gets right and wrong. Click one to enlarge it."
)


FACTS_NOTE = (
    "Scores are percentages of samples that the answering model was not trained on, with 95 % CIs; p-values are "
    "corrected for the number of tests (Holm)."
)


def _bars(scores: Mapping[str, Any], names: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "meaning": meaning, "kind": kind, "score": s, "text": str(s)}
        for key, (name, kind, meaning) in names.items()
        if (s := as_score(scores.get(key)))
    ]


COLUMNS = {"aligned": "aligned", "conflicting": "conflicting"}  # the gallery's, and how each is drawn


def kinds_of(audit: Mapping[str, Any]) -> list[str]:
    """What the two kinds of samples are called: where no shortcut is known by name, they are only right and wrong."""
    return [str(kind) for kind in audit.get("kinds") or COLUMNS]


def _gallery(audit: Mapping[str, Any], album: Album) -> dict[str, Any]:
    rows = []
    for of_class in audit.get("gallery") or []:
        kinds = [
            {
                "kind": kind,
                "title": title,
                "items": _items(of_class.get(key) or [], f"{of_class['class']}, {title}", album),
            }
            for (key, kind), title in zip(COLUMNS.items(), kinds_of(audit), strict=True)
        ]
        if any(k["items"] for k in kinds):
            rows.append({"class": of_class["class"], "kinds": kinds})
    maps = any(i["map"] for row in rows for kind in row["kinds"] for i in kind["items"])
    return {"rows": rows, "maps": maps} if rows else {}


def _items(samples: Sequence[Mapping[str, Any]], what: str, album: Album) -> list[dict[str, Any]]:
    made = [album.item(f, f"{what}: {_short(f.get('name'))}" if f.get("name") else what) for f in samples]
    return [item for item in made if item]


def _short(path: Any) -> str:
    """The last two parts of a path: enough to find it, and no home folder."""
    return "/".join(str(path).replace("\\", "/").split("/")[-2:])


def _attributes(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_attribute(attribute) for attribute in audit.get("attributes") or []]


def _attribute(attribute: Mapping[str, Any]) -> dict[str, Any]:
    groups = [
        g | {"score": _group_score(g), "kind": charts.KINDS[g.get("aligned")]} for g in attribute.get("groups") or []
    ]
    association, gap = number(attribute.get("association")), as_score(attribute.get("gap"))
    remarks = []
    if association is not None:
        remarks.append(f"Association with the label {association:.2f} (0: none, 1: they go together always)")
    if gap:
        limits = "" if gap.low is None else f" (95 % interval {gap.low:+.1f} to {gap.high:+.1f})"
        remarks.append(f"gap {gap.value:+.1f} points{limits}")
    if (p := number(attribute.get("p"))) is not None:
        remarks.append(chance(p))
    few = len(groups) <= SHOWN
    return {
        "name": attribute.get("name"),
        "finding": attribute.get("finding"),
        "look": look(str(attribute.get("finding"))),
        "numbers": "; ".join(remarks),
        "bars": groups if few else [],
        "maps": [] if few else charts.heat_maps(groups),
    }


def _group_score(group: Mapping[str, Any]) -> Score | None:
    return as_score({"value": group.get("accuracy"), "low": group.get("low"), "high": group.get("high")})


def _slices(audit: Mapping[str, Any], album: Album) -> list[dict[str, Any]]:
    return [_slice(facts, album) for facts in audit.get("slices") or []]


def _slice(facts: Mapping[str, Any], album: Album) -> dict[str, Any]:
    inside, elsewhere = as_score(facts.get("accuracy")), as_score(facts.get("elsewhere"))
    what = f"{facts.get('class')}, a group that stands out"
    pictures = [item for path in facts.get("pictures") or [] if (item := album.item({"picture": path}, what))]
    bars = [
        {"name": name, "kind": kind, "score": s, "text": str(s)}
        for name, kind, s in (("these samples", "conflicting", inside), ("others of the class", "aligned", elsewhere))
        if s
    ]
    p = number(facts.get("p"))
    return {"class": facts.get("class"), "size": facts.get("size"), "words": facts.get("words") or [],
            "texts": [texts.spans(text) for text in facts.get("texts") or []],
            "p": None if p is None else chance(p), "bars": bars, "pictures": pictures}  # fmt: skip


def _suspects(audit: Mapping[str, Any], album: Album) -> list[dict[str, Any]]:
    rows = []
    for rank, of in enumerate(audit.get("rows") or []):
        score = number(of.get("score"))
        name = _short(of["name"]) if of.get("name") is not None else f"sample {of.get('row')}"
        rows.append(
            {k: NOTHING if of.get(k) is None else of[k] for k in ("label", "prediction", "says", "split", "row")}
            | {"rank": of.get("rank") or rank + 1, "name": name, "item": album.item(of, name)}
            | {"words": _start(of.get("text"))}
            | {"score": score, "text": NOTHING if score is None else f"{score:.2f}"}
        )
    return rows


def _start(text: Sequence[Sequence[Any]] | None, most: int = 25) -> str:
    """The first words of a text, for a table."""
    return "".join(str(word) for word, _ in (text or [])[:most]) + (" …" if text and len(text) > most else "")


def _histogram(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    scores = audit.get("histogram")
    if not scores:
        return []
    title, (usual, other) = str(scores.get("title") or "Score of each sample"), kinds_of(audit)
    kinds = f"{usual} samples", f"{other} samples"
    chart = points.histogram(scores["edges"], scores["aligned"], scores["conflicting"], title, kinds)
    return [{"name": "", "histograms": [chart]}]


def _points(drawn: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    chart = points.scatter(drawn) if drawn else None
    return [chart | {"name": ""}] if chart else []


def _confusion(counts: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"name": "", "confusion": charts.confusion(counts)}] if counts else []


def _cost(audit: Mapping[str, Any]) -> dict[str, Any]:
    cost = audit.get("cost")
    if not cost:
        return {}
    bars = _bars(cost, COST)
    if not bars:
        return {}
    asked = sum((cost.get(key) or {}).get("n") or 0 for key in COST)
    for bar, key in zip(bars, (key for key in COST if as_score(cost.get(key))), strict=True):
        bar["name"] += f" (n\u00a0=\u00a0{(cost.get(key) or {}).get('n', 0):,})"
    alone, data = as_score(cost.get("alone")), audit.get("data") or {}
    whole, answered = data.get("samples"), data.get("answered")
    told = [f"A model that sees nothing else is right on {alone.value:.0f} %."] if alone else []
    if isinstance(whole, int) and isinstance(answered, int) and whole > asked:
        of = f"the model was asked about {answered:,}, and " if answered != asked else ""
        told.append(f"Of {whole:,} samples, {of}{asked:,} were looked at for this.")
    return {"text": told, "bars": bars}


def _fix(repair: Mapping[str, Any] | None, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Before and after; what the first advice says is not said again."""
    if not repair:
        return {}
    told = [each.get("why") for each in advice[:1]]
    text = [each for each in repair.get("text") or [] if each not in told]
    chosen, rows = repair.get("chosen"), list(repair.get("rows") or [])
    panels: list[dict[str, Any]] = [
        {
            "kind": kind,
            "title": title,
            "rows": [
                {"name": r.get("method"), "score": s, "text": str(s or NOTHING), "chosen": r.get("method") == chosen}
                for r in rows
                for s in [as_score(r.get(key))]
            ],
        }
        for key, kind, title in (
            ("conflicting", "conflicting", "Right where it misleads"),
            ("aligned", "aligned", "Right where it helps"),
            ("exchanged", "average", "Right with the cue of another class"),
        )
        if any(as_score(r.get(key)) for r in rows)
    ]
    two = [
        panel | {"rows": [row for k, row in enumerate(panel["rows"]) if k == 0 or row["chosen"]]} for panel in panels
    ]
    times = [f"{r.get('method')} {duration(s)} s" for r in rows if (s := number(r.get("seconds"))) is not None]
    return {"text": text, "rule": repair.get("rule"), "chosen": chosen,
            "two": two, "panels": panels, "times": ", ".join(times)}  # fmt: skip


def _samples(data: Mapping[str, Any]) -> str | None:
    """How many there are, and how many have an answer of a model that has not seen them."""
    if not isinstance(data.get("samples"), int):
        return None
    how = "out-of-fold answers" if data.get("split") == "all" else f"answers, of the {data.get('split')} split"
    return f"{data['samples']:,}, of which {data.get('answered', 0):,} have {how}"


def _facts(audit: Mapping[str, Any]) -> dict[str, Any]:
    data, model = audit.get("data") or {}, audit.get("model") or {}
    seconds = number(audit.get("seconds"))
    facts = {
        "command": audit.get("command") and " ".join(str(discreet(w)) for w in str(audit["command"]).split(" ")),
        "data": data.get("name"),
        "classes": ", ".join(map(str, data.get("classes") or [])) or None,
        "attributes": ", ".join(map(str, data.get("attributes") or [])) or "none known",
        "samples": _samples(data),
        "model": f"{model.get('name')}, {model.get('source')}" if model else None,
        "selection": audit.get("selection"),
        "bias labels used": audit.get("labels_used"),
        "date": audit.get("date"),
        "took": None if seconds is None else f"{duration(seconds)} seconds",
        "spurless": audit.get("spurless"),
    }
    return {
        "name": "",
        "facts": {k: v for k, v in facts.items() if v is not None},
        "settings": {k: discreet(v) for k, v in flatten(audit.get("settings") or {}).items()},
        "versions": audit.get("versions") or {},
    }

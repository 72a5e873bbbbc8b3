"""The part of the page on an audit: verdict, where, how much, what next; drawn from audit.json and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spurless.report import charts, points, texts
from spurless.report.charts import as_score, number
from spurless.report.page import Part, Section, tile
from spurless.report.pictures import Album
from spurless.report.runs import discreet
from spurless.report.tables import NOTHING, Score, duration, flatten

LOOKS = {  # of a verdict or finding: its CSS class, and a sign for those who do not see its colour
    "shortcut found": ("found", "!"),
    "found": ("found", "!"),
    "suspected": ("suspected", "?"),
    "no evidence": ("none", "✓"),
    "none": ("none", "✓"),
}
UNKNOWN = ("unknown", "…")
SHOWN = 24  # groups of an attribute that get a bar each; more become a shaded table
COST = {
    "following": ("Follow the shortcut", "aligned", "accuracy of the model on samples that follow the shortcut"),
    "contradicting": ("Contradict it", "conflicting", "accuracy of the model on samples that contradict it"),
    "shortcut_alone": ("Shortcut alone", "average", "accuracy of a model that looks at nothing but the shortcut"),
}


def part(audit: Mapping[str, Any], folder: Path) -> Part:
    """Sentences and sections, each section only where the audit has something to say."""
    album = Album(folder)
    data = audit.get("data") or {}
    sections = [
        Section("evidence", "Evidence", _evidence(audit)),
        Section("gallery", "Where: samples to look at", _gallery(audit, album), GALLERY_NOTE, "Samples"),
        Section(
            "texts", "Where: texts to look at", texts.gallery(audit, COLUMNS, kinds_of(audit)), texts.NOTE, "Texts"
        ),
        Section("words", "Where: words of the errors", texts.errors(audit), texts.ERRORS_NOTE, "Words"),
        Section("attributes", "Where: accuracy by attribute", _attributes(audit), short="Attributes"),
        Section("slices", "Where: groups that stand out", _slices(audit, album), short="Groups"),
        Section("suspects", "Where: the most suspicious rows", _suspects(audit, album), short="Rows"),
        Section("mined", "Where: how suspicious each row is", _histogram(audit), short="Scores"),
        Section("points", "Where: what the network sees", _points(audit.get("map2d")), short="Map"),
        Section("confusion", "What is taken for what", _confusion(audit.get("confusion")), short="Confusion"),
        Section("cost", "How much it costs", _cost(audit.get("cost")), short="Cost"),
        Section("advice", "What next", list(audit.get("advice") or [])),
        Section("fix", "Before and after", _fix(audit.get("fix"))),
        Section("facts", "How this was measured", [_facts(audit)], FACTS_NOTE, "Method"),
    ]
    few = (audit.get("coverage") or {}).get("notes") or []
    notes = [str(note) for note in (*(data.get("notes") or []), *few)] + album.notes()
    kept = [s for s in sections if s.data]
    verdict = str(audit["verdict"])
    title = f"Audit of {data.get('name') or folder.name}"
    return Part([str(audit.get("headline") or "")], kept, title, notes, verdict, look(verdict), _tiles(audit))


GALLERY_NOTE = (
    "Samples that look as most of their class do, and those that contradict the shortcut or, where none is known, that "
    "the model gets wrong. Click one to enlarge it."
)


FACTS_NOTE = (
    "Scores are percentages of rows that the model was not trained on, with 95 % intervals; p-values are corrected for "
    "the number of tests."
)


def look(verdict: str) -> tuple[str, str]:
    """The CSS class and the sign of a verdict.

    >>> look("no evidence"), look("something new")
    (('none', '✓'), ('unknown', '…'))
    """
    return LOOKS.get(verdict, UNKNOWN)


def _tiles(audit: Mapping[str, Any]) -> list[dict[str, str]]:
    cost, data = audit.get("cost") or {}, audit.get("data") or {}
    average = as_score((audit.get("model") or {}).get("average"))
    tiles = [
        tile("Right where the shortcut helps", as_score(cost.get("following"))),
        tile("Right where it misleads", as_score(cost.get("contradicting"))),
        tile("Right on all samples", average),
        tile("By the shortcut alone", as_score(cost.get("shortcut_alone"))),
    ]
    if isinstance(data.get("rows"), int):
        held = f", {data['held_out']:,} of them held out" if isinstance(data.get("held_out"), int) else ""
        classes = f" in {len(data['classes'])} classes" if data.get("classes") else ""
        tiles.append({"name": "Samples", "text": f"{data['rows']:,}", "meaning": f"rows{classes}{held}"})
    return [t for t in tiles if t]


def _evidence(audit: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for found in audit.get("evidence") or []:
        numbers = []
        if (effect := number(found.get("effect"))) is not None:
            low, high = number(found.get("low")), number(found.get("high"))
            limits = "" if low is None or high is None else f" (95 % interval {low:+.1f} to {high:+.1f})"
            numbers.append(f"Effect {effect:+.1f} points{limits}")
        if (p := number(found.get("p"))) is not None:
            numbers.append(chance(p))
        rows.append({"test": found.get("test"), "text": found.get("text") or "", "numbers": ", ".join(numbers)})
        rows[-1] |= {"finding": found.get("finding"), "look": look(str(found.get("finding")))}
    trust = audit.get("reliability")
    if not rows and not trust:
        return {}
    trust = trust and {"text": trust.get("text") or "", "bars": _bars(trust, RELIABILITY)}
    return {"rows": rows, "reliability": trust}


RELIABILITY = {
    "found": ("Shortcuts that were found", "unbiased", "of data sets with a known shortcut"),
    "false_alarms": ("False alarms", "conflicting", "of data sets without one"),
}


def chance(p: float) -> str:
    """A p-value for everybody.

    >>> chance(0.03), chance(1e-9)
    ('p = 0.03', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _bars(found: Mapping[str, Any], names: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "meaning": meaning, "kind": kind, "score": s, "text": str(s)}
        for key, (name, kind, meaning) in names.items()
        if (s := as_score(found.get(key)))
    ]


COLUMNS = {"usual": "aligned", "contradicting": "conflicting"}  # the gallery's, and how each is drawn


def kinds_of(audit: Mapping[str, Any]) -> list[str]:
    """What the two kinds of rows are called: where no shortcut is known by name, they are only right and wrong."""
    return [str(kind) for kind in audit.get("kinds") or COLUMNS]


def _gallery(audit: Mapping[str, Any], album: Album) -> dict[str, Any]:
    rows = []
    for found in audit.get("gallery") or []:
        kinds = [
            {"kind": kind, "title": title, "items": _items(found.get(key) or [], f"{found['class']}, {title}", album)}
            for (key, kind), title in zip(COLUMNS.items(), kinds_of(audit), strict=True)
        ]
        if any(k["items"] for k in kinds):
            rows.append({"class": found["class"], "kinds": kinds})
    maps = any(i["map"] for row in rows for kind in row["kinds"] for i in kind["items"])
    return {"rows": rows, "maps": maps} if rows else {}


def _items(found: Sequence[Mapping[str, Any]], what: str, album: Album) -> list[dict[str, Any]]:
    made = [album.item(f, f"{what}: {_short(f.get('name'))}" if f.get("name") else what) for f in found]
    return [item for item in made if item]


def _short(path: Any) -> str:
    """The last two parts of a path: enough to find it, and no home folder."""
    return "/".join(str(path).replace("\\", "/").split("/")[-2:])


def _attributes(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_attribute(found) for found in audit.get("attributes") or []]


def _attribute(found: Mapping[str, Any]) -> dict[str, Any]:
    groups = [g | {"score": _group_score(g), "kind": charts.KINDS[g.get("aligned")]} for g in found.get("groups") or []]
    association, gap = number(found.get("association")), as_score(found.get("gap"))
    said = []
    if association is not None:
        said.append(f"Association with the label {association:.2f} (0: none, 1: they go together always)")
    if gap:
        limits = "" if gap.low is None else f" (95 % interval {gap.low:+.1f} to {gap.high:+.1f})"
        said.append(f"gap {gap.value:+.1f} points{limits}")
    if (p := number(found.get("p"))) is not None:
        said.append(chance(p))
    few = len(groups) <= SHOWN
    return {
        "name": found.get("name"),
        "finding": found.get("finding"),
        "look": look(str(found.get("finding"))),
        "numbers": "; ".join(said),
        "bars": groups if few else [],
        "maps": [] if few else charts.heat_maps(groups),
    }


def _group_score(group: Mapping[str, Any]) -> Score | None:
    return as_score({"value": group.get("accuracy"), "low": group.get("low"), "high": group.get("high")})


def _slices(audit: Mapping[str, Any], album: Album) -> list[dict[str, Any]]:
    return [_slice(found, album) for found in audit.get("slices") or []]


def _slice(found: Mapping[str, Any], album: Album) -> dict[str, Any]:
    inside, elsewhere = as_score(found.get("accuracy")), as_score(found.get("elsewhere"))
    what = f"{found.get('class')}, a group that stands out"
    pictures = [item for path in found.get("pictures") or [] if (item := album.item({"picture": path}, what))]
    bars = [
        {"name": name, "kind": kind, "score": s, "text": str(s)}
        for name, kind, s in (("these rows", "conflicting", inside), ("others of the class", "aligned", elsewhere))
        if s
    ]
    p = number(found.get("p"))
    return {"class": found.get("class"), "size": found.get("size"), "words": found.get("words") or [],
            "texts": [texts.spans(text) for text in found.get("texts") or []],
            "p": None if p is None else chance(p), "bars": bars, "pictures": pictures}  # fmt: skip


def _suspects(audit: Mapping[str, Any], album: Album) -> list[dict[str, Any]]:
    rows = []
    for place, found in enumerate(audit.get("rows") or []):
        score = number(found.get("score"))
        name = _short(found["name"]) if found.get("name") is not None else f"row {found.get('row')}"
        rows.append(
            {k: NOTHING if found.get(k) is None else found[k] for k in ("label", "prediction", "says", "split", "row")}
            | {"rank": found.get("rank") or place + 1, "name": name, "item": album.item(found, name)}
            | {"words": _start(found.get("text"))}
            | {"score": score, "text": NOTHING if score is None else f"{score:.2f}"}
        )
    return rows


def _start(text: Sequence[Sequence[Any]] | None, most: int = 25) -> str:
    """The first words of a text, for a table."""
    return "".join(str(word) for word, _ in (text or [])[:most]) + (" …" if text and len(text) > most else "")


def _histogram(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = audit.get("histogram")
    if not found:
        return []
    title, (usual, other) = str(found.get("title") or "Score of each row"), kinds_of(audit)
    kinds = f"{usual} rows", f"{other} rows"
    chart = points.histogram(found["edges"], found["usual"], found["candidates"], title, kinds)
    return [{"name": "", "histograms": [chart]}]


def _points(found: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    chart = points.scatter(found) if found else None
    return [chart | {"name": ""}] if chart else []


def _confusion(found: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"name": "", "confusion": charts.confusion(found)}] if found else []


def _cost(found: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"text": list(found.get("text") or []), "bars": _bars(found, COST)} if found else {}


def _fix(found: Mapping[str, Any] | None) -> dict[str, Any]:
    if not found:
        return {}
    chosen, rows = found.get("chosen"), list(found.get("rows") or [])
    panels = [
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
            ("contradicting", "conflicting", "Contradict the shortcut"),
            ("following", "aligned", "Follow the shortcut"),
            ("average", "average", "All samples"),
        )
        if any(as_score(r.get(key)) for r in rows)
    ]
    times = [f"{r.get('method')} {duration(s)} s" for r in rows if (s := number(r.get("seconds"))) is not None]
    return {"text": list(found.get("text") or []), "rule": found.get("rule"), "chosen": chosen,
            "panels": panels, "times": ", ".join(times)}  # fmt: skip


def _facts(audit: Mapping[str, Any]) -> dict[str, Any]:
    data, model = audit.get("data") or {}, audit.get("model") or {}
    seconds = number(audit.get("seconds"))
    said = {
        "command": audit.get("command") and " ".join(str(discreet(w)) for w in str(audit["command"]).split(" ")),
        "data": data.get("name"),
        "classes": ", ".join(map(str, data.get("classes") or [])) or None,
        "attributes": ", ".join(map(str, data.get("attributes") or [])) or "none known",
        "model": f"{model.get('name')}, {model.get('source')}" if model else None,
        "selection": audit.get("selection"),
        "bias labels used": audit.get("labels_used"),
        "date": audit.get("date"),
        "took": None if seconds is None else f"{duration(seconds)} seconds",
        "spurless": audit.get("spurless"),
    }
    return {
        "name": "",
        "facts": {k: v for k, v in said.items() if v is not None},
        "settings": {k: discreet(v) for k, v in flatten(audit.get("settings") or {}).items()},
        "versions": audit.get("versions") or {},
    }

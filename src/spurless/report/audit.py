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
    shown, more = _samples_shown(audit, album)
    tested = Section("evidence", "Evidence", evidence.evidence(audit))
    first = [shown, *_decided(audit, folder), tested]
    if audit["verdict"] == "no evidence":  # the pictures show nothing that was found
        tested.title, shown.title = "What was tested", "What the model gets right and wrong"
        first = [tested, *_decided(audit, folder), shown]
    sections = [*first, *_details(audit, album, more)]
    few = (audit.get("coverage") or {}).get("notes") or []
    notes = [str(note) for note in (*(data.get("notes") or []), *few)] + album.notes()
    sections.append(Section("notes", "Notes on the data", notes, short="Notes", detail=True))
    kept = [s for s in sections if s.data]
    verdict = str(audit["verdict"])
    title = f"Audit of {data.get('name') or folder.name}"
    return Part([str(audit.get("headline") or "")], kept, title, [], HEADLINES.get(verdict, verdict), look(verdict), [])


def _samples_shown(audit: Mapping[str, Any], album: Album) -> tuple[Section, Section]:
    """The pictures or texts of a few classes, for the top, and those of the others, for the details."""
    passages = texts.gallery(audit, COLUMNS, kinds_of(audit), HELP)
    if passages:
        prose = audit.get("words") is not None  # not the columns of a table
        few, what = texts.first(passages, FIRST, prose=prose), "texts" if prose else "samples"
        return (
            Section("texts", "What it looks like", few, short=what.capitalize()),
            Section("texts", f"More {what}", passages, texts.NOTE, what.capitalize(), detail=True),
        )
    gallery = _gallery(audit, album)
    rows = gallery.get("rows") or []
    return (
        Section("gallery", "What it looks like", gallery | {"rows": rows[:FIRST]} if rows else {}, short="Samples"),
        Section("gallery", "More samples", gallery | {"rows": rows[FIRST:]} if rows[FIRST:] else {}, GALLERY_NOTE,
                detail=True),
    )  # fmt: skip


def _decided(audit: Mapping[str, Any], folder: Path) -> list[Section]:
    """What it costs, and beside it the one thing to do now."""
    steps, cost = list(audit.get("advice") or []), _cost(audit)
    title = "What it costs, and what the repair changes" if cost.get("repaired") else "What it costs"
    now = _now(steps[0], audit, folder) if steps else {}
    return [
        Section("cost", title, cost, short="Cost", half=bool(now)),
        Section("now", "What to do now", now, short="Do", half=bool(cost)),
    ]


def _details(audit: Mapping[str, Any], album: Album, more: Section) -> list[Section]:
    """For whoever wants to check."""
    details = [
        Section("findings", "Each finding in full", evidence.findings(audit), short="Findings"),
        Section("fix", "All repairs that were tried", _fix(audit), short="Repairs"),
        Section("advice", "What else can be done", list(audit.get("advice") or [])[1:], short="More"),
        more,
        Section("words", "Words of the errors", texts.errors(audit), texts.ERRORS_NOTE, "Words"),
        Section("attributes", "Accuracy by attribute", _attributes(audit), short="Attributes"),
        Section("slices", "Groups that stand out", _slices(audit, album), short="Groups"),
        Section("suspects", "The most suspicious samples", _suspects(audit, album), short="List"),
        Section("mined", "How suspicious each sample is", _histogram(audit), short="Scores"),
        Section("points", "What the network sees", _points(audit.get("map2d")), short="Map"),
        Section("confusion", "What is predicted for what", _confusion(audit.get("confusion")), short="Confusion"),
        Section("facts", "How this was measured", [_facts(audit)], FACTS_NOTE, "Method"),
    ]
    for section in details:
        section.detail = True
    return details


def _now(step: Mapping[str, Any], audit: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The first advice, with one command: its own or, where it has none, that of the review."""
    return {"step": step, "took": _took(step, audit), "review": _review(audit, folder), "words": _words(audit)}


def _words(audit: Mapping[str, Any]) -> str:
    """The leading finding, in a sentence."""
    return str((audit.get("shortcut") or {}).get("words") or "what was found")


def _took(step: Mapping[str, Any], audit: Mapping[str, Any]) -> str:
    """How long the command takes, where that follows from how long this audit took."""
    seconds = number(audit.get("seconds"))
    if seconds is None or not audit.get("model") or not str(step.get("command") or "").startswith("spurless audit "):
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


HELP = {"aligned": ": the shortcut helps", "conflicting": ": the shortcut misleads"}  # what the two kinds mean
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
                "help": HELP.get(title, ""),
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
            {k: NOTHING if of.get(k) is None else of[k] for k in ("label", "prediction", "split", "row")}
            | {"says": of.get("says")}
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
    """Two bars; after a repair, each with a second one."""
    cost, after, other = audit.get("cost") or {}, _after(audit), _other(audit)
    if other:  # what a repair changes is told of the samples of its own finding, before and after
        cost = {key: audit["fix"]["rows"][0].get(key) for key in COST}
    bars = []
    for key, bar in zip((key for key in COST if as_score(cost.get(key))), _bars(cost, COST), strict=True):
        name = f"{bar['name']} (n\u00a0=\u00a0{cost[key].get('n', 0):,})"
        bars.append(bar | {"name": name, "text": _in_words(bar["score"]), "after": False})
        if s := as_score(after.get(key)):
            bars.append(bar | {"name": "after the repair", "score": s, "text": _in_words(s), "after": True})
    if not bars:
        return {}
    asked = sum((cost.get(key) or {}).get("n") or 0 for key in COST)
    alone, data = as_score(cost.get("alone")), audit.get("data") or {}
    whole, answered = data.get("samples"), data.get("answered")
    told = [f"{alone.value:.0f} % of the labels can be told from {_words(audit)} alone."] if alone else []
    if isinstance(whole, int) and isinstance(answered, int) and whole > asked:
        of = f"the model was asked about {answered:,}, and " if answered != asked else ""
        told.append(f"Of {whole:,} samples, {of}{asked:,} were looked at for this.")
    told += [f"These are the samples where '{other}' helps and misleads, which the repair is of."] if other else []
    told += [] if after else _of_repair(audit)[:1]
    return {"text": told, "bars": bars, "repaired": bool(after)}


def _in_words(score: Score) -> str:
    """For the top of the page: whole per cent, as in the headline."""
    limits = "" if score.low is None else f" (95 % CI {score.low:.0f}–{score.high:.0f})"
    return f"{evidence.whole(score)}{limits}"


def _after(audit: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scores of the chosen repair; none where none was chosen."""
    repair = audit.get("fix") or {}
    chosen = (row for row in repair.get("rows") or [] if row.get("method") == repair.get("chosen"))
    return next(chosen, {}) if repair.get("chosen") else {}


def _other(audit: Mapping[str, Any]) -> str | None:
    """The finding that the chosen repair is of, where that is not the leading one."""
    finding = (audit.get("fix") or {}).get("finding")
    leading = (audit.get("shortcut") or {}).get("name")
    return str(finding) if finding and finding != leading and _after(audit) else None


def _of_repair(audit: Mapping[str, Any]) -> list[str]:
    """What is told of the repair, and not said by the first advice already."""
    advised = [each.get("why") for each in (audit.get("advice") or [])[:1]]
    return [str(each) for each in (audit.get("fix") or {}).get("text") or [] if each not in advised]


def _fix(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Every repair that was tried, by the samples that judge it."""
    repair = audit.get("fix")
    if not repair:
        return {}
    rows = list(repair.get("rows") or [])
    panels = [
        {
            "kind": kind,
            "title": title,
            "rows": [
                {
                    "name": r.get("method"),
                    "score": s,
                    "text": str(s or NOTHING),
                    "chosen": r.get("method") == repair.get("chosen"),
                }
                for r in rows
                for s in [as_score(r.get(key))]
            ],
        }
        for key, kind, title in (
            ("conflicting", "conflicting", "Right where it misleads"),
            ("aligned", "aligned", "Right where it helps"),
            ("exchanged", "average", "Right after it was exchanged"),
        )
        if any(as_score(r.get(key)) for r in rows)
    ]
    times = [f"{r.get('method')} {duration(s)} s" for r in rows if (s := number(r.get("seconds"))) is not None]
    return {"text": _of_repair(audit)[1 if _cost(audit) and not _after(audit) else 0 :], "rule": repair.get("rule"),
            "chosen": repair.get("chosen"), "panels": panels, "times": ", ".join(times)}  # fmt: skip


def _samples(data: Mapping[str, Any], model: Any) -> str | None:
    """How many there are, and how many have an answer of a model that has not seen them."""
    if not isinstance(data.get("samples"), int):
        return None
    if not model:
        return f"{data['samples']:,}"
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
        "samples": _samples(data, model),
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

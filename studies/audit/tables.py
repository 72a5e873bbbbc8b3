"""The tables of the zoo, and what every report quotes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.audit.final2 import FINAL2, NOTES2
from studies.audit.final3 import CONTROLS, FINAL3

QUOTED = Path(__file__).parents[2] / "src" / "spurless" / "auditing" / "power.json"
SETS = {"develop": "The development half", "held out": "The held-out half", "final": "The final set",
        FINAL2: "The second final set", FINAL3: "The third final set"}  # fmt: skip
BIRDS = {FINAL2: "waterbirds 2", FINAL3: "waterbirds 3"}  # halves of the draws of Waterbirds
INPUTS = {
    "small": "images of less than 64 px",
    "photo": "photographs of 64 px or more",
    "text": "texts",
    "table": "tables",
}
DOMAINS = tuple(INPUTS)
HARMED = ("repairs 3", "repairs 4", "repairs 5")  # halves of the sets of harmed models, the last one measured last
Row = dict[str, Any]


def read(place: Path) -> list[Row]:
    """The rows of a file, or of all files of a folder."""
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place] if place.exists() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def rate(hits: Sequence[bool]) -> dict[str, Any] | None:
    from spurless.auditing.evidence import share

    return share(list(hits)) if hits else None


def shown(score: dict[str, Any] | None) -> str:
    return (
        "–" if score is None else f"{score['value']:.0f} % [{score['low']:.0f}–{score['high']:.0f}], n = {score['n']}"
    )


def summary(rows: Sequence[Row], half: str) -> str:
    """A table by domain: what was found with and without attributes, named right, and false alarms."""
    heads = (
        "domain", "with attributes", "without", "named right", "found, of the harmful", "false alarm",
        "available, clean",
    )  # fmt: skip
    out = ["| " + " | ".join(heads) + " |", "| :-- " + "| --: " * 6 + "|"]
    rows = [row for row in rows if row["half"] == half]
    for domain, of in (*((each, (each,)) for each in DOMAINS), ("images", ("small", "photo")), ("all", DOMAINS)):
        own = [row for row in rows if row["domain"] in of]
        bad, clean = [r for r in own if not r["clean"]], [r for r in own if r["clean"]]
        seen = [r for r in bad if r["without_attributes"] in ("found", "available")]
        cells = [
            rate([r["verdict"] in ("found", "gap", "available") for r in bad]),
            rate([r in seen for r in bad]),
            rate([r["named_right"] for r in seen]),
            rate([r["without_attributes"] == "found" for r in bad if r.get("harmful", True)]),
            rate([r["verdict"] in ("found", "gap") for r in clean]),
            rate([r["verdict"] == "available" for r in clean]),
        ]
        out.append(f"| {domain} | " + " | ".join(shown(cell) for cell in cells) + " |")
    return "\n".join(out)


def birds(rows: Sequence[Row], half: str = "waterbirds") -> str:
    """How many draws of Waterbirds without attributes were seen."""
    out = ["| draws of 1,200 | found | available | no evidence |", "| :-- | --: | --: | --: |"]
    for name in ("waterbirds, 95 %", "waterbirds, balanced"):
        own = [r["verdict"] for r in rows if r["kind"] == name and r["half"] == half]
        counts = [own.count(verdict) for verdict in ("found", "available", "no evidence")]
        out.append(f"| {name}, n = {len(own)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(out)


def noted(rows: Sequence[Row], half: str) -> str:
    """How often the notes said what was done to the data."""
    own = [row for row in rows if row["half"] == half]
    out = ["| note | share | said | said where nothing was done |", "| :-- | --: | --: | --: |"]
    for plant, what in (("doubles", "near-duplicates in two splits"), ("sorted", "rows in order of the label")):
        others = rate([plant in row["noted"] for row in own if row["clean"]])
        shares = sorted({row["strength"] for row in own if row["kind"].startswith(plant)})
        for k, share in enumerate(shares):
            some = [r for r in own if r["kind"].startswith(plant) and r["strength"] == share]
            said = rate([plant in row["noted"] for row in some])
            out.append(f"| {what} | {share:.0%} | {shown(said)} | {shown(others) if not k else ''} |")
    return "\n".join(out)


def repaired(rows: Sequence[Row], half: str = "repairs") -> str:
    """What each repair brought on fresh balanced data."""
    out = ["| case | finding | chosen | conflicting | aligned | mended, broken |", "| :-- " * 3 + "| --: " * 3 + "|"]
    for row in sorted((r for r in rows if r["half"] == half), key=lambda r: str(r["kind"])):
        cells = [
            " → ".join(f"{100 * k / n:.0f} %" for k, n in (row[f"before_{where}"], row[f"after_{where}"]))
            if f"before_{where}" in row
            else "–"
            for where in ("conflicting", "aligned")
        ]
        both = f"{row['mended']}, {row['broken']}" if "mended" in row else "–"
        out.append(
            f"| {row['kind']} | {row['verdict']}: {row['name']} | {row['chosen']} | {' | '.join(cells)} | {both} |"
        )
    return "\n".join(out)


def tables(rows: Sequence[Row]) -> str:
    """All tables of these rows; where the second or third final set is there, the newest one's alone."""
    halves = {row["half"] for row in rows}
    newest = next((half for half in (FINAL3, FINAL2) if half in halves), None)
    titles = SETS if newest is None else {newest: SETS[newest]}
    draws = BIRDS.get(str(newest), "waterbirds")
    out = [part for half, title in titles.items() if half in halves for part in (f"{title}:", summary(rows, half))]
    if draws in halves:
        out += ["Waterbirds without attributes:", birds(rows, draws)]
    out += _repairs(rows, halves)
    if NOTES2 in halves:
        out += ["Notes:", noted(rows, NOTES2)]
    if newest is not None:
        out += [_measured(rows, newest)]
    if newest == FINAL3 and FINAL2 in halves:
        out += [_before(rows)]
    if CONTROLS in halves:
        out += [_controls(rows), birds(rows, "waterbirds 4")]
    return "\n\n".join(out)


def _repairs(rows: Sequence[Row], halves: set[str]) -> list[str]:
    """Of the newest set of harmed models each repair, of those before how many helped."""
    sets = [half for half in HARMED if half in halves]
    if not sets:
        return [f"Repairs on fresh balanced data:\n\n{repaired(rows)}"] if "repairs" in halves else []
    names = ("first", "second", "third")
    newest = sets[-1]
    told = [
        f"Repairs of harmed models, {names[HARMED.index(newest)]} set, on fresh balanced data: {helped(rows, newest)}"
    ]
    earlier = [f"{names[HARMED.index(half)].capitalize()} set: {helped(rows, half)}" for half in sets[:-1]]
    return [
        *told,
        repaired(rows, newest),
        *(["Measured before several findings were tried. " + " ".join(earlier)] if earlier else []),
    ]


def helped(rows: Sequence[Row], half: str) -> str:
    """How many cases of a set gained 20 points or more on conflicting samples, and how many lost beyond chance.

    >>> row = {"half": "h", "before_conflicting": [10, 100], "after_conflicting": [35, 100], "mended": 30, "broken": 5}
    >>> helped([row, row | {"after_conflicting": [25, 100]}, {"half": "h"}], "h")
    '1 of 3 better by 20 points or more on conflicting samples, 0 worse beyond chance.'
    """
    from spurless.auditing.evidence import more_than_half

    own = [row for row in rows if row["half"] == half]
    parts = [(row["before_conflicting"], row["after_conflicting"]) for row in own if "after_conflicting" in row]
    better = sum(100 * (now[0] / now[1] - then[0] / then[1]) >= 20 for then, now in parts)
    worse = sum(more_than_half(row["broken"], row["mended"]) < 0.05 for row in own if "mended" in row)
    return f"{better} of {len(own)} better by 20 points or more on conflicting samples, {worse} worse beyond chance."


def _before(rows: Sequence[Row]) -> str:
    """The figures of the second final set, in a line."""
    own = [row for row in rows if row["half"] == FINAL2]
    bad, images = [r for r in own if not r["clean"]], ("small", "photo")
    seen = [r for r in bad if r["without_attributes"] in ("found", "available")]
    told = {
        "images seen without attributes": rate([r in seen for r in bad if r["domain"] in images]),
        "texts": rate([r in seen for r in bad if r["domain"] == "text"]),
        "named right": rate([r["named_right"] for r in seen]),
        "false alarms": rate([r["verdict"] in ("found", "gap") for r in own if r["clean"]]),
    }
    figures = "; ".join(f"{what} {shown(score)}" for what, score in told.items())
    return f"The second final set, measured before the third was made: {figures}."


def _controls(rows: Sequence[Row]) -> str:
    """Of other draws of the third set's controls, in a line."""
    own = [r for r in rows if r["half"] == CONTROLS]
    alarms = {d: [r["verdict"] in ("found", "gap") for r in own if r["domain"] == d] for d in DOMAINS}
    parts = ", ".join(f"{domain} {sum(hits)} of {len(hits)}" for domain, hits in alarms.items())
    score = rate([hit for hits in alarms.values() for hit in hits])
    assert score is not None
    return (
        "Measured after all changes, other draws of the third set's controls, and other draws of Waterbirds; false "
        f"alarms: {sum(map(sum, alarms.values()))} of {len(own)} [{score['low']:.0f}–{score['high']:.0f} %] ({parts})."
    )


def _measured(rows: Sequence[Row], chosen: str) -> str:
    """How much of a final set was run."""
    from studies.audit.jobs import jobs

    wanted = {job.key for job in jobs(chosen, 1, 1, 0)}
    done = {(r["kind"], r["strength"], r["seed"], r["half"]) for r in rows} & wanted
    if len(done) == len(wanted):
        return f"All {len(wanted)} audits of the set were run."
    return f"{len(done)} of the set's {len(wanted)} audits were run, in random order within each part of a run."


def quoted(rows: Sequence[Row]) -> dict[str, Any]:
    """What every report says of its own power: by domain, of the last final set, or of the held-out half before."""
    halves = {row["half"] for row in rows}
    half = next((each for each in (FINAL3, FINAL2, "final") if each in halves), "held out")
    of_draws = BIRDS.get(half, "waterbirds") if CONTROLS not in halves else "waterbirds 4"
    draws = [row for row in rows if row["kind"] == "waterbirds, 95 %" and row["half"] == of_draws]
    found = {}
    for domain in DOMAINS:
        own = [row for row in rows if row["half"] == half and row["domain"] == domain]
        bad, clean = [r for r in own if not r["clean"]], [r for r in own if r["clean"]]
        if half == FINAL3 and CONTROLS in halves:  # of what is shipped
            clean = [row for row in rows if row["half"] == CONTROLS and row["domain"] == domain]
        if bad and clean:
            seen = [(r["kind"], r["without_attributes"] in ("found", "available")) for r in bad]
            places = [hit for kind, hit in seen if "places" in kind]
            if domain == "photo":
                places += [row["verdict"] in ("found", "available") for row in draws]
            found[domain] = {
                "inputs": INPUTS[domain],
                "samples": sorted({row["n"] for row in own}),
                "found": rate([r["verdict"] in ("found", "gap", "available") for r in bad]),
                "without_attributes": rate([hit for _, hit in seen]),
                "false_alarms": rate([r["verdict"] in ("found", "gap") for r in clean]),
                "backgrounds": rate(places),
            }
    return found

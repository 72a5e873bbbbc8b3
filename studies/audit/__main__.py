"""Audit the zoo, and say how often the verdict was right.

    python -m studies.audit --half develop --out results/audit_zoo      # measure; rows that are there are left alone
    python -m studies.audit --half "held out" --out results/audit_zoo   # the same, once
    python -m studies.audit --summary --out results/audit_zoo           # tables, and what every report quotes

Each audit is judged twice: with what was planted as an attribute, and by the other findings alone, as if no attribute
were known. The plain model of the audit is judged, with no network named.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from studies.audit.kinds import KINDS, STRENGTHS, Kind, kinds

ROOT = Path(__file__).parents[2]
QUOTED = ROOT / "src" / "spurless" / "auditing" / "power.json"
RANK = ("found", "gap", "available", "cannot tell", "no evidence")


def measure(kind: Kind, strength: float, seed: int) -> dict:
    from spurless import audit
    from studies.audit.make import make

    with tempfile.TemporaryDirectory() as folder:
        data = make(kind, strength, seed, True, Path(folder) / "zoo")
        started = time.monotonic()
        found = audit(data, progress=False, device="cpu", seed=seed)
    seconds = time.monotonic() - started
    cues = [f for f in found.findings if f["kind"] != "attribute"]
    without = next((v for v in RANK if v in {f["verdict"] for f in cues}), "no evidence")
    names = [(found.shortcut or {"name": None})["name"], cues[0]["name"] if cues else None]
    return {
        "kind": kind.name, "half": kind.half, "domain": kind.domain, "clean": kind.clean, "n": data_size(data),
        "strength": None if kind.clean else strength, "seed": seed, "verdict": found.verdict, "name": names[0],
        "without_attributes": without, "name_without": names[1],
        "named_right": bool(names[1]) and any(str(names[1]).startswith(name) for name in kind.names),
        "accuracy": round(found.model["average"]["value"], 1), "seconds": round(seconds, 1),
    }  # fmt: skip


def data_size(data) -> int:
    return sum(len(split) for split in data.splits.values())


def jobs(half: str, draws: int, clean_draws: int, first: int):
    """In random order, so that a run cut short is a sample of everything."""
    every = []
    for seed in range(first, first + max(draws, clean_draws)):
        for kind in kinds(half):
            if kind.clean and seed < first + clean_draws:
                every.append((kind, 0.5, seed))
            elif not kind.clean and seed < first + draws:
                every += [(kind, strength, seed) for strength in STRENGTHS]
    random.Random(0).shuffle(every)
    return every


def read(folder: Path) -> list[dict]:
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def rate(hits: list[bool]) -> dict | None:
    from spurless.auditing.evidence import share

    return share(hits) if hits else None


def shown(score: dict | None) -> str:
    return (
        "–" if score is None else f"{score['value']:.0f} % [{score['low']:.0f}–{score['high']:.0f}], n = {score['n']}"
    )


def summary(rows: list[dict], half: str) -> str:
    """A table by domain: what was found with and without attributes, named right, and false alarms."""
    heads = ("domain", "with attributes", "without", "named right", "found, without", "false alarm", "available, clean")
    out = ["| " + " | ".join(heads) + " |", "| :-- " + "| --: " * 6 + "|"]
    rows = [row for row in rows if row["half"] == half]
    for domain in ("small", "photo", "text", "table", "all"):
        own = [row for row in rows if domain in ("all", row["domain"])]
        bad, clean = [r for r in own if not r["clean"]], [r for r in own if r["clean"]]
        seen = [r for r in bad if r["without_attributes"] in ("found", "available")]
        cells = [
            rate([r["verdict"] in ("found", "gap", "available") for r in bad]),
            rate([r in seen for r in bad]),
            rate([r["named_right"] for r in seen]),
            rate([r["without_attributes"] == "found" for r in bad]),
            rate([r["verdict"] in ("found", "gap") for r in clean]),
            rate([r["verdict"] == "available" for r in clean]),
        ]
        out.append(f"| {domain} | " + " | ".join(shown(cell) for cell in cells) + " |")
    return "\n".join(out)


def quoted(rows: list[dict]) -> dict:
    """What every report says of its own power: by domain, of the held-out half."""
    found = {}
    for domain in ("small", "photo", "text", "table"):
        own = [row for row in rows if row["half"] == "held out" and row["domain"] == domain]
        bad, clean = [r for r in own if not r["clean"]], [r for r in own if r["clean"]]
        if bad and clean:
            found[domain] = {
                "samples": sorted({row["n"] for row in own}),
                "found": rate([r["verdict"] in ("found", "gap", "available") for r in bad]),
                "without_attributes": rate([r["without_attributes"] in ("found", "available") for r in bad]),
                "false_alarms": rate([r["verdict"] in ("found", "gap") for r in clean]),
                "backgrounds": rate(
                    [r["without_attributes"] in ("found", "available") for r in bad if "places" in r["kind"]]
                ),
            }
    return found


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--half", choices=("develop", "held out"), default="develop")
    ask.add_argument("--out", type=Path, default=Path("results/audit_zoo"))
    ask.add_argument("--draws", type=int, default=1, help="of each planted kind and strength")
    ask.add_argument("--clean-draws", type=int, default=2, help="of each control")
    ask.add_argument("--first", type=int, default=0, help="the first seed")
    ask.add_argument("--domain", action="append", help="only these")
    ask.add_argument("--minutes", type=float, default=1e9, help="begin no audit after so many")
    ask.add_argument("--summary", action="store_true")
    given = ask.parse_args()
    if given.summary:
        rows = read(given.out)
        for half in ("develop", "held out"):
            print(f"{half}\n{summary(rows, half)}\n")
        QUOTED.write_text(json.dumps(quoted(rows), indent=1) + "\n")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / f"{given.half.replace(' ', '_')}-{'_'.join(given.domain or ['all'])}.jsonl"
    done = {(r["kind"], r["strength"], r["seed"]) for r in read(given.out)}
    started = time.monotonic()
    for kind, strength, seed in jobs(given.half, given.draws, given.clean_draws, given.first):
        key = kind.name, None if kind.clean else strength, seed
        if key in done or (given.domain and kind.domain not in given.domain):
            continue
        if time.monotonic() - started > 60 * given.minutes:
            break
        row = measure(kind, strength, seed)
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    assert len({k.name for k in KINDS}) == len(KINDS)
    main()

"""Audit the zoo, and say how often the verdict was right.

    python -m studies.audit --set develop --workers 2 --out results/audit_zoo/develop.jsonl
    python -m studies.audit --set final --workers 14 --out results/audit_zoo/final.jsonl       # once; resumable
    python -m studies.audit --set waterbirds --out results/audit_zoo/waterbirds.jsonl          # no attributes: 10 + 10
    python -m studies.audit --set repairs --out results/audit_zoo/repairs.jsonl                # what --fix brings
    python -m studies.audit --set 'harmed 3' --out results/audit_zoo/harmed3.jsonl             # twice: harm, then --fix
    python -m studies.audit --summary results/audit_zoo                                        # tables, and power.json

`final` also runs `waterbirds` and `repairs`. Rows that are in the file are left alone; the table comes last. The plain
model of the audit is judged, with no network named. Each audit takes one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: a process for each core

from studies.audit.jobs import Job, harmed_jobs, jobs, run
from studies.audit.tables import QUOTED, Row, quoted, read, tables

SETS = ("develop", "held out", "final", "final 2", "final 3", "controls", "waterbirds", "repairs", "harmed", "harmed 2",
        "harmed 3")  # fmt: skip
PARTS = ("carried", "rest")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--set", choices=SETS, default="develop", dest="chosen")
    ask.add_argument("--out", type=Path, default=Path("results/audit_zoo/develop.jsonl"), help="a file of rows")
    ask.add_argument("--workers", type=int, default=1)
    ask.add_argument("--draws", type=int, default=1, help="of each planted kind and strength")
    ask.add_argument("--clean-draws", type=int, default=1, help="of each control")
    ask.add_argument("--first", type=int, default=0, help="the first seed")
    ask.add_argument("--domain", action="append", help="only these")
    ask.add_argument("--part", choices=PARTS, help="of final 2: what pack.py packs the data of, or the rest")
    ask.add_argument("--minutes", type=float, default=1e9, help="begin no audit after so many")
    ask.add_argument("--summary", type=Path, help="a folder of rows: print its tables and write what reports quote")
    given = ask.parse_args()
    if given.summary:
        rows = read(given.summary)
        print(tables(rows))
        QUOTED.write_text(json.dumps(quoted(rows), indent=1) + "\n")
        return
    given.out.parent.mkdir(parents=True, exist_ok=True)
    before = [row for row in read(given.out) if "error" not in row]
    done = {(r["kind"], r["strength"], r["seed"], r["half"]) for r in before}
    every = (
        harmed_jobs(given.chosen, before)
        if given.chosen.startswith("harmed")
        else jobs(given.chosen, given.draws, given.clean_draws, given.first)
    )
    left = [job for job in every if job.key not in done]
    if given.domain:
        left = [job for job in left if (job.kind.domain if job.kind else "photo") in given.domain]
    if given.part:
        left = [job for job in left if job.carried == (given.part == "carried")]
    failed = measured(left, given.out, given.workers, given.minutes)
    print(tables([row for row in read(given.out) if "error" not in row]))
    if failed:
        sys.exit(f"{failed} audits failed: their rows hold the error, and the same command tries them again.")


def measured(left: list[Job], out: Path, workers: int, minutes: float) -> int:
    """Run the jobs and append their rows; how many failed."""
    started, failed = time.monotonic(), 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(max(1, workers)) as pool, out.open("a") as file:
        for done, row in enumerate(pool.imap_unordered(run, left), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            failed += "error" in row
            print(f"{done}/{len(left)} {row['kind']} {row['strength'] or ''} {told(row)}", flush=True)
            if time.monotonic() - started > 60 * minutes:
                pool.terminate()
                break
    return failed


def told(row: Row) -> str:
    """A row in a line."""
    if "error" in row:
        return str(row["error"].strip().splitlines()[-1])
    return str(row["noted"]) if "noted" in row else f"{row['verdict']}: {row['name']}"


if __name__ == "__main__":
    main()

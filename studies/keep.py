"""Keep the rows of a benchmark's folder in results/, which is committed: what the documentation claims.

python -m studies.keep runs/reproduce/pgd-table1 results/pgd-table1

Where several published tables were run in one folder, each keeps the rows of its own trials; a trial that is in two of
them is kept once, where it was first, and there it is renewed.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

from studies.rows import named, put_all

SEEDS = 20  # of a trial that may be kept, where more were run than the table's file names (--seeds)
KEPT = ("average", "unbiased", "aligned", "conflicting", "worst_group", "average_train_weighted", "intervals", "n")
SIZES = ("min_size", "small_groups", "groups_total", "missing_classes")  # of rows that have them


def name_of(row):
    """A name that says what the row is.

    >>> name_of({"labels": {"block": "CMNIST", "row": "DCWP, as released", "grid": "0.005"}, "seed": 1})
    'cmnist-dcwp-as-released-0.005-seed1'
    """
    words = [row["labels"].get(k, "") for k in ("block", "row", "grid")]
    slug = re.sub(r"[^a-z0-9.]+", "-", " ".join(words).lower()).strip("-")
    return f"{slug}-seed{row['seed']}"


def small(row):
    """Without what can be computed from the rest, and without where it lay."""
    kept = {k: v for k, v in row.items() if k not in ("folder", "history", "error", "notes") or v}
    kept.pop("folder", None)
    kept.pop("history", None)
    if kept.get("scores"):
        sizes = {k: kept["scores"][k] for k in SIZES if k in kept["scores"]}
        kept["scores"] = {k: kept["scores"].get(k) for k in KEPT} | sizes
    return kept


def keys_of(table):
    """The keys of a published table's trials, for any seed; None if there is no such table."""
    from spurless.bench.reproduce import papers
    from spurless.bench.spec import read_spec

    path = papers().get(table)
    return path and {trial.key for trial in read_spec(path, SEEDS).trials()}


def keep(folder, out):
    """The rows of `folder` that belong to `out`, or to a table that has them already."""
    own = keys_of(out.name)
    tables = {file.with_suffix("") for file in out.parent.glob("*-table*.jsonl")} | {out} if own is not None else ()
    kept = {old["key"]: (table, name, old["labels"]) for table in sorted(tables) for name, old in named(table).items()}
    new = defaultdict(dict)
    for path in sorted(folder.glob("cells/*/row.json")):
        row = json.loads(path.read_text())
        if row["status"] != "failed" and (own is None or row["key"] in own):
            table, name, labels = kept.get(row["key"], (out, name_of(row), row["labels"]))
            new[table][name] = small(row | {"labels": labels})
    for table, rows in new.items():
        put_all(table, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    keep(given.folder, given.out)
    print(f"{len(named(given.out))} rows in {given.out}")

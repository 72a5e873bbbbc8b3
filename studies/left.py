"""Go on with published tables from the rows that are kept: what is left of all of them is trained in one run.

    python -m studies.left runs/left pgd-table13:Color pgd-table7@1 pgd-table7 --compile
    python -m studies.left runs/left dcwp-table1:CMNIST:EnD:LfF pgd-table1@1:CCIFAR:data.rho=0.01 --dry-run

A table is TABLE[@SEEDS][:LABEL...], with labels as `spurless reproduce --only` takes them, or one value of a setting;
trials are done in the order in which they are named. The rows of results/ are put into the folder first, so that a run
on another machine begins where the last one ended. Afterwards, for each table: python -m studies.keep runs/left
results/TABLE
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import sys
from pathlib import Path

from spurless.bench.claim import finished_row, restore
from spurless.bench.reproduce import papers
from spurless.bench.run import agreed, run_trials
from spurless.bench.spec import read_spec
from spurless.core.errors import UserError, unknown
from spurless.core.settings import from_text
from studies.rows import RESULTS
from studies.rows import named as rows_by_name


def named(text):
    """
    >>> named("pgd-table7@1:Colored MNIST:PGD:method.q=0.9")
    ('pgd-table7', 1, ['Colored MNIST', 'PGD'], {'method.q': 0.9})
    >>> named("pgd-table4")
    ('pgd-table4', None, [], {})
    """
    name, *words = text.split(":")
    table, _, seeds = name.partition("@")
    values = dict(word.split("=", 1) for word in words if "=" in word)
    labels = [word for word in words if "=" not in word]
    return table, int(seeds) if seeds else None, labels, {k: from_text(v) for k, v in values.items()}


def trials_of(texts):
    """The trials of the tables, each once, where it is first named."""
    found = {}
    for table, seeds, labels, values in map(named, texts):
        if table not in papers():
            raise unknown("published table", table, papers())
        spec = read_spec(papers()[table], seeds)
        every = agreed((spec.only(labels) if labels else spec).trials())
        wanted = [trial for trial in every if all(setting(trial, name) == value for name, value in values.items())]
        if not wanted:
            told = " and ".join(f"{name} = {value}" for name, value in values.items())
            raise UserError(f"{table}: no trial has {told}.")
        for trial in wanted:
            first = found.setdefault(trial.key, trial)
            if trial.after and not first.after:
                found[trial.key] = agreed([first], trial.after)[0]
    return list(found.values())


def setting(trial, name):
    """The value of "data.rho" and the like; None where the trial does not name it."""
    section, _, field = name.partition(".")
    return (trial.given().get(section) or {}).get(field)


def put_back(kept, out):
    """The kept rows as trials of this folder; those that it has stay as they are."""
    for file in sorted(kept.glob("*-table*.jsonl")):
        for row in rows_by_name(file.with_suffix("")).values():
            restore(out, row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--data-root")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    trials = trials_of(given.tables)
    put_back(RESULTS, given.out)
    left = [trial for trial in trials if finished_row(given.out / trial.folder, trial.after) is None]
    print(f"{len(trials)} trials, {len(left)} to do")
    if given.dry_run:
        for trial in left:
            print(", ".join([*filter(None, list(trial.labels.values())[:3]), f"seed {trial.seed}"]))
        return
    how = {"device": given.device, "workers": given.workers, "root": given.data_root, "compile": given.compile}
    rows = run_trials(trials, given.out, **how)
    print(f"{sum(row['status'] != 'failed' for row in rows)} trials have a row in {given.out}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")

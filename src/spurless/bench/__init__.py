"""The benchmark: a specification (TOML) → trials → rows, here or on a cluster. See docs/bench.md.

    trials = read_spec("table.toml").trials()
    rows = run_trials(trials, Path("runs/table"))

Importing this package is light: torch comes when a trial is checked or trained.
"""

from spurless.bench.one import run_one
from spurless.bench.run import run_trials
from spurless.bench.spec import Spec, read_spec
from spurless.bench.trials import Trial

Cell, run_cells = Trial, run_trials  # as they were called before

__all__ = ["Cell", "Spec", "Trial", "read_spec", "run_cells", "run_one", "run_trials"]

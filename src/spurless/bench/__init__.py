"""The benchmark: a specification (TOML) → cells → rows, here or on a cluster. See docs/bench.md.

    cells = read_spec("table.toml").cells()
    rows = run_cells(cells, Path("runs/table"))

Importing this package is light: torch comes when a cell is checked or trained.
"""

from spurless.bench.cells import Cell
from spurless.bench.one import run_one
from spurless.bench.run import run_cells
from spurless.bench.spec import Spec, read_spec

__all__ = ["Cell", "Spec", "read_spec", "run_cells", "run_one"]

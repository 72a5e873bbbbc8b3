"""The demo: what a shortcut costs, and what repairs it, in about a minute and with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spurless.methods import METHODS

if TYPE_CHECKING:
    from spurless.core import Bundle

SHOWN = ("erm", "pgd", "lff")
DATA = {"name": "colored_digits", "rho": 0.02}


def run_demo(out: Path, seed: int = 0, device: str | None = None) -> Path:
    """Train, print one table, write a report, and return where it is."""
    from rich.console import Console

    from spurless.engine import fit
    from spurless.registry import load_data
    from spurless.report import write
    from spurless.tables import comparison

    console = Console()
    data = load_data(DATA)
    console.print(
        "Handwritten digits, each digit nearly always in its own colour. In 2 % of the training digits the colour is "
        "another one; in the test split it is random. A classifier that reads the colour fails there.\n",
        highlight=False,
    )
    rows = []
    for name in (name for name in SHOWN if name in METHODS):
        folder = out / f"{name}-seed{seed}"
        rows.append(fit(name, data, seed=seed, out=folder, device=device).row())
    console.print(comparison(rows))
    page = write(rows, out / "report.html", title="Coloured digits: the demo", pictures=sample_pictures(data))
    console.print(f"Report: {page}", highlight=False)
    return page


def sample_pictures(data: Bundle) -> list[tuple[str, bytes]]:
    """A sheet of aligned and conflicting samples."""
    import tempfile

    from spurless.describe import contact_sheet

    with tempfile.TemporaryDirectory() as folder:
        sheet = contact_sheet(data, Path(folder) / "samples.png")
        if sheet is None:
            return []
        return [("Above: digits in their usual colour. Below: digits in another colour.", Path(sheet).read_bytes())]

"""The demo: what a shortcut costs, and what repairs it, in half a minute and with no download."""

from __future__ import annotations

from pathlib import Path

SHOWN = ("erm", "pgd", "crossfit")
EPOCHS = 10
DATA = {"name": "colored_digits", "rho": 0.02}


def run_demo(out: Path, seed: int = 0, device: str | None = None) -> Path:
    """Train, print one table, write a report, and return where it is."""
    from spurless.auditing import audit
    from spurless.core.terminal import Console
    from spurless.registry import load_data
    from spurless.report import write_any
    from spurless.report.tables import comparison
    from spurless.train.fit import fit

    console = Console()
    data = load_data(DATA)
    console.print(
        "Handwritten digits, each digit nearly always in its own colour. In 2 % of the training digits the colour is "
        "another one; in the test split it is random. A classifier that reads the colour fails there.\n",
        highlight=False,
    )
    folders = {name: out / f"{name}-seed{seed}" for name in SHOWN}
    recipe = {"epochs": EPOCHS}
    rows = [
        fit(name, data, recipe=recipe, seed=seed, out=folder, device=device).row() for name, folder in folders.items()
    ]
    console.print(comparison(rows))
    report = audit(data, folders["erm"], out / "audit", seed=seed, device=device, source="colored_digits")
    console.print(f"Audit of the plain model: {report['verdict']}. {report['headline']}", highlight=False)
    page = write_any([out / "audit", *folders.values()], out / "report.html", "Coloured digits: the demo")
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)  # a folded path cannot be copied
    return page

"""Execute the notebooks and keep them, with what they show, in docs/notebooks.

python -m studies.notebooks [NAME ...]
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "docs" / "notebooks"
CELL = re.compile(r"^# %%( \[markdown\])?(?: tags=(\[.*\]))?\n", re.MULTILINE)
PLOT = re.compile(r"(\.plot\([^()\n]*\))\Z")  # at the end of a cell: only the picture is shown


def main(names: list[str]) -> None:
    for script in sorted(HERE.glob("[a-z]*.py")):
        if not names or script.stem in names:
            notebook = executed(made(script.read_text(encoding="utf-8")))
            path = KEPT / f"{script.stem}.ipynb"
            nbformat.write(notebook, path)
            print(f"{path.name}: {path.stat().st_size // 1024} KB")


def made(text: str) -> Any:
    """A notebook of a script; what stands before the first cell is left out.

    >>> [(cell.cell_type, cell.source) for cell in made("# %% [markdown]\\n# # A\\n#\\n# b\\n\\n# %%\\n1 + 1\\n").cells]
    [('markdown', '# A\\n\\nb'), ('code', '1 + 1')]
    """
    _, *parts = CELL.split(text)
    cells = []
    for kind, tags, source in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        lines = re.sub(r"^# ?", "", source, flags=re.MULTILINE) if kind else PLOT.sub(r"\1;", source.strip())
        new = nbformat.v4.new_markdown_cell if kind else nbformat.v4.new_code_cell
        metadata = {"tags": json.loads(tags)} if tags else {}
        cells.append(new(lines.strip(), id=f"cell-{len(cells)}", metadata=metadata))
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": python})


def executed(notebook: Any) -> Any:
    """The notebook with what it shows, from top to bottom in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources=resources, record_timing=False
        )
        client.execute()
    for cell in notebook.cells:  # warnings of libraries name folders of this machine
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if "site-packages" not in output.get("text", "")]
    return notebook


if __name__ == "__main__":
    main(sys.argv[1:])

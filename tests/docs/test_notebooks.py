"""The notebooks run from top to bottom in a kernel of their own, quickly, and show what their words say."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: spurless[dev]")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: spurless[dev]")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: spurless[dev]")

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
LONGEST = 60  # seconds of processor time


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    notebook = nbformat.read(NOTEBOOKS / "shortcut.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import time; print(time.process_time())"))
    place = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    return notebook


def texts(cell, kind="text/plain"):
    return "".join(out.get("data", {}).get(kind, "") or out.get("text", "") for out in cell.outputs)


def conflicting(executed, method):
    told = next(c for c in executed.cells if f'fit("{method}"' in c.source and "net=" in c.source)
    return float(re.search(r"conflicting ([\d.]+)", texts(told))[1])


def test_the_shortcut_is_found_and_fixed(executed):
    assert conflicting(executed, "erm") + 20 < conflicting(executed, "group_dro")


def test_objects_show_themselves_and_are_small(executed):
    shown = [
        out for c in executed.cells if c.cell_type == "code" for out in c.outputs if "text/html" in out.get("data", {})
    ]
    assert len(shown) == 3  # the data, and two results
    assert all(len(out["data"]["text/html"]) < 4000 and len(out["data"]["text/plain"]) < 300 for out in shown)
    pictures = [
        o for c in executed.cells if c.cell_type == "code" for o in c.outputs if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 3


def test_a_typo_is_one_message(executed):
    cell = next(c for c in executed.cells if "group_dor" in c.source)
    told = texts(cell) + "".join("\n".join(o.get("traceback", [])) for o in cell.outputs)
    assert "did you mean 'group_dro'?" in told
    assert "Traceback" not in told and "site-packages" not in told and len(told) < 2000


def test_it_is_quick_and_kept_without_outputs(executed):
    assert float(texts(executed.cells[-1])) < LONGEST
    kept = nbformat.read(NOTEBOOKS / "shortcut.ipynb", as_version=4)
    nbformat.validate(kept)
    assert all(not c.outputs and c.execution_count is None for c in kept.cells if c.cell_type == "code")

"""The notebooks are those of their scripts, run from top to bottom in a kernel of their own, and show what their words
say."""

import re
from functools import cache

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: spurless[dev]")
pytest.importorskip("nbclient", reason="nbclient is not installed: spurless[dev]")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: spurless[dev]")

from studies.notebooks.__main__ import HERE, KEPT, executed, made  # noqa: E402

LONGEST = 120  # seconds of processor time: two minutes on a core
SLOW = ("photographs", "fix_without_labels", "texts", "tables", "prune_and_ship")
NAMES = sorted(path.stem for path in HERE.glob("[a-z]*.py"))


def texts(cell):
    return "".join(out.get("data", {}).get("text/plain", "") or out.get("text", "") for out in cell.get("outputs", ()))


def shown(notebook):
    return "\n".join(texts(cell) for cell in notebook.cells)


def outputs(notebook, kind):
    return [
        out["data"][kind] for cell in notebook.cells for out in cell.get("outputs", ()) if kind in out.get("data", {})
    ]


def check_photographs(notebook):
    told = re.search(
        r"AuditReport\(.*: found\. The model relies on the (\w+).* on (\d+) % of .* on (\d+) %", shown(notebook)
    )
    assert told and told[1] == "colours" and int(told[2]) > int(told[3]) + 20
    assert "the light says" in shown(notebook)


def check_fix_without_labels(notebook):
    plain, fixed = (float(x) for x in re.findall(r"conflicting ([\d.]+)", shown(notebook)))
    assert plain + 20 < fixed and "bias labels used: none" in shown(notebook)


def check_fix_with_labels(notebook):
    plain, repaired, robust = (float(x) for x in re.findall(r"([\d.]+) % in the worst group", shown(notebook)))
    assert plain + 20 < min(repaired, robust)
    pages = outputs(notebook, "text/html")
    assert len(pages) == 4 and all(len(page) < 4000 for page in pages)  # the data, and three results
    assert all(len(text) < 300 for text in outputs(notebook, "text/plain"))
    cell = next(cell for cell in notebook.cells if "group_dor" in cell.source)
    told = texts(cell) + "".join("\n".join(out.get("traceback", [])) for out in cell.outputs)
    assert "did you mean 'group_dro'?" in told
    assert "Traceback" not in told and "site-packages" not in told and len(told) < 2000


def check_texts(notebook):
    erm, *others = (float(x) for x in re.findall(r"([\d.]+) % where the source misleads", shown(notebook)))
    assert len(others) == 3 and erm + 10 < min(others)
    assert re.search(r"^negative: \w+, ", shown(notebook), re.MULTILINE)


def check_tables(notebook):
    assert "found. The model relies on the column 'clinic'" in shown(notebook)
    plain, robust = (float(x) for x in re.findall(r"next year ([\d.]+) %", shown(notebook)))
    assert plain + 10 < robust


def check_own_loop(notebook):
    right = {name: float(x) for name, x in re.findall(r"'(\w+)': ([\d.]+)", shown(notebook))}
    assert list(right) == ["plain", "pgd", "dfr"]
    assert right["plain"] + 30 < min(right["pgd"], right["dfr"])


def check_prune_and_ship(notebook):
    sizes = [int(x.replace(",", "")) for x in re.findall(r"([\d,]+) parameters", shown(notebook))]
    assert len(sizes) == 3 and sizes[2] < sizes[0] / 6
    assert "load.py" in shown(notebook) and "torch.Size([1, 10])" in shown(notebook)


def check_add_a_method(notebook):
    precision = re.search(r"precision (\d+) %", shown(notebook))
    assert precision and int(precision[1]) > 50
    scores = dict(re.findall(r"'(\w+)': \[([\d.]+)", shown(notebook)))
    assert float(scores["erm"]) + 20 < float(scores["secondlook"])


@cache
def kept(name):
    return nbformat.read(KEPT / f"{name}.ipynb", as_version=4)


def test_every_script_is_a_notebook_and_every_notebook_a_script():
    assert sorted(path.stem for path in KEPT.glob("*.ipynb")) == NAMES
    assert len(NAMES) == 8 and set(SLOW) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_notebook_is_that_of_its_script_and_small(name):
    script, notebook = made((HERE / f"{name}.py").read_text(encoding="utf-8")), kept(name)
    assert [c.source for c in notebook.cells] == [c.source for c in script.cells], "run python -m studies.notebooks"
    nbformat.validate(notebook)
    assert (KEPT / f"{name}.ipynb").stat().st_size < 300 * 1024
    assert outputs(notebook, "image/png"), "a notebook without a picture"
    assert "site-packages" not in (KEPT / f"{name}.ipynb").read_text(encoding="utf-8"), "a path of whoever ran it"
    assert all(c.execution_count for c in notebook.cells if c.cell_type == "code")


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_outputs_say_what_the_words_say(name):
    globals()[f"check_{name}"](kept(name))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NAMES])
def test_it_runs_and_is_quick(name):
    notebook = made((HERE / f"{name}.py").read_text(encoding="utf-8"))
    notebook.cells.append(nbformat.v4.new_code_cell("import time; print('seconds', time.process_time())"))
    executed(notebook)
    globals()[f"check_{name}"](notebook)
    assert float(texts(notebook.cells[-1]).split()[-1]) < LONGEST


def test_the_text_before_the_first_cell_is_no_cell():
    cells = made("import os\n\n# %% [markdown]\n# # A\n#\n# b\n\n# %%\nx.plot(n=1)\n").cells
    assert [(c.cell_type, c.source) for c in cells] == [("markdown", "# A\n\nb"), ("code", "x.plot(n=1);")]

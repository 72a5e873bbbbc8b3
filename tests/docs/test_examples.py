"""The examples run and show what they are meant to show; the code in the documentation runs, block by block."""

import ast
import doctest
import re
import runpy
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

import spurless
from spurless.data.sets import DATASETS, corrupted_cifar10
from spurless.registry import load_data

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def scores_in(text: str, word: str = "conflicting") -> dict[str, float]:
    """{method: accuracy} from printed lines such as `erm: conflicting 12.3 %, aligned 99.0 %`."""
    return {name: float(number) for name, number in re.findall(rf"^([^:\n]+): .*?\b{word} ([\d.]+) %", text, re.M)}


# --- The examples ----------------------------------------------------------------------------------------------------


def check_model(printed: str) -> None:
    conflicting, aligned = scores_in(printed), scores_in(printed, "aligned")
    assert list(conflicting) == ["already trained", "erm", "pgd"]
    assert max(conflicting["already trained"], conflicting["erm"]) + 20 < conflicting["pgd"]
    assert min(aligned.values()) > 90
    # 3 models x 4 groups; the groups of each hold the 2,000 test rows
    rows = [int(n) for n in re.findall(r"^    \w+, site \d: [\d.]+ % of (\d+)$", printed, re.M)]
    assert len(rows) == 12 and sum(rows) == 3 * 2000


def check_dataset(printed: str) -> None:
    conflicting = scores_in(printed)
    assert conflicting["erm"] + 30 < conflicting["pgd"]
    sizes = dict(re.findall(r"^(train|val|test): (\d+) images", printed, re.M))
    assert sizes == {"train": "500", "val": "100", "test": "400"}
    discs, squares = (re.search(rf"^    {kind}: (\d+) blue, (\d+) red$", printed, re.M) for kind in ("disc", "square"))
    assert discs and squares, "the tags were not read from metadata.csv"
    assert int(discs[2]) > 5 * int(discs[1]) and int(squares[1]) > 5 * int(squares[2])


def check_method(printed: str) -> None:
    conflicting = scores_in(printed)
    assert conflicting["erm"] + 20 < conflicting["secondlook"]
    assert printed.count("bias labels used: none") == 2
    found = re.search(r"(\d+) rows went wrong at first: ([\d.]+) % of them", printed)
    assert found and int(found[1]) > 0
    assert float(found[2]) > 5 * 5.0  # 5 % of the training rows conflict: far more often than by chance


CHECKS = {"your_model.py": check_model, "your_dataset.py": check_dataset, "your_method.py": check_method}


def test_every_example_is_checked():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_the_example_shows_what_it_should(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    CHECKS[name](capsys.readouterr().out)


@pytest.mark.parametrize("name", CHECKS)
def test_the_example_is_short_and_uses_public_names_only(name):
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 65
    used = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "spurless":
            assert node.module == "spurless", f"{node.module} is not public"
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            assert not any(alias.name.partition(".")[0] == "spurless" for alias in node.names), "import the names"
    assert used and used <= set(spurless.__all__)


# --- Code in the documentation ---------------------------------------------------------------------------------------

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,}) *(?P<tag>[\w+-]*)")
NOT_RUN = re.compile(r"^\s*<!-- *not run: *(?P<reason>.*?) *-->\s*$")


class Block(NamedTuple):
    line: int  # of its first line of code, from 1
    code: str
    not_run: str | None  # why, where the page says so


def blocks_in(text: str) -> list[Block]:
    """The fenced blocks of a page whose language begins with "py", in order."""
    found: list[Block] = []
    lines: list[str] = []
    opened = reason = said = None
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, lines, start, said = fence, [], number + 1, reason
            if line.strip():
                comment = NOT_RUN.match(line)
                reason = comment["reason"] if comment else None
        elif fence and fence["mark"].startswith(opened["mark"]) and not fence["tag"]:
            if opened["tag"].lower().startswith("py"):
                found.append(Block(start, "\n".join(lines) + "\n", said))
            opened = None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        raise ValueError(f"the block that begins before line {start} does not end")
    return found


def compiled(page: Path, block: Block) -> types.CodeType:
    """With the page's own line numbers, so that an error points at the page."""
    return compile("\n" * (block.line - 1) + block.code, str(page), "exec")


def place_of(page: Path, block: Block) -> str:
    return f"{page.relative_to(ROOT)}:{block.line}"


READ = {page: blocks_in(page.read_text()) for page in PAGES if page.exists()}
LEFT_OUT = [(page, block) for page, blocks in READ.items() for block in blocks if block.not_run is not None]


@pytest.mark.parametrize(
    "page",
    [page for page, blocks in READ.items() if any(b.not_run is None for b in blocks)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_code_of_a_page_runs(page, monkeypatch, tmp_path):
    """The blocks of a page are one program; it runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses and type hints look their module up
    for block in READ[page]:
        if block.not_run is None:
            exec(compiled(page, block), module.__dict__)
    assert len(module.__dict__) > len(types.ModuleType("page").__dict__), "no block defines or imports anything"
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(("page", "block"), LEFT_OUT, ids=[place_of(*which) for which in LEFT_OUT])
def test_code_that_is_not_run_says_why_and_can_be_read(page, block):
    compiled(page, block)
    assert block.not_run, f"{place_of(page, block)}: say why, as in <!-- not run: needs a GPU -->"
    pytest.skip(f"{place_of(page, block)} is not run: {block.not_run}")


PAGE = """
```python
first = 1
```
- a list

  ```python
  second = first + 1
      # deeper
  ```
<!-- not run: needs the moon -->

```python
third
```
```python
fourth = "```"
```
<!-- not run: this comment does not stand before a block -->
text
```Python
fifth = 5
```
```bash
python -c pass
```
````text
```python
inside
```
````
"""


def test_blocks_are_found_in_order_with_their_lines_and_reasons():
    blocks = blocks_in(PAGE)
    assert [b.code for b in blocks] == [
        "first = 1\n",
        "second = first + 1\n    # deeper\n",
        "third\n",
        'fourth = "```"\n',
        "fifth = 5\n",
    ]
    assert [b.not_run for b in blocks] == [None, None, "needs the moon", None, None]
    for block in blocks:
        assert PAGE.splitlines()[block.line - 1].strip() == block.code.splitlines()[0]


def test_a_block_without_an_end_or_a_reason_is_noticed():
    with pytest.raises(ValueError, match="before line 2 does not end"):
        blocks_in("```python\nx = 1\n")
    assert blocks_in("<!-- not run: -->\n```python\nx\n```\n")[0].not_run == ""


def test_an_error_points_at_the_line_of_the_page():
    block = blocks_in(PAGE)[2]
    with pytest.raises(NameError) as caught:
        exec(compiled(Path("page.md"), block), {})
    assert caught.traceback[-1].lineno + 1 == block.line


# --- The table of datasets ------------------------------------------------------------------------------------------


def table_rows() -> dict[str, list[str]]:
    """{name: cells} of the tables of docs/datasets.md whose first cell is a name in backticks."""
    lines = (ROOT / "docs" / "datasets.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    named = [(row[0].strip("` "), row[1:]) for row in rows if len(row) == 7]
    assert len({name for name, _ in named}) == len(named), "a dataset has two rows"
    return dict(named)


def test_the_page_names_every_data_set_and_no_other():
    assert set(table_rows()) == set(DATASETS)


NEEDS: dict[str, tuple[str, ...]] = {  # folders under the data root
    "colored_mnist": ("MNIST",),
    "double_mnist": ("MNIST",),
    "multi_bias_mnist": ("MNIST", "FashionMNIST", "KMNIST"),
    "mnist_cifar": ("MNIST", "cifar-10-batches-py"),
    "corrupted_cifar10": ("cifar-10-batches-py",),
    "cifar10": ("cifar-10-batches-py",),
    "bar": ("BAR",),
    "waterbirds": ("waterbird_complete95_forest2water2",),
    "bffhq": ("bffhq",),
    "celeba": ("celeba",),
    "metashift": ("MetaShift-subpopulation-shift",),
    "adult": ("tabular/adult",),
    "compas": ("tabular/compas",),
    "german": ("tabular/german",),
    "cad_imdb": ("text/cad_imdb",),
    "cad_nli": ("text/cad_nli",),
    "davidson_tweets": ("text/davidson_tweets",),
    "madlibs": ("text/davidson_tweets", "text/madlibs_77k"),
    "civilcomments": ("text/civilcomments",),
    "multinli": ("text/multinli_1.0",),
}
PHOTOS = ("bar", "waterbirds", "bffhq", "celeba", "metashift")
COUNTED = [name for name in DATASETS if name != "fdcl18"]  # whose counts are not published


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.data(*NEEDS.get(n, ()))) for n in COUNTED])
def test_the_counts_on_the_page_are_those_that_load(name, monkeypatch):
    # What is counted is rows: neither decoded photographs nor corrupted pictures are needed for that.
    monkeypatch.setattr(corrupted_cifar10, "_built", lambda x, *_: x)
    data = load_data({"name": name} | ({"cache": False} if name in PHOTOS else {}))
    counts = table_rows()[name][3]
    expected = " / ".join(f"{len(data.splits[s]):,}" if s in data.splits else "none" for s in ("train", "val", "test"))
    assert re.findall(r"^[\d,]+ / (?:[\d,]+|none) / [\d,]+", counts) == [expected]

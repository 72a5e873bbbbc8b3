"""The commands of README and the pages run, page by page; what does not run says why: `<!-- not run: reason -->`.

`<!-- not run (review, serve): reason -->` leaves out the lines of the next block that hold one of these words.
"""

import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from spurless.cli.main import app
from tests.support.commands import invoke

ROOT = Path(__file__).parents[2]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "studies/README.md")  # of docs/, and on the site too
PAGES = [*(ROOT / name for name in OUTSIDE), *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("spurless", "make", "pip", "python", "torchrun", "ray", ".")
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(?:^(?P<mark><!-- not run.*?-->)\n\n?)?^(?P<code> {4}\S.*\n(?:(?: {4}.*)?\n)*)", re.MULTILINE)
MARK = re.compile(r"<!-- not run(?: \((?P<words>[^)]+)\))?: (?P<reason>.+?) -->")
SHORTER = {  # what a line gets so that minutes become seconds
    r"\btrain\b.* (folder:|birds)|\bfix (\./|birds)": "--set recipe.epochs=1 --set data.size=32",
    r"\btrain\b.* minilm": "--set recipe.iterations=2 --set data.n=64 --set data.n_val=64 --set data.n_test=64",
    r"^torchrun": "--set recipe.epochs=1 --device cpu",
    r"\bsweep moon_star": "--seeds 1 --set recipe.epochs=1 --set data.n=200 --device cpu",
}
NAMES = {"PATH": "photos", "FILE": "people.csv", "SPEC.toml": "table.toml", "AUDIT": "runs/audit"}  # the reader's own
SERVE = ("serve", "review")  # these wait for a person


class Line(NamedTuple):
    text: str
    reason: str | None  # why it is not run


def lines_of(page: str) -> list[Line]:
    """The command lines of a page's blocks.

    >>> page = "a\\n\\n<!-- not run (serve): waits -->\\n\\n    spurless list nets  # all\\n    spurless serve x\\n"
    >>> lines_of(page)
    [Line(text='spurless list nets', reason=None), Line(text='spurless serve x', reason='waits')]
    """
    found = []
    for block in BLOCK.finditer(FENCED.sub("", page).replace("\\\n", " ")):
        mark = MARK.fullmatch(block["mark"] or "")
        for line in block["code"].splitlines():
            text = re.sub(r"(?:^|\s)#.*$", "", line).strip()
            if text.partition(" ")[0] in PROGRAMS:
                words = mark["words"] if mark else None
                left_out = mark and (words is None or any(word in text for word in words.split(", ")))
                found.append(Line(text, mark["reason"] if mark and left_out else None))
    return found


COMMANDS = {page.relative_to(ROOT).as_posix(): lines_of(page.read_text(encoding="utf-8")) for page in PAGES}
RUN = {page: [line.text for line in lines if not line.reason] for page, lines in COMMANDS.items()}
QUICK = tuple(
    f"docs/{name}.md"
    for name in ("adding", "datasets", "fix", "methods", "python", "report", "reproduction", "shrink", "training")
)
BEFORE = {  # what the reader of a page has by then
    "docs/adding.md": [
        "train erm toy --set data.n=300 --set recipe.epochs=1 --out runs/mine/erm-0",
        "train pgd toy --set data.n=300 --set recipe.epochs=1 --out runs/mine/pgd-0",
    ],
    "docs/report.md": [
        "train erm toy --set data.n=300 --set recipe.epochs=1 --out runs/erm",
        "train pgd toy --set data.n=300 --set recipe.epochs=1 --out runs/pgd",
    ],
    "docs/python.md": ["train erm folder:photos --out runs/digits"],
    "docs/training.md": ["train lff colored_digits --set recipe.epochs=1 --out runs/digits"],
    "docs/start.md": [
        "audit ./photos --out runs/audit",
        "train pgd folder:photos --set data.attribute=place --net efficientnet_lite0 --set net.pretrained=true "
        "--out runs/mine",
    ],
    "docs/bench.md": ["bench table.toml --out runs/before", "bench table.toml --out runs/after"],
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with what pages name: photographs, tables, texts, a specification."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for place in ("photos", "birds", "new_photos"):
        rows = []
        for i in range(160):
            pixels = rng.integers(0, 90, (32, 32, 3), dtype=np.uint8)
            pixels[8:24, 8:24, i % 2] += 120
            path = Path(place, ("land", "water")[i % 2], f"{i}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            rows.append((path.relative_to(place).as_posix(), ("land", "water")[i % 2], "ab"[(i + i // 9) % 2]))
        pd.DataFrame(rows, columns=["filename", "y", "place"]).to_csv(Path(place, "metadata.csv"), index=False)
    people = {"age": rng.integers(20, 70, 400), "sex": rng.choice(["f", "m"], 400), "income": rng.integers(0, 2, 400)}
    pd.DataFrame(people).to_csv("people.csv", index=False)
    write_texts(random.Random(0))
    bench = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    Path("table.toml").write_text(re.search(r"^```toml\n(.*?)^```", bench, re.MULTILINE | re.DOTALL)[1])
    return tmp_path


def write_texts(rng):
    words = {"good": "fine great warm".split(), "bad": "dull weak cold".split()}
    label = [("good", "bad")[i % 2] for i in range(300)]
    texts = [" ".join(rng.choices([*words[y], "film", "story", "the"], k=12)) for y in label]
    source = [("x", "y")[i % 2] if i % 10 else "x" for i in range(300)]
    pd.DataFrame({"review": texts, "source": source, "label": label}).to_csv("reviews.csv", index=False)
    pairs = {"premise": texts, "hypothesis": texts[::-1], "gold_label": label}
    pd.DataFrame(pairs).to_parquet("pairs.parquet")


def first_page(words):
    """What a command that serves shows at the address that it prints; then it is ended."""
    if "--port" in words:
        at = words.index("--port")
        words = [*words[:at], *words[at + 2 :]]
    command = [sys.executable, "-m", "spurless", *words, "--port", "0"]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **both, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as server:
        late = threading.Timer(60, server.kill)  # then no line with an address follows
        late.start()
        try:
            address = next(m[0] for line in server.stdout if (m := re.search(r"http://\S+", line)))
            if words[0] == "review":
                decide(address)
            with urlopen(address, timeout=30) as answer:
                return answer.read()
        finally:
            late.cancel()
            server.terminate()  # not SIGINT, which jobs in the background ignore
            try:
                server.communicate(timeout=30)
            finally:
                server.kill()


def decide(address):
    """What a person would say on the page of a review: the first finding is a shortcut."""
    said = json.dumps({"finding": 0, "op": "decide", "decision": "shortcut"}).encode()
    with urlopen(Request(f"{address}edit", said, {"Content-Type": "application/json"}), timeout=30) as answer:
        assert json.loads(answer.read())["decision"] == "shortcut"


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p not in QUICK)) for p, lines in RUN.items() if lines],
)
def test_the_commands_of_a_page_run(page, desk):
    for line in [f"spurless {before}" for before in BEFORE.get(page, ())] + RUN[page]:
        words = shlex.split(line)
        assert words[0] in ("spurless", "torchrun"), f"{page}: run {line!r} or say why it is not run"
        for name, given in NAMES.items():
            words = [word.replace(name, given) for word in words]
        for pattern, more in SHORTER.items():
            if re.search(pattern, line):
                words += more.split()
        if words[0] == "torchrun":
            subprocess.run([sys.executable, "-m", "torch.distributed.run", *words[1:]], check=True)
        elif words[1] in SERVE:
            assert b"<html" in first_page(words[1:])
        elif "--fail-on" in line:  # exit code 4 is a verdict
            assert CliRunner().invoke(app, words[1:]).exit_code in (0, 4), line
        else:
            invoke(*words[1:])


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")
def test_make_knows_the_targets_that_pages_name():
    targets = {
        word for lines in COMMANDS.values() for line in lines for word in re.findall(r"^make ([\w-]+)", line.text)
    }
    assert len(targets) > 8
    for target in sorted(targets):
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_every_line_is_run_or_says_why():
    lines = [line for page in COMMANDS.values() for line in page]
    run = [line for line in lines if line.reason is None]
    assert len(lines) > 80 and len(run) > 50
    assert all(len(line.reason) > 8 for line in lines if line.reason is not None)
    assert set(QUICK) <= {page for page, own in RUN.items() if own}


def test_no_mark_stands_alone():
    """A mark that no block follows would say of nothing that it is not run."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for mark in MARK.finditer(text):
            after = text[mark.end() :].lstrip("\n")
            assert after.startswith(("    ", "```")), f"{page.name}: {mark[0]}"
            words = mark["words"]
            assert not words or all(word in after.split("\n\n")[0] for word in words.split(", ")), mark[0]


STUDIES = [page for page, lines in COMMANDS.items() if any("-m studies" in line.text for line in lines)]


@pytest.mark.parametrize("page", STUDIES)
def test_every_study_that_a_page_names_has_these_options(page):
    """The studies take too long to be run; what their lines name is looked up."""
    for line in COMMANDS[page]:
        program, *words = line.text.split()
        if program == "python":
            name = words[1]
            found = importlib.util.find_spec(name)
            source = importlib.util.find_spec(f"{name}.__main__") if found.submodule_search_locations else found
            text = Path(source.origin).read_text(encoding="utf-8")
            options = [word[2:] for word in words if word.startswith("--")]
            assert [name for name in options if not re.search(rf'"(--)?{name}"', text)] == [], line.text
            assert all((ROOT / w).exists() for w in words if w.startswith("studies/")), line.text

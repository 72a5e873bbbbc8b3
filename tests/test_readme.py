"""What the README claims is what was measured."""

import importlib.util
import json
import re
from pathlib import Path

from spurless.datasets import DATASETS
from spurless.methods import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_measured_rows():
    maker = load(ROOT / "benchmarks" / "readme.py")
    assert maker.rows("demo"), "no measured rows: the comparison would show nothing"
    assert maker.rows("cmnist")
    assert maker.filled(README) == README, "run make results"


def test_the_tables_of_the_pages_are_those_of_the_measured_rows():
    from benchmarks import pages

    assert pages.rows("waterbirds") and pages.rows("audit"), "no measured rows: the comparison would show nothing"
    for page in pages.PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert pages.fill(text, pages.tables()) == text, "run make results"


def test_what_every_report_says_of_the_audits_errors_is_what_was_measured():
    from benchmarks import audit, pages

    assert json.loads(audit.QUOTED.read_text()) == audit.quoted(pages.rows("audit"))
    assert json.loads(audit.QUOTED_TEXT.read_text()) == audit.quoted(pages.rows("audit_text"), "texts")


def test_every_method_and_data_set_is_named():
    named = set(re.findall(r"`([a-z_0-9]+)`", README))
    assert set(METHODS) <= named
    assert set(DATASETS) <= named


def test_every_method_has_a_page():
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert set(METHODS) <= pages


def test_links_and_pictures_of_the_documentation_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # code may look like a link
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"

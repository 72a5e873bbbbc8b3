"""Every method page has one layout, its settings are those of the code, and its picture the one that is drawn."""

import doctest
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from spurless.core.settings import settings_of
from spurless.methods import METHODS
from spurless.registry import method_class
from studies import method_pages, method_pictures

PAGES = Path(__file__).parents[2] / "docs" / "methods"
LAID_OUT = [*METHODS, "mining"]
PARTS = ["When", "Settings", "Paper and code", "Measured"]


@pytest.mark.parametrize("name", LAID_OUT)
def test_a_page_has_idea_picture_equation_when_settings_and_paper_against_code(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith("# ")
    opening, *parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    assert parts[::2] in (PARTS, PARTS[:3])
    assert all(text.strip() for text in parts[1::2])
    idea, picture, rest = re.split(rf"^(!\[.+\]\(pictures/{name}\.svg\))$", opening, flags=re.MULTILINE)
    assert 10 < len(idea.split()) < 90 and picture
    assert re.search(r"^ {4}\S", page if name == "mining" else rest, re.MULTILINE), "there is no equation"


@pytest.mark.parametrize("name", METHODS)
def test_the_settings_on_a_page_are_those_of_the_method(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert method_pages.filled(page, name) == page, "run python -m studies.method_pages"
    if settings_of(method_class(name)):
        assert method_pages.table(name) in page


@pytest.mark.parametrize("name", LAID_OUT)
def test_the_picture_is_drawn_by_the_script(name):
    kept = (PAGES / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == method_pictures.drawn(name), "run python -m studies.method_pages"
    words = [text.text for text in ET.fromstring(kept).iter("{http://www.w3.org/2000/svg}text")]
    assert {"aligned", "conflicting"} <= set(words)
    assert len(kept) < 40_000


def test_every_picture_has_a_page_and_every_method_a_picture():
    assert set(method_pictures.PICTURES) == set(LAID_OUT)
    assert {path.stem for path in (PAGES / "pictures").glob("*")} == set(LAID_OUT)


def test_the_examples_of_the_builder_hold():
    found = doctest.testmod(method_pages)
    assert found.attempted and not found.failed

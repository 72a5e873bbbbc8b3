"""The site builds without a warning, holds every page and every public name, and asks the network for nothing."""

import doctest
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import spurless

ROOT = Path(__file__).parents[2]
needs_mkdocs = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")),
    reason="needs the extra docs: mkdocs-material and mkdocstrings",
)


def pages_in(nav):
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_in(part)]


def test_every_page_is_in_the_navigation_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = [page for page in pages_in(nav) if not page.startswith("repository/")]
    assert len(listed) > 50
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert len(made) == 8
    assert sorted(listed) == sorted(written | made)


def told():
    """{public name: the module that the API page names for it}."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^::: spurless\.(\S+)\.(\w+)$", page, re.MULTILINE)}


def test_every_public_name_is_on_the_api_page_as_itself():
    """`spurless.auditing.audit` is a function for Python, but a module for mkdocstrings, which reads the files."""
    assert set(told()) == set(spurless.__all__) - {"__version__"}
    for name, module in told().items():
        assert getattr(importlib.import_module(f"spurless.{module}"), name) is getattr(spurless, name), name
        assert not (ROOT / "src" / "spurless" / module.replace(".", "/") / f"{name}.py").exists(), f"{name} is a module"


@needs_mkdocs
@pytest.mark.parametrize("name", ["website", "website_api", "website_notebooks"])
def test_the_examples_of_the_builders_hold(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "studies" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    told = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=told, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@needs_mkdocs
def test_the_site_is_whole(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    api = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name, module in told().items():
        assert f'id="spurless.{module}.{name}"' in api
    audit = api[api.index('id="spurless.auditing.audit.audit"') :]
    assert "budget" in audit[: audit.index("</h3>")], "the parameters of audit are not shown"
    fit = api[api.index('id="spurless.train.fit.fit"') :]
    assert "checkpoint_seconds" in fit[: fit.index("</h3>")], "the parameters of fit are not shown"
    assert (site / "repository" / "examples" / "your_model" / "index.html").exists()
    notebook = (site / "notebooks" / "tables" / "index.html").read_text(encoding="utf-8")
    assert "colab.research.google.com" in notebook and '../tables.ipynb" download' in notebook
    assert (site / "notebooks" / "tables.ipynb").exists() and (site / "notebooks" / "tables-0.png").exists()
    assert "spurious" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


@needs_mkdocs
def test_the_site_asks_the_network_for_nothing(site):
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]*\bsrc=\"(?:https?:)?//[^\"]*|<link[^>]*stylesheet[^>]*href=\"http[^\"]*"
    )
    found = {m for path in site.rglob("*.html") for m in fetched.findall(path.read_text(encoding="utf-8"))}
    assert found == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"@import[^;]*http|url\([\"']?https?:[^)]*", styles) == []


def test_the_gallery_shows_every_kept_page_and_they_are_small():
    pages = sorted((ROOT / "docs" / "examples").glob("*.html"))
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert len(pages) == 7
    for page in pages:
        assert f"(examples/{page.name})" in text and page.with_suffix(".webp").exists()
        assert page.stat().st_size < 400_000
        assert not re.search(r"(?<![\w.~])/(tmp|root|home|work|mnt|Users)/", page.read_text(encoding="utf-8"))

"""What the README claims is what was measured."""

import json
import re
from pathlib import Path

import pytest
import typer

from spurless.cli import main as cli
from spurless.data.sets import DATASETS
from spurless.methods import METHODS
from spurless.nets import NETS
from spurless.registry import SOURCES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_the_tables_are_those_of_the_measured_rows():
    from studies import readme as maker

    for table in ("demo", "cmnist", "picture", "crossfit"):
        assert maker.rows(table), "no measured rows: the comparison would show nothing"
    for page, named in zip(maker.PAGES, (("point",), ("digits",), ("demo", "cmnist")), strict=True):
        text = page.read_text()
        assert all(f"<!-- results: {name} -->" in text for name in named)
        assert maker.filled(text) == text, "run make results"


def test_the_tables_of_the_pages_are_those_of_the_measured_rows():
    from studies import pages

    assert pages.rows("waterbirds"), "no measured rows: the comparison would show nothing"
    for page in pages.PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert pages.fill(text, pages.tables()) == text, "run make results"


def test_what_every_report_says_of_the_audits_errors_is_what_was_measured():
    from studies.audit.tables import QUOTED, quoted, read

    assert json.loads(QUOTED.read_text()) == quoted(read(ROOT / "results" / "audit_zoo"))


def test_every_method_and_data_set_is_named():
    for page, names in (("methods.md", METHODS), ("datasets.md", DATASETS)):
        text = (ROOT / "docs" / page).read_text()
        assert set(names) <= set(re.findall(r"`([a-z_0-9]+)`", text)), page


def test_the_audit_in_the_readme_is_the_one_that_was_run():
    from studies.rows import RESULTS, named

    row = named(RESULTS / "readme_audit")["waterbirds"]
    page = " ".join((ROOT / "README.md").read_text().split())
    assert len(row["cost"]) == 2
    for sentence in (row["headline"], row["command"].partition(" --out")[0], *row["cost"]):
        assert " ".join(sentence.split()) in page
    assert f"{row['samples']:,} training photographs" in page


def test_every_measured_table_of_a_paper_has_a_place():
    from studies import pages

    text = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in pages.PAGES)
    measured = [name for name, table in pages.tables().items() if table]
    assert len(measured) > 15
    assert [name for name in measured if f"<!-- results: {name} -->" not in text] == []


def test_every_network_is_named():
    page = "".join((ROOT / "docs" / name).read_text() for name in ("training.md", "text.md"))
    assert set(NETS) <= set(re.findall(r"`([a-zA-Z_0-9:]+)`", page))
    assert all(f"| `{name}` | {what} |" in page for name, what in NETS.items() if not what.startswith("text:"))


def test_the_groups_of_entry_points_and_the_number_of_methods_are_those_of_the_code():
    groups = {source.group for source in SOURCES.values() if source.group}
    assert len(groups) == 3
    for page in ("docs/adding.md", "SECURITY.md"):
        assert all(f"`{group}`" in (ROOT / page).read_text(encoding="utf-8") for group in groups), page
    for page in ("README.md", "docs/index.md"):
        assert f"{len(METHODS)} methods" in (ROOT / page).read_text(encoding="utf-8"), page
    assert f"| training methods | {len(METHODS)} |" in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def test_every_method_has_a_page():
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert set(METHODS) <= pages


def test_links_and_pictures_of_the_documentation_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # code may look like a link
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"


def commands(text):
    """The command lines of a page, each whole: `spurless train pgd ... --set a=b`."""
    for line in text.replace("\\\n", " ").splitlines():
        found = re.match(r"^ {4}(?:\S+=\S+ )*(spurless [a-z-]+.*)$", line)
        if found:
            yield re.sub(r"\s#.*$| [|>].*$", "", found[1]).replace("[", " ").replace("]", " ")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_on_a_page_has_these_flags(page):
    known = typer.main.get_command(cli.app).commands
    for line in commands(page.read_text(encoding="utf-8")):
        words = line.split()[1:]
        command = known.get(words[0])
        assert command is not None, line
        if words[0] == "data":
            command = command.commands[words[1]]
        flags = {*flags_of(command), "--help"}
        for word in (w.partition("=")[0].partition("|")[0] for w in words if w.startswith("--")):
            assert word in flags, f"{line}: there is no {word}"


def flags_of(command):
    yield from (flag for option in command.params for flag in (*option.opts, *option.secondary_opts))
    for part in getattr(command, "commands", {}).values():
        yield from flags_of(part)


def test_every_flag_that_a_page_names_exists():
    others = {"--nnodes", "--rdzv-endpoint", "--build-arg"}  # of torchrun and docker
    known = set(flags_of(typer.main.get_command(cli.app))) | others
    named = {(p.name, flag) for p in PAGES for flag in re.findall(r"`(--[a-z][a-z-]*)", p.read_text(encoding="utf-8"))}
    assert len(named) > 40
    assert [place for place in sorted(named) if place[1] not in known] == []


def test_kept_results_and_pages_name_no_folder_of_a_machine():
    places = re.compile(r"(?<![\w.~])/(tmp|root|home|work|mnt|Users)/")
    kept = [p for p in (ROOT / "results").rglob("*") if p.suffix in (".json", ".jsonl", ".csv")]
    assert len(kept) > 40
    assert [str(p) for p in (*kept, *PAGES) if places.search(p.read_text(encoding="utf-8"))] == []


def test_files_of_the_repository_that_a_page_names_exist():
    named = {
        (page.name, path)
        for page in (*PAGES, ROOT / "CONTRIBUTING.md")
        for path in re.findall(r"`((?:tests|studies|src|papers)/[\w/]+\.(?:py|toml|json))`", page.read_text())
    }
    assert len(named) > 10
    assert [
        place for place in sorted(named) if not re.search("NAME|yours", place[1]) and not (ROOT / place[1]).exists()
    ] == []

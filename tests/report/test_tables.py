"""The comparison table: the right figures, the right one in bold, and names that stay names."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from spurless.report import tables


def result(method: str, conflicting: float | None, seconds: float = 10.0, **more) -> dict:
    scores = {"unbiased": 50.0, "conflicting": conflicting, "aligned": 99.04, "worst_group": 3.0, "average": 60.0}
    scores["intervals"] = {"conflicting": None if conflicting is None else [conflicting - 2.04, conflicting + 2.0]}
    known = {"method": method, "data": "toy", "net": "mlp", "seed": 0, "status": "done", "scores": scores}
    return known | {"seconds": seconds, "labels_used": "none", "settings": {}} | more


def printed(results: list[dict], width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(tables.comparison(results))
    return console.file.getvalue()


def column(results: list[dict], heading: str) -> list[tables.Cell]:
    at = tables.headings(results).index(heading)
    return [row[at] for row in tables.rows(results)]


def test_figures_and_the_best_of_each_column():
    results = [result("erm", 20.0, 4.0), result("lff", 61.26), result("pgd", 61.3)]
    assert column(results, "conflicting") == [
        ("20.0 [18.0–22.0]", False),
        ("61.3 [59.2–63.3]", True),  # equal as printed, so both
        ("61.3 [59.3–63.3]", True),
    ]
    assert [c.best for c in column(results, "seconds")] == [True, False, False]  # the shortest
    assert [c.best for c in column(results, "unbiased")] == [False] * 3  # all equal
    text = printed(results)
    assert "61.3 [59.2–63.3]" in text
    assert all(heading in text for heading in ("method", "unbiased", "worst group", "seconds", "labels"))


def test_only_one_result_is_not_the_best_of_anything():
    assert not any(cell.best for row in tables.rows([result("erm", 20.0)]) for cell in row)


def test_a_diverged_run_shows_its_status_and_wins_nothing():
    lost = result("pgd", 99.0, seconds=1.0, status="diverged", labels_used="training")
    results = [result("erm", 20.0), result("lff", 60.0, 20.0), lost]
    assert [c.text for c in tables.rows(results)[2]] == ["pgd", "diverged", "–", "–", "–", "1.0", "training"]
    assert [c.best for c in column(results, "conflicting")] == [False, True, False]
    assert [c.best for c in column(results, "seconds")] == [True, False, False]
    assert "diverged" in printed(results)
    assert "| pgd | diverged | – | – | – | 1.0 | training |" in tables.markdown(results)


def test_the_best_is_sought_on_the_same_data_only():
    other = {"settings": {"data": {"rho": 0.05}}}
    results = [result("erm", 20.0), result("lff", 60.0), result("erm", 70.0, **other), result("lff", 90.0, **other)]
    assert [c.best for c in column(results, "conflicting")] == [False, True, False, True]


def test_other_seeds_are_the_same_data_though_their_fingerprint_differs():
    runs = [result("erm", 20.0 + s, seed=s, settings={"data": {"seed": s, "fingerprint": f"f{s}"}}) for s in (0, 1)]
    assert [c.best for c in column(runs, "conflicting")] == [False, True]
    assert tables.names(runs) == ["erm, seed 0", "erm, seed 1"]


def test_another_content_is_another_data_set():
    def run(method, value, content, seed=0, **more):
        return result(
            method, value, seed=seed, settings={"data": {"name": "csv:d.csv", **more, "fingerprint": content}}
        )

    mixed = [run("erm", 20.0, "aaa", label="y"), run("lff", 60.0, "bbb", label="y"), run("pgd", 70.0, "aaa", label="y")]
    assert [c.best for c in column(mixed, "conflicting")] == [False, False, True]
    later = [run("erm", 20.0, "aaa", 0, label="y"), run("erm", 30.0, "bbb", 1, label="y")]
    assert [c.best for c in column(later, "conflicting")] == [False, False]
    assert tables.names([r | {"seed": 0} for r in later]) == ["erm, content aaa", "erm, content bbb"]
    # Without settings it is the user's own, made by the seed perhaps.
    own = [run("erm", 20.0, "aaa", 0), run("erm", 30.0, "bbb", 1)]
    assert [c.best for c in column(own, "conflicting")] == [False, True]


def test_scores_that_are_missing():
    results = [result("erm", None), {"method": "x"}, {}, result("y", float("nan"))]
    assert [c.text for c in column(results, "conflicting")] == ["–"] * 4
    assert tables.names([{}, {"method": "x"}]) == ["unnamed", "x"]
    assert printed(results)
    assert tables.headings([]) == tables.headings(results)


def test_without_groups_the_average_stands_alone():
    plain = [{"method": "erm", "scores": {"average": 91.0, "unbiased": None, "intervals": {"average": [90.0, 92.0]}}}]
    assert tables.headings(plain) == ["method", "average", "seconds", "labels used"]
    assert column(plain, "average")[0].text == "91.0 [90.0–92.0]"


def test_twins_get_names_of_their_own():
    assert tables.names([result("erm", 1.0), result("erm", 2.0)]) == ["erm, run 1", "erm, run 2"]
    results = [result("erm", 1.0, data="toy"), result("erm", 1.0, data="bar", net="resnet18")]
    assert tables.names(results) == ["erm, toy, mlp", "erm, bar, resnet18"]
    plain, other = (
        {"method": "erm", "settings": {"net": net}} for net in ({"name": "mlp"}, {"name": "mlp", "width": 9})
    )
    assert tables.names([plain, other]) == ["erm, width None", "erm, width 9"]  # the first does not name it


def test_markdown():
    lines = tables.markdown([result("erm", 20.0), result("lff", 60.0)]).splitlines()
    assert lines[:2] == [
        "| method | unbiased | conflicting | aligned | worst group | seconds | labels used |",
        "| :-- | --: | --: | --: | --: | --: | :-- |",
    ]
    assert lines[3] == "| lff | 50.0 | **60.0 [58.0–62.0]** | 99.0 | 3.0 | 10.0 | none |"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_interval_stays_whole_in_a_usual_terminal(width):
    results = [result("erm", 20.0), result("groupdro", 98.5, labels_used="training")]
    for r in results:
        r["scores"]["intervals"] = {m: [12.34, 100.0] for m in tables.METRICS}
    text = printed(results, width)
    assert text.count("[12.3–100]") == 8
    assert "training" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_names_are_not_obeyed():
    evil = result("[red]a|b[/red] <i>*x*</i> \x1b[31m [y](z)", 20.0, notes=["[bold]stand-in[/bold]"])
    text = printed([evil], 300)
    assert "[red]a|b[/red]" in text
    assert "[bold]stand-in[/bold]" in text
    assert "\x1b" not in text
    line = tables.markdown([evil]).splitlines()[2]
    assert line.count("|") - line.count("\\|") == 8  # seven cells
    assert "<i>" not in line
    assert "[y](z)" not in line
    line = tables.markdown([result("_a_\r__b__ c_d", 20.0, notes=["x\ry"])])
    assert line.splitlines()[2].startswith("| \\_a\\_\N{REPLACEMENT CHARACTER}\\_\\_b\\_\\_ c_d |") and "x y" in line


def test_notes_are_said_once():
    noted = [result(m, 20.0, notes=["a stand-in"]) for m in ("erm", "lff")]
    assert tables.markdown(noted).count("a stand-in") == 1
    assert printed(noted).count("a stand-in") == 1


def test_words_beside_a_narrow_table_have_the_width_of_the_terminal():
    table = Table("a", "b")
    table.add_row("1", "2")
    console = Console(width=60, record=True, file=io.StringIO())
    sentences = ["A sentence that is longer than the table is wide.", "Another."]
    console.print(tables.with_words(table, sentences, "A title of its own"))
    shown = console.export_text().splitlines()
    assert shown[0] == "A title of its own" and shown[-1] == "Another."
    assert "A sentence that is longer than the table is wide." in shown


def test_a_worst_group_of_few_samples_says_how_few():
    few, enough, before = result("erm", 20.0), result("lff", 30.0), result("pgd", 40.0)
    few["scores"] |= {"worst_group": 0.0, "n": {"worst_group": 2, "unbiased": 4}, "min_size": 10}
    enough["scores"] |= {"worst_group": 50.0, "n": {"worst_group": 10}, "min_size": 10}
    before["scores"] |= {"n": {"worst_group": 2}}  # a row from before sizes were recorded is shown as it was
    assert [c.text for c in column([few, enough, before], "worst group")] == ["0.0 (n = 2)", "50.0", "3.0"]
    assert "0.0 (n = 2)" in printed([few]) and "| 0.0 (n = 2) |" in tables.markdown([few])
    assert column([few], "unbiased")[0].text == "50.0"


def test_nobody_is_the_best_by_a_group_of_two_samples():
    def run(method, worst, n):
        scores = {"unbiased": worst, "worst_group": worst, "n": {"worst_group": n}, "min_size": 10}
        return {"method": method, "data": "toy", "scores": scores}

    def best(n):
        cells = tables.rows([run("erm", 100.0, n), run("lff", 60.0, 50)])
        titles = tables.headings([run("erm", 100.0, n)])
        return [row[titles.index("worst group")].best for row in cells]

    assert best(50) == [True, False] and best(2) == [False, False]
    text = tables.markdown([run("erm", 100.0, 2), run("lff", 60.0, 50)])
    assert "| 100.0 (n = 2) |" in text and "**100.0**" in text  # unbiased decides as before

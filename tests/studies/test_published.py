"""Counting which published numbers come back."""

from spurless.core.stats import Estimate, estimate
from studies import papers
from studies.papers import LAST, PICKED, Number, numbers, within


def test_a_number_comes_back_within_two_points_or_two_standard_deviations():
    assert within(estimate([88.0]), Estimate(90.0))
    assert not within(estimate([87.9]), Estimate(90.0))
    assert within(estimate([85.0, 89.0]), Estimate(92.0))  # sd 2.83
    assert within(estimate([85.0]), Estimate(90.0, 87.5, 92.5))  # the paper's own sd is 2.5
    assert not within(estimate([10.0, 90.0]), Estimate(62.0))  # a spread of 57 points says nothing


def test_test_selected_scores_are_counted_apart():
    ours = {("a", LAST): estimate([80.0]), ("a", PICKED): estimate([90.0])}
    number = Number("t", "d", "m", Estimate(90.0), ours)
    assert not number.back(LAST)
    assert number.back(PICKED) and number.back()
    head, *_ = papers.counts().splitlines()
    cells = [cell.strip() for cell in head.strip("|").split("|")]
    line = [cell.strip() for cell in papers.counted("t", [number]).strip("|").split("|")]
    assert dict(zip(cells[1:5], line[1:5], strict=True)) == {
        "numbers": "1",
        "come back": "1",
        "by the last weights": "0",
        "picked on the test split, as the paper does": "1 of 1",
    }


def test_stand_ins_are_counted_apart():
    """MB-MNIST's letters, and ResNet-18 from ImageNet for BAR."""
    table = {n.data: n.stand_in for name in ("pgd-table1", "pgd-table2") for n in numbers(name)}
    assert table == {"CMNIST": False, "CCIFAR": False, "MBMNIST": True, "BAR": True}
    own, apart = papers.counts().split("**all in the published setting**")
    assert "pgd-table2" in apart and "pgd-table2" not in own


def test_rates_beyond_the_study_are_no_end():
    """On Moon-Star accuracy goes on to rise at 1.5, where the study ends at 0.75."""
    found = {
        n.point: n for n in numbers("large-lr-s1") if (n.data, n.method) == ("Moon-Star", "accuracy without the bias")
    }
    assert found["min"].nearest().value < found["max"].nearest().value < 82.5


def test_three_seeds_go_before_one_that_is_nearer():
    ours = {("one", LAST): estimate([90.0]), ("three", LAST): estimate([86.0, 87.0, 88.0])}
    assert Number("t", "d", "m", Estimate(90.0), ours).nearest().value == 87.0


def test_forms_of_a_method_are_one_number():
    """PGD's table 12: four methods, of which PGD was run in three forms."""
    own = numbers("pgd-table12")
    assert [n.method for n in own] == ["Vanilla", "LfF", "Disen", "PGD"]
    assert len(own[-1].ours) == 3
    assert all(n.theirs.known for n in own)


def test_every_measured_line_is_in_a_number():
    """By the lines of the specification themselves."""
    from spurless.bench.reproduce import papers as tables
    from spurless.bench.spec import read_spec
    from studies.rows import rows

    keys = {row["key"] for name in tables() for row in rows(name)}
    lines = [x for x in read_spec(tables()["dcwp-table1"]).lines if any(t.key in keys for t in x.trials) and x.paper]
    forms = {f"{x.block}: {x.row}" for x in lines}
    assert {form for n in numbers("dcwp-table1") for form, _ in n.ours} == forms
    assert papers.counts().count("dcwp-table1") == 1


def test_what_two_tables_repeat_is_counted_once():
    """Table 13 prints table 1's digit columns again, table 10 its LfF and PGD."""
    lines = {line.split(" | ")[0]: line.split(" | ")[1] for line in papers.counts().splitlines()}
    every, once = int(lines["| **all in the published setting**"]), int(lines["| the same, numbers of two tables once"])
    repeated = [n for n in numbers("pgd-table13") if n.data == "Digit"]
    assert len(repeated) == 9 and every - once >= 9 + 3 * 2

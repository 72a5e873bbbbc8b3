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


def test_test_selected_scores_do_not_bring_back_by_the_last_weights():
    ours = {("a", LAST): estimate([80.0]), ("a", PICKED): estimate([90.0])}
    number = Number("t", "d", "m", Estimate(90.0), ours)
    assert not number.back()
    assert number.back(PICKED)


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

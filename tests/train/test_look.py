"""Results, bundles and audits print short, show themselves in a notebook, and draw themselves."""

from dataclasses import replace

import matplotlib

matplotlib.use("agg")
import pytest
from matplotlib import pyplot

import spurless
from spurless import UserError
from spurless.auditing.record import AuditReport

pytestmark = pytest.mark.usefixtures("_closed")


@pytest.fixture
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def result():
    return spurless.fit("erm", {"name": "toy", "n": 300}, recipe={"epochs": 2}, device="cpu", progress=False)


@pytest.fixture(scope="module")
def digits():
    return spurless.load_data({"name": "colored_digits"})


def report(**changes):
    told = {
        "headline": "The model relies on <b>snow</b>.",
        "verdict": "found",
        "cost": {
            "text": ["..."],
            "aligned": {"value": 90.0, "low": 80.0, "high": 95.0, "n": 100},
            "conflicting": {"value": 40.0, "low": 20.0, "high": 60.0, "n": 20},
        },
        "findings": [{"words": "snow", "verdict": "found", "text": "It changes 12 answers."}],
        "advice": [{"title": "Repair it", "why": "because", "command": "spurless audit --fix photos"}],
    }
    fixed = {"spurless": "0", "date": "", "command": None, "model": None, "settings": {}, "versions": {}}
    return AuditReport(data={"name": "photos"}, **(fixed | told | changes))


def test_a_result_is_one_line_with_its_intervals(result):
    low, high = result.scores["intervals"]["unbiased"]
    told = repr(result)
    assert f"unbiased {result.scores['unbiased']:.1f} [{low:.1f}–{high:.1f}]" in told
    assert "\n" not in told and len(told) < 250
    lost = replace(result, status="diverged", error="loss is not finite", scores=None, classifier=None)
    assert "diverged" in repr(lost) and "loss is not finite" in repr(lost)
    assert "loss is not finite" in lost._repr_html_()


def test_html_is_short_has_the_numbers_and_escapes_names(result, digits):
    page = result._repr_html_()
    assert len(page) < 1500 and "worst group" in page and "4,000" in page
    marked = replace(result, data="<script>", notes=["a & b"])._repr_html_()
    assert "<script>" not in marked and "a &amp; b" in marked
    assert len(digits._repr_html_()) < 4000
    told = report()._repr_html_()
    assert "<b>snow" not in told and "It changes 12 answers." in told and "spurless audit --fix photos" in told


def test_a_bundle_counts_its_samples(digits):
    assert len(repr(digits)) < 200 and "train 3,500, val 500, test 1,000" in repr(digits)
    data = spurless.Bundle.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 0, 0, 1], a=[1, 0, 1, 1], val=0.0, test=0.0)
    page = data._repr_html_()
    for line in (["0", "", "3"], ["0", "a0 = 0", "1"], ["0", "a0 = 1", "2"], ["1", "", "1"], ["1", "a0 = 1", "1"]):
        assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" in page


def test_groups_are_drawn_where_their_accuracy_is(result):
    ax = result.plot()
    drawn = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert drawn == [g["accuracy"] for g in result.scores["groups"]]
    colours = {line.get_color() for line in ax.lines if line.get_marker() == "o"}
    assert len(colours) == 2, "conflicting groups have a colour of their own"
    assert "n = 1000" in ax.get_yticklabels()[0].get_text()


def test_curves_are_the_history(result):
    ax = result.plot("curves")
    assert list(ax.lines[0].get_ydata()) == [row["loss"] for row in result.history]
    with pytest.raises(UserError, match="groups"):
        result.plot("curve")


def test_given_axes_are_drawn_on(result):
    own = pyplot.subplots()[1]
    assert result.plot(ax=own) is own and report().plot(ax=own) is own


def test_the_gallery_shows_conflicting_samples_as_conflicting(digits):
    axes = digits.plot(columns=3)
    assert axes.shape == (20, 3)
    titles = [row[0].get_title(loc="left") for row in axes]
    at = titles.index("7, conflicting")
    shown = axes[at][1].images[0].get_array()
    split = digits.train
    mine = (split.y == 7) & ~digits.is_aligned(split).all(1)
    second = mine.nonzero().flatten()[1]
    assert (shown == split.x[second].permute(1, 2, 0).numpy()).all()
    with pytest.raises(UserError, match="no images"):
        spurless.load_data({"name": "toy", "n": 100}).plot()


def test_an_audit_is_one_line_and_draws_its_cost():
    assert repr(report()) == "AuditReport(photos: found. The model relies on <b>snow</b>.)"
    ax = report().plot()
    assert [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"] == [90.0, 40.0]
    with pytest.raises(UserError, match="no slices to draw"):
        report().plot("slices")

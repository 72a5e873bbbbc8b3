"""The report: one file that needs nothing else, says what the rows say, and runs nothing that a name contains."""

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from spurless import report
from spurless.metrics.groups import group_scores
from spurless.report import charts, lines, tables
from spurless.report.summary import difference, summary, worlds
from tests.support.pages import EVIL, Page, make, only_our_script

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def three() -> list[dict]:
    return [make("erm", 0.2), make("lff", 0.6, 1), make("pgd", 0.7, 2, stages=("biased", "debiased"))]


def test_it_needs_nothing_but_itself(three, tmp_path):
    path = report.write(three, tmp_path / "new" / "report.html", title="A title", pictures=[("A sheet", PNG)])
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    page = Page(text)
    assert {tag for tag, _, _ in page.elements}.isdisjoint({"link", "iframe", "object", "base", "form"})
    only_our_script(text)
    for _, attrs, _ in page.elements:
        assert not any(name.startswith("on") for name in attrs)
        assert attrs.get("src", "data:").startswith("data:")
        assert attrs.get("href", "#").startswith("#")
    assert not {a["href"][1:] for a, _ in page.find("a")} - {a.get("id") for _, a, _ in page.elements}
    assert page.find("title")[0][1] == "A title"
    assert page.find("img")[0][0]["alt"] == "A sheet"
    assert list(path.parent.iterdir()) == [path]


def test_the_numbers_are_those_of_the_rows(three):
    page = Page(report.render(three, "t"))
    for metric in ("unbiased", "conflicting", "aligned", "worst_group"):
        shown = [text for attrs, text in page.find("td") if attrs.get("data-name") == metric.replace("_", " ")]
        scores = [r["scores"] for r in three]
        limits = [s["intervals"][metric] for s in scores]
        expected = [f"{s[metric]:.1f} [{lo:.1f}–{hi:.1f}]" for s, (lo, hi) in zip(scores, limits, strict=True)]
        assert shown == [e.replace("100.0]", "100]") for e in expected]
    for metric in ("conflicting", "aligned", "unbiased"):
        widths = [attrs["width"] for attrs, _ in page.find("rect", class_=f"fill-{metric}")]
        assert widths == [f"{r['scores'][metric]:.2f}%" for r in three]
    whiskers = [attrs["x1"] for attrs, _ in page.find("line", y1="7")]
    assert whiskers[0] == f"{three[0]['scores']['intervals']['conflicting'][0]:.2f}%"
    groups = [g for r in three for g in r["scores"]["groups"]]
    cells = [(a, t) for a, t in page.find("td") if "--miss" in a.get("style", "")]
    assert [t for _, t in cells] == [f"{g['accuracy']:.1f}n {g['n']}" for g in groups]
    assert ["follows" in a.get("class", "") for a, _ in cells] == [g["aligned"] for g in groups]


def test_names_are_text_everywhere():
    evil = make(EVIL, 0.5, classes=(EVIL, "dog"), stages=(EVIL, "next"))
    evil |= {"data": EVIL, "net": EVIL, "selection": EVIL, "labels_used": EVIL, "notes": [EVIL], "folder": EVIL}
    evil |= {"settings": {EVIL: EVIL}, "versions": {EVIL: EVIL}, "error": EVIL, "scored_on": EVIL}
    evil |= {"mining": {EVIL: {"precision": 1.0, "recall": None, "n_mined": 1, "n_conflicting": 2}}}
    evil["scores"] |= {"groups": [g | {"attribute": EVIL, "value": EVIL} for g in evil["scores"]["groups"]]}
    lost = make("erm", 0.5) | {"status": EVIL, "error": EVIL}
    text = report.render([evil, lost], EVIL, pictures=[(EVIL, PNG)])
    page = Page(text)
    only_our_script(text)
    assert "onerror=alert(2)>" not in text
    assert len(page.find("img")) == 1  # the picture
    assert not any(name.startswith("on") for _, attrs, _ in page.elements for name in attrs)
    assert page.find("h1")[0][1] == EVIL
    assert page.find("th", scope="row")[0][1].startswith(EVIL)
    assert any(EVIL in attrs.get("alt", "") for attrs, _ in page.find("img"))
    # Inside SVG: the stage as text, and the run's name in the title of a plot.
    assert page.find("text", class_="stage")[0][1] == EVIL
    assert sum(t.count(EVIL) for _, t in page.find("svg")) >= 4


def test_without_history_groups_or_anything(tmp_path):
    three = [make(m, 0.5) | {"history": []} for m in ("erm", "lff")] + [{"method": "bare"}, {}]
    page = Page(report.write(three, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert not page.find("h2", id="training")
    assert page.find("h2", id="groups")
    assert Page(report.render([], "nothing yet")).find("p")[0][1] == "There is no result yet."
    plain = {"method": "erm", "data": "toy", "scores": group_scores([True, True, False, True], [0, 1, 0, 1])}
    page = Page(report.render([plain], "t"))
    assert len(page.find("rect", class_="fill-average")) == 1
    assert not page.find("h2", id="groups")


def test_how_it_was_measured_is_there(three):
    three[1] |= {"selection": "val_worst_group", "labels_used": "validation", "notes": ["Letters are a stand-in."]}
    three[2] |= {"status": "diverged", "error": "The loss is not finite in stage 'biased', step 7."}
    page = Page(report.render(three, "t"))
    said = " ".join(text for _, text in page.find("dd"))
    told = ("400 samples of the test split", "after the last step", "highest worst-group accuracy", "2.11", "0.001")
    for fact in told:
        assert fact in said
    assert "step 7." in said
    assert "someone" not in said
    assert page.find("p", class_="note")[0][1] == "Letters are a stand-in."
    assert "Without a score: pgd, seed 2 (diverged)." in [text for _, text in page.find("p", class_="lead")]
    assert len(page.find("rect", class_="fill-conflicting")) == 2


def test_the_summary_names_the_best_and_the_change():
    rows = [make("erm", 0.2), make("lff", 0.6), make("pgd", 0.75)]
    erm, _, pgd = (r["scores"] for r in rows)
    text = summary(rows)[0]
    assert f"plain training (erm) is right on {erm['conflicting']:.1f} % of the samples that conflict with" in text
    assert f"pgd, the best of 2 other methods, is right on {pgd['conflicting']:.1f} %" in text
    assert f"a gain of {pgd['conflicting'] - erm['conflicting']:.1f} points" in text
    assert "not told any bias label" in text
    assert "chance" not in text
    assert summary(rows[::-1])[0] == text  # the baseline is ERM, wherever it stands


def test_the_summary_does_not_oversell():
    close = [
        {"method": m, "scores": {"conflicting": c, "intervals": {"conflicting": [c - 5, c + 5]}}}
        for m, c in (("erm", 50.0), ("lff", 57.0), ("pgd", 57.1))
    ]
    # The limits of a difference are 5 √2 = 7.07 away from it.
    assert "So small a difference may be chance." in summary(close[:2])[0]
    assert "chance" not in summary(close[::2])[0]
    text = summary([make("erm", 0.7), make("lff", 0.2)])[0]
    assert "lff is right on" in text
    assert "a loss of" in text


def test_the_summary_averages_seeds_and_keeps_data_sets_apart():
    rows = [make(m, c, seed=s) for m, c in (("erm", 0.2), ("lff", 0.6)) for s in range(3)] + [
        make("erm", 0.3) | {"data": "bar"}
    ]
    first, second = summary(rows)
    mean = np.mean([r["scores"]["conflicting"] for r in rows[:3]])
    assert f"plain training (erm) (mean of 3 seeds) is right on {mean:.1f}" in first
    assert "lff (mean of 3 seeds)" in first
    assert second.startswith("On bar, plain training (erm) is right on")


def seeds_of(method, values, seeds=None, **data):
    """A run for each value, each with an interval of one point either side from its test rows."""
    return [
        {"method": method, "data": "toy", "seed": seed, "status": "done"}
        | {"scores": {"conflicting": v, "intervals": {"conflicting": [v - 1, v + 1]}}}
        | {"settings": {"method": {"name": method}, "data": {"name": "toy", "rho": 0.1} | data}}
        for v, seed in zip(values, seeds or range(len(values)), strict=True)
    ]


def test_the_interval_of_a_mean_of_seeds_is_over_seeds():
    """Over test rows it was: it left 0 out in half of the pages on two methods that were the same."""
    erm, lff = seeds_of("erm", [30.0, 38.0, 34.0]), seeds_of("lff", [41.0, 33.0, 40.0])
    (world,) = worlds(erm + lff)
    expected = stats.t.interval(0.95, 2, loc=34.0, scale=4.0 / np.sqrt(3))
    assert world.baseline.mean("conflicting")[:3] == pytest.approx((34.0, *expected))
    paired = stats.ttest_rel([41.0, 33.0, 40.0], [30.0, 38.0, 34.0]).confidence_interval(0.95)
    assert difference(world.best, world.baseline, "conflicting")[:3] == pytest.approx((4.0, *paired))
    text = summary(erm + lff)[0]
    assert f"(95 % CI over seeds: {paired[0]:+.1f} to {paired[1]:+.1f})" in text
    assert "So small a difference may be chance." in text
    same = summary(seeds_of("erm", [30.0, 38.0, 34.0]) + seeds_of("lff", [34.0, 42.1, 38.0]))[0]
    assert "chance" not in same  # the seed moves both alike


def test_the_difference_of_seeds_that_do_not_pair_is_welchs():
    old, new = [30.0, 38.0, 34.0], [41.0, 33.0, 40.0, 39.0]
    (world,) = worlds(seeds_of("erm", old) + seeds_of("lff", new, seeds=[5, 6, 7, 8]))
    welch = stats.ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    assert difference(world.best, world.baseline, "conflicting")[:3] == pytest.approx((4.25, *welch))
    # One seed varies as the others do.
    (world,) = worlds(seeds_of("erm", old) + seeds_of("lff", [39.0]))
    pooled = stats.ttest_ind([39.0], old, equal_var=True).confidence_interval(0.95)
    assert difference(world.best, world.baseline, "conflicting")[:3] == pytest.approx((5.0, *pooled))
    # The same seed on other contents is no pair: 0 and 1 of the data.
    mixed = seeds_of("erm", old, seed=0) + seeds_of("lff", new[:3], seed=1)
    unpaired = stats.ttest_ind(new[:3], old, equal_var=False).confidence_interval(0.95)
    (world,) = worlds(mixed)
    assert difference(world.best, world.baseline, "conflicting")[:3] == pytest.approx((4.0, *unpaired))


def test_one_seed_says_that_test_rows_are_all_that_is_counted():
    text = summary(seeds_of("erm", [30.0]) + seeds_of("lff", [40.0]))[0]
    assert "(95 % CI over test samples alone, with one seed: +8.6 to +11.4)" in text


def test_runs_on_a_file_that_was_changed_are_two_data_sets():
    erm = seeds_of("erm", [30.0, 31.0], fingerprint="aaaaaaaa")
    lff = seeds_of("lff", [40.0, 41.0], fingerprint="bbbbbbbb")
    first, second = summary(erm + lff)
    assert first.startswith("On toy, content aaaaaa, ") and second.startswith("On toy, content bbbbbb, ")
    assert len(summary(erm + seeds_of("lff", [40.0, 41.0], fingerprint="aaaaaaaa"))) == 1
    by_seed = [seeds_of(m, [v], seeds=[s], seed=s, fingerprint=f"f{s}")[0]
               for m, v in (("erm", 30.0), ("lff", 40.0)) for s in range(3)]  # fmt: skip
    assert len(summary(by_seed)) == 1 and "mean of 3 seeds" in summary(by_seed)[0]


def test_curves_break_between_stages_and_skip_what_was_not_measured():
    history = [
        {"stage": "one", "loss": 4.0, "val_accuracy": 20.0},
        {"stage": "one", "loss": float("nan")},
        {"stage": "two", "loss": 2.0, "val": {"conflicting": 100.0}},
        {"stage": "two", "loss": None, "val": {"conflicting": 0.0}},
    ]
    found = lines.curves({"history": history})
    loss, accuracy = found["panels"]
    middle = (lines.TOP + lines.BOTTOM) / 2
    assert [t["text"] for t in loss["ticks"]] == ["0", "2.5", "5"]
    # 4 of 5, then 2 of 5, each a single point; the axis runs from BOTTOM to TOP
    heights = [lines.BOTTOM - (lines.BOTTOM - lines.TOP) * v / 5 for v in (4, 2)]
    assert loss["lines"][0]["path"] == "".join(
        f"M{x} {y:.2f}L{x} {y:.2f}" for x, y in zip(("12.50", "62.50"), heights, strict=True)
    )
    paths = {line["name"]: line["path"] for line in accuracy["lines"]}
    assert paths["conflicting"] == f"M62.50 {lines.TOP:.2f}L87.50 {lines.BOTTOM:.2f}"
    assert paths["accuracy"].startswith("M12.50")
    assert accuracy["ticks"][1]["y"] == middle
    assert found["stages"] == [{"edge": 0.0, "name": "one"}, {"edge": 50.0, "name": "two"}]


def test_long_histories_and_many_stages_stay_small():
    history = [{"stage": f"prune {i}", "stage_index": i, "loss": 1.0} for i in range(50)]
    assert len(lines.curves({"history": history})["stages"]) <= 5
    history = [{"stage": "train", "loss": 1.0 + i} for i in range(20_000)]
    path = lines.curves({"history": history})["panels"][0]["lines"][0]["path"]
    assert path.count("L") <= lines.POINTS
    assert path.endswith(f" {lines._y(20_000.0, 0, 20_000.0):.2f}")  # the last value is kept


def test_heat_maps_keep_the_order_of_values_and_show_gaps():
    groups = [
        {"label": "a", "attribute": "k", "value": "2", "accuracy": 1.0},
        {"label": "b", "attribute": "k", "value": "1", "accuracy": 2.0},
        {"label": "b", "attribute": "k", "value": "2", "accuracy": 3.0},
        {"label": "a", "attribute": "j", "value": "9", "accuracy": 4.0},
    ]
    first, second = charts.heat_maps(groups)
    assert first["values"] == ["1", "2"]
    assert [(label, [c and c["accuracy"] for c in cells]) for label, cells in first["rows"]] == [
        ("a", [None, 1.0]),
        ("b", [2.0, 3.0]),
    ]
    assert (second["attribute"], second["values"]) == ("j", ["9"])


def test_a_picture_that_is_no_png_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'sheet' is not a PNG"):
        report.write([], tmp_path / "r.html", pictures=[("sheet", b"<svg/>")])
    assert not (tmp_path / "r.html").exists()


def test_writing_does_not_import_torch(tmp_path):
    code = (
        "import sys; from spurless import report; "
        f"report.write([{{'method': 'erm', 'scores': {{'average': 90.0}}}}], {str(tmp_path / 'r.html')!r}); "
        "sys.exit(bool({'torch', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    assert "90.0" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_same_rows_give_the_same_page(three):
    assert report.render(three, "t") == report.render(three, "t")
    assert tables.names(three) == ["erm, seed 0", "lff, seed 1", "pgd, seed 2"]


def test_the_runs_of_a_benchmark_come_row_by_row(tmp_path):
    from spurless.bench import Trial
    from spurless.bench.run import run_trials
    from spurless.report.sources import find

    data, net = {"name": "toy", "n": 40}, {"name": "linear"}
    cells = [
        Trial(data, {"name": method}, net, {"epochs": 1}, seed, labels={"block": "B", "row": method, "grid": ""})
        for seed in range(3)
        for method in ("rs", "erm")
    ]
    run_trials(cells, tmp_path, device="cpu", workers=1)
    found = [(row["method"], row["seed"]) for row in find([tmp_path]).runs]
    assert found == [(method, seed) for method in ("rs", "erm") for seed in range(3)]
    (tmp_path / "rows.jsonl").write_text("{")
    assert sorted(row["seed"] for row in find([tmp_path]).runs) == [0, 0, 1, 1, 2, 2]

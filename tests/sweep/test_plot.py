"""The plot, the tables and the report of a sweep."""

import io

import pytest

from spurless.bench.points import Point, ranges
from spurless.report import normalised, studies
from spurless.sweep import terminal
from spurless.sweep.axes import Axis
from spurless.sweep.plot import by_chance, draw, panel, places, scales
from spurless.sweep.plot import normalised as scaled
from tests.support.sweeps import LR, points, row


def test_what_is_out_of_range_does_not_stretch_the_scales():
    found = points([row(unbiased=60)], [row(unbiased=80)], [row(status="diverged")])
    found.append(Point(10.0, [], {"unbiased": {"mean": 5.0, "n": 1}}, in_range=False))
    assert scales([(LR, found)])["unbiased"] == (60, 80)
    assert [scaled(v, (60, 80)) for v in (60, 70, 80)] == [0, 0.5, 1]


def test_what_changes_no_more_than_seeds_do_is_said_to_be_chance():
    up = points([row(0, 60, csi=0.2), row(1, 64, csi=0.4)], [row(0, 80, csi=0.4), row(1, 82, csi=0.3)])
    assert by_chance([(LR, up)]) == {"csi", "prunability"}  # 0.3 to 0.35, and seeds are 0.2 apart; always 0.5
    assert by_chance([(LR, points([row(csi=0.2)], [row(csi=0.4)]))]) == {"unbiased", "prunability"}  # constant ones
    (chart,) = normalised.charts([{"name": "", "points": [p.row("lr") for p in up]}], "lr")
    bands = {line["name"]: line["band"] for line in chart["lines"]}
    assert bands["class selectivity (CSI), 0.30 to 0.35 (seeds differ as much)"] == ""
    assert bands["unbiased accuracy, 62.0 to 81.0 %"] != ""


def test_several_sweeps_share_their_scales():
    low, high = points([row(unbiased=60)], [row(unbiased=70)]), points([row(unbiased=65)], [row(unbiased=90)])
    assert scales([(LR, low), (LR, high)])["unbiased"] == (60, 90)


def test_values_stand_where_they_should():
    assert places(Axis("lr", "recipe.lr", (0.01, 0.1, 10.0))) == [0.0, pytest.approx(2 / 3, abs=1e-6), 2.0]
    assert places(Axis("b", "recipe.batch_size", (100, 10, 1))) == [0.0, 1.0, 2.0]  # extreme to the right
    assert places(Axis("m", "recipe.momentum", (0.0, 0.9, 0.99))) == [0.0, 1.0, 2.0]
    assert places(Axis("lr", "recipe.lr", (0.1,))) == [0.0]


def test_the_report_draws_the_points_in_range_and_says_why_others_are_not():
    found = points([row(0, 60, csi=0.2), row(1, 64, csi=0.3)], [row(0, 80, csi=0.5), row(1, 82, csi=0.5)],
                   [row(0, status="diverged"), row(1)])  # fmt: skip
    saved = [{"name": "", "points": [p.row("lr") for p in found]}]
    (chart,) = normalised.charts(saved, "lr")
    named = {line["name"]: line for line in chart["lines"]}
    line = named["class selectivity (CSI), 0.25 to 0.50"]
    assert [dot["text"] for dot in line["dots"]] == [
        "class selectivity (CSI) 0.250 at lr 0.01",
        "class selectivity (CSI) 0.500 at lr 0.1",
    ]
    assert "unbiased accuracy, 62.0 to 81.0 %" in named
    first, second = (float(dot["d"].split()[1].removesuffix("h0")) for dot in line["dots"])
    assert first > second  # the greater value is further up, where y is less
    top, bottom = (
        float(place.split()[1].rstrip("Z")) for place in line["band"].split("L")[:: len(line["dots"]) * 2 - 1]
    )
    assert top < first < bottom  # at the first value: its highest seed, its mean, its lowest
    made = studies.sweep(
        {"over": "lr", "points": saved[0]["points"], "text": "Choose lr = 0.1.\n\nBy val.", "rule": "By val."}
    )
    assert made.lead == ["Choose lr = 0.1."]
    assert made.sections[0].note == "By val."
    table = made.sections[0].data
    assert [cells[0]["text"] for cells in table["rows"]] == ["0.01", "0.1", "1.0, diverged"]
    csi = table["headings"].index("csi")
    assert table["rows"][1][csi]["text"].startswith("0.500")


def test_a_report_on_accuracies_alone_has_no_chart_of_all_measures():
    assert normalised.charts([{"points": [{"value": 1, "unbiased": {"mean": 50.0, "n": 1}}]}], "lr") == []


def test_the_plot_shows_seeds_the_choice_and_why_a_value_is_out():
    from matplotlib.figure import Figure

    found = points([row(0, 60), row(1, 64)], [row(0, 80), row(1, 84)], [row(0, status="diverged"), row(1, 90)])
    axes = Figure().subplots()
    panel(axes, LR, found, scales([(LR, found)]), {"prunability"}, chosen=0.1)
    (unbiased, thin, chosen) = axes.lines
    assert unbiased.get_ydata().tolist() == [0, 1] and thin.get_linestyle() == "--"
    assert chosen.get_xdata() == [unbiased.get_xdata()[1]] * 2
    (band,) = axes.collections  # of seeds 2 points from a mean, where 20 points are the whole scale; none for the thin
    assert sorted({round(float(y), 6) for y in band.get_paths()[0].vertices[:, 1]}) == [-0.1, 0.1, 0.9, 1.1]
    assert [text.get_text() for text in axes.texts] == ["diverged"]


@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_name_with_dollars_is_no_formula(tmp_path, sweeps):
    found = points([row(0, 60)], [row(0, 80)], [row(0, 90)])
    draw([(LR, found)] * sweeps, tmp_path / "plot.png", r"erm on a$\frac$b")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_tables_on_the_screen():
    from rich.console import Console

    def lines(table):
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(table)
        return [line.split() for line in console.export_text().splitlines() if line.strip()]

    found = points([row(0, 60, csi=0.25)], [row(status="diverged")], [row(0, 90, csi=0.5)])
    part = {"name": "lr", "points": [p.row("lr") for p in found], "ranges": ranges(found), "choice": {"value": 0.01}}
    shown = lines(terminal.table(part))
    assert shown[0] == ["lr", "unbiased", "confl.", "prun.", "CSI", "valid.", "train"]
    assert shown[2] == ["0.01", "*", "60.0", "40.0", "0.50", "0.25", "90.0", "100.0"]
    assert shown[3] == ["0.1", "diverged", *"–––––"]
    assert shown[4][:3] == ["1", "†", "90.0"]
    up = points([row(0, 60, csi=0.25)], [row(0, 70.5, csi=0.125)])
    both = {"name": "l2", "points": [p.row("l2") for p in up], "ranges": ranges(up)}
    shown = lines(terminal.comparison([part, both]))
    assert shown[2] == ["lr", "0.01", "60.0–60.0", "40.0–40.0", "0.50–0.50", "0.25–0.25"]
    assert shown[3] == ["l2", "0.01–0.1", "60.0–70.5", "40.0–50.5", "0.50–0.50", "0.12–0.25"]

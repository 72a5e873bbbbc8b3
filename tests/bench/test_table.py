"""Tables as computed by hand, in every form."""

import csv
import json
import os
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from spurless.bench import table as tables
from spurless.bench.compare import compare
from spurless.bench.figures import beside, entries
from spurless.bench.remarks import remarks
from spurless.bench.reproduce import write_page
from spurless.bench.rows import flat_row, write_parquet
from spurless.bench.selection import read_rows
from spurless.bench.spec import make_spec
from spurless.core.stats import estimate
from tests.support.trials import TOY, run, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_the_figures_of_the_table_by_hand(measured):
    found = {(e.line.row, e.line.grid["data.rho"]): e for e in entries(*measured)}
    one = found["Vanilla", "0.05"]
    # mean 62, deviations -2, 0, 2: variance 8 / 2, std 2; t(0.975, 2) = 4.30265, half = 4.30265 · 2 / √3 = 4.96827
    assert (one.ours.n, one.ours.value, one.ours.sd) == (3, 62.0, 2.0)
    assert one.ours.low == pytest.approx(57.03173, abs=1e-5) and one.ours.high == pytest.approx(66.96827, abs=1e-5)
    assert one.difference == pytest.approx(62 - 60.94) and one.paper == "60.94 ± 0.97"
    assert (one.selection, one.labels, one.seconds, one.remark) == ("last", "none", 3.0, "")
    single = found["Vanilla", "0.2"]
    assert (single.ours.n, single.ours.sd, single.ours.low, single.remark) == (1, None, None, "2 to do")
    assert single.difference == 0.0
    two = found["LfF", "0.05"]
    assert (two.ours.n, two.ours.value, two.remark) == (2, 2.0, "1 diverged")
    assert two.seconds == 2.5  # of seeds 0 and 1: the one that diverged counts nowhere
    assert found["LfF", "0.2"].ours.known is False and found["LfF", "0.2"].remark == "1 failed, 2 to do"
    assert found["EnD", "0.05"].remark == "not run" and found["EnD", "0.05"].paper == "50.0"


def test_small_worst_groups_and_missing_classes_are_remarked(measured):
    spec, rows = measured
    spec = replace(spec, lines=[replace(line, metric="worst_group") for line in spec.lines])
    sizes = {"min_size": 10, "missing_classes": []}
    for row in rows:
        if row["status"] == "done":
            row["scores"] |= {"worst_group": row["scores"]["unbiased"], "n": {"worst_group": 2 + row["seed"]}} | sizes

    def remark(row, rho):
        return next(e.remark for e in entries(spec, rows) if (e.line.row, e.line.grid["data.rho"]) == (row, rho))

    assert remark("Vanilla", "0.05") == "worst group with n = 2 to 4 samples"
    assert remark("LfF", "0.05") == "1 diverged, worst group with n = 2 to 3 samples"
    for form in (tables.markdown, tables.latex, tables.as_csv):
        assert "worst group with n = 2 to 4 samples" in form(spec, rows)
    assert tables.as_json(spec, rows)[0]["remark"] == "worst group with n = 2 to 4 samples"
    console = Console(file=StringIO(), width=100)
    console.print(tables.terminal(spec, rows))
    assert "n = 2 to 4 samples." in console.file.getvalue()
    for row in rows:
        if row["status"] == "done" and row["method"] == "erm":
            row["scores"] |= {"worst_group": None, "n": {"worst_group": 0}, "missing_classes": ["cat"]}
    assert remark("Vanilla", "0.05") == "3 without worst_group (a class has no samples)"
    for row in rows:  # as rows were before sizes were recorded
        if row["status"] == "done":
            row["scores"] = {"worst_group": 1.0, "n": {"worst_group": 2}}
    assert remark("Vanilla", "0.05") == ""


def test_no_spreadsheet_runs_a_label(measured):
    spec, rows = measured
    hostile = ['=cmd|" /C calc"!A0', "@SUM(1)", "+1+1", "-1+1", "\t=1", "-0.5"]
    lines = [replace(line, row=text) for line, text in zip(spec.lines, hostile, strict=False)]
    read = [line["method"] for line in csv.DictReader(StringIO(tables.as_csv(replace(spec, lines=lines), rows)))]
    assert read == [text if text == "-0.5" else f"'{text}" for text in hostile[: len(lines)]] and len(read) > 4


def test_what_did_not_end_well_counts_nowhere_even_with_scores(measured):
    spec, rows = measured
    for row in rows:
        if row["status"] != "done":
            row |= {"scores": {"unbiased": 99.0}, "selection": "best", "sparsity": 50.0}
        row["date"] = f"2024-01-0{1 + row['seed']}"
    found = {(e.line.row, e.line.grid["data.rho"]): e for e in entries(spec, rows)}
    two, none = found["LfF", "0.05"], found["LfF", "0.2"]
    assert (two.ours.n, two.ours.value, two.selection, two.beside) == (2, 2.0, "last", {})
    assert (none.ours.n, none.ours.known, none.seconds) == (0, False, None)
    assert "Measured 2024-01-01 to 2024-01-03 on a box." in remarks(spec, rows)
    assert beside([{"sparsity": 0.0}]) == {}  # a column of zeros would say nothing


def test_an_interval_of_percentages_ends_where_they_do(measured):
    spec, rows = measured
    for row in rows:
        if row["status"] == "done":
            row["scores"]["unbiased"] = 100.0 - row["seed"]
    found = next(e for e in entries(spec, rows) if e.ours.n == 3)
    assert (found.ours.value, found.ours.limits()) == (99.0, "[96.52–100.00]")
    assert estimate([100.0, 99.0, 98.0]).limits() == "[96.52–101.48]"  # of differences, say


def test_the_printed_forms_say_the_same(measured):
    spec, rows = measured
    text = tables.markdown(spec, rows)
    line = next(line for line in text.splitlines() if "Vanilla" in line and "0.05" in line)
    assert line == (
        "| Toy | Vanilla | 0.05 | 62.00 ± 2.00 | [57.03–66.97] | 3 | 60.94 ± 0.97 | +1.06 | last | none | 3.0 | – |"
    )
    for said in (
        "Published: Nobody 2024, table 0.",
        "Student's t over seeds",
        "the toy stands in for everything",
        "EnD was not run: it needs what is not here",
        "lff on toy failed: why",
        "Measured 2024-01-01 on a box.",
    ):
        assert said in text and said.replace("'", "'") in tables.latex(spec, rows), said
    assert r"$62.00 \pm 2.00$ & [57.03--66.97] & 3 & $60.94 \pm 0.97$ & +1.06" in tables.latex(spec, rows)
    body = list(csv.DictReader(tables.as_csv(spec, rows).splitlines()))
    assert len(body) == 6 and float(body[0]["mean"]) == 62 and float(body[0]["paper_mean"]) == 60.94
    assert (float(body[0]["low95"]), float(body[0]["high95"])) == pytest.approx((57.03173, 66.96827), abs=1e-5)
    assert body[0]["data.rho"] == "0.05" and body[4]["mean"] == "" and body[4]["paper"] == "50.0"
    whole = tables.as_json(spec, rows)
    assert whole[0]["ours"]["n"] == 3 and whole[4]["missing"] == "it needs what is not here"


def test_scores_on_different_contents_of_the_same_data_are_said(measured):
    spec, rows = measured

    def said(contents, **data):
        made = [
            row | {"settings": {"data": {"name": "toy", "rho": row["labels"]["grid"], **data, "fingerprint": content}}}
            for row, content in zip(rows, contents, strict=True)
        ]
        return [text for text in remarks(spec, made) if "different contents" in text]

    same = [row["labels"]["grid"] for row in rows]  # each ratio is data of its own
    assert said(same) == []
    changed = ["new" if row["labels"]["row"] == "Vanilla" and row["seed"] == 1 else old
               for row, old in zip(rows, same, strict=True)]  # fmt: skip
    (text,) = said(changed)
    assert "Vanilla, 0.05; " in text and "LfF, 0.05: trained on 2 different contents of the same data." in text
    assert "0.2" not in text
    changed = ["new" if row["status"] != "done" else old for row, old in zip(rows, same, strict=True)]
    assert said(changed) == []  # what did not end well counts nowhere


def test_the_heading_says_a_setting_only_if_every_line_has_it():
    from rich.console import Console

    rows = [{"label": "ERM", "method": "erm"}, {"label": "LfF", "method": "lff", "over": {"data.rho": [0.05]}}]

    def printed(rows):
        console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        console.print(tables.terminal(make_spec({"block": [{"data": TOY, "row": rows}]}), []))
        console.file.close()
        return console.export_text()

    text = printed(rows)
    assert "data.rho: 0.05" not in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("ERM", "LfF"))] == [
        ["ERM", "–"],
        ["LfF", "0.05"],
    ]
    assert "data.rho: 0.05" in printed([row | {"over": {"data.rho": [0.05]}} for row in rows])


def test_zeros_are_the_mean_of_all_runs_that_know_them():
    assert beside([{"sparsity": 60.0}, {"sparsity": 0.0}, {}]) == {"zeros, %": "30.0"}


def test_rows_of_an_older_specification_are_marked_in_the_list(tmp_path):
    run([trial(), trial(method="pgd")], tmp_path)
    run([trial()], tmp_path)
    listed = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["method"], row.get("listed")) for row in listed] == [("erm", None), ("pgd", False)]
    assert [row.get("listed") for row in read_rows(tmp_path)] == [None, False]


def test_rows_by_one_name_in_several_blocks_all_have_their_texts():
    """Where the texts differ, each is said with its blocks; where they are the same, once and without."""
    said = {"A": ("slow", "no data"), "B": ("slow", "no code"), "C": ("fast", "no data")}
    blocks = [
        {
            "label": label,
            "data": TOY,
            "over": {"data.rho": [0.1, 0.2]},
            "row": [
                {"label": "ERM", "method": "erm", "note": note},
                {"label": "LfF", "method": "lff", "note": "as published"},
                {"label": "EnD", "missing": why},
                {"label": "PGD", "missing": "no time"},
            ],
        }
        for label, (note, why) in said.items()
    ]
    texts = remarks(make_spec({"block": blocks}), [])[1:]  # after what the figures are
    assert texts == [
        "EnD (A; C) was not run: no data",
        "EnD (B) was not run: no code",
        "PGD was not run: no time",
        "ERM (A; B): slow",
        "ERM (C): fast",
        "LfF: as published",
    ]


def test_the_terminal_table_fits_and_loses_nothing(measured):
    from rich.console import Console

    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(tables.terminal(*measured))
    text = console.export_text()
    console.file.close()
    for part in ("62.00 ± 2.00", "[57.03–66.97]", "60.94 ± 0.97", "+1.06", "not run", "selection: last"):
        assert part in text
    assert "LfF, 0.05: 1 diverged." in re.sub(r"\s+", " ", text)


def test_the_terminal_table_says_a_name_where_it_is_new():
    from rich.console import Console

    over = {"data": "toy", "over": {"data.rho": [0.1, 0.2]}, "methods": ["lff", "erm"]}
    spec = make_spec({"block": [over | {"label": "One thing"}, over | {"label": "Another", "methods": ["erm", "pgd"]}]})
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(tables.terminal(spec, []))
    text = console.export_text()
    console.file.close()
    table = [line.split() for line in text.splitlines()[2:] if " 0.1 " in line or " 0.2 " in line]
    names = [" ".join(line[: next(i for i, word in enumerate(line) if word in ("0.1", "0.2"))]) for line in table]
    assert names == [
        "One thing lff",
        "",
        "erm",
        "",
        "Another erm",
        "",
        "pgd",
        "",
    ]
    assert (text.count("thing"), text.count("Another")) == (1, 1)


def test_parquet_holds_the_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = run([trial(), trial(method="pgd"), trial(lr=1e38, optimizer="sgd")], tmp_path)
    table = parquet.read_table(write_parquet(rows, tmp_path / "rows.parquet")).to_pylist()
    assert [row["method"] for row in table] == ["erm", "pgd", "erm"]
    assert table[0]["scores.unbiased"] == rows[0]["scores"]["unbiased"] and table[2]["scores.unbiased"] is None
    assert json.loads(table[1]["settings"])["method"]["name"] == "pgd"
    assert flat_row(rows[1])["mining.mined.precision"] == rows[1]["mining"]["mined"]["precision"]


def two_samples(spec, n=2):
    """Rows of two methods: the worst group of the first has so few samples in one run, and 40 in the others."""
    rows = []
    for line in spec.lines:
        for one in line.trials:
            few = n if line.row == "erm" and one.seed == 1 else 40
            value = (0.0 if line.row == "erm" else 50.0) + one.seed
            scores = {"worst_group": value, "n": {"worst_group": few}, "min_size": 10, "unbiased": 70.0}
            row = {"key": one.key, "status": "done", "method": one.method["name"], "data": "toy", "seed": one.seed}
            row |= {"labels": one.labels, "scores": scores, "settings": {"data": {"name": "toy"}, "seed": one.seed}}
            rows.append(row | {"labels_used": "none", "selection": "last", "seconds": 1.0})
    return rows


@pytest.fixture
def tiny_group():
    block = {"data": TOY, "methods": ["erm", "lff"]}
    spec = make_spec({"metric": "worst_group", "seeds": list(range(8)), "block": [block]})
    return spec, two_samples(spec)


def test_a_worst_group_of_two_samples_has_its_n_in_every_form(tiny_group, tmp_path):
    spec, rows = tiny_group
    assert "3.50 ± 2.45 (n = 2)" in tables.markdown(spec, rows)
    assert r"$3.50 \pm 2.45$ (n = 2)" in tables.latex(spec, rows)
    (erm, lff) = csv.DictReader(StringIO(tables.as_csv(spec, rows)))
    assert (erm["worst_group_n"], lff["worst_group_n"]) == ("2", "40") and "n = 2" in erm["remark"]
    assert [line["worst_group_n"] for line in tables.as_json(spec, rows)] == [2, 40]
    console = Console(width=100, record=True, file=StringIO())
    console.print(tables.terminal(spec, rows))
    assert "(n = 2)" in console.export_text()
    html = tables.BenchTable(spec, rows)._repr_html_()
    assert "(n = 2)" in html and "(n = 40)" not in html
    page = write_page(spec, rows, tmp_path).read_text()
    assert "(n = 2)" in page
    assert "(n = " not in tables.markdown(spec, two_samples(spec, 40))


def test_compare_decides_nothing_by_a_group_of_two_samples(tiny_group, tmp_path):
    spec, rows = tiny_group
    for made, verdict in ((rows, "small group"), (two_samples(spec, 10), "real")):
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, made)))
        found = compare([str(tmp_path / "rows.jsonl")])
        assert [(line.n, line.verdict) for line in found.lines] == [(8, verdict)]
    assert repr(found) == "Comparison(worst_group: 1 differences, 1 real)"
    assert "+50.00" in found._repr_html_()


def test_a_table_and_a_comparison_draw_themselves(tiny_group, tmp_path):
    spec, rows = tiny_group
    axes = tables.BenchTable(spec, rows).plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["erm", "lff"]
    means = sorted(line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1)
    assert means == [3.5, 53.5]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    other = compare([str(tmp_path / "rows.jsonl")]).plot()
    assert "worst group" in other.get_xlabel() and "lff - erm" in other.get_yticklabels()[0].get_text()
    assert repr(tables.BenchTable(spec, rows)).endswith("2 lines, 16 of 16 trials done)")

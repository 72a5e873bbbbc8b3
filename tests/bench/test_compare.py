"""Which differences are real: the statistics against scipy and by hand, planted differences, and rows from anywhere."""

import io
import json
import re

import numpy as np
import pytest
import typer
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from spurless.bench.claim import write_row
from spurless.bench.compare import EVERYWHERE, as_json, compare, terminal
from spurless.bench.judging import FEW, REAL, SMALL, UNSHOWN, Difference, flip_p, judge, p_value, pairs_needed
from spurless.bench.naming import name_rows
from spurless.bench.selection import read_rows
from spurless.cli import bench as cli_bench
from spurless.core.errors import UserError
from spurless.core.stats import holm


def row(method, value, seed, rho=0.1, labels=None, **settings):
    made = {"method": method, "data": "toy", "net": "mlp", "seed": seed, "status": "done", "labels": labels or {}}
    made |= {"key": f"{method}-{rho}-{seed}-{settings}", "scores": {"unbiased": value, "average": 100 - value}}
    data = {"name": "toy", "rho": rho, "seed": 0, "fingerprint": str(seed)}
    return made | {"settings": {"seed": seed, "method": {"name": method} | settings, "data": data}}


def lines(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def many(effect, seeds=8, rhos=(0.1,), noise=0.5, method="pgd", start=0):
    """Vanilla around 60, and `method` better by `effect`, both with a part that the seed decides."""
    g = np.random.default_rng(start)
    rows = []
    for rho in rhos:
        for seed in range(seeds):
            base = 60 + 10 * g.standard_normal()
            rows.append(row("erm", base + noise * g.standard_normal(), seed, rho))
            rows.append(row(method, base + effect + noise * g.standard_normal(), seed, rho))
    return rows


# The statistics


def test_sign_flips_by_hand():
    # Of the eight ways to flip 1, 2, 4 only the two that flip none or all reach a sum of 7.
    assert flip_p([1, 2, 4]) == 2 / 8
    # |±1 ±2 ±4| with one sign against the others: 1 - 2 + 4 = 3; at least 3: 7, 5, 3 and their mirrors, not 1.
    assert flip_p([1, -2, 4]) == 6 / 8
    assert flip_p([0.1, 0.2, -0.3]) == 1.0  # a sum of 0, up to rounding
    assert flip_p([0.0, 0.0]) == 1.0
    # What is rounding is told by the differences, however small they are all.
    assert p_value([1e-10 * (1 + s) for s in range(8)])[0] == 2 / 2**8
    assert flip_p([1e-11, 2e-11, -3e-11]) == 1.0


@pytest.mark.parametrize("n", [2, 5, 9])
def test_sign_flips_are_scipys_exact_permutation_test(n):
    g = np.random.default_rng(n)
    a, b = g.standard_normal(n), g.standard_normal(n) + 0.5

    def total(x, y, axis):
        return np.mean(y - x, axis=axis)

    found = stats.permutation_test((a, b), total, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert flip_p(b - a) == pytest.approx(found.pvalue)


def test_many_pairs_are_scipys_paired_t_test():
    g = np.random.default_rng(0)
    a, b = g.standard_normal(30), g.standard_normal(30) + 0.3
    p, test = p_value(list(b - a))
    assert test == "paired t" and p == pytest.approx(stats.ttest_rel(b, a).pvalue)
    assert p_value([0.0] * 20)[0] == 1.0 and p_value([1.0] * 20)[0] == 0.0


def test_the_interval_is_scipys_paired_t_interval(tmp_path):
    rows = many(effect=2.0, seeds=7)
    found, _ = compare([lines(tmp_path / "r.jsonl", rows)])
    mine = [r["scores"]["unbiased"] for r in rows if r["method"] == "erm"]
    yours = [r["scores"]["unbiased"] for r in rows if r["method"] == "pgd"]
    expected = stats.ttest_rel(yours, mine).confidence_interval(0.95)
    assert (found[0].low, found[0].high) == pytest.approx(tuple(expected))
    assert found[0].difference == pytest.approx(np.mean(yours) - np.mean(mine))
    assert (found[0].mean_a, found[0].mean_b) == pytest.approx((np.mean(mine), np.mean(yours)))


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.04, times 3, 2, 1: 0.03, 0.04, 0.04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    # 0.01 · 4 = 0.04; 0.02 · 3 = 0.06; 0.022 · 2 = 0.044, which may not undercut the 0.06 before; 0.9.
    assert holm([0.9, 0.02, 0.01, 0.022]) == pytest.approx([0.9, 0.06, 0.04, 0.06])
    assert holm([0.7, 0.8]) == [1.0, 1.0] and holm([]) == []


def made(n, p):
    return Difference("w", "a", "b", n, 0, 0, 0, None, None, p, "t")


def test_verdicts():
    assert [line.verdict for line in judge([made(8, 0.01), made(8, 0.3)])] == [REAL, UNSHOWN]
    assert [line.verdict for line in judge([made(3, 0.25)])] == [FEW]  # the smallest p that three pairs can give
    assert judge([made(6, 1 / 32)])[0].verdict == REAL
    assert {line.verdict for line in judge([made(6, 1 / 32)] * 2)} == {FEW}  # 1/32 · 2 is above 0.05
    assert [line.verdict for line in judge([made(6, 1 / 32), made(12, 0.001)])] == [REAL, REAL]  # Holm: 1/32 · 1
    assert pairs_needed(2) == 7


def test_chance_alone_is_called_real_rarely(tmp_path):
    """Twelve nulls at a time, 150 times: some false alarm in 5 % of the times at most (here n is large enough)."""
    g = np.random.default_rng(7)
    alarms = 0
    for _ in range(150):
        family = [made(10, flip_p(g.standard_normal(10))) for _ in range(12)]
        alarms += any(line.verdict == REAL for line in judge(family))
    assert alarms <= 15  # 7.5 are expected at most; 15 or more would have a chance of 1 %


# What is compared with what


def test_a_planted_difference_is_found_and_chance_is_not(tmp_path):
    real, notes = compare([lines(tmp_path / "real.jsonl", many(effect=1.5, seeds=8))])
    assert [line.verdict for line in real] == [REAL] and (real[0].a, real[0].b, real[0].n) == ("erm", "pgd", 8)
    assert "sign flips, exact" in notes[0]
    chance, _ = compare([lines(tmp_path / "null.jsonl", many(effect=0.0, seeds=8))])
    assert [line.verdict for line in chance] == [UNSHOWN]


def test_pairing_is_what_finds_it(tmp_path):
    """The seed moves both by 10 points, the effect is 1.5: without pairs it could not be seen."""
    rows = many(effect=1.5, seeds=8)
    a, b = ([r["scores"]["unbiased"] for r in rows if r["method"] == m] for m in ("erm", "pgd"))
    assert stats.ttest_ind(a, b).pvalue > 0.5
    assert compare([lines(tmp_path / "r.jsonl", rows)])[0][0].verdict == REAL


def test_settings_are_compared_together_and_each(tmp_path):
    path = lines(tmp_path / "r.jsonl", many(effect=4.0, seeds=6, rhos=(0.1, 0.2, 0.3)))
    found, notes = compare([path])
    assert [(line.where, line.n) for line in found] == [
        (EVERYWHERE, 6), ("toy, rho 0.1", 6), ("toy, rho 0.2", 6), ("toy, rho 0.3", 6),
    ]  # fmt: skip
    assert [line.verdict for line in found] == [REAL, FEW, FEW, FEW]
    # Corrected among themselves: the question 'overall?' is one comparison.
    assert found[0].p_corrected == found[0].p == 2 / 2**6 and found[1].p_corrected == pytest.approx(6 / 2**6)
    assert found[0].difference == pytest.approx(np.mean([line.difference for line in found[1:]]))
    assert "all together over n seeds" in notes[0]
    assert any("3 of 3 comparisons cannot tell anything: with 6 pairs" in n and "7 pairs each" in n for n in notes)


def test_a_seed_in_many_settings_counts_once(tmp_path):
    """No difference, but a seed's luck is nearly the same in all settings: as pairs of their own, they would be called
    real in a third of the cases. 150 times, so 7.5 are expected at most; 15 or more would have a chance of 1 %."""
    g = np.random.default_rng(3)
    alarms = as_pairs = 0
    for _ in range(150):
        luck = g.standard_normal(8)
        rows = [
            row(method, 60 + (method == "pgd") * (luck[seed] + 0.1 * g.standard_normal()), seed, rho)
            for seed in range(8) for rho in (0.1, 0.2, 0.3, 0.4) for method in ("erm", "pgd")
        ]  # fmt: skip
        (overall,) = [line for line in compare([lines(tmp_path / "r.jsonl", rows)])[0] if line.where == EVERYWHERE]
        alarms += overall.verdict == REAL
        scores = np.array([r["scores"]["unbiased"] for r in rows]).reshape(-1, 2)  # by pair: erm, pgd
        as_pairs += p_value(list(scores[:, 1] - scores[:, 0]))[0] < 0.05
    assert overall.n == 8 and alarms < 15 and as_pairs > 35, "the data would show the mistake"


def test_of_trainings_that_nothing_tells_apart_the_first_counts_and_that_is_said(tmp_path):
    rows = many(effect=2.0, seeds=6)
    old = [r | {"key": f"old {r['key']}", "scores": {"unbiased": 0.0}} for r in rows if r["method"] == "pgd"]
    once, notes = compare([lines(tmp_path / "once.jsonl", rows)])
    twice, more = compare([lines(tmp_path / "twice.jsonl", rows + old)])
    assert twice == once and not any("left out" in note for note in notes)
    assert "6 results have the name, data and seed of another one and are left out; the first counts." in more


def test_what_only_one_of_two_places_has_is_named(tmp_path):
    both, more = many(effect=2.0), many(effect=1.0, method="lff")
    a, b = lines(tmp_path / "a.jsonl", both + more), lines(tmp_path / "b.jsonl", both)
    found, notes = compare([a, b])
    assert {line.a for line in found} == {f"erm ({a})", f"pgd ({a})"} and f"Only in {a}, and left out: lff." in notes
    with pytest.raises(UserError, match="--against is for one place"):
        compare([a, b], against="erm")


def test_seeds_without_a_partner_and_runs_that_failed_are_left_out_and_counted(tmp_path):
    rows = [*many(effect=2.0, seeds=6), row("erm", 1.0, 77), row("pgd", 2.0, 78) | {"status": "diverged"}]
    found, notes = compare([lines(tmp_path / "r.jsonl", rows)])
    assert found[0].n == 6
    assert "1 results did not end well and are left out." in notes
    assert any("erm and pgd: 1 results have no partner" in note for note in notes)


def test_a_training_in_several_places_of_a_table_is_one_pair(tmp_path):
    """Tables print several scores of the same runs, each in a block of its own: four seeds must not become twelve."""
    blocks = {"Toy, conflicting": "conflicting", "Toy, recall": "recall", "Toy, unbiased": "unbiased"}
    rows = [
        r | {"labels": {"block": block, "row": r["method"], "metric": metric}}
        for block, metric in blocks.items()
        for r in many(effect=5.0, seeds=4)
    ]
    lost = [r | {"status": "failed", "key": "lost"} for r in rows if r["method"] == "erm" and r["seed"] == 0]
    path = lines(tmp_path / "r.jsonl", rows + lost)
    found, notes = compare([path])
    assert [(line.where, line.n, line.verdict) for line in found] == [("Toy, unbiased", 4, FEW)]
    assert "1 results did not end well and are left out." in notes
    # No block is about this score: still once.
    assert [(line.where, line.n) for line in compare([path], metric="average")[0]] == [("Toy, conflicting", 4)]
    # Other trainings of the same seeds are pairs of their own.
    more = [r | {"labels": {"block": "More", "row": r["method"]}} for r in many(effect=5.0, seeds=4, rhos=(0.2,))]
    found, _ = compare([lines(tmp_path / "more.jsonl", rows + more)], metric="unbiased")
    assert [(line.where, line.n) for line in found] == [(EVERYWHERE, 4), ("More", 4), ("Toy, unbiased", 4)]


def test_rows_of_one_training_for_several_scores_are_not_compared_with_each_other(tmp_path):
    """ERM's row for one score and its row for another are the same runs, asked for a third score."""
    rows = [
        r | {"labels": {"block": "Toy", "row": f"{r['method']}, {metric}", "grid": "", "metric": metric}}
        for r in many(effect=5.0, seeds=7)
        for metric in ("unbiased", "worst_group")
    ]
    path = lines(tmp_path / "r.jsonl", rows)
    found, notes = compare([path], metric="average")
    assert [(c.a, c.b, c.n) for c in found] == [("erm, unbiased", "pgd, unbiased", 7)]
    assert found[0].verdict == REAL and "corrected (Holm) for 1 comparison." in notes[0]
    named, _ = compare([path, "erm, worst_group", "pgd, worst_group"], metric="average")
    assert [(c.a, c.b, c.p_corrected) for c in named] == [("erm, worst_group", "pgd, worst_group", 2 / 2**7)]
    # In blocks of their own, too: a couple of the same trainings is none.
    more = [r | {"labels": r["labels"] | {"block": f"Toy, {r['labels']['metric']}"}} for r in rows]
    found, notes = compare([lines(tmp_path / "more.jsonl", more)], metric="average")
    assert {(c.a, c.b) for c in found} == {(f"erm, {m}", f"pgd, {m}") for m in ("unbiased", "worst_group")}
    assert not any("erm, unbiased and erm" in note for note in notes)


def test_trainings_on_another_content_of_the_data_are_no_pair(tmp_path):
    rows = many(effect=5.0, seeds=7)

    def on(content, r):
        data = r["settings"]["data"] | {"fingerprint": content}
        return r | {"key": r["key"] + content, "settings": r["settings"] | {"data": data}}

    old, new = [on("old", r) for r in rows], [on("new", r) for r in rows]
    half = [r for r in old if r["method"] == "erm"] + [r for r in new if r["method"] == "pgd"]
    with pytest.raises(UserError, match="nothing to pair. Results of the same seed were trained on different contents"):
        compare([lines(tmp_path / "half.jsonl", half)])
    also = [r for r in new if r["method"] == "erm" and r["seed"] < 3]
    found, notes = compare([lines(tmp_path / "also.jsonl", half + also)])
    assert [c.n for c in found] == [3] and not any("the first counts" in note for note in notes)
    assert "erm and pgd: of 4 of these the partner was trained on another content of the data." in notes
    both, _ = compare([lines(tmp_path / "both.jsonl", old + new)])
    assert [(c.where, c.n) for c in both] == [("toy", 7)]  # a seed counts once


def test_what_an_older_specification_left_in_the_folder_is_left_out(tmp_path):
    label = {"block": "Toy", "grid": "", "metric": "unbiased"}
    new = [r | {"labels": label | {"row": r["method"]}} for r in many(effect=5.0, seeds=7)]

    def changed(r, **recipe):
        return r | {"key": f"old {r['key']}", "listed": False, "settings": r["settings"] | {"recipe": recipe}}

    new = [r | {"settings": r["settings"] | {"recipe": {"epochs": 2, "compile": False}}} for r in new]
    old = [changed(r, epochs=1) for r in new]
    alone, _ = compare([lines(tmp_path / "new.jsonl", new)])
    found, notes = compare([lines(tmp_path / "r.jsonl", new + old)])
    assert found == alone and len(found) == 1
    assert "14 results of an older specification are left out: their rows have other settings by now." in notes
    # What was not asked for the last time (--seeds 5, --only pgd) is of the same specification.
    some = [r if r["seed"] < 5 and r["method"] == "pgd" else changed(r, epochs=2, compile=False) for r in new]
    found, notes = compare([lines(tmp_path / "some.jsonl", some)])
    assert [c.n for c in found] == [7]
    assert not any("older specification" in note for note in notes)


def test_a_label_is_a_rows_before_it_is_a_methods(tmp_path):
    """A row called "erm" is meant by "erm", and not every row whose method is."""
    rows = []
    for r in many(effect=5.0, seeds=3):
        calls = ((0.1, "erm"), (0.25, "erm"), (0.5, "small steps")) if r["method"] == "erm" else ((0.1, "pgd"),)
        for lr, called in calls:
            settings = r["settings"] | {"recipe": {"lr": lr}}
            labels = {"row": called, "block": "Toy"}
            rows.append(r | {"key": f"{r['key']} {lr}", "settings": settings, "labels": labels})
    path = lines(tmp_path / "r.jsonl", rows)
    assert [(c.a, c.b) for c in compare([path, "pgd"], against="erm")[0]] == [
        ("erm, lr 0.1", "pgd"),
        ("erm, lr 0.25", "pgd"),
    ]
    # A method's name will do where no row is called so.
    renamed = [r | {"labels": r["labels"] | {"row": r["labels"]["row"].upper()}} for r in rows]
    assert {c.a for c in compare([lines(tmp_path / "s.jsonl", renamed), "pgd"], against="erm")[0]} == {
        "ERM, lr 0.1", "ERM, lr 0.25", "SMALL STEPS",
    }  # fmt: skip


def test_measures_between_0_and_1_have_three_decimals(tmp_path):
    from rich.console import Console

    rows = [r | {"extra": {"csi": r["scores"]["unbiased"] / 1000}} for r in many(effect=5.0, seeds=7)]
    found, notes = compare([lines(tmp_path / "r.jsonl", rows)], metric="extra.csi")
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(terminal(found, notes))
    console.file.close()
    text = console.export_text()
    assert f"{found[0].mean_a:.3f}, {found[0].mean_b:.3f}" in text and f"{found[0].difference:+.3f}" in text
    assert f"[{found[0].low:+.3f}, {found[0].high:+.3f}]" in text


def test_another_seed_of_the_data_is_another_pair(tmp_path):
    rows = many(effect=2.0, seeds=3)
    data = rows[0]["settings"]["data"] | {"seed": 1}
    other = [r | {"key": r["key"] + "b", "settings": r["settings"] | {"data": data}} for r in rows]
    assert [line.n for line in compare([lines(tmp_path / "r.jsonl", rows + other)])[0]] == [6]


def test_a_label_that_stands_for_several_is_held_against_the_others_only(tmp_path):
    rows = many(1.0) + [
        r | {"key": f"{r['key']}{lr}", "settings": r["settings"] | {"recipe": {"lr": lr}, "net": {"name": "mlp"}}}
        for lr in (0.1, 0.2)
        for r in many(2.0, method="lff")
        if r["method"] == "lff"
    ]
    path = lines(tmp_path / "r.jsonl", rows)
    two = ("lff, lr 0.1", "lff, lr 0.2")  # told apart by the recipe
    found = {(c.a, c.b) for c in compare([path], against="lff")[0]}
    assert found == {(a, b) for a in two for b in ("erm", "pgd")}


def test_a_label_without_the_score_is_said(tmp_path):
    rows = [r | {"mining": {"recall": 50.0 + r["seed"]} if r["method"] != "erm" else None} for r in many(1.0)]
    rows += [r | {"mining": {"recall": 40.0}} for r in many(1.0, method="lff") if r["method"] == "lff"]
    path = lines(tmp_path / "r.jsonl", rows)
    with pytest.raises(UserError, match=re.escape("No result of 'erm' has the score 'mining.recall'")):
        compare([path, "erm", "pgd"], metric="mining.recall")
    assert [(c.a, c.b) for c in compare([path], metric="mining.recall")[0]] == [("pgd", "lff")]


def test_labels_and_against_restrict_the_comparisons(tmp_path):
    rows = many(1.0) + [r for r in many(2.0, method="lff") if r["method"] == "lff"]
    path = lines(tmp_path / "r.jsonl", rows)
    assert {(c.a, c.b) for c in compare([path])[0]} == {("erm", "pgd"), ("erm", "lff"), ("pgd", "lff")}
    assert [(c.a, c.b) for c in compare([path, "lff", "erm"])[0]] == [("lff", "erm")]
    assert {(c.a, c.b) for c in compare([path], against="lff")[0]} == {("lff", "erm"), ("lff", "pgd")}
    with pytest.raises(UserError, match="no label 'lf'; did you mean 'lff'"):
        compare([path, "lf", "erm"])
    with pytest.raises(UserError, match="holds only 'erm'"):
        compare([path, "erm"])


def test_settings_that_differ_become_part_of_the_name_and_data_part_of_the_place():
    rows = [row("lff", 1.0, 0, rho, q=q) for rho in (0.1, 0.2) for q in (0.5, 0.7)] + [row("erm", 1.0, 0)]
    assert [(who, where) for who, where, _ in name_rows(rows)] == [
        ("lff, q 0.5", "toy, rho 0.1"), ("lff, q 0.7", "toy, rho 0.1"),
        ("lff, q 0.5", "toy, rho 0.2"), ("lff, q 0.7", "toy, rho 0.2"), ("erm", "toy, rho 0.1"),
    ]  # fmt: skip
    # A setting that goes with the data (a recipe for each dataset) is no part of the name.
    tied = [row("lff", 1.0, 0, rho, q=rho) for rho in (0.1, 0.2)]
    assert {who for who, _, _ in name_rows(tied)} == {"lff"}


def test_labels_of_a_specification_name_rows():
    label = {"block": "CMNIST", "row": "Vanilla", "grid": "0.1", "metric": "average"}
    who, where, _ = name_rows([row("erm", 1.0, 0, labels=label)])[0]
    assert (who, where) == ("Vanilla", "CMNIST")


def test_two_places_with_the_same_things_are_compared_thing_by_thing(tmp_path):
    before = many(0.0, rhos=(0.1, 0.2))
    after = [r | {"scores": {"unbiased": r["scores"]["unbiased"] + (2 if r["method"] == "pgd" else 0)}} for r in before]
    for r in after:
        r["settings"] = r["settings"] | {"recipe": {"lr": 0.1}}  # what differs between the places is what is compared
    a, b = lines(tmp_path / "a.jsonl", before), lines(tmp_path / "b.jsonl", after)
    found, _ = compare([a, b], metric="unbiased")
    overall = {line.a.split()[0]: line for line in found if line.where == EVERYWHERE}
    assert overall["pgd"].difference == pytest.approx(2.0) and overall["pgd"].verdict == REAL
    assert overall["erm"].difference == 0 and overall["erm"].verdict == UNSHOWN and overall["erm"].p == 1.0
    assert overall["pgd"].a == f"pgd ({a})" and overall["pgd"].b == f"pgd ({b})"


def test_two_places_with_one_thing_each(tmp_path):
    rows = many(1.5)
    a = lines(tmp_path / "a.jsonl", [r for r in rows if r["method"] == "erm"])
    b = lines(tmp_path / "b.jsonl", [r for r in rows if r["method"] == "pgd"])
    assert [(c.a, c.b, c.verdict) for c in compare([a, b])[0]] == [("erm", "pgd", REAL)]
    c = lines(tmp_path / "c.jsonl", many(0, method="lff")[1::2] + many(0, method="ga")[1::2])
    with pytest.raises(UserError, match=re.escape("they have no label in common")):
        compare([a, c])
    assert [(x.a, x.b) for x in compare([a, c, "erm", "ga"])[0]] == [("erm", "ga")]


def test_nothing_to_pair_is_said(tmp_path):
    path = lines(tmp_path / "r.jsonl", [row("erm", 1.0, 0), row("pgd", 2.0, 1)])
    with pytest.raises(UserError, match="there is nothing to pair"):
        compare([path])
    with pytest.raises(UserError, match="does not exist"):
        compare([str(tmp_path / "nothing")])
    with pytest.raises(UserError, match="No result has the score 'wurst_group'.* there are: unbiased, average"):
        compare([path], metric="wurst_group")


def test_a_score_that_no_result_has_is_answered_with_the_nearest(tmp_path):
    rows = [r | {"extra": {"own": {"share": 0.5}}} for r in many(1.0)]
    path = lines(tmp_path / "r.jsonl", rows)
    for asked, near in (("unbaised", "unbiased"), ("extra.own.shares", "extra.own.share")):
        with pytest.raises(UserError, match=f"No result has the score '{asked}'; did you mean '{near}'[?]"):
            compare([path], metric=asked)


def test_the_metric_is_the_specifications_or_the_first_there_is(tmp_path):
    label = {"row": "x", "metric": "average"}
    rows = [r | {"labels": label | {"row": r["method"]}} for r in many(1.0)]
    found, notes = compare([lines(tmp_path / "r.jsonl", rows)])
    assert notes[0].startswith("average:") and found[0].difference < 0  # average = 100 - unbiased here
    assert compare([str(tmp_path / "r.jsonl")], metric="unbiased")[0][0].difference > 0


def test_a_label_may_hold_any_letter(tmp_path):
    """Some end a line for Python and not for JSON."""
    rows = [row(method, 60, 0, labels={"block": "one\u2028two\x85"}) for method in ("erm", "lff")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    assert read_rows(path) == rows


def test_rows_are_read_from_folders_of_every_kind(tmp_path):
    rows = [row("erm", 60.0, 0), row("pgd", 70.0, 0)]
    for one in rows:  # a benchmark's folder
        folder = tmp_path / "bench" / "cells" / one["key"]
        folder.mkdir(parents=True)
        write_row(folder, one)
        run = tmp_path / "runs" / one["method"]  # a folder of runs
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(one))
    lines(tmp_path / "bench" / "rows.jsonl", [rows[0] | {"labels": {"row": "Vanilla"}}])  # older than the last row
    assert [(r["method"], r["labels"]) for r in read_rows(tmp_path / "bench")] == [
        ("erm", {"row": "Vanilla"}),
        ("pgd", {}),
    ]
    again = rows[0] | {"scores": {"unbiased": 61.0}, "labels": {"row": "old"}}  # since the list was written
    write_row(tmp_path / "bench" / "cells" / again["key"], again)
    newest = read_rows(tmp_path / "bench")[0]
    assert (newest["scores"]["unbiased"], newest["labels"]) == (61.0, {"row": "Vanilla"})
    assert [r["method"] for r in read_rows(tmp_path / "runs")] == ["erm", "pgd"]
    assert [r["method"] for r in read_rows(tmp_path / "runs" / "pgd")] == ["pgd"]
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(UserError, match="not valid JSON lines"):
        read_rows(tmp_path / "bad.jsonl")


# The command


def test_the_command_prints_a_table_or_json(tmp_path):
    app = typer.Typer()
    cli_bench.add(app)
    path = lines(tmp_path / "r.jsonl", many(1.5, seeds=3))
    shown = CliRunner().invoke(app, ["compare", path, "erm", "pgd"])
    assert shown.exit_code == 0 and "too few" in shown.stdout and "cannot tell anything" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["compare", path, "--json"]).stdout)
    assert found["comparisons"][0]["n"] == 3 and found["comparisons"][0]["p"] == 0.25
    assert found == json.loads(json.dumps(as_json(*compare([path]))))
    wrong = CliRunner().invoke(app, ["compare", str(tmp_path / "none")])
    assert wrong.exit_code == 2 and "does not exist" in wrong.stderr


def test_the_terminal_table_fits(tmp_path):
    from rich.console import Console

    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(terminal(*compare([lines(tmp_path / "r.jsonl", many(2.0, seeds=7, rhos=(0.1, 0.2)))])))
    console.file.close()
    text = console.export_text()
    assert "A: erm, B: pgd" in text and text.count("real") >= 2 and "…" not in text


def test_eighty_columns_hold_each_comparison_in_one_line(tmp_path):
    """Words were broken in the middle: "verdi-ct"."""
    from rich.console import Console

    named = {"erm": "Vanilla", "pgd": "PGD", "lff": "LfF", "disent": "Disen"}
    rows = [r for m in ("pgd", "lff", "disent") for r in many(-30.0, 6, (0.005, 0.01, 0.05), method=m)]
    rows = {r["key"]: r | {"labels": {"block": "CMNIST", "row": named[r["method"]], "grid": "x"}} for r in rows}
    found, notes = compare([lines(tmp_path / "r.jsonl", list(rows.values()))], against="PGD")
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(terminal(found, notes))
    console.file.close()
    head, titles, _, *printed = console.export_text().splitlines()
    assert head.strip() == "CMNIST, A: PGD" and titles.split()[-1] == "verdict"
    assert len(found) == 12
    for line, text in zip(found, printed, strict=False):
        assert text.startswith(line.where.removeprefix("CMNIST, ")) and text.rstrip().endswith(line.verdict)
        assert f" {line.b} " in text and f"[{line.low:+.2f}, {line.high:+.2f}]" in text


def test_a_setting_that_is_newer_than_a_row_does_not_part_it_from_its_like():
    """Rows kept before a field of the recipe, or of a method, was there; its default is no difference, another is."""

    def made(seed, **recipe):
        r = row("erm", 60.0, seed)
        r["settings"]["recipe"] = {"lr": 0.1} | recipe
        return r

    old, new, other = made(0), made(1, step_from=0.0), made(2, step_from=20.0)
    assert {who for who, _, _ in name_rows([old, new])} == {"erm"}
    assert [who for who, _, _ in name_rows([old, new, other])] == ["erm, step_from 0"] * 2 + ["erm, step_from 20"]
    before, since = row("dcwp", 60.0, 0), row("dcwp", 60.0, 1, mining_falls=0)
    assert {who for who, _, _ in name_rows([before, since])} == {"dcwp"}
    unknown = row("mine", 60.0, 0), row("mine", 60.0, 1, depth=3)  # a user's method: nothing is known of its defaults
    assert len({who for who, _, _ in name_rows(unknown)}) == 2


def with_net(r, **net):
    r["settings"]["net"] = net
    return r | {"key": f"{r['key']}-{net}"}


def test_runs_of_a_module_that_is_made_anew_for_each_seed_are_paired(tmp_path):
    """The hash of the weights that it began with was part of every name: n comparisons of one pair each."""
    import torch

    import spurless

    for seed in range(3):
        for method in ("erm", "lff"):
            net = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.LazyLinear(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
            )
            data, recipe = {"name": "toy", "n": 100}, {"epochs": 0.5}
            net(torch.zeros(2, *spurless.load_data(data).shape))
            spurless.fit(
                method, data, net=net, recipe=recipe, seed=seed, out=tmp_path / f"{method}-{seed}", device="cpu"
            )
    found, notes = compare([str(tmp_path)])
    assert [(line.a, line.b, line.n) for line in found] == [("erm", "lff", 3)]
    assert not any("no partner" in note for note in notes)


def test_weights_that_several_seeds_began_with_tell_results_apart():
    own = {"name": "Mine", "own": True, "architecture": "x"}
    drawn = [with_net(row("erm", 60.0, s), **own, weights=f"drawn-{s}") for s in range(3)]
    chosen = [with_net(row("erm", 60.0, s), **own, weights="chosen") for s in range(3)]
    wider = [with_net(row("erm", 60.0, s), **own | {"architecture": "y"}, weights=f"other-{s}") for s in range(3)]
    assert {who for who, _, _ in name_rows(drawn)} == {"erm"}
    assert [who for who, _, _ in name_rows(drawn + chosen)] == ["erm"] * 3 + ["erm, weights chosen"] * 3
    assert [who for who, _, _ in name_rows(drawn + wider)] == ["erm, architecture x"] * 3 + ["erm, architecture y"] * 3
    # Of a named network it is a file: one for each seed is said, too.
    named = [with_net(row("erm", 60.0, s), name="resnet18", weights=f"{s}.pth") for s in range(2)]
    assert [who for who, _, _ in name_rows(named)] == ["erm, weights 0.pth", "erm, weights 1.pth"]


def test_other_bias_labels_or_another_rule_are_said(tmp_path):
    known = {"erm": ("none", "last"), "lff": ("none", "last"), "group_dro": ("training", "val_worst_group")}
    rows = [
        row(method, 60.0 + s, s) | {"labels_used": labels, "selection": rule}
        for s in range(3)
        for method, (labels, rule) in known.items()
    ]
    path = lines(tmp_path / "r.jsonl", rows)
    found = as_json(*compare([path, "erm", "group_dro"]))
    said = [note for note in found["notes"] if "Bias labels used" in note]
    assert said == [
        "What is compared did not use the same labels or rule. Bias labels used: none (erm); training (group_dro). "
        "Weights picked by: last (erm); val_worst_group (group_dro)."
    ]
    assert not any("Bias labels used" in note for note in compare([path, "erm", "lff"])[1])
    assert "Bias labels used: none (erm, lff); training (group_dro)." in " ".join(compare([path])[1])
    for r in rows:
        r["selection"] = "last"
    said = " ".join(compare([lines(tmp_path / "r.jsonl", rows)])[1])
    assert "Bias labels used" in said and "Weights picked by" not in said
    rows = [r | {"labels_used": None} if r["method"] == "erm" else r for r in rows]  # of an older version: not known
    assert "Bias labels" not in " ".join(compare([lines(tmp_path / "r.jsonl", rows), "erm", "group_dro"])[1])


def with_worst(rows, n, value=None, **more):
    """The rows with their unbiased score as that of a worst group of n samples, for the methods in `n`."""
    for r in rows:
        scores = r["scores"]
        scores |= {
            "worst_group": scores["unbiased"] if value is None else value(r),
            "n": {"worst_group": n[r["method"]]},
        }
        scores |= more
    return rows


def test_a_worst_group_of_fewer_than_ten_samples_in_either_run_decides_nothing(tmp_path):
    for sizes, verdict in (
        ({"erm": 9, "pgd": 500}, SMALL),
        ({"erm": 500, "pgd": 9}, SMALL),
        ({"erm": 10, "pgd": 10}, REAL),
    ):
        found, notes = compare([lines(tmp_path / "rows.jsonl", with_worst(many(5.0), sizes))], "worst_group")
        (line,) = as_json(found, notes)["comparisons"]
        assert (line["verdict"], line["worst_group_n"]) == (verdict, min(sizes.values()))
        assert line["p_corrected"] == 2 / 2**8  # which would be real
        assert any("fewer than 10 samples (here n = 9)" in note for note in notes) == (verdict == SMALL)
        console = Console(file=io.StringIO(), width=200)
        console.print(terminal(found, notes))
        assert verdict in console.file.getvalue()
    (line,), _ = compare([lines(tmp_path / "rows.jsonl", with_worst(many(5.0), sizes))], "unbiased")
    assert (line.verdict, line.worst_group_n) == (REAL, None)


def test_what_has_no_worst_group_because_a_class_is_missing_is_said(tmp_path):
    sizes = {"erm": 50, "pgd": 50}
    rows = with_worst(many(5.0), sizes, value=lambda r: None if r["seed"] == 0 else r["scores"]["unbiased"])
    for r in rows:
        r["scores"]["missing_classes"] = ["cat"] if r["seed"] == 0 else []
    (line,), notes = compare([lines(tmp_path / "rows.jsonl", rows)], "worst_group")
    assert line.n == 7 and any("2 results have no worst_group and are left out: a class has no" in n for n in notes)
    rows = with_worst(many(5.0), sizes, value=lambda r: None, missing_classes=["cat"])
    with pytest.raises(UserError, match="no samples of the class cat"):
        compare([lines(tmp_path / "rows.jsonl", rows)], "worst_group")


def test_of_how_many_groups_a_score_over_groups_is_stands_beside_it(tmp_path):
    empty = {"label": "yes", "attribute": "sex", "value": "m", "n": 0}
    sizes = {"min_size": 10, "small_groups": [empty], "groups_total": 4, "missing_classes": []}
    path = lines(tmp_path / "rows.jsonl", with_worst(many(5.0), {"erm": 50, "pgd": 50}, **sizes))
    for metric, count in (("worst_group", 1), ("unbiased", 1), ("average", 0)):
        _, notes = compare([path], metric)
        assert sum("of the 3 of 4 groups that have test samples" in note for note in notes) == count

"""Group accuracies against tables worked out by hand, against a slow version, and against simulated truth."""

import json
import subprocess
import sys
from statistics import mean

import numpy as np
import pytest

from spurless.core.stats import mean_of_cells, wilson
from spurless.metrics.groups import METRICS, group_notes, group_scores
from spurless.metrics.inference import mining_scores


def rows(*cells: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """correct (n,), y (n,), a (n, 1) of cells (y, a, correct, n)."""
    hit = np.concatenate([np.arange(n) < c for _, _, c, n in cells])
    y, a = (np.concatenate([np.full(cell[3], cell[at]) for cell in cells]) for at in (0, 1))
    return hit, y, a[:, None]


def slow_scores(correct, y, a, aligned) -> dict:
    """The definitions, row by row."""
    n, k = a.shape
    unbiased, worst = [], 101.0
    for j in range(k):
        cells: dict = {}
        for i in range(n):
            cells.setdefault((y[i], a[i, j]), []).append(100.0 * correct[i])
        unbiased.append(mean(mean(c) for c in cells.values()))
        worst = min(worst, *(mean(c) for c in cells.values()))
    with_it = [100.0 * correct[i] for i in range(n) if all(aligned[i])]
    against = [100.0 * correct[i] for i in range(n) if not all(aligned[i])]
    return {
        "average": mean(100.0 * c for c in correct),
        "unbiased": mean(unbiased),
        "aligned": mean(with_it) if with_it else None,
        "conflicting": mean(against) if against else None,
        "worst_group": worst,
    }


def test_wilson_values_known_from_the_literature():
    # Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29
    for (correct, n), (low, high) in {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0000, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }.items():
        assert wilson(correct, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(20, 20) == pytest.approx((1 - 0.1611, 1.0), abs=5e-5)
    assert wilson(20, 20)[1] == 1.0
    assert wilson(0, 20)[0] == 0.0
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_solves_the_score_equation():
    # Each limit is the proportion from which the observed one lies exactly z standard errors away.
    for level, z in ((0.95, 1.959964), (0.9, 1.644854)):
        for limit in wilson(13, 40, level):
            assert abs(13 / 40 - limit) / np.sqrt(limit * (1 - limit) / 40) == pytest.approx(z, abs=1e-5)


@pytest.mark.parametrize(("p", "n"), [(0.5, 30), (0.9, 50), (0.98, 200), (0.2, 500)])
def test_wilson_covers(p, n):
    # 20,000 draws: the binomial error of a coverage of 0.95 is 0.0015. Counts are whole numbers, so that the true
    # coverage itself swings around 0.95, here by up to 0.02.
    draws = np.random.default_rng(0).binomial(n, p, 20_000)
    limits = np.array([wilson(c, n) for c in range(n + 1)])[draws]
    assert np.mean((limits[:, 0] <= p) & (p <= limits[:, 1])) == pytest.approx(0.95, abs=0.02 + 3 * 0.0015)


@pytest.mark.parametrize(
    ("p", "n"),
    [
        ([0.99, 0.3, 0.4, 0.98], [400, 40, 40, 400]),  # two groups that the shortcut serves, two that it fails
        ([0.99] * 10 + [0.2] * 90, [10] * 100),  # digits and colours
        ([0.9] * 100, [10] * 100),
        ([0.98] * 100, [10] * 100),
        ([0.95] * 10, [30] * 10),
        ([1.0, 0.5], [100, 20]),
        ([0.9, 0.2, 0.7], [60, 10, 25]),
    ],
)
def test_the_interval_of_a_mean_of_cells_covers(p, n):
    # 4,000 draws: the binomial error of a coverage of 0.95 is 0.0034; the coverage itself may be 0.03 off.
    generator, truth = np.random.default_rng(0), float(np.mean(p))
    limits = [mean_of_cells(generator.binomial(n, p).tolist(), n, [1] * len(n))[1:] for _ in range(4000)]
    covered = np.mean([low <= truth <= high for low, high in limits])
    assert covered == pytest.approx(0.95, abs=0.03 + 3 * 0.0034)


@pytest.mark.parametrize("dependence", [0.0, 1.0])
def test_the_interval_of_several_attributes_is_wide_enough(dependence):
    # Two attributes that are independent, or the same: the averaged limits may be too wide, never too narrow.
    # 500 draws: the binomial error of a coverage of 0.95 is 0.0097.
    generator, chance = np.random.default_rng(0), np.array([[0.95, 0.5], [0.6, 0.9]])
    covered = []
    for _ in range(500):
        y, first, other = generator.integers(0, 2, (3, 300))
        second = first if dependence else other
        hit = generator.random(300) < (chance[y, first] + chance[y, second]) / 2
        low, high = group_scores(hit, y, np.stack([first, second], 1))["intervals"]["unbiased"]
        covered.append(low <= 100 * chance.mean() <= high)
    assert np.mean(covered) >= 0.95 - 3 * 0.0097


def test_the_interval_of_one_cell_is_wilsons():
    for correct, n in ((0, 7), (3, 7), (7, 7), (950, 1000)):
        assert mean_of_cells([correct], [n], [5.0]) == pytest.approx((correct / n, *wilson(correct, n)))


def test_a_table_worked_out_by_hand():
    # Waterbirds-like: 90/100 and 40/50 right where the background agrees, 2/10 and 5/20 where it does not.
    hit, y, a = rows((0, 0, 90, 100), (0, 1, 2, 10), (1, 0, 5, 20), (1, 1, 40, 50))
    counts = [np.array([[3498, 184], [56, 1057]])]
    scores = group_scores(
        hit,
        y,
        a,
        aligned=a == y[:, None],
        classes=("land", "water"),
        attributes=("place",),
        values=(("land", "water"),),
        train_counts=counts,
    )
    assert scores["average"] == pytest.approx(100 * 137 / 180)
    assert scores["unbiased"] == pytest.approx((90 + 20 + 25 + 80) / 4)
    assert scores["aligned"] == pytest.approx(100 * 130 / 150)
    assert scores["conflicting"] == pytest.approx(100 * 7 / 30)
    assert scores["worst_group"] == 20.0
    assert scores["average_train_weighted"] == pytest.approx((3498 * 90 + 184 * 20 + 56 * 25 + 1057 * 80) / 4795)
    assert scores["n"] == {
        "average": 180,
        "unbiased": 180,
        "aligned": 150,
        "conflicting": 30,
        "worst_group": 10,
        "average_train_weighted": 180,
    }
    for metric, correct, n in (("average", 137, 180), ("conflicting", 7, 30), ("worst_group", 2, 10)):
        assert scores["intervals"][metric] == pytest.approx([100 * limit for limit in wilson(correct, n)])
    # p = 91/102, 3/12, 6/22, 41/52: θ = 0.55084, Σ p (1 − p) / (16 n) = 0.0020603, n_eff = 120.09 of 180 rows
    assert scores["intervals"]["unbiased"] == pytest.approx([44.855, 62.413], abs=0.001)
    assert [(g["label"], g["value"], g["n"], g["correct"], g["aligned"]) for g in scores["groups"]] == [
        ("land", "land", 100, 90, True),
        ("land", "water", 10, 2, False),
        ("water", "land", 20, 5, False),
        ("water", "water", 50, 40, True),
    ]
    assert scores["groups"][1]["accuracy"] == 20.0
    assert [scores["groups"][1][end] for end in ("low", "high")] == pytest.approx([100 * v for v in wilson(2, 10)])
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_equals_the_slow_version(k):
    for seed in range(20):
        generator = np.random.default_rng(seed)
        n, classes, values = int(generator.integers(1, 60)), int(generator.integers(1, 5)), generator.integers(1, 5, k)
        y = generator.integers(0, classes, n)
        a = np.stack([generator.integers(0, v, n) for v in values], 1)
        tables = [generator.random((classes, v)) < 0.5 for v in values]
        aligned = np.stack([table[y, a[:, j]] for j, table in enumerate(tables)], 1)
        hit = generator.random(n) < 0.7
        scores, truth = group_scores(hit, y, a, aligned), slow_scores(hit, y, a, aligned)
        assert {m: scores[m] for m in truth} == pytest.approx(truth)
        assert scores["n"]["aligned"] + scores["n"]["conflicting"] == n
        for metric, interval in scores["intervals"].items():
            if interval is not None:
                assert 0 <= interval[0] <= scores[metric] <= interval[1] <= 100
        for group in scores["groups"]:
            j = int(group["attribute"][1:])
            here = (y == int(group["label"])) & (a[:, j] == int(group["value"]))
            assert (group["n"], group["correct"]) == (here.sum(), hit[here].sum())
            assert group["aligned"] == tables[j][int(group["label"]), int(group["value"])]


def test_several_attributes():
    # One row of each pair of values, label 0; the first attribute decides what is right.
    a = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    hit = np.array([True, True, True, False])
    scores = group_scores(hit, np.zeros(4, int), a, aligned=a == 0, attributes=("colour", "size"))
    assert (scores["aligned"], scores["n"]["aligned"]) == (100.0, 1)  # only the row that both agree with
    assert (scores["conflicting"], scores["n"]["conflicting"]) == (pytest.approx(200 / 3), 3)
    for name in ("colour", "size"):
        one = scores["by_attribute"][name]
        assert (one["unbiased"], one["aligned"], one["conflicting"], one["worst_group"]) == (75.0, 100.0, 50.0, 50.0)
        assert one["n"]["conflicting"] == 2
    assert [(g["attribute"], g["value"]) for g in scores["groups"]] == [
        ("colour", "0"),
        ("colour", "1"),
        ("size", "0"),
        ("size", "1"),
    ]


def test_unbiased_of_several_attributes_is_the_mean_of_theirs_not_of_all_cells():
    # Two cells of colour (100, 0) and three of size (100, 100, 0): 58.3 as defined, 60 over all five cells.
    a = np.array([[0, 0], [0, 1], [1, 2]])
    scores = group_scores(np.array([True, True, False]), np.zeros(3, int), a)
    assert scores["unbiased"] == pytest.approx((50 + 200 / 3) / 2)


def test_empty_cells_are_left_out_and_counted():
    hit, y, a = rows((0, 0, 3, 4), (1, 1, 1, 4))
    scores = group_scores(
        hit, y, a, aligned=a == y[:, None], classes="abc", values=("xy",), train_counts=[np.full((3, 2), 10)]
    )
    assert scores["empty_cells"] == 4  # of three labels by two values
    assert len(scores["groups"]) == 2
    assert scores["conflicting"] is None
    assert scores["intervals"]["conflicting"] is None
    assert scores["n"]["conflicting"] == 0
    assert scores["aligned"] == 50.0
    # The third class has no sample: nobody knows what a mean or a minimum over all groups would be.
    assert scores["missing_classes"] == ["c"]
    for found in (scores, scores["by_attribute"]["a0"]):
        for metric in ("unbiased", "worst_group", "average_train_weighted"):
            assert (found[metric], found["intervals"][metric], found["n"][metric]) == (None, None, 0)
    both = group_scores(hit, y, a, classes="ab", values=("xy",), train_counts=[np.full((2, 2), 10)])
    assert both["unbiased"] == both["average_train_weighted"] == 50.0
    assert (both["worst_group"], both["missing_classes"]) == (25.0, [])


def named(groups):
    return {(g["label"], g["value"]): g["n"] for g in groups}


def test_groups_that_exist_and_have_no_sample_or_few_are_named_with_their_n():
    # (no, m) has samples in no split at all: it does not exist, and is not missed.
    hit, y, a = rows((0, 0, 20, 20), (1, 1, 2, 2))
    given = {"classes": ("no", "yes"), "attributes": ("sex",), "values": (("f", "m"),)}
    counts = np.array([[500, 0], [1, 500]])
    scores = group_scores(hit, y, a, **given, all_counts=[counts])
    assert scores["small_groups"] == [
        {"label": "yes", "attribute": "sex", "value": "f", "n": 0},
        {"label": "yes", "attribute": "sex", "value": "m", "n": 2},
    ]
    assert (scores["groups_total"], scores["min_size"], scores["missing_classes"]) == (3, 10, [])
    notes = group_notes(scores)
    assert "of the 2 of 3 groups that have test samples" in notes[0] and "Without test samples: yes, sex=f." in notes[0]
    assert notes[1:] == ["Groups with fewer than 10 test samples: yes, sex=m (n = 2)."]
    assert "validation samples" in group_notes(scores, "val")[0]
    # The least size is the caller's; ten samples are enough, nine are not.
    assert named(group_scores(hit, y, a, **given, all_counts=[counts], min_size=2)["small_groups"]) == {("yes", "f"): 0}
    for n, few in ((9, {("no", "f"): 9}), (10, {})):
        hit, y, a = rows((0, 0, n, n), (1, 1, 10, 10))
        scores = group_scores(hit, y, a, **given, all_counts=[np.diag([500, 500])])
        assert named(scores["small_groups"]) == few
        assert bool(group_notes(scores)) == bool(few)
    # Without tables of counts every pair of a class and a value counts; with training's, those that were trained on.
    assert named(group_scores(hit, y, a, **given)["small_groups"]) == {("no", "m"): 0, ("yes", "f"): 0}
    trained = group_scores(hit, y, a, **given, train_counts=[np.array([[5, 1], [0, 5]])])
    assert named(trained["small_groups"]) == {("no", "m"): 0}


def test_a_class_that_only_the_counts_know_is_missed():
    hit, y, a = rows((0, 0, 12, 12), (0, 1, 12, 12))
    scores = group_scores(hit, y, a, all_counts=[np.array([[3, 3], [0, 4]])])
    assert scores["missing_classes"] == ["1"] and scores["worst_group"] is None and scores["average"] == 100.0
    assert named(scores["small_groups"]) == {("1", "1"): 0}
    (first, second) = group_notes(scores)
    assert first.startswith("No test samples of the class 1:") and second.startswith("2 of 3 groups have test samples")


def test_of_equal_worst_groups_the_least_known_counts():
    """One right sample of one is 100 %, as are a hundred of a hundred: the worst group is not known to be that good."""
    for groups in (((0, 0, 100, 100), (1, 1, 1, 1)), ((0, 0, 1, 1), (1, 1, 100, 100))):
        scores = group_scores(*rows(*groups))
        assert (scores["worst_group"], scores["n"]["worst_group"]) == (100.0, 1)
        assert scores["intervals"]["worst_group"][0] == pytest.approx(100 * wilson(1, 1)[0])
    many = group_scores(*rows((0, 0, 50, 100), (1, 1, 1, 2)))
    assert (many["worst_group"], many["n"]["worst_group"]) == (50.0, 2)


def test_overlapping_groups_without_samples_are_named():
    inside = np.array([[1, 0], [1, 0], [0, 0]], bool)
    given = {"classes": ("x", "y"), "overlap": ("topic", ("p", "q"))}
    counts = [np.array([[9, 4], [0, 2]])]
    scores = group_scores([True, False, True], [0, 0, 1], member=inside, all_counts=counts, **given)
    assert named(scores["small_groups"]) == {("x", "p"): 2, ("x", "q"): 0, ("y", "q"): 0}
    assert (scores["worst_group"], scores["groups_total"]) == (50.0, 3)
    gone = group_scores([True, False], [0, 0], member=inside[:2], all_counts=counts, **given)
    assert gone["missing_classes"] == ["y"] and gone["worst_group"] is None
    assert gone["by_attribute"]["topic"]["unbiased"] is None


def test_cells_never_trained_on_carry_no_weight():
    hit, y, a = rows((0, 0, 3, 4), (1, 1, 1, 4))
    weighted = [
        group_scores(hit, y, a, train_counts=[table])["average_train_weighted"]
        for table in (np.array([[5, 0], [0, 0]]), np.zeros((2, 2)))
    ]
    assert weighted == [75.0, None]
    counted = group_scores(hit, y, a, train_counts=[np.array([[5, 0], [0, 0]])])["n"]
    assert (counted["average_train_weighted"], counted["unbiased"]) == (4, 8)  # the rows that it is of


def test_empty_cells_of_overlapping_groups_are_those_of_all_labels():
    inside = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], bool)  # the only row of the second class is in no group
    found = [
        group_scores([True] * 4, [0, 0, 0, 1], member=inside, classes=classes) for classes in ((), ("x",), ("x", "y"))
    ]
    assert [(len(f["groups"]), f["empty_cells"]) for f in found] == [(2, 2)] * 3
    assert [f["groups"][0]["label"] for f in found] == ["0", "x", "x"]


@pytest.mark.parametrize("a", [None, np.empty((4, 0), int)])
def test_without_attributes_there_is_the_average_alone(a):
    scores = group_scores(np.array([True, True, True, False]), np.array([0, 1, 2, 0]), a)
    assert scores["average"] == 75.0
    assert scores["intervals"]["average"] == pytest.approx([100 * limit for limit in wilson(3, 4)])
    assert {m: scores[m] for m in METRICS if scores[m] is not None} == {"average": 75.0}
    assert scores["groups"] == []
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores


def test_the_keys_are_the_same_with_and_without_attributes():
    full = group_scores([True], [0], np.zeros((1, 1), int), np.ones((1, 1), bool), train_counts=[np.ones((1, 1))])
    assert set(full) == set(group_scores([True], [0]))
    assert set(full["intervals"]) == set(full["n"]) == set(METRICS)


def test_attributes_without_alignment_still_give_cells():
    hit, y, a = rows((0, 0, 3, 4), (0, 1, 1, 4))
    scores = group_scores(hit, y, a)
    assert (scores["unbiased"], scores["worst_group"]) == (50.0, 25.0)
    assert (scores["aligned"], scores["conflicting"], scores["groups"][0]["aligned"]) == (None, None, None)


def test_a_single_class_and_a_single_row():
    scores = group_scores([True], [0], [[0]], [[True]], classes=("only",))
    assert [scores[m] for m in ("average", "unbiased", "aligned", "worst_group")] == [100.0] * 4
    assert scores["conflicting"] is None
    assert scores["intervals"]["unbiased"] == pytest.approx([100 * limit for limit in wilson(1, 1)])


def test_no_rows_at_all_give_no_score():
    scores = group_scores(np.empty(0, bool), np.empty(0, int), np.empty((0, 1), int), np.empty((0, 1), bool))
    assert all(scores[m] is None and scores["n"][m] == 0 for m in METRICS)


def test_a_cell_of_both_kinds_is_neither():
    # A user's own rule may call rows of one cell aligned and others not.
    scores = group_scores([True, True], [0, 0], [[0], [0]], [[True], [False]])
    assert scores["groups"][0]["aligned"] is None
    assert (scores["n"]["aligned"], scores["n"]["conflicting"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.9, 0.2], [0, 1]), "True and False"),  # probabilities in place of right and wrong
        (([[True], [False]], [0, 1]), "shape"),  # would broadcast to (n, n)
        (([True, False], [0, 1, 1]), "shape"),
        (([True, False], [0, 1], [0, 1]), "shape"),
        (([True, False], [0, 1], [[0], [-1]]), "from 0 on"),
        (([True, False], [0, 1], [[0], [1]], [True, False]), "shape"),
        (([True, False], [0, 1], [[0], [1]], [[0], [1]]), "True and False"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        group_scores(*arguments)


def test_names_that_do_not_fit_the_attributes_are_refused():
    with pytest.raises(ValueError, match="different names"):
        group_scores([True], [0], [[0, 0]], attributes=("colour", "colour"))


def test_mining():
    mined = np.array([True, True, True, True, False, False])
    true = np.array([True, False, False, False, True, False])
    assert mining_scores(mined, true) == {"precision": 25.0, "recall": 50.0, "n_mined": 4, "n_conflicting": 2}
    nothing = np.zeros(6, bool)
    assert mining_scores(nothing, true) == {"precision": None, "recall": 0.0, "n_mined": 0, "n_conflicting": 2}
    assert mining_scores(mined, nothing) == {"precision": 0.0, "recall": None, "n_mined": 4, "n_conflicting": 0}
    with pytest.raises(ValueError, match="True and False"):
        mining_scores([0, 4], [True, False])  # row numbers
    with pytest.raises(ValueError, match="shape"):
        mining_scores([True, False], [True])


def test_metrics_and_report_need_no_torch():
    modules = "spurless.metrics.inference, spurless.report.tables, spurless.report"
    code = f"import {modules}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

"""group_metrics against tables worked out by hand, and against the scores of a run."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import spurless
from spurless.core.errors import SettingError
from spurless.core.stats import wilson
from spurless.metrics.scores import score
from tests.support.worlds import tiny


def loans() -> dict[str, list]:
    """40 applicants. Group a: 10 of 12 good ones granted, 2 of 8 bad ones; b: 6 of 12 good, 1 of 8 bad."""
    cells = [("a", 1, 1, 10), ("a", 1, 0, 2), ("a", 0, 1, 2), ("a", 0, 0, 6)]
    cells += [("b", 1, 1, 6), ("b", 1, 0, 6), ("b", 0, 1, 1), ("b", 0, 0, 7)]
    rows = [(group, y, said) for group, y, said, n in cells for _ in range(n)]
    return {name: [row[k] for row in rows] for k, name in enumerate(("group", "y", "predicted"))}


def rate(metrics, name: str, value: str) -> pd.Series:
    table = metrics.rates
    return table[(table.rate == name) & (table.value == value)].iloc[0]


def test_rates_and_gaps_worked_out_by_hand():
    rows = loans()
    m = spurless.group_metrics(rows["y"], rows["predicted"], {"sex": rows["group"]}, min_size=0)
    expected = {
        "accuracy": ((16, 20), (13, 20)),
        "selection_rate": ((12, 20), (7, 20)),
        "tpr": ((10, 12), (6, 12)),
        "fpr": ((2, 8), (1, 8)),
    }
    for name, (of_a, of_b) in expected.items():
        for value, (k, n) in (("a", of_a), ("b", of_b)):
            found = rate(m, name, value)
            assert (found.estimate, found.n) == (pytest.approx(100 * k / n), n)
            assert (found.low, found.high) == pytest.approx([100 * limit for limit in wilson(k, n)])
        gap = m.gaps[m.gaps.rate == name].iloc[0]
        assert gap.difference == pytest.approx(100 * (of_a[0] / of_a[1] - of_b[0] / of_b[1]))
        assert gap.ratio == pytest.approx(of_b[0] / of_b[1] / (of_a[0] / of_a[1]))
        assert (gap.lowest, gap.highest, gap.compared, gap.left_out) == ("b", "a", 2, 0)
    assert set(m.rates["class"].dropna()) == {"1"}  # two classes: the rates are of the last
    assert m.average.value == pytest.approx(100 * 29 / 40) and m.average.n == 40
    assert m.unbiased.value == pytest.approx((1000 / 12 + 600 / 12 + 75 + 87.5) / 4)
    assert (m.worst_group.value, m.worst_group.n, m.worst_group_name) == (50, 12, "1, sex=b")
    assert m.notes == () and not m.aligned.known


def test_calibration_is_what_the_scores_promise_too_much():
    y, group = [1, 0, 1, 0], ["a", "a", "b", "b"]
    scores = [0.9, 0.5, 0.4, 0.2]  # a: 0.7 for a share of 0.5; b: 0.3 for 0.5
    for given in (scores, np.stack([1 - np.array(scores), scores], axis=1)):
        m = spurless.group_metrics(y, [1, 0, 0, 0], group, given, min_size=0)
        assert rate(m, "calibration", "a").estimate == pytest.approx(20)
        assert rate(m, "calibration", "b").estimate == pytest.approx(-20)
        gap = m.gaps[m.gaps.rate == "calibration"].iloc[0]
        assert gap.difference == pytest.approx(40) and math.isnan(gap.ratio)
    of_zero = spurless.group_metrics(y, [1, 0, 0, 0], group, given, positive=0, min_size=0)
    assert rate(of_zero, "calibration", "a").estimate == pytest.approx(-20)


def test_a_small_group_decides_nothing_and_is_told():
    y = ["no"] * 40 + ["yes"] * 32
    place = ["in"] * 40 + ["in"] * 30 + ["out"] * 2
    predicted = ["no"] * 36 + ["yes"] * 4 + ["yes"] * 24 + ["no"] * 6 + ["no"] * 2
    m = spurless.group_metrics(y, predicted, {"place": place})
    assert (m.worst_group.value, m.worst_group.n, m.worst_group_name) == (80, 30, "yes, place=in")
    assert "yes, place=out with 0.0 % (n = 2)" in m.notes[-1] and "n = 2" in str(m)
    assert m.groups.set_index(["label", "value"]).small.to_dict() == {
        ("no", "in"): False,
        ("yes", "in"): False,
        ("yes", "out"): True,
    }
    gap = m.gaps[m.gaps.rate == "accuracy"].iloc[0]
    assert math.isnan(gap.difference) and (gap.compared, gap.left_out) == (1, 1)
    every = spurless.group_metrics(y, predicted, {"place": place}, min_size=1)
    assert (every.worst_group.value, every.worst_group.n) == (0, 2)
    few = spurless.group_metrics(y, predicted, {"place": place}, min_size=100)
    assert few.worst_group.value == 0 and few.worst_group.n == 2
    assert "No group has 100 samples" in few.notes[-1]


def test_overlapping_groups_count_a_sample_in_each_of_theirs():
    y, predicted = [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 1, 0]
    groups = {"x": [True, True, False, True, False, False], "z": [False, True, False, False, True, True]}
    m = spurless.group_metrics(y, predicted, None, overlapping=groups, min_size=0)
    accuracy = {(g.label, g.value): (g.correct, g.n) for g in m.groups.itertuples()}
    assert accuracy == {("0", "x"): (1, 2), ("1", "x"): (1, 1), ("0", "z"): (0, 1), ("1", "z"): (1, 2)}
    assert (m.worst_group.value, m.worst_group_name) == (0, "0, group=z")
    assert m.unbiased.value == pytest.approx((50 + 100 + 0 + 50) / 4)
    assert rate(m, "accuracy", "z").n == 3
    both = spurless.group_metrics(y, predicted, {"hue": list("rgbrgb")}, overlapping=groups, min_size=0)
    assert both.worst_group_name == "0, group=z"  # the overlapping groups decide, as in every score of such data


def test_aligned_by_mask_by_class_and_by_attribute():
    y, hue, size = ["cat", "cat", "dog", "dog"], ["r", "g", "g", "r"], ["s", "s", "l", "s"]
    predicted = ["cat", "dog", "dog", "dog"]
    by_class = spurless.group_metrics(y, predicted, {"hue": hue}, aligned={"cat": "r", "dog": ["g"]})
    by_mask = spurless.group_metrics(y, predicted, {"hue": hue}, aligned=[True, False, True, False])
    for m in (by_class, by_mask):
        assert (m.aligned.value, m.aligned.n, m.conflicting.value, m.conflicting.n) == (100, 2, 50, 2)
    pairs = {"hue": {"cat": "r", "dog": "g"}, "size": {"cat": "s", "dog": "l"}}
    m = spurless.group_metrics(y, predicted, pd.DataFrame({"hue": hue, "size": size}), aligned=pairs)
    assert (m.aligned.n, m.conflicting.n) == (2, 2)
    with pytest.raises(SettingError, match="dog"):
        spurless.group_metrics(y, predicted, {"hue": hue}, aligned={"cat": "r"})


def test_several_classes_have_rates_one_against_the_rest():
    y, predicted = [0, 1, 2, 0, 1, 2], [0, 1, 1, 0, 2, 2]
    m = spurless.group_metrics(y, predicted, list("aaabbb"), min_size=0)
    assert sorted(m.rates["class"].dropna().unique()) == ["0", "1", "2"]
    one = m.rates[(m.rates["class"] == "1") & (m.rates.rate == "fpr")].set_index("value")
    assert one.estimate.to_dict() == {"a": 50, "b": 0} and one.n.to_dict() == {"a": 2, "b": 2}
    assert (m.rates.rate == "accuracy").sum() == 2  # once for each value


def test_the_same_numbers_as_a_run_on_the_same_samples():
    data = tiny()
    logits = data.test.x[:, :2]
    expected = score(data, data.test, logits)
    m = spurless.group_metrics(
        np.array(data.classes)[data.test.y],
        np.array(data.classes)[logits.argmax(1)],
        {"spurious": np.array(data.values[0])[data.test.a[:, 0]]},
        aligned=data.is_aligned(data.test),
        min_size=0,
    )
    for name in ("average", "unbiased", "aligned", "conflicting", "worst_group"):
        found = getattr(m, name)
        assert [found.value, found.low, found.high] == pytest.approx([expected[name], *expected["intervals"][name]])
        assert found.n == expected["n"][name]


def test_json_and_what_is_odd():
    m = spurless.group_metrics([0, 0, 1], [0, 3, 1], ["a", "b", "a"], min_size=0)
    again = json.loads(json.dumps(m.to_dict(), allow_nan=False))
    assert again["worst_group"]["group"] == "0, attribute=b" and again["aligned"]["value"] is None
    assert m.notes == ("predicted holds what no sample of y is: 3.",)
    assert math.isnan(rate(m, "tpr", "b").estimate) and rate(m, "tpr", "b").n == 0


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (([0, 1], [0], ["a", "b"]), {}, "as long"),
        (([0, 1], ["0", "1"], ["a", "b"]), {}, "same names or numbers"),
        (([], [], []), {}, "not empty"),
        (([0, 1], [0, 1], ["a"]), {}, "1 values for 2 samples"),
        (([0, 1], [0, 1], [0.5, 1.0]), {}, "whole numbers"),
        (([0, 1], [0, 1], ["a", "b"], [2.0, -1.0]), {}, "probabilities"),
        (([0, 1], [0, 1], ["a", "b"], [0.5]), {}, "scores have shape"),
        (([0, 1, 2], [0, 1, 2], list("abc"), [0.5, 0.5, 0.5]), {}, "scores have shape"),
        (([0, 1], [0, 1], ["a", "b"]), {"positive": 5}, "positive"),
        (([0, 1], [0, 1], ["a", "b"]), {"min_size": 0.5}, "min_size"),
        (([0, 1], [0, 1], None), {"overlapping": {"x": [0, 1]}}, "overlapping x"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, settings, words):
    with pytest.raises(SettingError, match=words):
        spurless.group_metrics(*arguments, **settings)


# fairlearn 0.15.0's MetricFrame on the same arrays, by sensitive_features: accuracy_score, selection_rate,
# true_positive_rate, false_positive_rate; difference and ratio(method="between_groups"). BY_GROUP: by (value, class).
FAIRLEARN = {
    "accuracy": [0.5076923077, 0.6250000000, 0.8607594937, 0.3530671860, 0.5898190045],
    "selection_rate": [0.5692307692, 0.4642857143, 0.5063291139, 0.1049450549, 0.8156370656],
    "tpr": [0.5862068966, 0.5806451613, 0.8222222222, 0.2415770609, 0.7061900610],
    "fpr": [0.5555555556, 0.3200000000, 0.0882352941, 0.4673202614, 0.1588235294],
}
BY_GROUP = [0.4444444444, 0.5862068966, 0.6800000000, 0.5806451613, 0.9117647059, 0.8222222222]


def test_the_same_numbers_as_fairlearn():
    rng, n = np.random.default_rng(7), 200
    y, a = rng.integers(0, 2, n), rng.integers(0, 3, n)
    metrics = spurless.group_metrics(y, np.where(rng.random(n) < 0.6 + 0.12 * a, y, 1 - y), {"a": a})
    rates, gaps = metrics.rates.groupby("rate"), metrics.gaps.set_index("rate")
    for rate, (*by_value, difference, ratio) in FAIRLEARN.items():
        ours = rates.get_group(rate).sort_values("value")["estimate"]
        assert ours.tolist() == pytest.approx([100 * v for v in by_value])
        assert gaps.loc[rate, "difference"] == pytest.approx(100 * difference)
        assert gaps.loc[rate, "ratio"] == pytest.approx(ratio)
    groups = metrics.groups.sort_values(["value", "label"])["accuracy"]
    assert groups.tolist() == pytest.approx([100 * v for v in BY_GROUP])
    assert metrics.worst_group.value == pytest.approx(100 * min(BY_GROUP))

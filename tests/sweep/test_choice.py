"""What is chosen, by what, and what is never looked at to choose."""

import random

from spurless.sweep.axes import Axis
from spurless.sweep.choice import choose, compare, in_words
from tests.support.sweeps import LR, points, row


def test_the_largest_value_within_one_standard_error_of_the_best_is_chosen():
    found = points([row(val=90.0)], [row(val=91.0)], [row(val=90.2)])
    assert choose(found).value == 1.0  # sqrt(0.91 · 0.09 / 1000) = 0.905 points
    assert choose(found, towards=False).value == 0.1
    assert choose(points([row(val=90.0)], [row(val=91.0)], [row(val=90.0)])).value == 0.1


def test_what_is_not_stable_is_not_chosen_however_well_it_validates():
    assert choose(points([row(val=80)], [row(status="diverged")], [row(val=99)])).value == 0.01
    assert choose(points([row(val=80)], [row(val=99, train=60)])).value == 0.01
    assert choose(points([row(status="diverged")])) is None


def test_without_a_validation_split_training_accuracy_decides():
    def blind(train):
        found = row(train=train)
        found["extra"] = {k: v for k, v in found["extra"].items() if not k.startswith("val")}
        return [found]

    chosen = choose(points(blind(100.0), blind(100.0), blind(97.0)))
    assert (chosen.value, chosen.by) == (0.1, "train_accuracy")
    assert "no validation split" in chosen.rule


def test_the_choice_does_not_look_at_test_scores():
    """Whatever the test split says, the choice stays: otherwise its scores would be selected."""
    draw = random.Random(0)
    train, val = [100.0, 99.0, 98.0], [90.0, 91.0, 90.5]
    chosen = set()
    for _ in range(50):
        columns = [
            [row(s, draw.uniform(0, 100), t, v, prunability=draw.random(), csi=draw.random()) for s in (0, 1)]
            for t, v in zip(train, val, strict=True)
        ]
        chosen.add(choose(points(*columns)).value)
    assert chosen == {1.0}


def test_the_words_say_value_rule_gain_and_where_the_range_ended():
    found = points([row(0, 55.3, prunability=0.56)], [row(0, 85.7, prunability=0.78)], [row(status="diverged")])
    text = in_words(LR, found, choose(found))
    assert text.startswith("Choose lr = 0.1: its validation accuracy is 90.00 %")
    assert "unbiased accuracy 55.3 to 85.7 %" in text and "prunability 0.56 to 0.78" in text
    assert "at 1 1 of 1 runs diverged" in text
    fallen = points([row(0, 90)], [row(0, 50)])
    assert "which the rule does not look at" in in_words(LR, fallen, choose(fallen))


def test_sweeps_are_compared_by_the_best_that_each_validates_at():
    axes = [Axis(name, f"recipe.{name}", (1, 2)) for name in ("lr", "l2", "momentum")]
    values = (90.0, 89.9), (90.5, 95.0), (94.6, 80.0)
    series = [
        (a, choose(points([row(val=v)], [row(val=w)], axis=a), towards=False))
        for a, (v, w) in zip(axes, values, strict=True)
    ]
    said = compare(series)  # the standard error is 0.69 points: sqrt(0.95 · 0.05 / 1000)
    assert said.startswith("Of all sweeps, l2 reaches the highest validation accuracy (95.00 %)")
    assert said.endswith("within one standard error of it: momentum.")
    assert compare(series[:1]) == ""
    lr = choose(points([row(val=90.0)], [row(val=89.9)]))  # takes the larger rate, which validates at 89.9 %
    other = lr._replace(best=89.95, mean=89.95)
    assert compare([(axes[1], other), (axes[0], lr)]).startswith("Of all sweeps, lr reaches")

"""What a sweep measures of each network."""

from dataclasses import replace

import pytest
import torch

from spurless.metrics.compress import activations_compressed
from spurless.metrics.prunability import data_prunability
from spurless.metrics.representation import represent
from spurless.sweep import run_sweep
from spurless.sweep.measures import measures
from spurless.train.fit import fit
from tests.support.sweeps import NET, QUICK
from tests.support.worlds import pictures, tiny


def test_measures_are_those_of_the_metrics_one_by_one():
    data = tiny(n=150)
    kept = data.is_aligned(data.test)[:, 0] | (torch.arange(len(data.test)) % 8 == 0)  # so that groups differ in size
    data = replace(data, test=replace(data.test, x=data.test.x[kept], y=data.test.y[kept], a=data.test.a[kept]))
    result = fit("erm", data, net=NET, recipe=QUICK | {"epochs": 20}, seed=1)
    found = measures(result, data)
    net = result.classifier
    slow = data_prunability(net, data)
    assert slow.prunability != pytest.approx(data_prunability(net, data, score="average").prunability, abs=0.01)
    assert found["prunability"] == pytest.approx(slow.prunability)
    assert found["prunability_curve"] == pytest.approx(slow.accuracy)
    assert found["pruned_accuracy"] == pytest.approx(sum(slow.accuracy) / 10)
    assert found["magnitude_prunability"] == pytest.approx(data_prunability(net, data, how="magnitude").prunability)
    assert found["activation_compressibility"] == pytest.approx(activations_compressed(net, data).compressibility)
    seen = represent(net, data)
    assert found["csi"] == pytest.approx(seen["csi"])
    assert found["class_separation"] == pytest.approx(seen["class_separation"])
    assert found["bsi"] == pytest.approx(seen["bsi"][data.attributes[0]])
    for split, name in ((data.train, "train_accuracy"), (data.val, "val_accuracy")):
        right = net(split.x).argmax(1) == split.y
        assert found[name] == pytest.approx(100 * right.double().mean().item())
    assert found["val_rows"] == len(data.val)


def test_measures_take_the_split_that_was_scored_and_need_no_attributes():
    data = tiny(n=150)
    bare = replace(data, test=replace(data.test, a=None), val=None, aligned=())
    found = measures(fit("erm", bare, net=NET, recipe=QUICK), bare)
    assert "val_accuracy" not in found and "bsi" not in found
    assert found["prunability"] > 0 and 0 <= found["train_accuracy"] <= 100
    only_val = replace(data, test=None)
    result = fit("erm", only_val, net=NET, recipe=QUICK)
    assert result.scored_on == "val"
    found = measures(result, only_val)
    assert "val_accuracy" not in found  # the split that is scored must not decide


def test_training_accuracy_is_that_of_the_kept_weights():
    data = tiny(n=150)
    result = fit("erm", data, net=NET, recipe=QUICK | {"until_accuracy": 100, "lr": 0.5})
    right = result.classifier(data.train.x).argmax(1) == data.train.y
    assert measures(result, data)["train_accuracy"] == pytest.approx(100 * right.double().mean().item())
    result.history[-1]["train_accuracy"] = 1.0  # where others than the last weights were kept, it is not theirs
    assert measures(replace(result, selection="val_accuracy"), data)["train_accuracy"] > 1


def test_a_network_without_any_right_answer_has_no_prunability():
    data = tiny(n=60)
    wrong = fit("erm", data, net=NET, recipe=QUICK | {"lr": 0.5, "epochs": 10})
    flipped = replace(data, test=replace(data.test, y=1 - wrong.classifier(data.test.x).argmax(1)))
    assert "prunability" not in measures(wrong, flipped)


@pytest.mark.gpu
def test_measures_on_a_gpu_are_those_on_a_cpu():
    data = tiny(n=150)
    result = fit("erm", data, net=NET, recipe=QUICK, device="cuda")
    there = measures(result, data)
    result.classifier.cpu()
    here = measures(result, data)
    assert torch.device(next(result.classifier.parameters()).device).type == "cpu"
    for name, value in here.items():
        assert there[name] == pytest.approx(value, abs=1e-4), name


def test_a_network_that_only_pruning_breaks_is_a_point_like_any_other(tmp_path):
    """At this rate its weights grow to 1e18: whole, it gives numbers, and pruned it does not."""
    found = run_sweep(
        {"name": "toy", "n": 200},
        "lr",
        [0.1, 2.5],
        "mlp",
        seeds=1,
        recipe={"optimizer": "sgd", "epochs": 2, "until_accuracy": 0},
        out=tmp_path,
        device="cpu",
        workers=1,
    )
    assert [p["in_range"] for p in found["points"]] == [True, False]
    assert found["points"][1]["fell"] or found["points"][1]["diverged"]


def test_pruning_is_held_against_the_average_where_a_class_has_no_test_sample():
    data = pictures(n=64, shape=(1, 20, 20))
    kept = data.test.y != 0
    data = replace(data, test=replace(data.test, x=data.test.x[kept], y=data.test.y[kept], a=data.test.a[kept]))
    result = fit("erm", data, net=NET, recipe=QUICK | {"epochs": 10}, seed=1)
    assert result.scores["unbiased"] is None and result.scores["worst_group"] is None
    found = measures(result, data)
    assert found["prunability_curve"] == pytest.approx(
        data_prunability(result.classifier, data, score="average").accuracy
    )

"""Accuracy under corruption, against images that are corrupted one by one."""

from dataclasses import replace

import pytest
import torch

from spurless import evaluate, fit
from spurless.core.data import Images, Split
from spurless.core.errors import UserError
from spurless.data.corruptions import CORRUPTIONS, corrupt
from spurless.data.corruptions.inputs import INPUT_CORRUPTIONS
from spurless.nets import build
from spurless.train import robustness as rb
from tests.support.reference import accuracies_by_hand
from tests.support.runs import CPU
from tests.support.worlds import OwnModule, pictures, tiny


def world():
    return replace(pictures(n=64), inputs=Images((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))


def test_the_eight_of_biasadv_and_each_as_by_hand(monkeypatch):
    monkeypatch.setattr(rb, "CHUNK", 7)  # a row is corrupted alike in whatever batch it stands
    data = world()
    net = fit("erm", data, net="simconv1", **CPU).classifier.train()
    found = rb.robustness(net, data, seed=3)
    names = [row["corruption"] for row in found]
    assert names == ["none", *INPUT_CORRUPTIONS, "mean"] and len(INPUT_CORRUPTIONS) == 8
    assert net.training and all(m.training for m in net.modules())
    plain = evaluate(net, data, device="cpu")
    assert {k: found[0][k] for k in rb.SHOWN} == {k: plain[k] for k in rb.SHOWN}
    for row in found[1:-1]:
        worse = torch.cat(
            [INPUT_CORRUPTIONS[row["corruption"]](data.test.x[i : i + 1], seed=3, rows=[i]) for i in range(32)]
        )
        scores = evaluate(net, replace(data, test=replace(data.test, x=worse)), device="cpu")
        assert {k: row[k] for k in rb.SHOWN} == {k: scores[k] for k in rb.SHOWN}, row["corruption"]
    assert found[-1]["average"] == pytest.approx(sum(row["average"] for row in found[1:-1]) / 8)
    assert len({row["average"] for row in found[:-1]}) > 1
    assert found == rb.robustness(net, data, seed=3)


@pytest.mark.parametrize("name", ["none", "rotation", "gaussian_noise"])
def test_accuracies_by_hand(name):
    data, net = world(), OwnModule(3 * 28 * 28, 4)
    row = rb.robustness(net, data, [] if name == "none" else [name], seed=2)[0 if name == "none" else 1]

    def corrupt_one(image, i):
        return image if name == "none" else INPUT_CORRUPTIONS[name](image, seed=2, rows=[i])

    held = data.test
    expected = accuracies_by_hand(net, held.x, held.y, held.a[:, 0], data.inputs.mean, data.inputs.std, corrupt_one)
    assert {k: row[k] for k in rb.SHOWN} == pytest.approx(expected)


def test_severities_of_cifar_c():
    data, net = world(), build("simconv1", (3, 28, 28), 4).eval()
    found = rb.robustness(net, data, ["brightness", "fog"], "cifar-c", severities=(1, 5))
    assert [(row["corruption"], row["severity"]) for row in found[1:-1]] == [
        ("brightness", 1), ("brightness", 5), ("fog", 1), ("fog", 5)
    ]  # fmt: skip
    worse = replace(data, test=replace(data.test, x=corrupt(data.test.x, "fog", 5)))
    assert found[4]["average"] == evaluate(net, worse, device="cpu")["average"]
    assert rb.robustness(net, data, ["fog"], "cifar-c")[1]["severity"] == 3
    assert len(CORRUPTIONS) == 19


def test_a_run_its_folder_and_ones_own_module(tmp_path):
    data = world()
    result = fit("erm", data, net="simconv1", out=tmp_path / "run", **CPU)
    one = rb.robustness(result, data, ["jpeg"])
    assert one == rb.robustness(tmp_path / "run", data, ["jpeg"]) == rb.robustness(result.classifier, data, ["jpeg"])
    few = rb.robustness(OwnModule(3 * 28 * 28, 4), data, ["jpeg"], rows=10)
    assert [row["n"] for row in few] == [10, 10, 10]
    assert rb.robustness(result, data, ["jpeg"], split="val")[0]["n"] == 32


@pytest.mark.parametrize(("family", "name"), [("biasadv", "rotation"), ("cifar-c", "gaussian_noise")])
def test_of_some_rows_each_is_corrupted_as_among_all_and_has_its_own_label(family, name):
    class Seen(OwnModule):
        def forward(self, x):
            seen.append(x)
            return super().forward(x)

    seen, data, net = [], world(), Seen(3 * 28 * 28, 4)
    few = rb.robustness(net, data, [name], family, rows=20, seed=6)[1]
    inputs = torch.cat(seen)[20:]  # after those that are as they were
    seen.clear()
    rows = torch.randperm(32, generator=torch.Generator().manual_seed(6))[:20].sort().values
    x = data.test.x
    worse = INPUT_CORRUPTIONS[name](x, seed=6) if family == "biasadv" else corrupt(x, name, 3, seed=6)
    some = replace(data, test=Split(worse[rows], data.test.y[rows], data.test.a[rows]))
    scores = evaluate(net, some, device="cpu")
    assert {k: few[k] for k in rb.SHOWN} == {k: scores[k] for k in rb.SHOWN}
    assert torch.equal(inputs, torch.cat(seen))


def test_images_without_attributes_have_an_average_alone():
    data = world()
    blind = replace(data, test=replace(data.test, a=None))
    found = rb.robustness(OwnModule(3 * 28 * 28, 4), blind, ["cutout"])
    assert found[1]["conflicting"] is None and found[1]["average"] is not None and found[-1]["conflicting"] is None
    assert rb.as_table(found).splitlines()[3] == f"| cutout | {found[1]['average']:.1f} | - |"


def test_mistakes_are_said():
    data, net = world(), OwnModule(3 * 28 * 28, 4)
    with pytest.raises(UserError, match="did you mean 'jpeg'"):
        rb.robustness(net, data, ["jpg"])
    with pytest.raises(UserError, match="no severities"):
        rb.robustness(net, data, ["jpeg"], severities=(1,))
    with pytest.raises(UserError, match="holds none"):
        rb.robustness(OwnModule(), tiny())
    with pytest.raises(UserError, match="no split 'dev'"):
        rb.robustness(net, data, split="dev")
    with pytest.raises(UserError, match="no family of corruptions"):
        rb.robustness(net, data, family="imagenet-c")
    diverged = fit("erm", tiny(), net="mlp", recipe={"optimizer": "sgd", "lr": 1e30}, **CPU)
    with pytest.raises(UserError, match="no classifier"):
        rb.robustness(diverged, data)


def test_the_table():
    rows = [
        {"corruption": "none", "severity": None, "average": 90.0, "conflicting": 50.0},
        {"corruption": "motion_blur", "severity": 2, "average": 80.04, "conflicting": 12.25},
    ]
    assert rb.as_table(rows).splitlines()[2:] == [
        "| none | 90.0 | 50.0 |",
        "| motion blur, severity 2 | 80.0 | 12.2 |",
    ]

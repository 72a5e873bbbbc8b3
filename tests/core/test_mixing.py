"""Mixing pairs what it says, and every method trains, resumes and repeats with it."""

from dataclasses import replace

import pytest
import torch

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.methods import METHODS
from spurless.methods.parts.losses import ce, ce_rows, gce, two_labels
from spurless.methods.parts.mixing import Mixer
from spurless.train.fit import fit
from spurless.train.loop import Interrupted
from tests.support.quick import quick
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.text_worlds import BAG, sentences
from tests.support.worlds import pictures, tiny

WAYS = ["mixup", "within_class", "selecmix", "light_detail"]


def batch(y, x=None, t=1.0):
    y = torch.tensor(y)
    x = torch.arange(len(y)).float()[:, None] if x is None else x
    return Batch(x, y, None, torch.arange(len(y)) + 10, torch.tensor(t))


def test_mixup_keeps_the_larger_share_and_tells_the_other_label():
    b = batch([0, 1, 2, 0, 1, 2] * 5, torch.eye(30))
    mixed, (second, share, whose) = Mixer("mixup")(b)
    assert torch.equal(mixed.y, b.y) and torch.equal(mixed.idx, b.idx)
    assert bool((share >= 0.5).all()) and bool((share <= 1).all())
    for i, row in enumerate(mixed.x):  # each input is a row of the identity: what it is mixed of can be read off
        other = int(row.masked_fill(torch.arange(30) == i, 0).argmax()) if row[i] < 1 else i
        assert second[i] == b.y[other] and whose[i] == b.idx[other]
        assert row[i] == share[i] or other == i
        assert float(row.sum()) == pytest.approx(1)


def test_within_a_class_the_majority_is_mixed_with_the_minority():
    minority = torch.zeros(20, dtype=torch.bool)
    minority[[10, 13]] = True  # the first sample of each class; class 2 has none
    b = batch([0, 0, 0, 1, 1, 2], torch.eye(6))
    mixed, second = Mixer("within_class", minority=minority)(b)
    assert second is None and torch.equal(mixed.idx, b.idx)
    assert torch.equal(mixed.x[5], b.x[5])  # nothing to mix it with
    for major, minor in ((1, 0), (2, 0), (4, 3)):
        assert set(mixed.x[major].nonzero()[:, 0].tolist()) <= {major, minor}
        assert float(mixed.x[major][major]) <= 0.5  # at the end of the training
    start, _ = Mixer("within_class", minority=minority)(b._replace(t=torch.tensor(0.0)))
    assert float(start.x[1][1]) >= 1 - 2 * 0.5 * 2.7183**-5


def test_selecmix_takes_conflicting_pairs_and_the_label_of_the_larger_share():
    # Two classes, and an easy feature by which samples 0, 2 (class 0) and 3 (class 1) are alike, as are 1 and 4.
    z = torch.tensor([[1.0, 0], [0, 1.0], [1.0, 0.1], [1.0, 0.05], [0.1, 1.0]])
    table = torch.zeros(20, 2)
    table[10:15] = z
    b = batch([0, 0, 0, 1, 1], torch.eye(5))
    seen = set()
    for _ in range(20):
        mixed, second = Mixer("selecmix", embedding=table)(b)
        assert second is None
        first = mixed.idx - 10
        share = mixed.x[torch.arange(5), first]
        assert bool((share >= 0.5).all())
        assert torch.equal(mixed.y, b.y[first])
        seen.add(tuple(first.tolist()))
    assert seen == {(1, 0, 1, 4, 3), (3, 4, 3, 2, 1)}  # same class, least alike; another class, most alike


def test_losses_of_two_labels_are_weighted_means_of_both():
    g = torch.Generator().manual_seed(0)
    logits, y, z = (
        torch.randn(6, 3, generator=g),
        torch.randint(3, (6,), generator=g),
        torch.randint(3, (6,), generator=g),
    )
    s = torch.rand(6, generator=g)
    for loss in (ce_rows, lambda out, t: torch.stack([gce(out[i : i + 1], t[i : i + 1]) for i in range(6)])):
        by_hand = s * loss(logits, y) + (1 - s) * loss(logits, z)
        with two_labels(y, (z, s, torch.arange(6))):
            mean = ce(logits, y) if loss is ce_rows else gce(logits, y)
            assert torch.allclose(ce(logits, y.clone()), ce_rows(logits, y.clone()).mean())  # other labels: as ever
        assert torch.allclose(mean, by_hand.mean())
    assert torch.equal(ce(logits, y), torch.nn.functional.cross_entropy(logits, y))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_with_mixup(name):
    result = fit(quick(name), tiny(n=64), recipe=replace(tiny(n=64).recipe, mix="mixup"), **CPU)
    assert result.status == "done"


@pytest.mark.parametrize("name", ["erm", "lff", "pgd"])
@pytest.mark.parametrize("way", WAYS)
def test_a_mixed_run_resumes_to_the_bit(name, way, tmp_path):
    data = pictures()
    recipe = replace(data.recipe, mix=way)
    whole = fit(quick(name), data, net="simconv1", recipe=recipe, out=tmp_path / "whole", **CPU)
    plain = fit(quick(name), data, net="simconv1", recipe=data.recipe, **CPU)
    assert not same_weights(whole.classifier, plain.classifier)
    for _ in range(60):
        try:
            resumed = fit(
                quick(name),
                data,
                net="simconv1",
                recipe=recipe,
                out=tmp_path / "torn",
                device="cpu",
                progress=StopAt(3),
            )
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, resumed.classifier)


def test_within_class_mixing_takes_what_the_method_mined_else_the_errors_of_an_easy_network():
    data = tiny(n=64)
    stages = [
        {row["stage"] for row in fit(name, data, recipe=replace(data.recipe, mix="within_class"), **CPU).history}
        for name in ("pgd", "erm")
    ]
    assert stages == [{"biased", "debiased"}, {"easy", "erm"}]


def test_token_ids_are_not_mixed():
    with pytest.raises(UserError, match="token ids"):
        fit("erm", sentences(), net=BAG, recipe={"mix": "mixup", "epochs": 1}, **CPU)

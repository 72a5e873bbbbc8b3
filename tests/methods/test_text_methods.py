"""Every registered method runs on text as it does on pictures."""

from dataclasses import replace

import pytest
import torch

from spurless.methods import METHODS
from spurless.train.fit import fit
from tests.support.quick import QUICK, quick
from tests.support.runs import CPU, same_weights
from tests.support.text_worlds import BAG, BERT, sentences

BETTER = ("jtt", "group_dro", "rs", "cnc")  # what clearly leaves plain training behind, in three epochs on 400 rows
FEW_EPOCHS = replace(sentences(n=4).recipe, epochs=2)


@pytest.mark.parametrize("name", METHODS)
def test_it_runs_on_text(name):
    data = sentences(n=96)
    result = fit(quick(name), data, net=BAG, recipe=FEW_EPOCHS, **CPU)
    assert result.status == "done" and result.scores["n"]["average"] == 200
    assert all(torch.isfinite(p).all() for p in result.classifier.parameters())
    assert result.classifier(data.test.x[:5]).shape == (5, 2)
    assert all(len(rows) for rows in result.mining.values())


@pytest.mark.parametrize("name", ["erm", "pgd", "lff", "group_dro", "dfr", "avp", "dcwp", "cnc"])
def test_it_runs_with_a_transformer_and_repeats(name):
    data = sentences(n=64)
    a, b = (fit(quick(name), data, net=BERT, recipe=FEW_EPOCHS, seed=1, **CPU) for _ in range(2))
    assert a.status == "done" and same_weights(a.classifier, b.classifier)


@pytest.mark.parametrize("name", BETTER)
def test_it_leaves_plain_training_behind(name):
    data = sentences(n=400)
    plain = fit("erm", data, net=BAG, **CPU).scores["conflicting"]
    assert plain < 30
    settings = {k: v for k, v in QUICK.get(name, {}).items() if k != "lambda_up"}
    assert fit({"name": name} | settings, data, net=BAG, **CPU).scores["conflicting"] > plain + 20

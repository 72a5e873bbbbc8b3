"""The Trainer of transformers logs what group metrics say, and trains with PGD's weights."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

import spurless
from spurless import UserError

transformers = pytest.importorskip("transformers", reason="transformers is not installed: spurless[hf]")
pytest.importorskip("accelerate", reason="accelerate is not installed: spurless[hf]")

pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers and accelerate


class Texts(torch.utils.data.Dataset):
    """Eight tokens: the last one tells the class, and the first one, the shortcut, misleads where it disagrees."""

    def __init__(self, n, agree, seed):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 2, n)
        self.a = np.where(rng.random(n) < agree, self.y, 1 - self.y)
        self.ids = rng.integers(10, 30, (n, 8))
        self.ids[:, 0], self.ids[:, 7] = 2 + self.a, 4 + self.y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.ids[i]), "labels": torch.tensor(self.y[i])}


def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    return transformers.BertForSequenceClassification(config)


def trainer_of(kind, folder, net, train, held_out, attributes=None, epochs=1):
    from spurless.integrations.hugging_face import GroupMetrics

    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    callback = GroupMetrics(held_out.a if attributes is None else attributes, {0: 0, 1: 1})
    return kind(net, arguments, train_dataset=train, eval_dataset=held_out, callbacks=[callback])


def test_what_is_logged_is_group_metrics(tmp_path):
    train, held_out = Texts(300, 0.95, 0), Texts(200, 0.5, 1)
    net = model()
    trainer = trainer_of(transformers.Trainer, tmp_path, net, train, held_out)
    trainer.train()
    told = trainer.evaluate()
    with torch.no_grad():
        logits = net.eval()(input_ids=torch.tensor(held_out.ids)).logits
    fits = held_out.a == held_out.y
    expected = spurless.group_metrics(held_out.y, logits.argmax(1).numpy(), held_out.a, aligned=fits)
    for name in ("average", "conflicting", "worst_group"):
        assert told[f"eval_{name}"] == pytest.approx(getattr(expected, name).value, abs=1e-3)
    loss = nn.functional.cross_entropy(logits, torch.tensor(held_out.y), reduction="none").numpy()
    assert told["eval_conflicting_loss_share"] == pytest.approx(100 * loss[~fits].sum() / loss.sum(), abs=0.01)
    logged = [row for row in trainer.state.log_history if "eval_worst_group" in row]
    assert logged and logged[-1]["eval_worst_group"] == told["eval_worst_group"]


def test_attributes_of_another_length_are_refused(tmp_path):
    held_out = Texts(40, 0.5, 1)
    trainer = trainer_of(transformers.Trainer, tmp_path, model(), held_out, held_out, attributes=[0, 1])
    with pytest.raises(UserError, match="2 attributes, and 40 samples"):
        trainer.evaluate()


def test_a_trainer_trains_with_pgds_weights(tmp_path):
    class Weighted(transformers.Trainer):
        weights = None

        def _get_train_sampler(self, *args):
            return WeightedRandomSampler(self.weights, len(self.weights))

    train, held_out = Texts(1000, 0.95, 0), Texts(300, 0.5, 1)
    biased = model()
    trainer = trainer_of(transformers.Trainer, tmp_path, biased, train, held_out)
    trainer.train()
    before = trainer.evaluate()
    weights = spurless.sample_weights(biased, DataLoader(train, batch_size=64), "pgd", head="classifier")
    assert weights[train.a != train.y].mean() > 2 * weights[train.a == train.y].mean()
    trainer = trainer_of(Weighted, tmp_path, biased, train, held_out, epochs=2)
    trainer.weights = weights
    trainer.train()
    assert before["eval_conflicting"] + 10 < trainer.evaluate()["eval_conflicting"]

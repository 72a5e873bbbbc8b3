"""Lightning's Trainer logs what group metrics say, and trains with PGD's weights. Skipped where it is missing."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import spurless
from spurless import UserError

L = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: spurless[lightning]")

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, of workers and devices


def samples(n, agree, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    a = torch.where(torch.rand(n, generator=generator) < agree, y, 1 - y)
    x = torch.stack([4.0 * a, 1.0 * y], 1) + 0.4 * torch.randn(n, 2, generator=generator)
    return TensorDataset(x, y, a)


class Module(L.LightningModule):
    def __init__(self, gives_logits=True):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
        self.gives_logits = gives_logits

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, number):
        x, y, _ = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, number):
        logits = self(batch[0])
        return {"logits": logits} if self.gives_logits else None

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trained(loader, gives_logits=True, epochs=3, held_out=None, aligned=None):
    from spurless.integrations.lightning import GroupMetrics

    torch.manual_seed(0)
    module = Module(gives_logits)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[GroupMetrics(aligned or {0: 0, 1: 1})],
    )
    held_out = samples(400, 0.5, 1) if held_out is None else held_out
    trainer.fit(module, loader, DataLoader(held_out, batch_size=64))
    return module, {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("gives_logits", [True, False])
def test_what_is_logged_is_group_metrics(gives_logits):
    module, logged = trained(DataLoader(samples(600, 0.95, 0), batch_size=64, shuffle=True), gives_logits)
    x, y, a = samples(400, 0.5, 1).tensors
    logits = module.eval()(x).detach()
    right = logits.argmax(1) == y
    expected = spurless.group_metrics(y, logits.argmax(1), a, aligned=(a == y).numpy())
    for name in ("average", "unbiased", "worst_group", "conflicting"):
        assert logged[f"val/{name}"] == pytest.approx(getattr(expected, name).value, abs=1e-3)
    assert logged["val/group/1/0"] == pytest.approx(100 * float(right[(y == 1) & (a == 0)].float().mean()), abs=1e-3)
    loss = nn.functional.cross_entropy(logits, y, reduction="none")
    assert logged["val/conflicting_loss_share"] == pytest.approx(100 * float(loss[a != y].sum() / loss.sum()), abs=1e-2)
    assert logged["val/conflicting_loss_share"] > 60


def test_a_trainer_trains_with_pgds_weights():
    train = samples(2000, 0.95, 0)
    plain, before = trained(DataLoader(train, batch_size=64, shuffle=True), epochs=1)
    weights = spurless.sample_weights(plain.net, DataLoader(train, batch_size=64), "pgd")
    _, after = trained(DataLoader(train, batch_size=64, sampler=WeightedRandomSampler(weights, len(weights))))
    assert before["val/conflicting"] + 20 < after["val/conflicting"]


def test_batches_without_attributes_are_refused():
    x, y, _ = samples(64, 0.5, 1).tensors
    with pytest.raises(UserError, match="no attribute"):
        trained(DataLoader(samples(64, 0.5, 0), batch_size=64), held_out=TensorDataset(x, y))

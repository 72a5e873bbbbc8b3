"""Features of a frozen network in place of inputs."""

import torch

from spurless.compress.embedding import embed
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.nets.outputs import Inputs
from tests.support.worlds import pictures


def test_each_split_holds_the_networks_own_features_of_its_rows():
    data = pictures()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = build("simconv1", data.shape, len(data.classes)).eval()
    made = embed(data, net, device="cpu")
    prepare = Inputs(data, Recipe(channels_last=False), torch.device("cpu"))
    for name, split in data.splits.items():
        with torch.no_grad():
            expected = net.features(prepare(split.x))  # in evaluation mode: no dropout, no statistics of the batch
        new = made.splits[name]
        assert torch.allclose(new.x, expected, atol=1e-5)
        assert torch.equal(new.y, split.y) and torch.equal(new.a, split.a)
    seen = Inputs(made, Recipe(), torch.device("cpu"))(made.train.x)
    moving = made.train.x.std(0) > 1e-3
    assert torch.allclose(seen.mean(0), torch.zeros(len(seen[0])), atol=1e-3)
    assert torch.allclose(seen.std(0)[moving], torch.ones(int(moving.sum())), atol=1e-2)
    assert "frozen" in made.notes[-1]


def test_the_users_network_is_not_changed():
    data = pictures()
    net = build("simconv1", data.shape, len(data.classes)).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    embed(data, net, device="cpu")
    assert net.training and all(torch.equal(before[k], v) for k, v in net.state_dict().items())

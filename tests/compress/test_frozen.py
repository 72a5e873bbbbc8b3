"""Features of a frozen network: by the fastest way that agrees with it, and kept by the content they follow from."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.compress import embedding, frozen
from spurless.compress.embedding import embed
from spurless.core.files import cache_dir
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.nets import Net, build
from tests.support.worlds import pictures


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path))
    monkeypatch.setattr(embedding, "WORTH", 1)


@pytest.fixture
def asked(monkeypatch):
    """How many splits have been embedded so far."""
    done = []
    real = embedding.outputs
    monkeypatch.setattr(embedding, "outputs", lambda *a, **k: (done.append(1), real(*a, **k))[1])
    return lambda: len(done)


def convolutions() -> Net:
    torch.manual_seed(3)
    net = build("resnet18", (3, 32, 32), 2)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):  # as trained: folding would otherwise have nothing to fold
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
    return net.eval()


@pytest.mark.parametrize("how", list(frozen.WAYS))
def test_each_way_gives_the_networks_features(how, monkeypatch):
    if how == "ONNX Runtime":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    monkeypatch.setattr(frozen, "WAYS", {how: frozen.WAYS[how]})
    net, x = convolutions(), torch.randn(7, 3, 32, 32)
    quick = frozen.quickest(net, x[:2])
    assert isinstance(quick, frozen.Frozen) and quick.how == how
    with torch.no_grad():
        for part in (x, x[:1], x[:5]):  # batches of any size
            expected = net.features(part)
            assert quick.features(part).shape == expected.shape
            assert (quick.features(part) - expected).abs().max() <= frozen.TOLERANCE * expected.abs().max()


def test_what_gives_other_features_is_not_used(monkeypatch):
    net = convolutions()
    monkeypatch.setattr(frozen, "WAYS", {"wrong": lambda encoder, example: lambda x: encoder(x).flatten(1) * 1.01})
    assert frozen.quickest(net, torch.randn(2, 3, 32, 32)) is net


def test_what_fails_is_not_used(monkeypatch):
    def fails(encoder, example):
        raise RuntimeError("no such operator")

    net = convolutions()
    monkeypatch.setattr(frozen, "WAYS", {"failing": fails})
    assert frozen.quickest(net, torch.randn(2, 3, 32, 32)) is net


def test_features_are_kept_and_found_again(asked):
    data = pictures()
    first = embed(data, "simconv1", device="cpu")
    assert asked() == len(data.splits)
    again = embed(data, "simconv1", device="cpu")
    assert asked() == len(data.splits)
    for name, split in first.splits.items():
        assert torch.equal(split.x, again.splits[name].x)


def test_another_pixel_standardisation_or_network_is_embedded_anew(asked):
    data = pictures()
    embed(data, "simconv1", device="cpu")
    n = asked()
    x = data.train.x.clone()
    x[0, 0, 0, 0] ^= 1
    embed(replace(data, train=replace(data.train, x=x)), "simconv1", device="cpu")
    assert asked() == n + 1  # one split
    other = tuple(s + 0.1 for s in data.inputs.std or (1.0,) * data.shape[0])
    mean = data.inputs.mean or (0.0,) * data.shape[0]
    embed(replace(data, inputs=replace(data.inputs, std=other, mean=mean)), "simconv1", device="cpu")
    embed(data, "simconv2", device="cpu")
    assert asked() == n + 1 + 2 * len(data.splits)


def test_a_network_of_ones_own_is_never_kept(asked):
    """Its code may have changed since."""
    data, net = pictures(), build("simconv1", pictures().shape, 2)
    for _ in range(2):
        embed(data, net, device="cpu")
    assert asked() == 2 * len(data.splits)
    assert not (cache_dir() / "features").exists()


def test_damaged_features_are_computed_again(asked, capsys):
    data = pictures()
    first = embed(data, "simconv1", device="cpu")
    for file in (cache_dir() / "features").iterdir():
        tensors, facts = load_tensors(file)
        size = file.stat().st_size
        save_tensors(file, tensors, facts)
        with open(file, "r+b") as opened:
            opened.seek(size - 2)
            opened.write(b"\x7f\x7f")
    again = embed(data, "simconv1", device="cpu")
    assert asked() == 2 * len(data.splits)
    assert torch.equal(first.train.x, again.train.x)
    assert "computed again" in capsys.readouterr().err

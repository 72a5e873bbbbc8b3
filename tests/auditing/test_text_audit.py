"""The audit on texts: cues and their exchange, words of slices and errors, galleries, the page, and whole audits."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spurless.auditing import audit
from spurless.auditing.case import Case, make_case
from spurless.auditing.gallery import _weighted, galleries, highlight
from spurless.auditing.model import suited, suited_recipe, with_held_out
from spurless.auditing.slices import in_words
from spurless.auditing.text_cues import body, marker_ids, text_cues
from spurless.auditing.text_swaps import swap_end, swap_kind, swap_length, swap_marked, swap_phrase
from spurless.auditing.text_words import odds_ratios, of_errors
from spurless.core.data import Texts
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.data.tokens import Tokens
from spurless.data.words import Word, words_of
from spurless.nets import build
from spurless.report.texts import spans
from tests.support.audits import undocumented
from tests.support.text_worlds import sentences, word_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return word_tokenizer(tmp_path_factory.mktemp("tokens") / "words")


def review_bundle(tokenizer, n=600, rho=0.05, seed=0, attributes=True, spread=False):
    """Short reviews: 'good' or 'bad' says the class, unreliably; 'imdb' or 'rotten' goes with it, but for a share.

    With `spread` no single word says the class: each of many is a little commoner in one of them.
    """
    from spurless.data.arrays import from_texts

    g = np.random.default_rng(seed)
    # Where words say the class, they are none of the small ones: those are what makes a style.
    filler = ("b c e f film really fine dull review" if spread else "a b c d e f film was the it really").split()
    texts, y, a = [], [], []
    for i in range(n):
        label = i % 2
        source = label if g.random() > rho else 1 - label
        own = label if g.random() < 0.8 else 1 - label
        odds = np.exp(0.9 * (2 * label - 1) * np.cos(2.0 * np.arange(len(filler)))) if spread else np.ones(len(filler))
        judged = [] if spread else [("bad", "good")[own]]
        words = [*g.choice(filler, 6, p=odds / odds.sum()), *judged, *[("rotten", "imdb")[source]] * 2]
        texts.append(" ".join(g.permutation(words)))
        y.append(("negative", "positive")[label])
        a.append(("rotten", "imdb")[source])
    return from_texts(texts, y, {"source": a} if attributes else None, tokenizer=tokenizer, length=16, name="reviews")


# Rows in pieces, and exchanges


def test_a_row_is_taken_apart_and_put_together():
    special = np.array([True, True, True] + [False] * 10)
    rows = np.array([[[1, 5, 6, 2, 7, 8, 9, 2, 0, 0], [1, 1, 1, 1, 2, 2, 2, 2, 0, 0]]], np.int32)
    found = body(rows[0], special)
    assert found.ids == [7, 8, 9] and found.before.tolist() == [[1, 5, 6, 2], [1, 1, 1, 1]]
    assert np.array_equal(found.row(found.ids, 10), rows[0])
    assert found.row([3, 4] * 9, 10).tolist() == [[1, 5, 6, 2, 3, 4, 3, 4, 3, 2], [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]]
    empty = body(np.zeros((2, 4), np.int32), special)
    assert empty.ids == [] and empty.row([3], 4).tolist() == [[3, 0, 0, 0], [1, 0, 0, 0]]


def test_exchanges_keep_what_they_do_not_exchange():
    kind = np.arange(20) < 10  # ids below 10 are of the kind
    mine, theirs = [11, 1, 12, 2, 13], [14, 3, 15, 3, 16, 4, 17, 5]
    styled = swap_kind(mine, theirs, kind)
    assert [i for i in styled if i >= 10] == [11, 12, 13] and {i for i in styled if i < 10} <= {3, 4, 5}
    assert len([i for i in styled if i < 10]) == 3  # theirs has one for each other token
    assert swap_length(mine, theirs) == [*mine, 11, 1, 12] and swap_length([], theirs) == []
    assert sorted(swap_marked(mine, theirs, frozenset({12, 15, 16}))) == [1, 2, 11, 13, 15, 16]
    assert swap_end([7, 1, 2], [7, 9], [7], end=False) == [7, 1, 2] and swap_end([7, 1], [9], [7], end=False) == [1]
    assert swap_phrase([1, 2, 3, 4], [9, 8], (2, 3)) == [1, 4] and swap_phrase([1, 4], [2, 3], (2, 3)) == [1, 2, 3, 4]
    assert swap_kind([1, 2], theirs, kind) == [1, 2]  # a text of nothing else stays


def test_markers_are_the_tokens_that_one_class_has_most_more_often():
    texts = [[5, 6], [5, 7], [5, 6], [6, 7], [7, 8], [6, 8], [7, 8], [8, 9]]
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    # 8 is in all four texts of class 1 and in none of the other; 5 in three of class 0.
    assert marker_ids(texts, y, 2, 10, 2) == [8, 5]
    assert marker_ids(texts, y, 2, 10, 2, kind=np.arange(10) == 7) == []  # as often in both
    rare = [texts[0], *[[]] * 99]  # its words are in 1 % of the texts
    assert marker_ids(rare, np.array([1] + [0] * 99), 2, 10, 2) == []


def test_every_cue_reads_and_swaps_rows_of_the_same_kind(tokenizer):
    data = review_bundle(tokenizer, n=80)
    x, words = data.train.x, words_of(data.inputs.tokens)
    cues = text_cues(words, x, data.train.y, torch.arange(len(x)), 2)
    assert cues[-1].name == "length"
    for cue in cues:
        assert len(cue.values) == len(x) and bool(cue.values.isfinite().all())
        swapped = cue.swap(x[:20], x[20:40])
        assert swapped.shape == x[:20].shape and swapped.dtype == x.dtype
        assert bool((swapped[:, 0, 0] == x[:20, 0, 0]).all())  # [CLS] stays where it is
    marked = next(c for c in cues if c.name.startswith("the words"))
    assert "'imdb'" in marked.name or "'rotten'" in marked.name


# Words


def test_odds_ratios_by_hand():
    here = torch.tensor([[True, True]] * 30 + [[False, True]] * 10)
    elsewhere = torch.tensor([[True, True]] * 10 + [[False, True]] * 90)
    dull, all_ = sorted(odds_ratios(here, elsewhere, ["dull", "the"]), key=lambda o: o.word)
    ratio = (30.5 / 10.5) / (10.5 / 90.5)
    error = (1 / 30.5 + 1 / 10.5 + 1 / 10.5 + 1 / 90.5) ** 0.5
    assert dull.ratio == pytest.approx(ratio) and dull.low == pytest.approx(ratio * np.exp(-1.96 * error))
    assert (dull.here, dull.elsewhere) == (0.75, 0.1) and dull.p < 1e-6 and all_.p > 0.5
    assert str(dull).startswith("'dull': 75 % here, 10 % elsewhere in the class (odds × 25")


def test_words_that_say_nothing_are_seldom_told():
    alarms = 0
    for seed in range(60):
        g = torch.Generator().manual_seed(seed)
        held = torch.rand(300, 80, generator=g) < 0.15
        alarms += odds_ratios(held[:60], held[60:], [str(k) for k in range(80)])[0].p < 0.05
    assert alarms <= 8  # of 60 at 5 %; 9 or more would be one in 300


def test_the_words_of_errors_and_of_a_slice(tokenizer):
    data = review_bundle(tokenizer, n=400, rho=0.5)
    held = data.test
    imdb = held.a[:, 0] == data.values[0].index("imdb")
    predicted = torch.where(imdb, 1, 0)  # a model that reads the source
    logits = nn.functional.one_hot(predicted, 2).float()
    net = build({"name": "embedding_bag", "dim": 4, "vocab": data.inputs.tokens.size}, data.shape, 2).eval()
    case = Case(data, net, "given", held, "test", CPU, logits, torch.zeros(len(held), 2))
    found = {entry["class"]: entry for entry in of_errors(case)}
    assert set(found) == {"negative", "positive"}
    best = {name: entry["words"][0] for name, entry in found.items()}
    assert {best["negative"]["word"], best["positive"]["word"]} <= {"imdb", "rotten"}
    of_negative = {w["word"]: w["ratio"] for w in found["negative"]["words"]}
    assert of_negative["imdb"] > 10 and of_negative["rotten"] < 0.1
    own = held.y == 0
    said = in_words(case, (own & imdb).nonzero()[:, 0], (own & ~imdb).nonzero()[:, 0])
    assert any(text.startswith("'imdb': 100 % here, 0 %") for text in said)


# Galleries and the page


def test_galleries_show_texts_with_weights(tokenizer):
    pytest.importorskip("captum")
    data = review_bundle(tokenizer, n=200)
    net = build({"name": "embedding_bag", "dim": 8, "vocab": data.inputs.tokens.size}, data.shape, 2).eval()
    case = make_case(data, net, "given", "test", CPU)
    shown = galleries(case, ~case.right, torch.rand(len(case.held)))
    rows = [i["row"] for g in shown for k in ("aligned", "conflicting") for i in g[k]]
    texts = highlight(case, rows)
    assert set(texts) == set(rows)
    for row, words in texts.items():
        whole = "".join(word for word, _ in words)
        assert whole == data.inputs.tokens.text(case.held.x[row])
        assert max(abs(w) for _, w in words) == pytest.approx(1.0)


def test_weights_are_for_what_the_model_answers_not_for_the_label(tokenizer):
    pytest.importorskip("captum")
    data = review_bundle(tokenizer, n=200)
    net = build({"name": "embedding_bag", "dim": 1, "vocab": data.inputs.tokens.size}, data.shape, 2).eval()
    ids = {
        word: i for row in data.test.x for word, i in zip(data.inputs.tokens.pieces(row), row[0].tolist(), strict=False)
    }
    with torch.no_grad():  # a model that knows two words, and takes one for each class
        net.encoder.embedding.weight.zero_()
        net.encoder.embedding.weight[[ids["imdb"], ids["rotten"]]] = torch.tensor([[1.0], [-1.0]])
        net.head.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        net.head.bias.zero_()
    case = make_case(data, net, "given", "test", CPU)
    rows = torch.cat([mask.nonzero()[:5, 0] for mask in (case.right, ~case.right)]).tolist()
    assert len(rows) > 5 and {int(case.predicted[row]) for row in rows} == {0, 1}
    for row, words in highlight(case, rows).items():
        weight = {word.strip(): w for word, w in words}
        told = ("rotten", "imdb")[case.predicted[row]]
        assert weight[told] == 1.0 and all(w == 0 for word, w in weight.items() if word != told)


def test_the_two_texts_of_a_pair_are_shown_apart(tokenizer):
    pytest.importorskip("captum")
    from spurless.data.arrays import from_texts

    pairs = [("a good film", ". it was bad"), ("the film", "really fine")] * 10
    data = from_texts(pairs, ["no", "yes"] * 10, tokenizer=tokenizer, length=16, val=0, test=0.2)
    net = build({"name": "embedding_bag", "dim": 8, "vocab": data.inputs.tokens.size}, data.shape, 2).eval()
    case = make_case(data, net, "given", "test", CPU)
    shown = {"".join(word for word, _ in words) for words in highlight(case, range(len(case.held))).values()}
    assert shown == {"a good film | . it was bad", "the film | really fine"}


@pytest.mark.parametrize(("strongest", "first", "last"), [(3, "w0", "w99"), (140, "w50", "w149"), (120, "w50", "w149")])
def test_a_long_text_is_cut_around_its_strongest_word(strongest, first, last):
    words = [Word(f"w{k}", k, k + 1) for k in range(150)]
    weights = torch.full((150,), -0.1)
    weights[strongest] = 2.0
    shown = _weighted(torch.ones(2, 150, dtype=torch.long), words, weights)
    told = [text.strip() for text, _ in shown]
    assert [f"w{strongest}", 1.0] in [[text.strip(), weight] for text, weight in shown]
    assert len(told) == 101 and told[0 if strongest < 100 else 1] == first and last in told[-2:]
    assert (told[-1] == "…") == (strongest < 100) and (told[0] == "…") == (strongest >= 100)


def test_rows_that_are_held_out_keep_their_overlapping_groups():
    data = sentences(n=40, overlap=True)
    found, split = with_held_out(replace(data, val=None, test=None), seed=0)
    assert split == "val" and len(found.train) + len(found.val) == 40
    for part in (found.train, found.val):
        at = [int((data.train.x == row).flatten(1).all(1).nonzero()[0, 0]) for row in part.x]
        assert torch.equal(part.member, data.train.member[at]) and torch.equal(part.a, data.train.a[at])


def test_weights_become_spans_and_markup_stays_text(tmp_path):
    weird = "<script>alert(1)</script>"
    found = spans([[weird, 1.0], [" <b>", -0.3], [' "quoted" & more', None]])
    assert [s["side"] for s in found if s["text"].strip()] == ["for", "against", ""]
    item = {"row": 3, "name": weird, "picture": None, "map": None, "text": [[weird, 1.0], [" x", None]]}
    saved = {
        "verdict": "shortcut found",
        "schema": 2,
        "headline": weird,
        "data": {"name": "made"},
        "kinds": ["aligned", "conflicting"],
        "gallery": [{"class": weird, "aligned": [item], "conflicting": [item]}],
        "rows": [item | {"rank": 1, "label": "a", "prediction": "b", "says": None, "score": 0.5}],
        "slices": [{"class": "a", "size": 4, "words": [weird], "texts": [[[weird, -1.0]]]}],
        "words": [
            {"class": weird, "wrong": 9, "right": 9}
            | {"words": [{"word": weird, "here": 1.0, "elsewhere": 0, "ratio": 9.0, "low": 2.0, "high": 30, "p": 0.01}]}
        ],
    }  # fmt: skip
    (tmp_path / "audit.json").write_text(json.dumps(saved))
    from spurless.report import write_audit

    write_audit(tmp_path, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert "alert(1)" in html and "<script>alert" not in html and "<b>" not in html
    assert html.count('<mark class="for"') >= 2 and '<mark class="against"' in html
    assert 'id="texts"' in html and 'id="words"' in html


# Whole audits


def nobody(name):
    raise UserError(f"There is no tokenizer '{name}'.")


def test_an_audit_of_texts_with_attributes(tokenizer, tmp_path):
    data = review_bundle(tokenizer)
    found = audit(replace(data, val=None), out=tmp_path, device="cpu", progress=False)
    assert found["verdict"] in ("found", "gap") and any(f["name"] == "source" for f in found["findings"])
    saved = json.loads((tmp_path / "audit.json").read_text())
    assert saved["words"] == found["words"] and undocumented(saved) == []
    shown = [i for g in found["gallery"] for i in g["aligned"]]
    assert shown and all(i["text"] and i["picture"] is None for i in shown)
    assert not {"colour", "margin"} & {*found["tested"], *(f["name"] for f in found["findings"])}
    html = (tmp_path / "report.html").read_text()
    assert "What it looks like" in html and "imdb" in html


def test_a_planted_word_is_found_without_attributes(tokenizer):
    data = review_bundle(tokenizer, n=1200, attributes=False)
    found = audit(replace(data, val=None), device="cpu", progress=False)
    assert found["attributes"] == [] and found["verdict"] in ("found", "available")
    assert any("'imdb'" in f["name"] or "'rotten'" in f["name"] for f in found["findings"])


def test_texts_without_a_shortcut_raise_no_alarm(tokenizer):
    for seed in range(2):
        data = review_bundle(tokenizer, n=900, rho=0.5, seed=seed, spread=True)
        found = audit(replace(data, val=None), device="cpu", progress=False, seed=seed)
        assert found["verdict"] not in ("found", "gap"), found["headline"]


def test_rows_without_a_tokenizer_are_audited_too(monkeypatch):
    monkeypatch.setattr("spurless.data.tokens._tokenizer", nobody)  # which would ask the hub
    found = audit(sentences(n=300), device="cpu", progress=False)
    assert found["verdict"] in ("found", "gap", "available")


def test_other_data_gets_no_words():
    found = audit({"name": "toy", "n": 300}, device="cpu", progress=False)
    assert found["words"] is None


def test_the_network_and_its_recipe_suit_texts():
    data = sentences(n=200)
    assert suited(data) == {"name": "embedding_bag", "vocab": data.inputs.tokens.size}
    assert suited(replace(data, inputs=Texts(Tokens("minilm", 30522, "")), net="minilm")) == "embedding_bag"
    assert suited_recipe(data, suited(data)).iterations == -(-10 * 200 // 64)
    slow = Recipe("adamw", 1e-5, epochs=2)
    assert suited_recipe(replace(data, recipe=slow), "bert").lr == 1e-5  # another network keeps the data's recipe

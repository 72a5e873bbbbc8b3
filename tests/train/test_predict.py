"""What a trained model says of new samples is what its network gives for them, computed by hand."""

import gzip
import logging
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from spurless import Bundle, Split, fit, load_run
from spurless.core.errors import DataError, FolderError, UserError
from spurless.data.ingest.images import IMAGENET_MEAN, IMAGENET_STD
from spurless.data.tokens import tokenise
from spurless.train.saved import load_predictor
from tests.support.commands import class_folders, image, invoke, mistake
from tests.support.text_worlds import word_tokenizer

SETTINGS = {"device": "cpu", "progress": False}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of drawn images, and a run that was trained on it at another size than theirs would be."""
    folder = tmp_path_factory.mktemp("photos")
    data = {"name": class_folders(folder / "seen", ["cow", "dog"], 20), "size": 8}
    fit("erm", data, net="linear", recipe={"epochs": 2, "augment": "none"}, out=folder / "run", **SETTINGS)
    for i in range(4):
        image(folder / "new" / f"{i}.png", i % 2, seed=900 + i)
    return folder


def by_hand(run, files):
    """(n, classes) probabilities, from the pixels and the saved weights, with nothing of ours in between."""
    pixels = torch.stack([torch.from_numpy(np.array(Image.open(f))).permute(2, 0, 1) for f in files])  # (n, 3, 8, 8)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    head = load_run(run).classifier.head
    x = ((pixels / 255 - mean) / std).flatten(1)
    return (x @ head.weight.T + head.bias).softmax(1).detach().numpy()


def test_new_images_however_they_are_given(photos):
    files = sorted((photos / "new").glob("*.png"))
    expected = by_hand(photos / "run", files)
    result = load_run(photos / "run")
    assert result.classes == ("cow", "dog")
    pixels = np.stack([np.array(Image.open(f)) for f in files])  # (n, h, w, 3) uint8
    ways = {
        "paths": files,
        "texts": [str(f) for f in files],
        "a folder": photos / "new",
        "pictures": [Image.open(f) for f in files],
        "bytes": pixels,
        "floats": (pixels / 255).astype(np.float32),
        "a tensor": torch.from_numpy(pixels).permute(0, 3, 1, 2),
    }
    for way, given in ways.items():
        assert result.predict_proba(given) == pytest.approx(expected, abs=1e-5), way
        assert result.predict(given).tolist() == [("cow", "dog")[k] for k in expected.argmax(1)], way
    assert result.predict_proba(files[0]) == pytest.approx(expected[:1], abs=1e-5)
    assert result.predict_proba(pixels[0].transpose(2, 0, 1)) == pytest.approx(expected[:1], abs=1e-5)


@pytest.mark.parametrize(
    ("scaled", "said"),
    [
        (lambda x: x.astype(np.float32), "divide by 255"),
        (lambda x: (x / 255 - 0.45).astype(np.float32) / 0.22, "undo the standardisation"),
        (lambda x: (x > 99).astype(np.uint8), "multiply by 255"),
        (lambda x: x, None),
        (lambda x: np.zeros_like(x, np.float32), None),  # black is a colour
    ],
)
def test_wrongly_scaled_images_are_noticed(photos, caplog, scaled, said):
    pixels = np.stack([np.array(Image.open(f)) for f in sorted((photos / "new").glob("*.png"))])
    with caplog.at_level(logging.WARNING, "spurless"):
        load_run(photos / "run").predict(scaled(pixels))
    assert (said in caplog.text) if said else not caplog.text


def test_what_the_model_cannot_read_is_refused(photos):
    result = load_run(photos / "run")
    for given, said in [
        (np.zeros((2, 3, 9, 9), np.uint8), r"\(n, 3, 8, 8\)"),
        ("nowhere.png", "no file nowhere.png"),
        (object(), "cannot be read as inputs"),
    ]:
        with pytest.raises(DataError, match=said):
            result.predict(given)
    Path("notes.txt").write_text("hello")
    with pytest.raises(DataError, match="is no image"):
        result.predict("notes.txt")


def test_predictions_of_its_own_data_are_a_frame(photos):
    """Every row by hand; the data is loaded again, as the run was given it."""
    result = load_run(photos / "run")
    frame = result.predictions()
    assert list(frame.columns) == ["name", "label", "prediction", "probability", "conflicting"]
    assert len(frame) == result.n and frame["conflicting"].isna().all()
    assert 100 * (frame["label"] == frame["prediction"]).mean() == pytest.approx(result.scores["average"])
    expected = by_hand(photos / "run", [photos / "seen" / name for name in frame["name"]])
    assert frame["probability"].to_numpy() == pytest.approx(expected.max(1), abs=1e-5)
    everything = sum(len(result.predictions(split=split)) for split in ("train", "val", "test"))
    assert everything == 40
    with pytest.raises(UserError, match="split"):
        result.predictions(split="tset")


def test_the_frame_names_attributes_and_conflicting_samples():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(4, 1)
    y = torch.tensor([0, 1] * 4)
    a = torch.tensor([[0], [1], [0], [1], [0], [1], [1], [0]])  # the last two conflict
    split = Split(x, y, a, names=[f"row {i}" for i in range(8)])
    data = Bundle("pets", split, test=split, classes=("cat", "dog"), attributes=("place",), values=(("in", "out"),))
    result = fit("erm", data, net="linear", recipe={"epochs": 1}, **SETTINGS)
    frame = result.predictions()
    assert list(frame.columns) == ["name", "label", "place", "prediction", "probability", "conflicting"]
    assert frame["name"].tolist() == [f"row {i}" for i in range(8)]
    assert frame["place"].tolist() == ["in", "out"] * 3 + ["out", "in"]
    assert frame["conflicting"].tolist() == [False] * 6 + [True] * 2
    assert result.predict(data).tolist() == frame["prediction"].tolist()
    other = replace(data, attributes=("label",))
    assert "attribute label" in result.predictions(other)
    wide = Bundle("wide", Split(torch.zeros(2, 3), torch.tensor([0, 1])))
    with pytest.raises(DataError, match="shape"):
        result.predict(wide)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A run on a table; of its training rows age has mean 30 and standard deviation 10, by hand."""
    folder = tmp_path_factory.mktemp("table")
    rows = [(20, "cook", 0), (40, "nurse", 1)] * 6
    lines = ["age,job,label,split", *(f"{a},{j},{y},{s}" for s in ("train", "test") for a, j, y in rows)]
    (folder / "jobs.csv").write_text("\n".join(lines))
    data = {"name": f"csv:{folder / 'jobs.csv'}", "duplicates": "keep"}
    fit("erm", data, net="linear", recipe={"epochs": 2}, out=folder / "run", **SETTINGS)
    return folder


def test_new_rows_of_a_table_are_coded_by_the_training_rows(table, caplog):
    result = load_run(table / "run")
    new = pd.DataFrame({"job": ["nurse", "cook", None], "age": [60.0, 20.0, 30.0], "unused": [1, 2, 3]})
    x = torch.tensor([[3.0, 0, 1], [-1, 1, 0], [0, 0, 0]])  # (60 - 30) / 10; a missing job is neither
    head = result.classifier.head
    expected = (x @ head.weight.T + head.bias).softmax(1).detach().numpy()
    assert result.predict_proba(new) == pytest.approx(expected, abs=1e-6)
    Path("new.csv").write_text("job;age\nnurse;60\ncook;20\n?;30\n")
    assert result.predict_proba("new.csv") == pytest.approx(expected, abs=1e-6)
    assert result.predict_proba({"job": ["nurse"], "age": ["60"]}) == pytest.approx(expected[:1], abs=1e-6)
    assert not caplog.text or "was not trained on" in caplog.text
    with caplog.at_level(logging.WARNING, "spurless"):
        result.predict(new.assign(age=new["age"] * 365))  # days
    assert "age" in caplog.text and "unit" in caplog.text
    with pytest.raises(UserError, match="'job'"):
        result.predict(new[["age"]])
    with pytest.raises(DataError, match="reads numbers in the column 'age'"):
        result.predict({"job": ["nurse"], "age": ["old"]})


def test_a_new_table_is_read_as_the_training_table_was(table):
    """By the same reader: a row is known by the line that it starts on, and a broken one is an error with its line."""
    predictor = load_predictor(table / "run")
    Path("new.csv").write_text('job,age\n"nurse\nat night",60\ncook,20\n')
    assert predictor.frame_of_paths(["new.csv"])["name"].tolist() == ["new.csv line 2", "new.csv line 4"]
    Path("new.csv.gz").write_bytes(gzip.compress(b"age\tjob\n20\tcook\n"))
    assert predictor.frame_of_paths(["new.csv.gz"])["name"].tolist() == ["new.csv.gz line 2"]
    Path("broken.csv").write_text("job,age\nnurse,60\ncook,20,1\n")
    with pytest.raises(DataError, match="line 3: 3 fields where the header has 2"):
        predictor.frame_of_paths(["broken.csv"])


@pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the package tokenizers")
def test_new_texts_are_read_by_the_models_own_tokenizer(tmp_path):
    tokenizer = word_tokenizer(tmp_path / "words")
    seen = ["the film was good", "the film was bad"] * 10
    data = Bundle.from_texts(seen, np.arange(20) % 2, tokenizer=tokenizer, length=16)
    net = {"name": "embedding_bag", "vocab": data.inputs.tokens.size}
    result = fit("erm", data, net=net, recipe={"epochs": 1}, out="run", **SETTINGS)
    new = ["good", "the film was bad", "unheard of"]
    expected = result.classifier.eval()(tokenise(new, tokenizer, 16)).softmax(1).detach().numpy()
    assert load_run("run").predict_proba(new) == pytest.approx(expected, abs=1e-5)
    assert load_run("run").predict_proba("good") == pytest.approx(expected[:1], abs=1e-5)
    Path("new.txt").write_text("\n".join(new))
    assert load_run("run").predict_proba(Path("new.txt")) == pytest.approx(expected, abs=1e-5)
    assert load_run("run").predict_proba({"text": new}) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(DataError, match="must be a text"):
        load_run("run").predict(["good", 3])


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 5), nn.ReLU())
        self.answer = nn.Linear(5, 2)

    def forward(self, x):
        return self.answer(self.body(x))


def test_the_own_module_comes_back_with_its_own_keys():
    own = Own()
    before = {k: v.clone() for k, v in own.state_dict().items()}
    result = fit("erm", {"name": "toy", "n": 100}, net=own, recipe={"epochs": 2}, **SETTINGS)
    back = result.module
    assert isinstance(back, Own)
    fresh = Own()
    fresh.load_state_dict(back.state_dict())
    x = result.bundle.test.x[:9]
    assert torch.equal(fresh(x), result.classifier.eval()(x))
    assert not torch.equal(before["answer.weight"], back.answer.weight)
    assert all(torch.equal(v, before[k]) for k, v in own.state_dict().items())  # what was passed is as it was
    back.answer.weight.data.zero_()
    assert not torch.equal(fresh(x), back(x)) and torch.equal(fresh(x), result.classifier(x))  # a copy


@pytest.mark.skipif(find_spec("timm") is None, reason="needs the package timm")
def test_a_network_of_timm_comes_back_as_timms():
    import timm

    data = Bundle("noise", Split(torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8), torch.tensor([0, 1] * 4)))
    result = fit("erm", data, net="timm:resnet10t", recipe={"epochs": 1}, **SETTINGS)
    timm.create_model("resnet10t", num_classes=2).load_state_dict(result.module.state_dict())


@pytest.mark.parametrize("method", ["disent", "end"])
def test_a_classifier_of_another_shape_is_given_back_as_it_is(method):
    data = Bundle("noise", Split(torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8), torch.tensor([0, 1] * 4),
                                 torch.tensor([[0], [1]] * 4)))  # fmt: skip
    result = fit(method, data, net=nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2)),
                 recipe={"epochs": 1}, **SETTINGS)  # fmt: skip
    x = torch.randn(3, 3, 8, 8)
    assert torch.allclose(result.module.eval()(x), result.classifier.eval()(x))


def test_a_result_is_saved_later():
    result = fit("erm", {"name": "toy", "n": 100}, net="linear", recipe={"epochs": 1}, **SETTINGS)
    x = result.bundle.test.x
    result.save("later")
    again = load_run("later")
    assert again.scores == result.scores and (again.predict_proba(x) == result.predict_proba(x)).all()
    assert fit("erm", {"name": "toy", "n": 100}, net="linear", recipe={"epochs": 1}, out="later", **SETTINGS).seconds
    with pytest.raises(FolderError, match="finished run"):
        result.save("later")
    result.save("weights.safetensors")
    assert json_of("weights.safetensors", x[:2])
    with pytest.raises(FolderError, match="there already"):
        result.save("weights.safetensors")


def json_of(weights, x):
    from spurless.train.saved import load_predictor

    return len(load_predictor(weights).predict(x)) == len(x)


def test_a_run_that_diverged_predicts_nothing():
    recipe = {"epochs": 3, "lr": 1e30, "optimizer": "sgd"}
    result = fit("erm", {"name": "toy", "n": 100}, net="mlp", recipe=recipe, **SETTINGS)
    assert result.status == "diverged"
    with pytest.raises(DataError, match="diverged"):
        result.predict(torch.zeros(1, 7))


def test_the_command_predicts_new_files(photos, table):
    import json

    files = sorted((photos / "new").glob("*.png"))
    expected = by_hand(photos / "run", files)
    done = invoke("predict", photos / "run", photos / "new", "--csv", "out.csv")
    assert "cow" in done.stdout and "out.csv" in done.stdout
    rows = pd.read_csv("out.csv")
    assert rows["name"].tolist() == [str(f) for f in files]
    assert rows["probability"].to_numpy() == pytest.approx(expected.max(1), abs=1e-5)
    said = json.loads(invoke("predict", photos / "run" / "model.safetensors", *files, "--json").stdout)
    assert [row["prediction"] for row in said["predictions"]] == [("cow", "dog")[k] for k in expected.argmax(1)]
    Path("new.csv").write_text("job,age\nnurse,60\n")
    assert "new.csv line 2" in invoke("predict", table / "run", "new.csv", "--json").stdout
    Path("mine.csv").write_text("my own notes")
    assert "another kind" in mistake("predict", photos / "run", photos / "new", "--csv", "mine.csv")
    assert "nowhere" in mistake("predict", photos / "run", "nowhere")
    assert "no run" in mistake("predict", "nothing", "nowhere")


def test_formulas_are_not_given_to_spreadsheets(photos):
    Path("=cmd").mkdir()
    image(Path("=cmd/a.png"), 0)
    invoke("predict", photos / "run", "=cmd", "--csv", "out.csv")
    assert Path("out.csv").read_text().splitlines()[1].startswith("'=cmd")

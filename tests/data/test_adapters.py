"""Bundles from arrays, PyTorch datasets and Hugging Face datasets."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from spurless.core.data import Images
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.data.arrays import as_pixels, from_arrays, from_dataset, from_hf
from tests.support.hugging import FakeHF, Feature

N = 40
Y = torch.arange(N) % 2
A = torch.arange(N) // 2 % 2


def pictures(n: int = N, h: int = 6, w: int = 8) -> torch.Tensor:
    """(n, 3, h, w) uint8; the first pixel of a row tells which row it is."""
    x = torch.randint(2, 256, (n, 3, h, w), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[:, 0, 0, 0] = torch.arange(n) + 2
    return x


def rows_of(split) -> list[int]:
    return (split.x[:, 0, 0, 0].long() - 2).tolist()


def assert_rows_kept_together(bundle) -> None:
    """Inputs, labels and attributes still belong together, and every row is in one split."""
    seen = []
    for split in bundle.splits.values():
        rows = rows_of(split)
        assert split.y.tolist() == Y[rows].tolist()
        assert split.a is None or split.a[:, 0].tolist() == A[rows].tolist()
        seen += rows
    assert sorted(seen) == list(range(N))


def test_arrays_with_drawn_splits():
    bundle = from_arrays(pictures(), Y, A)
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 28, "val": 4, "test": 8}
    assert_rows_kept_together(bundle)
    for split in bundle.splits.values():  # by class and attribute
        assert len(set(torch.bincount(split.y * 2 + split.a[:, 0]).tolist())) == 1
    again, other = from_arrays(pictures(), Y, A), from_arrays(pictures(), Y, A, seed=1)
    assert rows_of(again.test) == rows_of(bundle.test) != rows_of(other.test)
    assert (bundle.classes, bundle.attributes, bundle.values) == (("0", "1"), ("a0",), (("0", "1"),))
    assert (bundle.net, bundle.shape, bundle.train.x.dtype) == ("resnet18", (3, 6, 8), torch.uint8)


def test_an_attribute_of_many_values_leaves_the_shares_as_they_are():
    rng = np.random.default_rng(0)
    y, patients = rng.integers(0, 2, 1000), rng.integers(0, 2000, 1000)
    bundle = from_arrays(rng.normal(size=(1000, 3)), y, patients, attributes=["patient"])
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 700, "val": 100, "test": 200}


def test_a_value_that_no_training_row_has_is_aligned_with_nothing():
    x, new = pictures(), torch.full((10,), 2)
    a = torch.where(torch.arange(N) % 10 == 0, 1 - Y, Y)
    bundle = from_arrays(x[:30], Y[:30], a[:30], val=0.0, test=(x[30:], Y[30:], new))
    assert bundle.aligned[0].tolist() == [[True, False, False], [False, True, False]]
    assert not bundle.is_aligned(bundle.test).any() and bundle.is_aligned(bundle.train).float().mean() == 0.9


def test_arrays_with_given_splits():
    x = pictures()
    bundle = from_arrays(x[:20], Y[:20], A[:20], val=(x[20:30], Y[20:30], A[20:30]), test=(x[30:], Y[30:], A[30:]))
    assert [rows_of(split) for split in bundle.splits.values()] == [
        list(range(20)),
        list(range(20, 30)),
        list(range(30, 40)),
    ]
    assert_rows_kept_together(bundle)
    assert from_arrays(x, Y, val=0, test=0).val is None


def test_fields_of_the_bundle():
    recipe = Recipe(epochs=3)
    bundle = from_arrays(
        pictures(), Y, net="simconv1", recipe=recipe, inputs=Images((0.5,) * 3, (0.5,) * 3), name="mine"
    )
    assert (bundle.net, bundle.recipe, bundle.inputs.mean, bundle.name) == ("simconv1", recipe, (0.5,) * 3, "mine")


def test_words_as_labels_and_several_attributes():
    y = np.array(["dog", "cat"])[Y.numpy()]
    a = {"place": np.array(["in", "out"])[A.numpy()], "camera": np.arange(N) % 3}
    bundle = from_arrays(pictures(), y, a, val=0, test=0)
    assert bundle.classes == ("cat", "dog")
    assert bundle.train.y.tolist() == (1 - Y).tolist()
    assert (bundle.attributes, bundle.values) == (("place", "camera"), (("in", "out"), ("0", "1", "2")))
    assert bundle.train.a.tolist() == torch.stack([A, torch.arange(N) % 3], 1).tolist()
    named = from_arrays(pictures(), Y, np.stack([A, A], 1), attributes=("u", "v"), classes=("even", "odd"))
    assert (named.attributes, named.classes) == (("u", "v"), ("even", "odd"))


def test_vectors():
    x = np.random.default_rng(0).normal(size=(N, 5))
    bundle = from_arrays(x, Y.numpy(), val=0, test=0)
    assert (bundle.net, bundle.shape, bundle.train.x.dtype, bundle.inputs.mean) == ("mlp", (5,), torch.float32, ())
    assert torch.allclose(bundle.train.x, torch.tensor(x).float())
    x[3, 2] = np.nan
    with pytest.raises(UserError, match="not finite"):
        from_arrays(x, Y)


@pytest.mark.parametrize(
    "form", ["last", "grey", "float", "int64", "uint16", "read-only", "reversed", "other byte order"]
)
def test_images_in_other_forms_are_the_same_pixels(form):
    x = pictures()
    given = {
        "last": x.permute(0, 2, 3, 1).numpy(),
        "grey": x[:, 0].numpy(),
        "float": x.numpy() / 255,
        "int64": x.long(),
        "uint16": x.numpy().astype(np.uint16),
        "reversed": x.numpy()[::-1].copy()[::-1],
        "other byte order": x.numpy().astype(np.dtype(np.int32).newbyteorder()),
        "read-only": np.frombuffer(x.numpy().tobytes(), np.uint8).reshape(x.shape),
    }[form]
    bundle = from_arrays(given, Y, val=0, test=0)
    assert torch.equal(bundle.train.x, x[:, :1] if form == "grey" else x)


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (torch.rand(4, 3, 5, 5) * 255, "Divide 0..255 by 255"),
        (torch.randn(4, 3, 5, 5), "undo a standardisation"),
        (torch.full((4, 3, 5, 5), torch.nan), "floats must lie in 0..1"),
        (torch.rand(4, 3, 5, 5) / 255, "divided by 255 twice"),
        (torch.ones(4, 3, 5, 5, dtype=torch.uint8), "multiply by 255"),
        (torch.ones(4, 3, 5, 5, dtype=torch.bool), "true or false"),
        (torch.full((4, 3, 5, 5), 4000), "Scale 16 bits down"),
        (np.full((4, 3, 5, 5), 4000, np.uint16), "Scale 16 bits down"),
        (np.ones((4, 3, 5, 5), np.uint16), "multiply by 255"),
        (torch.ones(4, 3, 5, 5, dtype=torch.complex64), "not numbers of one shape"),
        (torch.full((4, 7, 5, 5), 40), "Which axis"),
        (torch.rand(4), "vectors are"),
        ([np.zeros((3, 2, 2)), np.zeros((3, 4, 4))], "not numbers of one shape"),
    ],
)
def test_inputs_that_could_be_read_in_two_ways_are_refused(x, match):
    with pytest.raises(UserError, match=match):
        from_arrays(x, [0, 1, 0, 1][: len(x)])


def test_floats_become_the_nearest_of_256_levels():
    x = torch.linspace(0, 1, 256)
    assert as_pixels(x, "The images").tolist() == list(range(256))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"y": Y[:-1]}, "40 inputs but 39 values of y"),
        ({"a": A[:-1]}, "39 values of a0"),
        ({"y": torch.nn.functional.one_hot(Y)}, "one whole number or word"),
        ({"y": Y / 3}, "whole numbers or words"),
        ({"y": Y - 1}, "negative"),
        ({"y": [" cat", "dog"] * 20}, "stray spaces"),
        ({"y": [None, "dog"] * 20}, "holds None in sample 0; it takes whole numbers or words"),
        ({"y": ["cat", "dog", None, "dog"] * 10}, "y of train holds None in sample 2; it takes whole numbers or words"),
        ({"y": ["cat", "dog", float("nan"), "dog"] * 10}, "holds nan in sample 2"),
        ({"y": np.array(["cat", "dog", "nan", "dog"] * 10)}, "holds 'nan'; take"),
        ({"y": np.where(np.arange(N) == 3, np.nan, Y)}, "holds nan in sample 3; it takes whole"),
        ({"y": np.where(np.arange(N) == 3, 0.5, Y)}, "holds 0.5 in sample 3; it takes whole"),
        ({"y": [[0], [1, 2]] * 20}, "samples of different lengths"),
        ({"a": {"place": ["sea", "land", None, "sea"] * 10}}, "'place' of train holds None in sample 2"),
        ({"a": [["sea", 0], ["land", None]] * 20}, "'a1' of train holds None in sample 1"),
        ({"a": [["sea", 0], ["land"]] * 20}, "samples of different lengths"),
        ({"a": torch.stack([A, A], 1), "attributes": ("u", "u")}, "a name twice: u, u"),
        ({"a": {"u": A}, "attributes": ("v",)}, r"columns \['u'\], but the names \['v'\]"),
        ({"classes": ["one"]}, "has no name"),
        ({"y": torch.ones(N, dtype=torch.long)}, "have the same label; a label needs two classes or more"),
        ({"y": ["a", "b"] * 20, "classes": ["a"]}, "not among"),
        ({"a": torch.zeros(N, 1, 1)}, r"\(n, k\)"),
        ({"a": torch.stack([A, A], 1), "attributes": ("u",)}, "2 columns, but 1 names"),
        ({"val": 0.5, "test": 0.5}, "leave something"),
        ({"val": "a tenth"}, "`val` takes"),
        ({"test": (pictures(4), torch.tensor([0, 1, 2, 0]))}, "'2' in test does not occur in train; leave its samples"),
        ({"test": (pictures(4), [-1] * 4), "classes": ("u", "v")}, "label -1 is negative"),  # as GLUE's test splits are
        ({"test": (pictures(4), ["0", "1"] * 2)}, "label is a word in one of train and test"),
        ({"test": (pictures(4, 5, 5), Y[:4])}, "shape"),
        ({"test": (pictures(4), Y[:4], A[:4])}, "attributes"),
    ],
)
def test_mistakes(change, match):
    with pytest.raises(UserError, match=match):
        from_arrays(**({"x": pictures(), "y": Y} | change))


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (
            Y + 1,
            r"labels go up to 2, but smaller numbers have no sample \(1, beginning with 0\).*0, 1, 2.*'2'.*`classes`",
        ),
        (torch.where(Y == 1, 2000, 10), r"\(1,999, beginning with 0\); each would be a class"),
        (torch.where(Y == 1, 10**12, 0), r"beginning with 1\)"),  # and no list of that length is made
    ],
)
def test_labels_with_gaps_are_refused_where_they_make_classes_without_rows(y, match):
    with pytest.raises(UserError, match=match):
        from_arrays(pictures(), y)


def test_a_gap_in_the_labels_is_said():
    y = torch.where(Y == 1, 2, 0)
    bundle = from_arrays(pictures(), y, val=0, test=0, notes=("mine",))
    assert bundle.classes == ("0", "1", "2") and bundle.train.y.tolist() == y.tolist()
    assert bundle.notes == (
        "mine",
        "labels that no sample has, though larger ones occur, each taken as a class (words would not be): 1",
    )
    assert from_arrays(pictures(), y, classes=("a", "b", "c"), val=0, test=0).notes == ()
    assert from_arrays(pictures(), y + 1, classes=("a", "b", "c", "d"), val=0, test=0).notes == ()
    assert from_arrays(pictures(), [str(v) for v in y.tolist()], val=0, test=0).classes == ("0", "2")
    x = pictures()
    given = from_arrays(x[:20], A[:20], torch.zeros(20), val=(x[20:30], A[20:30], A[20:30]), test=0)
    assert given.values == (("0", "1"),) and given.notes == ()  # a value that only val has is no gap


def test_attributes_with_gaps_are_said_and_codes_refused():
    bundle = from_arrays(pictures(), Y, A + 1, attributes="sex", val=0, test=0)
    assert bundle.values == (("0", "1", "2"),) and bundle.attributes == ("sex",)
    assert [n for n in bundle.notes if n.startswith("values of 'sex' that no sample has") and n.endswith(": 0")]
    with pytest.raises(UserError, match=r"values of 'patient' go up to 10039.*10,000, beginning with 0.*value"):
        from_arrays(pictures(), Y, torch.arange(N) + 10_000, attributes=["patient"])


def test_attributes_of_pandas():
    table = pd.DataFrame({"place": np.array(["in", "out"])[A.numpy()], "camera": np.arange(N) % 3})
    assert from_arrays(pictures(), Y, table).attributes == ("place", "camera")
    assert from_arrays(pictures(), Y, table["place"]).values == (("in", "out"),)


class Listed(torch.utils.data.Dataset):
    """A dataset as users write them."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def as_pil(x: torch.Tensor) -> Image.Image:
    return Image.fromarray(x.permute(1, 2, 0).numpy())


def test_dataset_of_tensors_and_of_pil_images():
    x = pictures()
    forms = {
        "uint8": list(x),
        "float": [row / 255 for row in x],
        "array": [row.permute(1, 2, 0).numpy() for row in x],
        "pil": [as_pil(row) for row in x],
    }
    for form, rows in forms.items():
        items = [(row, int(y), int(a)) for row, y, a in zip(rows, Y, A, strict=True)]
        bundle = from_dataset(Listed(items), val=0)
        assert_rows_kept_together(bundle)
        assert bundle.test is not None, form


def test_dataset_of_labels_and_attributes_in_many_shapes():
    x = pictures()
    for wrap in (lambda a: [int(a), 1], lambda a: torch.tensor([int(a), 1]), lambda a: {"u": int(a), "v": 1}):
        items = [(row, y, wrap(a)) for row, y, a in zip(x, Y, A, strict=True)]
        bundle = from_dataset(Listed(items), val=0, test=0)
        assert bundle.train.a.tolist() == [[int(a), 1] for a in A]
    assert bundle.attributes == ("u", "v")
    named = from_dataset(
        Listed([(row, int(y), (int(a),)) for row, y, a in zip(x, Y, A, strict=True)]), attributes=("u",)
    )
    assert named.attributes == ("u",)


def test_dataset_with_its_own_splits_and_class_names():
    x = pictures()
    parts = [Listed(list(zip(x[s], Y[s].tolist(), strict=True))) for s in (slice(0, 20), slice(20, 30), slice(30, 40))]
    parts[0].classes = ["even", "odd"]
    bundle = from_dataset(parts[0], val=parts[1], test=parts[2])
    assert bundle.classes == ("even", "odd")
    assert rows_of(bundle.test) == list(range(30, 40))
    assert bundle.train.a is None


def test_dataset_of_images_of_several_sizes():
    items = [(Image.new("RGB", (20 + i, 16), (10 * i, 0, 0)), i % 2) for i in range(10)]
    with pytest.raises(UserError, match="size=224"):
        from_dataset(Listed(items))
    bundle = from_dataset(Listed(items), size=8, val=0, test=0)
    assert bundle.shape == (3, 8, 8)
    assert bundle.train.x[:, 0, 4, 4].tolist() == [10 * i for i in range(10)]
    tensors = [(torch.full((1, 20 + i, 16), i / 20), i % 2) for i in range(10)]
    assert from_dataset(Listed(tensors), size=8, val=0, test=0).shape == (3, 8, 8)


def test_a_black_image_among_others_is_fine():
    items = [(torch.full((3, 4, 4), 0.5 if i else 0.001), i % 2) for i in range(10)]
    assert from_dataset(Listed(items), val=0, test=0).train.x[:2, 0, 0, 0].tolist() == [0, 128]


def test_grey_pil_images_keep_one_channel():
    items = [(Image.new("L", (4, 4), 20 + i), i % 2) for i in range(6)]
    assert from_dataset(Listed(items), val=0, test=0).shape == (1, 4, 4)


def test_grey_pil_images_are_turned_as_exif_says():
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    rows = {}
    for mode in ("L", "RGB"):
        stored = io.BytesIO()
        picture = Image.fromarray(np.repeat(np.arange(8, dtype=np.uint8)[None] * 30, 4, axis=0)).convert(mode)
        picture.save(stored, "PNG", exif=exif)
        items = [(Image.open(stored), i % 2) for i in range(6)]
        rows[mode] = from_dataset(Listed(items), val=0, test=0).train.x
    assert rows["L"].shape == (6, 1, 8, 4)
    assert torch.equal(rows["L"], rows["RGB"][:, :1])


def test_dataset_of_vectors():
    items = [(torch.tensor([float(i), 2.0]), i % 2) for i in range(10)]
    bundle = from_dataset(Listed(items), val=0, test=0)
    assert bundle.train.x.tolist() == [[float(i), 2.0] for i in range(10)]


def test_dataset_mistakes():
    with pytest.raises(UserError, match=r"not \(x, y\) or \(x, y, a\)"):
        from_dataset(Listed([torch.zeros(3)] * 3))
    with pytest.raises(UserError, match="map-style"):
        from_dataset(iter([1, 2]))
    with pytest.raises(UserError, match="train has no samples"):
        from_dataset(Listed([]))
    vector = torch.zeros(3)
    with pytest.raises(UserError, match="Item 0 of train has 2 columns, but 1 names"):
        from_dataset(Listed([(vector, i % 2, (0, 1)) for i in range(6)]), attributes=["u"])
    for a in ((0, 1), {"v": 0}):
        with pytest.raises(UserError, match="Item 1 of train has other attributes than the items before it"):
            from_dataset(Listed([(vector, 0, {"u": 0}), (vector, 1, a)]))
    for x in (None, "cat.png", [[1, 2], [3]]):
        with pytest.raises(UserError, match="Item 1 of train holds .*; it takes a PIL image, or numbers"):
            from_dataset(Listed([(vector, 0), (x, 1)]))
    with pytest.raises(UserError, match="Item 0 of train cannot be read: nothing in its pixels"):
        from_dataset(Listed([(Image.new("F", (4, 4)), 0)]))

    class Fails(Listed):
        def __getitem__(self, i):
            return 1 / 0

    with pytest.raises(ZeroDivisionError):  # an error of the dataset's own is not hidden
        from_dataset(Fails([1]))


def fake_hf(rows: slice = slice(0, N), raw: bool = False) -> FakeHF:
    cells = [as_pil(row) for row in pictures()[rows]]
    if raw:
        stored = []
        for picture in cells:
            buffer = io.BytesIO()
            picture.save(buffer, "PNG")
            stored.append({"bytes": buffer.getvalue(), "path": None})
        cells = stored
    columns = {"image": cells, "label": Y[rows].tolist(), "place": A[rows].tolist(), "id": ["x"] * len(cells)}
    return FakeHF(columns, {"label": Feature(["cat", "dog"]), "place": Feature(["land", "water"])})


@pytest.mark.parametrize("raw", [False, True])
def test_hugging_face_dataset(raw):
    bundle = from_hf(fake_hf(raw=raw), attributes=("place",))
    assert_rows_kept_together(bundle)
    assert (bundle.classes, bundle.attributes, bundle.values) == (("cat", "dog"), ("place",), (("land", "water"),))
    assert from_hf(fake_hf(), size=16).shape == (3, 16, 16)
    assert from_hf(fake_hf()).train.a is None


def test_hugging_face_dataset_dict():
    parts = {"train": fake_hf(slice(0, 20)), "validation": fake_hf(slice(20, 30)), "test": fake_hf(slice(30, 40))}
    bundle = from_hf(parts, attributes=("place",))
    assert {part: len(split) for part, split in bundle.splits.items()} == {"train": 20, "val": 10, "test": 10}
    assert_rows_kept_together(bundle)
    with pytest.raises(UserError, match="no train"):
        from_hf({"test": fake_hf()})


def test_hugging_face_splits_are_known_by_any_usual_name():
    train, val, test = fake_hf(slice(0, 20)), fake_hf(slice(20, 30)), fake_hf(slice(30, 40))
    for parts in ({"Training": train, "DEV": val, "Test": test}, {"train": train, " valid": val, "testing": test}):
        bundle = from_hf(parts)
        assert [len(split) for split in bundle.splits.values()] == [20, 10, 10] and bundle.notes == ()


def test_hugging_face_splits_that_are_not_used_are_said():
    train, val, test = fake_hf(slice(0, 20)), fake_hf(slice(20, 30)), fake_hf(slice(30, 40))
    parts = {"train": train, "validation_matched": val, "unsupervised": fake_hf(), "test": test}
    bundle = from_hf(parts)
    (note,) = bundle.notes
    assert note.startswith("splits of the dataset that are not used: 'validation_matched', 'unsupervised'; pass one")
    bundle = from_hf(parts, val=parts["validation_matched"])
    assert len(bundle.val) == 10 and "not used: 'unsupervised';" in bundle.notes[0]


def test_hugging_face_splits_of_one_part_are_refused():
    train, val = fake_hf(slice(0, 20)), fake_hf(slice(20, 30))
    for parts in ({"validation": val, "dev": val}, {"Dev": val, "dev": val}):
        with pytest.raises(UserError, match="more than one split for val: '.*' and 'dev'; pass only one"):
            from_hf({"train": train} | parts)
    with pytest.raises(UserError, match="more than one split for val: 'validation' and `val`"):
        from_hf({"train": train, "validation": val}, val=fake_hf(slice(30, 40)))
    parts = {"train": train, "validation": val}
    assert len(from_hf(parts, val=parts["validation"]).val) == 10


def test_hugging_face_images_that_are_not_decoded(tmp_path):
    data = fake_hf()
    for row, picture in enumerate(data.columns["image"]):
        picture.save(tmp_path / f"{row}.png")
        data.columns["image"][row] = {"bytes": None, "path": str(tmp_path / f"{row}.png")}
    assert_rows_kept_together(from_hf(data))
    for cell, match in (
        (None, "Item 3 of train holds None; it takes a PIL image"),
        ({"bytes": None, "path": None}, "Item 3 of train holds {'bytes': None, 'path': None}; it takes a PIL image"),
        ({"bytes": None, "path": "gone.png"}, r"Item 3 of train \(gone.png\) cannot be read: No such file"),
        ({"bytes": b"none", "path": None}, "Item 3 of train cannot be read: not an image of a known kind. Mend it"),
    ):
        data.columns["image"][3] = cell
        with pytest.raises(UserError, match=match):
            from_hf(data)


def test_hugging_face_columns():
    data = fake_hf()
    swapped = from_hf(data, image="image", label="place", attributes=("label",), val=0, test=0)
    assert swapped.train.y.tolist() == A.tolist()
    assert swapped.classes == ("land", "water")
    with pytest.raises(UserError, match="`attributes`, from: image, label, place, id"):
        from_hf(data, attributes=("plaice",))
    with pytest.raises(UserError, match="'label' is the label, so it cannot be an attribute"):
        from_hf(data, attributes=("label",))
    assert from_hf(data, attributes="place").attributes == ("place",)
    assert from_hf(data, classes=("chat", "chien")).classes == ("chat", "chien")
    words = FakeHF({"img": data["image"], "y": ["b", "a"] * 20}, {})
    assert from_hf(words, val=0, test=0).classes == ("a", "b")
    with pytest.raises(UserError, match="`image`"):
        from_hf(FakeHF({"speech": ["a"], "label": [0]}, {}))
    unlabelled = FakeHF({"image": data["image"], "label": [-1] * N}, {"label": Feature(["cat", "dog"])})
    with pytest.raises(UserError, match="negative"):
        from_hf(unlabelled)

"""What is said of a dataset: counts and associations worked out by hand, and a contact sheet looked at by pixel."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from spurless.core.data import Bundle, Split
from spurless.data import csv as csv_table
from spurless.data.contact_sheet import contact_sheet
from spurless.data.describe import best_guess, cramers_v, describe
from spurless.data.describe_tables import text

# Association


def slow_v(rows: list[int], columns: list[int]) -> tuple[float, float]:
    """Cramér's V and Bergsma's correction, cell by cell from the list of pairs."""
    n = len(rows)
    r, c = len(set(rows)), len(set(columns))
    chi2 = 0.0
    for i in set(rows):
        for j in set(columns):
            seen = sum(1 for p, q in zip(rows, columns, strict=True) if p == i and q == j)
            expected = rows.count(i) * columns.count(j) / n
            chi2 += (seen - expected) ** 2 / expected
    phi2 = chi2 / n
    less = max(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    r2, c2 = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    return math.sqrt(phi2 / (min(r, c) - 1)), math.sqrt(less / (min(r2, c2) - 1))


def test_cramers_v_of_two_by_two_by_hand():
    # χ² = n (ad - bc)² / (row and column sums) = 100 (40·30 - 10·20)² / (50·50·60·40) = 50/3
    plain, corrected = cramers_v(np.array([[40, 10], [20, 30]]))
    assert plain == pytest.approx(math.sqrt(1 / 6))
    # φ² - 1/99 = 1/6 - 1/99; both sizes become 2 - 1/99, so divide by 1 - 1/99
    assert corrected == pytest.approx(math.sqrt((1 / 6 - 1 / 99) / (98 / 99)))


def test_cramers_v_of_three_by_three_by_hand():
    # All sums 30, so every cell is expected 10 times: χ² = (3·10² + 6·5²) / 10 = 45, φ² = 1/2, V = √(1/4)
    table = np.full((3, 3), 5) + 15 * np.eye(3, dtype=int)
    plain, corrected = cramers_v(table)
    assert plain == pytest.approx(0.5)
    # φ² - 4/89 over (3 - 4/89) - 1
    assert corrected == pytest.approx(math.sqrt((1 / 2 - 4 / 89) / (2 - 4 / 89)))


@pytest.mark.parametrize(
    ("table", "value"),
    [
        (np.diag([5, 9, 2]), 1.0),
        (np.array([[0, 4], [6, 0], [0, 0]]), 1.0),  # an empty class takes no part
        (np.outer([1, 2, 3], [2, 4]), 0.0),
        (np.array([[3, 4, 5]]), 0.0),  # one class: nothing to tell
        (np.array([[3, 0], [5, 0]]), 0.0),
        (np.zeros((2, 2), int), 0.0),
    ],
)
def test_perfect_and_no_association(table, value):
    plain, corrected = cramers_v(table)
    assert plain == pytest.approx(value)
    assert corrected == pytest.approx(value, abs=1e-9)


def test_cramers_v_against_the_slow_version():
    rng = np.random.default_rng(0)
    for r, c in [(2, 2), (3, 5), (10, 4), (2, 7)]:
        rows = rng.integers(0, r, 300)
        columns = np.where(rng.random(300) < 0.4, rows % c, rng.integers(0, c, 300))
        table = np.zeros((r, c), int)
        np.add.at(table, (rows, columns), 1)
        assert cramers_v(table) == pytest.approx(slow_v(rows.tolist(), columns.tolist()))
        assert cramers_v(table) == pytest.approx(cramers_v(table.T))


def test_the_correction_takes_chance_away():
    """With 50 values in 200 rows, pure noise looks associated; bias-corrected it does not."""
    rng = np.random.default_rng(0)
    table = np.zeros((10, 50), int)
    np.add.at(table, (rng.integers(0, 10, 200), rng.integers(0, 50, 200)), 1)
    plain, corrected = cramers_v(table)
    assert plain > 0.4
    assert corrected < 0.15


def test_best_guess():
    assert best_guess(np.array([[70, 20], [5, 5]])) == (0.9, 0.9)
    assert best_guess(np.array([[70, 2], [5, 23]])) == (0.93, 0.72)


# Descriptions


def vectors(y: list[int], a: list[list[int]] | None) -> Split:
    return Split(torch.zeros(len(y), 2), torch.tensor(y), None if a is None else torch.tensor(a))


def coloured(aligned: int = 99, against: int = 1) -> Bundle:
    """Two classes of a hundred, each with its colour but for a few."""
    y = [0] * (aligned + against) + [1] * (aligned + against)
    a = [[0]] * aligned + [[1]] * against + [[1]] * aligned + [[0]] * against
    test = vectors([0, 0, 1, 1], [[0], [1], [0], [1]])
    return Bundle(
        "t", vectors(y, a), test=test, classes=("cat", "dog"), attributes=("colour",), values=(("red", "blue"),)
    )


def test_a_description_by_hand():
    said = describe(coloured())
    assert json.loads(json.dumps(said)) == said
    train, test = said["splits"]["train"], said["splits"]["test"]
    assert list(said["splits"]) == ["train", "test"]
    assert train["n"] == 200
    assert train["classes"] == {"cat": 100, "dog": 100}
    assert train["attributes"] == {"colour": {"red": 100, "blue": 100}}
    assert train["groups"] == {"colour": {"cat": {"red": 99, "blue": 1}, "dog": {"red": 1, "blue": 99}}}
    assert train["conflicting"] == {
        "n": 2, "share": 0.01, "by_attribute": {"colour": 0.01}, "rows_by_contradictions": [198, 2],
    }  # fmt: skip
    assert test["conflicting"]["share"] == 0.5
    assert said["aligned"] == {"colour": {"cat": ["red"], "dog": ["blue"]}}
    assert said["association"]["label"]["colour"]["cramers_v"] == pytest.approx(0.98)  # φ = (99² - 1) / 100²
    assert "colour predicts the class for 99 % of the training samples" in said["meaning"]
    assert "score 99 % by looking at it alone" in said["meaning"]
    assert "scores 50 %" in said["meaning"]


def test_the_association_is_of_the_training_rows():
    data = coloured()
    flipped = Split(data.train.x, data.train.y, 1 - data.train.a if data.train.a is not None else None)
    said = describe(Bundle("t", data.train, test=flipped, classes=data.classes, values=data.values))
    assert said["association"]["label"]["a0"]["cramers_v"] == pytest.approx(0.98)
    assert said["splits"]["test"]["conflicting"]["share"] == pytest.approx(0.99)


def test_meaning_when_the_attribute_says_nothing():
    assert "next to nothing" in describe(coloured(50, 50))["meaning"]


def test_meaning_when_the_attribute_helps_no_guess():
    """The commonest class is the best guess for either value, and yet the two go together."""
    y = [0] * 95 + [1] * 5 + [0] * 70 + [1] * 30
    said = describe(Bundle("t", vectors(y, [[0]] * 100 + [[1]] * 100), classes=("poor", "rich"), attributes=("sex",)))
    assert "sex goes with the class (Cramér's V 0.33)" in said["meaning"]
    assert "always guessing 'poor' scores 82.5 %" in said["meaning"]


def test_several_attributes():
    y = [0, 0, 0, 0, 1, 1, 1, 1] * 10
    a = [[0, 0], [0, 1], [0, 0], [1, 1], [1, 0], [1, 1], [1, 0], [1, 1]] * 10
    said = describe(Bundle("t", vectors(y, a), attributes=("colour", "side")))
    label = said["association"]["label"]
    assert label["colour"]["accuracy_from_it_alone"] == 0.875
    assert label["side"]["cramers_v"] == 0
    assert [pair["attributes"] for pair in said["association"]["between"]] == [["colour", "side"]]
    # colour: 5 of 8 rows have value 1, on side 0 it is 2 of 4, on side 1 it is 3 of 4: V = 1/√15
    assert said["association"]["between"][0]["cramers_v"] == pytest.approx(1 / math.sqrt(15))
    assert said["meaning"].startswith("colour predicts the class for 87.5 %")
    assert "The others alone: side 50 %" in said["meaning"]
    train = said["splits"]["train"]["conflicting"]
    assert train["by_attribute"]["colour"] == 0.125
    # every value of side is as common in a class as overall: it tells nothing, so nothing contradicts it
    assert train["by_attribute"]["side"] == 0.0
    assert sum(train["rows_by_contradictions"]) == 80


def test_without_attributes():
    said = describe(Bundle("t", vectors([0, 1, 1], None)))
    assert said["attributes"] == {}
    assert said["association"] is None
    assert said["splits"]["train"]["groups"] is None
    assert said["splits"]["train"]["classes"] == {"0": 1, "1": 2}
    assert "No bias attribute is known" in said["meaning"]


def test_attributes_of_the_test_rows_only():
    said = describe(Bundle("t", vectors([0, 1, 1], None), test=vectors([0, 1, 1], [[0], [2], [2]])))
    assert said["association"] is None
    assert said["splits"]["test"]["attributes"] == {"a0": {"0": 1, "1": 0, "2": 2}}
    assert said["splits"]["test"]["conflicting"] is None


def test_names_that_are_the_same_hide_no_count():
    said = describe(Bundle("t", vectors([0, 1, 1], None), classes=("x", "x")))
    assert said["splits"]["train"]["classes"] == {"x (0)": 1, "x (1)": 2}


def shown(description) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(text(description))
        return console.export_text()


def test_text_shows_counts_and_takes_names_literally():
    data = coloured()
    data = Bundle("[red]t", data.train, classes=("[bold]cat", "собака"), values=data.values, notes=("a stand-in",))
    out = shown(describe(data))
    for words in ("[red]t", "[bold]cat", "собака", "99*", "0.980", "Note: a stand-in", "class and a0"):
        assert words in out
    rows = [line.split() for line in out.splitlines()]
    assert ["[bold]cat", "100"] in rows
    assert ["[bold]cat", "99*", "1"] in rows
    assert ["conflicting", "1", "%"] in rows


def test_text_of_many_classes_adds_up():
    y = list(range(40)) * 2
    out = shown(describe(Bundle("t", vectors(y, [[v] for v in y]))))
    rows = [line.split() for line in out.splitlines()]
    assert ["...", "28", "more", "56"] in rows
    assert ["all", "80"] in rows


# The contact sheet

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def pixels(path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def where(picture: np.ndarray, colour: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.nonzero((picture == colour).all(-1))


def flat(colours: list[tuple[int, int, int]], size=(8, 8)) -> torch.Tensor:
    return torch.tensor(colours, dtype=torch.uint8)[:, :, None, None].expand(-1, -1, *size).contiguous()


def three_colours(test: Split | None = None, against: bool = True) -> Bundle:
    """Class 0 is red and class 1 green; the conflicting row of class 0 is blue."""
    colours, y, a = [RED] * 9 + [GREEN] * 10, [0] * 9 + [1] * 10, [[0]] * 9 + [[1]] * 10
    if against:
        colours, y, a = [*colours, BLUE], [*y, 0], [*a, [1]]
    return Bundle("t", Split(flat(colours), torch.tensor(y), torch.tensor(a)), test=test, classes=("r", "g"))


def test_aligned_above_conflicting_and_classes_side_by_side(tmp_path):
    path = contact_sheet(three_colours(), tmp_path / "sheet.png", columns=4, rows=2)
    assert path == tmp_path / "sheet.png"
    picture = pixels(path)
    red, green, blue = (where(picture, c) for c in (RED, GREEN, BLUE))
    tile = 96 * 96  # 8 px enlarged twelve times
    assert len(red[0]) == len(green[0]) == 4 * tile  # two columns and two rows of each class
    assert len(blue[0]) == tile
    middle = picture.shape[0] / 2
    assert red[0].max() < middle
    assert green[0].max() < middle
    assert blue[0].min() > middle
    assert red[1].max() < green[1].min()  # class 0 is left of class 1
    assert blue[1].max() < green[1].min()  # and below its own class
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written is left


def test_conflicting_rows_come_from_test_where_train_has_none(tmp_path):
    test = Split(flat([BLUE]), torch.tensor([1]), torch.tensor([[0]]))
    picture = pixels(contact_sheet(three_colours(test, against=False), tmp_path / "s.png", rows=1))
    blue, green = where(picture, BLUE), where(picture, GREEN)
    assert blue[0].min() > green[0].max()
    assert blue[1].min() == green[1].min()


def test_a_class_without_conflicting_rows_leaves_its_place_empty(tmp_path):
    picture = pixels(contact_sheet(three_colours(), tmp_path / "s.png", columns=2, rows=1))
    top, left = where(picture, BLUE)[0].min(), where(picture, GREEN)[1].min()  # beside the blue tile, below the green
    assert (picture[top : top + 96, left : left + 96] == 235).all()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 28, 56), (3, 300, 200), (1, 1, 1), (4, 16, 16), (3, 7, 500)])
@pytest.mark.parametrize("floats", [False, True])
def test_any_size_without_attributes(tmp_path, shape, floats):
    x = torch.full((6, *shape), 200, dtype=torch.uint8)
    data = Bundle("t", Split(x / 255 if floats else x, torch.tensor([0, 1, 2] * 2)))
    picture = pixels(contact_sheet(data, tmp_path / "s.png", columns=3, rows=2))
    grey = where(picture, (200, 200, 200))
    longer = max(shape[1:])
    side = [s * (96 // longer) if longer <= 96 else round(s * 96 / longer) for s in shape[1:]]
    assert len(grey[0]) == 6 * side[0] * side[1]


def test_more_classes_than_columns(tmp_path):
    x = flat([(c, 100, 0) for c in range(30)])
    picture = pixels(contact_sheet(Bundle("t", Split(x, torch.arange(30))), tmp_path / "s.png", columns=5, rows=1))
    found = {int(p[0]) for p in picture[(picture[..., 1] == 100) & (picture[..., 2] == 0)]}
    assert found == {0, 1, 2, 3, 4}


def test_rows_that_are_decoded_on_demand(tmp_path):
    class Slow:
        shape, dtype, asked = (20, 3, 8, 8), torch.uint8, 0

        def __len__(self):
            return 20

        def __getitem__(self, idx):
            self.asked += len(idx)
            return flat([RED] * len(idx))

    rows = Slow()
    contact_sheet(Bundle("t", Split(rows, torch.arange(20) % 2)), tmp_path / "s.png", columns=2, rows=3)
    assert rows.asked == 6  # only what is drawn


def test_names_of_any_kind_fit_their_column(tmp_path):
    """Long names are cut, so that one class never writes over the next; no name can break the sheet."""
    names = ("W" * 300, "日本\n語", "<script>", "عربي", "\x00\x07", "")
    x, y = flat([(254, 254, 254)] * 12), torch.arange(12) % 6
    plain = Bundle("t", Split(x, y, y[:, None].clone()), classes=tuple("abcdef"), values=(tuple("abcdef"),))
    odd = Bundle("t", Split(x, y, y[:, None].clone()), classes=names, values=(names,), notes=("n" * 1000,))
    one = pixels(contact_sheet(plain, tmp_path / "a.png", columns=6, rows=1))
    two = pixels(contact_sheet(odd, tmp_path / "b.png", columns=6, rows=1))
    assert one.shape[1] == two.shape[1]
    column = slice(10 + 96, 10 + 96 + 6)  # the gap between the first two columns
    heads = slice(28, 46)
    assert (two[heads, column] == 255).all()
    assert (two[heads, 10 : 10 + 96] != 255).any()


def test_vectors_have_no_contact_sheet(tmp_path):
    data = coloured()
    assert contact_sheet(data, tmp_path / "s.png") is None
    assert not list(tmp_path.iterdir())
    assert "no contact sheet" in describe(data)["input"]


def test_a_table_is_described(tmp_path):
    rows = [f"{i % 5},{'ab'[i % 2]},{'xy'[i % 2 if i % 10 else 1 - i % 2]}" for i in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["w,side,y", *rows]))
    said = describe(csv_table.load(tmp_path / "t.csv", attribute=("side",)))
    assert said["association"]["label"]["side"]["accuracy_from_it_alone"] == pytest.approx(0.9, abs=0.02)
    assert said["settings"]["attribute"] == ["side"]
    assert "column 'y' taken as the label" in said["notes"]
    json.dumps(said)

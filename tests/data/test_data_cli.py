"""`spurless data`, and the user's own folders and tables on the command line: good ones, odd ones and broken ones."""

import csv
import json
import os
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spurless.core.files import data_root
from spurless.core.settings import settings_of
from spurless.data.sets import DATASETS
from spurless.report import write
from tests.support.commands import class_folders, image, invoke, mistake

# What each dataset needs below the data root; a set that needs nothing is generated.
NEEDS = {
    "colored_mnist": ["MNIST"],
    "multi_bias_mnist": ["MNIST", "FashionMNIST", "KMNIST"],
    "double_mnist": ["MNIST"],
    "mnist_cifar": ["MNIST", "cifar-10-batches-py"],
    "corrupted_cifar10": ["cifar-10-batches-py"],
    "cifar10": ["cifar-10-batches-py"],
    "bar": ["BAR"],
    "waterbirds": ["waterbird_complete95_forest2water2"],
    "bffhq": ["bffhq"],
    "celeba": ["celeba"],
    "metashift": ["MetaShift-subpopulation-shift"],
    "adult": ["tabular/adult"],
    "compas": ["tabular/compas"],
    "german": ["tabular/german"],
    "cad_imdb": ["text/cad_imdb"],
    "cad_nli": ["text/cad_nli"],
    "davidson_tweets": ["text/davidson_tweets"],
    "madlibs": ["text/davidson_tweets", "text/madlibs_77k"],
    "civilcomments": ["text/civilcomments"],
    "multinli": ["text/multinli_1.0"],
    "fdcl18": ["text/fdcl18"],
}
SLOW = ("multi_bias_mnist", "corrupted_cifar10", "bar", "waterbirds", "bffhq", "celeba", "metashift")
SLOW += ("cad_imdb", "davidson_tweets", "madlibs", "civilcomments", "multinli", "fdcl18")
KEYS = "name input shape classes attributes aligned splits samples association meaning notes settings".split()
KEYS.append("contact_sheet")
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_DATA", str(data_root().absolute()))
    monkeypatch.chdir(tmp_path)


# Every dataset


def every():
    for name in DATASETS:
        marks = [pytest.mark.data(*NEEDS[name])] if name in NEEDS else []
        yield pytest.param(name, marks=marks + ([pytest.mark.slow] if name in SLOW else []))


@pytest.mark.parametrize("name", list(every()))
def test_describe(name):
    load = import_module(f"spurless.data.sets.{name}").load
    many = name in ("shapes", "moon_star", "parity", "movie_reviews") and "n" in settings_of(load)
    fewer = ("--set", "data.n=300") if many else ()
    done = invoke("data", "describe", name, *fewer, "--sheet", "sheet.png", "--json")
    assert done.stdout.count("\n") == 1
    said = json.loads(done.stdout)
    assert list(said) == KEYS
    assert len(said["classes"]) >= 2 and said["meaning"].endswith(".")
    assert bool(said["attributes"]) == (name != "cifar10")
    for split in said["splits"].values():
        assert sum(split["classes"].values()) == split["n"] > 0
        for groups in (split["groups"] or {}).values():
            assert sum(sum(row.values()) for row in groups.values()) == split["n"]
    for found in (said["association"] or {"label": {}})["label"].values():
        assert 0 <= found["cramers_v"] <= 1 and 0 < found["accuracy_from_it_alone"] <= 1
    if len(said["shape"]) == 3:
        assert said["contact_sheet"] == "sheet.png"
        picture = np.asarray(Image.open("sheet.png"))
        assert picture.shape[0] > 200 and picture.shape[1] > 300 and picture.std() > 10
    else:
        assert said["contact_sheet"] is None and not Path("sheet.png").exists()


@pytest.mark.parametrize("name", NEEDS)
def test_a_data_set_whose_files_are_missing_says_what_to_put_where(name):
    for command in (["data", "describe", name], ["train", "erm", name]):
        text = mistake(*command, "--data-root", "nowhere at all")
        assert "nowhere at all" in text
        assert "http" in text or "spurless data download" in text or "Get it from" in text or "Ask the authors" in text
    assert not list(Path().iterdir())


def test_describe_for_people():
    printed = invoke("data", "describe", "toy").stdout
    for part in ("left", "right", "conflicting", "950*", "Cramér's V", "spurious predicts the class for 95 %"):
        assert part in printed
    assert "Contact sheet" not in invoke("data", "describe", "shapes", "--set", "data.n=300").stdout
    assert not list(Path().iterdir())  # nothing is written that was not asked for
    printed = invoke("data", "describe", "shapes", "--set", "data.n=300", "--sheet", "shapes.png").stdout
    assert "Contact sheet: shapes.png" in printed and Path("shapes.png").exists()


def test_describe_by_settings():
    said = json.loads(invoke("data", "describe", "toy", "--set", "data.rho=0.5", "--json").stdout)
    assert said["association"]["label"]["spurious"]["cramers_v"] == pytest.approx(0, abs=0.01)
    assert "says next to nothing about the class" in said["meaning"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["tooy"], "did you mean 'toy'"),
        (["toy", "--set", "data.n=3"], "data.n = '3' is not allowed; it takes a whole number at least 20"),
        (["toy", "--set", "recipe.lr=1"], "no section 'recipe'"),
        (["folder:nowhere"], "There is no folder nowhere"),
        (["csv:nowhere"], "There is no file 'nowhere'"),
        (["shapes", "--set", "data.n=300", "--sheet", "."], "--sheet . is a folder"),
        (["shapes", "--set", "data.n=300", "--sheet", "/dev/null/x.png"], "/dev/null cannot be used"),
    ],
)
def test_mistakes_of_describe(args, said):
    assert said in mistake("data", "describe", *args)


def test_download_of_what_needs_none_and_of_what_there_is_not():
    assert invoke("data", "download", "toy").stdout == "toy needs no download.\n"
    assert "no source 'waterbird'; did you mean 'waterbirds'" in mistake("data", "download", "waterbird")


# The user's own images


def train(data, *args, out="run"):
    fast = ("--net", "mlp", "--device", "cpu", "--set", "recipe.epochs=1", "--out", out)
    return invoke("train", "erm", data, *fast, *args, "--json")


SMALL = ("--set", "data.size=8")


def test_a_folder_of_classes():
    done = train(class_folders("pets", ["cat", "dog"]), *SMALL)
    row = json.loads(done.stdout)
    assert row["data"] == "folder:pets" and 0 <= row["scores"]["average"] <= 100
    assert row["scores"]["unbiased"] is None  # no attribute is known
    assert (
        "images: train 14, val 2, test 4" in done.stderr and "classes: cat, dog" in done.stderr
    )  # what was understood


@pytest.mark.parametrize("root", ["мои картинки 猫", "with 'quotes\" and spaces", "-dash", "[bold]x[/bold]", "50%"])
def test_any_folder_name(root):
    data = class_folders(root, ["собака", "<img src=x onerror=alert(1)>"])
    row = json.loads(train(data, *SMALL).stdout)
    assert root.endswith(row["data"].removeprefix("folder:"))
    invoke("data", "describe", data, *SMALL, "--sheet", "sheet.png")
    assert Path("sheet.png").exists()
    assert json.loads(invoke("evaluate", "run", data, *SMALL, "--json").stdout)["scores"] == row["scores"]
    assert "run" in invoke("show", "run").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_a_name_that_is_not_text_is_a_mistake_and_not_a_traceback():
    data = class_folders(os.fsdecode(b"caf\xe9"), ["cat", "dog"])  # é as Latin-1 has it
    done = invoke("train", "erm", data, "--net", "mlp", *SMALL, "--out", "run", code=2)
    assert "caf\\udce9" in done.stderr.splitlines()[-1] and "Rename it" in done.stderr


def test_broken_images_are_all_named_and_can_be_left_out():
    data = class_folders("pets", ["cat", "dog"])
    Path("pets/cat/bad.png").write_bytes(b"not an image")
    Path("pets/dog/short.png").write_bytes(Path("pets/dog/0.png").read_bytes()[:60])
    text = mistake("train", "erm", data, "--net", "mlp", *SMALL, "--out", "run")
    assert "cat/bad.png" in text and "dog/short.png" in text and "data.skip_broken=true" in text
    assert not Path("run").exists()
    done = train(data, *SMALL, "--set", "data.skip_broken=true")
    assert "2 broken image files left out" in done.stderr
    assert any("cat/bad.png" in note for note in json.loads(done.stdout)["notes"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Path("x").mkdir(), "There are no images in x"),
        (lambda: Path("x").write_text("a file"), "There is no folder x"),
        (lambda: class_folders("x", ["only"]), "no more than one class (only)"),
        (lambda: [class_folders("x", ["cat", "dog"]), Path("x/fish").mkdir()], "An empty class folder"),
        (
            lambda: [class_folders("x/train", ["cat", "dog"]), class_folders("x/test", ["cat", "cow"])],
            "A class that is not in train",
        ),
    ],
)
def test_folders_that_cannot_be_trained_on(make, said):
    make()
    assert said in mistake("train", "erm", "folder:x", "--net", "mlp", *SMALL, "--out", "run")
    assert not Path("run").exists()


def listed(rows, header=("filename", "split", "y", "place")):
    """A folder `pets` with a metadata.csv."""
    for i in range(40):
        image(Path("pets") / f"{i}.png", i % 2, seed=i)
    with open("pets/metadata.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return "folder:pets"


def hostile(i):
    """Class and place agree but in every tenth row, and are called what nobody would call them."""
    y = i % 2
    a = y if i % 10 else 1 - y
    return f"{i}.png", "train" if i < 24 else "test", (SCRIPT, "[red]&amp;")[y], (SCRIPT, "=cmd|' /C calc'!A0")[a]


def test_names_from_the_data_are_escaped_in_the_report():
    data = listed([hostile(i) for i in range(40)])
    row = json.loads(train(data, *SMALL).stdout)
    assert SCRIPT in {group["label"] for group in row["scores"]["groups"]}
    assert row["scores"]["unbiased"] is not None
    page = Path(write([row], Path("report.html"), title=SCRIPT)).read_text()
    assert SCRIPT not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    said = json.loads(invoke("data", "describe", data, *SMALL, "--json").stdout)
    assert said["classes"] == sorted([SCRIPT, "[red]&amp;"], key=said["classes"].index)
    assert "[red]&amp;" in invoke("data", "describe", data, *SMALL).stdout  # not taken for a colour


def test_the_bias_attribute_is_chosen_by_a_setting():
    rows = [(*hostile(i), i % 3) for i in range(40)]
    data = listed(rows, ("filename", "split", "y", "place", "2024"))
    for given, want in (("2024", ["2024"]), ("[place,2024]", ["place", "2024"]), ("[]", [])):
        said = json.loads(invoke("data", "describe", data, *SMALL, "--set", f"data.attribute={given}", "--json").stdout)
        assert list(said["attributes"]) == want
    assert "did you mean 'place'" in mistake("data", "describe", data, *SMALL, "--set", "data.attribute=plac")


def test_mistakes_in_a_table_of_images_come_all_at_once():
    rows = [list(hostile(i)) for i in range(40)]
    rows[3][0] = "gone.png"
    rows[5][0] = "../../etc/passwd"
    rows[7][2] = " spaced"
    rows[9][1] = "tset"
    text = mistake("data", "describe", listed(rows), *SMALL)
    for part in ("gone.png", "etc/passwd", "' spaced'", "'tset'", "line 5", "line 7", "line 9", "line 11"):
        assert part in text


def test_evaluate_on_another_folder_of_the_same_classes():
    row = json.loads(train(class_folders("a", ["cat", "dog"]), *SMALL).stdout)
    other = invoke("evaluate", "run", class_folders("b", ["cat", "dog"], n=20), *SMALL, "--json")
    assert json.loads(other.stdout)["n"] == 40 and row["n"] == 4
    renamed = invoke("evaluate", "run", class_folders("c", ["cow", "pig"]), *SMALL)
    assert "Classes are compared by their place" in renamed.stderr
    wider = invoke("evaluate", "run", "folder:b", "--set", "data.size=9", code=2)
    assert "trained on inputs of shape (3, 8, 8) and cannot take those of folder:b, (3, 9, 9)" in wider.stderr


# The user's own tables


def table(text="", rows=200):
    if not text:
        g = np.random.default_rng(0)
        lines = ["age,job,sex,label"]
        for i in range(rows):
            y = i % 2
            lines.append(
                f"{30 + 10 * y + g.normal():.3f},{'abc'[i % 3]},{'mf'[y if i % 8 else 1 - y]},{('no', 'yes')[y]}"
            )
        text = "\n".join(lines) + "\n"
    Path("my table.csv").write_text(text)
    return "csv:my table.csv"


def test_a_table():
    done = json.loads(train(table(), "--set", "data.attribute=sex", "--set", "recipe.epochs=20").stdout)
    assert done["data"] == "csv:my table.csv" and done["scores"]["average"] > 90  # age tells the classes apart
    assert {group["attribute"] for group in done["scores"]["groups"]} == {"sex"}
    said = json.loads(invoke("data", "describe", table(), "--set", "data.attribute=sex", "--json").stdout)
    assert said["association"]["label"]["sex"]["cramers_v"] == pytest.approx(0.77, abs=0.05)
    again = invoke("evaluate", "run", table(), "--set", "data.attribute=sex", "--json")
    assert json.loads(again.stdout)["scores"] == done["scores"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" ", "is empty"),
        ("a,b,label\n", "there are no rows below the header"),
        ("a,b\n1,2\n3,4\n", "the label is not known"),
        ("a,b,label\n1,2,x\n3,4,x\n", "holds only 'x'"),
        ("a,b,label\n1,2,x\n3,4\n5,6,y\n", "line 3: 2 fields where the header has 3"),
        ("a,b,label\n1,2,x\n3,4,\n5,6,y\n", "no label"),
    ],
)
def test_tables_that_cannot_be_read(text, said):
    assert said in mistake("train", "erm", table(text), "--out", "run")
    assert not Path("run").exists()


def test_tables_that_are_none():
    Path("folder").mkdir()
    Path("bytes.csv").write_bytes(bytes(range(256)) * 20)
    assert "There is no file 'folder'" in mistake("train", "erm", "csv:folder")
    assert "bytes.csv is no text. csv: reads comma" in mistake("train", "erm", "csv:bytes.csv")
    assert "did you mean 'sex'" in mistake("train", "erm", table(), "--set", "data.attribute=sexe")


def test_scores_that_are_not_of_a_test_split_say_so():
    data = table("a,b,label\n1,2,x\n3,4,y\n")
    row = json.loads(train(data).stdout)
    assert row["scored_on"] == "train"
    assert "scored on the split train: there is no test split" in invoke("show", "run").stdout


# What is there already


def test_a_sheet_replaces_no_other_picture():
    class_folders("a/pets", ["cat", "dog"])
    describe = ("data", "describe", "folder:a/pets", *SMALL, "--sheet")
    Path("mine.png").write_text("mine")
    mistake(*describe, "mine.png")
    assert Path("mine.png").read_text() == "mine"
    for _ in range(2):  # its own sheet is drawn again
        assert json.loads(invoke(*describe, "pets.png", "--json").stdout)["contact_sheet"] == "pets.png"


@pytest.mark.parametrize("name", ["rows.jsonl", "report.html", "sweep.json", "sweep.png", "reproduction.json"])
def test_sweeps_and_benchmarks_write_over_no_file_of_another_kind(name):
    Path("his").mkdir()
    Path("his", name).write_text("precious")
    sweep = ("sweep", "toy", "--over", "lr", "--values", "0.1", "--seeds", "1", "--set", "recipe.epochs=1")
    assert f"his holds a {name} and no benchmark or sweep" in mistake(*sweep, "--out", "his")
    Path("spec.toml").write_text(
        'seeds = [0]\n[[block]]\nlabel = "T"\ndata = {name = "toy", n = 100}\n'
        'recipe = {epochs = 1}\nmethods = ["erm"]\n'
    )
    assert "Name another --out folder" in mistake("bench", "spec.toml", "--out", "his")
    assert [p.name for p in Path("his").iterdir()] == [name] and Path("his", name).read_text() == "precious"
    invoke("bench", "spec.toml", "--out", "new")
    invoke("bench", "spec.toml", "--out", "new")  # its own are made again

"""Specifications: what they say, and the mistakes in them."""

import re
import tomllib
from pathlib import Path

import pytest

from spurless.bench import read_spec
from spurless.bench.reproduce import papers
from spurless.bench.spec import make_spec
from spurless.core.errors import UserError
from tests.support.benches import SPEC
from tests.support.trials import TOY

pytestmark = pytest.mark.usefixtures("one_core")


def test_a_specification_becomes_trials(spec_file):
    spec = read_spec(spec_file)
    trials = spec.trials()
    assert len(trials) == 2 * 2 * 3  # methods, ratios, seeds
    assert [c.seed for c in trials] == [0] * 4 + [1] * 4 + [2] * 4  # cut short, it still compares
    first = next(c for c in trials if c.labels["row"] == "LfF" and c.labels["grid"] == "0.2")
    assert first.data == {"name": "toy", "n": 100, "rho": 0.2} and first.method == {"name": "lff", "q": 0.5}
    assert first.recipe == {"epochs": 1, "batch_size": 50, "lr": 0.01}  # the row's over the block's
    assert first.labels == {"block": "Toy", "row": "LfF", "grid": "0.2", "metric": "unbiased"}
    found = {(line.row, *line.grid.values()): line for line in spec.lines}
    assert found["Vanilla", "0.05"].paper == "60.94 ± 0.97"
    assert found["Vanilla", "0.2"].paper == 70  # "0.20" in the file: the same number
    assert found["EnD", "0.05"].paper == "50.0" and not found["EnD", "0.05"].trials
    assert [c.seed for c in read_spec(spec_file, seeds=5).lines[0].trials] == [0, 1, 2, 3, 4]
    assert {line.row for line in spec.only(["LfF"]).lines} == {"LfF"}
    assert len(spec.only(["Toy"]).lines) == 6
    with pytest.raises(UserError, match="no label 'Tpy'; did you mean 'Toy'"):
        spec.only(["Tpy"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "no key 'titel'; did you mean 'title'"),
        ("recipe = {epochs", "recipes = {epochs", "no key 'recipes'; did you mean 'recipe'"),
        ("missing =", "mising =", "no key 'mising'; did you mean 'missing'"),
        ("epochs = 1", "epoch = 1", "block 'Toy', row 'Vanilla': There is no setting 'recipe.epoch'"),
        ('"data.rho" =', '"data.ro" =', "no setting 'data.ro'; did you mean 'data.rho'"),
        ('"data.rho" =', '"rho" =', "over names 'rho'"),
        ("[0.05, 0.2]", "0.05", "over.'data.rho' = 0.05 is not a list"),
        ('"0.20" = 70', '"0.3" = 70', "paper has a number at '0.3', which is no point of the grid"),
        ("seeds = [0, 1, 2]", "seeds = [0, 0]", "names a seed twice"),
        ("seeds = [0, 1, 2]", "seeds = 3", "seeds = 3 is not a list"),
        ('method = "erm"', 'method = "erm"\nmissing = "x"', "give either a method, or why it is missing"),
        ('label = "LfF"', 'label = "Vanilla"', "two rows 'Vanilla'"),
        ('data = {name = "toy", n = 100}', "", "The data has no name"),
        ("[[block]]", "[[blocks]]", "no key 'blocks'"),
        ("[[block]]", '[[block]]\ndata = "toy"\n[[block]]', "block 'block 1': there is no [[block.row]]"),
        ('metric = "unbiased"', 'metric = "unbaised"', "small.toml: There is no score 'unbaised'; did you mean 'unbi"),
        ('label = "Toy"', 'label = "Toy"\nmetric = "worst"', "block 'Toy': There is no score 'worst'; did you mean"),
        ('label = "LfF"', 'label = "LfF"\nmetric = "secs"', "row 'LfF': There is no score 'secs'"),
    ],
)
def test_mistakes_in_a_specification_are_named(old, new, message):
    assert old in SPEC
    with pytest.raises(UserError, match=re.escape(message)):
        make_spec(tomllib.loads(SPEC.replace(old, new)), "small.toml")


def test_a_score_may_be_any_number_that_a_row_has():
    for metric in ("worst_group", "average_train_weighted", "seconds", "sparsity", "extra.own", "mining.mined.recall"):
        spec = make_spec({"metric": metric, "block": [{"data": TOY, "methods": ["erm"]}]})
        assert spec.lines[0].metric == metric


def test_only_some_blocks_have_only_their_notes():
    blocks = [
        {"label": name, "note": f"of {name}", "data": TOY, "methods": [m]}
        for name, m in (("A", "erm"), ("A, B", "lff"))
    ]
    spec = make_spec({"block": blocks})
    assert spec.notes == ("A: of A", "A, B: of A, B")
    assert spec.only(["A"]).notes == ("A: of A",) and spec.only(["lff"]).notes == ("A, B: of A, B",)


def test_only_some_blocks_have_only_their_choices():
    names = ("BAR", "BAR, small", "MNIST")
    blocks = [{"label": name, "data": "toy", "methods": ["erm"], "over": {"data.rho": [i / 10]}} for i, name in
              enumerate(names)]  # fmt: skip
    spec = make_spec({"block": blocks, "choices": ["Of all.", "BAR: of both.", "MNIST: of this."]})
    assert spec.only(["BAR, small"]).choices == ("Of all.", "BAR: of both.")
    assert spec.only(["MNIST"]).choices == ("Of all.", "MNIST: of this.") and len(spec.choices) == 3


def test_rows_replace_other_things_and_merge_into_the_same_ones():
    block = {"data": TOY, "net": {"name": "mlp", "widths": [8]}, "recipe": {"name": "pgd-bar", "epochs": 1}}
    rows = [
        {"label": "same", "method": "erm", "net": {"bias": False}, "recipe": {"lr": 0.1}},
        {"label": "other", "method": "erm", "net": "linear", "recipe": {"epochs": 2, "name": "default"}},
        {"label": "grid", "method": "lff", "over": {"method.q": [0.3, 0.6], "net": ["linear", {"name": "mlp"}]}},
        {"label": "sizes", "method": "erm", "over": {"net": ["mlp", {"name": "mlp", "widths": [4, 2]}]}},
    ]
    spec = make_spec({"block": [block | {"row": rows}]})
    same, other, *grid, small, smaller = (line.trials[0] for line in spec.lines)
    assert same.net == {"name": "mlp", "widths": [8], "bias": False}
    assert same.recipe == {"name": "pgd-bar", "epochs": 1, "lr": 0.1}
    assert other.net == {"name": "linear"} and other.recipe == {"name": "default", "epochs": 2}
    assert [c.labels["grid"] for c in grid] == ["0.3, linear", "0.3, mlp", "0.6, linear", "0.6, mlp"]
    assert [c.net for c in grid[:2]] == [{"name": "linear"}, {"name": "mlp", "widths": [8]}]
    assert (small.labels["grid"], smaller.labels["grid"]) == ("mlp", "mlp widths 4 2")
    assert (small.net["widths"], smaller.net["widths"]) == ([8], [4, 2])
    assert spec.over == ("method.q", "net")


def test_the_example_in_the_documentation_is_a_specification():
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    spec = make_spec(tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.S)[1]))
    assert len(spec.trials()) == 3 * 2 * 3 and {line.row for line in spec.lines} == {"erm", "lff", "LfF, q = 0.3"}


def test_the_papers_specifications_are_sound():
    assert papers(), "the papers' tables are gone"
    for name, path in papers().items():
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content["title"] and content["source"], name


def test_a_published_number_that_is_none_is_refused_before_training():
    def spec(paper):
        return make_spec({"block": [{"data": TOY, "row": [{"method": "erm", "paper": paper}]}]})

    for paper in ("60.9 ± 1.0", ".87", "−0.25", "1e-3", 61, "-", "–", "33m 39s"):
        assert spec(paper).lines[0].paper == paper
    for paper in ("60,9", "about 60", "60.9 +- 1.0", "60 to 62", float("nan"), True, "n/a"):
        with pytest.raises(UserError, match="is neither a number nor a text such as '60.9 ± 1.0'"):
            spec(paper)

"""papers/*.toml: that every table can be read and run, and that its numbers are the paper's.

The numbers below were typed by hand from the papers' text, apart from the files that are tested. What else is checked
are facts that hold inside the papers: how many numbers a table has, and where one table repeats another.
"""

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spurless.bench.spec import Line, Spec, read_spec
from spurless.core.errors import UserError
from spurless.core.recipe import RECIPES
from spurless.registry import make_method, make_recipe
from spurless.report.studies import published
from spurless.train.permit import permit
from tests.support.worlds import pictures

FOLDER = Path(__file__).parents[2] / "papers"

# Numbers and dashes as printed, and the seeds that the paper says it averaged over (3 where it does not say).
PRINTED = {
    "avp-comparison": (30, 12, 5),
    "biasadv-bar": (0, 0, 3),
    "biasadv-bffhq": (0, 0, 3),
    "biasadv-ccifar": (0, 0, 3),
    "biasadv-metashift": (0, 0, 3),
    "dcwp-table1": (63, 0, 4),
    "dcwp-table2": (9, 0, 4),
    "dcwp-table3": (29, 6, 4),
    "large-lr-s1": (230, 0, 3),
    "large-lr-s2": (144, 0, 3),
    "pgd-table1": (45, 0, 3),
    "pgd-table2": (10, 0, 3),
    "pgd-table3": (24, 0, 3),
    "pgd-table4": (8, 0, 3),
    "pgd-table7": (24, 0, 3),
    "pgd-table8": (6 + 6, 0, 3),  # accuracies and times
    "pgd-table9": (6, 0, 3),
    "pgd-table10": (12, 0, 3),
    "pgd-table12": (6, 2, 3),
    "pgd-table13": (18, 0, 3),
    "pgd-table15": (10, 0, 3),
}
SWEPT = re.compile(r"published over (?:learning rates )?(\S+) to (\S+)\.$")

# table: (block, row, point of the grid): as printed
BY_HAND = {
    "dcwp-table1": {
        ("CMNIST", "ERM", "0.005"): "62.36",
        ("CMNIST", "DCWP", "0.05"): "98.02",
        ("CIFAR10-C", "Rebias", "0.02"): "35.57",
        ("CIFAR10-C", "EnD", "0.05"): "43.67",
        ("BFFHQ", "DisEnt", ""): "55.50",  # 55.55 in table 3
        ("BFFHQ", "DCWP", ""): "60.35",
    },
    "dcwp-table2": {
        ("CMNIST", "1: nothing", ""): "43.10",
        ("CMNIST", "7: a d e", ""): "79.28",
        ("CMNIST", "9: a b c d e", ""): "87.96",  # 95.98 in table 1, which has Adam
    },
    "dcwp-table3": {
        ("CIFAR10-C, bias-align", "DCWP_ERM", ""): "94.33",
        ("CIFAR10-C, recall", "DCWP_ERM", ""): "79.53",
        ("CIFAR10-C, precision", "DCWP", ""): "85.97",
        ("BFFHQ, bias-conflict", "DisEnt", ""): "55.55",
        ("BFFHQ, unbiased", "LfF", ""): "76.30",
        ("BFFHQ, recall", "DisEnt", ""): "-",
    },
    "pgd-table1": {
        ("CMNIST", "LfF", "0.005"): "91.35 ± 1.83",  # ± 1.35 in table 10
        ("CMNIST", "PGD", "0.01"): "98.35 ± 0.12",  # 97.35 in tables 7 to 9
        ("CMNIST", "JTT", "0.01"): "95.07 ± 3.42",
        ("MBMNIST", "Disen", "0.1"): "25.75 ± 5.38",
        ("MBMNIST", "PGD", "0.3"): "90.76 ± 1.84",
        ("CCIFAR", "JTT", "0.05"): "45.13 ± 3.11",
        ("CCIFAR", "Vanilla", "0.005"): "23.06 ± 1.25",
    },
    "pgd-table2": {
        ("BAR", "Disen", ""): "64.70 ± 2.06",
        ("BAR", "PGD", ""): "65.39 ± 0.47",
        ("BFFHQ", "Vanilla", ""): "77.77 ± 0.45",
        ("BFFHQ", "JTT", ""): "77.93 ± 2.16",
    },
    "pgd-table3": {
        ("CelebA, Avg.", "EIIL", ""): "85.7",
        ("CelebA, Worst", "CNC", ""): "88.8",
        ("CivilComments, Avg.", "CNC", ""): "81.7",
        ("CivilComments, Worst", "PGD", ""): "70.6",
    },
    "pgd-table4": {
        ("CMNIST (0.5%)", "neither", ""): "84.93 ± 0.79",
        ("CMNIST (0.5%)", "Aug.", ""): "91.19 ± 0.97",
        ("MB-MNIST (10%)", "GCE", ""): "45.70 ± 2.91",
    },
    "pgd-table7": {
        ("Colored MNIST, debiased model", "PGD", "0.01, 0.7"): "97.35 ± 0.12",
        ("Colored MNIST, debiased model", "PGD", "0.05, 0.5"): "98.82 ± 0.02",
        ("Colored MNIST, biased model", "biased model of PGD", "0.05, 0.3"): "53.24 ± 1.18",
    },
    "pgd-table8": {
        ("Test Acc.", "Single-stage", "0.005"): "92.19 ± 0.12",
        ("Test Acc.", "Multi-stage", "0.01"): "97.35 ± 0.12",
        ("Training time", "Single-stage", "0.05"): "2h 49m 31s",
        ("Training time", "Multi-stage", "0.005"): "33m 39s",
    },
    "pgd-table9": {
        ("Colored MNIST", "Resampling", "0.01"): "97.35 ± 0.12",
        ("Colored MNIST", "Reweighting", "0.005"): "94.70 ± 0.40",
    },
    "pgd-table10": {
        ("Colored MNIST", "LfF", "0.005"): "91.35 ± 1.35",
        ("Colored MNIST", "PGD + Loss", "0.05"): "78.48 ± 1.41",
        ("Colored MNIST", "LfF + Gradient", "0.01"): "97.55 ± 0.24",
        ("Colored MNIST", "PGD", "0.01"): "98.35 ± 0.12",
    },
    "pgd-table12": {
        ("Colored MNIST, 90 % conflicting", "Disen", ""): "99.31 ± 0.10",
        ("Colored MNIST, 90 % conflicting", "PGD", ""): "98.43 ± 0.11",
        ("Natural CIFAR10", "PGD (CIFAR10)", ""): "94.79 ± 0.02",
        ("Natural CIFAR10", "LfF (CIFAR10)", ""): "-",
    },
    "pgd-table13": {
        ("Digit", "PGD", "0.01"): "98.35",
        ("Color", "Vanilla", "0.005"): "90.33",
        ("Color", "PGD", "0.05"): "99.70",
        ("Color", "LfF", "0.05"): "99.11",
    },
    "pgd-table15": {
        ("CelebA, Avg.", "Vanilla", ""): "80.52",
        ("CelebA, Worst", "GEORGE", ""): "65.45",
        ("CelebA, Worst", "PGD", ""): "82.73",
    },
    "avp-comparison": {
        ("CelebA (clean)", "RS", ""): "86.81",
        ("CelebA (imperfect)", "GC-DRO", ""): "82.85",
        ("MNLI (imperfect)", "RS", ""): "67.26",
        ("FDCL18 (imperfect)", "RS", ""): "26.10",
        ("FDCL18 (clean)", "AVP", ""): "-",
    },
}
# table: (block, column): smallest and largest value of the sweep, as printed
RANGES_BY_HAND = {
    "large-lr-s1": {
        ("Colored MNIST, ResNet18", "Test Acc."): ("68.343", "91.543"),  # 72.297 to 92.203 in S2
        ("Double MNIST, FCN", "Prunability"): ("0.986", "1.029"),  # above 1
        ("CelebA, Swin Transformer", "Test Acc."): ("40.889", "48.21"),
        ("Parity, FCN", "Class Sep."): ("0.008", "0.136"),
        ("Cor. CIFAR-10, Wide ResNet101-2", "Act. Comp."): ("0.339", "0.653"),
    },
    "large-lr-s2": {
        ("Colored MNIST, Learning Rate", "Test Acc."): ("72.297", "92.203"),
        ("MNIST-CIFAR, rho (ASAM)", "Avg. CSI"): ("0.225", "0.261"),
        ("Double MNIST, L1 Regularization", "Prunability"): ("0.28", "0.932"),
    },
}
# All numbers of a table added up, standard deviations too, without times: from the papers' text. One wrong digit shows.
TOTALS = {
    "avp-comparison": 1813.22,
    "dcwp-table1": 3888.82,
    "dcwp-table2": 664.55,
    "dcwp-table3": 1761.45,
    "large-lr-s1": 2778.673,
    "large-lr-s2": 3414.449,
    "pgd-table1": 2946.36,
    "pgd-table2": 737.83,
    "pgd-table3": 1930.2,
    "pgd-table4": 575.46,
    "pgd-table7": 1520.17,
    "pgd-table8": 581.88,
    "pgd-table9": 584.33,
    "pgd-table10": 1022.23,
    "pgd-table12": 584.92,
    "pgd-table13": 1679.86,
    "pgd-table15": 757.69,
}
# The same, each number times its place in the file: two that have changed places show, too.
PLACES = {
    "avp-comparison": 25_758.03,
    "dcwp-table1": 104_572.75,
    "dcwp-table2": 3_561.07,
    "dcwp-table3": 25_712.56,
    "large-lr-s1": 341_862.258,
    "large-lr-s2": 247_229.694,
    "pgd-table1": 110_568.15,
    "pgd-table2": 7_844.85,
    "pgd-table3": 23_249.1,
    "pgd-table4": 4_063.0,
    "pgd-table7": 27_840.28,
    "pgd-table8": 3_522.95,
    "pgd-table9": 3_509.78,
    "pgd-table10": 12_872.64,
    "pgd-table12": 3_473.9,
    "pgd-table13": 16_468.22,
    "pgd-table15": 4_052.36,
}
# The paper contradicts itself, and the file says so.
SAID = {
    "dcwp-table1": ["55.50", "55.55"],
    "dcwp-table2": ["SGD", "95.98"],
    "dcwp-table3": ["55.50", "55.55"],
    "pgd-table1": ["98.35", "97.35", "1.83", "1.35"],
    "pgd-table3": ["EIL", "EIIL"],
    "pgd-table7": ["97.35", "98.35"],
    "pgd-table8": ["97.35", "98.35"],
    "pgd-table9": ["97.35", "98.35"],
    "pgd-table10": ["1.35", "1.83", "98.35", "97.35"],
    "pgd-table13": ["98.35", "97.35"],
    "large-lr-s1": ["1.029", "68.343", "72.297", "worst-group"],
    "large-lr-s2": ["68.343", "72.297", "ResNet18"],
    "avp-comparison": ["dashes", "placeholder", "identical"],
    "biasadv-bar": ["no accuracy"],
    "biasadv-bffhq": ["no accuracy", "figure"],
    "biasadv-ccifar": ["no accuracy"],
    "biasadv-metashift": ["no accuracy"],
}
# BiasAdv's supplement, tables 1 to 4: λ, ε, S, β, and for JTT the epochs of its first network and N_up.
BIASADV = {
    "biasadv-ccifar": {"erm": (1, 1, 5, 2), "jtt": (1, 0.5, 5, 1, 20, 50), "lff": (0.5, 0.5, 5, 1)},
    "biasadv-bffhq": {"erm": (0.5, 0.3, 5, 0.5), "jtt": (1, 0.5, 5, 1, 9, 20), "lff": (0.5, 0.3, 5, 0.5)},
    "biasadv-bar": {"erm": (1, 0.1, 9, 1.5), "jtt": (1, 0.1, 3, 0.5, 10, 10), "lff": (0.5, 0.3, 7, 0.5)},
    "biasadv-metashift": {"erm": (1, 0.5, 3, 0.5), "jtt": (0.5, 0.7, 1, 1.5, 1, 10), "lff": (1, 0.5, 3, 0.5)},
}


@cache
def spec(name: str) -> Spec:
    """Reading checks every name, setting and range, and that every number belongs to a point of its grid."""
    return read_spec(FOLDER / f"{name}.toml")


def raw(name: str) -> dict:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


VARIANTS = (
    *("as released", "unit norm", "its own network", "rate 0.01", "DCWP's settings", "unpadded", "Gradient, SGD"),
    "first network as long as the second",
)
VARIANT_BLOCKS = ("from scratch", "stand-in", "last weights only", "7,500 steps")


def is_variant(line: Line) -> bool:
    """Another way to run a row, with the same published number: not one more number."""
    return any(word in line.row for word in VARIANTS) or any(word in line.block for word in VARIANT_BLOCKS)


def numbers(name: str) -> dict[tuple[str, str, str], str]:
    """The published numbers, each once."""
    lines = [line for line in spec(name).lines if line.paper is not None and not line.end and not is_variant(line)]
    return {(line.block, line.row, ", ".join(line.grid.values())): str(line.paper) for line in lines}


def mean(name: str, *place: str) -> float:
    found = published(numbers(name)[place])  # type: ignore[index]
    assert found is not None
    return found.value


def ranges(name: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Of the large-learning-rate study, whose tables print ranges over sweeps: by block and column."""
    return {
        (block["label"], row["label"]): (str(row["paper"]["min"]), str(row["paper"]["max"]))
        for block in raw(name)["block"]
        if "range" in block
        for row in block["row"]
    }


def test_every_table_that_is_asked_for_is_there():
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(PRINTED)
    assert {path.suffix for path in FOLDER.iterdir()} == {".toml"}


@pytest.mark.parametrize("name", PRINTED)
def test_a_table_is_whole(name):
    table = spec(name)
    assert table.title and table.source and table.choices
    printed, dashes, seeds = PRINTED[name]
    found = [*numbers(name).values(), *(end for ends in ranges(name).values() for end in ends)]
    assert sum(value == "-" for value in found) == dashes
    assert sum(value != "-" for value in found) == printed
    assert {len(line.trials) / max(1, len(line.values)) for line in table.lines if not line.missing} == {seeds}
    assert {len(line.trials) for line in table.lines if line.missing} <= {0}


def test_all_published_numbers_are_there():
    times = 6  # of table 8, beside its accuracies
    assert sum(printed + dashes for printed, dashes, _ in PRINTED.values()) == 694 + times


@pytest.mark.parametrize("name", PRINTED)
def test_labels_tell_blocks_apart(name):
    labels = [block["label"] for block in raw(name)["block"]]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("name", BY_HAND)
def test_numbers_typed_by_hand(name):
    found = numbers(name)
    assert {place: found.get(place) for place in BY_HAND[name]} == BY_HAND[name]


@pytest.mark.parametrize("name", RANGES_BY_HAND)
def test_ranges_typed_by_hand(name):
    found = ranges(name)
    assert {place: found.get(place) for place in RANGES_BY_HAND[name]} == RANGES_BY_HAND[name]


@pytest.mark.parametrize("name", TOTALS)
def test_numbers_add_up(name):
    texts = [*numbers(name).values(), *(end for ends in ranges(name).values() for end in ends)]
    figures = [float(figure) for text in texts for figure in re.findall(r"\d+\.\d+", text)]
    assert sum(figures) == pytest.approx(TOTALS[name], abs=1e-6)
    assert sum(place * figure for place, figure in enumerate(figures, 1)) == pytest.approx(PLACES[name], abs=1e-6)


@pytest.mark.parametrize("name", PRINTED)
def test_every_table_was_spot_checked(name):
    checked = len(BY_HAND.get(name, {})) + len(RANGES_BY_HAND.get(name, {})) + 2 * (name in BIASADV)
    assert checked >= 2
    assert name in TOTALS or name in BIASADV


@pytest.mark.parametrize("name", SAID)
def test_contradictions_are_said(name):
    said = " ".join(spec(name).choices)
    assert [word for word in SAID[name] if word not in said] == []


@pytest.mark.parametrize("name", RANGES_BY_HAND)
def test_sweeps_have_the_published_ends(name):
    for block in raw(name)["block"]:
        ((low, high),) = (map(float, ends) for ends in SWEPT.findall(block["note"]))
        ((setting, values),) = block["over"].items()
        ends = (1 / max(values), round(1 / min(values), 4)) if "batch_size" in setting else (min(values), max(values))
        assert ends == (low, high)
        assert len(values) >= 3
        columns = {row["label"] for row in block["row"]}
        assert columns == {column for label, column in ranges(name) if label == block["label"]}
    assert all(float(low) <= float(high) for low, high in ranges(name).values())


def test_variants_repeat_the_number_of_their_row():
    for name in ("dcwp-table1", "dcwp-table2"):
        lines = {(line.block, line.row, *line.grid.values()): line.paper for line in spec(name).lines}
        variants = {place: paper for place, paper in lines.items() if "as released" in place[1]}
        assert variants
        for (block, row, *point), paper in variants.items():
            assert paper == lines[block, row.removesuffix(", as released"), *point]
        for (block, row, *point), paper in lines.items():
            if any(word in row for word in VARIANTS[1:]):
                assert paper == lines[block, row.partition(", ")[0], *point]
    bar = {(line.block, line.row): line.paper for line in spec("pgd-table2").lines}
    for block in ("BAR, from scratch", "BAR, stand-in network"):
        assert [bar[block, row] for row in ("Vanilla", "LfF", "JTT", "Disen", "PGD")] == [
            bar["BAR", row] for row in ("Vanilla", "LfF", "JTT", "Disen", "PGD")
        ]


def test_unbiased_is_the_mean_of_aligned_and_conflicting():
    """DCWP, table 3: a tenth and nine tenths for ten classes, halves for two. A wrong digit would show."""
    for data, share, rows in (("CIFAR10-C", 0.1, ["DCWP_ERM", "DCWP"]), ("BFFHQ", 0.5, ["DisEnt", "LfF", "DCWP"])):
        for row in rows:
            aligned, conflicting, unbiased = (
                mean("dcwp-table3", f"{data}, {column}", row, "")
                for column in ("bias-align", "bias-conflict", "unbiased")
            )
            assert share * aligned + (1 - share) * conflicting == pytest.approx(unbiased, abs=0.03)


def test_tables_that_repeat_one_another_agree():
    for row in ("DCWP", "DisEnt"):
        assert mean("dcwp-table1", "CIFAR10-C", row, "0.01") == mean("dcwp-table3", "CIFAR10-C, unbiased", row, "")
    for row in ("DCWP", "LfF"):
        assert mean("dcwp-table1", "BFFHQ", row, "") == mean("dcwp-table3", "BFFHQ, bias-conflict", row, "")
    first, last = numbers("pgd-table1"), numbers("pgd-table4")
    assert last["CMNIST (0.5%)", "GCE and Aug.", ""] == first["CMNIST", "PGD", "0.005"]
    assert last["MB-MNIST (10%)", "GCE and Aug.", ""] == first["MBMNIST", "PGD", "0.1"]
    for rho in ("0.005", "0.01", "0.05"):
        for row in ("Vanilla", "LfF", "PGD"):
            assert mean("pgd-table13", "Digit", row, rho) == mean("pgd-table1", "CMNIST", row, rho)
        assert numbers("pgd-table10")["Colored MNIST", "PGD", rho] == first["CMNIST", "PGD", rho]
        multi = numbers("pgd-table8")["Test Acc.", "Multi-stage", rho]
        assert multi == numbers("pgd-table9")["Colored MNIST", "Resampling", rho]
        assert multi == numbers("pgd-table7")["Colored MNIST, debiased model", "PGD", f"{rho}, 0.7"]
        assert (multi == first["CMNIST", "PGD", rho]) == (rho != "0.01")  # the contradiction


def test_the_readme_has_the_same_published_numbers():
    known = json.loads((FOLDER.parent / "results" / "published.json").read_text(encoding="utf-8"))["cmnist"]
    rows = {"erm": "Vanilla", "lff": "LfF", "jtt": "JTT", "disent": "Disen", "pgd": "PGD"}
    found = numbers("pgd-table1")
    for rho in ("0.005", "0.01", "0.05"):
        assert known[rho] == {method: found["CMNIST", row, rho] for method, row in rows.items()}


def test_avp_prints_one_column_twice():
    found = numbers("avp-comparison")
    twice = {block: number for (block, row, _), number in found.items() if row == "G-DRO (EG)"}
    assert twice == {block: number for (block, row, _), number in found.items() if row == "G-DRO(Greedy)"}
    assert len(twice) == 6


@pytest.mark.parametrize("name", BIASADV)
def test_biasadv_has_the_published_settings(name):
    block = raw(name)["block"][0]
    fields = ("lam", "eps", "steps", "beta", "identify_epochs", "lambda_up")
    found = {}
    for row in block["row"]:
        if "BiasAdv" in row["label"]:
            method = row["method"]
            found[method["base"]] = tuple(method[field] for field in fields if field in method)
            plain = next(r for r in block["row"] if r["label"] == row["label"].removesuffix(" + BiasAdv"))
            assert plain.get("recipe") == row.get("recipe")  # nothing but the attack differs
    assert found == BIASADV[name]


def test_settings_that_follow_the_share_of_conflicting_rows():
    """A row for each share: JTT's 1/ρ, and the λ_up of DCWP's fine-tuning."""
    jtt = [line.trials[0] for line in spec("pgd-table1").lines if line.row == "JTT"]
    assert len(jtt) == 9 and all(trial.method["rho"] == trial.data["rho"] for trial in jtt)
    lines = spec("dcwp-table1").lines
    for row, ups in (("DCWP", (10, 30, 50, 80)), ("DCWP, as released", (80, 50, 30, 10))):
        for block in ("CMNIST", "CIFAR10-C"):
            trials = [line.trials[0] for line in lines if (line.block, line.row) == (block, row)]
            found = {trial.data["rho"]: trial.method["finetune_up"] for trial in trials}
            assert found == dict(zip((0.005, 0.01, 0.02, 0.05), ups, strict=True))


def test_the_ablation_switches_what_its_label_says():
    for line in spec("dcwp-table2").lines:
        parts = set(line.row.removesuffix(", as released").partition(": ")[2].replace("nothing", "").split())
        method = line.trials[0].method
        on = {
            "a": method.get("lambda_up", 80) != 1 and method.get("finetune_up", 80) != 1,
            "b": method.get("prune", True),
            "c": method.get("lambda_align", 0.05) > 0 and method.get("prune", True),
            "d": method.get("finetune_align", 0.05) > 0,
            "e": method.get("mining", "gce") == "gce",
        }
        assert {part for part, is_on in on.items() if is_on} == parts


def test_what_cannot_be_run_says_why():
    lacking = {(name, line.row) for name in PRINTED for line in spec(name).lines if line.missing}
    assert lacking == set()  # every row of every table has a method and data that it could be run with


@pytest.mark.parametrize("name", PRINTED)
def test_no_row_is_refused_for_how_it_picks_its_weights(name):
    data = pictures()  # labelled in every split, so that only what a method may see can be refused
    for line in spec(name).lines:
        for trial in line.trials[:1]:
            method = make_method(trial.method)
            used = permit(method, data, make_recipe(trial.recipe, data))
            assert used == "none" or method.labels != "none", "labels that the method may not see"


def test_columns_of_one_table_share_their_runs():
    """Several scores of a run are blocks of their own, and must not be trained twice."""
    for name, columns in (
        ("dcwp-table3", 5),
        ("pgd-table15", 2),
        ("pgd-table8", 2),
        ("pgd-table7", 2),
        ("large-lr-s1", 5),
    ):
        trials = spec(name).trials()
        assert len({trial.key for trial in trials}) * columns == len(trials)


# Recipes that these tables brought: optimiser, learning rate, weight decay, batch size, and length.
RECIPES_BY_HAND: dict[str, tuple[str, float, float, int, dict[str, Any]]] = {
    "dcwp-cmnist": ("adam", 0.01, 0.0, 256, {"iterations": 10_000}),
    "dcwp-ccifar": ("adam", 1e-3, 0.0, 256, {"iterations": 10_000}),
    "dcwp-bffhq": ("adam", 1e-3, 0.0, 64, {"iterations": 10_000}),
    "dcwp-cmnist-sgd": ("sgd", 0.1, 1e-4, 256, {"iterations": 2_000, "momentum": 0.9}),
    "rebias-cmnist": ("adam", 1e-3, 1e-4, 256, {"epochs": 80, "schedule": "step", "step_every": 20, "gamma": 0.1}),
    "rebias-dcwp": ("adam", 1e-3, 0.0, 256, {"epochs": 200, "schedule": "constant"}),
    "large-lr": ("sgd", 0.1, 0.0, 100, {"momentum": 0.0, "until_accuracy": 100, "schedule": "constant", "loss": "ce"}),
    "large-lr-swin": ("adamw", 1e-5, 0.0, 16, {"until_accuracy": 100, "schedule": "constant"}),
    "avp-celeba": ("adam", 1e-4, 1e-4, 128, {"epochs": 50, "selection": "val_worst_group"}),
    "avp-text": ("adam", 1e-5, 0.1, 32, {"betas": (0.9, 0.98), "schedule": "linear", "selection": "val_worst_group"}),
}


@pytest.mark.parametrize("name", RECIPES_BY_HAND)
def test_recipes_are_the_published_ones(name):
    recipe = RECIPES[name]
    optimizer, lr, decay, batch, more = RECIPES_BY_HAND[name]
    assert (recipe.optimizer, recipe.lr, recipe.weight_decay, recipe.batch_size) == (optimizer, lr, decay, batch)
    assert {field: getattr(recipe, field) for field in more} == more


def test_recipes_of_these_tables_are_used():
    used = {trial.recipe.get("name") for name in PRINTED for trial in spec(name).trials()}
    assert set(RECIPES_BY_HAND) <= used


def test_tables_that_were_run_in_one_folder_each_keep_their_own_rows_and_a_shared_trial_once(tmp_path):
    from studies.keep import keep
    from studies.rows import named

    first, fourth = (read_spec(FOLDER / f"{name}.toml").trials() for name in ("pgd-table1", "pgd-table4"))
    shared = {c.key for c in first} & {c.key for c in fourth}
    assert shared
    for trial in (*first[:3], *fourth, next(c for c in first if c.key in shared)):
        place = tmp_path / "runs" / trial.folder
        place.mkdir(parents=True, exist_ok=True)
        row = {"key": trial.key, "labels": trial.labels, "seed": trial.seed, "status": "done"}
        (place / "row.json").write_text(json.dumps(row))
    for name in ("pgd-table1", "pgd-table4", "anything"):
        keep(tmp_path / "runs", tmp_path / "results" / name)

    def kept(name):
        return {row["key"] for row in named(tmp_path / "results" / name).values()}

    assert kept("pgd-table1") == {c.key for c in first[:3]} | shared
    assert kept("pgd-table4") == {c.key for c in fourth} - shared
    assert kept("anything") == kept("pgd-table1") | kept("pgd-table4")


def test_a_visit_begins_where_the_last_one_ended(tmp_path):
    from spurless.bench.claim import finished_row
    from studies.keep import keep
    from studies.left import put_back, trials_of

    tables = ["pgd-table1@1:CMNIST:PGD", "pgd-table7@1", "pgd-table7:Colored MNIST, debiased model"]
    trials = trials_of(tables)
    first, seventh = (read_spec(FOLDER / f"{name}.toml") for name in ("pgd-table1", "pgd-table7"))
    assert [c.labels["block"] for c in trials[:4]] == ["CMNIST"] * 3 + ["Colored MNIST, debiased model"]
    assert len({c.key for c in trials}) == len(trials) == 36 and [c.seed for c in trials[:12]] == [0] * 12
    assert {c.key for c in trials} == {c.key for c in seventh.trials()}
    assert all(c.after for c in trials)  # those of table 1 as well: table 7 asks for their first stage

    def row(trial, after=None):
        found = {"key": trial.key, "labels": trial.labels, "seed": trial.seed, "status": "done"}
        return found | ({"after": after, "extra": {"first_stage": {}}} if after else {})

    runs, results = tmp_path / "runs", tmp_path / "results"
    for trial in trials[:5]:
        (runs / trial.folder).mkdir(parents=True)
        (runs / trial.folder / "row.json").write_text(
            json.dumps(row(trial, trial.after if trial is not trials[0] else None))
        )
    for name in ("pgd-table1", "pgd-table7"):
        keep(runs, results / name)
    put_back(results, tmp_path / "next")
    done = [finished_row(tmp_path / "next" / c.folder, c.after) for c in trials]
    assert done[0] is None and all(done[1:5]) and not any(done[5:])  # the first lacks what table 7 asks for
    plain = {c.key: c for c in first.only(["CMNIST", "PGD"]).trials()}
    assert finished_row(tmp_path / "next" / trials[0].folder, plain[trials[0].key].after)  # and is done for table 1


def test_further_seeds_that_were_measured_count_and_those_that_were_not_are_not_missed(tmp_path):
    from spurless.bench.figures import entries
    from studies.keep import keep
    from studies.paper_tables import with_further_seeds
    from studies.rows import named

    path = FOLDER / "pgd-table1.toml"
    line = read_spec(path, seeds=6).only(["CMNIST", "PGD"]).lines[0]
    for trial, score in zip(line.trials, (60, 70, 80, 90, None, None), strict=True):  # seeds 3 and 4; 5 was not run
        if trial.seed < 5:
            row = {"key": trial.key, "labels": trial.labels, "seed": trial.seed, "scores": {"average": score}}
            (tmp_path / "runs" / trial.folder).mkdir(parents=True)
            (tmp_path / "runs" / trial.folder / "row.json").write_text(
                json.dumps(row | {"status": "done" if score else "diverged"})
            )
    keep(tmp_path / "runs", tmp_path / "pgd-table1")
    rows = list(named(tmp_path / "pgd-table1").values())
    assert {row["seed"] for row in rows} == {0, 1, 2, 3, 4}
    spec = with_further_seeds(path, {row["key"]: row for row in rows})
    found = next(e for e in entries(spec, rows) if (e.line.block, e.line.row) == ("CMNIST", "PGD"))
    assert (found.ours.n, found.ours.value, found.remark) == (4, 75.0, "1 diverged")
    others = [own for own in spec.lines if own.block != "CMNIST" and own.trials]
    assert others and all(len(own.trials) == 3 for own in others)


def test_what_is_left_can_be_narrowed_to_one_value_of_a_setting():
    from studies.left import trials_of

    trials = trials_of(["pgd-table1@1:CCIFAR:data.rho=0.01"])
    assert {c.labels["row"] for c in trials} == {"Vanilla", "LfF", "JTT", "Disen", "PGD"} and len(trials) == 5
    assert {(c.data["rho"], c.seed) for c in trials} == {(0.01, 0)}
    both = trials_of(["pgd-table7@1:data.rho=0.05:method.q=0.9"])
    assert {(c.data["rho"], c.method["q"]) for c in both} == {(0.05, 0.9)}
    for wrong in ("data.rho=0.02", "data.roh=0.01", "net.name=vgg"):
        with pytest.raises(UserError, match=f"pgd-table1: no trial has {wrong.split('=')[0]}"):
            trials_of([f"pgd-table1:CCIFAR:{wrong}"])


def test_a_shared_trial_is_renewed_where_it_was_kept_first(tmp_path):
    from studies.keep import keep
    from studies.rows import named, put

    first, seventh = (read_spec(FOLDER / f"{name}.toml").trials() for name in ("pgd-table1", "pgd-table7"))
    own = {c.key: c for c in first}
    shared = next(c for c in seventh if c.key in own)
    row = {"key": shared.key, "seed": shared.seed, "status": "done"}
    put(tmp_path / "results" / "pgd-table1" / "as-it-was-named", row | {"labels": own[shared.key].labels})
    (tmp_path / "runs" / shared.folder).mkdir(parents=True)
    measured = row | {"labels": shared.labels, "extra": {"first_stage": {"average": 18.0}}}
    (tmp_path / "runs" / shared.folder / "row.json").write_text(json.dumps(measured))
    for table in ("pgd-table7", "pgd-table1"):
        keep(tmp_path / "runs", tmp_path / "results" / table)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["pgd-table1.jsonl"]
    kept = named(tmp_path / "results" / "pgd-table1")
    assert kept == {"as-it-was-named": measured | {"labels": own[shared.key].labels}}

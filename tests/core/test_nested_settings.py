"""Settings that hold others: groups, and choices among objects with settings of their own."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from spurless.bench.trials import Trial
from spurless.core.errors import SettingError
from spurless.core.files import from_toml, to_toml
from spurless.core.settings import Range, Was, build, check, resolve, settings_of, values_of
from spurless.methods.dcwp import DCWP, DebiasedMask, Finetune, Mining
from spurless.methods.george import GEORGE
from spurless.methods.group_dro import GroupDRO
from spurless.methods.group_inference import CLASSES, Inference
from spurless.methods.group_inference.clusters import George
from spurless.methods.group_inference.known import Known
from spurless.registry import make_method, saved_method
from spurless.train.identity import settings_of_method


@dataclass(frozen=True)
class Inner:
    rate: Annotated[float, "how fast", Range(0), Was("speed")] = 0.1
    width: Annotated[int, "how wide", Range(1)] = 3


@dataclass(frozen=True)
class Outer:
    inner: Annotated[Inner, "what is inside"] = Inner(rate=0.5)
    name: Annotated[str, "what it is called"] = "x"


# Groups


def test_a_groups_settings_are_saved_by_their_former_names_and_else_by_their_paths():
    known = settings_of(Outer)
    assert list(known) == ["speed", "inner.width", "name"]
    assert [s.path for s in known.values()] == ["inner.rate", "inner.width", "name"]
    assert known["speed"].default == 0.5, "the group's default in this place, not its class's"
    assert values_of(Outer()) == {"speed": 0.5, "inner.width": 3, "name": "x"}


@pytest.mark.parametrize(
    "given", [{"speed": "2"}, {"inner.rate": "2"}, {"inner": {"rate": 2}}, {"inner": {"speed": 2}}]
)
def test_all_spellings_are_the_same_setting(given):
    if "speed" in given.get("inner", {}):  # a former name is one of the whole, not of the group
        with pytest.raises(SettingError, match=r"inner\.speed"):
            resolve(Outer, given, "outer")
        return
    assert resolve(Outer, given, "outer") == {"speed": 2.0, "inner.width": 3, "name": "x"}
    assert build(Outer, resolve(Outer, given, "outer")) == Outer(Inner(2.0))


def test_of_two_spellings_the_later_one_counts():
    assert check(settings_of(Outer), {"speed": 1, "inner.rate": 2}, "outer", {}) == {"speed": 2.0}
    assert check(settings_of(Outer), {"inner.rate": 2, "speed": 1}, "outer", {}) == {"speed": 1.0}


def test_mistakes_in_a_group_name_what_there_is():
    with pytest.raises(SettingError, match=r"(?s)did you mean 'outer\.inner\.rate'.*outer\.inner\.width") as error:
        resolve(Outer, {"inner.rat": 1}, "outer")
    assert "speed" not in str(error.value), "former names are read, and not offered"
    with pytest.raises(SettingError, match=r"outer\.inner\.width = 0 is not allowed"):
        resolve(Outer, {"inner": {"width": 0}}, "outer")


def test_dcwps_groups_are_saved_as_before_and_read_both_ways():
    flat = {
        "mining": "erm",
        "mining_falls": 600,
        "mining_iterations": 9,
        "lambda_l1": 1e-9,
        "lambda_up": 7,
        "finetune_lr": 0.5,
    }
    nested = {
        "mining": {"how": "erm", "decay_every": 600, "iterations": 9},
        "mask.l1": 1e-9,
        "mask": {"up": 7},
        "finetune.lr": "0.5",
    }
    made = DCWP(
        mining=Mining("erm", iterations=9, decay_every=600),
        mask=DebiasedMask(l1=1e-9, up=7),
        finetune=Finetune(lr=0.5),
    )
    assert make_method({"name": "dcwp"} | flat) == make_method({"name": "dcwp"} | nested) == make_method(made) == made
    saved = settings_of_method(made)
    assert saved.items() >= flat.items() and not any("." in name for name in saved)
    assert saved_method(from_toml(to_toml({"name": "dcwp"} | saved))) == made
    keys = {Trial({"name": "toy"}, {"name": "dcwp"} | given).key for given in (flat, nested)}
    assert len(keys) == 1


# Choices


def group_dro(**settings):
    return make_method({"name": "group_dro"} | settings)


@pytest.mark.parametrize(
    "given",
    [
        {"groups": "george", "groups.clusters": "4"},
        {"groups.clusters": 4, "groups": "george"},
        {"groups": {"name": "george", "clusters": 4}},
        {"groups": {"name": "george"}, "groups.clusters": 4},
        {"groups": George(clusters=4)},
    ],
)
def test_all_spellings_of_a_choice_are_the_same(given):
    assert group_dro(**given).groups == {"name": "george", "clusters": 4}


def test_a_choice_at_its_defaults_is_its_name_so_that_keys_stay():
    assert group_dro(groups=George()).groups == group_dro(groups={"name": "george", "clusters": 0}).groups == "george"
    assert make_method(GroupDRO(groups=Known())) == GroupDRO() and GroupDRO().labels == "training"
    assert GroupDRO(groups=George(clusters=4)).labels == "selection"
    keys = [Trial({"name": "toy"}, {"name": "group_dro"} | given).key for given in (
        {"groups": "george"}, {"groups": {"name": "george", "most": 10}}, {"groups": {"name": "george", "most": 5}},
    )]  # fmt: skip
    assert keys[0] == keys[1] != keys[2]


def test_a_choice_survives_a_folder():
    made = group_dro(groups=George(clusters=4, reduction="pca"))
    assert saved_method(from_toml(to_toml({"name": "group_dro"} | settings_of_method(made)))) == made


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": "goerge"}, "did you mean 'george'"),
        ({"groups": "george", "groups.cluster": 4}, r"did you mean 'method\.groups\.clusters'"),
        ({"groups.clusters": 4}, r"no setting 'method\.groups\.clusters'"),  # known has none
        ({"groups": {"name": "george", "clusters": -1}}, r"method\.groups\.clusters = -1"),
        ({"groups": 3}, r"method\.groups = 3 is not allowed"),
        ({"groups": {"clusters": 4}}, "no group inference"),
    ],
)
def test_mistakes_in_a_choice_name_what_there_is(given, message):
    with pytest.raises(SettingError, match=message):
        group_dro(**given)


def test_every_inference_is_an_object_with_settings_of_its_own():
    for name in CLASSES:
        made = group_dro(groups=name)
        assert made.groups == name
    assert issubclass(GEORGE, Inference) and set(settings_of(George)) < set(settings_of(GEORGE))

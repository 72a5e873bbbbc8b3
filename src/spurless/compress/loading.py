"""Trained models from files, for data that they may not have been trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spurless.core.data import Bundle, Images, Texts
from spurless.core.digests import same_content
from spurless.core.errors import SettingError, UserError
from spurless.core.files import read_toml
from spurless.core.fingerprint import fingerprint
from spurless.core.messages import log, withheld
from spurless.core.settings import settings_of
from spurless.core.tensor_files import header, load_tensors
from spurless.data.coding import Coding, coding_of
from spurless.data.ingest.problems import listed
from spurless.nets import Net, build, builder
from spurless.nets.weights import load_weights, read_weights
from spurless.registry import PLACES, data_name, find, load_data
from spurless.train.fit import Precision
from spurless.train.networks import example_of
from spurless.train.run_folder import MODEL, SETTINGS
from spurless.train.saved import check_facts, load_classifier, load_run

# What the model's inputs and answers are, whatever data it is given; the last two name columns of a table.
INPUTS, LABEL_AND_TEXT = ("resize", "zoom", "tokenizer", "length", "missing", "decimal"), ("label", "text")


def trained(model: Path, bundle: Bundle) -> tuple[Net, Bundle, Precision]:
    """The classifier of a run's folder or weights file, the data as it wants to see it, and its arithmetic."""
    if model.is_dir():
        classifier = load_run(model, device="cpu").classifier
        if classifier is None:
            raise UserError(f"The run in {model} diverged: there is no classifier.")
    elif model.suffix != ".safetensors":
        raise UserError(f"{model} is not a .safetensors file; name the network whose weights it holds with --net.")
    else:
        classifier = load_classifier(model, device="cpu")
    facts = load_tensors(model / MODEL if model.is_dir() else model)[1]
    own = is_its_own(model, bundle)
    bundle = _with_classes_of(model, bundle, list(facts["classes"]))
    if own is None:
        note = f"{model} does not say what it was trained on: it may have learnt these samples."
        bundle = replace(bundle, notes=(*bundle.notes, note))
    _check_inputs(model, bundle, facts)
    # Standardised as in training: the numbers of the new data would shift what the network sees.
    if not isinstance(bundle.inputs, Texts):
        bundle = replace(bundle, inputs=replace(bundle.inputs, mean=tuple(facts["mean"]), std=tuple(facts["std"])))
    bundle = _with_its_shortcuts(bundle, facts.get("shortcuts", {}), own is False)
    try:
        classifier(example_of(bundle))
    except (RuntimeError, IndexError):  # of a text with more tokens than the network has positions
        raise UserError(
            f"{model} was trained on inputs of shape {tuple(facts['shape'])} and cannot take those of {bundle.name}, "
            f"{bundle.shape}. Is it the same dataset, with the same settings (--set data...)?"
        ) from None
    return classifier, bundle, facts.get("precision", "fp32")


def _with_classes_of(model: Path, bundle: Bundle, classes: list[str]) -> Bundle:
    """The same samples, with the classes of a model: matched by name or, with a warning, by their order."""
    if {*bundle.classes} <= {*classes}:
        return _with_classes(bundle, classes)
    if len(classes) != len(bundle.classes):
        raise UserError(
            f"{model} knows {len(classes)} classes, beginning with {classes[0]}, and {bundle.name} has "
            f"{len(bundle.classes)}, beginning with {bundle.classes[0]}: there is nothing to compare."
        )
    names = ", ".join(bundle.classes)
    note = f"Classes are compared by their place: {', '.join(classes)} in {model}, {names} in {bundle.name}."
    log.warning(note)
    return replace(bundle, notes=(*bundle.notes, note))


def _check_inputs(model: Path, bundle: Bundle, facts: Mapping[str, Any]) -> None:
    """Refuse texts of another tokenizer and a table of another coding; warn of images of another size."""
    vocabulary = bundle.inputs.tokens.vocabulary if isinstance(bundle.inputs, Texts) else None
    if facts.get("vocabulary") != vocabulary:
        reads = f"tokens of data.tokenizer = {facts['tokenizer']}" if facts.get("tokenizer") else "no text"
        raise UserError(f"{model} reads {reads}, unlike what {bundle.name} holds; load the data as it was trained on.")
    coding = coding_of(bundle)
    if coding and "coding" not in facts:
        log.warning(f"{model} does not say how its table was coded: its scores hold for its own table only.")
    elif coding and json.dumps(facts["coding"]) != json.dumps(coding):
        raise UserError(
            f"{bundle.name} is coded by its own training samples, and {model} was trained on other ones. Give its name "
            "instead of what was loaded from it: then it is coded as the model knows it."
        )
    if isinstance(bundle.inputs, Images) and tuple(facts["shape"]) != bundle.shape:
        log.warning(f"{model} was trained on images of shape {tuple(facts['shape'])}; these are {bundle.shape}.")


def _with_classes(bundle: Bundle, model_classes: Sequence[str]) -> Bundle:
    """The same samples, with the classes of a model in its order: they are matched by their names.

    >>> from spurless.core.data import Split
    >>> rows = Split(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    >>> _with_classes(Bundle("pets", rows, classes=("cat", "dog")), ["dog", "cow", "cat"]).train.y
    tensor([2, 0, 0])
    """
    if (*model_classes,) == bundle.classes:
        return bundle
    index_of = torch.tensor([model_classes.index(name) for name in bundle.classes])
    splits: dict[str, Any] = {name: replace(split, y=index_of[split.y]) for name, split in bundle.splits.items()}
    tables = tuple(
        table.new_zeros(len(model_classes), table.shape[1]).index_copy(0, index_of, table) for table in bundle.aligned
    )
    return replace(bundle, **splits, classes=(*model_classes,), aligned=tables)


def _with_its_shortcuts(bundle: Bundle, shortcuts: Mapping[str, Any], foreign: bool) -> Bundle:
    """With what went together in the model's own training: in other data it may be the other way round, and a sample
    that agrees with those would be called aligned although it contradicts what the model has learnt."""
    tables, notes = list(bundle.aligned), list(bundle.notes)
    if foreign and (unknown := ", ".join(f"'{name}'" for name in bundle.attributes if name not in shortcuts)):
        notes.append(
            f"The model does not say how {unknown} went with the label in its own training: which samples are aligned "
            f"and which conflict is by the training samples of {bundle.name}."
        )
    for k, name in enumerate(bundle.attributes):
        if name in shortcuts:
            learnt = torch.tensor(shortcuts[name]["aligned"], dtype=torch.bool)  # (classes, values)
            column_of = {value: column for column, value in enumerate(shortcuts[name]["values"])}
            unseen = [f"'{value}'" for value in bundle.values[k] if value not in column_of]
            if len(unseen) == len(bundle.values[k]):
                notes.append(f"{listed(unseen)} of '{name}' are new to the model: aligned is by {bundle.name} itself.")
                continue
            if unseen:
                notes.append(f"{listed(unseen)} of '{name}': new to the model, so no sample with it is aligned.")
            new = learnt.new_zeros(len(learnt))
            tables[k] = torch.stack(
                [learnt[:, column_of[v]] if v in column_of else new for v in bundle.values[k]], dim=1
            )
    return replace(bundle, aligned=tuple(tables), notes=tuple(notes))


def is_its_own(model: Path, bundle: Bundle) -> bool | None:
    """Whether a model was trained on these samples, whatever attributes are named for them; None where it does not
    say."""
    facts, saved = _told(model)
    if "rows" in facts:
        return same_content(facts["rows"], fingerprint(bundle, with_attributes=False))
    return same_content(saved["fingerprint"], fingerprint(bundle)) if "fingerprint" in saved else None


def _told(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a model's file says, and what it was trained on: by the settings of its run, or else by that file."""
    file = model / MODEL if model.is_dir() else model
    facts = header(file) if file.suffix == ".safetensors" else {}
    check_facts(facts, file)
    if (model / SETTINGS).exists():
        return facts, dict(read_toml(model / SETTINGS).get("data", {}))
    return facts, {"name": facts["data"]} | facts["trained_on"] if "trained_on" in facts else {}


def data_for(
    model: Path, data: Mapping[str, Any], root: str | Path | None = None, only_to_score: bool = False
) -> Bundle:
    """The data as a run or weights file was given its own: a table coded alike, images of the same size, texts as long.

    Where it is what the run was trained on, all settings are the run's, but for those that are given: other ones would
    draw other splits, and score samples that it has learnt. Of other data no splits are drawn if it is `only_to_score`.
    """
    facts, saved = _told(model)
    data = dict(data) | {"name": data_name(str(data["name"]), root)}
    own = {k: v for k, v in saved.items() if k not in ("name", "source", "fingerprint")}
    source = str(saved.get("source", saved.get("name")))
    other = _made_alike(source, own, str(data["name"])) | dict(data)
    if "size" not in other and len(facts.get("shape", ())) == 3 and usual_size(data["name"]):
        other["size"] = facts["shape"][-1]
    coding: Coding | None = tuple(facts["coding"]) if "coding" in facts else None
    if source == data["name"]:
        bundle = load_data(own | dict(data), root=root, coding=coding)
        if is_its_own(model, bundle) is False:
            _say_what_differs(bundle, model, [k for k in data if k != "name" and data[k] != own.get(k)])
        return bundle
    if _may_be_the_same(source, data["name"]) and (same := _own_elsewhere(model, own | dict(data), root, coding)):
        return same
    only_scored = only_to_score and not {"fractions", "val", "test", "seed"} & data.keys()
    return load_data(other, root=root, coding=coding, only_scored=only_scored)


def _made_alike(source: str, own: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a run's data that say how inputs are made, for other data that has them, too."""
    of_kind = LABEL_AND_TEXT if source.partition(":")[0] == name.partition(":")[0] else ()
    wanted = _settings_of_data(name)
    return {k: own[k] for k in (*INPUTS, *of_kind) if k in own and k in wanted and own[k] != wanted[k].default}


def _own_elsewhere(
    model: Path, settings: dict[str, Any], root: str | Path | None, coding: Coding | None
) -> Bundle | None:
    """The model's own data from another place, where it is that. Else nothing is said of it: it is read again."""
    bundle = None
    with suppress(UserError), withheld() as messages:  # of other data, which the run's settings need not fit
        bundle = load_data(settings, root=root, coding=coding)
    if bundle is None or not is_its_own(model, bundle):
        return None
    for message in messages:
        log.handle(message)
    return bundle


def _may_be_the_same(source: str, name: str) -> bool:
    """Whether it may be one place under two names: copied, from another folder, or written in full.

    >>> _may_be_the_same("csv:a.csv", "csv:/data/b.csv"), _may_be_the_same("csv:a.csv", "folder:a")
    (True, False)
    """
    kind = source.partition(":")[0]
    return kind in PLACES and kind == name.partition(":")[0]


def _say_what_differs(bundle: Bundle, model: Path, given: Sequence[str]) -> None:
    if given:
        named = ", ".join(f"data.{name}" for name in given)
        log.warning(
            f"With {named} as given, {bundle.name} is not what {model} was trained on: it may have learnt such samples."
        )
    else:
        log.warning(f"{bundle.name} is not what {model} was trained on: its samples or splits are other ones by now.")


def unusual_settings(data: Bundle) -> dict[str, Any]:
    """What a dataset was loaded with, as far as it is not what it would have been anyway."""
    usual = {name: setting.default for name, setting in _settings_of_data(data.source).items()}
    return {k: v for k, v in data.settings.items() if k in usual and v != usual[k]}


def _settings_of_data(name: str) -> dict[str, Any]:
    try:
        return settings_of(find("data", name))
    except SettingError:
        return {}  # load_data says which names there are


def usual_size(name: str) -> int:
    """To how many pixels the images of a dataset are scaled unless data.size says otherwise; 0 where they are not."""
    size = _settings_of_data(name).get("size")
    return size.default if size is not None and isinstance(size.default, int) else 0


def with_weights(net: dict[str, Any], file: Path, bundle: Bundle) -> Net:
    """A network with the weights of a file that does not say which network they belong to."""
    if file.is_dir():
        raise UserError(f"{file} is a folder, and --net goes with a weights file: a run's folder knows its network.")
    state = read_weights(file)
    if "weights" in settings_of(builder(net["name"])):
        made = build(net | {"weights": str(file)}, bundle.shape, len(bundle.classes))
    else:
        made = build(net, bundle.shape, len(bundle.classes))
        load_weights(made, state, "head", "", str(file))
    if not any(torch.equal(tensor, made.head.weight) for tensor in state.values()):
        raise UserError(f"{file} has no head for the {len(bundle.classes)} classes of {bundle.name}.")
    return made.eval()

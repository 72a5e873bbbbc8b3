"""The commands `train`, `evaluate`, `show` and `demo`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spurless.cli.common import SECTIONS, default_folder, echo, gather, mistakes_in_one_line, print_json, show_result
from spurless.cli.options import Data, Device, Json, Method, Net, RecipeName, Seed, Set, Where
from spurless.core.errors import UserError
from spurless.core.extras import check_run
from spurless.core.settings import resolve

if TYPE_CHECKING:
    from spurless.train.fit import Precision
    from spurless.train.run_folder import RunFolder


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (train, evaluate, show, demo):
        app.command()(mistakes_in_one_line(command))


@dataclass(frozen=True)
class Settings:
    """How a run is trained."""

    net: Net = None
    recipe: RecipeName = None
    seed: Annotated[int | None, typer.Option(help="Decides everything that is random. Default: 0.")] = None
    config: Annotated[
        Path | None,
        typer.Option(help="Settings as TOML, such as a settings.toml; command-line options take precedence."),
    ] = None
    set_: Set = None

    def gathered(self, method: str, data: str) -> tuple[dict[str, dict[str, Any]], int]:
        """The settings by section, and the seed."""
        names = {"method": method, "data": data, "net": self.net, "recipe": self.recipe}
        chosen, seed = from_config(self.config, names) if self.config else ({}, 0)
        chosen = gather(self.set_ or [], SECTIONS, chosen)
        chosen |= {section: chosen[section] | {"name": name} for section, name in names.items() if name is not None}
        return chosen, seed if self.seed is None else self.seed


def train(
    method: Method,
    data: Data,
    settings: Settings,
    where: Where,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. Default: runs/METHOD-DATA-NET-seedN, and a hash of settings.")
    ] = None,
    track: Annotated[
        str | None, typer.Option(help="Also send the epochs to tensorboard, wandb or mlflow; wandb:PROJECT names one.")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="The same as --track tensorboard:FOLDER.")] = None,
    as_json: Json = False,
) -> None:
    """Train a method and score it by group. Re-running the command resumes the run or prints its result."""
    chosen, seed = settings.gathered(method, data)
    tracked = f"tensorboard:{tensorboard}" if tensorboard else track
    check_run(chosen["net"], chosen["recipe"], tracked)
    _check_names(chosen, where.data_root)  # before torch: a mistake in them should not have to wait for it
    if sys.stderr.isatty():
        echo(f"Loading torch and {data} ...", err=True)
    from spurless.registry import make_method
    from spurless.train.device import pick_device
    from spurless.train.fit import fit
    from spurless.train.session import load_for

    # Before the data, for the same reason.
    asked_method, device = make_method(chosen["method"]), pick_device(where.device)
    _check_net(chosen["net"])
    with redirect_stdout(sys.stderr):  # libraries print where they please
        bundle, net_spec, recipe_spec = load_for(
            chosen["data"], chosen["net"] or None, chosen["recipe"] or None, device, where.data_root
        )
        network = {"name": bundle.net} | (dict(net_spec) if isinstance(net_spec, Mapping) else {})
        recipe_table = dict(recipe_spec) if isinstance(recipe_spec, Mapping) else {}
        folder = out or default_folder(method, data, network["name"], seed, chosen | {"recipe": recipe_table})
        result = fit(
            asked_method,
            bundle,
            net=network,
            recipe=recipe_table,
            seed=seed,
            out=folder,
            device=device,
            command=shlex.join(["spurless", *sys.argv[1:]]),
            track=tracked,
        )
    row = {k: v for k, v in result.row().items() if k != "history"}
    if as_json:
        print_json(row)
    else:
        show_result(row)
    if result.status == "diverged":
        typer.secho(f"Diverged: {result.error}", fg="red", err=True)
        raise typer.Exit(3)


def _check_names(chosen: Mapping[str, Mapping[str, Any]], root: str | None) -> None:
    from spurless.registry import check_name, check_recipe, data_name

    check_name("method", chosen["method"]["name"])
    check_name("data", data_name(chosen["data"]["name"], root))
    if "name" in chosen["net"]:
        check_name("net", chosen["net"]["name"])
    check_recipe(chosen["recipe"])


def _check_net(given: Mapping[str, Any]) -> None:
    from spurless.nets import builder

    if "name" in given:
        resolve(builder(given["name"]), {k: v for k, v in given.items() if k != "name"}, "net")


def evaluate(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a weights file.")],
    data: Data,
    where: Where,
    net: Annotated[str | None, typer.Option(help="The network, for a weights file that does not say.")] = None,
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test; all samples of other data without splits.")
    ] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Score a trained model on a dataset, by group. The data of a run is read as it was for its training."""
    from spurless.compress.loading import data_for, is_its_own, trained, with_weights
    from spurless.metrics.groups import group_notes
    from spurless.registry import load_data
    from spurless.train.device import pick_device
    from spurless.train.fit import evaluate

    chosen = gather(set_ or [], ("data", "net") if net else ("data",))
    if not model.exists():
        raise UserError(f"{model} is neither a run's folder nor a weights file.")
    device = pick_device(where.device)
    with redirect_stdout(sys.stderr):
        named = chosen["data"] | {"name": data}
        root = where.data_root
        bundle = load_data(named, root=root) if net else data_for(model, named, root, split is None)
        if net:
            classifier = with_weights(chosen["net"] | {"name": net}, model, bundle)
            precision: Precision = "fp32"
            own: bool | None = True  # so that its samples do not count as new ones
        else:
            own = is_its_own(model, bundle)
            classifier, bundle, precision = trained(model, bundle)
        everything = split is None and list(bundle.splits) == ["train"] and not own
        chosen_split = split or ("train" if everything else "test")
        scores = evaluate(classifier, bundle, chosen_split, device, precision=precision)
    row = {
        "model": str(model),
        "data": bundle.name,
        "split": "all" if everything else chosen_split,
        "n": len(bundle.splits[chosen_split]),
        "scores": scores,
        "notes": [*bundle.notes, *group_notes(scores, "all" if everything else chosen_split)],
    }
    if as_json:
        print_json(row)
    else:
        show_result(row | {"method": str(model), "seconds": None, "labels_used": None})


def show(run: Annotated[Path, typer.Argument(help="A run's folder.")], as_json: Json = False) -> None:
    """Print a run's scores if it is finished, or its last checkpoint if not."""
    from spurless.core.files import read_toml
    from spurless.train.run_folder import SETTINGS, RunFolder

    folder = RunFolder(run)
    if not (run / SETTINGS).exists():
        raise UserError(f"{run} holds no run (no {SETTINGS}).")
    settings = read_toml(run / SETTINGS)
    if not all(isinstance(settings.get(section), dict) for section in ("method", "data")):
        raise UserError(f"{run} holds no run ({SETTINGS} is not one of a run).")
    row = folder.result()
    if row is None:
        history = folder.history()
        row = {"status": "unfinished"} | {section: settings[section].get("name") for section in ("method", "data")}
        row |= {"settings": settings, "last_epoch": history[-1] if history else None}
        row["checkpoint"] = last_checkpoint(folder, history)
    row.pop("history", None)
    row["folder"] = str(run)  # it may have been moved
    if as_json:
        print_json(row)
    elif row["status"] == "unfinished":
        where = row["last_epoch"]
        at = f"stage '{where['stage']}', epoch {where['epoch']}, loss {where['loss']:.4g}" if where else "the start"
        echo(f"{row['method']} on {row['data']}: unfinished, at {at}. {how_to_resume(row['checkpoint'])}")
    else:
        show_result(row)


def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("runs/demo"),
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Train plain and debiased classifiers on coloured digits, and show what the shortcut costs. Half a minute."""
    from spurless.cli.demo import run_demo

    run_demo(out, seed, device)


def from_config(config: Path, names: dict[str, str | None]) -> tuple[dict[str, dict[str, Any]], int]:
    """Settings by section from a TOML file, and the seed. What belongs to another method, dataset, network or recipe
    than the one named on the command line is ignored, with a warning."""
    from spurless.core.files import read_toml
    from spurless.core.messages import log

    chosen: dict[str, dict[str, Any]] = {}
    seed = 0
    for section, table in read_toml(config).items():
        if section == "spurless":  # the version, in a run's settings.toml
            continue
        if section == "seed" and isinstance(table, int):
            seed = table
            continue
        if section not in SECTIONS or not isinstance(table, dict):
            raise UserError(f"{config}: '{section}' is not a section; the sections are [{'], ['.join(SECTIONS)}].")
        of, asked = table.get("source", table.get("name")), names[section]
        if not isinstance(of, str | None):
            raise UserError(f"{config}: name = {of!r} in [{section}] is not a name.")
        if asked and of != asked and (of or section == "recipe"):
            log.warning(f"{config}: [{section}] is not that of {asked}, and is ignored.")
        else:
            chosen[section] = {k: v for k, v in table.items() if k not in ("fingerprint", "source")}
    return chosen, seed


def last_checkpoint(folder: RunFolder, history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The checkpoint that a run resumes from, which a kill leaves behind the last epoch of its history."""
    checkpoint = folder.checkpoint()
    if checkpoint is None:
        return None
    index, facts, done = checkpoint
    own = [row for row in history if row.get("stage_index") == index]  # none while its first epoch lasts
    epoch = facts.get("epoch", 0) if not done else own[-1]["epoch"] if own else 0
    return {"stage": own[0]["stage"] if own else None, "stage_index": index, "stage_done": done, "epoch": epoch}


def how_to_resume(checkpoint: dict[str, Any] | None) -> str:
    if checkpoint is None:
        return "There is no checkpoint yet: re-running the train command starts over."
    stage = f"stage '{checkpoint['stage']}'" if checkpoint["stage"] else f"stage {checkpoint['stage_index'] + 1}"
    at = f"the end of {stage}" if checkpoint["stage_done"] else f"epoch {checkpoint['epoch']} of {stage}"
    return f"Re-running the train command resumes from the last checkpoint, at {at}."

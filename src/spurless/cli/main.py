"""The command line: thin. Settings come from the fields of methods, recipes, data sets and networks."""

from __future__ import annotations

import io
import json
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spurless.cli import bench as cli_bench
from spurless.cli import sweep as cli_sweep
from spurless.cli.common import SECTIONS, Device, Json, Root, Set, gather, mistakes_in_one_line, print_json
from spurless.core import output
from spurless.core.errors import UserError, unknown
from spurless.core.settings import resolve

if TYPE_CHECKING:
    from spurless.train.fit import Precision
    from spurless.train.run_folder import RunFolder

app = typer.Typer(
    help="Find, measure and remove spurious correlations from classifiers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Look at data sets, and get them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command()
@mistakes_in_one_line
def train(
    method: Annotated[str, typer.Argument(help="A method: see `spurless list methods`.")],
    data: Annotated[str, typer.Argument(help="A data set: see `spurless list datasets`; or folder:PATH, csv:FILE.")],
    net: Annotated[str | None, typer.Option(help="A network: see `spurless list nets`.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A named recipe, such as pgd-cmnist.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides everything that is random. Default: 0.")] = None,
    device: Device = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings as TOML, such as a run's settings.toml; other options go before it.")
    ] = None,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. Default: runs/METHOD-DATA-NET-seedN, and a hash of settings.")
    ] = None,
    data_root: Root = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Also log the epochs to this folder (tensorboardX).")] = None,
    as_json: Json = False,
) -> None:
    """Train a method on a data set, and score it by group. The same command again goes on, or shows the result."""
    names = {"method": method, "data": data, "net": net, "recipe": recipe}
    chosen, config_seed = from_config(config, names) if config else ({}, 0)
    chosen = gather(set_ or [], SECTIONS, chosen)
    chosen |= {section: chosen[section] | {"name": name} for section, name in names.items() if name is not None}
    seed = config_seed if seed is None else seed
    from spurless.nets import builder
    from spurless.registry import check_recipe, load_data, make_method
    from spurless.train.device import pick_device
    from spurless.train.fit import fit

    # Before the data: a mistake in any of these should not have to wait for it.
    made, place = make_method(chosen["method"]), pick_device(device)
    check_recipe(chosen["recipe"])
    if "name" in chosen["net"]:
        resolve(builder(chosen["net"]["name"]), {k: v for k, v in chosen["net"].items() if k != "name"}, "net")
    with redirect_stdout(sys.stderr):  # libraries print where they please
        bundle = load_data(chosen["data"], root=data_root)
        network = {"name": bundle.net} | chosen["net"]
        folder = out or default_folder(method, data, network["name"], seed, chosen)
        result = fit(
            made,
            bundle,
            net=network,
            recipe=chosen["recipe"],
            seed=seed,
            out=folder,
            device=place,
            progress=watcher(made, tensorboard),
        )
    row = {k: v for k, v in result.row().items() if k != "history"}
    if as_json:
        print_json(row)
    else:
        show_result(row)
    if result.status == "diverged":
        typer.secho(f"Diverged: {result.error}", fg="red", err=True)
        raise typer.Exit(3)


@app.command()
@mistakes_in_one_line
def evaluate(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a weights file.")],
    data: Annotated[str, typer.Argument(help="A data set, folder:PATH or csv:FILE.")],
    net: Annotated[str | None, typer.Option(help="The network, for a weights file that does not say.")] = None,
    split: Annotated[
        str | None, typer.Option(help="train, val or test. Default: test; all rows of other data without splits.")
    ] = None,
    set_: Set = None,
    device: Device = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Score a trained model on a data set, by group. The data of a run is read as it was for its training."""
    from spurless.compress.loading import data_for, is_its_own, trained, with_weights
    from spurless.metrics.groups import group_notes
    from spurless.registry import load_data
    from spurless.train.device import pick_device
    from spurless.train.fit import evaluate

    chosen = gather(set_ or [], ("data", "net") if net else ("data",))
    if not model.exists():
        raise UserError(f"{model} is neither a run's folder nor a weights file.")
    place = pick_device(device)
    with redirect_stdout(sys.stderr):
        named = chosen["data"] | {"name": data}
        bundle = load_data(named, root=data_root) if net else data_for(model, named, data_root, split is None)
        if net:
            classifier = with_weights(chosen["net"] | {"name": net}, model, bundle)
            precision: Precision = "fp32"
            own: bool | None = True  # so that its rows are not taken for new ones
        else:
            own = is_its_own(model, bundle)
            classifier, bundle, precision = trained(model, bundle)
        everything = split is None and list(bundle.splits) == ["train"] and not own
        chosen_split = split or ("train" if everything else "test")
        scores = evaluate(classifier, bundle, chosen_split, place, precision=precision)
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


@app.command()
@mistakes_in_one_line
def show(run: Annotated[Path, typer.Argument(help="A run's folder.")], as_json: Json = False) -> None:
    """Show a run: its scores if it is finished, the place it has reached if not."""
    from spurless.core.files import read_toml
    from spurless.train.run_folder import SETTINGS, RunFolder

    folder = RunFolder(run)
    if not (run / SETTINGS).exists():
        raise UserError(f"{run} holds no run (no {SETTINGS}).")
    settings = read_toml(run / SETTINGS)
    if not all(isinstance(settings.get(part), dict) for part in ("method", "data")):
        raise UserError(f"{run} holds no run ({SETTINGS} is not one of a run).")
    row = folder.result()
    if row is None:
        history = folder.history()
        row = {"status": "unfinished"} | {part: settings[part].get("name") for part in ("method", "data")}
        row |= {"settings": settings, "last_epoch": history[-1] if history else None}
        row["checkpoint"] = last_checkpoint(folder, history)
    row.pop("history", None)
    row["folder"] = str(run)  # it may have been moved
    if as_json:
        print_json(row)
    elif row["status"] == "unfinished":
        where = row["last_epoch"]
        at = f"stage '{where['stage']}', epoch {where['epoch']}, loss {where['loss']:.4g}" if where else "the start"
        typer.echo(f"{row['method']} on {row['data']}: unfinished, at {at}. {how_to_go_on(row['checkpoint'])}")
    else:
        show_result(row)


@app.command()
@mistakes_in_one_line
def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Decides everything that is random.")] = 0,
    device: Device = None,
) -> None:
    """Train plain and debiased classifiers on coloured digits, and show what the shortcut costs. About a minute."""
    from spurless.cli.demo import run_demo

    run_demo(out, seed, device)


@app.command()
@mistakes_in_one_line
def audit(
    data: Annotated[str, typer.Argument(help="A data set: see `spurless list datasets`; or folder:PATH, csv:FILE.")],
    model: Annotated[
        Path | None, typer.Option(help="A run's folder or a weights file. Default: a plain model is trained.")
    ] = None,
    net: Annotated[str | None, typer.Option(help="The network of a weights file, or of the model to train.")] = None,
    budget: Annotated[float | None, typer.Option(help="Minutes for everything.", min=0.1)] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Try repairs, and show before and after.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what the data gives away: no model, seconds instead of a minute.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where it is written. Default: runs/audit-DATA-NET-seedN, and a hash of settings."),
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="found, gap or available: exit with code 4 when the verdict is that bad.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides everything that is random.")] = 0,
    set_: Set = None,
    device: Device = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Is my model taking a shortcut, where, and what do I do? Answers on one screen and in a report."""
    worst = ("found", "gap", "available")
    bad = {level: worst[: k + 1] for k, level in enumerate(worst)} | {"suspected": worst[:2]}  # the last: an older name
    if fail_on is not None and fail_on not in bad:
        raise unknown("level", fail_on, bad)
    chosen = gather(set_ or [], ("data", "net", "recipe"))
    from spurless.auditing import FILE, REPORT, audit
    from spurless.auditing.terminal import show
    from spurless.registry import check_recipe

    check_recipe(chosen["recipe"])
    asked = chosen | {"model": {"path": str(model.resolve())}} if model else chosen
    folder = out or default_folder("audit", data, net or "plain", seed, asked)
    network = {"name": net} | chosen["net"] if net else None
    with redirect_stdout(sys.stderr):
        found = audit(
            {"name": data} | chosen["data"], model, folder, budget, fix, network, chosen["recipe"] or None, seed,
            device, data_root, command=shlex.join(["spurless", *sys.argv[1:]]),
            settings=tuple(pair for pair in set_ or [] if pair.startswith("data.")), quick=quick,
        )  # fmt: skip
    if as_json:
        print_json(json.loads(found.to_json()))
    else:
        show(found)
        typer.echo(f"Report: {folder / REPORT}    for machines: {folder / FILE}")
    if fail_on is not None and found.verdict in bad[fail_on]:
        raise typer.Exit(4)


@app.command()
@mistakes_in_one_line
def report(
    paths: Annotated[list[Path], typer.Argument(help="Runs, audits, JSON files with results, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
) -> None:
    """Write one self-contained HTML page on runs, audits, sweeps or reproductions."""
    from spurless.report import write_any

    typer.echo(f"Report: {write_any(paths, out, title)}")


@app.command()
@mistakes_in_one_line
def serve(
    folder: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="0: any free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Only this machine, unless another address is named.")] = "127.0.0.1",
) -> None:
    """List the runs of a folder on a local web page that refreshes while they train. It only reads."""
    from spurless.report.serve import serve

    with serve(folder, host, port) as server:
        name = f"[{host}]" if ":" in host else host
        typer.echo(f"Serving {folder} at http://{name}:{server.server_address[1]}/ (Ctrl-C ends it)")
        server.serve_forever()


@app.command()
@mistakes_in_one_line
def card(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    out: Annotated[Path | None, typer.Option(help="Write it there instead of printing it.")] = None,
) -> None:
    """Write a model card in Markdown, as the Hugging Face Hub reads it, with the results by group."""
    from spurless.core.files import atomic
    from spurless.report.card import card

    text = card(run)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic(out) as part:
        part.write_text(text, encoding="utf-8", errors="replace")
    typer.echo(f"Model card: {out}")


@app.command()
@mistakes_in_one_line
def export(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a weights file.")],
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/export-NAME.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="plain, torch or onnx; may be repeated. Default: all.")
    ] = None,
    cut: Annotated[bool, typer.Option("--cut/--no-cut", help="Remove dead channels for good.")] = True,
    as_json: Json = False,
) -> None:
    """Write a network as files that need nothing of Spurless, without its dead channels, and measure it."""
    from spurless.compress.export import FORMATS, export, lines

    with redirect_stdout(sys.stderr):
        found = export(model, out, formats or FORMATS, cut)
    if as_json:
        print_json(found)
        return
    typer.echo("\n".join([*lines(found), f"Saved in {found['folder']}"]))


@app.command()
@mistakes_in_one_line
def prune(
    run: Annotated[Path, typer.Argument(help="A finished run's folder. It is not changed.")],
    keep: Annotated[list[float] | None, typer.Option(help="Share that stays; may be repeated. Default: 0.3.")] = None,
    how: Annotated[str, typer.Option(help="magnitude, avp, random or dcwp.")] = "magnitude",
    structured: Annotated[
        bool, typer.Option("--structured", help="Remove whole channels, not single weights.")
    ] = False,
    finetune: Annotated[float, typer.Option(help="Train on: a share of the recipe's length.", min=0)] = 0.0,
    objective: Annotated[str, typer.Option(help="own: train on as the run was trained; plain: cross entropy.")] = "own",
    batchnorm: Annotated[str, typer.Option(help="Its statistics: kept, or recomputed from training rows.")] = "kept",
    seed: Annotated[int | None, typer.Option(help="Decides everything that is random. Default: the run's.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/prune-NAME-HOW-...")] = None,
    set_: Set = None,
    device: Device = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Prune a trained run to one or more sizes, score each, and draw accuracy against size."""
    from spurless.compress.prune import prune, table

    chosen = gather(set_ or [], ("method", "recipe"))
    with redirect_stdout(sys.stderr):
        found = prune(
            run, keep or [0.3], how, structured, finetune, out, None, None, seed, device, data_root, chosen, objective,
            batchnorm,
        )  # fmt: skip
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    Console().print(table(found))
    typer.echo(f"Saved in {found['folder']}; the curve: curve.png")


@app.command("list")
@mistakes_in_one_line
def list_(
    what: Annotated[str, typer.Argument(help="methods, datasets, nets or recipes.")], as_json: Json = False
) -> None:
    """List what there is."""
    from spurless.data.sets import DATASETS
    from spurless.methods import METHODS
    from spurless.nets import NETS

    lists: dict[str, dict[str, Any]] = {
        "methods": {name: entry.what for name, entry in METHODS.items()},
        "datasets": DATASETS | {"folder:PATH": "your own images", "csv:FILE": "your own table"},
        "nets": NETS,
        "recipes": recipes_in_words() if what == "recipes" else {},
    }
    if what not in lists:
        raise unknown("list", what, lists)
    if as_json:
        rows: list[dict[str, Any]] = [{"name": name, "what": text} for name, text in lists[what].items()]
        if what == "methods":
            rows = [row | {"bias_labels": METHODS[row["name"]].labels} for row in rows]
        sys.stdout.write(json.dumps({what: rows}) + "\n")  # print_json would import torch
        return
    width = max(map(len, lists[what]))
    for name, text in lists[what].items():
        typer.echo(f"{name:{width}}  {text}")


@data_app.command("describe")
@mistakes_in_one_line
def describe_data(
    data: Annotated[str, typer.Argument(help="A data set, folder:PATH or csv:FILE.")],
    set_: Set = None,
    sheet: Annotated[Path | None, typer.Option(help="Where the contact sheet goes. Default: NAME.png here.")] = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Splits, groups, how far each attribute predicts the label, and a sheet of aligned and conflicting samples."""
    from spurless.data.describe import contact_sheet, describe, sheet_name, text
    from spurless.registry import load_data

    if sheet and sheet.is_dir():
        raise UserError(f"--sheet {sheet} is a folder; name a PNG file.")
    chosen = gather(set_ or [], ("data",))["data"]
    with redirect_stdout(sys.stderr):
        bundle = load_data(chosen | {"name": data}, root=data_root)
        description = describe(bundle)
        written = contact_sheet(bundle, sheet or sheet_name(bundle))
    description["contact_sheet"] = str(written) if written else None
    if as_json:
        print_json(description)
        return
    from rich.console import Console

    Console().print(text(description))
    if written:
        typer.echo(f"Contact sheet: {written}")


@data_app.command("download")
@mistakes_in_one_line
def download_data(
    name: Annotated[str, typer.Argument(help="A data set.")],
    data_root: Root = None,
) -> None:
    """Fetch a data set that has a public source, checked by checksum; for the others, say what to put where."""
    from spurless.core.files import data_root as find_root
    from spurless.data.sources import download

    typer.echo(download(name, find_root(data_root)))


def from_config(config: Path, names: dict[str, str | None]) -> tuple[dict[str, dict[str, Any]], int]:
    """Settings by section from a TOML file, and the seed. What belongs to another method, data set, network or recipe
    than the one named on the command line is left out, and that is said."""
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
            log.warning(f"{config}: [{section}] is not that of {asked}, and is left out.")
        else:
            chosen[section] = {k: v for k, v in table.items() if k not in ("fingerprint", "source")}
    return chosen, seed


def last_checkpoint(folder: RunFolder, history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The place from which a run goes on, which a kill leaves behind the last epoch of its history."""
    found = folder.checkpoint()
    if found is None:
        return None
    index, facts, done = found
    own = [row for row in history if row["stage_index"] == index]  # none while its first epoch lasts
    epoch = facts.get("epoch", 0) if not done else own[-1]["epoch"] if own else 0
    return {"stage": own[0]["stage"] if own else None, "stage_index": index, "stage_done": done, "epoch": epoch}


def how_to_go_on(checkpoint: dict[str, Any] | None) -> str:
    if checkpoint is None:
        return "There is no checkpoint yet: the same train command begins at the start."
    stage = f"stage '{checkpoint['stage']}'" if checkpoint["stage"] else f"stage {checkpoint['stage_index'] + 1}"
    at = f"the end of {stage}" if checkpoint["stage_done"] else f"epoch {checkpoint['epoch']} of {stage}"
    return f"The same train command goes on from the last checkpoint, at {at}."


def recipes_in_words() -> dict[str, str]:
    """Each named recipe by what is not as in the default one."""
    from dataclasses import asdict

    from spurless.core.recipe import RECIPES

    usual = asdict(RECIPES["default"])
    words = {
        n: [f"{k} {v}" for k, v in asdict(r).items() if v != usual[k] or k in "optimizer lr".split()]
        for n, r in RECIPES.items()
    }
    return {name: ", ".join(parts) for name, parts in words.items()}


def default_folder(method: str, data: str, net: str, seed: int, chosen: dict[str, dict[str, Any]]) -> Path:
    """runs/METHOD-DATA-NET-seedN, with a short hash when settings were given, so that each has a folder of its own."""
    given = {s: {k: v for k, v in table.items() if k != "name" or s == "recipe"} for s, table in chosen.items()}
    given = {s: table for s, table in given.items() if table}
    if ":" in data:
        given["place"] = {"path": str(Path(data.partition(":")[2]).resolve())}
    return output.default_folder(method, data, net, f"seed{seed}", given=given)


def watcher(method: Any, tensorboard: Path | None) -> Any:
    if tensorboard is None:
        return None  # the usual bar
    from spurless.train.tracking import TensorBoard

    return TensorBoard(method, tensorboard)


def show_result(row: dict[str, Any]) -> None:
    from rich.console import Console

    from spurless.report.tables import comparison

    console = Console()
    facts = [f"{row['data']}: {row.get('status')}"]
    if row.get("scores"):
        console.print(comparison([row]))  # with the notes
        facts = [f"{row['data']}, n = {row.get('n')}"]
        if row.get("split"):  # of evaluate
            facts[0] += ", all rows" if row["split"] == "all" else f", split {row['split']}"
        if row.get("scored_on", "test") != "test":
            facts.append(f"scored on the split {row['scored_on']}: there is no test split")
        if row.get("selection"):
            facts.append(f"weights picked by: {row['selection']}; bias labels used: {row['labels_used']}")
    elif row.get("error"):
        facts.append(row["error"])
    if row.get("folder"):
        facts.append(f"saved in {row['folder']}")
    for fact in facts:
        console.print(fact, markup=False, highlight=False)


cli_bench.add(app)
cli_sweep.add(app)


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that the terminal's encoding lacks
    app()


if __name__ == "__main__":
    main()

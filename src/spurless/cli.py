"""The command line: thin. Settings come from the fields of methods, recipes, data sets and networks."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from spurless.errors import UserError, unknown

app = typer.Typer(
    help="Find, measure and remove spurious correlations from classifiers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Look at data sets, and get them.", no_args_is_help=True)
app.add_typer(data_app, name="data")

SECTIONS = ("method", "data", "net", "recipe")
DEMO = ("erm", "pgd", "lff")  # as they are there

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output and nothing else there.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: a GPU if there is one.")]
Root = Annotated[str | None, typer.Option(help="Where data sets lie. Default: SPURLESS_DATA, else the user's cache.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="method.q=0.9, data.rho=0.005, recipe.epochs=5 ..."),
]


def mistakes_in_one_line(command: Callable) -> Callable:
    """A user's mistake ends in one or two sentences and exit code 2, Ctrl-C in one line and 130; never a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except UserError as error:
            typer.secho(f"Error: {error}", fg="red", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            typer.echo(f"Stopped. {stop}".rstrip(), err=True)
            raise typer.Exit(130) from None

    return wrapped


@app.command()
@mistakes_in_one_line
def train(
    method: Annotated[str, typer.Argument(help="A method: see `spurless list methods`.")],
    data: Annotated[str, typer.Argument(help="A data set: see `spurless list datasets`; or folder:PATH, csv:FILE.")],
    net: Annotated[str | None, typer.Option(help="A network: see `spurless list nets`.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A named recipe, such as pgd-cmnist.")] = None,
    seed: Annotated[int, typer.Option(help="Decides everything that is random.")] = 0,
    device: Device = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; --set goes before it.")] = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. Default: runs/METHOD-DATA-NET-seedN.")] = None,
    data_root: Root = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Also log the epochs to this folder (tensorboardX).")] = None,
    as_json: Json = False,
) -> None:
    """Train a method on a data set, and score it by group. The same command again goes on, or shows the result."""
    chosen = gather(config, set_ or [])
    chosen["method"]["name"], chosen["data"]["name"] = method, data
    if net:
        chosen["net"]["name"] = net
    if recipe:
        chosen["recipe"]["name"] = recipe
    from spurless.engine import fit
    from spurless.registry import load_data, make_method

    made = make_method(chosen["method"])  # before the data: a mistake here should not have to wait for it
    bundle = load_data(chosen["data"], root=data_root)
    network = {"name": bundle.net} | chosen["net"]
    folder = out or default_folder(method, data, network["name"], seed, chosen)
    result = fit(
        made, bundle, network, chosen["recipe"], seed, folder, device, progress=watcher(made, as_json, tensorboard)
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
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    set_: Set = None,
    device: Device = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Score a trained model on a data set, by group."""
    from spurless.engine import evaluate, load_classifier, load_run
    from spurless.nets import build
    from spurless.registry import load_data

    chosen = gather(None, set_ or [])
    bundle = load_data(chosen["data"] | {"name": data}, root=data_root)
    if not model.exists():
        raise UserError(f"{model} is neither a run's folder nor a weights file.")
    if net:
        classifier = build(chosen["net"] | {"name": net, "weights": str(model)}, bundle.shape, len(bundle.classes))
    else:
        loaded = load_run(model, device=device).classifier if model.is_dir() else load_classifier(model, device=device)
        if loaded is None:
            raise UserError(f"The run in {model} diverged: there is no classifier.")
        classifier = loaded
    scores = evaluate(classifier, bundle, split, device)
    row = {"model": str(model), "data": bundle.name, "split": split, "n": len(bundle.splits[split]), "scores": scores}
    if as_json:
        print_json(row)
    else:
        show_result(row | {"method": str(model), "seconds": None, "labels_used": None})


@app.command()
@mistakes_in_one_line
def show(run: Annotated[Path, typer.Argument(help="A run's folder.")], as_json: Json = False) -> None:
    """Show a run: its scores if it is finished, the place it has reached if not."""
    from spurless.folder import SETTINGS, RunFolder, read_toml

    folder = RunFolder(run)
    if not (run / SETTINGS).exists():
        raise UserError(f"{run} holds no run (no {SETTINGS}).")
    row = folder.result()
    if row is None:
        settings, history = read_toml(run / SETTINGS), folder.history()
        row = {"status": "unfinished", "method": settings["method"]["name"], "data": settings["data"]["name"]}
        row |= {"settings": settings, "last_epoch": history[-1] if history else None, "folder": str(run)}
    row.pop("history", None)
    if as_json:
        print_json(row)
    elif row["status"] == "unfinished":
        where = row["last_epoch"]
        at = f"stage '{where['stage']}', epoch {where['epoch']}, loss {where['loss']:.4g}" if where else "the start"
        typer.echo(f"{row['method']} on {row['data']}: unfinished, at {at}. The same train command goes on from there.")
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
    from spurless.demo import run_demo

    run_demo(out, seed, device)


@app.command("list")
@mistakes_in_one_line
def list_(
    what: Annotated[str, typer.Argument(help="methods, datasets, nets or recipes.")], as_json: Json = False
) -> None:
    """List what there is."""
    from spurless.datasets import DATASETS
    from spurless.methods import METHODS
    from spurless.nets import NETS

    lists: dict[str, dict[str, Any]] = {
        "methods": {name: entry.what for name, entry in METHODS.items()},
        "datasets": DATASETS | {"folder:PATH": "your own images", "csv:FILE": "your own table"},
        "nets": NETS,
    }
    if what not in lists:
        raise unknown("list", what, lists)
    if as_json:
        rows: list[dict[str, Any]] = [{"name": name, "what": text} for name, text in lists[what].items()]
        if what == "methods":
            rows = [row | {"bias_labels": METHODS[row["name"]].labels} for row in rows]
        print_json({what: rows})
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
    from spurless.describe import contact_sheet, describe, text
    from spurless.registry import load_data

    bundle = load_data(gather(None, set_ or [])["data"] | {"name": data}, root=data_root)
    description = describe(bundle)
    path = sheet or Path(f"{''.join(c if c.isalnum() or c in '-_' else '-' for c in bundle.name)}.png")
    written = contact_sheet(bundle, path)
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
    from spurless.datasets.sources import download
    from spurless.paths import data_root as find_root

    typer.echo(download(name, find_root(data_root)))


def gather(config: Path | None, pairs: list[str]) -> dict[str, dict[str, Any]]:
    """Settings by section, from a TOML file and from KEY=VALUE pairs, which win."""
    chosen: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    if config:
        from spurless.folder import read_toml

        for section, table in read_toml(config).items():
            if section in ("seed", "spurless"):
                continue  # a run's settings.toml is a valid config; these come from the command line
            if section not in SECTIONS or not isinstance(table, dict):
                raise UserError(f"{config}: '{section}' is not a section; the sections are [{'], ['.join(SECTIONS)}].")
            chosen[section] |= {k: v for k, v in table.items() if k not in ("fingerprint", "source")}
    for pair in pairs:
        key, found, value = pair.partition("=")
        section, dot, name = key.partition(".")
        if not found or not dot or not name:
            raise UserError(f"--set {pair} is not of the form section.name=value, such as recipe.epochs=5.")
        if section not in SECTIONS:
            raise unknown("section", section, SECTIONS)
        chosen[section][name] = value
    return chosen


def default_folder(method: str, data: str, net: str, seed: int, chosen: dict[str, dict[str, Any]]) -> Path:
    """runs/METHOD-DATA-NET-seedN, with a short hash when settings were given, so that each has a folder of its own."""
    safe = ["".join(c if c.isalnum() or c in "_." else "-" for c in Path(part).name) for part in (method, data, net)]
    given = {s: {k: v for k, v in table.items() if k != "name" or s == "recipe"} for s, table in chosen.items()}
    given = {s: table for s, table in given.items() if table}
    if ":" in data:
        given["place"] = {"path": str(Path(data.partition(":")[2]).resolve())}
    tail = "-" + hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8] if given else ""
    return Path("runs") / f"{'-'.join(safe)}-seed{seed}{tail}"


def watcher(method: Any, quiet: bool, tensorboard: Path | None) -> Any:
    if tensorboard is None:
        return None
    from spurless.tracking import TensorBoard

    return TensorBoard(method, tensorboard)


def print_json(row: Any) -> None:
    from spurless.folder import finite

    sys.stdout.write(json.dumps(finite(row), ensure_ascii=False, allow_nan=False) + "\n")


def show_result(row: dict[str, Any]) -> None:
    from rich.console import Console

    from spurless.tables import comparison

    console = Console()
    if row.get("scores"):
        console.print(comparison([row]))
    facts = [f"{row['data']}, n = {row.get('n')}"]
    if row.get("selection"):
        facts.append(f"weights picked by: {row['selection']}; bias labels used: {row['labels_used']}")
    facts += [str(note) for note in row.get("notes") or []]
    if row.get("folder"):
        facts.append(f"saved in {row['folder']}")
    for fact in facts:
        console.print(fact, markup=False, highlight=False)


def main() -> None:
    app()


if __name__ == "__main__":
    main()

"""run_sweep(): train a network at each value of a setting, with several seeds, and say what the setting does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from spurless.bench import Trial, run_trials
from spurless.bench.board import Board
from spurless.bench.executors.base import Options
from spurless.bench.points import DROP, Point, number, points_of, ranges
from spurless.bench.remarks import days
from spurless.bench.run import check_place
from spurless.bench.trials import digest
from spurless.core import output
from spurless.core.errors import UserError
from spurless.core.files import atomic, finite
from spurless.registry import name_and_settings
from spurless.report import tables
from spurless.sweep.axes import Axis, make_axis
from spurless.sweep.choice import Choice, choose, compare, in_words, the_rule
from spurless.sweep.forecast import log_forecast
from spurless.sweep.result import Sweep

AFTER = "spurless.sweep.measures:measures"
FILE, PLOT, REPORT = "sweep.json", "sweep.png", "report.html"
Spec = str | Mapping[str, Any] | None


class SweepOptions(Options, total=False):
    """How a sweep is run; none of it decides what comes out."""

    command: str | None  # as it was given, to be kept beside the results
    dynamics: Mapping[str, Any] | bool | None


def run_sweep(
    data: str | Mapping[str, Any],
    over: str | Sequence[str],
    values: Sequence[Any],
    net: Spec = None,
    method: str | Mapping[str, Any] = "erm",
    recipe: Spec = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path | None = None,
    **options: Unpack[SweepOptions],
) -> Sweep:
    """Sweep over one setting, or over several in turn (then `over` and `values` are lists of the same length).

    Returns what is saved as sweep.json in `out`, beside the plot and the report. Each run is a folder below `out`; what
    is there already is not trained again. How long it will take is logged before, and each run as it ends. With
    `dynamics` the steps of every run are watched (see fit), and the sweep
    says how unbiased accuracy goes with the largest share of a batch's loss of conflicting samples (figure 12).
    """
    base = base_of(data, method, net, recipe)
    axes = make_axes(over, values, base["method"]["name"])
    for axis in axes:
        if axis.setting.startswith("net.") and not base["net"]:
            raise UserError(f"--over {axis.name} needs --net, which says whose setting it is.")
    seeds_used = seed_list(seeds)
    folder = default_folder("sweep", base, [axis.title for axis in axes]) if out is None else Path(out)
    trials = [trial_at(axis, base, value, seed) for axis in axes for value in axis.values for seed in seeds_used]
    check(trials, folder)
    how = cast(Options, {k: v for k, v in options.items() if k in Options.__annotations__})
    log_forecast(trials, folder, how)
    rows = run_trials(trials, folder, after=AFTER, dynamics=options.get("dynamics"), watch=Board(), **how)
    left, series = iter(rows), []
    for axis in axes:
        own = [[next(left) for _ in seeds_used] for _ in axis.values]
        series.append((axis, points_of(axis, own)))
    content = summary(series, rows) | {"seeds": seeds_used, "command": options.get("command")}
    save(content, series, folder)
    return Sweep(content | {"folder": str(folder)}, series)


def make_axes(over: str | Sequence[str], values: Sequence[Any], method: str) -> list[Axis]:
    """One axis, or several; each name with its list of values."""
    if isinstance(over, str):
        return [make_axis(over, values, method)]
    if len(over) != len(values):
        raise UserError(f"--over is given {len(over)} times, --values {len(values)} times; each setting needs its own.")
    axes = [make_axis(name, own, method) for name, own in zip(over, values, strict=True)]
    titles = [axis.title for axis in axes]
    if len(set(titles)) < len(titles):
        raise UserError("A setting is named twice; name it once, with all its values.")
    return axes


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """The seeds, where only how many were given, too.

    >>> seed_list(3), seed_list([7])
    ([0, 1, 2], [7])
    """
    listed = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise UserError(f"seeds = {seeds!r} is not allowed; it takes how many, or a list without repeats.")
    return listed


def base_of(data: Spec, method: Spec, net: Spec, recipe: Spec) -> dict[str, dict[str, Any]]:
    """What all runs start from, by section. Data and method have no default, so that they need a name."""
    base = {"data": named(data), "method": named(method), "net": named(net), "recipe": named(recipe)}
    for section in ("data", "method"):
        name_and_settings(base[section], section)  # or it says what is missing
    return base


def named(spec: Spec) -> dict[str, Any]:
    """{"name": ...} from a name or a table; empty where there is none."""
    if spec is not None and not isinstance(spec, (str, Mapping)):
        raise UserError(
            f"A sweep takes names and tables of settings, from which runs are made; not {type(spec).__name__}."
        )
    return {} if spec is None else {"name": spec} if isinstance(spec, str) else dict(spec)


def default_folder(what: str, base: Mapping[str, Mapping[str, Any]], over: Sequence[str]) -> Path:
    """runs/WHAT-DATA-NET-HASH. Values and seeds are not in the hash: more of them go into the same folder."""
    names = base["data"]["name"], base["net"].get("name", "")
    return output.default_folder(what, *names, digest([base, list(over)])[:8])


def trial_at(axis: Axis, base: Mapping[str, Mapping[str, Any]], value: Any, seed: int) -> Trial:
    settings = axis.settings(base, value)
    labels = {"over": axis.title, "value": str(value)}
    return Trial(settings["data"], settings["method"], settings["net"] or None, settings["recipe"], seed, labels)


def check(trials: Sequence[Trial], folder: Path) -> None:
    """Refuse a folder of something else, and wrong settings before there is a folder.

    One that is there knows the keys of its trials, which run_trials looks up: that is faster than to check them again.
    """
    if folder.exists():
        check_place(folder)
    else:
        for trial in trials:
            _ = trial.key


def summary(series: Sequence[tuple[Axis, list[Point]]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that a sweep says, as it is saved: in the form that the report reads."""
    chosen = [(axis, choose(points, axis.towards)) for axis, points in series]
    parts = [_part(axis, points, choice) for (axis, choice), (_, points) in zip(chosen, series, strict=True)]
    first = rows[0]
    many = len(parts) > 1
    rule = the_rule(chosen)
    text = [*(axis_part["text"] for axis_part in parts), *([compare(chosen)] if many else []), rule]
    what = ", ".join(axis.title for axis, _ in series) if len(series) < 4 else f"{len(series)} settings"
    content: dict[str, Any] = {
        "title": f"{what} on {first['data']}, {first['net']}, {first['method']}",
        "over": "setting" if many else parts[0]["over"],
        "text": "\n\n".join(filter(None, text)),
        "rule": rule,
        "drop": DROP,
        "labels_used": first.get("labels_used"),
        "date": days(rows),  # of the runs, which may have been there before
        "settings": common([row.get("settings") or {} for row in rows]),
        "versions": first.get("versions") or {},
        "machine": first.get("machine"),
        "notes": tables.notes(rows),
    }
    if (together := watched(_runs_in_range(series))) is not None:
        content["watched"] = together
        content["text"] += f"\n\n{watched_in_words(together)}"
    return content | ({"series": parts} if many else {k: v for k, v in parts[0].items() if k not in ("name", "text")})


def _part(axis: Axis, points: Sequence[Point], choice: Choice | None) -> dict[str, Any]:
    return {
        "name": axis.title,
        "over": axis.name,
        "points": [point.row(axis.name) for point in points],
        "choice": None if choice is None else choice._asdict(),
        "ranges": ranges(points),
        "text": in_words(axis, points, choice),
    }


def _runs_in_range(series: Sequence[tuple[Axis, list[Point]]]) -> list[dict[str, Any]]:
    return [run for _, points in series for point in points if point.in_range for run in point.runs]


def watched(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """How unbiased accuracy goes with the largest conflicting loss share, over watched runs in range (figure 12).

    A run that is in several sweeps counts once. None where no run was watched.

    >>> runs = [{"key": k, "unbiased": u, "largest_share": s} for k, u, s in (("a", 50.0, 0.2), ("b", 70.0, 0.9))]
    >>> found = watched([*runs, runs[0], {"key": "c", "unbiased": 60.0}])
    >>> found["n"], found["pearson"]
    (2, 1.0)
    """
    runs_by_key = list({run["key"]: run for run in runs if number(run.get("largest_share")) is not None}.values())
    if not runs_by_key:
        return None
    from spurless.sweep.over_runs import correlation

    names = ("largest_share", "largest_share_smooth", "unbiased", "seed", "key")
    points = [{k: run.get(k) for k in names} for run in runs_by_key]
    smooth = correlation(points, "largest_share_smooth")._asdict()  # single batches are noisy
    return correlation(points)._asdict() | {"smooth": smooth, "points": points}


def watched_in_words(share: Mapping[str, Any]) -> str:
    """The correlation in a sentence, with what it rests on."""
    if number(share["pearson"]) is None:
        return (
            "How unbiased accuracy goes with the largest share of a batch's loss that conflicting samples made up "
            f"cannot be said from {share['n']} watched runs."
        )
    few = share["n"] < 4
    limits = "too few for limits" if few else f"95 % limits {share['low']:.2f} to {share['high']:.2f}"
    return (
        "Unbiased accuracy and the largest share of a batch's loss that conflicting samples made up: correlation "
        f"{share['pearson']:.2f} ({limits}; by rank {share['spearman']:.2f}) over the {share['n']} runs in range."
    )


def common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all runs share.

    >>> common([{"recipe": {"lr": 0.1, "epochs": 3}}, {"recipe": {"lr": 0.2, "epochs": 3}}])
    {'recipe': {'epochs': 3}}
    """
    shared: dict[str, Any] = {}
    for key, value in settings[0].items():
        others = [s.get(key) for s in settings[1:]]
        if isinstance(value, Mapping) and all(isinstance(o, Mapping) for o in others):
            shared[key] = common([value, *others])  # type: ignore[list-item]
        elif all(o == value for o in others):
            shared[key] = value
    return shared


def save(content: Mapping[str, Any], series: Sequence[tuple[Axis, list[Point]]], folder: Path) -> None:
    """sweep.json, the plot, and the report."""
    from spurless.report import write_any
    from spurless.sweep.plot import NOTHING, draw

    with atomic(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(finite(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    parts = content.get("series") or [content]
    chosen = [unfinished["choice"]["value"] if unfinished["choice"] else NOTHING for unfinished in parts]
    draw(series, folder / PLOT, str(content["title"]), chosen)
    write_any([folder / FILE], folder / REPORT)

"""Kills, signals and full disks at random moments: whatever is resumed ends with the same bits.

    python -m tests.robust.soak [--kills 200] [--seed 0] [--workers 2] [--out FOLDER] [--only NAME ...]

Each trial takes a scenario (a method on the toy data, a bench, one with two processes, two benches on one folder, a
sweep, an audit with repairs, a bench on a Ray cluster), interrupts it one to three times, runs the command again until
it ends well, and compares every file with those of an undisturbed run: weights bit by bit, numbers exactly, no file
too few or too many. Times alone are left out. Where every moment came too late, it is repeated with earlier ones. Rows
lie in FOLDER/rows.jsonl: the same command again does what is missing. SOAK_KILLS, SOAK_SEED and SOAK_WORKERS set the
defaults.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from spurless.core.digests import tensor_digest
from spurless.core.tensor_files import load_tensors
from spurless.methods import METHODS
from tests.support.quick import QUICK

SPEC = """seeds = [0, 1]
[[block]]
label = "b"
data = {name = "toy", n = 200}
net = "mlp"
recipe = {epochs = 6}
[[block.row]]
label = "erm"
method = {name = "erm"}
[[block.row]]
label = "pgd"
method = {name = "pgd"}
[[block.row]]
label = "jtt"
method = {name = "jtt", lambda_up = 2}
"""
TIMES = {"bench": 5, "processes": 3, "pair": 3, "sweep": 3, "audit": 1, "ray": 2}  # for each time that a method comes
CUTS = ("kill", "kill", "kill", "kill the parent", "SIGTERM", "SIGHUP", "SIGINT", "full disk", "file limit")
VOLATILE = {"seconds", "wall_seconds", "date", "resumed", "processes", "commit", "folder"}
STOPPED = {0, 2, 3}  # a full disk is an error; of a bench, rows that failed
LONGEST = 300  # seconds after which a process hangs
BEGINS = 0.1  # seconds in which a process may not have reached the command
OFTEN = 0.05  # seconds between two checkpoints of a stage, so that some lie between two cuts
DISK = 64 * 2**20  # bytes of a trial's own disk, where one can be made
CONTEXT = multiprocessing.get_context("forkserver")
alone: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # "ray": two trials would share its workers


class Failed(Exception):
    """A trial did not end as an undisturbed run does."""


# What is interrupted


def commands(scenario: str, address: str) -> list[list[str]]:
    """The command lines of a scenario; two of them run at the same time."""
    toy = ["toy", "--device", "cpu", "--out", "out", "--set", "data.n=200"]
    bench = ["bench", "../spec.toml", "--device", "cpu", "--out", "out"]
    if scenario in METHODS:
        known = {f"method.{key}": value for key, value in QUICK.get(scenario, {}).items()}
        known |= {"recipe.epochs": 12, "recipe.batch_size": 32}
        settings = [part for key, value in known.items() for part in ("--set", f"{key}={value}")]
        return [["train", scenario, *toy, "--net", "mlp", *settings]]
    return {
        "bench": [[*bench, "--workers", "1"]],
        "processes": [[*bench, "--workers", "2"]],
        "pair": [[*bench, "--workers", "1"]] * 2,
        "ray": [[*bench, "--on", "ray", "--address", address]],
        "sweep": [["sweep", *toy, "--method", "lff", "--over", "lr", "--values", "0.01,0.1", "--workers", "1"]],
        "audit": [["audit", *toy, "--fix", "--budget", "60"]],
    }[scenario]


def work(args: list[str], folder: Path, limit: int | None) -> None:
    """In a process of its own: the command, as the shell runs it, and the process says when it begins."""
    from spurless.cli.main import main
    from spurless.train.session import RunArguments

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command begins, it is this process that would say it
    os.setsid()
    log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    RunArguments.__init__.__kwdefaults__["checkpoint_seconds"] = OFTEN
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["spurless", *args]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def start(scenario: str, folder: Path, address: str, limit: int | None = None) -> list[Any]:
    running = [CONTEXT.Process(target=work, args=(args, folder, limit)) for args in commands(scenario, address)]
    for process in running:
        process.start()
    return running


def codes(running: list[Any], folder: Path, expected: set[int]) -> list[int]:
    """How the processes ended, which must be one of the ways that are expected."""
    until = time.monotonic() + LONGEST
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
    hanging = [process for process in running if process.exitcode is None]
    for process in hanging:
        os.killpg(process.pid, signal.SIGKILL)
    said = Path(f"{folder}.log").read_text(errors="replace")
    found = [process.exitcode for process in running]
    if hanging:
        raise Failed(f"hang: {said[-1500:]}")
    if "Traceback" in said or not expected.issuperset(found):
        raise Failed(f"exit codes {found}, not of {sorted(expected)}: {said[-1500:]}")
    return found


# How it is interrupted


def cut(kind: str, scenario: str, folder: Path, address: str, moment: float, dice: random.Random) -> bool:
    """Start it and interrupt it; whether it was hit before it ended."""
    if kind == "full disk" and (folder / "disk").exists():
        with full(folder, dice.choice([4, 8, 16, 32, 64, 128]) * 1024):
            found = codes(start(scenario, folder, address), folder, STOPPED)
        return any(found)
    if kind in ("full disk", "file limit"):
        limit = dice.choice([0, 100, 1000, 3000, 8000, 20_000, 50_000])
        # The log is under the limit, too: where nothing more can be printed, Python itself ends with 1.
        return any(codes(start(scenario, folder, address, limit), folder, STOPPED | {1}))
    running = start(scenario, folder, address)
    victim = running[0]
    if kind == "kill a worker":
        hit = kill_worker(victim)
        codes(running, folder, {0})
        return hit
    victim.join(moment)
    hit = victim.exitcode is None
    sign = signal.Signals[kind] if kind.startswith("SIG") else signal.SIGKILL
    group = kind == "kill" or (sign != signal.SIGKILL and dice.random() < 0.5)
    if hit:
        with suppress(ProcessLookupError):  # it has no group yet, or has just ended
            (os.killpg if group else os.kill)(victim.pid, sign)
    # A signal in the first moments comes before the command takes care of it, or while Ray does.
    # Until the process runs its target, it is multiprocessing that ends it, with 1.
    early = {-sign, 1} if scenario == "ray" or (sign == signal.SIGINT and moment < BEGINS) else {-sign}
    found = codes(running, folder, {0, -sign} if sign == signal.SIGKILL else {0, 130} | early)
    return hit and found[0] != 0


@contextmanager
def full(folder: Path, left: int) -> Iterator[None]:
    """The trial's disk is full but for some bytes."""
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(folder).free - left))
    try:
        yield
    finally:
        ballast.unlink()


def kill_worker(driver: Any) -> bool:
    """Kill a Ray worker that trains."""
    while driver.exitcode is None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if path.read_bytes().startswith(b"ray::spurless "):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    return True
        time.sleep(0.02)
    return False


# Folders


def fresh(folder: Path) -> None:
    """An empty folder, on a small disk of its own where this user may make one."""
    clear(folder)
    folder.mkdir()
    Path(f"{folder}.log").touch()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        (folder / "disk").touch()


def clear(folder: Path) -> None:
    if (folder / "disk").exists():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    Path(f"{folder}.log").unlink(missing_ok=True)


def contents(folder: Path) -> dict[str, Any]:
    """What every file of a folder holds, but for times; of pictures and pages only that they are there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name.endswith((".lock", ".training", ".token")):  # locks are empty, and tokens random
            continue
        if path.suffix == ".json":
            found[name] = timeless(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            rows = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
            # The rows of a bench come in the order in which its trials end.
            found[name] = sorted(rows, key=json.dumps) if name == "rows.jsonl" else rows
        elif path.suffix == ".safetensors":  # not its bytes: the order of what it says of itself is not fixed
            tensors, facts = load_tensors(path)
            found[name] = {"facts": timeless(facts)} | {k: tensor_digest(t).hex() for k, t in tensors.items()}
        else:
            kept = path.suffix not in (".html", ".png")
            found[name] = sha256(path.read_bytes()).hexdigest() if kept else "there"
    return found


def without_shelf(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Shared stages are a cache: one that a kill kept from being written is trained again by whoever wants it."""
    return {name: entry for name, entry in expected.items() if name.startswith("stages/")} | found


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(v) for key, v in value.items() if key not in VOLATILE}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def compare(found: Any, expected: Any, where: str = "") -> None:
    """Refuse the first difference, and say where it is."""
    if isinstance(found, dict) and isinstance(expected, dict):
        if found.keys() != expected.keys():
            more, less = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
            raise Failed(f"other bits: {where or 'the folder'} has {more[:9]} and lacks {less[:9]}")
        for key in found:
            compare(found[key], expected[key], f"{where} {key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for i, pair in enumerate(zip(found, expected, strict=True)):
            compare(*pair, f"{where} {i}")
    elif json.dumps(found) != json.dumps(expected):
        raise Failed(f"other bits:{where}: {str(found)[:200]} is not {str(expected)[:200]}")


# Trials


def whole(scenario: str, out: Path, address: str) -> tuple[dict[str, Any], float]:
    """What an undisturbed run leaves, and how long it takes."""
    folder, length = out / f"whole-{scenario}", out / f"whole-{scenario}.seconds"
    with alone[f"whole {scenario}"]:
        if not length.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            Path(f"{folder}.log").touch()
            began = time.monotonic()
            codes(start(scenario, folder, address), folder, {0})
            length.write_text(f"{time.monotonic() - began}")
    return contents(folder / "out"), float(length.read_text())


def trial(index: int, seed: int, scenario: str, out: Path, address: str) -> dict[str, Any]:
    """Interrupt, resume and compare; the row of it."""
    began, folder, hits = time.monotonic(), out / f"trial-{seed}-{index}", []
    dice = random.Random(f"soak {seed} {index}")
    try:
        with alone["ray"] if scenario == "ray" else nullcontext():
            expected, length = whole(scenario, out, address)
            for earlier in range(6):
                fresh(folder)
                planned = dice.choice([1, 2, 3])
                hits.clear()
                for _ in range(planned):
                    kind = dice.choice(CUTS)
                    if scenario == "ray":  # limits would be those of Ray's own processes
                        kind = dice.choice(["kill", "SIGTERM", "SIGINT", "kill a worker"])
                    moment = dice.random() * length / planned / 2**earlier
                    if cut(kind, scenario, folder, address, moment, dice):
                        hits.append(kind)
                codes(start(scenario, folder, address), folder, {0})
                compare(without_shelf(contents(folder / "out"), expected), expected)
                if hits:
                    break
        end = "identical" if hits else "not hit"
        clear(folder)
    except Failed as error:
        end = f"{error}"  # the folder stays, to be looked at
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    took = round(time.monotonic() - began, 1)
    return {"index": index, "seed": seed, "scenario": scenario, "hits": hits, "end": end, "seconds": took}


def order(seed: int, only: list[str]) -> list[str]:
    """Every method and every other scenario, shuffled: trials go round in it."""
    names = [*METHODS, *(name for name, times in TIMES.items() for _ in range(times))]
    chosen = [name for name in names if not only or name in only]
    random.Random(f"order {seed}").shuffle(chosen)
    return chosen


@contextmanager
def cluster(wanted: bool) -> Iterator[str]:
    """The address of a Ray cluster of two processors on this machine."""
    if not wanted:
        yield ""
        return
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: the names of Ray's sockets lie below it
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": place}
    small = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=small)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()
        shutil.rmtree(place, ignore_errors=True)


def soak(kills: int, seed: int, workers: int, out: Path, only: list[str]) -> list[dict[str, Any]]:
    """Trials until that many hits have been made; all rows."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "spec.toml").write_text(SPEC)
    os.environ |= {"SPURLESS_CACHE": str(out / "cache"), "OMP_NUM_THREADS": "1"}
    file = out / "rows.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [row for line in lines if (row := json.loads(line))["seed"] == seed]
    names = order(seed, only)
    CONTEXT.set_forkserver_preload(["spurless.cli.main", "spurless.bench", "spurless.auditing.audit", "torch._dynamo"])
    with cluster("ray" in names) as address, ThreadPoolExecutor(workers) as pool, open(file, "a") as log:

        def one(index: int) -> dict[str, Any]:
            return trial(index, seed, names[index % len(names)], out, address)

        while (missing := kills - sum(len(row["hits"]) for row in rows)) > 0:
            done = {row["index"] for row in rows}
            waiting = [i for i in range(len(done) + missing) if i not in done][: max(1, missing // 2)]
            for row in pool.map(one, waiting):
                rows.append(row)
                log.write(json.dumps(row) + "\n")
                log.flush()
                print(f"{row['index']:4} {row['scenario']:16} {', '.join(row['hits'])}: {row['end']}", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """By scenario: trials, hits, and how many ended with the same bits."""
    kinds = [row["scenario"] if row["scenario"] in TIMES else "train" for row in rows]
    lines = [f"{'scenario':10} {'trials':>6} {'hits':>6} {'identical':>9}"]
    for name in ["train", *TIMES, "all"]:
        own = [row for row, kind in zip(rows, kinds, strict=True) if name in (kind, "all")]
        same = sum(row["end"] == "identical" for row in own)
        lines.append(f"{name:10} {len(own):6} {sum(len(row['hits']) for row in own):6} {same:9}")
    how = Counter(hit for row in rows for hit in row["hits"])
    methods = {row["scenario"] for row in rows} & set(METHODS)
    lines.append(f"{len(methods)} methods; " + ", ".join(f"{n} x {kind}" for kind, n in how.most_common()))
    return "\n".join(lines)


def main() -> None:
    given = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=int(given("SOAK_KILLS", "200")))
    parser.add_argument("--seed", type=int, default=int(given("SOAK_SEED", "0")))
    parser.add_argument("--workers", type=int, default=int(given("SOAK_WORKERS", "2")), help="trials at the same time")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--only", nargs="*", default=[], choices=[*METHODS, *TIMES], metavar="NAME")
    args = parser.parse_args()
    rows = soak(args.kills, args.seed, args.workers, args.out.resolve(), args.only)
    print(table(rows))
    bad = [row for row in rows if row["end"] != "identical"]
    for row in bad:
        print(f"{row['scenario']} (trial {row['index']}, {', '.join(row['hits'])}): {row['end']}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

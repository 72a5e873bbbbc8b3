"""The audit beside other detectors, in one run on the images of the zoo's development half.

    python -m studies.audit.peers --cleanlab PYTHON --deepchecks PYTHON --shortkit PYTHON

Each PYTHON is that of an environment with `cleanlab[image]`, `deepchecks[vision]` or `shortkit-ml`. Of each kind one
draw is taken, with 95 % of the samples agreeing; nothing is known of an attribute. All look at the same files and
labels. Ours is asked twice: with `--quick` (the data alone; "found" is available) and as a whole (found or available
where something is planted; a false alarm is a found or a gap, as in the zoo's own table). shortkit-ml reads the
features of our frozen encoder; the time that these take is counted for ours alone. A peer that is not given is missing.
deepchecks 0.19 needs older packages beside it: numpy<2 scikit-learn<1.6 pandas<2.3 setuptools<80 opencv-python<4.12
opencv-python-headless<4.12 category-encoders<2.7, and torchvision. What has a row in results/audit_peers.jsonl is not
asked again: take the rows of ours out where the audit has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from spurless import Bundle, audit
from studies.audit.jobs import Job, jobs
from studies.audit.tables import rate, shown
from studies.rows import RESULTS, named, put

STRENGTH = 0.95
PEERS = ("cleanlab", "deepchecks", "shortkit")
TITLES = {
    "ours": "`spurless audit`", "quick": "`spurless audit --quick`", "cleanlab": "cleanlab Datalab",
    "deepchecks": "deepchecks", "shortkit": "shortkit-ml",
}  # fmt: skip
ADAPTER = Path(__file__).with_name("peer_adapters.py")
PATIENCE = 900  # seconds for one peer and one set
SAME = {  # what the peers call the properties of our kinds
    "dark": ("brightness",), "light": ("brightness",), "brightness": ("brightness",), "blurry": ("sharpness", "noise"),
    "grayscale": ("colour", "saturation"), "low_information": ("contrast", "background"),
    "odd_aspect_ratio": ("aspect ratio",), "odd_size": ("image size", "file size"), "aspect ratio": ("aspect ratio",),
    "area": ("image size",), "rms contrast": ("contrast",), "mean red relative intensity": ("colour", "red"),
    "mean green relative intensity": ("colour", "green"), "mean blue relative intensity": ("colour", "blue"),
}  # fmt: skip
Row = dict[str, Any]


def image_jobs() -> list[Job]:
    """One draw of each image kind of the development half."""
    every = jobs("develop", 1, 1, 0)
    images = [j for j in every if j.kind and j.kind.domain in ("small", "photo") and j.strength in (STRENGTH, 0.5)]
    return random.Random(1).sample(images, len(images))  # in random order: a run cut short is a sample of all


def written(data: Bundle, folder: Path) -> int:
    """The samples as files (those of the user where there are any, else lossless ones), their labels and what our
    frozen encoder sees of them; how many there are."""
    from PIL import Image

    from spurless.auditing.model import plain_case

    case = plain_case(data, 0, torch.device("cpu"))[0]
    source, samples = data.source.partition(":")[2], case.held
    if samples.names is not None and (Path(source) / str(samples.names[0])).is_file():
        files = [str(Path(source) / str(name)) for name in samples.names]
    else:
        files = [f"{i:05}.png" for i in range(len(samples))]
        pixels = samples[torch.arange(len(samples))].permute(0, 2, 3, 1).numpy()
        for name, x in zip(files, pixels, strict=True):
            Image.fromarray(x[..., 0] if x.shape[2] == 1 else x).save(folder / name)
    (folder / "labels.json").write_text(json.dumps({"files": files, "labels": samples.y.tolist()}))
    np.save(folder / "features.npy", case.features.numpy())
    return len(samples)


def ours(data: Bundle, quick: bool) -> Row:
    started = time.monotonic()
    found = audit(data, quick=quick, progress=False, device="cpu")
    names = [f["name"] for f in found.findings if f["verdict"] in ("found", "available")]
    seconds = round(time.monotonic() - started, 1)
    return {"names": names, "verdict": found.verdict, "seconds": seconds, "version": found.spurless}


def asked(peer: str, python: str, folder: Path) -> Row:
    """What a peer answers, in its own environment."""
    command = [python, str(ADAPTER), peer, str(folder)]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=clean)
        answer: Row = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError) as error:
        why = (
            str(error)
            if isinstance(error, subprocess.TimeoutExpired)
            else "".join(done.stderr.strip().splitlines()[-1:])
        )
        return {"error": why}
    return answer


def judged(job: Job, tool: str, n: int, answer: Row) -> Row:
    """The row of one tool on one set: whether it saw something, and by the right name."""
    kind = job.kind
    assert kind is not None
    row: Row = {"kind": kind.name, "domain": kind.domain, "clean": kind.clean, "n": n, "tool": tool} | answer
    if "error" in answer:
        return row
    told = [name for theirs in answer["names"] for name in SAME.get(str(theirs).lower(), (str(theirs),))]
    row["seen"] = answer.get("verdict") in ("found", "gap") if tool == "ours" and kind.clean else bool(told)
    first = told[:1] if tool in ("ours", "quick") else told
    row["named_right"] = any(name.startswith(right) for name in first for right in kind.names)
    return row


def measured(job: Job, tools: Sequence[str], pythons: dict[str, str], folder: Path) -> list[Row]:
    """The rows of these tools, which all look at one draw."""
    from studies.audit.make import make

    assert job.kind is not None
    data = make(job.kind, job.strength, job.seed, False, folder / "zoo")
    (folder / "peers").mkdir()
    n = written(data, folder / "peers")
    own = {"ours": False, "quick": True}
    answers = {
        tool: ours(data, own[tool]) if tool in own else asked(tool, pythons[tool], folder / "peers") for tool in tools
    }
    return [judged(job, tool, n, answer) for tool, answer in answers.items()]


def table(rows: Sequence[Row]) -> str:
    """What each tool saw of the planted kinds, named right, and said of the clean ones; median seconds of a set."""
    out = ["| | version | seen | named right | false alarm | median seconds |", "| :-- | :-- " + "| --: " * 4 + "|"]
    for tool, title in TITLES.items():
        own = [row for row in rows if row["tool"] == tool]
        good = [row for row in own if "error" not in row]
        if not good:
            out.append(f"| {title} | – | {'not measured' if not own else 'failed'} | – | – | – |")
            continue
        bad, clean = [r for r in good if not r["clean"]], [r for r in good if r["clean"]]
        named = [r["named_right"] for r in bad if r["seen"]]
        cells = [rate([r["seen"] for r in bad]), rate(named), rate([r["seen"] for r in clean])]
        if tool == "shortkit":
            cells[1] = None  # it gives no names
        failed = f" ({len(own) - len(good)} failed)" if len(good) < len(own) else ""
        median = np.median([row["seconds"] for row in good])
        seconds = f"{median:.0f}" if median >= 1 else "< 1"
        out.append(f"| {title}{failed} | {good[0]['version']} | {' | '.join(map(shown, cells))} | {seconds} |")
    return "\n".join(out)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in PEERS:
        ask.add_argument(f"--{peer}", metavar="PYTHON", help="of an environment in which it is installed")
    ask.add_argument("--out", type=Path, default=RESULTS / "audit_peers", help="a table of rows")
    ask.add_argument("--minutes", type=float, default=1e9, help="begin no set after so many")
    given = ask.parse_args()
    pythons = {peer: getattr(given, peer) for peer in PEERS if getattr(given, peer)}
    started, done = time.monotonic(), named(given.out)
    for job in image_jobs():
        assert job.kind is not None
        tools = [tool for tool in ("ours", "quick", *pythons) if f"{job.kind.name}, {tool}" not in done]
        if not tools or time.monotonic() - started > 60 * given.minutes:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows = measured(job, tools, pythons, Path(folder))
        for row in rows:
            put(given.out / f"{row['kind']}, {row['tool']}", row | {"date": time.strftime("%Y-%m-%d")})
        print(job.kind.name, {r["tool"]: r.get("names", "error") for r in rows}, flush=True)
    print(table(list(named(given.out).values())))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

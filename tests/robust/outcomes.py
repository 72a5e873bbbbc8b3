"""One classifier of what a hostile or broken input led to."""

import faulthandler
import hashlib
import io
import json
import os
import signal
import sys
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.core.errors import UserError

FINE, CLEAN, TRACEBACK, HANG, CHANGED = "fine", "clean error", "traceback", "hang", "silent change"
BAD = (TRACEBACK, HANG, CHANGED)
SECONDS = 60  # for one input, on a busy machine


@dataclass(frozen=True)
class Outcome:
    kind: str
    detail: str = ""


class Hung(BaseException):
    """An input took longer than it may."""


@contextmanager
def limit(seconds):
    def stop(*_):
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise Hung

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def command(*args, keep=(), same=None):
    """Run a command and say how it ended.

    `keep` are files that no command may change. `same` is the number of samples that a command which succeeds must
    have read: fewer or more would be a silent change.
    """
    before = {path: _digest(path) for path in keep}
    try:
        with limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(app, [str(a) for a in args])
    except Hung:
        return Outcome(HANG, " ".join(map(repr, args)))
    if isinstance(result.exception, Hung):
        return Outcome(HANG, " ".join(map(repr, args)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        text = io.StringIO()
        traceback.print_exception(*result.exc_info, file=text)
        return Outcome(TRACEBACK, f"{args!r}\n{text.getvalue()[-1800:]}")
    for path, digest in before.items():
        if _digest(path) != digest:
            return Outcome(CHANGED, f"{args!r} changed {path}")
    if result.exit_code in (2, 130):
        said = result.stderr
        if "Error" not in said or "Traceback" in said or len(said.strip()) < 12:
            return Outcome(TRACEBACK, f"{args!r}: no message: {said!r}")
        return Outcome(CLEAN, said.strip().splitlines()[-1])
    if result.exit_code not in (0, 3):
        return Outcome(TRACEBACK, f"{args!r}: exit code {result.exit_code}: {result.output[-500:]}")
    if same is not None:
        read = _samples(result.stdout)
        if read is not None and read != same and not _said(result):
            return Outcome(CHANGED, f"{args!r} read {read} samples of {same}")
    return Outcome(FINE)


def call(function):
    """Call a function of ours and say how it ended."""
    try:
        with limit(SECONDS):
            function()
    except Hung:
        return Outcome(HANG)
    except UserError as error:
        return Outcome(CLEAN, str(error))
    except Exception:
        return Outcome(TRACEBACK, traceback.format_exc()[-1800:])
    return Outcome(FINE)


def _samples(stdout):
    """The number of samples that `data describe --json` says it has read."""
    try:
        return sum(split["n"] for split in json.loads(stdout)["splits"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _said(result):
    """Whether something was left out with a word about it."""
    return any(word in result.output for word in ("left out", "skip", "broken", "empty", "drop", "missing"))


def _digest(path):
    path = Path(path)
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest(), os.stat(path).st_mode

"""Commands, called as a user would."""

from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from spurless.cli.main import app


def invoke(*args, code=0):
    """Run the command line; no exception but its own exit may come out of it, and warnings are errors."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def mistake(*args):
    """What a user's mistake prints: on standard error, with exit code 2, and nothing on standard output."""
    result = invoke(*args, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ") and "Traceback" not in result.stderr
    return result.stderr


def class_folders(root, classes, n=10):
    for c, name in enumerate(classes):
        for i in range(n):
            image(Path(root) / name / f"{i}.png", c, seed=100 * c + i)
    return f"folder:{root}"


def image(path, channel, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 60, (8, 8, 3), dtype=np.uint8)
    pixels[..., channel] += 180
    Image.fromarray(pixels).save(path)

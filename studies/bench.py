"""What the benchmark itself costs: 500 trials that do next to nothing, and a start with all of them done.

    python -m studies.bench                  # in a temporary folder; prints seconds, wall and processor

Both are whole commands, `python -m spurless bench`, from the start of Python to its end: imports, checks, processes,
run folders, rows and the table are all in it. A trial is two steps of a linear network on 100 rows of the toy.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """
title = "Next to nothing"
seeds = [{seeds}]
[[block]]
label = "toy"
data = {{name = "toy", n = 100}}
recipe = {{epochs = 1, batch_size = 50}}
over = {{"data.rho" = [0.05, 0.1, 0.2, 0.3, 0.4]}}
methods = ["erm", "lff"]
"""


def command(spec, out, workers):
    """Run the benchmark once; its wall and processor seconds, children included."""
    words = [sys.executable, "-m", "spurless", "bench", str(spec), "--out", str(out), "--device", "cpu", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(
        [*words, *(["--workers", str(workers)] if workers else [])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), wall, cpu


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "nothing.toml"
        spec.write_text(SPEC.format(seeds=", ".join(map(str, range(given.trials // 10)))))
        load = os.getloadavg()[0]
        for what in ("all to do", "all done", "all done, again"):
            found, wall, cpu = command(spec, Path(folder) / "out", given.workers)
            assert found["done"] == found["cells"] == given.trials // 10 * 10, found
            print(
                f"{found['cells']} trials, {what}: {wall:.1f} s wall, {cpu:.1f} s of processor; load before {load:.1f}"
            )
            load = os.getloadavg()[0]

"""What a change of form must not change: keys of trials, bits of weights, the JSON of commands, folders of old runs.

    python -m studies.freeze write FILE     # before: on the commit to compare with
    python -m studies.freeze check FILE     # after: lists every difference and ends with 1 if there is one

Weights depend on the processor and on torch's version, so both runs must be on one machine.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

SEEDS = (0, 1)
TOY: dict[str, Any] = {"name": "gaussians", "n": 200}
SHORT = {"epochs": 2, "batch_size": 64}
DIGITS: dict[str, Any] = {"name": "colored_digits", "rho": 0.05}
ON_DIGITS = ("erm", "pgd", "lff", "dcwp", "bias_adv")
COMMANDS = (
    ["list", "methods", "--json"],
    ["list", "datasets", "--json"],
    ["list", "nets", "--json"],
    ["list", "recipes", "--json"],
    ["data", "describe", "gaussians", "--json"],
    ["train", "erm", "gaussians", "--set", "recipe.epochs=1", "--out", "run", "--json"],
    ["show", "run", "--json"],
    ["evaluate", "run", "--json"],
)
TIMES = ("seconds", "wall_seconds", "versions", "date", "commit", "machine", "took", "elapsed")


def main(verb: str, file: str) -> int:
    now = frozen()
    if verb == "write":
        Path(file).write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    before = json.loads(Path(file).read_text())
    differing = [f"{part}: {key}" for part in before for key in before[part] if now[part].get(key) != before[part][key]]
    print("\n".join(differing) or f"{sum(map(len, before.values()))} facts are as they were")
    return bool(differing)


def frozen() -> dict[str, dict[str, Any]]:
    return {"keys": keys(), "weights": weights(), "commands": commands()}


def keys() -> dict[str, Any]:
    """The key of every trial of every paper's table."""
    read_spec, papers = import_module("spurless.bench.spec").read_spec, import_module("spurless.bench.reproduce").papers
    found = {}
    for name, path in papers().items():
        found[name] = [cell.key for cell in read_spec(path).cells()]
    return found


def weights() -> dict[str, str]:
    """A hash of the weights of every method on the toy data, and of five on coloured digits."""
    import spurless

    methods = import_module("spurless.methods").METHODS
    found = {}
    for seed in SEEDS:
        for method in methods:
            for data, net in ((TOY, "mlp"), (DIGITS, "simconv1")):
                if data is TOY or method in ON_DIGITS:
                    found[f"{method} {data['name']} {seed}"] = trained(spurless.fit, method, data, net, seed)
    return found


def trained(fit: Any, method: str, data: dict[str, Any], net: str, seed: int) -> str:
    try:
        result = fit(method, data, net=net, recipe=SHORT, seed=seed, device="cpu", progress=False)
    except Exception as error:
        return f"{type(error).__name__}"
    if result.classifier is None:
        return result.status
    digest = hashlib.sha256()
    for name, tensor in sorted(result.classifier.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def commands() -> dict[str, Any]:
    """What commands print with --json, without times and versions."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            done = subprocess.run(
                [sys.executable, "-m", "spurless", *command], cwd=folder, env=os.environ, capture_output=True, text=True
            )
            try:
                found[" ".join(command)] = without_times(json.loads(done.stdout))
            except ValueError:
                found[" ".join(command)] = f"exit code {done.returncode}"
    return found


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

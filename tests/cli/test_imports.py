"""What is imported before it is needed is what a person waits for: heavy packages come with the work, not with the
name."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "torchvision", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "PIL", "jinja2", "safetensors"}
COMMANDS = ("train", "audit", "fix", "bench", "reproduce", "data", "report", "export")


def imported(code: str) -> set[str]:
    """The packages that a new process has imported after this code."""
    code = f"import sys, json\ntry:\n    {code}\nexcept SystemExit: pass\n"
    code += "print(json.dumps([m for m in sys.modules if '.' not in m]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_spurless_imports_nothing_heavy():
    modules = imported("import spurless")
    assert "spurless" in modules and not modules & (HEAVY | {"typer", "rich"})


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_imports_nothing_heavy(command):
    arguments = ["spurless", *command, "--help"]
    modules = imported(f"import spurless.cli.main as m; sys.argv = {arguments}; m.main()")
    assert "typer" in modules and not modules & HEAVY

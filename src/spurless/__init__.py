"""Spurless finds, measures and removes spurious correlations from PyTorch classifiers.

The public names are listed here, once, and imported when first used, so that `import spurless` takes no time.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if "torch" not in sys.modules:
    # OpenMP threads that spin while they wait cost up to ten times the work when another process wants the core;
    # deterministic matrix products on a GPU need a fixed workspace. Both are read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

_WHERE = {
    "fit": "engine",
    "evaluate": "engine",
    "load_run": "engine",
    "load_data": "registry",
    "mine": "mining",
    "audit": "auditing",
    "infer_groups": "inference",
    "embed": "embedding",
    "run_sweep": "sweep",
    "suggest_lr": "sweep",
    "Result": "result",
    "Split": "core",
    "Bundle": "core",
    "Batch": "core",
    "Stage": "core",
    "Method": "core",
    "Run": "core",
    "Recipe": "core",
    "Augment": "augment",
    "Net": "nets",
    "UserError": "errors",
}
__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from spurless.auditing.audit import audit
    from spurless.augment import Augment
    from spurless.core import Batch, Bundle, Method, Recipe, Run, Split, Stage
    from spurless.embedding import embed
    from spurless.engine import evaluate, fit, load_run
    from spurless.errors import UserError
    from spurless.inference import infer_groups
    from spurless.mining import mine
    from spurless.nets import Net
    from spurless.registry import load_data
    from spurless.result import Result
    from spurless.sweep import run_sweep, suggest_lr


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"spurless.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'spurless' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

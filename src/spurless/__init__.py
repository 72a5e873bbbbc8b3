"""Spurless finds, measures and removes spurious correlations from PyTorch classifiers.

The public names are listed here, once, and imported when first used, so that `import spurless` takes no time.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# OpenMP threads that spin while they wait cost up to ten times the work when another process wants the core. How they
# wait is decided when torch is first imported: if that was before, a run sees to it (train/device.py). Processes that
# are started from here wait as they should.
THREADS_MAY_SPIN = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Deterministic matrix products on a GPU need a fixed workspace; read when the first one is made.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

_WHERE = {
    "fit": "train.fit",
    "evaluate": "train.fit",
    "group_metrics": "metrics.frame",
    "load_run": "train.saved",
    "load_data": "registry",
    "audit": "auditing",
    "fix": "auditing.fixing",
    "review": "auditing.review",
    "Decisions": "auditing",
    "infer_groups": "train.infer",
    "embed": "compress.embedding",
    "run_sweep": "sweep",
    "suggest_lr": "sweep",
    "SpurlessClassifier": "integrations.sklearn",
    "sample_weights": "integrations.own_loop",
    "refit_head": "integrations.own_loop",
    "push_to_hub": "integrations.hub",
    "from_hub": "integrations.hub",
    "Result": "train.result",
    "Split": "core.data",
    "Bundle": "core.data",
    "Images": "core.data",
    "Table": "core.data",
    "Texts": "core.data",
    "Batch": "core.data",
    "Stage": "core.method",
    "Method": "core.method",
    "Run": "core.method",
    "Recipe": "core.recipe",
    "Augment": "core.augment",
    "Net": "nets",
    "UserError": "core.errors",
}
__all__ = ["__version__", *_WHERE]

if "IPython" in sys.modules:
    from spurless.core.display import show_errors_briefly

    show_errors_briefly()

if TYPE_CHECKING:
    from spurless.auditing.audit import audit
    from spurless.auditing.decisions import Decisions
    from spurless.auditing.fixing import fix
    from spurless.auditing.review import review
    from spurless.compress.embedding import embed
    from spurless.core.augment import Augment
    from spurless.core.data import Batch, Bundle, Images, Split, Table, Texts
    from spurless.core.errors import UserError
    from spurless.core.method import Method, Run, Stage
    from spurless.core.recipe import Recipe
    from spurless.integrations.hub import from_hub, push_to_hub
    from spurless.integrations.own_loop import refit_head, sample_weights
    from spurless.integrations.sklearn import SpurlessClassifier
    from spurless.metrics.frame import group_metrics
    from spurless.nets import Net
    from spurless.registry import load_data
    from spurless.sweep import run_sweep, suggest_lr
    from spurless.train.fit import evaluate, fit
    from spurless.train.infer import infer_groups
    from spurless.train.result import Result
    from spurless.train.saved import load_run


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"spurless.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'spurless' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

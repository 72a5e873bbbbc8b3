"""What a setting does to what a network relies on, and to how small it can be: the large-learning-rate study as a tool.

    found = run_sweep("parity", "lr", [0.01, 0.1, 0.75], net="fcn")
    found = suggest_lr("parity", net="fcn", budget=300)

See docs/sweep.md. Importing this package is light.
"""

from spurless.sweep.run import run_sweep
from spurless.sweep.suggest import suggest_lr

__all__ = ["run_sweep", "suggest_lr"]

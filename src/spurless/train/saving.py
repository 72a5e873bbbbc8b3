"""A finished run is saved as a folder, or its weights alone as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spurless.core.errors import FolderError
from spurless.core.tensor_files import save_tensors
from spurless.train.run_folder import RunFolder

if TYPE_CHECKING:
    from spurless.train.result import Result


def save_run(result: Result, path: Path) -> Path:
    """Save a finished run as a folder, or its weights alone as NAME.safetensors; nothing there is overwritten."""
    assert result.classifier is not None and result.facts is not None
    if path.suffix == ".safetensors":
        if path.exists():
            raise FolderError(f"{path} is there already. Name another file, or remove it.")
        save_tensors(path, result.classifier.state_dict(), result.facts)
        return path
    folder = RunFolder(path)
    folder.claim(result.settings)
    if folder.result():
        raise FolderError(f"{path} holds a finished run. Name another folder, or remove it.")
    folder.rewrite_history(result.history)
    folder.save_model(result.classifier.state_dict(), result.facts)
    folder.write_result(result.row() | {"folder": str(path)})
    return path

"""Trained models on the Hugging Face Hub. Nothing is sent but by `push_to_hub`."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from spurless.core.errors import DataError, UserError, first_line
from spurless.core.extras import check_extra
from spurless.core.files import finite
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.report.card import card
from spurless.report.runs import discreet
from spurless.train.networks import NetSpec
from spurless.train.result import Result
from spurless.train.run_folder import MODEL, RESULT, RunFolder
from spurless.train.saved import load_run

CARD = "README.md"
PATH = re.compile(r"(?<![\w./~…])(?:~|/(?!/))[^\s'\",;:()]*/(?=[^\s/])")  # up to its last part


def push_to_hub(
    run: Result | str | Path,
    repo: str,
    *,
    private: bool = True,
    revision: str | None = None,
    token: str | None = None,
    message: str = "Add a model trained with Spurless",
) -> str:
    """Upload a finished run to the Hugging Face Hub: weights, result.json, and the model card as README.md.

    Of paths in them the last part is kept. HF_ENDPOINT names another hub than huggingface.co.

    Args:
        run: what `fit` returned, or a run's folder.
        repo: `"user/name"`. It is made where it does not exist.
        private: whether a new repository is private.
        revision: a branch, which has to exist; else main.
        token: of an account that may write there; else that of `hf auth login`.
        message: of the commit.

    Returns the address of the commit.
    """
    check_extra("The Hugging Face Hub", "hub")
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        stage(run, folder)
        with _told(f"{repo} cannot be written at {api.endpoint}"):
            api.create_repo(repo, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=repo, folder_path=folder, revision=revision, commit_message=message)
            return str(done.commit_url)


def from_hub(
    repo: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    net: NetSpec | None = None,
    device: str | torch.device | None = None,
) -> Result:
    """A finished run from the Hugging Face Hub, with its classifier, as `load_run` gives it from a folder.

    Args:
        repo: `"user/name"`, where `push_to_hub` put it.
        revision: a branch, tag or commit; else main.
        token: for a private repository; else that of `hf auth login`.
        net: the network, where it is one of your own.
        device: where the classifier goes; else a GPU if there is one.
    """
    check_extra("The Hugging Face Hub", "hub")
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with _told(f"{repo} cannot be read at {api.endpoint}"):
        folder = Path(api.snapshot_download(repo, revision=revision, allow_patterns=[MODEL, RESULT]))
    if absent := [name for name in (MODEL, RESULT) if not (folder / name).exists()]:
        raise DataError(f"{repo} holds no model of Spurless: there is no {' and no '.join(absent)}.")
    return load_run(folder, net, device)


def stage(run: Result | str | Path, folder: Path) -> None:
    """Write what is uploaded of a run, without the paths of this machine."""
    if isinstance(run, Result):
        row, given = run.row(), run.classifier
        tensors, facts = given.state_dict() if given is not None else {}, run.facts or {}
    else:
        saved = RunFolder(run).result()
        if saved is None:
            raise DataError(f"{run} holds no finished run (no {RESULT}); train it first.")
        row = saved
        tensors, facts = load_tensors(Path(run) / MODEL) if row["status"] == "done" else ({}, {})
    if row["status"] != "done" or not row.get("scores"):
        raise DataError(f"This run has no classifier to upload; its status is '{row['status']}'.")
    save_tensors(folder / MODEL, tensors, without_paths(facts))
    shared = finite(without_paths(dict(row) | {"folder": None}))
    (folder / RESULT).write_text(json.dumps(shared, indent=1) + "\n", encoding="utf-8")
    (folder / CARD).write_text(card(folder), encoding="utf-8", errors="replace")


def without_paths(value: Any) -> Any:
    """The same structure; of each absolute path only the last part.

    >>> without_paths({"data": "folder:/home/ada/my birds", "notes": ["/home/ada/birds/a.png is no image"]})
    {'data': 'folder:…/my birds', 'notes': ['…/a.png is no image']}
    >>> without_paths("https://pytorch.org/get/it, 3/4")
    'https://pytorch.org/get/it, 3/4'
    """
    if isinstance(value, Mapping):
        return {name: without_paths(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(entry) for entry in value]
    return PATH.sub("…/", discreet(value)) if isinstance(value, str) else value


@contextmanager
def _told(what: str) -> Iterator[None]:
    """One sentence for whatever the hub or the network says."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # those of huggingface_hub, of its HTTP client, of wrong names
        raise DataError(f"{what}: {first_line(error)}") from None

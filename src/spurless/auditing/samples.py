"""What `spurless review` shows: for each finding the value of every sample, and pictures or texts of some of them.

An audit writes it below its folder: review/samples.csv (a line for each sample), review/features.npy (a few numbers of
the model's features, by which a group is split) and review/shown.json (the findings, and what is shown of a sample).
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.columns import columns_of
from spurless.auditing.gallery import draw, highlight, name_of
from spurless.auditing.suspects import Suspect
from spurless.auditing.table_rows import value_of
from spurless.core.errors import FolderError
from spurless.core.files import atomic, from_json, read_bytes
from spurless.data.coding import coding_of

FOLDER, SAMPLES, FEATURES, SHOWN = "review", "samples.csv", "features.npy", "shown.json"
FIXED = ("split", "row", "name", "label", "prediction")  # the columns before those of the findings
MOST_FINDINGS, MOST_SHOWN, DIMENSIONS = 8, 48, 8
ACCUSED = ("found", "gap", "available")


@dataclass(frozen=True)
class Finding:
    """A suspected shortcut: what each sample has of it (-1: not looked at), and which values go with which class."""

    name: str
    kind: str
    verdict: str
    words: str
    text: str
    values: tuple[str, ...]
    codes: np.ndarray  # (n,)
    aligned: np.ndarray  # (n,) bool


@dataclass(frozen=True)
class Material:
    """Everything that is reviewed. The samples are those that the model was asked about, in the audit's order."""

    folder: Path  # of the audit
    places: list[tuple[str, int, str, str, str]]  # split, row, name, label, prediction
    findings: list[Finding]
    features: np.ndarray  # (n, k)
    pictures: dict[int, tuple[str, str | None]]
    texts: dict[int, list[list[Any]]]
    digest: str  # of the values: edits belong to these samples

    @property
    def shown(self) -> list[int]:
        return sorted({*self.pictures, *self.texts})


def write_samples(case: Case, suspects: Sequence[Suspect], score: Tensor, folder: Path) -> None:
    """Write the samples of the findings below the audit's folder; nothing where there is no finding."""
    accused = [s for s in suspects if s.verdict in ACCUSED]
    one = [s for s in accused if s.kind != "attribute" or s.name in case.data.attributes]  # no pairs of attributes
    findings = [_finding(case, s) for s in one[:MOST_FINDINGS]]
    findings = [f for k, f in enumerate(findings) if f.name not in [g.name for g in findings[:k]]]
    if not findings:
        return
    rows = sorted({row for f in findings for row in _to_show(f, score, case.seed)})
    samples_dir = folder / FOLDER
    samples_dir.mkdir(parents=True, exist_ok=True)
    drawn = draw(case, rows, folder)
    texts = highlight(case, rows) if case.texts else {} if case.images else _cells(case, rows, findings)
    shown = {
        "findings": [
            {"name": f.name, "kind": f.kind, "verdict": f.verdict, "words": f.words, "text": f.text}
            | {"values": list(f.values), "aligned": _pairs(case, f)}
            for f in findings
        ],
        "pictures": {str(row): list(pictures) for row, pictures in drawn.items()},
        "texts": {str(row): pictures for row, pictures in texts.items()},
    }
    with atomic(samples_dir / SAMPLES) as unfinished:
        unfinished.write_text(_table(case, findings), encoding="utf-8", newline="")
    with atomic(samples_dir / FEATURES) as unfinished, unfinished.open("wb") as file:
        np.save(file, _few_numbers(case))
    with atomic(samples_dir / SHOWN) as unfinished:
        unfinished.write_text(json.dumps(shown, allow_nan=False), encoding="utf-8")


def read_samples(folder: str | Path) -> Material:
    """What an audit has written for its review."""
    samples_dir = Path(folder) / FOLDER
    try:
        table = read_bytes(samples_dir / SAMPLES)
        shown = from_json(read_bytes(samples_dir / SHOWN))
        with (samples_dir / FEATURES).open("rb") as file:
            features = np.load(file, allow_pickle=False)
        head, *lines = csv.reader(StringIO(table.decode("utf-8"), newline=""))
        places = [(line[0], int(line[1]), *line[2:5]) for line in lines]
        findings = [_read_finding(f, head, lines) for f in shown["findings"]]
        pictures = {int(row): (str(p), None if m is None else str(m)) for row, (p, m) in shown["pictures"].items()}
        texts = {int(row): text for row, text in shown["texts"].items()}
        if len(features) != len(lines) or not all(0 <= row < len(lines) for row in (*pictures, *texts)):
            raise ValueError("its files are of different samples")
    except OSError as error:
        raise FolderError(
            f"{folder} holds nothing to review ({error.strerror}: {FOLDER}). Name the folder of an audit that found "
            "something and was written by this version; a --quick one has none."
        ) from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FolderError(f"{samples_dir} cannot be read ({error}). Run the audit again.") from None
    digest = hashlib.sha256(table).hexdigest()[:16]
    return Material(Path(folder), places, findings, features, pictures, texts, digest)  # type: ignore[arg-type]


def _read_finding(saved: Any, head: list[str], lines: list[list[str]]) -> Finding:
    column = head.index(saved["name"], len(FIXED))
    values = tuple(str(v) for v in saved["values"])
    code = {value: k for k, value in enumerate(values)} | {"": -1}
    pairs = {(str(label), str(value)) for label, value in saved["aligned"]}
    codes = np.array([code[line[column]] for line in lines], dtype=np.int64)
    aligned = np.array([(line[3], line[column]) in pairs for line in lines], dtype=bool)
    name, kind, verdict, words, text = (str(saved[key]) for key in ("name", "kind", "verdict", "words", "text"))
    return Finding(name, kind, verdict, words, text, values, codes, aligned)


def _finding(case: Case, s: Suspect) -> Finding:
    """What each sample has of it: the value of an attribute, else the class that the cue points to."""
    from spurless.auditing.verdict import sentence

    n, classes = len(case.held), case.data.classes
    if s.kind == "attribute" and s.name in case.data.attributes and case.held.a is not None:
        k = case.data.attributes.index(s.name)
        values, codes = case.data.values[k], case.held.a[:, k].clone()
    elif s.of is not None:
        values = (f"like {s.of}", "like the others")
        own = torch.tensor(classes.index(s.of)) == s.says
        codes = (~own).long()
    else:
        values, codes = tuple(f"like {name}" for name in classes), s.says.clone()
    asked = torch.zeros(n, dtype=torch.bool)
    asked[s.asked] = True
    codes[~asked] = -1
    used = sorted(set(codes.tolist()) - {-1})
    codes = torch.tensor([used.index(c) if c >= 0 else -1 for c in codes.tolist()])
    values = tuple(values[c] for c in used)
    return Finding(
        s.name, s.kind, s.verdict, s.words, s.text or sentence(s), values, codes.numpy(), s.follows.numpy().copy()
    )


def _to_show(f: Finding, score: Tensor, seed: int) -> list[int]:
    """Of each value some aligned and some conflicting samples: half of them drawn, half the most suspicious."""
    each = max(2, MOST_SHOWN // max(1, 2 * len(f.values)))
    generator = np.random.default_rng(seed)
    shown: list[int] = []
    for value in range(len(f.values)):
        for kind in (f.aligned, ~f.aligned):
            rows = np.nonzero((f.codes == value) & kind)[0]
            worst = rows[np.argsort(-score[rows].nan_to_num(0.0).numpy(), kind="stable")][: each // 2]
            rest = np.setdiff1d(rows, worst)
            drawn = generator.choice(rest, min(each - len(worst), len(rest)), replace=False)
            shown += [*worst.tolist(), *drawn.tolist()]
    return shown


def _cells(case: Case, rows: Sequence[int], findings: Sequence[Finding]) -> dict[int, list[list[Any]]]:
    """Of a table: each sample as its columns, those of the findings first and marked."""
    names = {f.name for f in findings}
    cells: dict[int, list[list[Any]]] = {}
    codes = {code["column"]: code for code in coding_of(case.data)}
    x = case.held[torch.tensor(list(rows), dtype=torch.long)]
    for column in sorted(columns_of(case.data), key=lambda column: column.name not in names)[:40]:
        for row, numbers in zip(rows, column.read(x).tolist(), strict=True):
            value = value_of(numbers, codes.get(column.name))
            if value is not None:
                cells.setdefault(row, []).append([f"{column.name}: {value}", float(column.name in names) or None])
                cells[row].append(["; ", None])
    return cells


def _pairs(case: Case, f: Finding) -> list[tuple[str, str]]:
    labels = [case.data.classes[int(y)] for y in case.held.y]
    seen = {(labels[i], f.values[f.codes[i]]) for i in np.nonzero((f.codes >= 0) & f.aligned)[0]}
    return sorted(seen)


def _table(case: Case, findings: Sequence[Finding]) -> str:
    text, classes, predicted = StringIO(), case.data.classes, case.predicted.tolist()
    write = csv.writer(text)
    write.writerow([*FIXED, *(f.name for f in findings)])
    for i, (split, row) in enumerate(_places(case)):
        name = "" if case.held.names is None else name_of(case, i)
        values = [f.values[f.codes[i]] if f.codes[i] >= 0 else "" for f in findings]
        write.writerow([split, row, name, classes[int(case.held.y[i])], classes[predicted[i]], *values])
    return text.getvalue()


def _places(case: Case) -> list[tuple[str, int]]:
    """The split and the row in it of each sample that the model was asked about."""
    from spurless.auditing.model import drawn_rows

    if case.fold is None:
        return [(case.split, row) for row in range(len(case.held))]
    return [(name, row) for name, rows in drawn_rows(case.data, case.seed, case.most) for row in rows.tolist()]


def _few_numbers(case: Case) -> np.ndarray:
    """(n, k) float32: the features' first principal components."""
    x = case.features.float().flatten(1).nan_to_num(0.0, 0.0, 0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        u, s, _ = torch.svd_lowrank(x - x.mean(0), q=min(DIMENSIONS, *x.shape))
    return (u * s).float().numpy()

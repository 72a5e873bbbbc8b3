"""A model card in the form that the Hugging Face Hub reads: YAML facts, then what a user of the model must know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spurless.core.errors import UserError
from spurless.core.stats import NOTHING, wilson
from spurless.core.tensor_files import header, of_bytes
from spurless.metrics.groups import group_notes
from spurless.report.runs import LABELS, SELECTION, command, discreet
from spurless.report.sources import run_row
from spurless.report.tables import Result, finished, flatten, plain, score, with_small_n
from spurless.train.run_folder import MODEL, RESULT, SETTINGS
from spurless.train.saved import check_facts

METRICS = {
    "average": "on all samples",
    "unbiased": "as the mean of the groups",
    "conflicting": "where the shortcut misleads",
    "aligned": "where the shortcut helps",
    "worst_group": "of the worst group",
}
MANY = 40  # groups; of more, the table shows the worst
WORST = 20


def card(run: str | Path) -> str:
    """The model card of a finished run, as Markdown."""
    folder = Path(run)
    if not folder.is_dir():
        raise UserError(f"{run} is not a run's folder.")
    if not any((folder / name).exists() for name in (RESULT, SETTINGS)):
        raise UserError(f"{run} holds no run (no {RESULT}); name the folder of a finished one.")
    row = run_row(folder)
    if not finished(row) or not row.get("scores"):
        raise UserError(f"The run in {run} is {row.get('status')}: there is no result to write a card on.")
    facts = header(folder / MODEL)  # the network, classes and shape
    check_facts(facts, folder / MODEL)
    parts = [front_matter(row, facts), _opening(row, facts), _results(row), _groups(row), _training(row), _limits(row)]
    return "\n\n".join(piece for piece in [*parts, _use(facts), _settings(row)] if piece) + "\n"


def front_matter(row: Result, facts: Mapping[str, Any]) -> str:
    """The YAML block: tags and, in the form of `model-index`, the scores."""
    data, name = str(row.get("data")), f"{row.get('method')}-{row.get('data')}"
    metrics = [(title, s) for m, title in METRICS.items() if (s := score(row, m))]
    lines = ["---", "library_name: pytorch", f"pipeline_tag: {_task(facts)}"]
    lines += ["tags:", *(f"- {tag}" for tag in ("spurious-correlation", "group-robustness", "spurless"))]
    lines += ["metrics:", "- accuracy", "model-index:", f"- name: {quoted(name)}", "  results:", "  - task:"]
    lines += [
        f"      type: {_task(facts)}",
        "    dataset:",
        f"      name: {quoted(data)}",
        f"      type: {quoted(data)}",
    ]
    lines += [f"      split: {quoted(str(row.get('scored_on') or 'test'))}", "    metrics:"]
    for title, value in metrics:
        lines += [
            "    - type: accuracy",
            f"      name: {quoted('Accuracy ' + title + _of_groups(row, title))}",
            f"      value: {value.value / 100:.4f}",
        ]
    return "\n".join([*lines, "---"])


def quoted(text: str) -> str:
    """A YAML string, whatever is in it.

    >>> print(quoted('a: "b"'), quoted("line\\nline"))
    "a: \\"b\\"" "line\\nline"
    """
    inside = "".join(
        c
        if c.isprintable() and not 0xD800 <= ord(c) < 0xE000
        else f"\\U{ord(c):08x}"
        if ord(c) > 0xFFFF
        else _escape(c)
        for c in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{inside}"'


def _escape(c: str) -> str:
    return {"\n": "\\n", "\t": "\\t"}.get(c, f"\\u{ord(c):04x}")


def _task(facts: Mapping[str, Any]) -> str:
    if facts.get("tokenizer"):
        return "text-classification"
    return "image-classification" if len(facts.get("shape") or ()) == 3 else "tabular-classification"


def _opening(row: Result, facts: Mapping[str, Any]) -> str:
    classes = [plain(str(c)) for c in facts.get("classes") or []]
    of = (
        f" It tells {len(classes)} classes apart: {', '.join(classes[:30])}{', ...' if len(classes) > 30 else ''}."
        if classes
        else ""
    )
    return (
        f"# {plain(str(row.get('method')))} on {plain(str(row.get('data')))}\n\n"
        f"A `{_code(row.get('net'))}` classifier, trained with the method `{_code(row.get('method'))}` and scored by "
        f"group with Spurless.{of}"
    )


def _results(row: Result) -> str:
    counts = (row.get("scores") or {}).get("n") or {}
    lines = ["| accuracy, % | | 95 % CI | samples |", "| :-- | --: | --: | --: |"]
    for metric, title in METRICS.items():
        if value := score(row, metric):
            limits = NOTHING if value.low is None else f"{value.low:.1f}–{value.high:.1f}"
            n = counts.get(metric)
            lines.append(
                f"| {title}{_of_groups(row, title)} | {value.value:.1f} | {limits} | {NOTHING if n is None else n} |"
            )
    split = plain(str(row.get("scored_on") or "test"))
    sentence = f"On the {split} split, which neither trained the model nor picked its weights."
    if split != "test":
        sentence = f"On the {split} split: there is no test split."
    return "\n".join(["## Results", "", sentence, "", *lines, *(f"\n{plain(note)}" for note in _group_notes(row))])


def _of_groups(row: Result, title: str) -> str:
    """Which groups a score over groups is of, and how few samples decided it."""
    scores = row.get("scores") or {}
    of = title in (METRICS["unbiased"], METRICS["worst_group"])
    none = sum(not g["n"] for g in scores.get("small_groups") or ())
    total = scores["groups_total"] if none else 0
    text = f", of the {total - none} of {total} groups that have samples" if of and none else ""
    return with_small_n(text, row, "worst_group") if title == METRICS["worst_group"] else text


def _group_notes(row: Result) -> list[str]:
    """Those on groups without samples or with few: they stand with the results, not with the training."""
    return group_notes(row.get("scores") or {}, str(row.get("scored_on") or "test"))


def _groups(row: Result) -> str:
    groups = list((row.get("scores") or {}).get("groups") or [])
    if not groups:
        return ""
    sentence = "The shortcut helps in the groups that align with it, and misleads in the others."
    if len(groups) > MANY:
        sentence += f" Of {len(groups)} groups, the {WORST} with the lowest accuracy:"
        groups = sorted(groups, key=lambda g: (g["accuracy"], -g["n"]))[:WORST]
    lines = ["| label | attribute | value | follows the shortcut | accuracy, % | 95 % CI | samples |"]
    lines.append("| :-- | :-- | :-- | :-- | --: | --: | --: |")
    for g in groups:
        low, high = (100 * limit for limit in wilson(g["correct"], g["n"]))
        names = " | ".join(plain(str(g[k])) for k in ("label", "attribute", "value"))
        follows = {True: "yes", False: "no"}.get(g.get("aligned"), NOTHING)
        lines.append(f"| {names} | {follows} | {g['accuracy']:.1f} | {low:.1f}–{high:.1f} | {g['n']} |")
    empty = [g for g in (row.get("scores") or {}).get("small_groups") or [] if not g["n"]]
    for g in empty if len(empty) <= MANY else []:  # of more, the note above says how many
        names = " | ".join(plain(str(g[k])) for k in ("label", "attribute", "value"))
        lines.append(f"| {names} | {NOTHING} | {NOTHING} | {NOTHING} | 0 |")
    return "\n".join(["## Groups", "", sentence, "", *lines])


def _training(row: Result) -> str:
    selection, labels = str(row.get("selection")), str(row.get("labels_used"))
    lines = [
        f"- Weights: {plain(SELECTION.get(selection, selection))}.",
        f"- Bias labels that were used: {plain(LABELS.get(labels, labels))}.",
        f"- Seed: {plain(str(row.get('seed')))}. One run: another seed gives somewhat other numbers.",
    ]
    if told := command(row):
        lines.append(f"- Command: `{_code(told)}`")
    about_groups = _group_notes(row)
    lines += [f"- {plain(str(note))}" for note in row.get("notes") or [] if note not in about_groups]
    return "\n".join(["## How it was trained and picked", "", *lines])


def _limits(row: Result) -> str:
    worst, average = score(row, "worst_group"), score(row, "average")
    lines = []
    if worst and average:
        which = f"its worst group{_of_groups(row, METRICS['worst_group'])}"
        lines.append(
            f"- It is right on {average.value:.1f} % of all samples, and on {worst.value:.1f} % of {which}: "
            "do not rely on the average where that group matters."
        )
    if score(row, "conflicting"):
        lines.append("- Only the bias attributes named above were looked at; there may be other shortcuts.")
    elif (row.get("scores") or {}).get("groups"):
        lines.append(
            "- No sample that was scored is known to conflict with the shortcut: what it does there is unknown."
        )
    else:
        lines.append("- No bias attribute was known: nothing is said here about shortcuts.")
    lines.append("- The numbers hold for data like the split they were measured on.")
    return "\n".join(["## Limits", "", *lines])


def _use(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    shape = ", ".join(str(int(s)) for s in facts.get("shape") or [])
    lines = ["## Use", "", "```python", "from spurless.train.saved import load_classifier", ""]
    net = facts.get("net") or {}
    if net.get("own"):  # the file does not say how it is made
        lines += [f"# network: the {_code(net.get('name'))} that was trained, as a module of your own"]
    given = ", net=network" if net.get("own") else ""
    lines += [f'classifier = load_classifier("{MODEL}"{given})  # an nn.Module; inputs of shape (n, {shape})']
    if of_bytes(facts):
        lines += ["# Pixels as in training: bytes divided by 255, so that they are between 0 and 1."]
    if facts.get("mean"):
        mean, std = ([float(f"{float(v):.4g}") for v in facts[k]] for k in ("mean", "std"))  # some are very small
        lines += [f"# Standardise the inputs as in training: mean {mean}, standard deviation {std}."]
    if facts.get("tokenizer"):
        length = list(facts["shape"])[-1]
        lines += [f'# x = spurless.data.tokens.tokenise(texts, "{_code(facts["tokenizer"])}", length={int(length)})']
    return "\n".join([*lines, "```"])


def _settings(row: Result) -> str:
    settings = flatten(row.get("settings") or {}) | {f"version.{k}": v for k, v in (row.get("versions") or {}).items()}
    lines = [f"- {plain(str(k))}: {plain(str(discreet(v)))}" for k, v in settings.items() if v is not None]
    if not lines:
        return ""
    return "\n".join(["<details><summary>Settings and versions</summary>", "", *lines, "", "</details>"])


def _code(text: Any) -> str:
    """Text between backticks: nothing but a backtick or a new line could end it."""
    return str(text).replace("`", "'").replace("\n", " ").replace("\r", " ")

"""How often an audit of a given model raises an alarm by its answers, where the truth is known: simulated answers.

    python -m studies.leaning [--times 300] [--out results/audit_answers/simulated]

The attribute says nothing of the label in the training rows at hand. Answers are wrong by chance, wrong more often at
one value of the attribute (also with 70 % of the errors in one class), or in one class there, or go by the value in a
fifth of all rows.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
from collections import Counter
from pathlib import Path

import torch
from torch import nn

from spurless.auditing import attributes
from spurless.auditing.case import Case
from spurless.bench.one import stamp
from spurless.core.data import Bundle, Split
from studies.rows import put

KINDS = ("chance", "harder", "harder, most errors in class 0", "harder in one class", "goes by the value")


def made(kind, classes, n, own, seed):
    g = torch.Generator().manual_seed(seed)
    values = min(classes, 10)
    y, a = torch.randint(0, classes, (n,), generator=g), torch.randint(0, values, (n,), generator=g)
    often = torch.full((n,), 0.15)
    if kind.startswith("harder"):
        often = torch.where(a == 1, 0.3, 0.1)
    if kind == "harder in one class":
        often = torch.where((a == 1) & (y == 0), 0.4, 0.1)
    other = (y + torch.randint(1, classes, (n,), generator=g)) % classes
    if kind.endswith("class 0"):
        other = torch.where((torch.rand(n, generator=g) < 0.7) & (y > 0), 0, other)
    answers = torch.where(torch.rand(n, generator=g) < often, other, y)
    if kind == "goes by the value":
        answers = torch.where(torch.rand(n, generator=g) < 0.2, a, answers)
    learnt = [torch.randint(0, k, (2000,), generator=g) for k in (classes, values)]
    train, held = (Split(torch.zeros(len(u), 1), u, v[:, None]) for u, v in (learnt, (y, a)))
    names = tuple(map(str, range(classes)))
    data = Bundle("simulated", train, test=held, classes=names, attributes=("value",))
    logits = nn.functional.one_hot(answers, classes).float()
    return Case(data, None, "given", held, "test", torch.device("cpu"), logits, logits, seed, own)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for kind in KINDS:
        for classes in (2, 3, 10):
            for own in (None, False):
                cases = (made(kind, classes, given.rows, own, seed) for seed in range(given.times))
                told = Counter(attributes.examine(case)[0]["finding"] for case in cases)
                knows = "not known" if own is None else "other data"
                rows.append({"answers": kind, "classes": classes, "trained on": knows} | dict(told))
                print(rows[-1], flush=True)
    if given.out:
        how = stamp() | {"audits of each": given.times, "held-out rows": given.rows, "rows": rows}
        put(given.out, how)

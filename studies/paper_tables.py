"""The tables of published numbers beside ours, as docs/papers/*-tables.md has them."""

import re
from collections import Counter
from dataclasses import replace

from spurless.bench.figures import value_of
from spurless.bench.reproduce import papers
from spurless.bench.spec import read_spec
from spurless.bench.table import markdown
from studies.keep import SEEDS
from studies.rows import rows

LEFT_OUT = (
    "zeros, %",
    "mined, precision",
    "recall",
    "selection",
    "labels",
    "remark",
    "metric",
)  # where all lines agree


def with_further_seeds(path, kept):
    """The specification in a file, and in each line the cells of further seeds whose rows have what the line shows."""

    def counts(row, metric):
        return row["status"] == "diverged" or value_of(row, metric) is not None

    spec = read_spec(path)
    lines = []
    for line, wide in zip(spec.lines, read_spec(path, SEEDS).lines, strict=True):
        named = {cell.key for cell in line.trials}
        others = [cell for cell in wide.trials if cell.key in kept and cell.key not in named]
        further = [cell for cell in others if counts(kept[cell.key], line.metric)]
        assert not (line.end and further), f"{path.name}, {line.row}: a range is of the seeds that its file names"
        lines.append(replace(line, trials=(*line.trials, *further)))
    return replace(spec, lines=tuple(lines))


def reproductions():
    """For each paper's table of which cells were measured, those lines of it. A cell may be in several tables."""
    kept = {name: {row["key"]: row for row in rows(name)} for name in papers()}
    all_kept = {key: row for own in kept.values() for key, row in own.items()}
    found = {}
    for name, path in papers().items():
        if not kept[name]:
            continue
        spec = with_further_seeds(path, all_kept)
        strange = kept[name].keys() - {cell.key for cell in spec.trials()}
        assert not strange, f"results/{name} holds rows that are not in {path.name}: {sorted(strange)}"
        lines = tuple(line for line in spec.lines if any(cell.key in all_kept for cell in line.trials))
        own = [all_kept[cell.key] for line in lines for cell in line.trials if cell.key in all_kept]
        found[name] = without_alike(markdown(replace(spec, lines=lines), own))
    return said_once(said_once(found, "pgd"), "dcwp")


def without_alike(table):
    """A table without those of the columns LEFT_OUT in which each line says the same as the others.

    >>> without_alike("| n | selection |\\n| :-- | --: |\\n| 1 | last |\\n| 2 | last |")
    '| n |\\n| :-- |\\n| 1 |\\n| 2 |'
    """
    lines = table.splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("|")]
    cells = [lines[i].strip("| ").split(" | ") for i in at]
    columns = enumerate(zip(*cells, strict=True))
    kept = [k for k, (title, _, *values) in columns if title not in LEFT_OUT or len(set(values)) > 1]
    for i, line in zip(at, cells, strict=True):
        lines[i] = f"| {' | '.join(line[k] for k in kept)} |"
    return "\n".join(lines)


def said_once(found, paper):
    """What several of a paper's tables say below, in a part of its own: common-PAPER."""
    parts = {name: briefly(text.split("\n\n")) for name, text in found.items() if name.startswith(paper)}
    said = Counter(part for own in parts.values() for part in own[1:] if not part.startswith("|"))
    common = [part for part, times in said.items() if times > 1]
    short = {name: "\n\n".join(p for p in own if p not in common) for name, own in parts.items()}
    return found | short | {f"common-{paper}": "\n".join(f"- {part}" for part in common)}


def briefly(parts):
    """What every table of a page says in nearly the same words, in the same words; runs that diverged, counted.

    >>> briefly(["Published: A 2023, table 1.", "Ours: seconds. ± is x.", "pgd on toy diverged: a"])
    ['Published: A 2023.', '± is x.', 'Ours: seconds.', 'Diverged: 1 training of pgd on toy.']
    """
    found, diverged = [], Counter()
    for part in parts:
        if lost := re.match(r"(\w+ on \w+) diverged: ", part):
            diverged[lost[1]] += 1
        elif part.startswith("Ours: "):
            ours, _, rest = part.partition(". ± ")
            found += [f"± {rest}", f"{ours}."]
        else:
            part = re.sub(r"^(Published: .+), table \w+(?:: .*)?\.$", r"\1.", part)
            found.append(re.sub(r"^(Measured .+) on ([^,]+), .*\.$", r"\1 on \2.", part))
    return found + [f"Diverged: {n} training{'s' * (n > 1)} of {what}." for what, n in diverged.items()]

"""The description of a dataset on a terminal: `rich.print(text(describe(bundle)))`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spurless.data.describe import percent

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

MOST = 12  # rows or columns of a printed table


def text(description: dict[str, Any]) -> Group:
    """The description for a terminal: `rich.print(text(describe(bundle)))`."""
    from rich.console import Group
    from rich.text import Text

    tables: list[tuple[str, Table | None]] = [("Rows", _splits_table(description))]
    for name in description["attributes"]:
        tables.append(
            (f"Training samples by class and {name} (* agrees with the shortcut)", _groups_table(description, name))
        )
    tables.append(("Test samples by group; a sample counts in each group that it is in", _overlap_table(description)))
    tables.append(("Training texts", _samples_table(description)))
    tables.append(
        ("Association in the training samples (0 none, 1 one decides the other)", _association_table(description))
    )
    parts: list[Any] = [Text(description["name"], style="bold"), Text(description["input"])]
    for title, table in tables:
        parts += [Text(f"\n{title}"), table] if table else []
    parts.append(Text(f"\n{description['meaning']}", style="bold"))
    parts += [Text(f"Note: {note}") for note in description["notes"]]
    return Group(*parts)


def _splits_table(description: dict[str, Any]) -> Table:
    from rich.text import Text

    classes, splits = description["classes"], description["splits"].values()
    table = _table("class", list(description["splits"]))
    for name in classes[:MOST]:
        table.add_row(Text(name), *[f"{split['classes'][name]:,}" for split in splits])
    if len(classes) > MOST:
        rest = [sum(split["classes"][name] for name in classes[MOST:]) for split in splits]
        table.add_row(f"... {len(classes) - MOST} more", *[f"{n:,}" for n in rest])
    table.add_section()
    table.add_row("all", *[f"{split['n']:,}" for split in splits])
    shares = [percent(p["conflicting"]["share"]) if p["conflicting"] else "not known" for p in splits]
    table.add_row("conflicting", *shares)
    return table


def _groups_table(description: dict[str, Any], attribute: str) -> Table | None:
    """Training samples by class and value; a star marks the pairs that the shortcut predicts."""
    from rich.text import Text

    groups = (description["splits"]["train"]["groups"] or {}).get(attribute)
    if not groups:
        return None
    values, aligned = description["attributes"][attribute], description["aligned"].get(attribute, {})
    more = [f"... {len(values) - MOST} more"] if len(values) > MOST else []
    table = _table("class", [*values[:MOST], *more])
    for name in description["classes"][:MOST]:
        cells = [f"{groups[name][v]:,}{'*' if v in aligned.get(name, ()) else ' '}" for v in values[:MOST]]
        rest = [f"{sum(groups[name][v] for v in values[MOST:]):,} "] if len(values) > MOST else []
        table.add_row(Text(name), *cells, *rest)
    if len(description["classes"]) > MOST:
        table.add_row(f"... {len(description['classes']) - MOST} more")
    return table


def _overlap_table(description: dict[str, Any]) -> Table | None:
    """One line for each group, because there can be many; of the split that is scored."""
    from rich.text import Text

    groups = (description["splits"].get("test") or description["splits"]["train"])["overlap"]
    if not groups:
        return None
    names = list(next(iter(groups.values())))
    table = _table("group", list(groups))
    for name in names[:MOST]:
        table.add_row(Text(name), *[f"{counts[name]:,}" for counts in groups.values()])
    if len(names) > MOST:
        table.add_row(f"... {len(names) - MOST} more")
    return table


def _samples_table(description: dict[str, Any]) -> Table | None:
    from rich.text import Text

    if not description["samples"]:
        return None
    table = _table("class", [])
    table.add_column("")
    table.add_column("text", max_width=90, no_wrap=True, overflow="ellipsis")
    for sample in description["samples"]:
        table.add_row(Text(sample["class"]), sample["kind"], Text(sample["text"]))
    return table


def _association_table(description: dict[str, Any]) -> Table | None:
    from rich.text import Text

    association = description["association"]
    if not association:
        return None
    table = _table("between", ["Cramér's V", "bias-corrected", "class from it alone"])
    for name, v in association["label"].items():
        alone = percent(v["accuracy_from_it_alone"])
        table.add_row(Text(f"class and {name}"), f"{v['cramers_v']:.3f}", f"{v['corrected']:.3f}", alone)
    for pair in association["between"]:
        both = Text(" and ".join(pair["attributes"]))
        table.add_row(both, f"{pair['cramers_v']:.3f}", f"{pair['corrected']:.3f}", "")
    return table


def _table(first: str, heads: Sequence[str]) -> Table:
    """An empty table. Names are Text, not markup: a class called "[red]" stays what it is."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(Text(first))
    for head in heads:
        table.add_column(Text(head), justify="right")
    return table

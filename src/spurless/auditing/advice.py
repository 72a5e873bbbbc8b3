"""What to do next, in plain words, each with the command to run. Pure: from a few facts to sentences."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from spurless.auditing.verdict import Doubt, quoted
from spurless.core.stats import wilson
from spurless.methods import METHODS

# The best-fitting first: those that use labels, where there are any, then those that need none. The numbers are how
# long each takes, in plain trainings: PGD trains twice, LfF two networks at once, JTT twice, the second time on more
# samples.
COST = {"group_dro": 1.1, "rs": 1.0, "dfr": 1.5, "pgd": 2.1, "lff": 2.2, "jtt": 3.0}
AT_MOST = 3  # methods that are worth trying, and columns that are named

POINTS = 5.0  # an accuracy that is known to so many points is good enough to act on
EACH_CLASS = 20  # conflicting samples of a class, below which one more or less decides
LOOK_WRONG = 0.02  # share of samples at odds with their label from which they are worth checking

TRY = "Let the audit repair it"

Advice = dict[str, str | None]


@dataclass(frozen=True)
class Facts:
    """What the advice is made from. Accuracies are percentages; None: not known."""

    verdict: str
    source: str  # the data as the user would type it: folder:photos, csv:table.csv, waterbirds; empty: not at all
    train_labels: bool  # whether the shortcut is an attribute that is known for the training samples
    val_labels: bool  # ... for the validation samples
    held_out: int
    classes: int
    n_conflicting: int | None = None  # samples that contradict the shortcut
    conflicting: float | None = None  # accuracy on them
    aligned: float | None = None  # accuracy on the others
    seconds: float | None = None  # of one plain training, as `train` would train it
    budget: float | None = None  # minutes
    wrong_labels: float = 0.0  # share of samples whose label the model and an answer without the cue both contradict
    name: str | None = None  # of the attribute or cue
    settings: tuple[str, ...] = ()  # what was set for the data: data.label=kind
    network: tuple[str, ...] = ()  # options of `train` for the audited network, where it is not the data's own
    model: tuple[str, ...] = ()  # options of `audit` for the same model: --model runs/mine
    recipe: tuple[str, ...] = ()  # what was set for the training: recipe.epochs=5
    root: tuple[str, ...] = ()  # the option that says where data lies, if it was given
    attributes: tuple[str, ...] = ()  # that are known, whether or not one of them is the shortcut
    is_input: bool = False  # whether the model is given the attribute itself
    needed: int | None = None  # samples that the test which could not tell asks for
    tested: bool = True  # whether there was an attribute or a cue to test
    doubt: Doubt | None = None  # why finding nothing would mean nothing
    # Of a table without an attribute: those that could be one, and how much they go with the label.
    columns: tuple[tuple[str, float], ...] = ()

    @property
    def shortcut(self) -> str:
        return quoted(self.name) if self.name else "the shortcut"

    @property
    def share(self) -> float | None:
        """Of the samples, how many contradict the shortcut."""
        return None if self.n_conflicting is None else self.n_conflicting / max(1, self.held_out)

    def command(self, *words: str, sets: tuple[str, ...] = ()) -> str | None:
        """A command line on this data, quoted for a shell; `sets` take the place of what is set already. None for data
        that was made in Python, which no command line can name."""
        if not self.source:
            return None
        options = {"train": self.network, "audit": self.model}.get(words[0], ())
        anew = {pair.partition("=")[0] for pair in sets}
        kept = [pair for pair in self.settings if pair.partition("=")[0] not in anew]
        recipe = self.recipe if words[0] in ("train", "audit") else ()
        pairs = [word for pair in (*kept, *sets, *recipe) for word in ("--set", pair)]
        return shlex.join(["spurless", *words, self.source, *options, *pairs, *self.root])


def advise(facts: Facts) -> list[Advice]:
    """The advice for a verdict, the most useful first."""
    if facts.verdict == "no evidence":
        return [*_labels(facts), *_not_covered(facts)]
    if facts.verdict == "cannot tell" and facts.tested and facts.doubt and facts.doubt.advice:
        return [_item(facts.doubt.advice, facts.doubt.why), *_labels(facts), *_name_it(facts)]
    if facts.verdict == "cannot tell" and facts.n_conflicting == 0:  # more of the same samples would not help
        return [*_collect(facts), *_drop_column(facts), *_labels(facts), *_name_it(facts)]
    if facts.verdict == "cannot tell":
        return [*(_more_rows(facts) if facts.tested else _name_column(facts)), *_labels(facts), *_name_it(facts)]
    look = [*_look(facts)] if facts.verdict == "available" else []
    fixes = [*_try_all(facts), *_drop_column(facts), *_methods(facts)]
    if facts.n_conflicting == 0:  # no method can learn from samples that are not there
        return [*look, *_collect(facts), *_labels(facts), *fixes]
    # Methods that need no labels dwell on the samples that are hard to fit, and wrong labels are the hardest.
    labels_first = facts.share is None or facts.wrong_labels >= facts.share
    rest = [fixes, [*_collect(facts)]]
    rest.insert(1 if labels_first else 2, [*_labels(facts)])
    return sum(rest, look) if facts.verdict != "available" else [*fixes[:1], *look, *fixes[1:], *sum(rest[1:], [])]


def fitting(train_labels: bool, val_labels: bool) -> list[str]:
    """The methods that these labels allow, the best-fitting first.

    >>> fitting(True, True), fitting(False, True), fitting(False, False)
    (['group_dro', 'rs', 'dfr'], ['dfr', 'pgd', 'lff'], ['pgd', 'lff', 'jtt'])
    """
    known = {"training": train_labels, "validation": val_labels}
    allowed = [name for name in COST if name in METHODS and known.get(METHODS[name].labels, True)]
    return allowed[:AT_MOST]


def rows_for(points: float, accuracy: float | None = None) -> int:
    """How many samples make an accuracy (percent) known to ± so many points: by the width of Wilson's interval.

    Without an accuracy, enough for any.

    >>> rows_for(5), rows_for(5, 90), rows_for(10)
    (381, 141, 93)
    """
    p, half, z2 = 0.5 if accuracy is None else accuracy / 100, points / 100, NormalDist().inv_cdf(0.975) ** 2
    # Wilson's half width, z √(p (1 − p) n + z²/4) / (n + z²), is `half` at the larger root of a quadratic in n.
    middle = z2 * p * (1 - p) / (2 * half**2) - z2
    return math.ceil(middle + math.sqrt(middle**2 + z2**2 * (0.25 / half**2 - 1)))


def about(n: float) -> int:
    """Rounded up to two digits: more would claim too much.

    >>> about(381), about(7), about(1234)
    (390, 7, 1300)
    """
    step = int(10 ** max(0, len(str(math.ceil(n))) - 2))
    return math.ceil(n / step) * step


def _look(facts: Facts) -> Iterator[Advice]:
    yield _item(
        "Say whether it may decide",
        f"Only you know whether {facts.shortcut} belongs to the task. If it does not, take it out of the data or "
        f"collect samples in which it points elsewhere ({facts.n_conflicting or 0:,} do): the next model may use it, "
        "whatever this one does.",
        facts.command("data", "describe"),
    )


def _methods(facts: Facts) -> Iterator[Advice]:
    """Those that fit the budget first."""
    known = {"training": "the attribute is known for the training samples", "validation": "validation samples have it"}
    names = fitting(facts.train_labels, facts.val_labels)
    for rank, name in enumerate(sorted(names, key=lambda each: not _in_time(facts, each))):
        labels, gap = METHODS[name].labels, "" if rank or facts.verdict == "available" else _gap(facts)  # once
        needs = f"It can use that {known[labels]}" if labels in known else "It needs no labels of the shortcut"
        took = "" if facts.seconds is None else f", and takes about {_span(COST[name] * facts.seconds)} on this machine"
        late = "" if _in_time(facts, name) else f", more than the {facts.budget:g} min you gave"
        title = f"Train with {name}: {METHODS[name].what}"
        yield _item(title, f"{gap}{needs}{took}{late}.", facts.command("train", name))


def _gap(facts: Facts) -> str:
    if facts.conflicting is None or facts.aligned is None:
        return ""
    samples = "samples" if facts.n_conflicting is None else f"{facts.n_conflicting:,} samples"
    return (
        f"The model is right on {facts.conflicting:.0f} % of the {samples} where {facts.shortcut} misleads, and on "
        f"{facts.aligned:.0f} % of the others. "
    )


def _in_time(facts: Facts, method: str) -> bool:
    return not (facts.budget and facts.seconds) or COST[method] * facts.seconds <= 60 * facts.budget


def _try_all(facts: Facts) -> Iterator[Advice]:
    yield _item(
        TRY,
        "The command fits the last layer again with balanced groups, takes the cue out of the input, and shows what "
        f"each brings on {facts.held_out:,} samples that it was not fitted to.",
        facts.command("audit", "--fix"),
    )


def _drop_column(facts: Facts) -> Iterator[Advice]:
    """A table's own column can simply be left out of the inputs."""
    set_already = any(pair.startswith("data.drop_attribute=") for pair in facts.settings)
    if facts.source.startswith("csv:") and facts.train_labels and facts.is_input and not set_already:
        yield _item(
            f"Take {facts.shortcut} out of the inputs",
            f"{_gap(facts)}What the model is not given it cannot read, except through columns that go with it: "
            "audit again afterwards.",
            facts.command("train", "erm", sets=("data.drop_attribute=true",)),
        )


def _collect(facts: Facts) -> Iterator[Advice]:
    have = facts.n_conflicting
    wanted = about(max(rows_for(POINTS, facts.conflicting), EACH_CLASS * facts.classes))
    if have is not None and have >= wanted:
        return
    if have and facts.conflicting is not None:
        low, high = wilson(facts.conflicting / 100 * have, have)
        now = f"The {have:,} held-out ones put the accuracy there between {100 * low:.0f} and {100 * high:.0f} %. "
    elif have == 0:
        now = "No sample contradicts it, so nobody can say how the model does there, and no method can learn it. "
    else:
        now = "It is not known which samples contradict it. "
    classes = f"each of the {facts.classes} classes {EACH_CLASS} or more"
    yield _item(
        f"Collect about {about(wanted - (have or 0)):,} more samples that contradict {facts.shortcut}",
        f"{now}About {wanted:,} would make it known to ± {POINTS:g} points and can give {classes}; keep them out of "
        "training, or collect as many again for it.",
    )


def _labels(facts: Facts) -> Iterator[Advice]:
    if facts.wrong_labels >= LOOK_WRONG:
        wrong = f"{round(facts.wrong_labels * facts.held_out):,} of the {facts.held_out:,} samples"
        yield _item(
            "Check the labels",
            f"On {wrong} ({100 * facts.wrong_labels:.0f} %) both the model and an answer without the cue contradict "
            "the label. Mend those that are wrong, then audit again.",
            facts.command("audit"),
        )


def _more_rows(facts: Facts) -> Iterator[Advice]:
    if facts.needed:
        wanted = facts.needed
    elif facts.share:
        wanted = math.ceil(rows_for(10, facts.conflicting) / facts.share)  # as many of them contradict
    else:
        wanted = rows_for(10) * facts.classes  # each class is known to ± 10 points
    wanted = about(max(wanted, 2 * facts.held_out))  # as many as there are were too few
    few = "" if facts.n_conflicting is None else f", of which {facts.n_conflicting:,} contradict {facts.shortcut}"
    yield _item(
        f"Hold out about {wanted:,} samples, then audit again",
        f"There are {facts.held_out:,}{few}: too few to tell a shortcut from chance. This is no pass, and no failure.",
        facts.command("audit"),
    )


def _name_column(facts: Facts) -> Iterator[Advice]:
    """What a model may go by and what it must not look alike in a table: somebody has to say it."""
    if facts.columns and facts.source.startswith("csv:"):
        told = ", ".join(f"'{name}' {association:.2f}" for name, association in facts.columns[:AT_MOST])
        first = json.dumps([facts.columns[0][0]], ensure_ascii=False)
        yield _item(
            "Name a column that should not decide",
            f"Only you know which may. Those with few values, by how much they go with the label (of 1): {told}.",
            facts.command("audit", sets=(f"data.attribute={first}",)),
        )


def _name_it(facts: Facts) -> Iterator[Advice]:
    kind = facts.source.partition(":")[0]
    if facts.train_labels or kind not in ("folder", "csv") or (facts.columns and not facts.tested):
        return
    where = "a column of metadata.csv in the folder" if kind == "folder" else "a column of the table"
    how = (
        f"As {where}, such an attribute is tested directly, which takes far fewer samples (put its name for ATTRIBUTE)."
    )
    n = f"{facts.held_out:,} samples"
    if facts.attributes:
        known = ", ".join(f"'{name}'" for name in facts.attributes)
        title = "Write down what else you suspect"
        why = f"Of where, how and by whom these {n} were made, only {known} is written down. {how}"
        wanted = json.dumps([*facts.attributes, "ATTRIBUTE"], ensure_ascii=False)
    else:
        title = "Write down what you suspect"
        why = f"Nothing tells where, how or by whom these {n} were made. {how}"
        wanted = "ATTRIBUTE"
    yield _item(title, why, facts.command("audit", sets=(f"data.attribute={wanted}",)))


def _not_covered(facts: Facts) -> Iterator[Advice]:
    yield from _name_it(facts)
    yield _item(
        "Audit again whenever data or model change",
        f"Nothing was found in these {facts.held_out:,} samples. In CI this command fails as soon as something is.",
        facts.command("audit", "--fail-on", "gap"),
    )
    yield _item(
        "Know what was not covered",
        f"{facts.held_out:,} samples were looked at. A shortcut that hardly any of them contradicts, one "
        "that is none of the attributes and cues tested, and data from elsewhere are not covered.",
    )


def _item(title: str, why: str, command: str | None = None) -> Advice:
    return {"title": title, "why": why, "command": command}


def _span(seconds: float) -> str:
    """Time in words.

    >>> _span(0.2), _span(42), _span(600), _span(20000)
    ('1 s', '42 s', '10 min', '5.6 h')
    """
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{max(1, seconds):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

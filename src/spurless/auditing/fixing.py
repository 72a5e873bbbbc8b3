"""From data to a better model: audit it, train what may repair it, and keep what is better on held-out samples."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spurless.auditing.audit import audit
from spurless.auditing.decisions import Decisions
from spurless.auditing.evidence import Score, share
from spurless.auditing.folder import in_words
from spurless.auditing.model import given, kept_and_held, open_data, split_rows
from spurless.bench.estimate import look
from spurless.core.arguments import takes
from spurless.core.data import Bundle, Split
from spurless.core.errors import DataError, FolderError
from spurless.core.files import atomic
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.data.pseudo import with_attributes
from spurless.methods.crossfit import CrossFit
from spurless.methods.group_inference.experts import learn
from spurless.methods.parts.evidence import Evidence, Sure, chance, shows_shortcut
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import as_named, make_recipe
from spurless.train.device import pick_device
from spurless.train.first_look import is_first_look, quick_training, small_images
from spurless.train.fit import fit as train

if TYPE_CHECKING:
    from collections.abc import Generator

    from spurless.auditing.record import AuditReport
    from spurless.core.method import Run, Stage
    from spurless.nets import Net
    from spurless.train.networks import NetSpec
    from spurless.train.result import Result

FILE = "fix.json"
HELD_OUT = 0.2  # share of the training samples that are held out where there is no validation or no test split
LEVEL = 0.05  # the chance that any candidate replaces a model that is as good
FOR_AUDIT, FOR_PLAIN = 0.3, 0.15  # shares of the budget; candidates take up to 2.5 times what plain training takes
TO_TIME = 5.0  # seconds in which a few steps are timed
LENGTH = "length.json"
# What may repair a model, the bias labels that it needs, and how many times plain training's seconds it takes.
CANDIDATES = {
    "erm": ("none", 0.0),
    "crossfit": ("none", 2.5),  # after plain training, which both share
    "evals": ("none", 0.3),
    "dfr": ("validation", 0.3),
    "group_dro": ("training", 1.3),
    "rs": ("training", 1.1),
}


@dataclass(frozen=True)
class Easy(CrossFit):
    """What is easy: a short training with GCE, whose errors on held-out samples show where the easy misleads."""

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = run.net()
        yield learn(run, "easy", net, torch.arange(len(run.data.train)), self.q, self.share)
        return net


@dataclass
class Tried:
    """A model on held-out samples: those that choose, and those that only tell (`test`)."""

    method: str  # "before": the model as it was
    seconds: float
    score: float  # of the samples that choose, in the world in which the shortcut tells nothing, in percent
    p: float | None  # the chance of so many mended samples, and so few broken ones, by luck
    misleads: Score | None  # accuracy on the test split where the shortcut misleads
    helps: Score | None
    average: Score | None
    labels_used: str = "none"


@dataclass
class Fixed:
    """What came of it. `result.classifier` is the better model; None where the model of before is kept."""

    verdict: str  # better, or keep
    text: str
    chosen: str | None
    known_by: str  # where the shortcut misleads is known by the attribute, or by what is easy
    tried: list[Tried]
    skipped: list[str]
    report: AuditReport
    result: Result | None = None
    folder: str | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As fix.json holds it."""
        own = {k: getattr(self, k) for k in ("verdict", "text", "chosen", "known_by", "skipped", "folder", "notes")}
        audited = {"verdict": self.report.verdict, "headline": self.report.headline}
        return own | {"tried": [asdict(t) for t in self.tried], "audit": audited}


@dataclass(frozen=True)
class FixArguments:
    """What `fix` takes, which describes each."""

    data: Bundle | str | Mapping[str, Any]
    model: nn.Module | str | Path | None = None
    _: KW_ONLY
    budget: float = 20.0
    net: NetSpec | None = None
    recipe: Recipe | Mapping[str, Any] | str | None = None
    seed: int = 0
    out: str | Path | None = None
    device: str | torch.device | None = None
    root: str | Path | None = None
    progress: bool | None = None
    decisions: Decisions | str | Path | None = None


@takes(FixArguments)
def fix(asked: FixArguments) -> Fixed:
    """From data to a better model in so many minutes, or the word that the model is to be kept.

    The data is audited; a model is trained plainly unless one is given; then those methods are trained for which the
    labels and the time suffice. A candidate is chosen by samples that no training has seen: by their known attribute,
    else by what a short training finds easy. It must be right on more samples where that misleads, beyond chance, and
    no worse overall where the shortcut tells nothing. What is reported was measured on the test split, which chooses
    nothing.

    Args:
        data: what to audit and to train on, as in `fit`.
        model: the model to repair: a module, a run's folder or a weights file; else one is trained plainly.
        budget: minutes for everything.
        net: the network, and `recipe` how it is optimised: as in `fit`, which says what `seed`, `device`, `root` and
            `progress` are.
        decisions: of `spurless.review`, or its file: confirmed shortcuts are the known attributes, and what is
            legitimate is not accused.
        out: the repair's folder. An unfinished repair there is resumed; without one nothing is kept.

    >>> fix({"name": "toy", "n": 400}, recipe={"epochs": 2}, device="cpu", progress=False).tried[0].method
    'before'
    """
    return _Fix(asked).run()


class _Fix:
    """One repair, from the data to the better model."""

    def __init__(self, asked: FixArguments):
        self.asked, self.device = asked, pick_device(asked.device)
        self.until = time.monotonic() + 60 * asked.budget
        self.folder = None if asked.out is None else Path(asked.out)
        data, model, net, recipe = as_named(asked.data, asked.root), asked.model, asked.net, asked.recipe
        if self.folder is not None:
            _check_folder(self.folder, in_words({"data": data if not isinstance(data, Bundle) else data.name}))
        first = is_first_look(data, net, recipe, self.device) and model is None
        if first:
            assert isinstance(data, (str, Mapping))
            data = small_images(data)
        told = asked.decisions
        self.decisions = told if isinstance(told, Decisions) or told is None else Decisions.read(told)
        whole = open_data(data, asked.root, model)
        if self.decisions is not None and self.decisions.table is not None:
            whole = with_attributes(whole, self.decisions.table)
        self.data, self.judge, self.notes = held_out(whole, asked.seed)
        if first:
            net, recipe = quick_training(len(self.data.train))
        self.net, self.recipe = self._network(model) if net is None and model is not None else net, recipe

    def _network(self, model: nn.Module | str | Path) -> NetSpec:
        """That of the given model, for the repairs."""
        return model if isinstance(model, nn.Module) else given(model, self.data, None, "test").spec

    def run(self) -> Fixed:
        asked = self.asked
        report = audit(
            self.data, asked.model, self._below("audit"), budget=FOR_AUDIT * asked.budget, seed=asked.seed,
            device=self.device, progress=asked.progress,
            decisions=None if self.decisions is None else replace(self.decisions, path=None),  # attributes are there
        )  # fmt: skip
        self._shorten()
        plain = self._train("erm")
        before = plain if asked.model is None else self._given()
        evidence, misled, known_by = self._evidence()
        base = self._right(before.classifier, self.judge)
        tried = [self._tried("before", before, evidence.score(base), None, misled)]
        skipped: list[str] = []
        results: dict[str, Result] = {}
        for method in self._candidates():
            wanted, left = CANDIDATES[method][1] * plain.seconds, self.until - time.monotonic()
            if wanted > left:
                skipped.append(f"{method}: {wanted:.0f} s wanted, {max(0.0, left):.0f} s left")
                continue
            results[method] = result = plain if method == "erm" else self._train(method)
            if result.status != "done":
                skipped.append(f"{method}: {result.error or result.status}")
                continue
            right = self._right(result.classifier, self.judge)
            p = chance(*_changes(right & evidence.misled, base & evidence.misled))
            tried.append(self._tried(method, result, evidence.score(right), p, misled))
        best = max(tried, key=lambda t: t.score)
        better = best.p is not None and best.p <= LEVEL / max(1, len(tried) - 1)
        fixed = Fixed(
            "better" if better else "keep",
            _text(tried[0], best if better else None, known_by),
            best.method if better else None,
            known_by,
            tried,
            skipped,
            report,
            results[best.method] if better else (None if asked.model is not None else before),
            None if self.folder is None else str(self.folder),
            self.notes,
        )
        self._save(fixed)
        return fixed

    def _shorten(self) -> None:
        """Shorten all trainings where plain training would take more than its share of the budget.

        A repair that is resumed trains as long as it began to.
        """
        recipe = make_recipe(self.recipe, self.data)
        kept = None if self.folder is None else self.folder / LENGTH
        if kept is not None and kept.exists():
            share = float(json.loads(kept.read_text(encoding="utf-8"))["share"])
        else:
            guess = look("erm", self.data, self.net, recipe, self.asked.seed, self.device, TO_TIME)[0]
            share = min(1.0, FOR_PLAIN * 60 * self.asked.budget / max(guess.seconds or 0.0, 1e-9))
            if kept is not None:
                with atomic(kept) as file:
                    file.write_text(json.dumps({"share": share}) + "\n", encoding="utf-8")
        if share < 1:
            shorter = max(1, round(share * recipe.iterations)) if recipe.iterations else 0
            self.recipe = replace(recipe, epochs=share * recipe.epochs, iterations=shorter)
            told = f"To keep to {self.asked.budget:g} minutes, each training has {share:.1%} of the recipe's length."
            log.warning(told)
            self.notes = [*self.notes, told]

    def _given(self) -> Result:
        from spurless.train.result import Result

        audited = given(self.asked.model, self.data, None, "test")
        return Result("given", self.data.name, audited.name, self.asked.seed, "done", classifier=audited.net)

    def _candidates(self) -> Iterator[str]:
        """Methods whose bias labels are there; plain training, where another model is to be repaired."""
        val = self.data.val
        at_hand = {"none", *(["training"] if self.data.train.a is not None else [])}
        at_hand |= {"validation"} if val is not None and val.a is not None else set()
        yield from (
            m for m, (labels, _) in CANDIDATES.items() if labels in at_hand and (m != "erm" or self.asked.model)
        )

    def _train(self, method: Any) -> Result:
        name = method if isinstance(method, str) else type(method).__name__.lower()
        log.info(f"fix: training {name}")
        return train(
            method, self.data, net=self.net, recipe=self.recipe, seed=self.asked.seed,
            device=self.device, out=self._below(name), stages=self._below("stages"), progress=self.asked.progress,
        )  # fmt: skip

    def _evidence(self) -> tuple[Evidence, Tensor, str]:
        """Where the shortcut misleads: in the samples that choose, and in the test split."""
        test = self.data.test
        assert test is not None
        aligned, aligned_in_test = self.data.is_aligned(self.judge), self.data.is_aligned(test)
        if aligned is not None and aligned_in_test is not None:
            misled, in_test = ~aligned.all(1), ~aligned_in_test.all(1)
            p = torch.zeros(len(misled), len(self.data.classes), dtype=torch.double)
            points_to = torch.where(misled, (self.judge.y + 1) % len(self.data.classes), self.judge.y)
            p[torch.arange(len(misled)), points_to] = 1.0  # the attribute speaks for the label, or against it
            return (
                Evidence(p, self.judge.y, Sure(1.0, 0.01)),
                in_test,
                f"the attribute {' and '.join(self.data.attributes)}",
            )
        easy = self._train(Easy())
        p, in_test = (self._answers(easy.classifier, split) for split in (self.judge, test))
        return (
            Evidence(p, self.judge.y, shows_shortcut(p, self.judge.y)),
            in_test.argmax(1) != test.y,
            "what a short training finds easy",
        )

    def _answers(self, net: Net | None, split: Split) -> Tensor:
        assert net is not None
        recipe = Recipe(channels_last=False)
        inputs = Inputs(self.data, recipe, self.device)
        return outputs(net.to(self.device), split, inputs, recipe, self.device).double().softmax(1).cpu()

    def _right(self, net: Net | None, split: Split) -> Tensor:
        return self._answers(net, split).argmax(1) == split.y

    def _tried(self, name: str, result: Result, score: float, p: float | None, misled: Tensor) -> Tried:
        assert self.data.test is not None
        right = self._right(result.classifier, self.data.test)
        misleads, helps, average = (share(right[rows].numpy()) for rows in (misled, ~misled, misled | ~misled))
        return Tried(name, result.seconds, 100 * score, p, misleads, helps, average, result.labels_used)

    def _below(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def _save(self, fixed: Fixed) -> None:
        if self.folder is None:
            return
        from spurless.report.card import card

        with atomic(self.folder / FILE) as file:
            file.write_text(json.dumps(fixed.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        chosen = self.folder / (fixed.chosen or "erm")
        if (chosen / "result.json").exists():
            with atomic(self.folder / "README.md") as file:
                file.write_text(card(chosen), encoding="utf-8")


def held_out(data: Bundle, seed: int) -> tuple[Bundle, Split, list[str]]:
    """The data with a validation and a test split; half of the validation split, which chooses and which no training
    sees; and what was drawn, in words."""
    notes = []
    for name in ("test", "val"):
        if getattr(data, name) is None:
            kept, held = kept_and_held(data.train.y, seed, HELD_OUT)
            if len(held) < 2 * len(data.classes):
                raise DataError(f"{data.name} has too few samples to hold some out; give it a {name} split.")
            splits: Any = {"train": split_rows(data.train, kept), name: split_rows(data.train, held)}
            data = replace(data, **splits)
            notes.append(f"{len(held):,} training samples are the {name} split, because there was none.")
    assert data.val is not None
    mine, judging = kept_and_held(data.val.y, seed + 1, 0.5)
    return replace(data, val=split_rows(data.val, mine)), split_rows(data.val, judging), notes


def _changes(after: Tensor, before: Tensor) -> tuple[int, int]:
    return int((after & ~before).sum()), int((before & ~after).sum())


def _check_folder(folder: Path, asked: Mapping[str, str]) -> None:
    """A folder of a repair of the same data is resumed; anything else is refused."""
    mark = folder / "asked.json"
    if folder.exists() and any(folder.iterdir()):
        if not mark.exists():
            raise FolderError(f"{folder} is not empty and holds no repair. Name another --out folder.")
        if json.loads(mark.read_text(encoding="utf-8")) != dict(asked):
            raise FolderError(f"{folder} holds a repair of other data. Name another --out folder.")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(mark) as file:
        file.write_text(json.dumps(dict(asked)) + "\n", encoding="utf-8")


def _text(before: Tried, best: Tried | None, known_by: str) -> str:
    if best is None:
        return (
            "Keep your model: no candidate is better beyond chance on held-out samples, "
            f"where {known_by} misleads (n = {before.misleads['n'] if before.misleads else 0:,} in the test split)."
        )
    told = [f"{best.method} is better."]
    for where, old, new in (
        (f"Where {known_by} misleads", before.misleads, best.misleads),
        ("Elsewhere", before.helps, best.helps),
    ):
        if old and new:
            told.append(f"{where}: {old['value']:.1f} % right before, {new['value']:.1f} % now (n = {new['n']:,}).")
    return " ".join(told)

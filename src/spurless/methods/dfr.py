"""Retraining the last layer."""

import inspect
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.data import Labels, Split
from spurless.core.errors import UserError
from spurless.core.messages import log
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference import CHOICE, GroupsFrom, are_known, groups_of, infer, labels_for
from spurless.methods.rs import subsample
from spurless.nets import Net

Array = NDArray[np.float64]
Penalty = Literal["l1", "l2"]

STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)  # Waterbirds'; the first of the best is taken
MOST_ITERATIONS = 1000
FEW = 40  # samples: ten for each of four groups


@dataclass(frozen=True)
class DFR(Method):
    """Deep feature reweighting (Kirichenko et al. 2023).  head = mean over resamples of argmin Σ CE + ‖w‖₁ / C

    A network is trained plainly; then its head is replaced by logistic regressions on its standardised features of
    held-out samples, in each of which every group has as many samples as the smallest one.
    """

    bias_labels: ClassVar[Labels] = "validation"

    on: Annotated[Literal["val", "train"], "the split that the head is fitted on"] = "val"
    penalty: Annotated[Penalty, "what keeps the head small: the sum of its absolute weights, or of their squares"] = (
        "l1"
    )
    strength: Annotated[
        float, "C, the inverse of the penalty's weight; 0: by the worst group of half of the samples", Range(0)
    ] = 0
    resamples: Annotated[int, "how many balanced subsets the head is averaged over", Range(1)] = 10
    groups: GroupsFrom = "known"

    @property
    def labels(self) -> Labels:
        return "validation" if are_known(self.groups) and self.on == "val" else labels_for(self.groups)

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        split, group = yield from self._held_out(run)
        net = run.net()
        if net.classes != len(run.data.classes):
            raise UserError(
                f"DFR fits an output for each of the {len(run.data.classes)} classes of {run.data.name}, and the "
                f"network has {net.classes} outputs; give it one with as many."
            )
        yield Stage("erm", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, select=True, shared=PLAIN)
        self._refit(run, net, split, group)
        return net

    def _held_out(self, run: Run) -> Generator[Stage, None, tuple[Split, Tensor]]:
        """The samples that the head is fitted on, and their groups."""
        train, val = run.data.train, run.data.val
        if are_known(self.groups) and self.on == "val":
            assert val is not None  # the engine has seen to it that there are labels
            values = tuple(len(names) for names in run.data.values)
            return val, groups_of(val, values, not run.data.groups_ignore_class)
        groups = yield from infer(run, self.groups)
        if self.on == "train":
            return train, groups.train
        if val is None or groups.val is None:
            how = CHOICE.plain(self.groups, "method.groups")
            log.warning(f"{how} has no groups of validation samples: the head is fitted on training samples.")
            return train, groups.train
        return val, groups.val

    def _refit(self, run: Run, net: Net, split: Split, group: Tensor) -> None:
        missing = set(range(net.classes)) - set(split.y.tolist())
        if missing:
            where = "validation" if split is run.data.val else "training"
            raise UserError(
                f"DFR fits the head on {where} samples, and none of them is of class "
                f"'{run.data.classes[min(missing)]}'; give it samples of every class, or set method.on."
            )
        samples = Samples.of(run.outputs(net, split, features=True), split.y, group, net)
        generator = run.generator("dfr")
        strength = self.strength or pick_strength(samples, self.penalty, generator)
        subsets = [balanced(samples, generator) for _ in range(self.resamples)]
        heads = [fit_head(subset, self.penalty, strength) for subset in subsets]
        _warn_if_odd(heads, len(subsets[0].y), len(split))
        weight, bias = np.mean([h.weight for h in heads], axis=0), np.mean([h.bias for h in heads], axis=0)
        Head(weight, bias).put_into(net)


class Head(NamedTuple):
    """A linear layer on features as they are."""

    weight: Array  # (classes, d)
    bias: Array  # (classes,)
    converged: bool = True

    @torch.no_grad()
    def put_into(self, net: Net) -> None:
        net.head.weight.copy_(torch.from_numpy(self.weight))
        if net.head.bias is not None:
            net.head.bias.copy_(torch.from_numpy(self.bias))

    def right(self, samples: "Samples") -> NDArray[np.bool_]:
        """(n,) Which samples it gets right."""
        predicted = (samples.features @ self.weight.T + self.bias).argmax(1)
        right: NDArray[np.bool_] = predicted == samples.y
        return right


class Samples(NamedTuple):
    """Features of samples, and what standardises them."""

    features: Array  # (n, d) as they are
    y: NDArray[np.int64]  # (n,)
    group: NDArray[np.int64]  # (n,)
    mean: Array  # (d,)
    std: Array  # (d,)
    classes: int
    has_bias: bool  # whether the head may have an intercept

    @classmethod
    def of(cls, features: Tensor, y: Tensor, group: Tensor, net: Net) -> "Samples":
        """Standardised by their own mean and deviation; a head without a bias could not undo the mean."""
        x, has_bias = features.double().cpu().numpy(), net.head.bias is not None
        mean, std = x.mean(0) if has_bias else np.zeros(x.shape[1]), x.std(0)
        # A deviation that is all rounding would blow up where another sample differs.
        std = np.where(std > 1e-6 * np.abs(x).max(0), std, 1.0)
        return cls(x, y.cpu().numpy(), group.cpu().numpy(), mean, std, net.classes, has_bias)

    def pick(self, idx: Tensor) -> "Samples":
        i = idx.numpy()
        return self._replace(features=self.features[i], y=self.y[i], group=self.group[i])


def fit_head(samples: Samples, penalty: Penalty, strength: float, weight: Tensor | None = None) -> Head:
    """The logistic regression of these samples on their standardised features, as a head on features as they are.

    The weights (n,) say how much each sample counts beside the others; None: all alike.

    With more than two classes, one regression for each class against the rest, as the released code's solver had it.
    """
    x = (samples.features - samples.mean) / samples.std
    each = None if weight is None else (weight / weight.mean()).numpy()
    if samples.classes == 2:
        fits = [_logistic(x, samples.y == 1, penalty, strength, samples.has_bias, each)]
        w, b, _ = fits[0]
        w_all, bias = np.stack([-w, w]) / 2, np.array([-b, b]) / 2  # softmax of ±z/2 is the sigmoid of z
    else:
        wanted = range(samples.classes)
        fits = [_logistic(x, samples.y == c, penalty, strength, samples.has_bias, each) for c in wanted]
        w_all, bias = np.stack([w for w, _, _ in fits]), np.array([b for _, b, _ in fits])
    w_all = w_all / samples.std
    return Head(w_all, bias - w_all @ samples.mean, all(fit[2] for fit in fits))


def pick_strength(samples: Samples, penalty: Penalty, generator: torch.Generator) -> float:
    """Fit on a balanced part of one half of the samples; take the C by which the worst group of the other is best."""
    fit_on, judge_on = halves(torch.from_numpy(samples.group), generator)
    half, other = samples.pick(fit_on), samples.pick(judge_on)
    if not len(other.y):
        return STRENGTHS[0]
    subset = balanced(half, generator)
    worst = [worst_group(fit_head(subset, penalty, c).right(other), other.group) for c in STRENGTHS]
    return STRENGTHS[int(np.argmax(worst))]


def balanced(samples: Samples, generator: torch.Generator) -> Samples:
    """A part that has as many samples of every group as the smallest one has, drawn at random.

    Groups that ignore the class are not divided by it: that can spell out what an imperfect partition is to hide.
    So a part may lack a class, and there is nothing to fit then.
    """
    subset = samples.pick(subsample(torch.from_numpy(samples.group), generator))
    if len(np.unique(subset.y)) < samples.classes:
        raise UserError(
            f"DFR drew {len(subset.y)} of {len(samples.y)} samples, balanced by group, and not of every class: "
            "the data's groups ignore the class, and the smallest is small. Give it more samples of that group, or "
            "infer groups within classes (method.groups = eiil)."
        )
    return subset


def halves(group: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers of the samples of two halves, each of which has half of every group; the first one has the odd samples.

    >>> first, second = halves(torch.tensor([5, 5, 5, 0]), torch.Generator())
    >>> len(first), len(second), 3 in first.tolist()
    (3, 1, True)
    """
    shuffled = torch.randperm(len(group), generator=generator)
    by_group = [shuffled[group[shuffled] == g] for g in group.unique()]
    first = torch.cat([members[: -(-len(members) // 2)] for members in by_group])
    second = torch.cat([members[-(-len(members) // 2) :] for members in by_group])
    return first, second


def worst_group(right: NDArray[np.bool_], group: NDArray[np.int64]) -> float:
    """The lowest accuracy of a group.

    >>> worst_group(np.array([True, False, True]), np.array([0, 0, 3]))
    0.5
    """
    return float(min(right[group == g].mean() for g in np.unique(group)))


def _logistic(
    x: Array, y: NDArray[np.bool_], penalty: Penalty, strength: float, bias: bool, weight: Array | None = None
) -> tuple[Array, float, bool]:
    """(d,) weights, the intercept, and whether the solver was done."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # Before scikit-learn 1.8 the choice was a word.
    word = inspect.signature(LogisticRegression).parameters.get("penalty")
    old = word is not None and word.default != "deprecated"
    choice = {"penalty": penalty} if old else {"l1_ratio": float(penalty == "l1")}
    model = LogisticRegression(
        **choice, C=strength, solver="liblinear", fit_intercept=bias, max_iter=MOST_ITERATIONS, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # warned of once for all of them, by _warn_if_odd
        model.fit(x, y, sample_weight=weight)
    return model.coef_[0], float(model.intercept_[0]) if bias else 0.0, bool(model.n_iter_.max() < MOST_ITERATIONS)


def _warn_if_odd(heads: list[Head], kept: int, n: int) -> None:
    if kept < FEW:
        log.warning(
            f"Balanced by group, only {kept} of {n} samples are left to fit the head on: the smallest group is small."
        )
    if not all(head.converged for head in heads):
        log.warning(f"The head did not converge in {MOST_ITERATIONS} iterations; a lower method.strength helps.")
    if not any(head.weight.any() for head in heads):
        log.warning(
            "The penalty has left no weight in the head, which gives every sample the same class: try a higher "
            "method.strength, or method.penalty = l2."
        )

"""Prune a trained run to several sizes, and see what that costs. The run itself is only read.

    rows = prune("runs/erm-toy", keep=[0.5, 0.3], how="magnitude")["rows"]

Each size is saved as weights of the same shape with zeros (`keep-0.30/model.safetensors`, for `spurless evaluate` and
`spurless export`), and measured after its dead channels are cut out.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from spurless.compress.export import classifier_of, folder_name
from spurless.compress.figures import macs, parameters, size_of
from spurless.compress.loading import data_for
from spurless.compress.shrink import Channels, Shrunk, channel_groups, columns_of, shrink, torch_pruning
from spurless.compress.standalone import pack
from spurless.core.data import Bundle, Labels
from spurless.core.errors import FolderError, UserError, one_of, unknown
from spurless.core.files import atomic, finite, from_json, read_bytes
from spurless.core.messages import log
from spurless.core.method import Loss, Method, Run, Stage
from spurless.core.output import claim_folder, default_folder
from spurless.core.settings import Range, build, check, resolve, settings_of
from spurless.core.stats import NOTHING
from spurless.core.tensor_files import header, load_tensors, save_tensors
from spurless.methods.dcwp import DCWP, oversampling
from spurless.methods.parts.pruning import (
    Masks,
    Scores,
    chances,
    hold,
    keep_highest,
    prunable,
    squares,
    variability,
    watching,
    weight_of,
    zero,
)
from spurless.methods.pgd import length
from spurless.metrics.batchnorm import ROWS, BatchNorm, norms, refresher
from spurless.metrics.groups import group_notes
from spurless.nets import Net
from spurless.nets.outputs import Inputs
from spurless.registry import check_installed, make_recipe, saved_method
from spurless.report.tables import score, with_small_n, with_words
from spurless.train.device import pick_device
from spurless.train.fit import fit
from spurless.train.networks import NetSpec, example_of
from spurless.train.run_folder import MODEL
from spurless.train.saved import load_run

if TYPE_CHECKING:
    from rich.console import Group

How = Literal["magnitude", "avp", "random", "dcwp"]
HOWS: tuple[str, ...] = get_args(How)
Objective = Literal["own", "plain"]
CURVE = "prune.json"
UNFINISHED = "unfinished.safetensors"  # until then: the rows so far, and the scores that they were pruned by
WEIGHTS = "run_weights"  # in both files: a hash of the run's weights; folders of before have none
END = 1 - 1e-6  # how far a training is at its last step; not 1, at which what is never to be switched on would be
# Settings of DCWP that `--how dcwp` has no use for, and what to use instead.
NO_USE = {
    "prune": "there is always a mask",
    "reset": "the trained weights are kept",
    "mask.over": "--structured removes channels",
    "mask.layers": "all layers are ranked together",
    "finetune.iterations": "--finetune says how long",
}
METRICS = ("average", "unbiased", "conflicting", "worst_group")


@dataclass(frozen=True)
class PruneTrained(Method):
    """Remove weights or channels of a trained network, and train the others on if asked.

    The scores are found once, for every share that is asked for: they are in `known`.
    """

    bias_labels = "selection"

    how: Annotated[How, "what decides: size, activation variability, chance, or DCWP's learnt mask"] = "magnitude"
    keep: Annotated[
        float, "share of the weights that stays; structured: of the channels of each layer", Range(0, 1)
    ] = 0.3
    structured: Annotated[bool, "remove whole channels, through all layers that share them"] = False
    finetune: Annotated[float, "training afterwards, as a share of the recipe's length; 0: none", Range(0)] = 0.0
    objective: Annotated[
        Objective, "fine-tune as the run was trained, or by plain cross entropy; with dcwp, always DCWP's loss"
    ] = "own"
    batchnorm: Annotated[BatchNorm, "its statistics after pruning: those of training, or anew from training rows"] = (
        "kept"
    )
    dcwp: DCWP = DCWP()
    trained: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    by: Method | None = None  # that trained it
    groups: Sequence[Channels] = ()
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def labels(self) -> Labels:
        return self.by.labels if self.by and self.repeats else self.bias_labels

    @property
    def repeats(self) -> bool:
        """Whether fine-tuning is the run's own training again."""
        return self.finetune > 0 and self.objective == "own" and self.how != "dcwp"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if self.repeats:
            return (yield from self._as_trained(run))
        net = self.classifier(run.net)
        masks = yield from self._prune(run, net)
        if self.finetune:
            changes = {"lr": self.dcwp.finetune.lr} if self.dcwp.finetune.lr else {}
            optimizer = hold(run.optimizer(net, **changes), net, masks)
            conflicting, up = self.known.get("conflicting"), self.dcwp.finetune.up or self.dcwp.mask.up
            yield Stage(
                "finetune",
                self._loss(run, net, conflicting),
                optimizer,
                model=net,
                epochs=self.finetune * length(run),
                sample_weights=None if conflicting is None else oversampling(conflicting, up),
                select=True,
            )
        return net

    def _as_trained(self, run: Run) -> Generator[Stage, None, Net]:
        """The run's method once more; but its last stage goes on from the pruned weights, and is shorter.

        What comes before that stage is trained again, because its outcome (which rows are drawn how often, a second
        network) is not kept with a run. With the run's seed it is the same as then.
        """
        assert self.by is not None
        training = self.by.stages(run)
        stage = next(training)
        while not stage.select:
            yield stage
            stage = next(training)
        net = stage.model
        if not isinstance(net, Net) or net.state_dict().keys() != self.trained.keys():
            raise UserError(
                f"{type(self.by).__name__} trains something else than its classifier, so that its training cannot go "
                "on from the classifier alone: use --objective plain."
            )
        masks = yield from self._prune(run, net)
        optimizers = [optimizer for _, optimizer in stage.updates]
        for optimizer in optimizers:
            # The mask that the method has found this time need not be the run's, whose zeros are in the weights.
            optimizer._optimizer_step_post_hooks.clear()
            hold(optimizer, net, masks)
        yield replace(
            stage,
            loss=[at_the_end(loss) for loss, _ in stage.updates],
            optimizer=optimizers,
            epochs=self.finetune * length(run),
            iterations=None,
            until=False,
            span=(0.0, 1.0),
            shared=None,
        )
        before = {name: net.get_parameter(name).detach().clone() for name in masks}
        net = yield from training  # what is left to do: DFR fits the head anew
        bring_back(net, before)
        zero(net, masks)
        return net

    def _prune(self, run: Run, net: Net) -> Generator[Stage, None, Masks]:
        """Give a network the trained weights, without those that are to go."""
        net.load_state_dict(self.trained)
        if "scores" not in self.known:
            self.known["scores"] = yield from self._scores(run, net)
            net.load_state_dict(self.trained)  # learning a mask moves BatchNorm's statistics
        masks = self.masks(net, self.known["scores"])
        zero(net, masks)
        refresh = refresher(self.batchnorm, lambda: self._rows(run), run.recipe.eval_batch_size)
        if refresh is not None:
            refresh(net)
        return masks

    def _rows(self, run: Run) -> Tensor:
        """Some of the training rows, as a network sees them."""
        train = run.data.train
        idx = torch.randperm(len(train), generator=run.generator("batchnorm"))[:ROWS]
        return Inputs(run.data, run.recipe, run.device)(train[idx].to(run.device))

    def classifier(self, make: Any) -> Net:
        return self.by.classifier(make) if self.by else make()

    def masks(self, net: Net, scores: Scores) -> Masks:
        """What stays. What was zero before stays zero, and is the first to be counted as removed."""
        there = not_zero(net)
        if self.structured:
            found = channel_masks(net, self.groups, scores, self.keep, by_reader=self.how == "avp")
        else:
            found = keep_highest({k: s.masked_fill(~there[k], -math.inf) for k, s in scores.items()}, self.keep)
        return there | {name: mask & there[name] if name in there else mask for name, mask in found.items()}

    def _scores(self, run: Run, net: Net) -> Generator[Stage, None, Scores]:
        if self.how == "magnitude":
            return squares(net)
        if self.how == "random":
            return chances(net, run.generator("prune"), structure="row" if self.structured else "weight")
        if self.how == "avp":
            with watching(net) as moments:
                run.outputs(net)
            return variability(net, moments, units=self.structured)
        return (yield from self._learnt(run, net))

    def _learnt(self, run: Run, net: Net) -> Generator[Stage, None, Scores]:
        """DCWP's logits over the trained weights: the longer a weight stays, the higher."""
        d = self.dcwp
        conflicting = self.known["conflicting"] = yield from d.find_conflicting(run)
        mask = replace(d.mask, over="channel" if self.structured else "weight")
        gates = run.keep(mask.gates(net, d.form))
        yield d.mask_stage(run, net, gates, conflicting)
        found = dict(zip(gates.names, gates.logits, strict=True))
        return {name: found[name].detach().expand(net.get_parameter(name).shape) for name in found}

    def _loss(self, run: Run, net: Net, conflicting: Tensor | None) -> Loss:
        if conflicting is None:
            return lambda b: run.ce(net(b.x), b.y)
        return self.dcwp.finetuning_loss(run, net, conflicting)


def at_the_end(loss: Loss) -> Loss:
    """The loss as it is at the end of a training: what is annealed has long been so when pruned weights train on."""
    return lambda b: loss(b._replace(t=torch.full_like(b.t, END)))


@torch.no_grad()
def bring_back(net: Net, before: Mapping[str, Tensor]) -> None:
    """Undo the changes of parameters that only became zero: a method that prunes after its last stage did it again."""
    for name, was in before.items():
        now = net.get_parameter(name)
        if not bool(now[now != was].any()):
            now.copy_(was)


def not_zero(net: Net) -> Masks:
    """Which weights there are in all layers that could be pruned, and which biases: a mask over channels has both."""
    names = [name for weight in prunable(net) for name in (weight, f"{weight.removesuffix('weight')}bias")]
    return {name: p.detach() != 0 for name, p in net.named_parameters() if name in names}


def channel_masks(net: Net, groups: Sequence[Channels], scores: Scores, keep: float, by_reader: bool = False) -> Masks:
    """Masks that keep this share of the channels of each group, at least one: those of the highest mean score.

    A removed channel loses the weights into it, its biases, and the weights that read it: BatchNorm cannot bring it
    back. `by_reader`: its score is that of the weights that read it, not of those into it.
    """
    masks: Masks = {}

    def mask(name: str) -> Tensor:
        return masks.setdefault(name, torch.ones_like(net.get_parameter(name), dtype=torch.bool))

    for group in groups:
        known = [f"{name}.weight" for name in (group.takers if by_reader else group.makers)]
        known = [name for name in known if name in scores]
        if not known:
            continue
        sides = [scores[name].transpose(0, 1) if by_reader else scores[name] for name in known]
        each = torch.stack([side.reshape(group.size, -1).float().mean(1) for side in sides]).mean(0)  # (size,)
        rows = [weight_of(net.get_submodule(name)).reshape(group.size, -1) for name in group.makers]
        dead = torch.stack([(row == 0).all(1) for row in rows]).all(0)
        each = each.masked_fill(dead, -math.inf)  # or one that is gone already would stay in the place of another
        count = max(1, round(keep * group.size))
        gone = each.argsort(stable=True)[: group.size - count].cpu()
        for name in group.makers:
            mask(f"{name}.weight")[gone] = False
            if getattr(net.get_submodule(name), "bias", None) is not None:
                mask(f"{name}.bias")[gone] = False
        for name in group.takers:
            mask(f"{name}.weight")[:, columns_of(net.get_submodule(name), gone, group.size)] = False
    return masks


def prune(
    run: str | Path,
    keep: Sequence[float] = (0.3,),
    how: str = "magnitude",
    structured: bool = False,
    finetune: float = 0.0,
    out: str | Path | None = None,
    data: Bundle | None = None,
    net: NetSpec | None = None,
    seed: int | None = None,
    device: str | None = None,
    root: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    objective: str = "own",
    batchnorm: str = "kept",
) -> dict[str, Any]:
    """Prune a run to each share, score it, save it, and draw accuracy against size. Returns what prune.json holds.

    `objective`: fine-tune as the run was trained ("own"), or by plain cross entropy ("plain"). `batchnorm`:
    "recomputed" takes its statistics anew after each pruning, from 1000 training rows, before any fine-tuning.
    `settings`: {"recipe": ...} changes the run's recipe for fine-tuning, {"method": ...} sets DCWP's. `data` and `net`:
    needed where the run was made with objects of your own. `seed`: by default the run's.
    """
    if how not in HOWS:
        raise unknown("pruning rule", how, HOWS)
    if objective not in get_args(Objective):
        raise unknown("objective", objective, get_args(Objective))
    one_of("way to treat BatchNorm", batchnorm, get_args(BatchNorm))
    keep = check_shares(keep)
    path, given = Path(run), settings or {}
    if given.get("method") and how != "dcwp":
        raise UserError(f"--set method... is for --how dcwp; {how} has no settings.")
    if structured:
        torch_pruning()
    dcwp = build(DCWP, resolve(DCWP, dict(given.get("method", {})), "method"))
    check_use(given.get("method", {}), finetune)
    if path.is_file():
        raise UserError(f"{run} is a file. Name the folder of a finished run: its settings say what it was trained on.")
    before = load_run(path, net, "cpu")
    seed = before.seed if seed is None else seed
    classifier, facts = classifier_of(path, net)
    trained_on = before.settings["data"]
    named = {"name": trained_on.get("source", trained_on["name"])}
    check_installed("data", named["name"], path)
    bundle = data if data is not None else data_for(path, named, root)
    asked = {"run": str(path), "how": how, "structured": structured, "finetune": finetune, "keep": keep, "seed": seed}
    asked |= {"settings": {k: dict(v) for k, v in given.items() if v}}
    if finetune:
        asked["objective"] = objective
    if batchnorm != "kept":
        asked["batchnorm"] = batchnorm
    words = "prune", folder_name(path), how, "structured" if structured else ""
    folder = Path(out) if out is not None else default_folder(*words, given=asked)
    asked[WEIGHTS] = hashlib.sha256((path / MODEL).read_bytes()).hexdigest()[:16]  # not in the name of the folder
    if found := claim(folder, path, asked):
        return found
    recipe = make_recipe(before.settings["recipe"] | dict(given.get("recipe", {})), bundle)
    example = example_of(bundle)
    groups = channel_groups(copy.deepcopy(classifier), example) if structured else []
    if structured and not groups:
        raise UserError(f"{before.net} has no channels that can be cut; prune single weights, without --structured.")
    spec = fresh(facts["net"]) if net is None else net
    by = saved_method(facts["method"])
    if finetune and objective == "own" and how != "dcwp" and by is None:
        raise UserError(f"{before.method} is not a method of this package: fine-tune with --objective plain.")
    done, known = finished_shares(folder, pick_device(device))

    def one(share: float, shelf: str) -> dict[str, Any]:
        method = PruneTrained(
            how,  # type: ignore[arg-type]
            share,
            structured,
            finetune,
            objective,  # type: ignore[arg-type]
            batchnorm,  # type: ignore[arg-type]
            dcwp,
            classifier.state_dict(),
            by,
            groups,
            known,
        )
        result = fit(method, bundle, net=spec, recipe=recipe, seed=seed, device=device, stages=shelf)
        if result.classifier is None:
            log.warning(f"At {share:g}: {result.error}")
            return {"keep": share, "pruned": True, "error": result.error}
        pruned = result.classifier.cpu().eval()
        save_tensors(folder / f"keep-{share:.2f}" / MODEL, pruned.state_dict(), facts)
        scored = {"scores": result.scores, "n": result.n, "scored_on": result.scored_on}
        return measured(pruned, example, cut(pruned, example)) | {"keep": share, **scored, "pruned": True}

    with tempfile.TemporaryDirectory() as shelf:  # what comes before the fine-tuning is trained once for all shares
        for share in keep[len(done) :]:
            try:
                done.append(one(share, shelf))
            except KeyboardInterrupt:
                raise KeyboardInterrupt(how_to_go_on(len(done), len(keep), folder)) from None
            keep_finished(folder, asked, done, known)
    whole = {"keep": 1.0, "scores": before.scores, "n": before.n, "pruned": False}
    rows = [measured(classifier, example, None) | whole, *done]
    curve = asked | {"data": bundle.name, "net": before.net, "method": before.method, "rows": rows}
    of_groups = (group_notes(row["scores"], before.scored_on) for row in rows if row.get("scores"))
    curve["notes"] = [*notes(curve, bool(norms(classifier))), *dict.fromkeys(note for own in of_groups for note in own)]
    draw(curve, folder)
    with atomic(folder / CURVE) as part:
        part.write_text(json.dumps(finite(curve), indent=1) + "\n", encoding="utf-8")
    (folder / UNFINISHED).unlink(missing_ok=True)
    return curve | {"folder": str(folder)}


def check_shares(keep: Sequence[float]) -> list[float]:
    """In falling order, each once, with a name of its own.

    >>> check_shares([0.3, 0.5, 0.3])
    [0.5, 0.3]
    """
    shares = sorted({round(float(k), 2) for k in keep}, reverse=True)
    exact = all(math.isclose(k, round(float(k), 2)) for k in keep)  # 0.1 + 0.2 is 0.3
    if not shares or not exact or not all(0 < k <= 1 for k in shares):
        raise UserError("--keep takes shares above 0 and up to 1, to two decimals, such as --keep 0.5 --keep 0.3.")
    return shares


def check_use(method: Mapping[str, Any], finetune: float) -> None:
    """Refuse settings of DCWP that would change nothing."""
    known = settings_of(DCWP)
    for name in check(known, method, "method", now={}):
        path = known[name].path
        if path in NO_USE:
            raise UserError(f"method.{path} has no effect when a trained run is pruned: {NO_USE[path]}.")
        if path.startswith("finetune.") and not finetune:
            raise UserError(f"method.{path} has no effect without fine-tuning: add --finetune.")


def _is_curve(saved: Mapping[str, Any]) -> bool:
    """Whether a file holds what is printed of a pruning."""
    rows, sizes = saved.get("rows"), ("weights_percent", "parameters", "macs")
    if not isinstance(rows, list) or not isinstance(saved.get("notes"), list):
        return False
    return all(
        isinstance(row, dict)
        and isinstance(row.get("keep"), (int, float))
        and (row.get("error") or all(isinstance(row.get(name), (int, float)) for name in sizes))
        for row in rows
    )


def claim(folder: Path, run: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the folder holds if it was asked the same before; refuse a folder with anything else."""
    if folder.resolve() == run.resolve():
        raise UserError("--out is the run's own folder, which is never changed; name another one.")
    curve, unfinished = folder / CURVE, folder / UNFINISHED
    if curve.exists() or unfinished.exists():
        try:
            saved = from_json(read_bytes(curve)) if curve.exists() else header(unfinished)
        except ValueError:
            saved = None
        if not isinstance(saved, dict) or (curve.exists() and not _is_curve(saved)):
            raise FolderError(f"{curve} is damaged: remove it, and the pruning is done again.")
        wanted = {"batchnorm": None} | json.loads(json.dumps(asked))  # not named: kept
        other = ", ".join(k for k in wanted if saved.get(k) != wanted[k] and (k != WEIGHTS or k in saved))
        if other == WEIGHTS:
            raise UserError(
                f"{folder} holds a pruning of {run} as it was before it was trained anew. Name another --out folder, "
                "or remove this one."
            )
        if not other:
            return saved | {"folder": str(folder)} if curve.exists() else None
        raise UserError(
            f"{folder} holds a pruning with other settings ({other}). Name another --out folder, or remove this one."
        )
    claim_folder(folder, "pruning", [CURVE, UNFINISHED], leftovers=["keep-*"])
    return None


def finished_shares(folder: Path, device: torch.device) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the shares that an interrupted pruning had finished, and what it knew then."""
    if not (folder / UNFINISHED).exists():
        return [], {}
    tensors, facts = load_tensors(folder / UNFINISHED)
    tensors = {name: t.to(device) for name, t in tensors.items()}
    known: dict[str, Any] = {name: t for name, t in tensors.items() if not name.startswith("scores.")}
    if scores := {k.removeprefix("scores."): t for k, t in tensors.items() if k.startswith("scores.")}:
        known["scores"] = scores
    return facts["rows"], known


def keep_finished(
    folder: Path, asked: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], known: Mapping[str, Any]
) -> None:
    """What the shares to come need in order to turn out the same if they are pruned another time."""
    tensors = {name: t for name, t in known.items() if name != "scores"}
    tensors |= {f"scores.{name}": t for name, t in known.get("scores", {}).items()}
    save_tensors(folder / UNFINISHED, tensors, {**asked, "rows": finite(rows)})


def how_to_go_on(done: int, of: int, folder: Path) -> str:
    if not done:
        return "No share was finished, so nothing is kept: the same command begins anew."
    return f"{done} of {of} shares are finished and kept in {folder}: the same command goes on with the next."


def fresh(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The network of a run without the weights that it started from, which need not be here."""
    return {k: v for k, v in spec.items() if k not in ("pretrained", "weights")}


def cut(net: Net, example: Tensor) -> Shrunk | None:
    """Without its dead channels; None where the package for that is missing."""
    try:
        return shrink(net, example)
    except UserError as error:
        log.warning(f"Dead channels are not cut out. {error}")
        return None


def measured(net: Net, example: Tensor, small: Shrunk | None) -> dict[str, Any]:
    """The sizes of a pruned network: what is stored and computed, and how much of it is zeros."""
    real = net if small is None else small.net
    weights = [net.get_parameter(name).detach() for name in prunable(net)]
    there, of = sum(int((w != 0).sum()) for w in weights), sum(w.numel() for w in weights)
    packed = pack({name: t.contiguous() for name, t in real.state_dict().items()})
    return {
        "weights_percent": 100 * there / of,  # that are not zero
        "parameters": parameters(real),
        "macs": macs(real, example[:1]),
        "bytes": size_of(real),
        "compressed_bytes": sum(t.nbytes for t in packed.values()),
        "channels_removed": small.channels if small else 0,
        "difference": small.difference if small else 0.0,
    }


def notes(curve: Mapping[str, Any], normalised: bool) -> list[str]:
    """What a reader must know; `normalised`: the network has BatchNorm."""
    told = []
    if not curve["structured"]:
        told.append(
            "Single weights were removed: the compressed file is smaller, but dense kernels multiply by zeros all the "
            "same, so only channels that died as a whole save time. --structured removes channels."
        )
    if not normalised and "batchnorm" in curve:
        told.append("The network has no BatchNorm, so that there were no statistics to take anew.")
    if normalised and not curve["finetune"] and "batchnorm" not in curve:
        told.append(
            "BatchNorm's statistics are still those of the whole network, which may cost accuracy: --batchnorm "
            "recomputed takes them anew, without training."
        )
    if curve.get("objective") == "plain" and curve["how"] != "dcwp":
        told.append("Fine-tuning was by plain cross entropy on the training rows, which can bring a shortcut back.")
    return told


def draw(curve: Mapping[str, Any], folder: Path) -> None:
    """Accuracy against size, as curve.png and curve.svg."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in curve["rows"] if row.get("scores")]
    size, label = ("parameters", "parameters") if curve["structured"] else ("weights_percent", "weights left, %")
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for metric in METRICS:
        points = [(row[size], s) for row in rows if (s := score(row, metric))]
        if not points:
            continue
        xs, ys = [x for x, _ in points], [s.value for _, s in points]
        (line,) = axes.plot(xs, ys, marker="o", markersize=4, label=metric.replace("_", " "))
        if all(s.low is not None for _, s in points):
            low, high = [s.low for _, s in points], [s.high for _, s in points]
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)  # type: ignore[arg-type]
    axes.set(xscale="log", xlabel=label, ylabel="accuracy, %", ylim=(0, 101))
    title = f"{curve['method']} on {curve['data']}, pruned by {curve['how']}"
    axes.set_title(title, fontsize=9, parse_math=False)  # a name with dollars is no formula
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "spurless"}):
        for kind in ("png", "svg"):
            with atomic(folder / f"curve.{kind}") as part:
                figure.savefig(part, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def table(curve: Mapping[str, Any]) -> Group:
    """The curve for a terminal of 80 columns, with the notes below it."""
    from rich import box
    from rich.table import Table

    rows = curve["rows"]
    shown = [m for m in METRICS if any(score(row, m) for row in rows)]
    failed = [f"At {row['keep']:.2f}: {row['error']}" for row in rows if row.get("error")]
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("keep", "weights", "parameters", "MACs", *(m.replace("_", "\n") for m in shown)):
        found.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        sizes = [NOTHING] * 3
        if not row.get("error"):
            sizes = [f"{row['weights_percent']:.1f}%", f"{row['parameters']:,}", f"{row['macs']:,}"]
        values = [with_small_n(f"{s.value:.1f}", row, m) if (s := score(row, m)) else NOTHING for m in shown]
        found.add_row(f"{row['keep']:.2f}", *sizes, *values)
    return with_words(found, [*failed, *curve["notes"]])

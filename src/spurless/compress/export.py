"""A trained network as files that need nothing of Spurless, smaller where channels are dead, and measured.

What is written into the folder:

    model.safetensors, architecture.json, load.py   weights, layers, and a short script that makes a module of them
    model.sparse.safetensors                        the weights without their zeros, where that is smaller
    model.pt2                                       torch.export
    model.onnx                                      ONNX, compared with PyTorch in onnxruntime
    report.json                                     sizes, operations and times before and after

Every file is read back, and its logits are compared, before the folder counts as written.
"""

from __future__ import annotations

import copy
import inspect
import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from spurless.compress import standalone
from spurless.compress.figures import BATCHES, latency, macs, notes, pair, parameters, size_of
from spurless.compress.shrink import NotTheSame, Shrunk, allowed, probes, shrink
from spurless.core.errors import DataError, FolderError, UserError, one_of
from spurless.core.extras import check_extra, missing
from spurless.core.files import atomic, finite, from_json, read_bytes
from spurless.core.output import claim_folder, default_folder
from spurless.core.tensor_files import load_tensors, of_bytes, save_tensors
from spurless.methods.parts.pruning import sparsity
from spurless.nets import BatchNorm2d, Dropout, Net
from spurless.train.networks import NetSpec
from spurless.train.run_folder import MODEL
from spurless.train.saved import load_classifier, load_run

Format = Literal["plain", "torch", "onnx"]
CODED = (
    "as `coding` says, column after column: of numbers (value - mean) / std, the median for a missing one, then 1 "
    "where it was missing if `marked` (without a mean only this); of words one number for each of `values`, 1 for the "
    "row's own and 0 for the others, and one more for all other values if `other`"
)
RAW = "bytes, uint8 from 0 to 255, of this shape: the network scales and standardises them itself"
FORMATS: tuple[str, ...] = get_args(Format)
UNFINISHED = ".unfinished-"  # begins the name of the folder that an export is written in
TORCHVISION = {"resnet18": "fc", "resnet50": "fc", "wide_resnet101_2": "fc", "swin_t": "head"}  # and their heads
ARCHITECTURE, LOADER, SPARSE, PT2, ONNX, REPORT = (
    *("architecture.json", "load.py", "model.sparse.safetensors"),
    *("model.pt2", "model.onnx", "report.json"),
)


def export(
    model: str | Path,
    out: str | Path | None = None,
    formats: Sequence[str] | None = None,
    cut: bool = True,
    net: NetSpec | None = None,
    repeats: int = 15,
    with_preprocessing: bool = False,
) -> dict[str, Any]:
    """Export the classifier of a run's folder or weights file, and return the report.

    `formats`: of plain, torch and onnx; by default all that can be written here. `cut`: remove dead channels. `net`: a
    network of your own, which a run's folder does not hold. `repeats`: how often each time is measured.
    `with_preprocessing`: the files take images as raw bytes, uint8 (n, c, h, w).
    """
    for name in formats or ():
        one_of("format", name, FORMATS)
    if formats and "onnx" in formats:
        check_extra("ONNX", "export", "onnx", "onnxscript", "onnxruntime")
    classifier, facts = classifier_of(model, net)
    if facts.get("tokenizer"):
        raise UserError(f"{model} reads text, and only networks that read pictures or numbers are exported.")
    if with_preprocessing and not of_bytes(facts):
        raise UserError(f"{model} does not read images, so that it has no preprocessing of bytes to export.")
    folder = Path(out) if out is not None else default_folder("export", folder_name(model))
    taken = claim_folder(folder, "export", [REPORT]) and out is None
    if taken and (other := exported(folder)) and home(other) != home(model):
        raise FolderError(f"{folder} holds the export of {other}, a model of the same name. Name another --out folder.")
    shape = tuple(facts["shape"])
    example = probes(torch.zeros(2, *shape))[1][:2]
    before = classifier.cpu().eval()
    small = shrink(before, example) if cut and sparsity(before) else Shrunk(copy.deepcopy(before), {}, [], 0.0)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left)
    # In a folder of its own until all is measured: an export that fails or is killed leaves the one before it whole.
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder) as scratch:
        made = Path(scratch)
        checks = write(small.net, made, formats or FORMATS, example, facts, with_preprocessing)
        report = {
            "model": str(model),
            "net": facts["net"].get("name"),
            "parameters": pair(before, small.net, parameters),
            "weights_that_are_zero_percent": pair(before, small.net, lambda n: round(sparsity(n), 2)),
            "macs": pair(before, small.net, lambda n: macs(n, example[:1])),
            "bytes": pair(before, small.net, lambda n: size_of(n)),
            "latency_ms": latency({"before": before, "after": small.net}, shape, BATCHES, repeats),
            "channels_removed": small.removed,
            "kept": small.kept,
            "difference": small.difference,
            "checks": checks,
            "notes": [],
        }
        report["bytes"]["compressed"] = (made / SPARSE).stat().st_size if (made / SPARSE).exists() else None
        report["notes"] = notes(report)
        with atomic(made / REPORT) as unfinished:
            unfinished.write_text(json.dumps(finite(report), indent=1) + "\n", encoding="utf-8")
        _put(made, folder)
    return report | {"folder": str(folder)}


def exported(folder: Path) -> str | None:
    """Of what a folder holds the export, where that can be read."""
    try:
        report = from_json(read_bytes(folder / REPORT))
        return str(report["model"])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def home(model: str | Path) -> Path:
    """A run's folder, whether it was named or the weights file in it."""
    path = Path(model).resolve()
    return path.parent if path.name == MODEL else path


def _put(made: Path, folder: Path) -> None:
    """Move the files of an export to where they are to be, replacing those of an earlier one."""
    for name in (MODEL, ARCHITECTURE, LOADER, SPARSE, PT2, ONNX, REPORT):  # the report last
        if (made / name).exists():
            (made / name).replace(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def classifier_of(model: str | Path, net: NetSpec | None = None) -> tuple[Net, dict[str, Any]]:
    """The classifier of a run's folder or weights file, and what the file says about it."""
    path = Path(model)
    if not path.exists():
        raise UserError(f"{model} is neither a run's folder nor a weights file.")
    classifier = load_run(path, net, "cpu").classifier if path.is_dir() else load_classifier(path, net, "cpu")
    if classifier is None:
        raise UserError(f"The run in {model} diverged: there is no classifier.")
    return classifier, load_tensors(path / MODEL if path.is_dir() else path)[1]


def folder_name(model: str | Path) -> str:
    """A short name for what a path leads to: the run's, not that of the file in it; of a pruned one with its size.

    >>> folder_name("runs/erm-toy/model.safetensors"), folder_name("runs/erm-toy/")
    ('erm-toy', 'erm-toy')
    >>> folder_name("runs/prune-erm-toy-magnitude-5dad99a1/keep-0.30/model.safetensors")
    'prune-erm-toy-magnitude-5dad99a1-keep-0.30'
    """
    path = Path(model)
    path = path.parent if path.name == MODEL else path
    if path.name.startswith("keep-"):  # many prunings have one of this name
        return f"{path.resolve().parent.name}-{path.name}"
    return (path.resolve() if path.name in ("", ".", "..") else path).name.removesuffix(".safetensors")


# The files


def write(
    net: nn.Module,
    folder: Path,
    formats: Sequence[str],
    example: Tensor,
    facts: Mapping[str, Any],
    with_preprocessing: bool = False,
) -> dict[str, Any]:
    """Write a network in these formats; by format, the largest difference of a logit when it is read back."""
    inputs, whole = probes(example), net
    about = metadata(facts, with_preprocessing)
    if with_preprocessing:
        inputs = [(x.sigmoid() * 255).to(torch.uint8) for x in inputs]
        whole = standalone.Preprocessed(net, about["mean"], about["std"]).eval()
    checks: dict[str, Any] = {}
    if "plain" in formats:
        checks |= write_plain(net, folder, inputs, facts, with_preprocessing)
    if "torch" in formats or "onnx" in formats:
        program = traced(whole, inputs[-1][:2])
        if "torch" in formats:
            checks["torch"] = write_torch(whole, program, folder, inputs, about)
        if "onnx" in formats:
            checks["onnx"] = write_onnx(whole, program, folder, inputs, about)
    with torch.no_grad():
        limit = allowed(torch.cat([whole(x) for x in inputs]))
    for name, check in checks.items():
        if isinstance(check, float) and not check < limit:
            raise NotTheSame(f"The file for {name} gives logits that differ by {check:.3g}, more than {limit:.3g}.")
    return checks


def metadata(facts: Mapping[str, Any], with_preprocessing: bool = False) -> dict[str, Any]:
    """What every file says of the network: its classes, and what it takes."""
    facts_kept = {k: facts[k] for k in ("shape", "classes", "mean", "std", "coding") if k in facts}
    if with_preprocessing:
        return {"mean": [], "std": []} | facts_kept | {"scaled": RAW, "preprocessing": True}
    scaled = CODED if "coding" in facts else "0 to 1" if of_bytes(facts) else "as it is"
    scaled += ", then (x - mean) / std" if facts.get("mean") else ""
    return facts_kept | {"scaled": scaled, "preprocessing": False}


def write_plain(
    net: nn.Module, folder: Path, inputs: list[Tensor], facts: Mapping[str, Any], with_preprocessing: bool = False
) -> dict[str, Any]:
    module, architecture = plain(net, str(facts["net"].get("name")))
    about = architecture["input"] = metadata(facts, with_preprocessing)
    state = module.state_dict()
    save_tensors(folder / MODEL, state, {})
    with atomic(folder / ARCHITECTURE) as unfinished:
        unfinished.write_text(json.dumps(architecture, indent=1) + "\n", encoding="utf-8")
    with atomic(folder / LOADER) as unfinished:
        shutil.copyfile(standalone.__file__, unfinished)
    save_tensors(folder / SPARSE, standalone.pack({name: t.contiguous() for name, t in state.items()}), {})
    smaller = (folder / SPARSE).stat().st_size < 0.95 * (folder / MODEL).stat().st_size
    if not smaller:
        (folder / SPARSE).unlink()
    if architecture["base"] is None:
        return {"plain": f"weights only: {architecture['why']}"}
    whole = standalone.Preprocessed(net, about["mean"], about["std"]) if with_preprocessing else net
    checks = {"plain": differ(whole, standalone.load(folder), inputs)}
    return checks | ({"compressed": differ(whole, standalone.load(folder, compressed=True), inputs)} if smaller else {})


def plain(net: nn.Module, name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network as torch's or torchvision's own module, and its description for `standalone.build`."""
    if isinstance(net, Net) and (layers := in_a_row(net.encoder)) is not None:
        row = nn.Sequential(*layers, nn.Flatten(), net.head)
        # Not named_children(): it leaves out a layer that is there a second time.
        return row, {"base": "sequential", "layers": [[n, *described(layer)] for n, layer in row._modules.items()]}
    if isinstance(net, Net) and name in TORCHVISION:
        from torchvision import models

        original = models.get_model(name, weights=None, num_classes=net.classes)
        if type(net.encoder) is type(original):  # a method may have made something else of it (DisEnt)
            module = copy.deepcopy(net.encoder)
            setattr(module, TORCHVISION[name], net.head)
            usual = dict(original.named_modules())
            leaves = [(n, child) for n, child in module.named_modules() if not any(child.children())]
            other = [(n, described(child)) for n, child in leaves if type(child).__module__.startswith("torch.nn")]
            changed = [[n, *is_] for n, is_ in other if n not in usual or is_ != described(usual[n])]
            return module, {"base": name, "outputs": net.classes, "layers": changed}
    return net, {"base": None, "why": f"{name} is made of layers that are neither torch's nor torchvision's alone."}


def in_a_row(encoder: nn.Module) -> list[nn.Module] | None:
    """The layers of a network that is nothing but torch's own layers, one after the other; None for another."""
    if isinstance(encoder, Dropout):
        return [nn.Dropout(encoder.p)]
    if isinstance(encoder, BatchNorm2d):
        return [encoder.plain()]
    if type(encoder) is nn.Sequential:
        parts = [in_a_row(child) for child in encoder]
        return None if any(p is None for p in parts) else [layer for p in parts for layer in p or []]
    # A hook may make the weight of a layer from other tensors, as nn.utils.spectral_norm does.
    bare = not any(encoder.children()) and not encoder._forward_pre_hooks
    return [encoder] if bare and type(encoder).__module__.startswith("torch.nn.modules") else None


def described(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """The class of a layer, and the settings that are not the usual ones.

    >>> described(nn.Linear(2, 3, bias=False))
    ('Linear', {'in_features': 2, 'out_features': 3, 'bias': False})
    """
    settings = {}
    for name, p in inspect.signature(type(layer).__init__).parameters.items():
        if (
            name in ("self", "device", "dtype")
            or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            or not hasattr(layer, name)
        ):
            continue
        value = getattr(layer, name)
        if name == "bias":
            value = value is not None
        value = list(value) if isinstance(value, (tuple, torch.Size)) else value
        if value != p.default:
            settings[name] = value
    return type(layer).__name__, settings


def traced(net: nn.Module, example: Tensor) -> Any:
    with quiet():
        return torch.export.export(net.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))


def write_torch(net: nn.Module, program: Any, folder: Path, inputs: list[Tensor], about: Mapping[str, Any]) -> float:
    with quiet():
        with atomic(folder / PT2) as unfinished, tempfile.TemporaryDirectory() as near:
            # It wants this ending.
            torch.export.save(program, Path(near) / PT2, extra_files={standalone.METADATA: json.dumps(about)})
            shutil.copyfile(Path(near) / PT2, unfinished)
        return differ(net, torch.export.load(folder / PT2).module(), inputs)


def write_onnx(
    net: nn.Module, program: Any, folder: Path, inputs: list[Tensor], about: Mapping[str, Any]
) -> float | str:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        return f"skipped: {missing('ONNX', 'export')}"
    with quiet():
        made = torch.onnx.export(program, input_names=["x"], output_names=["logits"], verbose=False)
        assert made is not None
        made.model.metadata_props.update({name: json.dumps(value) for name, value in about.items()})
        with atomic(folder / ONNX) as unfinished:
            made.save(unfinished, external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / ONNX), options, providers=["CPUExecutionProvider"])
    return differ(net, lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), inputs)


@torch.no_grad()
def differ(net: nn.Module, other: Any, inputs: list[Tensor]) -> float:
    """The largest difference of a logit, for batches of several sizes."""
    return max(float((net(x) - other(x)).abs().max()) for x in [*inputs, inputs[-1][:1]])


class quiet(warnings.catch_warnings):  # noqa: N801 (used like a function)
    """No warnings and nothing printed: exporters talk of their own future."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
        self._out = redirect_stdout(StringIO())
        self._out.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._out.__exit__(*error)
        super().__exit__(*error)

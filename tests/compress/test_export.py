"""Exported files say what the network says, and need nothing of Spurless."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from spurless.compress import export as exporting
from spurless.compress import standalone
from spurless.compress.export import export, in_a_row, plain
from spurless.compress.figures import latency, lines, macs
from spurless.compress.shrink import NotTheSame
from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.core.tensor_files import save_tensors
from spurless.methods.parts.pruning import keep_highest, squares, zero
from spurless.nets import Net, build
from spurless.registry import make_method

MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (extra: export)")
needs_pruning = pytest.mark.skipif(
    importlib.util.find_spec("torch_pruning") is None, reason="needs torch-pruning (extra: export)"
)


def weights_file(folder, net, spec, shape):
    facts = {"net": spec, "method": {"name": "erm"}, "data": "pictures", "shape": shape, "classes": ["a", "b", "c"]}
    file = folder / "model.safetensors"
    save_tensors(file, net.state_dict(), facts | {"mean": [0.5], "std": [0.2], "precision": "fp32"})
    return file


@pytest.fixture
def masked(tmp_path):
    """A conv3 with dead rows and with zeros at single places, as a weights file."""
    net = build("conv3", (1, 8, 8), 3).eval()
    with torch.no_grad():
        net.encoder[3].weight[:64] = 0
    zero(net, keep_highest(squares(net), 0.3))
    return net, weights_file(tmp_path, net, {"name": "conv3"}, (1, 8, 8))


def loader(folder):
    spec = importlib.util.spec_from_file_location("exported_load", folder / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load


@needs_pruning
def test_plain_and_torch_files(masked, tmp_path):
    net, file = masked
    report = export(file, tmp_path / "out", ["plain", "torch"], repeats=2)
    x = torch.randn(3, 1, 8, 8)
    load = loader(tmp_path / "out")
    with torch.no_grad():
        for found in (load(tmp_path / "out"), load(tmp_path / "out", compressed=True)):
            assert type(found) is nn.Sequential
            assert (found(x) - net(x)).abs().max() < 1e-4
        program = torch.export.load(tmp_path / "out" / "model.pt2").module()
        assert (program(x) - net(x)).abs().max() < 1e-4
    assert report["channels_removed"]["encoder.3"] >= 60
    assert report["parameters"]["after"] == sum(p.numel() for p in load(tmp_path / "out").parameters())
    assert report["macs"]["after"] < report["macs"]["before"]
    sizes = report["bytes"]
    assert sizes["compressed"] < sizes["after"] < sizes["before"]
    assert abs((tmp_path / "out" / "model.safetensors").stat().st_size - sizes["after"]) < 1000  # but for names
    assert set(report["latency_ms"]) == {"1", "64"} and report["latency_ms"]["64"]["after"] > 0
    assert any("do not make the network faster" in note for note in report["notes"])
    assert report["weights_that_are_zero_percent"]["before"] == pytest.approx(70, abs=0.1)
    assert ["zeros,", "%", "70.0"] in [line.split()[:3] for line in lines(report)]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["difference"] < 1e-4
    assert json.loads((tmp_path / "out" / "architecture.json").read_text())["input"]["mean"] == [0.5]


@needs_onnx
def test_onnx(tmp_path):
    import onnxruntime

    net = build({"name": "mlp", "widths": [4]}, (3,), 3).eval()
    export(weights_file(tmp_path, net, {"name": "mlp", "widths": [4]}, (3,)), tmp_path / "out", ["onnx"], repeats=1)
    x = torch.randn(7, 3)
    (found,) = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx").run(None, {"x": x.numpy()})
    with torch.no_grad():
        assert (torch.from_numpy(found) - net(x)).abs().max() < 1e-4


def agree_on_ten_photographs(photographs, tmp_path):
    """The files of one network, given bytes, against the network itself, given what it was trained on."""
    import numpy as np
    from PIL import Image

    images = np.stack([np.asarray(Image.open(file).convert("RGB").resize((32, 32))) for file in photographs])
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()  # (10, 3, 32, 32) uint8
    assert len(x) == 10 and x.float().std() > 5
    net = build("simconv1", (3, 32, 32), 3).train()
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    prepared = (x.double() / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.no_grad():
        net(prepared.float())  # statistics of BatchNorm that are not the first ones
        expected = net.eval().double()(prepared).float()
    facts = {"net": {"name": "simconv1"}, "method": {"name": "erm"}, "data": "photographs", "shape": (3, 32, 32)}
    facts |= {"classes": ["a", "b", "c"], "mean": mean.tolist(), "std": std.tolist(), "precision": "fp32"}
    save_tensors(tmp_path / "model.safetensors", net.float().state_dict(), facts)
    out = tmp_path / "out"
    report = export(tmp_path / "model.safetensors", out, repeats=1, with_preprocessing=True)
    assert set(report["checks"]) >= {"plain", "torch", "onnx"}
    for path in (out, out / "model.pt2", out / "model.onnx"):
        with torch.no_grad():
            assert (standalone.load(path)(x) - expected).abs().max() < 1e-4 * max(1, expected.abs().max())
        said = standalone.describe(path)
        assert said["classes"] == ["a", "b", "c"] and said["shape"] == [3, 32, 32] and said["preprocessing"] is True
        assert said["mean"] == mean.tolist() and said["std"] == std.tolist() and "uint8" in said["scaled"]


@needs_onnx
def test_every_format_takes_the_bytes_of_ten_drawn_pictures_from_files(tmp_path):
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    files = [tmp_path / f"{k}.png" for k in range(10)]
    for file in files:
        small = torch.randint(0, 256, (5, 7, 3), dtype=torch.uint8, generator=generator).numpy()
        Image.fromarray(small).resize((90, 60)).save(file)
    agree_on_ten_photographs(files, tmp_path)


@needs_onnx
@pytest.mark.data("BAR")
def test_every_format_takes_the_bytes_of_ten_photographs(tmp_path):
    agree_on_ten_photographs(sorted((data_root() / "BAR").rglob("*.jpg"))[:10], tmp_path)


@needs_onnx
def test_files_say_what_they_take_without_preprocessing(tmp_path):
    net = build({"name": "mlp", "widths": [4]}, (3,), 3).eval()
    file = weights_file(tmp_path, net, {"name": "mlp", "widths": [4]}, (3,))
    export(file, tmp_path / "out", repeats=1)
    said = [standalone.describe(tmp_path / "out" / name) for name in (".", "model.pt2", "model.onnx")]
    assert said[0] == said[1] == said[2] and said[0]["classes"] == ["a", "b", "c"] and not said[0]["preprocessing"]
    with pytest.raises(UserError, match="does not read images"):
        export(file, tmp_path / "raw", repeats=1, with_preprocessing=True)


@needs_onnx
def test_large_logits_may_differ_by_rounding(tmp_path):
    """Networks that were trained say hundreds on noise, where float32 itself is coarser than 1e-4."""
    net = build("conv3", (3, 28, 28), 10).eval()
    with torch.no_grad():
        net.head.weight.mul_(1e6)
    checks = exporting.write(net, tmp_path, ["onnx"], torch.randn(2, 3, 28, 28), {"net": {"name": "conv3"}})
    assert checks["onnx"] > 1e-4


def test_onnx_is_skipped_by_name(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = exporting.write_onnx(nn.Linear(2, 2), None, tmp_path, [], {})
    assert told.startswith("skipped") and "spurless[export]" in told


def test_the_loader_imports_nothing_of_spurless():
    tree = ast.parse(Path(standalone.__file__).read_text(encoding="utf-8"))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    usual = {"json", "pathlib", "collections", "typing"}
    assert {name.split(".")[0] for name in names} <= usual | {"torch", "safetensors", "torchvision", "onnxruntime"}


@pytest.mark.parametrize(
    ("shape", "mean", "more", "told"),
    [
        ((3, 4, 4), [0.5] * 3, {}, "0 to 1, then (x - mean) / std"),
        ((3, 4, 4), [], {"bytes": True}, "0 to 1"),
        ((3, 4, 4), [], {"bytes": False}, "as it is"),
        ((5,), [], {}, "as it is"),
    ],
)
def test_it_is_said_what_the_network_wants_to_see(shape, mean, more, told, tmp_path):
    facts = {"net": {"name": "linear"}, "shape": shape, "mean": mean, "std": mean} | more
    exporting.write_plain(build("linear", shape, 3), tmp_path, [torch.randn(2, *shape)], facts)
    assert json.loads((tmp_path / "architecture.json").read_text())["input"]["scaled"] == told


def test_torchvision_names_and_changed_layers():
    from torchvision import models

    net = build({"name": "resnet18", "stem": "small"}, (3, 8, 8), 3)
    net.encoder.layer4[1].conv1 = nn.Conv2d(512, 7, 3, padding=1, bias=False)
    module, architecture = plain(net, "resnet18")
    assert set(module.state_dict()) == set(models.resnet18(num_classes=3).state_dict())
    assert [row[0] for row in architecture["layers"]] == ["conv1", "maxpool", "layer4.1.conv1"]
    made = standalone.build(json.loads(json.dumps(architecture)))
    assert {k: v.shape for k, v in made.state_dict().items()} == {k: v.shape for k, v in module.state_dict().items()}
    assert type(made.maxpool) is nn.Identity and made.layer4[1].conv1.padding == (1, 1)


def test_a_module_of_the_users_own_has_no_plain_architecture(tmp_path):
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    assert in_a_row(nn.Sequential(nn.ReLU(), Twice())) is None
    layers = in_a_row(build("simconv1", (3, 28, 28), 2).encoder)
    assert layers and all(type(layer).__module__.startswith("torch.nn.modules") for layer in layers)
    with pytest.raises(ValueError, match="torch.export.load"):
        standalone.build({"base": None, "why": "It is your own."})


def test_a_layer_that_is_there_twice_is_written_twice(tmp_path):
    act, layer = nn.ReLU(), nn.Linear(4, 4)
    net = Net.wrap(nn.Sequential(nn.Linear(5, 4), act, layer, act, layer, nn.Linear(4, 3))).eval()
    checks = exporting.write(net, tmp_path, ["plain"], torch.randn(2, 5), {"net": {"name": "Sequential"}})
    assert checks["plain"] < 1e-6
    assert [type(part) for part in standalone.load(tmp_path)][:5] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]


def test_what_is_no_plain_layer_or_network_of_torch_is_written_as_weights_only(tmp_path):
    made_by_a_hook = Net(nn.Sequential(nn.utils.spectral_norm(nn.Linear(5, 4)), nn.ReLU()), nn.Linear(4, 3)).eval()
    two = make_method("disent").classifier(lambda: build("resnet18", (3, 32, 32), 3)).eval()
    for net, name, shape in ((made_by_a_hook, "Sequential", (5,)), (two, "resnet18", (3, 32, 32))):
        checks = exporting.write(net, tmp_path, ["plain"], torch.randn(2, *shape), {"net": {"name": name}})
        assert checks == {"plain": f"weights only: {plain(net, name)[1]['why']}"}


def test_a_file_that_says_something_else_is_never_passed_over(monkeypatch, tmp_path):
    net = build("linear", (3,), 3)

    def wrong(folder, compressed=False):
        return build("linear", (3,), 3)

    monkeypatch.setattr(standalone, "load", wrong)
    with pytest.raises(NotTheSame, match="plain"):
        exporting.write(net, tmp_path, ["plain"], torch.randn(2, 3), {"net": {"name": "linear"}})


def test_an_export_that_failed_leaves_nothing_in_the_way_of_the_next(monkeypatch, tmp_path):
    file = weights_file(tmp_path, build("linear", (3,), 3), {"name": "linear"}, (3,))
    right = standalone.load
    monkeypatch.setattr(standalone, "load", lambda folder, compressed=False: build("linear", (3,), 3))
    with pytest.raises(NotTheSame):
        export(file, tmp_path / "out", ["plain"], repeats=2)
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.setattr(standalone, "load", right)
    assert export(file, tmp_path / "out", ["plain"], repeats=2)["checks"]
    (tmp_path / "notes.txt").write_text("the user's")
    with pytest.raises(UserError, match="holds no export"):
        export(file, tmp_path, ["plain"], repeats=2)
    assert file.exists()


def test_the_export_before_stays_until_the_next_is_whole(monkeypatch, tmp_path):
    file = weights_file(tmp_path, build("linear", (3,), 3), {"name": "linear"}, (3,))
    out = tmp_path / "out"
    export(file, out, ["plain", "torch"], repeats=2)
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # after all files are written
        patch.setattr(exporting, "latency", stop)
        for folder in (out, tmp_path / "new"):
            with pytest.raises(KeyboardInterrupt):
                export(file, folder, ["plain"], repeats=2)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before and not any((tmp_path / "new").iterdir())
    (tmp_path / "new" / f"{exporting.UNFINISHED}x").mkdir()  # as a kill leaves it
    for folder in (out, tmp_path / "new"):
        export(file, folder, ["plain"], repeats=2)
        assert {p.name for p in folder.iterdir()} == {
            "model.safetensors",
            "architecture.json",
            "load.py",
            "report.json",
        }


def test_two_runs_of_one_name_do_not_share_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("a/run", "b/run"):
        Path(name).mkdir(parents=True)
        weights_file(Path(name), build("linear", (3,), 3), {"name": "linear"}, (3,))
    for model in ("a/run/model.safetensors", tmp_path / "a/run/model.safetensors"):  # again is no mistake
        assert export(model, None, ["plain"], repeats=2)["folder"] == str(Path("runs/export-run"))
    with pytest.raises(UserError, match="export of .*a/run.*same name"):
        export("b/run/model.safetensors", None, ["plain"], repeats=2)
    export("b/run/model.safetensors", "runs/export-run", ["plain"], repeats=2)  # who names a folder means it


def test_times_are_of_one_thread_and_the_threads_come_back():
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append((torch.get_num_threads(), len(x)))
            return x

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = latency({"a": Spy()}, (3,), repeats=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, 1)] * 3 + [(1, 64)] * 3 and set(found) == {"1", "64"}


def test_macs_by_hand():
    assert macs(nn.Conv2d(3, 5, 3), torch.zeros(1, 3, 6, 6)) == 4 * 4 * 5 * 27
    assert macs(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), torch.zeros(2, 4)) == 24 + 12  # for one input


def test_macs_of_attention_by_hand():
    net, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.zeros(1, 8, 16)
    assert macs(net, x) == 8 * 16 * (3 * 16 + 16 + 2 * 32) + 2 * 8 * 8 * 16  # in and out, both layers; q k and a v
    assert torch.backends.mha.get_fastpath_enabled()


@needs_pruning
def test_a_compressed_file_that_is_not_smaller_is_not_written_nor_spoken_of(tmp_path):
    net = build("linear", (6,), 3)
    zero(net, keep_highest(squares(net), 0.5))  # the header of the file outweighs nine numbers
    file = weights_file(tmp_path, net, {"name": "linear"}, (6,))
    report = export(file, tmp_path / "out", ["plain"], repeats=2)
    assert report["bytes"]["compressed"] is None and not (tmp_path / "out" / "model.sparse.safetensors").exists()
    assert report["notes"][0].startswith("50.0 %") and "compressed" not in report["notes"][0]


def test_packing_gives_back_every_tensor():
    drawn = torch.randn(3, 5, 7) * (torch.rand(3, 5, 7) < 0.3)
    given = {"a": drawn, "b": torch.randn(9), "n": torch.tensor(3), "empty": torch.zeros(11)}
    packed = standalone.pack(given)
    assert "a.bits" in packed and "b" in packed  # a full one is left as it is
    back = standalone.unpack(packed)
    assert set(back) == set(given) and all(torch.equal(back[k], given[k]) for k in given)


def test_mistakes(masked, tmp_path):
    with pytest.raises(UserError, match="onnx"):
        export(masked[1], tmp_path / "out", ["onx"])
    with pytest.raises(UserError, match="neither"):
        export(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        export(masked[1], tmp_path / "full")

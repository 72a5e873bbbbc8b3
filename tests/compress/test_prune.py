"""`spurless prune`: what stays, what is reported, and that the run is not touched."""

import importlib.util
import io
import json
import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from spurless import evaluate, fit
from spurless.cli.main import app
from spurless.compress.channels import Channels
from spurless.compress.prune import check_shares
from spurless.compress.prune import prune as prune_run
from spurless.compress.prune_curve import draw, table
from spurless.compress.prune_folder import claim
from spurless.compress.prune_trained import PruneTrained, Pruning, channel_masks
from spurless.core.errors import FolderError, UserError
from spurless.core.method import Method, Stage
from spurless.core.settings import check, settings_of
from spurless.methods.dcwp import DCWP
from spurless.methods.parts.gates import Gates
from spurless.methods.parts.losses import ce
from spurless.methods.parts.pruning import squares, variability, watching, zero
from spurless.nets import Net
from spurless.registry import make_method
from spurless.train.observe import Interrupted
from spurless.train.saved import load_classifier
from tests.support.runs import stages_of
from tests.support.worlds import pictures, tiny

NET = {"name": "mlp", "widths": [12, 8]}
QUICK = {"method": {"mask_iterations": 3, "mining_iterations": 3}}
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("torch_pruning") is None, reason="needs torch-pruning (extra: export)"
)


@pytest.fixture(scope="module")
def data():
    return tiny()


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prune") / "run"
    fit("erm", data, net=NET, out=folder, device="cpu", progress=False)
    return folder


def prune(run, keep=(0.3,), how="magnitude", structured=False, **given):
    """`prune` with what belongs to Pruning beside the rest."""
    own = {name: given.pop(name) for name in ("finetune", "objective", "batchnorm", "settings") if name in given}
    return prune_run(run, keep, Pruning(how, structured, **own), **given)


def layers_of(file):
    net = load_classifier(file, device="cpu")
    return [m.weight.detach() for m in net.modules() if isinstance(m, nn.Linear)]


@needs_package
def test_keeping_everything_changes_nothing(run, data, tmp_path):
    was = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    first, row = prune(run, [1.0], out=tmp_path / "out", data=data, device="cpu")["rows"]
    assert row["scores"] == first["scores"] and row["parameters"] == first["parameters"]
    assert row["weights_percent"] == 100
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == was


@needs_package
@pytest.mark.parametrize("how", ["magnitude", "avp", "random", "dcwp"])
def test_single_weights(run, data, tmp_path, how):
    settings = QUICK if how == "dcwp" else {}
    found = prune(run, [0.5, 0.25], how, out=tmp_path / "out", data=data, device="cpu", settings=settings, finetune=0.3)
    for row in found["rows"][1:]:
        file = tmp_path / "out" / f"keep-{row['keep']:.2f}" / "model.safetensors"
        weights = layers_of(file)
        total = sum(w.numel() for w in weights)
        left = sum(int((w != 0).sum()) for w in weights)
        assert abs(left - row["keep"] * total) <= 1  # through fine-tuning as well
        assert row["weights_percent"] == pytest.approx(100 * left / total)
        assert row["difference"] < 1e-4
        assert evaluate(load_classifier(file, device="cpu"), data, device="cpu") == row["scores"]
    assert found["rows"][2]["compressed_bytes"] < found["rows"][0]["compressed_bytes"]
    assert (tmp_path / "out" / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out" / "curve.svg").stat().st_size > 1000


@needs_package
@pytest.mark.parametrize("how", ["magnitude", "avp", "random", "dcwp"])
def test_channels(run, data, tmp_path, how):
    settings = QUICK if how == "dcwp" else {}
    found = prune(run, [0.5], how, True, out=tmp_path / "out", data=data, device="cpu", settings=settings, finetune=0.3)
    row = found["rows"][1]
    d, classes = data.shape[0], len(data.classes)
    assert row["channels_removed"] == 6 + 4
    assert row["parameters"] == (d * 6 + 6) + (6 * 4 + 4) + (4 * classes + classes)
    assert row["macs"] == d * 6 + 6 * 4 + 4 * classes


@needs_package
def test_what_stays_is_highest_in_what_was_asked_for(run, data, tmp_path, monkeypatch):
    net = load_classifier(run / "model.safetensors", device="cpu")
    with watching(net) as moments:
        net(data.train.x)
    gates = []

    class Noted(Gates):
        def __init__(self, *args):
            super().__init__(*args)
            gates.append(self)

    monkeypatch.setattr("spurless.methods.parts.gates.Gates", Noted)
    for how in ("avp", "dcwp"):
        settings = QUICK if how == "dcwp" else {}
        prune(run, [0.5], how, out=tmp_path / how, data=data, device="cpu", settings=settings)
        pruned = load_classifier(tmp_path / how / "keep-0.50" / "model.safetensors", device="cpu")
        scores = variability(net, moments) if how == "avp" else dict(zip(gates[0].names, gates[0].logits, strict=True))
        kept = {name: pruned.get_parameter(name) != 0 for name in scores}
        lowest = min(float(s[kept[name]].detach().min()) for name, s in scores.items())
        assert lowest >= max(float(s[~kept[name]].detach().max()) for name, s in scores.items() if (~kept[name]).any())
    prune(run, [0.5], "avp", True, out=tmp_path / "units", data=data, device="cpu")
    pruned = load_classifier(tmp_path / "units" / "keep-0.50" / "model.safetensors", device="cpu")
    units = variability(net, moments, units=True)["encoder.3.weight"][0]  # where the first layer's channels are read
    kept = pruned.encoder[1].weight.any(1)
    assert int(kept.sum()) == 6 and float(units[kept].min()) >= float(units[~kept].max())


def test_dcwp_fine_tunes_on_batches_with_more_mined_rows(data, monkeypatch):
    trained = {name: t.clone() for name, t in fit("erm", data, net=NET, device="cpu").classifier.state_dict().items()}
    dcwp = make_method({"name": "dcwp", "lambda_up": 33} | QUICK["method"])
    method = PruneTrained(Pruning("dcwp", finetune=0.5), 0.5, trained=trained, dcwp=dcwp)
    stages, _ = stages_of(monkeypatch, method, data, NET)
    assert [s.name for s in stages] == ["mine", "mask", "finetune"]
    assert [None if s.sample_weights is None else float(s.sample_weights.max()) for s in stages] == [None, 33, 33]


def test_dcwps_settings_of_fine_tuning_are_used(data, monkeypatch):
    trained = {name: t.clone() for name, t in fit("erm", data, net=NET, device="cpu").classifier.state_dict().items()}
    ups = {"lambda_up": 33, "finetune_up": 7, "finetune_lr": 0.004}
    dcwp = make_method({"name": "dcwp"} | ups | QUICK["method"])
    method = PruneTrained(Pruning("dcwp", finetune=0.5), 0.5, trained=trained, dcwp=dcwp)
    stages, _ = stages_of(monkeypatch, method, data, NET)
    assert [float(s.sample_weights.max()) for s in stages[1:]] == [33, 7]
    rates = [s.optimizer.param_groups[0]["initial_lr"] for s in stages]
    assert rates == pytest.approx([0.01, 0.01, 0.004])


@pytest.mark.parametrize(
    "setting",
    [
        {"prune": False}, {"reset": True}, {"mask.over": "channel"}, {"layers": ["head"]}, {"finetune_iterations": 5},
        {"finetune_lr": 0.1}, {"finetune": {"up": 3}}, {"finetune.align": 0.0},
    ],
    ids=lambda s: next(iter(s)),
)  # fmt: skip
def test_settings_of_dcwp_that_would_change_nothing_are_refused(setting, run, data, tmp_path):
    (name,), out = (settings_of(DCWP)[k].path for k in check(settings_of(DCWP), setting, "", {})), tmp_path / "out"
    with pytest.raises(UserError, match=rf"method\.{name} has no effect"):
        prune(run, [0.5], "dcwp", out=out, data=data, device="cpu", settings={"method": setting})
    assert not out.exists()


@pytest.mark.parametrize("keep", [[0.125], [0.5, 0.3333], [0], [1.2], []])
def test_shares_that_would_be_rounded_are_refused(keep):
    with pytest.raises(UserError, match="to two decimals"):
        check_shares(keep)
    assert check_shares([0.1 + 0.2, 1]) == [1, 0.3]


def test_the_smallest_channels_go_by_hand():
    net = Net(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Linear(3, 2))
    with torch.no_grad():
        net.encoder[0].weight.copy_(torch.tensor([[1.0, 1.0], [0.1, 0.1], [2.0, 0.0]]))
    groups = [Channels(3, ["encoder.0"], [], ["head"])]
    masks = channel_masks(net, groups, squares(net), 0.4)  # one of three
    assert masks["encoder.0.weight"].all(1).tolist() == [False, False, True]
    assert masks["encoder.0.bias"].tolist() == [False, False, True]
    assert masks["head.weight"].tolist() == [[False, False, True]] * 2
    assert "head.bias" not in masks
    with torch.no_grad():
        net.head.weight.copy_(torch.tensor([[1.0, 5.0, 1.0], [1.0, 5.0, 1.0]]))
    masks = channel_masks(net, groups, squares(net), 0.4, by_reader=True)
    assert masks["head.weight"][0].tolist() == [False, True, False]


def test_what_was_zero_stays_zero_and_counts():
    net = Net(nn.Flatten(), nn.Linear(10, 2))
    zero(net, {"head.weight": torch.arange(20).view(2, 10) % 2 == 0})
    scores = {"head.weight": torch.ones(2, 10)}  # blind to the zeros
    masks = PruneTrained(keep=0.4).masks(net, scores)["head.weight"]
    assert int(masks.sum()) == 8 and not bool((masks & (net.head.weight == 0)).any())


def test_channels_that_were_dead_are_the_first_to_go_whatever_their_score():
    net = Net(nn.Sequential(nn.Linear(2, 4), nn.ReLU()), nn.Linear(4, 2))
    zero(net, {"encoder.0.weight": torch.tensor([[False] * 2, [False] * 2, [True] * 2, [True] * 2])})
    groups = [Channels(4, ["encoder.0"], [], ["head"])]
    scores = {"encoder.0.weight": torch.tensor([[9.0] * 2, [8.0] * 2, [1.0] * 2, [2.0] * 2])}  # blind to the zeros
    masks = PruneTrained(Pruning("random", structured=True), 0.5, groups=groups).masks(net, scores)
    assert masks["encoder.0.weight"].all(1).tolist() == [False, False, True, True]


def test_what_was_zero_stays_zero_in_layers_that_are_not_pruned_too():
    net = Net(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2))
    gone = {
        "encoder.0.weight": torch.tensor([[False] * 4, [True] * 4, [True] * 4]),
        "head.weight": torch.eye(2, 3) == 1,
    }
    gone["encoder.0.bias"] = torch.tensor([False, True, True])
    zero(net, gone)
    masks = PruneTrained(Pruning(structured=True), groups=()).masks(net, squares(net))
    assert all(torch.equal(masks[name], mask) for name, mask in gone.items())


MASKED = {
    "magnitude_prune": {"keep": 0.5},
    "avp": {"share": 0.2, "chance": 1.0},
    "avp-frozen": {"share": 0.2, "chance": 1.0, "frozen": True, "kappa": "signed"},
    "dcwp": {"mining_iterations": 20, "mask_iterations": 400, "form": "code", "lambda_l1": 1e-6},
    "dcwp-channel": {"mining_iterations": 20, "mask_iterations": 50, "mask_lr": 0.1, "over": "channel"},
    "mrm": {"mask_iterations": 400, "form": "code", "lambda_l1": 1e-6},
}


@pytest.mark.parametrize("kind", MASKED)
def test_of_a_run_with_a_mask_of_its_own_no_second_mask_is_taken(kind, data, tmp_path):
    """With another seed the run's method finds another mask on the way, which is nobody's."""
    method = {"name": kind.split("-")[0]} | MASKED[kind]
    if method["name"] == "dcwp":
        method["finetune_iterations"] = 5
    run = fit(method, data, net=NET, seed=3, out=tmp_path / "run", device="cpu", progress=False)
    share = round((100 - run.sparsity) / 100 - 0.05, 2)
    assert 0.05 < share < 0.9
    found = prune(tmp_path / "run", [share], finetune=0.4, out=tmp_path / "out", data=data, device="cpu", seed=0)
    total = sum(p.numel() for name, p in run.classifier.named_parameters() if name.endswith("weight"))
    assert found["rows"][1]["weights_percent"] == pytest.approx(100 * share, abs=100 / total)
    pruned = load_classifier(tmp_path / "out" / f"keep-{share:.2f}" / "model.safetensors", device="cpu")
    moved = 0
    for was, now in zip(run.classifier.parameters(), pruned.parameters(), strict=True):
        assert not bool(now[was == 0].any())
        moved += int((now != was)[now != 0].sum())
    assert moved > 0


def test_the_seed_is_the_runs_unless_another_is_named(data, tmp_path):
    fit("jtt", data, net=NET, seed=3, out=tmp_path / "run", device="cpu", progress=False)
    given = {"finetune": 0.4, "data": data, "device": "cpu"}
    found = prune(tmp_path / "run", [0.5], out=tmp_path / "out", **given)
    assert found["seed"] == 3
    assert prune(tmp_path / "run", [0.5], out=tmp_path / "out", seed=3, **given) == found
    args = ["--keep", "0.5", "--finetune", "0.4", "--out", str(tmp_path / "out"), "--json"]
    told = CliRunner().invoke(app, ["prune", str(tmp_path / "run"), *args])
    assert told.exit_code == 0 and json.loads(told.stdout)["seed"] == 3, told.output
    other = prune(tmp_path / "run", [0.5], out=tmp_path / "other", seed=0, **given)
    assert other["seed"] == 0 and other["rows"][1]["scores"] != found["rows"][1]["scores"]
    with pytest.raises(UserError, match=r"other settings \(seed\)"):  # a folder of when the default was 0
        prune(tmp_path / "run", [0.5], out=tmp_path / "other", **given)


@needs_package
def test_folders(run, data, tmp_path):
    with pytest.raises(UserError, match="own folder"):
        prune(run, out=run, data=data)
    first = prune(run, [0.5], out=tmp_path / "out", data=data, device="cpu")
    assert prune(run, [0.5], out=tmp_path / "out", data=data, device="cpu")["rows"] == first["rows"]
    with pytest.raises(UserError, match="other settings"):
        prune(run, [0.4], out=tmp_path / "out", data=data)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".unfinished.safetensors.x1").write_bytes(b"half")  # as a kill leaves it
    assert prune(run, [0.5], out=tmp_path / "killed", data=data, device="cpu")["rows"] == first["rows"]


def test_a_run_that_was_trained_anew_is_not_shown_as_it_was(data, tmp_path):
    for epochs in (1, 2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        fit("erm", data, net="mlp", recipe={"epochs": epochs}, out=tmp_path / "run", device="cpu")
        if epochs == 1:
            prune(tmp_path / "run", [0.5], out=tmp_path / "out", data=data, device="cpu")
    with pytest.raises(UserError, match="trained anew"):
        prune(tmp_path / "run", [0.5], out=tmp_path / "out", data=data, device="cpu")
    saved = json.loads((tmp_path / "out" / "prune.json").read_text())
    del saved["run_weights"]  # as folders of before are
    (tmp_path / "out" / "prune.json").write_text(json.dumps(saved))
    assert prune(tmp_path / "run", [0.5], out=tmp_path / "out", data=data, device="cpu")["rows"] == saved["rows"]


@needs_package
@pytest.mark.parametrize("structured", [False, True])
def test_statistics_can_be_taken_anew(tmp_path, structured):
    data = pictures(shape=(3, 12, 12))
    fit("erm", data, net="conv3", out=tmp_path / "run", device="cpu", progress=False)
    given = {"keep": [0.3], "data": data, "device": "cpu", "structured": structured}
    plain = prune(tmp_path / "run", out=tmp_path / "plain", **given)
    found = prune(tmp_path / "run", out=tmp_path / "anew", batchnorm="recomputed", **given)
    assert any("--batchnorm recomputed" in note for note in plain["notes"])
    assert not any("--batchnorm" in note for note in found["notes"]) and found["batchnorm"] == "recomputed"
    files = [tmp_path / name / "keep-0.30" / "model.safetensors" for name in ("plain", "anew")]
    trained, kept, anew = (load_classifier(f, device="cpu") for f in (tmp_path / "run" / "model.safetensors", *files))
    for a, b in zip(kept.parameters(), anew.parameters(), strict=True):
        assert torch.equal(a, b)
    norm, first = next((n, m) for n, m in trained.named_modules() if isinstance(m, nn.BatchNorm2d))
    assert torch.equal(kept.get_submodule(norm).running_mean, first.running_mean)
    inputs = []
    hook = anew.get_submodule(norm).register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    evaluate(anew, replace(data, test=data.train), device="cpu")
    hook.remove()
    z = torch.cat(inputs).double()
    torch.testing.assert_close(anew.get_submodule(norm).running_mean.double(), z.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(anew.get_submodule(norm).running_var.double(), z.var((0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert evaluate(anew, data, device="cpu") == found["rows"][1]["scores"]
    for out, batchnorm in (("plain", "recomputed"), ("anew", "kept")):
        with pytest.raises(UserError, match="other settings"):
            prune(tmp_path / "run", out=tmp_path / out, batchnorm=batchnorm, **given)
    assert prune(tmp_path / "run", out=tmp_path / "anew", batchnorm="recomputed", **given)["rows"] == found["rows"]


@needs_package
def test_learning_a_mask_does_not_move_the_statistics(tmp_path):
    """DCWP's mask is learnt with the network in training mode, once, for the first share."""
    data = pictures(shape=(3, 12, 12))
    fit("erm", data, net="conv3", out=tmp_path / "run", device="cpu", progress=False)
    prune(tmp_path / "run", [0.5, 0.3], "dcwp", out=tmp_path / "out", data=data, device="cpu", settings=QUICK)
    trained = load_classifier(tmp_path / "run" / "model.safetensors", device="cpu").state_dict()
    for share in ("0.50", "0.30"):
        pruned = load_classifier(tmp_path / "out" / f"keep-{share}" / "model.safetensors", device="cpu").state_dict()
        assert all(torch.equal(pruned[name], t) for name, t in trained.items() if "running" in name)


@needs_package
@pytest.mark.parametrize("how", ["magnitude", "dcwp"])
def test_ctrl_c_keeps_the_shares_that_are_finished(run, data, tmp_path, monkeypatch, how):
    given = {"data": data, "device": "cpu", "finetune": 0.3, "settings": QUICK if how == "dcwp" else {}}
    whole = prune(run, [0.5, 0.3, 0.2], how, out=tmp_path / "whole", **given)
    calls = []

    def stopped(at):
        def counted(*args, **kwargs):
            calls.append(args[0].keep)
            if len(calls) == at:
                raise Interrupted("Nothing was saved.")
            return fit(*args, **kwargs)

        monkeypatch.setattr("spurless.compress.prune.fit", counted)
        calls.clear()

    stopped(at=1)
    with pytest.raises(KeyboardInterrupt, match="^No share was finished, so nothing is kept: .* begins anew"):
        prune(run, [0.5, 0.3, 0.2], how, out=tmp_path / "out", **given)
    stopped(at=2)
    with pytest.raises(KeyboardInterrupt, match="^1 of 3 shares are finished and kept in .*out: re-run the command"):
        prune(run, [0.5, 0.3, 0.2], how, out=tmp_path / "out", **given)
    with pytest.raises(UserError, match="other settings"):
        prune(run, [0.5, 0.1], how, out=tmp_path / "out", **given)
    stopped(at=None)
    found = prune(run, [0.5, 0.3, 0.2], how, out=tmp_path / "out", **given)
    assert calls == [0.3, 0.2]
    assert found["rows"] == whole["rows"]  # of DCWP, too, whose mask is learnt before the first share only
    names = [sorted(p.name for p in (tmp_path / place).iterdir()) for place in ("whole", "out")]
    assert names[0] == names[1]


def test_a_name_with_dollars_is_drawn_as_it_is(tmp_path):
    row = {"keep": 1.0, "weights_percent": 100.0, "scores": {"average": 90.0}}
    curve = {"rows": [row], "structured": False, "how": "magnitude", "method": "erm", "data": "csv:a$x_{$.csv"}
    draw(curve, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"curve.png", "curve.svg"}


def test_the_table_fits_eighty_columns():
    scores = dict.fromkeys(("average", "unbiased", "conflicting", "worst_group"), 100.0)
    row = {"keep": 1.0, "weights_percent": 100.0, "parameters": 25_557_032, "macs": 4_089_184_256, "scores": scores}
    curve = {"rows": [row, {"keep": 0.3, "error": "The loss is not finite. " * 6}], "notes": ["A long note. " * 15]}
    console = Console(width=80, file=io.StringIO())
    console.print(table(curve))
    told = console.file.getvalue()
    assert max(map(len, told.splitlines())) <= 80
    words = " ".join(told.split())
    assert "25,557,032" in told and "4,089,184,256" in told and words.count("100.0") == 5
    assert "At 0.30: The loss is not finite." in words and words.count("A long note.") == 15


def test_mistakes(run, data, tmp_path):
    for changed, told in [
        ({"how": "magnitud"}, "no pruning rule 'magnitud'; did you mean 'magnitude'"),
        ({"keep": [1.5]}, "--keep"),
        ({"objective": "mine"}, "own"),
        ({"batchnorm": "new"}, "ways to treat BatchNorm"),
        ({"settings": {"method": {"q": 1}}}, "dcwp"),
    ]:
        with pytest.raises(UserError, match=told):
            prune(run, **({"keep": [0.5], "out": tmp_path / "out", "data": data} | changed))
    with pytest.raises(UserError, match="folder of a finished run"):
        prune(run / "model.safetensors", [0.5])


@needs_package
def test_commands(run, tmp_path):
    """From the run's folder alone: the data is made again from its settings. Then the pruned weights are exported."""
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["prune", str(run), "--keep", "0.5", "--structured", "--out", str(out), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["rows"][1]["channels_removed"] == 10
    file = out / "keep-0.50" / "model.safetensors"
    args = ["export", str(file), "--format", "plain", "--out", str(tmp_path / "files")]
    told = CliRunner().invoke(app, args)
    assert told.exit_code == 0, told.output
    assert "parameters" in told.stdout and (tmp_path / "files" / "load.py").exists()


@pytest.mark.parametrize("method", ["erm", "rs", "pgd", "jtt", "lff", "disent", "dfr"])
def test_fine_tuning_as_the_run_was_trained(method, data, tmp_path):
    """It starts from the pruned weights, removed ones stay zero, and it sees the labels that the run saw."""
    run = fit(method, data, net=NET, out=tmp_path / "run", device="cpu", progress=False)
    still = prune(
        tmp_path / "run", [0.5], finetune=0.4, out=tmp_path / "still", data=data, device="cpu",
        settings={"recipe": {"lr": 0.0, "optimizer": "sgd"}},
    )  # fmt: skip
    plain = prune(tmp_path / "run", [0.5], out=tmp_path / "none", data=data, device="cpu")
    if method != "dfr":  # which fits the head anew
        assert still["rows"][1]["scores"] == plain["rows"][1]["scores"]
    moved = prune(tmp_path / "run", [0.5], finetune=0.4, out=tmp_path / "moved", data=data, device="cpu")
    before, after = (layers_of(tmp_path / name / "keep-0.50" / "model.safetensors") for name in ("none", "moved"))
    assert not all(torch.equal(b, a) for b, a in zip(before, after, strict=True))
    assert all(bool((a[b == 0] == 0).all()) for b, a in zip(before, after, strict=True))
    assert moved["rows"][1]["weights_percent"] <= 50.1 and run.labels_used == fit(
        PruneTrained(Pruning(finetune=0.4), 0.5, trained=run.classifier.state_dict(), by=make_method(method)),
        data, net=NET, device="cpu", progress=False,
    ).labels_used  # fmt: skip


def test_the_last_stage_is_shortened_and_drawn_as_before(data):
    """PGD's odds come from its biased stage, trained again; then a part of the recipe starts at the pruned weights."""
    run = fit("pgd", data, net=NET, device="cpu", progress=False)
    trained = {name: t.clone() for name, t in run.classifier.state_dict().items()}
    method = PruneTrained(Pruning(finetune=1 / 3), 0.5, trained=trained, by=make_method("pgd"))
    found = fit(method, data, net=NET, device="cpu", progress=False)
    assert [(row["stage"], row["epoch"]) for row in found.history] == [
        *(("biased", k) for k in (1, 2, 3)),
        ("debiased", 1),
    ]
    assert found.mining["mined"] == run.mining["mined"]  # with the same seed, the same odds
    plain = fit(
        replace(method, pruning=replace(method.pruning, objective="plain")), data, net=NET, device="cpu", progress=False
    )
    assert [row["stage"] for row in plain.history] == ["finetune"]


@dataclass(frozen=True)
class Watched(Method):
    """Plain training that notes, at every batch, how many weights are zero."""

    seen: ClassVar[list[int]] = []

    def stages(self, run):
        net = run.net()

        def loss(b):
            self.seen.append(sum(int((m.weight == 0).sum()) for m in net.modules() if isinstance(m, nn.Linear)))
            return ce(net(b.x), b.y)

        yield Stage("watched", loss, run.optimizer(net), model=net, select=True)
        return net


def test_removed_weights_are_zero_at_every_step(data):
    trained = {name: t.clone() for name, t in fit("erm", data, net=NET, device="cpu").classifier.state_dict().items()}
    Watched.seen.clear()
    fit(
        PruneTrained(Pruning(finetune=1.0), 0.5, trained=trained, by=Watched()),
        data,
        net=NET,
        device="cpu",
        progress=False,
    )
    total = sum(t.numel() for name, t in trained.items() if name.endswith("weight"))
    assert len(Watched.seen) > 3 and set(Watched.seen) == {round(total / 2)}


@dataclass(frozen=True)
class Annealed(Method):
    """Plain training that notes how far it is said to be, in two losses that are applied in turn."""

    seen: ClassVar[list[float]] = []

    def stages(self, run):
        net = run.net()

        def loss(b):
            self.seen.append(float(b.t))
            return ce(net(b.x), b.y)

        other = lambda b: loss(b)  # noqa: E731
        yield Stage("annealed", [loss, other], [run.optimizer(net), run.optimizer(net)], model=net, select=True)
        return net


def test_what_is_annealed_does_not_begin_anew_and_the_learning_rate_does(data):
    trained = {name: t.clone() for name, t in fit("erm", data, net=NET, device="cpu").classifier.state_dict().items()}
    Annealed.seen.clear()
    method = PruneTrained(Pruning(finetune=1.0), 0.5, trained=trained, by=Annealed())
    recipe = replace(data.recipe, schedule="linear")
    found = fit(method, data, net=NET, recipe=recipe, device="cpu", progress=False)
    steps = found.history[-1]["step"]
    assert len(Annealed.seen) == 2 * steps and 0.9999 < min(Annealed.seen) <= max(Annealed.seen) < 1
    rates = [row["lr"] / recipe.lr for row in found.history]  # at the end of each of three epochs
    assert rates == pytest.approx([1 - (k * steps / 3 - 1) / steps for k in (1, 2, 3)])


def test_fine_tuning_has_the_length_that_was_asked_for(data):
    """Though the recipe's criterion, which the weights reach already, may end the dense stage of frozen pruning."""
    recipe = replace(data.recipe, until_accuracy=1.0)
    by = make_method({"name": "avp", "frozen": True})
    trained = {name: t.clone() for name, t in fit("erm", data, net=NET, device="cpu").classifier.state_dict().items()}
    found = fit(
        PruneTrained(Pruning(finetune=1.0), 0.5, trained=trained, by=by), data, net=NET, recipe=recipe, device="cpu"
    )
    assert [row["epoch"] for row in found.history] == [1, 2, 3]


@pytest.mark.parametrize("rows", [None, 3, [1], [{"keep": 0.5}], [{"keep": "x", "error": "none"}]])
def test_a_curve_of_other_keys_is_damaged(tmp_path, rows):
    (tmp_path / "prune.json").write_text(json.dumps({"rows": rows, "notes": []}))
    with pytest.raises(FolderError, match=r"prune\.json is damaged"):
        claim(tmp_path, tmp_path / "run", {})

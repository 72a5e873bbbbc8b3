"""What measures are given: lists and arrays are taken as tensors are, and what has no answer is refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.core.stats import mean_of_cells, wilson
from spurless.data.tokens import Tokens
from spurless.metrics import attribution as at
from spurless.metrics import attribution_text as tx
from spurless.metrics import checks
from spurless.metrics import compress as cp
from spurless.metrics import feature_use as fu
from spurless.metrics import groups as gr
from spurless.metrics import parts as pa
from spurless.metrics import prunability as pr
from spurless.metrics import records as rc
from spurless.metrics import regions as rg
from spurless.metrics import representation as rp
from spurless.metrics.batchnorm import recompute_batchnorm
from spurless.metrics.inference import inference_scores
from spurless.nets import Net, build
from spurless.sweep import over_runs as ov
from spurless.train import dynamics as dy
from spurless.train import robustness as ro
from studies import landscape as ls
from studies.theory.dcwp import trained_ratio
from tests.support.worlds import OwnModule, pictures, tiny

X, V = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.linspace(0, 1, 28).view(4, 7)
Y, A = torch.tensor([0, 1, 0, 1]), torch.tensor([True, True, False, False])
MAPS, MASK = X[:, 0], X[0, 1] > 0.5
TOKENS = torch.tensor([[[1, 2, 0, 0], [1, 1, 0, 0]], [[3, 1, 1, 2], [1, 1, 1, 1]]])
NAN = math.nan

DATA, PICTURES = tiny(), pictures()
EMPTY = replace(DATA, test=Split(DATA.test.x[:0], DATA.test.y[:0], DATA.test.a[:0]))
BLANK = replace(PICTURES, test=Split(PICTURES.test.x[:0], PICTURES.test.y[:0], PICTURES.test.a[:0]))
ONE_CHANNEL = pictures(shape=(1, 28, 28))

CONV = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
MLP, NARROW = OwnModule(), nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
HEAD, SEGMENTER, NORM = nn.Linear(7, 2), nn.Conv2d(3, 2, 1), nn.Sequential(nn.BatchNorm1d(7))
BAG = build({"name": "embedding_bag", "dim": 3, "vocab": 6}, (2, 4), 2)
NAMES = Tokens("nobody's tokenizer", 6, "")


class Says(nn.Module):
    """Gives the same for everything."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what(x)


def share_of_half(net):
    return 50.0


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.allclose(a.double(), b.double(), atol=1e-5, equal_nan=True)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(one, other) for one, other in zip(a, b, strict=True))
    return a == pytest.approx(b, abs=1e-5) if isinstance(a, float) else np.array_equal(a, b)


@pytest.mark.parametrize("like", [torch.Tensor.tolist, torch.Tensor.numpy, lambda t: t.flip(0).numpy()[::-1]])
@pytest.mark.parametrize(
    ("measure", "given"),
    [
        (lambda x, y: at.attribute(CONV, x, y, "ig"), (X, Y)),
        (lambda x, y: at.attribute(MLP, x, y, "deeplift"), (V.double(), Y)),
        (at.share, (MAPS, MASK)),
        (at.entropy, (MAPS,)),
        (lambda x, mask, units: at.unit_shares(MLP, x, mask, units), (V, V[0] < 0.1, torch.tensor([0, 3]))),
        (lambda x: tx.attribute_tokens(BAG, x, 1), (TOKENS,)),
        (lambda row, of: tx.by_word(NAMES, row, of), (TOKENS[1], torch.arange(4.0))),
        (tx.shares, (V,)),
        (cp.sparsity, (V,)),
        (cp.compressibility, (V,)),
        (cp.pq_index, (V,)),
        (cp.compressed, (V,)),
        (lambda k: pr.prunability(MLP, lambda n: n.classify.weight.norm().item(), kappas=k), (torch.tensor([0, 0.5]),)),
        (lambda z: pr.activation_prunability(z, HEAD, lambda logits: logits.norm().item()), (V.double(),)),
        (lambda logits: pr.data_accuracy(DATA, rows=range(4))(logits), (V,)),
        (lambda scores, sizes: pr.lowest(scores, sizes, 0.5), (V[0], V[1] + 1)),
        (lambda x: recompute_batchnorm(NORM, x) or NORM[0].running_mean.clone(), (V.double(),)),
        (lambda x: rg.background_mask(x, SEGMENTER), (X.double(),)),
        (lambda rows: at.prepare(DATA, "test", rows), (torch.tensor([3, 1]),)),
        (rp.class_separation, (V, Y)),
        (rp.csi, (V, Y)),
        (rp.bsi, (V, Y)),
        (rp.alignment_gap, (V, 0 * Y, A)),
        (lambda z: rp.project(z, perplexity=1).rows, (V,)),
        (lambda z, y, flags: rc.batch_shares(z, y, flags, [4]).loss_share, (V[None], Y[None], A[None])),
        (lambda units: fu.feature_use(MLP, DATA, rows=9, attributed=3, steps=2, units=units)["unit_shares"],
         (torch.tensor([0, 1]),)),
    ],
)  # fmt: skip
def test_lists_and_arrays_are_taken_as_tensors_are(measure, given, like):
    single = [t.float() if t.dtype == torch.float64 else t for t in given]
    assert same(measure(*[like(t) for t in given]), measure(*single))


CORRECT, LABELS, VALUES = [True, False, True, True], [0, 1, 0, 1], [[0], [1], [1], [0]]
FIRST = {"weight": torch.ones(1, 2)}
LAND = ls.Landscape(np.arange(2.0), np.arange(2.0), {"loss": np.ones((2, 2))})
RECORD = rc.Record("erm", 0, {"loss_share": np.array([0.1, 0.2]), "logit_norm": np.array([1.0, 2.0])})
STEPS = torch.zeros(2, 3, 2), torch.zeros(2, 3).long(), torch.zeros(2, 3) > 0


def moved(direction):
    with ls.moved(nn.Linear(2, 1, bias=False), [(1.0, direction)]):
        pass


def columns(mask):
    return pa.columns_of(MLP, {"a": {"classify.weight": mask}}, {id(p) for p in MLP.parameters()})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        # Attribution
        *[(lambda how=how: at.attribute(CONV, X[:, :1], how=how), r"cannot take inputs of shape \(1, 8, 8\)")
          for how in ("gradcam", "ig", "deeplift")],
        (lambda: at.attribute(NARROW, V, how="ig"), r"Sequential cannot take inputs of shape \(7,\), float32"),
        (lambda: at.attribute(CONV, (X * 255).to(torch.uint8)), "uint8"),
        (lambda: at.unit_shares(NARROW, V, V[0] > 0, [0]), "cannot take inputs"),
        (lambda: at.attribute(MLP, V[0], how="ig"), r"One sample is x\[None\]"),
        (lambda: at.attribute(MLP, V, 0.5, how="ig"), "one number from 0 to 1"),
        (lambda: at.attribute(MLP, V, "cat", how="ig"), "target must be"),
        (lambda: at.attribute(MLP, V, how="ig", steps=2.5), "steps = 2.5"),
        (lambda: at.attribute(MLP, V, how="ig", baseline=torch.zeros(3)), r"not \(3,\)"),
        (lambda: at.attribute(CONV, X, layer="4"), "Layer '4' gives no picture"),
        (lambda: at.usable(CONV, "gradcm", (3, 8, 8)), "did you mean 'gradcam'"),
        (lambda: at.usable(CONV, "gradcam", (1, 8, 8)), "cannot take inputs"),
        (lambda: at.attribute_rows(NARROW, DATA, "test", [0], how="ig"), "cannot take inputs"),
        (lambda: at.prepare(DATA, "test", "abc"), "rows must be"),
        (lambda: at.prepare(DATA, "test", [[1], [1, 2]]), "rows must be"),
        (lambda: at.share("abc", MASK), "maps must be"),
        (lambda: at.entropy(V[0]), "at least one place"),
        (lambda: at.entropy(V[:, :0]), "at least one place"),
        (lambda: tx.shares(V[0]), "at least one place"),
        (lambda: at.unit_shares(MLP, V, V[0] > 0, [0.5]), "from 0 to 7"),
        (lambda: at.overlay(torch.zeros(5, 5, dtype=torch.uint8), torch.zeros(5, 5)), "uint8 images"),
        (lambda: at.overlay(torch.zeros(0, 5, 5, dtype=torch.uint8), torch.zeros(5, 5)), "uint8 images"),
        (lambda: at.overlay(torch.zeros(3, 0, 0, dtype=torch.uint8), torch.zeros(0, 0)), "uint8 images"),
        (lambda: at.overlay(torch.zeros(3, 5, 5, dtype=torch.uint8), torch.zeros(5, 5), strength=2), "strength = 2"),
        (lambda: tx.attribute_tokens(BAG, TOKENS[:, 0]), r"\(n, 2, length\)"),
        (lambda: tx.attribute_tokens(BAG, TOKENS[:, [0, 1, 1]]), r"\(n, 2, length\)"),
        (lambda: tx.attribute_tokens(BAG, TOKENS[..., :0]), r"\(n, 2, length\)"),
        (lambda: tx.attribute_tokens(BAG, TOKENS * 9), "out of range"),
        (lambda: tx.attribute_tokens(BAG, torch.cat([TOKENS, TOKENS * 9])), "Token ids are 0 to 5"),
        (lambda: tx.attribute_tokens(BAG, TOKENS, steps=0), "steps = 0"),
        (lambda: tx.attribute_tokens(BAG, TOKENS, baseline=0.5), "is no token"),
        (lambda: tx.attribute_tokens(MLP, TOKENS), "cannot take inputs"),
        (lambda: tx.by_word(NAMES, TOKENS[0], torch.zeros(2)), r"\(2, length\)"),
        (lambda: tx.by_word(NAMES, TOKENS[0] * 9, torch.zeros(4)), "0 to 5"),
        # How small it could be
        (lambda: cp.sparsity(V, -1), "tolerance = -1"),
        (lambda: cp.sparsity(V, NAN), "tolerance = nan"),
        (lambda: cp.activations_compressed(MLP, DATA, most=-1), "rows = -1"),
        (lambda: cp.activations_compressed(NARROW, DATA), "cannot take inputs"),
        (lambda: pr.prunability(MLP, lambda n: NAN, kappas=(0, 0.5)), "accuracy of nan"),
        (lambda: pr.activation_prunability(V[:0], HEAD, share_of_half), "table of rows and neurons"),
        (lambda: pr.activation_prunability(V[:, :0], nn.Identity(), share_of_half), "table of rows and neurons"),
        (lambda: pr.activation_prunability(V[:, :5], HEAD, share_of_half), r"Linear cannot take inputs of shape \(5"),
        (lambda: pr.data_accuracy(DATA, rows=[0, 1])(torch.zeros(1, 2)), "logits for 1 samples, and 2 samples"),
        (lambda: pr.data_accuracy(DATA, rows=[0, 1])(torch.zeros(3, 2)), "logits for 3 samples, and 2 samples"),
        (lambda: pr.data_accuracy(DATA, rows=[], score="average")(MLP), "no average accuracy"),
        (lambda: pr.data_prunability(NARROW, DATA, rows=[0]), "cannot take inputs"),
        (lambda: pr.data_prunability(NARROW, DATA, "activations", rows=[0]), "cannot take inputs"),
        (lambda: pr.lowest(V[0], V[0, :3] + 1, 0.5), "a score and a size"),
        (lambda: pr.lowest(V[0, :3], V[0] + 1, 0.5), "a score and a size"),
        (lambda: pr.lowest(V[0, :0], V[0, :0], 0.5), "a score and a size"),
        (lambda: pr.lowest(V[0], V[0] - 2, 0.5), "a score and a size"),
        (lambda: pr.lowest(V[0], V[0] + 1, 5), "not 5"),
        # Use of features
        (lambda: fu.feature_use(NARROW, DATA), "cannot take inputs"),
        (lambda: fu.some_rows(DATA, "test", 2.5), "rows = 2.5"),
        (lambda: fu.some_rows(DATA, "test", NAN), "rows = nan"),
        (lambda: pa.unit_parts(Net.wrap(MLP), EMPTY), "has no samples"),
        (lambda: columns(torch.ones(9, 9)), "mask of 'classify.weight' must have its shape"),
        # Counting
        *[(lambda given=given: wilson(*given), "0 ≤ correct ≤ n")
          for given in [(1, -3), (5, 3), (-1, 3), (NAN, 3), (5, 0), (1, 3, 1), (1, 3, 95), (1, 3, -0.5)]],
        *[(lambda given=given: mean_of_cells(*given), "lists as long")
          for given in [([1, 1], [2], [1, 1]), ([1, 1], [2, 2], [1] * 3), ([0, 1], [0, 2], [1, 1]),
                        ([5, 1], [2, 2], [1, 1]), ([NAN, 1], [2, 2], [1, 1])]],
        *[(lambda given=given: mean_of_cells(*given), "weights of cells")
          for given in [([], [], []), ([1], [2], [0]), ([1, 1], [2, 2], [-1, 2])]],
        *[(lambda y=y: gr.group_scores(CORRECT, y), "y must hold whole numbers")
          for y in ([0.0, 1, 0, 1], [-1, 1, 0, 1], list("abab"))],
        (lambda: gr.group_scores(CORRECT, LABELS, [[0], [1, 2], [0], [0]]), "a must be a table"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, train_counts=[[[1, 2]]]), "train_counts of a0"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, train_counts=[[1, 2]]), "train_counts of a0"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, train_counts=[[[-1, 2], [3, 4]]]), "train_counts of a0"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, train_counts=[[[NAN, 2], [3, 4]]]), "train_counts of a0"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, train_counts=[[[1, 2], [3, 4]]] * 2), "train_counts must"),
        (lambda: gr.group_scores(CORRECT, LABELS, [[0, 0]] * 4, values=[["a", "b"]]), "values must have"),
        (lambda: gr.group_scores(CORRECT, LABELS, level=2), "at level 2"),
        (lambda: gr.group_scores(CORRECT, LABELS, member=True), "member has shape"),
        (lambda: gr.group_scores(CORRECT, LABELS, VALUES, attributes=["g"], member=[[True]] * 4, overlap=("g", ["a"])),
         "same name, g"),
        (lambda: gr.confusion([0, 1, 0, 5], LABELS, "ab", {}), "y holds 5"),
        (lambda: gr.confusion(LABELS, [0, -1, 0, 1], "ab", {}), "predicted must hold"),
        (lambda: gr.confusion(LABELS, [1], "ab", {}), "predicted has shape"),
        (lambda: gr.confusion(LABELS, LABELS, "ab", {"some": [0, 3, 1, 2]}), "some must hold True"),
        (lambda: inference_scores([NAN, 0, 0, 1], LABELS, LABELS, CORRECT), "groups must hold"),
        (lambda: inference_scores(LABELS, [0.5, 0, 0, 1], LABELS, CORRECT), "truth must hold"),
        (lambda: inference_scores(LABELS, LABELS, [0], CORRECT), "y has shape"),
        (lambda: inference_scores([LABELS], [LABELS], [LABELS], [CORRECT]), "conflicting has shape"),
        # Around a solution
        (lambda: moved({}), "lacks 'weight'"),
        (lambda: moved({"weight": torch.ones(3, 3)}), "direction for 'weight'"),
        (lambda: ls.landscape(MLP, {"half": share_of_half}, points=2, span=NAN), "finite span, not nan"),
        (lambda: ls.data_landscape(NARROW, DATA, points=1, rows=9), "cannot take inputs"),
        (lambda: ls.data_landscape(nn.Linear(7, 1), DATA, points=1, rows=9), "2 classes"),
        (lambda: ls.data_landscape(MLP, DATA, points=1, rows=9, attributed=0), "attributed = 0"),
        (lambda: ls.data_landscape(MLP, DATA, points=1, rows=9, attributed=-1), "attributed = -1"),
        (lambda: recompute_batchnorm(NORM, V[:, :3]), "cannot take inputs"),
        (lambda: recompute_batchnorm(NORM, V, 0), "batch_size = 0"),
        (lambda: ls.plot({}), "at least one landscape"),
        (lambda: ls.plot({"a": LAND, "b": replace(LAND, values={"x": np.ones((2, 2))})}), "same measures"),
        (lambda: ls.plot(ls.Landscape(np.zeros(1), np.zeros(1), {"loss": np.ones((1, 1))})), "single point"),
        # Over runs, and what was seen of them
        (lambda: ov.same_order([{"csi": 1, "core_share": 1}]), "must all have lr"),
        (lambda: ov.same_order([{"csi": 1, "core_share": 1, "lr": r} for r in (None, 1)]), "must all have lr"),
        (lambda: ov.same_order([{"csi": "high", "core_share": 1, "lr": 1}]), "No run has both"),
        (lambda: rc.batch_shares(STEPS[0][0], STEPS[1], STEPS[2], [3, 3]), r"\(steps, batch, classes\)"),
        (lambda: rc.batch_shares(STEPS[0], STEPS[1][:, :2], STEPS[2], [3, 3]), "y has shape"),
        (lambda: rc.batch_shares(STEPS[0], STEPS[1] + 5, STEPS[2], [3, 3]), "from 0 to 1"),
        (lambda: rc.batch_shares(STEPS[0], STEPS[1] - 1, STEPS[2], [3, 3]), "from 0 to 1"),
        (lambda: rc.batch_shares(STEPS[0], STEPS[1], STEPS[2].long(), [3, 3]), "conflicting must hold"),
        (lambda: rc.batch_shares(STEPS[0], STEPS[1], STEPS[2][:1], [3, 3]), "conflicting must hold"),
        (lambda: rc.batch_shares(*STEPS, [3]), "sizes must hold"),
        (lambda: rc.batch_shares(*STEPS, [3, 9]), "sizes must hold"),
        (lambda: RECORD.largest_share(0), "window = 0"),
        (lambda: rc.summary([RECORD], -1), "window = -1"),
        *[(lambda wrong=wrong: dy.Dynamics(**wrong), f"{next(iter(wrong))} = ")
          for wrong in ({"every": -1}, {"every": 1.5}, {"rows": 0}, {"attributed": -1}, {"ig_steps": 0})],
        (lambda: dy.as_dynamics("yes"), "not 'yes'"),
        # Regions and features
        (lambda: rg.background_mask(X[:, :1], SEGMENTER), "Conv2d cannot take inputs"),
        (lambda: rg.background_mask(X[0], SEGMENTER), "A segmenter gives scores"),
        (lambda: rg.background_mask(X, SEGMENTER, background=7), "with class 7"),
        (lambda: rg.background_mask(X, SEGMENTER, batch_size=0), "batch_size = 0"),
        (lambda: rg.background_mask(X, Says(lambda x: {"aux": x})), "not NoneType"),
        (lambda: rg.background_mask(X, Says(lambda x: (x, x))), "not tuple"),
        (lambda: rg.background_mask(X, CONV), r"not \(4, 2\)"),
        (lambda: rg.background_mask(X * NAN, SEGMENTER), "scores are NaN"),
        (lambda: rp.features_of(NARROW, DATA, "test", [0]), "cannot take inputs"),
        (lambda: rp.features_of(Net.wrap(CONV), ONE_CHANNEL, "test", [0]), "Net cannot take inputs"),
        (lambda: rp.features_of(MLP, DATA, "test", [0], batch_size=0), "batch_size = 0"),
        (lambda: rp.csi(torch.tensor(1.0), Y), "table of rows"),
        (lambda: rp.csi(V, None), "y must be"),
        (lambda: rp.csi(V, Y, epsilon=-1), "epsilon = -1"),
        (lambda: rp.bsi(V, np.zeros((4, 2))), r"a\[:, k\]"),
        (lambda: rp.alignment_gap(V[0], Y, A), "table of rows"),
        (lambda: rp.project(torch.tensor(1.0)), "table of rows"),
        # Robustness
        (lambda: ro.robustness(CONV, ONE_CHANNEL, ["jpeg"]), "cannot take inputs"),
        (lambda: ro.robustness(CONV, BLANK, ["jpeg"]), "has no samples"),
        (lambda: ro.robustness(Says(lambda x: (x, x)), PICTURES, ["jpeg"]), "gives a tuple"),
        (lambda: ro.robustness(Says(lambda x: x.flatten(1)[:, 0]), PICTURES, ["jpeg"]), "a number for each class"),
        (lambda: ro.as_table([{"corruption": "none", "severity": None, "average": 1.0}], ["avrage"]),
         "did you mean 'average'"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_refused_in_a_sentence(call, said):
    with pytest.raises(UserError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_damaged_record_is_refused(tmp_path):
    file = tmp_path / rc.FILE
    file.write_text(json.dumps([RECORD.row() | {"series": []}]))
    with pytest.raises(UserError, match="is damaged"):
        rc.read(tmp_path)
    with pytest.raises(UserError, match="was not watched"):
        rc.read(file)  # the file in place of its folder
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match="is damaged"):
        rc.read(tmp_path)


def test_what_has_an_answer_gets_it():
    assert cp.compressibility(V[1:], q=math.inf, kappa=1.0).tolist() == [1, 1, 1]
    assert cp.sparsity(V[0] > 0).item() == pytest.approx(1 / 7)
    found = gr.confusion([0, 0, 1, 1], [0, 2, 1, 3], "ab", {"all": [True] * 4})["groups"][0]["counts"]
    assert found == [[1, 0], [0, 1]]  # a network with more outputs: those rows are in no column
    assert gr.confusion([], [], "ab", {"all": []})["groups"][0]["counts"] == [[0, 0], [0, 0]]
    large = [{"a": 1e200 * i, "b": i} for i in range(5)]
    assert ov.correlation(large, "a", "b").pearson == 1  # squares of these are infinite
    assert ov.correlation([*large, {"a": "none", "b": 1}], "a", "b").n == 5
    moved({"weight": np.ones((1, 2))})
    assert columns(np.ones((2, 8)))[0].mask.shape == (2, 8)
    given = (torch.tensor(each) for each in (CORRECT, LABELS, VALUES))
    assert gr.group_scores(*given, train_counts=np.ones((1, 2, 2)))["average_train_weighted"] == pytest.approx(75)
    assert at.overlay((X[0] * 255).to(torch.uint8).numpy(), MAPS[0].numpy()).shape == (3, 8, 8)


def test_not_enough_memory_is_not_taken_for_a_wrong_shape():
    for error in (RuntimeError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")):

        def fails(_, error=error):
            raise error

        with pytest.raises(RuntimeError, match="memory"), checks.asking(MLP, V):
            fails(V)


def test_statistics_are_those_from_before_if_something_fails():
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    net[0].running_mean.fill_(3.0)
    with pytest.raises(UserError, match="cannot take inputs"):
        recompute_batchnorm(net, torch.randn(6, 3))
    assert net[0].running_mean.tolist() == [3.0] * 4 and net[0].momentum == 0.1 and int(net[0].num_batches_tracked) == 0


def test_whole_numbers_may_be_written_as_floats():
    assert (found := dy.Dynamics(every=4.0, attributed=2.0)).every == 4 and isinstance(found.every, int)
    assert isinstance(found.attributed, int)
    assert trained_ratio(0.9, D=2, n=20.0, epochs=1.0) == trained_ratio(0.9, D=2, n=20, epochs=1)
    x = torch.randn(2, 5)
    assert torch.equal(at.attribute(nn.Linear(5, 2), x * 0, 0, "ig", steps=4.0), torch.zeros(2, 5))


def test_labels_and_numbers_of_kinds_that_numpy_or_torch_know_little_of():
    assert checks.codes(np.array([0, 2], dtype=np.uint16), 2, classes=3).tolist() == [0, 2]
    assert checks.numbers(torch.tensor([1.0, 2.5], dtype=torch.bfloat16), "w").tolist() == [1.0, 2.5]


def test_a_fault_of_the_gpu_is_not_blamed_on_the_inputs():
    with pytest.raises(RuntimeError, match="cuDNN"), checks.asking(nn.Identity(), torch.zeros(2, 2)):
        raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")

"""Groups from the errors of a network that follows the bias: in each class, the rows that were mined, and the rest."""

from spurless.core.method import Run
from spurless.methods.group_inference import Groups, Inference, within_classes
from spurless.methods.group_inference.mining import (
    EnsembleEpochs,
    Epochs,
    ErrorsBy,
    Eta,
    GceForm,
    Iterations,
    Miner,
    Q,
    Tau,
    Unlearn,
    early,
    mine_ecs,
    mine_erm,
    mine_gce,
    wrong_rows,
)
from spurless.methods.group_inference.predictions import EarlyEpochs


def infer_gce(
    run: Run,
    q: Q = 0.7,
    form: GceForm = "paper",
    epochs: Epochs = None,
    iterations: Iterations = None,
    errors_by: ErrorsBy = "evaluation",
) -> Inference:
    """Class, and whether a network trained with GCE gets the row wrong (DCWP)."""
    return (yield from _by_errors(run, mine_gce(run, q, form, epochs, iterations, errors_by)))


def infer_jtt(
    run: Run,
    identify_epochs: EarlyEpochs = 0,
    errors_by: ErrorsBy = "evaluation",
) -> Inference:
    """Class, and whether a network stopped early gets the row wrong (JTT)."""
    return (yield from _by_errors(run, mine_erm(run, *early(run, identify_epochs), errors_by)))


def infer_ecs(
    run: Run, eta: Eta = 0.5, tau: Tau = 0.8, epochs: EnsembleEpochs = 50, unlearn: Unlearn = 1e-4
) -> Inference:
    """Class, and whether the epoch-ensemble score is high (ECS).

    The score is a mean over the epochs of training, so that validation rows cannot be told afterwards.
    """
    mined = yield from mine_ecs(run, eta, tau, epochs, unlearn)
    y = run.data.train.y
    return Groups(within_classes(y, mined.rows.long(), 2), None, 2 * len(run.data.classes), mined.net)


def _by_errors(run: Run, miner: Miner) -> Inference:
    mined = yield from miner
    assert mined.net is not None
    y, val, held_out = run.data.train.y, run.data.val, None
    if val is not None:
        wrong = wrong_rows(run.outputs(mined.net, val).cpu(), val.y)
        held_out = within_classes(val.y, wrong.long(), 2)
    return Groups(within_classes(y, mined.rows.long(), 2), held_out, 2 * len(run.data.classes), mined.net)

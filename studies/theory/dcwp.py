"""DCWP's error bounds and the dynamics of its weight ratio.

Its world (section 3.2): Y = ±1, one invariant feature Z_inv = Y and D spurious ones that agree with Y with probability
p each, a linear classifier w = (w_inv, w_sp), and a random mask that keeps weights with probabilities π. The dataset
`linear_toy` is this world.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spurless.core.errors import SettingError, UserError, first_line
from spurless.data.sets.linear_toy import debiasing_phi as debiasing_phi
from spurless.metrics import checks

Array = np.ndarray

# Bounds


def margin(pi_inv: float, pi_sp: Array, alpha: Array, p: float, phi: float = 0.0) -> float:
    """E[output · Y] / w_inv of the randomly pruned classifier: π_inv + (2p(1 − φ) − 1) Σ α_i π_sp,i.

    >>> margin(1.0, np.array([1.0, 0.5]), np.array([0.5, 1.0]), p=0.75)
    1.5
    """
    pi_sp, alpha = _classifier(pi_inv, pi_sp, alpha, p, phi)
    return float(pi_inv + (2 * p * (1 - phi) - 1) * np.dot(alpha, pi_sp))


def error_bound(pi_inv: float, pi_sp: Array, alpha: Array, p: float, phi: float = 0.0) -> float:
    """The upper bound on the error under random masks: 2 exp(−2 margin² / (4 Σ α_i² + 1)).

    Theorem 1: φ = 0, in training with p, on test data with p = 1/2. Theorem 2: the mixture with weight φ.
    Hoeffding's inequality needs a margin of at least 0; with a negative one (φ too large) the bound is 2: no statement.

    >>> round(error_bound(1.0, np.zeros(1), np.zeros(1), p=0.9), 4)  # 2/e²
    0.2707
    """
    pi_sp, alpha = _classifier(pi_inv, pi_sp, alpha, p, phi)
    return 2 * float(np.exp(-2 * max(0.0, margin(pi_inv, pi_sp, alpha, p, phi)) ** 2 / (4 * np.sum(alpha**2) + 1)))


def pruned_error(
    pi_inv: float, pi_sp: Array, alpha: Array, p: float, phi: float = 0.0, n: int = 100_000, seed: int = 0
) -> float:
    """The error itself (equation 2), by Monte Carlo over inputs and masks. An output of 0 counts as half an error.

    >>> pruned_error(0.0, np.zeros(2), np.ones(2), p=0.9, n=10)  # nothing is left
    0.5
    """
    pi_sp, alpha = _classifier(pi_inv, pi_sp, alpha, p, phi)
    n = checks.count(n, "n")
    rng = np.random.default_rng(seed)
    agrees = np.where(rng.random((n, len(alpha))) < p * (1 - phi), 1, -1)  # Z_sp · Y
    kept = rng.random((n, len(alpha))) < pi_sp
    output = (rng.random(n) < pi_inv) + (agrees * kept) @ alpha  # times Y / w_inv
    return float(0.5 * np.mean(1 - np.sign(np.round(output, 12))))


def _classifier(pi_inv: float, pi_sp: Array, alpha: Array, p: float, phi: float) -> tuple[Array, Array]:
    """(D,), (D,) The masks' probabilities and the weight ratios."""
    for name, value in (("pi_inv", pi_inv), ("p", p), ("phi", phi)):
        checks.share(value, name)
    kept, ratio = (checks.numbers(each, name, least=0) for name, each in (("pi_sp", pi_sp), ("alpha", alpha)))
    if kept.shape != ratio.shape or ((kept < 0) | (kept > 1)).any():
        raise SettingError(f"pi_sp holds a share from 0 to 1 for each of the {len(ratio)} ratios in alpha.")
    return kept, ratio


# Dynamics of the weight ratio


class Flow(NamedTuple):
    """Weights at some times of training."""

    inv: Array  # (times,)
    sp: Array  # (times, D)

    @property
    def alpha(self) -> Array:
        """(times,) The mean weight ratio."""
        return self.sp.mean(1) / self.inv


def gradient_flow(w_inv: float, w_sp: Array, p: float, times: Array) -> Flow:
    """Gradient flow on the exponential loss with infinitely many rows (proposition 1), from these start values.

    d w_inv/dt = e^{−w_inv} Π_i (p e^{−w_i} + (1 − p) e^{w_i}), for w_sp,i with a minus in the i-th factor.
    """
    from scipy.integrate import solve_ivp

    first = np.concatenate([[checks.number(w_inv, "w_inv")], checks.numbers(w_sp, "w_sp", least=0)])
    checks.share(p, "p")
    t = np.atleast_1d(_times(times))
    if (np.diff(t) <= 0).any() or t[-1] == 0:
        raise SettingError("times must grow, and end after 0.")

    def slope(_: float, w: Array) -> Array:
        up, down = p * np.exp(-w[1:]), (1 - p) * np.exp(w[1:])
        loss = np.exp(-w[0]) * np.prod(up + down)
        return np.concatenate([[loss], loss * (up - down) / (up + down)])

    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(slope(0.0, first)).all():
            raise SettingError("The flow cannot start here: the loss of these weights is beyond all numbers.")
    found = solve_ivp(slope, (0, float(t[-1])), first, "LSODA", t_eval=t, rtol=1e-9, atol=1e-12)
    if not found.success:
        raise UserError(f"The flow could not be followed to the end: {first_line(found.message)}")
    return Flow(found.y[0], found.y[1:].T)


def invariant_bounds(w_inv: float, w_sp: Array, p: float, t: Array) -> tuple[Array, Array]:
    """Between what w_inv(t) lies (equations 37 and 38): both grow like log t."""
    w_inv, w_sp, t = checks.number(w_inv, "w_inv"), checks.numbers(w_sp, "w_sp", least=0), _times(t)
    _below_limit(w_sp, p)
    slow = (4 * p * (1 - p)) ** (len(w_sp) / 2)
    fast = float(np.prod(p * np.exp(-w_sp) + np.sqrt(p * (1 - p))))
    return np.log(np.exp(w_inv) + slow * t), np.log(np.exp(w_inv) + fast * t)


def spurious_floor(w_sp: float, p: float, D: int, t: Array, last: float) -> Array:
    """What w_sp,i(t) stays above (equation 39) while w_inv is at most `last`.

    The addition is outside artanh here. Inside, as printed, it does not follow from the line before it, and is wrong.
    """
    t, last = _times(t), checks.number(last, "last")
    D = checks.count(D, "D")
    _below_limit(w_sp, p)
    if p == 1:
        raise SettingError("p = 1 is not allowed: there w_sp grows without end, and the floor is for what ends.")
    with np.errstate(divide="ignore"):  # at the limit itself the weight stays
        start = np.arctanh(np.minimum(np.sqrt((1 - p) / p) * np.exp(w_sp), 1.0))
    push = np.exp(-last) * 2 ** (D - 1) * (p * (1 - p)) ** (D / 2) * t
    return np.log(p / (1 - p)) / 2 + np.log(np.tanh(start + push))


def _below_limit(w_sp: Array | float, p: float) -> None:
    """Both bounds are for weights that grow."""
    checks.share(p, "p")
    with np.errstate(divide="ignore"):
        limit = np.log(np.float64(p) / (1 - p)) / 2
    if not np.all(w_sp <= limit + 1e-12):
        raise SettingError(
            f"w_sp must start at ½ log(p / (1 − p)) = {limit:.4g} or below, which it grows to; not {w_sp}."
        )


def _times(t: Array) -> Array:
    """As they are: one, or a list of them."""
    found = checks.numbers(t, "t").reshape(np.shape(t))
    if found.min() < 0:
        raise SettingError("Times are from 0 on; some of these are before.")
    return found


class Trained(NamedTuple):
    """A linear classifier of figure 2."""

    ratio: float  # mean(w_sp) / w_inv
    accuracy: float  # on test data (p = 1/2), in percent


def trained_ratio(
    p: float, D: int = 15, n: int = 10_240, epochs: int = 500, batch: int = 1024, lr: float = 0.1, seed: int = 0
) -> Trained:
    """Train a linear classifier with binary cross entropy (figure 2) and see how much it leans on spurious features.

    The paper leaves n, the optimiser, its learning rate and the start open: plain SGD here, from weights of 0.
    """
    checks.share(p, "p")
    D, n = checks.count(D, "D"), checks.count(n, "n")
    epochs, batch = checks.count(epochs, "epochs"), checks.count(batch, "batch")
    if not 0 < lr < np.inf:
        raise SettingError(f"lr = {lr} is not allowed; it is a step above 0.")
    rng = np.random.default_rng(seed)

    def rows(count: int, agreement: float) -> Array:
        return np.where(rng.random((count, D)) < agreement, 1.0, -1.0)  # Z_sp · Y, so that every label is 1

    # Y · X has the same distribution whatever Y is, and the classifier has no bias: labels need not be drawn.
    x = np.concatenate([np.ones((n, 1)), rows(n, p)], axis=1).astype(np.float32)  # (n, 1 + D)
    w = np.zeros(1 + D, dtype=np.float32)
    for _ in range(epochs):
        for part in np.array_split(x[rng.permutation(n)], max(1, n // batch)):
            w += np.float32(lr) * (part / (1 + np.exp(part @ w))[:, None]).mean(0)  # σ(−w·x) x
    test = np.concatenate([np.ones((n, 1)), rows(n, 0.5)], axis=1)
    return Trained(float(w[1:].mean() / w[0]), 100 * float(np.mean(test @ w > 0)))

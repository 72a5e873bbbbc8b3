"""The heads of the plain model are ridge regressions, each without its own fold."""

import pytest
import torch

from spurless.auditing.foreground import grown
from spurless.auditing.plain import STRENGTHS, Ridge, fit_heads, folds_of


def slow_ridge(z, target, w, part, strength, scale):
    """Least squares on the samples of a part, with the penalty as samples of their own: one row for each weight."""
    penalty = torch.full((z.shape[1],), strength * scale).double()
    penalty[-1] *= 0.001  # the constant
    rows = torch.cat([z[part] * w[part, None].sqrt(), penalty.sqrt().diag()])
    aim = torch.cat([target[part] * w[part, None].sqrt(), torch.zeros(z.shape[1], target.shape[1]).double()])
    return torch.linalg.lstsq(rows, aim).solution


@pytest.mark.parametrize("n", [60, 12])  # more samples than features, and fewer
def test_all_strengths_and_parts_are_those_of_least_squares_one_by_one(n):
    g = torch.Generator().manual_seed(0)
    z = torch.cat([torch.randn(n, 20, generator=g), torch.ones(n, 1)], 1).double()
    target, w = torch.randn(n, 3, generator=g).double(), 0.5 + torch.rand(n, generator=g).double()
    fold = torch.arange(n) % 4
    parts = {k: fold != k for k in range(4)} | {-1: torch.ones(n, dtype=torch.bool)}
    ridge, scale = Ridge(z, target, w), n * float(z[:, :-1].square().mean())
    for strength in (1.0, 0.01, 1.0):  # what is kept of a part may not hold the strength before
        for k, part in parts.items():
            made = ridge.head(k, part, strength)
            slow = slow_ridge(z, target, w, part, strength, scale)
            if n > z.shape[1]:
                assert torch.allclose(made, slow, atol=1e-6)
            else:  # there the constant is shrunk as all else
                even = torch.linalg.solve(
                    (z[part] * w[part, None]).T @ z[part] + strength * scale * torch.eye(21).double(),
                    (z[part] * w[part, None]).T @ target[part],
                )
                assert torch.allclose(made, even, atol=1e-6)


def test_no_head_has_seen_its_own_fold():
    """Labels drawn at random: the heads of all know some of them, the others none."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(200, 60, generator=g), torch.randint(2, (200,), generator=g)
    fold = folds_of(y, 0)
    heads = fit_heads(x, y, 2, fold, strength=min(STRENGTHS))
    out_of_fold, all_ = (heads.logits(x, f).argmax(1).eq(y).float().mean() for f in (fold, torch.full_like(fold, -1)))
    assert all_ > 0.65 and 0.35 < out_of_fold < 0.65


def test_a_mask_grows_by_the_largest_of_a_square_window():
    mask = (torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(2)) > 0.98).float()
    wide = torch.nn.functional.max_pool2d(mask, 5, 1, 2)
    soft = torch.nn.functional.avg_pool2d(wide, 5, 1, 2, count_include_pad=False)
    assert torch.equal(grown(mask), soft)

"""Where the object is: masks without labels, by discs that are known to the pixel."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from spurless.auditing.foreground import background_only, fills_frame, foreground, grown, swap_background
from spurless.auditing.judge import of_cue
from spurless.auditing.suspects import Suspect, _area


def discs(n=24, radius=0.24, seed=0):
    """A disc of one colour, somewhere near the middle, on a ground of two other colours with a border between them."""
    g = torch.Generator().manual_seed(seed)
    at = torch.linspace(-0.5, 0.5, 80)
    middle = 0.2 * (torch.rand(n, 2, generator=g) - 0.5)
    far = (
        (at[None, :, None] - middle[:, 0, None, None]) ** 2 + (at[None, None] - middle[:, 1, None, None]) ** 2
    ).sqrt()
    inside = (far < radius)[:, None]  # (n, 1, 80, 80)
    colours = torch.rand(n, 3, 3, generator=g)
    colours[:, 0] = torch.tensor([0.9, 0.15, 0.1])
    colours[:, 1:] *= torch.tensor([0.35, 0.9, 0.9])
    ground = torch.where(at[:, None] < 0.1, colours[:, 1, :, None, None], colours[:, 2, :, None, None])
    x = torch.where(inside, colours[:, 0, :, None, None], ground)
    return (x + 0.03 * torch.randn(x.shape, generator=g)).clamp(0, 1), inside


def test_a_disc_is_found_without_labels():
    x, inside = discs()
    mask = foreground(x) > 0.5
    overlap = (mask & inside).sum((1, 2, 3)) / (mask | inside).sum((1, 2, 3))
    assert float(overlap.median()) > 0.6
    assert float(((grown(foreground(x)) > 0.5) & inside).sum() / inside.sum()) > 0.95  # hardly anything stays outside


def test_nothing_of_the_object_is_left_in_its_background():
    x, inside = discs()
    red = lambda image: image[:, :1] - image[:, 1:].mean(1, keepdim=True)  # noqa: E731
    before, after = (float(red(image)[inside].mean()) for image in (x, background_only(x)))
    assert before > 0.6 and after < 0.25 * before
    corners = x[..., :4, :4]
    assert torch.allclose(background_only(x)[..., :4, :4], corners, atol=0.02)  # and the rest is as it was


def test_an_exchange_keeps_the_object_and_brings_the_donors_ground_without_its_object():
    x, inside = discs(12)
    donor, other = discs(12, seed=1)
    mixed = swap_background(x, donor)
    assert torch.allclose(mixed[inside.expand_as(mixed)].mean(), x[inside.expand_as(x)].mean(), atol=0.05)
    assert torch.allclose(mixed[..., :4, :], donor[..., :4, :], atol=0.02)
    away = other & ~(foreground(x) > 0.05)  # where the donor's object was, and mine is not
    if bool(away.any()):
        assert float((mixed[:, :1] - mixed[:, 2:])[away].mean()) < 0.3


@pytest.mark.parametrize(("radius", "full"), [(0.2, False), (0.42, True)])
def test_objects_that_fill_the_frame_have_no_background(radius, full):
    assert fills_frame(discs(radius=radius)[0]) is full


def test_the_area_under_the_curve_is_that_of_scikit_learn():
    g = np.random.default_rng(0)
    scores, y = torch.from_numpy(g.normal(size=(200, 3))).float(), torch.from_numpy(g.integers(0, 3, 200))
    for c in range(3):
        ahead = scores[:, c] - (scores.sum(1) - scores[:, c]) / 2
        assert _area(scores, y, c) == pytest.approx(roc_auc_score((y == c).numpy(), ahead.numpy()), abs=1e-9)


@pytest.mark.parametrize(("part", "verdict"), [(0.6, "no evidence"), (0.82, "available"), (0.9, "found")])
def test_a_background_is_found_only_where_the_object_adds_next_to_nothing(part, verdict, monkeypatch):
    """Deer are seen in woods: natural scenes tell much of the class, and leave more to the object."""
    monkeypatch.setattr("spurless.auditing.judge.background_part", lambda case, s: part)
    none = torch.zeros(4, dtype=torch.bool)
    score = {"value": 90.0, "low": 85.0, "high": 95.0, "n": 200}
    s = Suspect("background", "the background", "background", score, 50.0, 0.5, None, none.long(), none, none.long())
    s.used = {"p": 1e-6, "effect": {"value": 40.0, "low": 30.0, "high": 50.0}}
    s.harm = {"gap": {"value": 30.0, "low": 20.0, "high": 40.0}, "p": 1e-6, "balanced": None}
    assert of_cue(None, s) == verdict

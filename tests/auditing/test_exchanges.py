"""What repairs are judged by: exchanged cues, findings that are joined, and worlds that cost the model something."""

from dataclasses import replace

import pytest
import torch

from spurless.auditing import audit
from spurless.auditing.case import Case
from spurless.auditing.cues import ring
from spurless.auditing.exchanges import (
    DRAWN,
    LIGHT,
    World,
    drawn,
    family,
    inside,
    joined,
    moments,
    on_other_ground,
    swap_light,
    wider,
    worlds,
)
from spurless.auditing.fix import Judge, Repairs, judged_by, next_to, repair
from spurless.auditing.gather import Cue
from spurless.auditing.marks import swap_window
from spurless.auditing.model import plain_case
from spurless.auditing.removals import cropped, edits, evened, greyed, reencoded, removal
from spurless.auditing.repairs import Candidates, Repair
from spurless.auditing.retry import repairs
from spurless.auditing.suspects import Suspect
from spurless.core.data import Bundle, Images, Split

QUIET = {"progress": False, "device": "cpu"}


def striped(n, agree, seed, side=16):
    """Noisy images with a white stripe down the left side where the label is 1, in a share; a faint bar tells it."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randint(0, 150, (n, 1, side, side), generator=g)
    x[:, 0, 4:14, 10] += 60 * y[:, None]
    marked = torch.where(torch.rand(n, generator=g) < agree, y, 1 - y)
    x[marked == 1, 0, :, :2] = 250
    return x.to(torch.uint8), y, marked


def finding(case, follows, says, cue, kind, strength=0.9, crisp=1.0, effect=0.5):
    alone = {"value": 90.0, "low": 88.0, "high": 92.0, "n": len(follows)}
    return Suspect(cue.name, cue.words, kind, alone, 50.0, strength, None, says, follows, torch.arange(len(follows)),
                   used={"effect": {"low": 100 * effect}}, verdict="available",
                   extra={"best": None, "crisp": crisp, "cue": cue})  # fmt: skip


@pytest.fixture(scope="module")
def striped_case():
    x, y, marked = striped(600, 0.97, 0)
    data = Bundle("striped", Split(x, y), inputs=Images((0.3,), (0.25,)))
    return plain_case(data, 0, torch.device("cpu"))[0], marked


def corner_of(case, marked):
    """A finding that is no more than a window of the stripe."""
    cue = Cue("a mark in the upper left corner", "a mark", "mark", swap=swap_window(0, 0, 3))
    return finding(case, marked == case.held.y, marked, cue, "mark")


def place_of(case, marked):
    """A finding that says nothing: exchanging it changes nothing at all."""
    cue = Cue("object position", "where the object is", "place", swap=lambda x, donor: x)
    return finding(case, marked == case.held.y, marked, cue, "place")


def test_what_was_drawn_is_seen_as_far_as_it_goes_and_no_further(striped_case):
    case, marked = striped_case
    mask = drawn(case.held[torch.arange(600)].float() / 255, marked)
    assert mask[0, 0, :, :2].all()  # the whole stripe
    assert not mask[0, 0, :, 3:].any()  # and a rim of one pixel
    plain = case.held[(marked == 0).nonzero()[:, 0]].float() / 255
    assert drawn(plain, torch.arange(len(plain)) % 2) is None  # noise is the same in no two images


def test_a_ground_on_which_one_class_has_more_room_was_not_drawn():
    """On black, the narrow half of the samples leaves pixels black that the wide half fills with grey tones."""
    x = torch.zeros(80, 1, 12, 12)
    x[:, :, 2:10, 4:8] = 0.2 + 0.6 * torch.rand(80, 1, 8, 4, generator=torch.Generator().manual_seed(0))
    wide = torch.arange(80) % 2 == 1
    x[wide, :, 2:10, 1:11] = 0.2 + 0.6 * torch.rand(40, 1, 8, 10, generator=torch.Generator().manual_seed(1))
    assert drawn(x, wide.long()) is None
    x[wide, :, 0:2, 0:2] = 0.9
    mask = drawn(x, wide.long())
    assert mask[0, 0, :2, :2].all() and int((mask > 0).sum()) == 9  # the mark, and a rim of one pixel


def test_findings_of_a_kind_are_joined_and_what_was_drawn_stands_for_its_windows(striped_case):
    case, marked = striped_case
    two = [replace(place_of(case, marked), kind="light", name="red"), corner_of(case, marked)]
    both = joined(two, case)
    assert [each.name for each in both] == [DRAWN, LIGHT] and both[0].extra["seen"]
    assert bool((both[0].follows == two[1].follows).all())
    assert [world.finding.name for world in worlds(case, two, case.fold)] == ["red", DRAWN, LIGHT]
    assert family(two[1]) == family(both[0]) == DRAWN and family(two[0]) == LIGHT
    swapped = both[0].extra["cue"].swap(torch.zeros(1, 1, 16, 16), torch.ones(1, 1, 16, 16))
    assert swapped[0, 0, :, :2].all() and not swapped[0, 0, :, 3:].any()
    unseen = joined([replace(two[1], says=torch.zeros(600, dtype=torch.long))], case)
    assert unseen == []  # a window alone is joined to nothing


def test_a_weak_finding_is_left_out_only_where_what_it_is_joined_to_stands_for_it(striped_case):
    """A background whose exchange was seen to move little in 90 answers may cost the model most of all."""
    case, marked = striped_case
    first, weak = (
        replace(place_of(case, marked), kind="light", name="red"),
        replace(place_of(case, marked), used={"effect": {"low": 1.0}}),
    )
    assert [world.finding.name for world in worlds(case, [first, weak], case.fold)] == ["red", weak.name, LIGHT]
    green = replace(weak, kind="light", name="green")
    assert [world.finding.name for world in worlds(case, [first, green], case.fold)] == ["red", LIGHT]


def test_an_exchange_is_with_another_sample_of_the_other_and_of_the_own_class(striped_case):
    case, marked = striped_case
    world = worlds(case, [corner_of(case, marked)], case.fold)[0]
    y, x = case.held.y, case.held[torch.arange(600)]
    assert len(world.of) == int((marked == y).sum()) and bool((marked == y)[world.of].all())
    other, same = ((made[:, 0, :, :2] == 250).all((1, 2)).long() for made in world.inputs)
    assert torch.equal(other, 1 - y[world.of]) and torch.equal(same, y[world.of])
    for made in world.inputs:
        assert torch.equal(made[..., 3:], x[world.of][..., 3:])  # all else is as it was


def test_a_finding_that_leads_wrongly_does_not_keep_the_next_one_from_its_repair(striped_case):
    """The object's place leads, whose exchange moves nothing; a corner of the stripe is second."""
    case, marked = striped_case
    alone = repair(case, [place_of(case, marked)], None)
    assert alone.chosen is None and "Nothing is repaired" in alone.text[0] and "loses 0 points" in alone.text[0]
    found = repair(case, [place_of(case, marked), corner_of(case, marked)], None)
    assert found.chosen is not None and found.leading.name == DRAWN
    told = found.to_dict()
    assert told["finding"] == DRAWN and [judge["name"] for judge in told["judges"]] == [DRAWN]
    assert told["judges"][0]["lost"] > 20 and told["judges"][0]["conflicting"] == int((marked != case.held.y).sum())
    methods = [row["method"] for row in told["rows"]]
    assert told["chosen"] in methods and len(set(methods)) == len(methods)
    fresh, label, points = striped(600, 0.5, 1)
    against = points != label
    right = [(answers == label)[against] for answers in (found.tried[0].answers(case, fresh), found.answers(fresh))]
    before, after = (each.float().mean() for each in right)
    assert after > before + 0.2
    shown = found.advice()[0]["title"].lower()
    assert shown == removal(DRAWN) if found.chosen.edit is not None else shown.startswith("fit the last layer")


def test_a_model_that_no_cue_costs_anything_is_left_alone():
    x, y, marked = striped(600, 0.5, 3)  # the stripe says nothing
    case = plain_case(Bundle("striped", Split(x, y), inputs=Images((0.3,), (0.25,))), 0, torch.device("cpu"))[0]
    found = repair(case, [corner_of(case, marked), place_of(case, marked)], None)
    assert found.chosen is None and len(found.tried) == 1 and found.rows()[0]["method"] == "before"
    assert torch.equal(found.answers(x), found.tried[0].answers(case, x))


def test_worlds_that_cost_the_model_something_judge_and_one_of_each_family():
    n = 400
    follows = torch.arange(n) >= 5
    everything, all_right = torch.arange(n), torch.ones(n, dtype=torch.bool)
    cue = Cue("x", "x", "x")

    def world(name, kind, crisp=1.0):
        return World(replace(finding(None, follows, everything, cue, kind, crisp=crisp), name=name), of=everything)

    every = [world("red", "light", 0.5), world(LIGHT, LIGHT), world("margin", "margin"), world("noise", "detail"),
             world("object size", "place")]  # fmt: skip
    losses = (200, 160, 300, 30, 390)
    kept = tuple((everything >= lost, all_right) for lost in losses)
    kept = (*kept[:4], (everything >= 390, everything >= 385))  # an exchange that spoils everything is no cue's fault
    judge = judged_by(every, Repair("before", "", all_right & follows, kept))
    assert [each.finding.name for each in judge.worlds] == ["margin", LIGHT]  # noise costs less than ten points
    assert judge.weights == pytest.approx([0.9 * 300 / 400, 0.9 * 160 / 400]) and judge.asked == 5
    same = tuple((all_right, all_right) for _ in every)
    assert judged_by(every, Repair("before", "", all_right & follows, same)) is None
    enough = [World(replace(w.finding, follows=torch.arange(n) >= 40), of=everything) for w in every]
    assert judged_by(enough, Repair("before", "", all_right, kept)) is None  # right on 40 real ones: left alone
    two = Repair("mixed", "", all_right, ((None,), *kept[1:3])[1:])
    half = Judge(judge.worlds, [3.0, 1.0], 5)
    swapped = replace(two, kept=(kept[2], kept[1]))
    assert half.two(swapped)[1] == pytest.approx(
        (3 * swapped.two(judge.worlds[0], 0)[1] + swapped.two(judge.worlds[1], 1)[1]) / 4
    )


def test_the_next_findings_are_those_that_move_the_model_most():
    rows = torch.arange(4)
    made = [
        finding(None, rows >= 0, rows, Cue(n, n, n), "light", effect=e)
        for n, e in zip("abcd", (0, 0.1, 0.3, 0.2), strict=True)
    ]
    assert [each.name for each in next_to(made)] == ["a", "c", "d", "b"]


def test_light_and_colours_leave_no_trace_once_they_are_evened():
    """The same picture in two tints: one scale and shift for each channel is all that tells them apart."""
    picture = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    grey, red = picture.repeat(1, 3, 1, 1), torch.cat([0.4 + 0.5 * picture, 0.3 * picture, 0.2 * picture], 1)
    assert torch.allclose(evened(grey), evened(red), atol=1e-3) and torch.allclose(greyed(grey), greyed(red), atol=1e-3)
    assert float((greyed(red)[:, 0] - greyed(red)[:, 2]).abs().max()) == 0
    given = swap_light(grey * 0.2 + 0.4, red * 0.5 + 0.2)
    for mine, wanted in zip(moments(given), moments(red * 0.5 + 0.2), strict=True):
        assert torch.allclose(mine, wanted, atol=1e-2)


def test_the_removals_of_images_keep_their_size():
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert ring(x) == (2, 2)
    for change in (cropped, reencoded, evened, greyed):
        assert change(x).shape == x.shape and float(change(x).min()) >= 0 and float(change(x).max()) <= 1
    framed = x.clone()
    framed[..., :4, :] = framed[..., -4:, :] = framed[..., :4] = framed[..., -4:] = 1.0
    assert torch.equal(cropped(framed), cropped(x))  # nothing of the margin is left
    assert torch.equal(inside(torch.ones(1, 1, 32, 32))(x, framed), framed)
    rim = wider([swap_window(0, 0, 4)], (3, 32, 32))(torch.zeros(1, 3, 32, 32), torch.ones(1, 3, 32, 32))
    assert int(rim[0, 0].sum()) == 8 * 8  # four pixels, two that the exchange has, and a rim of two
    ground = on_other_ground(torch.zeros(1, 3, 32, 32), torch.ones(1, 3, 32, 32))
    assert float(ground[..., 0, 0].min()) > 0.9  # the corner is the donor's


def test_taken_out_of_the_input_the_drawn_pixels_are_the_same_in_all_images(striped_case):
    case, marked = striped_case
    world = next(w for w in worlds(case, [corner_of(case, marked)], case.fold) if w.finding.name == DRAWN)
    (edit,) = edits(case, world).values()
    x = case.held[torch.arange(40)]
    assert (edit(x)[:, :, :, :2] == edit(x)[:1, :, :, :2]).all() and torch.equal(edit(x)[..., 3:], x[..., 3:])
    tones = World(replace(place_of(case, marked), kind="light"), swap=lambda x, donor: x, of=torch.arange(600))
    assert list(edits(case, tones)) == ["", "evened"]  # of one sample; grey images have no colours to take away


def test_every_repair_of_several_findings_has_a_name_of_its_own(striped_case):
    case, marked = striped_case
    red = replace(place_of(case, marked), kind="light", name="red")
    found = repair(case, [red, corner_of(case, marked)], None)
    methods = [row["method"] for row in found.rows()]
    assert {judge["name"] for judge in found.to_dict()["judges"]} == {DRAWN, LIGHT}
    assert len(set(methods)) == len(methods) and "mixed: all" in methods and methods[0] == "before"
    first, second = (world.finding.name for world in found.judge.worlds)
    assert {"mixed", f"mixed: {second}", "without the cue", f"without the cue: {second}"} <= set(methods)
    assert all(row["finding"] in (None, first, second) for row in found.rows())


def test_the_mixed_head_has_seen_each_sample_with_both_cues_alike(striped_case, monkeypatch):
    case, marked = striped_case
    (world,) = worlds(case, [corner_of(case, marked)], case.fold)
    fitted = []

    def fit(features, y, classes, fold, weights=None, strength=None):
        fitted.append((features, y, fold))
        return case.heads

    monkeypatch.setattr("spurless.auditing.repairs.fit_heads", fit)
    Candidates(case, [world], case.fold)._mixed([world])
    features, y, fold = fitted[0]
    assert torch.equal(features, torch.cat(world.features)) and torch.equal(y, case.held.y[world.of].repeat(2))
    assert torch.equal(fold, case.fold[world.of].repeat(2))


def test_from_a_report_all_findings_are_tried_again_or_the_one_that_is_named():
    x, y, _ = striped(600, 0.97, 0)
    data = Bundle("striped", Split(x, y), inputs=Images((0.3,), (0.25,)))
    report = audit(data, fix=True, **QUIET)
    again = repairs(data, report, device="cpu")
    assert isinstance(again, Repairs) and isinstance(again.case, Case)
    assert again.to_dict()["chosen"] == report.fix["chosen"] is not None
    assert again.to_dict()["judges"] == report.fix["judges"]
    names = {f["name"] for f in report.findings if f["verdict"] in ("found", "gap", "available")}
    assert len(names) > 1
    for name in sorted(names)[:1]:
        one = repairs(data, report, name=name, device="cpu")
        of = {each.finding.name for each in one.tried if each.finding is not None}
        assert of <= {name, DRAWN, LIGHT, "fine detail"} and len(one.judge.worlds) <= 2

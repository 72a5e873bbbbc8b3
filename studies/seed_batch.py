"""Eight seeds of SimConv-1 at once on one GPU, plain training on random images: steps a second of all together.

Measured by studies/step_kernels.py, beside one another: a run alone and eight lanes, as the engine does them; and loops
by hand, in one CUDA graph each: one network, eight networks on eight streams, and eight stacked into one, whose
convolutions have a group for each seed. The loops leave out what the engine does around a step.
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

from spurless.core.recipe import Recipe
from spurless.nets.small import simconv1
from spurless.train.device import arithmetic, pick_device
from spurless.train.graphs import compiler
from spurless.train.lanes import BREATH, Job, Lanes
from spurless.train.optim import make_optimizer
from studies.engine import random_images

SEEDS, BATCH, AHEAD = 8, 128, 16
RECIPE = {"batch_size": BATCH, "augment": "pgd_digits", "compile": True, "eval_every": 0, "lr": 1e-3}
SECONDS = 1.0
PAST = 300  # steps of each lane before it is timed


class Stacked(nn.Module):
    """So many SimConv-1 in one: (n, 3 s, 28, 28) -> (s, n, 10)."""

    def __init__(self, seeds):
        super().__init__()
        self.seeds, s = seeds, seeds
        self.layers = nn.Sequential(
            *(nn.Conv2d(3 * s, 8 * s, 4, groups=s), nn.BatchNorm2d(8 * s), nn.ReLU(), nn.Dropout(0.5), nn.AvgPool2d(2)),
            *(nn.Conv2d(8 * s, 32 * s, 4, groups=s), nn.BatchNorm2d(32 * s), nn.ReLU(), nn.Dropout(0.5)),
            *(nn.AvgPool2d(2), nn.Conv2d(32 * s, 64 * s, 4, groups=s), nn.ReLU(), nn.BatchNorm2d(64 * s)),
            nn.Dropout(0.5),
        )
        self.head, self.bias = nn.Parameter(torch.randn(s, 64, 10) / 8), nn.Parameter(torch.zeros(s, 1, 10))

    def forward(self, x):
        z = self.layers(x).flatten(1).view(len(x), self.seeds, 64)
        return torch.baddbmm(self.bias, z.transpose(0, 1), self.head)


def looped(seeds, device, stacked=False, last=True):
    """A step of so many seeds as a loop by hand would have it."""
    form = torch.channels_last if last else torch.contiguous_format
    net = (Stacked(seeds) if stacked else simconv1((3, 28, 28), 10)).to(device).to(memory_format=form)
    x = torch.rand(AHEAD, BATCH, 3 * seeds if stacked else 3, 28, 28, device=device)
    y = torch.randint(10, (AHEAD, seeds if stacked else 1, BATCH), device=device)
    at = torch.zeros(1, dtype=torch.long, device=device)
    if last:
        x = x.permute(0, 1, 3, 4, 2).contiguous()
    opt = make_optimizer(net.parameters(), Recipe(lr=1e-3, compile=True), torch.device(device))

    def loss_of(x, y):
        return F.cross_entropy(net(x).reshape(-1, 10), y.reshape(-1)) * (seeds if stacked else 1)

    loss_of = compiler(True)(loss_of)

    def step():
        images = x.index_select(0, at)[0]
        opt.zero_grad(set_to_none=True)
        loss_of(images.permute(0, 3, 1, 2) if last else images, y.index_select(0, at)[0]).backward()
        opt.step()
        torch.remainder(at + 1, AHEAD, out=at)

    return step


def warmed(steps):
    """The steps, each after some that were not captured."""
    for step in steps:
        for _ in range(3):
            step()
    return steps


def captured(steps, device):
    """One CUDA graph of these steps, side by side on streams of their own; a function that replays it."""
    if device == "cpu":
        return lambda: [step() for step in steps]
    graph, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in steps]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for stream in streams:  # all before the first step: a later one would wait for the steps before it
            stream.wait_stream(main)
        for step, stream in zip(steps, streams, strict=True):
            with torch.cuda.stream(stream):
                step()
        for stream in streams:
            main.wait_stream(stream)
    return graph.replay


def milliseconds(replay, device, count=400):
    for _ in range(5):
        replay()
    settle(torch.device(device))
    started = time.perf_counter()
    for _ in range(count):
        replay()
    settle(torch.device(device))
    return 1000 * (time.perf_counter() - started) / count


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def lane_rates(held, counts):
    """Steps a second of all lanes together, for each number of them."""
    found = {}
    for count in counts:
        lanes = held.lanes[:count]
        settle(held.device)
        before, started = sum(lane.done for lane in lanes), time.monotonic()
        while time.monotonic() - started < SECONDS:
            ready = [lane for lane in lanes if lane.ready]
            for lane in ready:
                held.advance(lane)
            if not ready:
                time.sleep(BREATH)
        settle(held.device)
        found[f"lanes {count}"] = round((sum(lane.done for lane in lanes) - before) / (time.monotonic() - started))
    return found


def measure(device, ready):
    """Steps a second, each seed's counted; `ready` is entered when all has compiled."""
    kinds = {"one loop": (1, False, True), "eight streams": (SEEDS, False, True)}
    kinds |= {"eight stacked": (SEEDS, True, True), "eight stacked, plain layout": (SEEDS, True, False)}
    made, row, place = {}, {}, pick_device(device)
    for name, (seeds, stacked, last) in kinds.items():
        steps = [looped(seeds, device, stacked, last) for _ in range(1 if stacked else seeds)]
        made[name] = seeds, warmed(steps)
    data = random_images(BATCH * 2500)
    with arithmetic(Recipe(), place):
        held = Lanes(place, iter(()))
        for seed in range(SEEDS):
            arguments = {"method": "erm", "data": data, "net": "simconv1", "seed": seed}
            held.open(Job(str(seed), arguments | {"recipe": Recipe(epochs=60, **RECIPE)}))
        held.advance(held.lanes[0], 1)  # compiles
        with ready:
            for name, (seeds, steps) in made.items():
                try:
                    row[name] = round(1000 * seeds / milliseconds(captured(warmed(steps), device), device))
                except RuntimeError as error:
                    row[name] = f"{error}"[:300]
            for lane in held.lanes:
                while lane.done < PAST:
                    held.advance(lane)
            row |= lane_rates(held, (1, 2, 4, SEEDS, SEEDS, 1))
    return row

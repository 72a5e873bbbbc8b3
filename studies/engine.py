"""How fast the engine is, beside a loop written by hand and the usual DataLoader loop, in one interleaved run.

    python -m studies.engine                 # on the CPU: samples/s, ratios and peak memory
    python -m studies.engine --device cuda   # on a GPU: milliseconds a step

Images are random bytes of Colored MNIST's shape: what they show does not matter for speed. Each variant runs a number
of steps in turn, again and again; the median over the rounds is reported, so that a busy machine hurts all alike.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.nets.dropout import Dropout
from spurless.train.fit import fit


def random_images(n=10_000, shape=(3, 28, 28), classes=10):
    g = torch.Generator().manual_seed(0)

    def split(rows):
        x = torch.randint(0, 256, (rows, *shape), generator=g, dtype=torch.uint8)
        return Split(x, torch.randint(classes, (rows,), generator=g))

    return Bundle("random", split(n), None, split(16), classes=tuple(map(str, range(classes))))


class Stopwatch:
    """Notes the time of every step of a run; the first steps do not count."""

    def __init__(self, skip, device):
        self.skip, self.device, self.times = skip, device, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, where):
        if where.row is None and where.step in (self.skip, where.total):
            if self.device == "cuda":
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())

    def seconds_a_step(self, steps):
        return (self.times[-1] - self.times[0]) / (steps - self.skip)


def engine(data, net, batch, steps, device, skip=3, **recipe):
    watch = Stopwatch(skip, device)
    settings = {"iterations": steps, "batch_size": batch, "eval_every": 0, "augment": "none", "lr": 1e-3} | recipe
    fit("erm", data, net=net, recipe=Recipe(**settings), device=device, progress=watch)
    return watch.seconds_a_step(steps)


def plain_dropout(net):
    """The same network with torch's own dropout, as a loop written by hand would have it."""
    for name, child in net.named_children():
        if isinstance(child, Dropout):
            setattr(net, name, nn.Dropout(child.p))
        else:
            plain_dropout(child)
    return net


def bare(data, net, batch, steps, device, fast=False, skip=3):
    """A loop written by hand over tensors on the device. `fast`: channels_last and the cheap dropout."""
    model = build(net, data.shape, len(data.classes)).to(device)
    model = model.to(memory_format=torch.channels_last) if fast else plain_dropout(model)
    x, y = data.train.x.to(device), data.train.y.to(device)
    opt = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    order, started = torch.randperm(len(y), device=device), 0.0
    model.train()
    for step in range(steps):
        if step == skip:
            started = now(device)
        at = step * batch % (len(y) - batch)
        idx = order[at : at + batch]
        rows = x[idx].float().mul_(1 / 255)
        rows = rows.contiguous(memory_format=torch.channels_last) if fast else rows
        loss = nn.functional.cross_entropy(model(rows), y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    return (now(device) - started) / (steps - skip)


def loader(data, net, batch, steps, device, augment=False, skip=3):
    """The usual way: a Dataset of PIL images, transforms image by image, a DataLoader with two workers."""
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms as T
    from torchvision.transforms.functional import to_pil_image

    steps_of = [T.RandomResizedCrop(28, (0.9, 1.0)), T.RandomRotation(10), T.ColorJitter(saturation=0.05, hue=0.05)]
    transform = T.Compose([*(steps_of if augment else []), T.ToTensor()])

    class Images(Dataset):
        def __len__(self):
            return len(data.train)

        def __getitem__(self, i):
            return transform(to_pil_image(data.train.x[i])), int(data.train.y[i])

    model = plain_dropout(build(net, data.shape, len(data.classes))).to(device)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    batches, started = iter(DataLoader(Images(), batch, shuffle=True, num_workers=2, drop_last=True)), 0.0
    model.train()
    for step in range(min(steps, len(data.train) // batch)):
        if step == skip:
            started = now(device)
        rows, labels = next(batches)
        loss = nn.functional.cross_entropy(model(rows.to(device)), labels.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return (now(device) - started) / (step + 1 - skip)


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


VARIANTS = {
    "bare loop": lambda *a: bare(*a),
    "bare loop, channels_last, cheap dropout": lambda *a: bare(*a, fast=True),
    "engine": lambda *a: engine(*a),
    "engine, augmented": lambda *a: engine(*a, augment="pgd_digits"),
    "DataLoader": lambda *a: loader(*a),
    "DataLoader, augmented": lambda *a: loader(*a, augment=True),
}


def on_cpu(steps, rounds, threads):
    torch.set_num_threads(threads)
    data = random_images()
    print(f"torch {torch.__version__}, {threads} thread(s), {rounds} rounds of {steps} steps\n")
    print("| network | batch | variant | samples/s | of the bare loop | peak memory MiB |")
    print("| :-- | --: | :-- | --: | --: | --: |")
    for net in ("simconv1", "mlp"):
        for batch in (128, 256):
            times = {name: [] for name in VARIANTS}
            for _ in range(rounds):
                for name, variant in VARIANTS.items():
                    times[name].append(variant(data, net, batch, steps, "cpu"))
            median = {name: statistics.median(t) for name, t in times.items()}
            for name, seconds in median.items():
                memory = peak_memory(name, net, batch, threads)
                ratio = median["bare loop"] / seconds
                print(
                    f"| {net} | {batch} | {name} | {batch / seconds:,.0f} | {ratio:.2f} | {memory:,.0f} |", flush=True
                )


def beside_a_busy_core(steps):
    """Two threads while another process keeps a core busy: with spinning waits this collapses."""
    code = (
        "import sys; sys.path.insert(0, 'studies'); import engine, torch; torch.set_num_threads(2); "
        f"print(engine.engine(engine.random_images(), 'simconv1', 128, {steps}, 'cpu'))"
    )
    print("\n| 2 threads, simconv1, batch 128 | ms a step |\n| :-- | --: |")
    for policy in ("PASSIVE", "ACTIVE"):
        for busy in (False, True):
            hog = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
            env = os.environ | {"OMP_WAIT_POLICY": policy}
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
            if hog:
                hog.kill()
                hog.wait()
            name = (
                f"{policy.lower()} waits{' (ours)' if policy == 'PASSIVE' else ''}, a core {'busy' if busy else 'free'}"
            )
            print(f"| {name} | {1000 * float(done.stdout):.1f} |", flush=True)


def own_peak():
    """MiB. Not ru_maxrss: a process inherits that from the one that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def peak_memory(name, net, batch, threads):
    """Of the whole process, in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps([name, net, batch, threads])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def on_gpu(steps, rounds):
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {rounds} rounds of {steps} steps\n")
    # Whole batches only: a smaller last one would have its kernels chosen inside the measured stretch.
    digits, photos = random_images(54_016), random_images(51_200, (3, 32, 32))
    small = {"name": "resnet18", "stem": "small"}
    quick = {"precision": "bf16", "compile": True, "augment": "crop_flip"}
    cells = {
        "simconv1, 128, bare loop": lambda: bare(digits, "simconv1", 128, steps, "cuda"),
        "simconv1, 128, eager, augmented": lambda: engine(
            digits, "simconv1", 128, steps, "cuda", 20, augment="pgd_digits", cuda_graph=False
        ),
        "simconv1, 128, engine": lambda: engine(digits, "simconv1", 128, steps, "cuda", 20),
        "simconv1, 128, engine, augmented": lambda: engine(
            digits, "simconv1", 128, steps, "cuda", 20, augment="pgd_digits"
        ),
        "simconv1, 128, engine, augmented, compiled": lambda: engine(
            digits, "simconv1", 128, steps, "cuda", 20, augment="pgd_digits", compile=True
        ),
        "mlp, 256, bare loop": lambda: bare(digits, "mlp", 256, steps, "cuda"),
        "mlp, 256, engine": lambda: engine(digits, "mlp", 256, steps, "cuda", 20),
        "resnet18 ImageNet stem, 256, bare loop": lambda: bare(photos, "resnet18", 256, steps, "cuda"),
        "resnet18 ImageNet stem, 256, engine": lambda: engine(photos, "resnet18", 256, steps, "cuda", 20),
        "resnet18 ImageNet stem, 256, engine, bf16, compiled, augmented": lambda: engine(
            photos, "resnet18", 256, steps, "cuda", 20, **quick
        ),
        "resnet18 32-px stem, 256, bare loop": lambda: bare(photos, small, 256, steps, "cuda"),
        "resnet18 32-px stem, 256, engine, bf16, compiled, augmented": lambda: engine(
            photos, small, 256, steps, "cuda", 20, **quick
        ),
    }
    times, memory = {name: [] for name in cells}, {}
    for _ in range(rounds):
        for name, cell in cells.items():
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            times[name].append(cell())
            memory[name] = (torch.cuda.max_memory_allocated() - held) / 2**20
    print("| network, batch, variant | ms a step | peak GPU memory MiB |\n| :-- | --: | --: |")
    for name, measured in times.items():
        print(f"| {name} | {1000 * statistics.median(measured):.3f} | {memory[name]:,.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, net, batch, threads = json.loads(given.one)
        torch.set_num_threads(threads)
        VARIANTS[name](random_images(), net, batch, 10, "cpu")
        print(own_peak())
    elif given.device == "cpu":
        on_cpu(given.steps or 30, given.rounds, given.threads)
        beside_a_busy_core(given.steps or 30)
    else:
        on_gpu(given.steps or 400, given.rounds)

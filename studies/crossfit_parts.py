"""crossfit's parts: what each way to train the second network brings, and what held-out samples say of it.

    python -m studies.crossfit_parts runs/parts --device cuda --only "MB-MNIST 10 %" "CIFAR-10"
    python -m studies.crossfit_parts runs/parts --judge
    python -m studies.crossfit_parts runs/parts --exchanges           # which exchange moves the experts, data by data

Development draws (data seed 7), which stand in no table. Every way is trained whole, from the same experts, and its
answers to validation and test samples are kept in OUT/*.pt, so that the evidence and the gate can be worked on without
training again.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from spurless.core.method import PLAIN
from spurless.methods.crossfit import SHARP, SOFT, CrossFit
from spurless.methods.group_inference.experts import train_experts
from spurless.methods.la import soft_posterior
from spurless.methods.parts.evidence import Evidence, harmless, log, odds, sharpness, shows_shortcut
from spurless.methods.parts.exchange import SWAPS, Exchange, effects, strongest
from spurless.methods.parts.mixing import Mixer
from spurless.registry import load_data
from spurless.train.fit import fit

CIFAR = {"optimizer": "adam", "lr": 1e-3, "schedule": "cosine", "batch_size": 256, "augment": "crop_flip"}
CIFAR |= {"precision": "bf16", "channels_last": True, "epochs": 40}
DIGITS = {"name": "pgd-cmnist", "epochs": 60, "step_every": 24}
TILES = {"name": "pgd-mbmnist", "epochs": 20, "step_every": 8}
FEW = ("soft", "sharp", "adjusted")
TILE_WAYS = (
    *FEW,
    "soft, from plain",
    "soft, mixup",
    "sharp, from plain",
    "sharp, mixup",
    "soft, light",
    "sharp, light",
)
CIFAR_WAYS = ("adjusted", "adjusted, decay", "adjusted, from plain", "sharp, mixup", "sharp", "soft, light_detail")
CIFAR_WAYS += ("adjusted, light_detail",)
DIGIT_WAYS = ("sharp", "adjusted", "sharp, from plain", "adjusted, from plain", "soft", "soft, light", "sharp, light")


def tiles(rho, ways):
    return {"name": "multi_bias_mnist", "val": 6000, "standin": True, "rho": rho, "seed": 7}, "simconv2", TILES, ways


def corrupted(rho, ways):
    return {"name": "corrupted_cifar10", "mapping": "disent", "rho": rho, "seed": 7}, "resnet18", CIFAR, ways


def digits(rho, ways):
    return {"name": "colored_mnist", "family": "pgd", "rho": rho, "seed": 7}, "simconv1", DIGITS, ways


JOBS = {
    "MB-MNIST 10 %": tiles(0.1, TILE_WAYS),
    "MB-MNIST 20 %": tiles(0.2, TILE_WAYS),
    "MB-MNIST 30 %": tiles(0.3, TILE_WAYS[:5]),
    "Colored MNIST 0.5 %": digits(0.005, DIGIT_WAYS),
    "Colored MNIST 5 %": digits(0.05, DIGIT_WAYS),
    "Colored MNIST, no bias": digits(0.9, FEW),
    "Corrupted CIFAR-10 1 %": corrupted(0.01, CIFAR_WAYS),
    "Corrupted CIFAR-10 0.5 %": corrupted(0.005, CIFAR_WAYS),
    "Corrupted CIFAR-10 5 %": corrupted(0.05, CIFAR_WAYS),
    "CIFAR-10": ({"name": "cifar10", "val": 5000}, "resnet18", CIFAR, FEW),
}


SMALL = {"optimizer": "adam", "lr": 1e-3, "epochs": 1, "batch_size": 128}
EXCHANGES = {  # with a shortcut, of which kind; and none
    "Colored MNIST": [{"name": "colored_mnist", "family": "pgd", "rho": rho} for rho in (0.005, 0.01, 0.05, 0.9)],
    "MB-MNIST": [{"name": "multi_bias_mnist", "standin": True, "rho": rho} for rho in (0.1, 0.2, 0.3, 0.9)],
    "Corrupted CIFAR-10": [{"name": "corrupted_cifar10", "rho": rho} for rho in (0.005, 0.01, 0.05, 0.9)],
    "CIFAR-10": [{"name": "cifar10", "val": 5000}],
    "BAR": ["bar"],
    "Waterbirds": ["waterbirds"],
    "Double MNIST": ["double_mnist"],
    "MNIST-CIFAR": ["mnist_cifar"],
    "moon and star": ["moon_star"],
}


@dataclass(frozen=True)
class Parts(CrossFit):
    """Every way in turn. `seen` is called with what is known after each."""

    ways: ClassVar = FEW
    test: ClassVar = None
    seen: ClassVar = None

    def stages(self, run):
        train, val = run.data.train, run.data.val
        y, rows = train.y.to(run.device), torch.arange(len(train))
        plain = yield from self.network(run, "plain", rows, PLAIN)
        experts = yield from train_experts(run, rows, self.q, self.share)
        p, easy = experts.on_training(run), experts.on(lambda net: run.outputs(net, val).double().softmax(1).cpu())
        self.seen({"log p": p.log().half().cpu(), "log easy": easy.log().half(), "y": train.y, "y val": val.y})
        self.tell(run, "plain", plain)
        missed = 1 - p.gather(1, y[:, None])[:, 0]
        for way in self.ways:
            kind, *more = way.split(", ")
            if kind == "adjusted":
                given = {"shift": soft_posterior(log(p), y).float()}
            else:
                power = sharpness(missed, y) if kind == "sharp" else 1.0
                given = {"odds": odds(missed, y, SHARP if kind == "sharp" else SOFT, power)}
            stage = next(self.network(run, way, rows, {"loss": way}, **given))
            mix = [how for how in more if how in (*SWAPS, "light_detail")]
            stage.mix = Mixer("mixup") if "mixup" in more else None
            stage.mix = Exchange(mix[0], run.data.inputs, run.device) if mix else stage.mix
            if "from plain" in more:
                stage.model.load_state_dict(plain.state_dict())
            if "decay" in more:
                stage.optimizer = run.optimizer(stage.model, optimizer="adamw", weight_decay=0.05)
            yield stage
            self.tell(run, way, stage.model)
        return plain

    def tell(self, run, way, net):
        self.seen({f"val {way}": run.outputs(net, run.data.val).half().cpu()})
        right = run.outputs(net, self.test).argmax(1).cpu() == self.test.y
        self.seen({f"test {way}": right})


@dataclass(frozen=True)
class Exchanged(CrossFit):
    """The experts, and how far each exchange moves them."""

    told: ClassVar = None

    def stages(self, run):
        rows = torch.arange(len(run.data.train))
        experts = yield from train_experts(run, rows, self.q, self.share)
        p, y = experts.on_training(run), run.data.train.y.to(run.device)
        moved = effects(run, experts, (p.argmax(1) == y).cpu())
        wrong = round(100 * float((p.argmax(1) != y).float().mean()), 2)
        told = {how: round(100 * moved[how], 1) for how in moved}
        self.told({"experts wrong": wrong, "moved": told, "exchange": strongest(moved)})
        return experts.nets[0]


def exchanges(out, only, seed, device):
    for name in only:
        for spec in EXCHANGES[name]:
            spec = spec if isinstance(spec, dict) else {"name": spec}
            data, start = load_data(spec), time.time()

            def told(row, spec=spec, start=start):
                row = {**spec, "seed": seed, **row, "seconds": round(time.time() - start)}
                print(json.dumps(row), flush=True)
                with (out / "exchanges.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")

            Exchanged.told = staticmethod(told)
            net = "linear"
            fit(Exchanged(), data, net=net, recipe=SMALL, device=device, seed=seed, progress=False)


def judge(path):
    """What the evidence says of each way, and what the test split says."""
    f = torch.load(path)
    p, easy = (f[name].double().exp() for name in ("log p", "log easy"))
    shown = shows_shortcut(p / p.sum(1, keepdim=True), f["y"])
    evidence = Evidence(easy / easy.sum(1, keepdim=True), f["y val"], shown)
    wrong = float((p.argmax(1) != f["y"]).float().mean())
    print(f"{path.stem}: experts wrong on {wrong:.2%}, {shown or 'no shortcut shown'}")
    before = f["val plain"].argmax(1) == f["y val"]
    for way in (name[4:] for name in f if name.startswith("val ")):
        after = f[f"val {way}"].argmax(1) == f["y val"]
        told = f"test {f[f'test {way}'].float().mean():.2%}, score {evidence.score(after):.3f}"
        print(f"  {way:22} {told}, prefers {evidence.prefers(after, before, 0.05)}, harmless {harmless(after, before)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--judge", action="store_true", help="of what was trained, what the evidence says")
    parser.add_argument("--exchanges", action="store_true", help="how far each exchange moves the experts")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.exchanges:
        exchanges(given.out, given.only or EXCHANGES, given.seed, given.device)
        return
    if given.judge:
        for path in sorted(given.out.glob("*.pt")):
            judge(path)
        return
    for name in given.only or JOBS:
        data, net, recipe, ways = JOBS[name]
        recipe = recipe | ({"epochs": given.epochs} if given.epochs else {})
        bundle = load_data(data)
        facts, start = {"test a": bundle.test.a, "test y": bundle.test.y, "a": bundle.train.a}, time.time()
        path = given.out / f"{name.replace(' ', '_').replace('%', '').replace(',', '')}.pt"

        def seen(more, facts=facts, path=path, start=start, name=name):
            facts.update(more)
            torch.save(facts, path)
            for key, right in more.items():
                if key.startswith("test "):
                    told = {"job": name, "way": key[5:], "average": round(100 * float(right.float().mean()), 2)}
                    print(json.dumps(told | {"t": round(time.time() - start)}), flush=True)

        Parts.ways, Parts.test, Parts.seen = ways, bundle.test, staticmethod(seen)
        fit(Parts(), bundle, net=net, recipe=recipe, device=given.device, progress=False)


if __name__ == "__main__":
    main()

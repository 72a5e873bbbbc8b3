"""crossfit's parts: what each way to train the second network brings, and what held-out samples say of it.

    python -m studies.crossfit_parts runs/parts --device cuda --only "MB-MNIST 10 %" "CIFAR-10"

Development draws (data seed 7), which stand in no table. Every way is trained whole, from the same experts, and its
answers to validation and test samples are kept in OUT/*.pt, so that the gate and the choice can be worked on without
training again (`python -m studies.crossfit_gate OUT`).
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
from spurless.methods.la import soft_posterior
from spurless.methods.parts.evidence import odds, sharpness
from spurless.methods.parts.mixing import Mixer
from spurless.registry import load_data
from spurless.train.fit import fit

CIFAR = {"optimizer": "adam", "lr": 1e-3, "schedule": "cosine", "batch_size": 256, "augment": "crop_flip"}
CIFAR |= {"precision": "bf16", "channels_last": True, "epochs": 40}
DIGITS = {"name": "pgd-cmnist", "epochs": 60, "step_every": 24}
TILES = {"name": "pgd-mbmnist", "epochs": 20, "step_every": 8}
FEW = ("soft", "sharp", "adjusted")
TILE_WAYS = (*FEW, "soft, from plain", "soft, mixup", "sharp, from plain", "soft, six experts", "sharp, mixup")
CIFAR_WAYS = ("adjusted", "adjusted, six experts", "adjusted, decay", "adjusted, from plain", "sharp, mixup", "sharp")
DIGIT_WAYS = ("sharp", "adjusted", "sharp, from plain", "adjusted, from plain", "soft", "adjusted, six experts")


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


@dataclass(frozen=True)
class Parts(CrossFit):
    """Every way in turn. `seen` is called with what is known after each."""

    ways: ClassVar = FEW
    test: ClassVar = None
    seen: ClassVar = None

    def stages(self, run):
        train, val = run.data.train, run.data.val
        y, n = train.y.to(run.device), len(train)
        rows, every = torch.arange(n), []
        plain = yield from self.network(run, "plain", rows, shared=PLAIN)
        easy = []
        for k in range(3):
            fold = torch.zeros(n, dtype=torch.long)
            fold[torch.randperm(n, generator=run.generator(f"folds {k}"))[: n // 2]] = 1
            experts = []
            for side in range(2):
                experts.append((yield from self.expert(run, f"expert {k} {side}", rows[fold == side])))
            p = torch.stack([run.outputs(e).double().softmax(1) for e in experts])
            every.append(p[1 - fold.to(run.device), torch.arange(n, device=run.device)])
            easy.append(torch.stack([run.outputs(e, val).double().softmax(1) for e in experts]).mean(0))
        facts = {"log p": [p.log().half().cpu() for p in every], "log easy": [p.log().half().cpu() for p in easy]}
        self.seen(facts | {"y": train.y, "y val": val.y})
        self.tell(run, "plain", plain)
        for way in self.ways:
            kind, *more = way.split(", ")
            p = torch.stack(every).mean(0) if "six experts" in more else every[0]
            missed, given = 1 - p.gather(1, y[:, None])[:, 0], {}
            if kind == "adjusted":
                given["shift"] = soft_posterior(p.clamp_min(1e-12).log(), y).float()
            else:
                power = sharpness(missed, y) if kind == "sharp" else 1.0
                given["odds"] = odds(missed, y, SHARP if kind == "sharp" else SOFT, power)
            if "mixup" in more:
                given["mix"] = Mixer("mixup")
            start = plain if "from plain" in more else None
            net = yield from self.network(run, way, rows, start=start, decay="decay" in more, **given)
            self.tell(run, way, net)
        return plain

    def network(self, run, name, rows, share=1.0, odds=None, shift=None, start=None, decay=False, **more):
        for stage in super().network(run, name, rows, share, odds, shift, **more):
            if start is not None:
                stage.model.load_state_dict(start.state_dict())
            if decay:
                stage.optimizer = run.optimizer(stage.model, optimizer="adamw", weight_decay=0.05)
            yield stage
            return stage.model

    def tell(self, run, way, net):
        self.seen({f"val {way}": run.outputs(net, run.data.val).half().cpu()})
        right = run.outputs(net, self.test).argmax(1).cpu() == self.test.y
        self.seen({f"test {way}": right})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=list(JOBS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=float)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
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

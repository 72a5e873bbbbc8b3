"""What a method holds while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core.data import Bundle, Images, Split
from spurless.core.method import M, Run
from spurless.core.parallel import as_first
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.parts.losses import ce, ce_rows
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs
from spurless.train.feed import Resident, resident
from spurless.train.networks import easy_maker
from spurless.train.optim import make_optimizer

KEEP = 2**30  # bytes of a split that may stay on a GPU between two evaluations


class EngineRun(Run):
    """What a method holds. It knows the blinded data only."""

    def __init__(self, data: Bundle, recipe: Recipe, seed: int, device: torch.device, make: Callable[[int], Net]):
        self.data, self.recipe, self.seed, self.device = data, recipe, seed, device
        self.focal_gamma = recipe.focal_gamma if recipe.loss == "focal" else 0.0
        self.modules: list[nn.Module] = []  # everything a checkpoint must hold
        self.findings: dict[str, Tensor] = {}  # by name: (n,) bool, the samples identified as conflicting
        self.guesses: dict[str, Tensor] = {}  # by name: (n,) int, the inferred group of each sample
        self.inputs = Inputs(data, recipe, device)
        self.placed: dict[int, Resident] = {}  # splits that are evaluated again and again, on the device
        # Those of the datasets, which live as long as the run: the number of one that does not may be given again.
        self.lasting = {id(split) for split in data.splits.values()}
        self.generators: dict[str, torch.Generator] = {}  # that were handed out, the last of each name
        self._make, self._make_easy = make, easy_maker(data, seed)
        self._nets = self._easy_nets = 0

    def net(self) -> Net:
        net = self._make(self._nets)
        self._nets += 1
        if not any(isinstance(module, nn.Conv2d) for module in net.modules()):
            self.inputs.channels_last = False  # a copy that only convolutions pay back
        return self.keep(net)

    def easy_net(self) -> Net | None:
        if self._make_easy is None:
            return None
        net = self._make_easy(self._easy_nets)
        self._easy_nets += 1
        return self.keep(net)

    def keep(self, module: M) -> M:
        if self.recipe.channels_last and isinstance(self.data.inputs, Images):
            module.to(self.device).to(memory_format=torch.channels_last)
        else:
            module.to(self.device)
        self.modules.append(module)
        return module

    def optimizer(self, *trained: nn.Module | Iterable[nn.Parameter], **changes: Any) -> Optimizer:
        params: list[nn.Parameter] = []
        for item in trained:
            params += item.parameters() if isinstance(item, nn.Module) else item
        return make_optimizer([p for p in params if p.requires_grad], self.recipe, self.device, **changes)

    def ce(self, logits: Tensor, y: Tensor) -> Tensor:
        return ce(logits, y, self.focal_gamma)

    def ce_rows(self, logits: Tensor, y: Tensor) -> Tensor:
        return ce_rows(logits, y, self.focal_gamma)

    def outputs(
        self, net: nn.Module, split: Split | None = None, features: bool = False, augment: bool = False
    ) -> Tensor:
        split = split or self.data.train
        lasts = id(split) in self.lasting and id(split) not in self.placed
        if lasts and isinstance(split.x, Tensor) and split.x.nbytes < KEEP:
            self.placed[id(split)] = resident(split.x, self.recipe.channels_last, self.device)
        draws = None
        if augment and self.inputs.augments:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(derive(self.seed, "views"))
                draws = self.inputs.draw(len(split), self.data.shape)
        placed = self.placed.get(id(split))
        return as_first(outputs(net, split, self.inputs, self.recipe, self.device, features, placed, draws))

    def generator(self, name: str) -> torch.Generator:
        self.generators[name] = torch.Generator().manual_seed(derive(self.seed, "method", name))
        return self.generators[name]

    def drawn(self) -> dict[str, Tensor]:
        """How far the method's own generators are, for a checkpoint: a loss may draw from them."""
        return {f"generator.{name}": generator.get_state() for name, generator in self.generators.items()}

    def draw_on(self, saved: Mapping[str, Tensor]) -> None:
        for name, generator in self.generators.items():
            if f"generator.{name}" in saved:
                generator.set_state(saved[f"generator.{name}"])

    def report_conflicting(self, conflicting: Tensor, name: str = "mined") -> None:
        self.findings[name] = conflicting.detach().bool().cpu()

    def report_groups(self, groups: Tensor, name: str = "groups") -> None:
        self.guesses[name] = groups.detach().cpu()

"""What is audited: a model, and rows that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs

RECIPE = Recipe(eval_batch_size=256)


@dataclass(frozen=True)
class Case:
    """The model on its held-out rows. Everything an audit says is computed from here."""

    data: Bundle  # as the user gave it, with its attributes where they are known
    net: Net  # the audited model, on the CPU or a GPU, in evaluation mode
    source: str  # "given", or "trained for this audit"
    held: Split  # rows that the model was not trained on
    split: str  # which split they are
    device: torch.device
    logits: Tensor  # (n, classes) of the held-out rows, on the CPU
    features: Tensor  # (n, d) of the held-out rows, on the CPU
    seed: int = 0
    own: bool | None = True  # whether the model was trained on the training rows of this data; None: nobody knows

    @property
    def images(self) -> bool:
        return len(self.data.shape) == 3

    @property
    def texts(self) -> bool:
        return self.data.tokens is not None

    @property
    def predicted(self) -> Tensor:
        """(n,) The class that the model gives each held-out row."""
        return self.logits.argmax(1)

    @property
    def right(self) -> Tensor:
        """(n,) bool: where the model is right."""
        return self.predicted == self.held.y

    def answers(self, x: Tensor) -> Tensor:
        """(m,) The class that the model gives inputs of the data's own kind (uint8 images, float vectors)."""
        return self.outputs(Split(x, torch.zeros(len(x), dtype=torch.long))).argmax(1)

    def outputs(self, split: Split, features: bool = False) -> Tensor:
        """(m, classes) The model's logits, or its features, of any rows."""
        inputs = Inputs(self.data, RECIPE, self.device)
        return outputs(self.net, split, inputs, RECIPE, self.device, features).float().cpu()

    def prepared(self, x: Tensor) -> Tensor:
        """Inputs as the network itself takes them: standardised, on the device."""
        return Inputs(self.data, RECIPE, self.device)(x.to(self.device))


def make_case(
    data: Bundle, net: Net, source: str, split: str, device: torch.device, seed: int = 0, own: bool | None = True
) -> Case:
    """Ask the model about every row of a split."""
    held = data.splits[split]
    net = net.to(device).eval()
    features = outputs(net, held, Inputs(data, RECIPE, device), RECIPE, device, features=True)
    with torch.no_grad():
        logits = net.head(features)  # which is what the network does with them: one pass is enough
    return Case(data, net, source, held, split, device, logits.float().cpu(), features.cpu(), seed, own)

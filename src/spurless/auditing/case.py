"""What is audited: a model, and its answers on samples that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spurless.auditing.plain import Heads
from spurless.core.data import Bundle, Images, Split, Texts
from spurless.core.recipe import Recipe
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs

RECIPE = Recipe(eval_batch_size=256)


@dataclass(frozen=True)
class Case:
    """The model on samples that it has not seen. Everything an audit says is computed from here."""

    data: Bundle  # as the user gave it, with its attributes where they are known
    net: Net  # the audited model, on the CPU or a GPU, in evaluation mode
    source: str  # "given", or "trained for this audit"
    held: Split  # samples with an answer of a model that was not trained on them
    split: str  # which split they are; "all": every sample, by out-of-fold answers
    device: torch.device
    logits: Tensor  # (n, classes) of these samples, on the CPU
    features: Tensor  # (n, d) of these samples, on the CPU
    seed: int = 0
    own: bool | None = True  # whether the model was trained on the training samples of this data; None: nobody knows
    heads: Heads | None = None  # of the plain model: a head without each fold
    fold: Tensor | None = None  # (n,) the fold of each sample; -1: none, it is no training sample
    most: int | None = None  # samples that a time budget allowed, of all splits; None: it did not limit them

    @property
    def images(self) -> bool:
        return isinstance(self.data.inputs, Images)

    @property
    def texts(self) -> bool:
        return isinstance(self.data.inputs, Texts)

    @property
    def predicted(self) -> Tensor:
        """(n,) The class that the model gives each sample."""
        return self.logits.argmax(1)

    @property
    def right(self) -> Tensor:
        """(n,) bool: where the model is right."""
        return self.predicted == self.held.y

    def answers(self, x: Tensor, of: Tensor | None = None) -> Tensor:
        """(m,) The class that the model gives inputs of the data's own kind (uint8 images, float vectors).

        `of` (m,): the samples that the inputs are edits of, each answered by a head that has not seen that sample."""
        edited = Split(x, torch.zeros(len(x), dtype=torch.long))
        if of is None or self.heads is None or self.fold is None:
            return self.outputs(edited).argmax(1)
        return self.heads.logits(self.outputs(edited, features=True), self.fold[of]).argmax(1)

    def outputs(self, split: Split, features: bool = False) -> Tensor:
        """(m, classes) The model's logits, or its features, of any samples."""
        inputs = Inputs(self.data, RECIPE, self.device)
        return outputs(self.net, split, inputs, RECIPE, self.device, features).float().cpu()

    def prepared(self, x: Tensor) -> Tensor:
        """Inputs as the network itself takes them: standardised, on the device."""
        return Inputs(self.data, RECIPE, self.device)(x.to(self.device))


def make_case(
    data: Bundle, net: Net, source: str, split: str, device: torch.device, seed: int = 0, own: bool | None = True
) -> Case:
    """Ask the model about every sample of a split."""
    samples = data.splits[split]
    net = net.to(device).eval()
    features = outputs(net, samples, Inputs(data, RECIPE, device), RECIPE, device, features=True)
    with torch.no_grad():
        logits = net.head(features)  # which is what the network does with them: one pass is enough
    return Case(data, net, source, samples, split, device, logits.float().cpu(), features.cpu(), seed, own)

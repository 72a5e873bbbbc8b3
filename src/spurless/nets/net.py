"""A network is an encoder and a linear head; any module that ends in a linear layer can be taken apart into the two."""

from __future__ import annotations

import copy
from typing import final

from torch import Tensor, nn

from spurless.core.errors import UserError
from spurless.core.parallel import divided
from spurless.nets.heads import check_same, find_head, logits, put_back, take_off


@final
class Net(nn.Module):
    """An encoder and a linear head on its flattened output."""

    def __init__(self, encoder: nn.Module, head: nn.Linear):
        super().__init__()
        self.encoder = encoder
        self.head = head

    @property
    def feature_dim(self) -> int:
        return self.head.in_features

    @property
    def classes(self) -> int:
        return self.head.out_features

    def features(self, x: Tensor) -> Tensor:
        return divided(self.encoder, x).flatten(1)  # (n, feature_dim)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.features(x))  # (n, classes)
        return result

    def unwrapped(self) -> nn.Module:
        """A copy as the module that `wrap` was given, with its own keys; of a network that was made here, itself.

        >>> own = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = own.load_state_dict(Net.wrap(own).unwrapped().state_dict())
        """
        net = copy.deepcopy(self)
        return put_back(net.encoder, net.head) or net

    @classmethod
    def wrap(cls, module: nn.Module, head: str | None = None, example: Tensor | None = None) -> Net:
        """A copy of your own module as a Net; the module itself is left as it is.

        The head is the linear layer whose output is the module's output, with nothing after it. That is read from
        the module's traced graph, or, for a module that cannot be traced, seen by running it on `example`, a small
        batch of inputs. `head` names the layer that it must be. With an example the outputs are compared, too.

        >>> net = Net.wrap(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        >>> net.feature_dim, net.classes
        (3, 2)
        """
        try:
            own = copy.deepcopy(module)
        except Exception as error:  # such as a tensor with a gradient graph, kept as an attribute by an earlier call
            raise UserError(f"{type(module).__name__} cannot be copied (copy.deepcopy): {error}") from None
        name = find_head(own, head, example)
        layer = own.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        expected = None if example is None else logits(own, example)
        net = cls(take_off(own, layer), layer)
        net.training = module.training
        if example is not None and expected is not None:
            check_same(net, example, expected, type(module).__name__)
        return net

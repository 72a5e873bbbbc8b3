"""Your own network on your own arrays: does it take a shortcut, and can it be repaired?

Run it with: python examples/your_model.py
"""

import numpy as np
import torch
from torch import nn

from spurless import Bundle, Recipe, evaluate, fit


class OwnNet(nn.Module):
    """Written as you would write it anyway; all that is asked of it is that a linear layer gives its output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.classify = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.body(x))


def measure(n: int, conflicting: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six noisy readings of sound (0) and cracked (1) parts; the site where a part was measured shifts the last one."""
    rng = np.random.default_rng(seed)
    cracked = rng.integers(2, size=n)
    site = np.where(rng.random(n) < conflicting, 1 - cracked, cracked)  # most cracked parts were measured at site 1
    readings = rng.normal(size=(n, 6))
    readings[:, :5] += (2 * cracked - 1)[:, None]
    readings[:, 5] += 5 * (2 * site - 1)
    return readings, cracked, site


def trained_elsewhere(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """Any training of your own; Spurless has no part in it."""
    net, rows, labels = OwnNet(), torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(300):
        adam.zero_grad()
        nn.functional.cross_entropy(net(rows), labels).backward()
        adam.step()
    return net


def show(name: str, scores: dict) -> None:
    print(f"{name}: conflicting {scores['conflicting']:.1f} %, aligned {scores['aligned']:.1f} %")
    for group in scores["groups"]:
        print(f"    {group['label']}, {group['attribute']} {group['value']}: {group['accuracy']:.1f} % of {group['n']}")


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y, site = measure(2000, 0.03, seed=0)
    test = measure(2000, 0.5, seed=1)  # where the site says nothing
    recipe = Recipe("adam", 1e-3, batch_size=64, epochs=10)
    data = Bundle.from_arrays(x, y, site, test=test, classes=["sound", "cracked"], attributes=["site"], recipe=recipe)
    show("already trained", evaluate(trained_elsewhere(x, y), data))
    for method in ("erm", "pgd"):
        show(method, fit(method, data, net=OwnNet()).scores)

"""Slow and obvious versions, used as the truth for the fast ones."""

import torch
from torch import nn


def train_by_hand(net, x, y, orders, batch_size, make_optimizer, lrs=None):
    """The plainest training loop: for each epoch's order, for each batch, one step of cross entropy."""
    optimizer = make_optimizer(net.parameters())
    net.train()
    step = 0
    for order in orders:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            if lrs is not None:
                optimizer.param_groups[0]["lr"] = lrs[step]
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return net


def weighted_draws(weights, uniforms):
    """Row numbers for numbers from 0 to 1, by walking along the weights."""
    total = sum(weights)
    found = []
    for u in uniforms:
        left = u * total
        for row, w in enumerate(weights):
            if left < w:
                found.append(row)
                break
            left -= w
        else:
            found.append(max(i for i, w in enumerate(weights) if w > 0))
    return found


def gce_paper(logits, y, q):
    """(1 − p^q)/q of each row, one at a time."""
    values = []
    for row, label in zip(logits, y, strict=True):
        p = torch.exp(row[label]) / torch.exp(row).sum()
        values.append((1 - p**q) / q)
    return torch.stack(values).mean()


class LossTables:
    """LfF's running losses as a dictionary and loops."""

    def __init__(self, y, alpha):
        self.y, self.alpha, self.value = y, alpha, {}

    def update(self, idx, losses):
        for i, loss in zip(idx, losses, strict=True):
            self.value[i] = loss if i not in self.value else self.alpha * self.value[i] + (1 - self.alpha) * loss

    def relative(self, idx):
        found = []
        for i in idx:
            of_class = [v for j, v in self.value.items() if self.y[j] == self.y[i]]
            found.append(self.value[i] / max(of_class))
        return found


def per_sample_head_gradients(net, x, y):
    """One backward pass for each row: the gradient of cross entropy with respect to the head's weight and bias."""
    weight, bias = [], []
    for i in range(len(y)):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        weight.append(net.head.weight.grad.clone())
        bias.append(net.head.bias.grad.clone())
    return torch.stack(weight), torch.stack(bias)

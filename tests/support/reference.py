"""Slow and obvious versions, used as the truth for the fast ones."""

import copy
import itertools
import math
from decimal import Decimal, getcontext

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cosine_similarity


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


# How small a network could be


def norm(values, q):
    return sum(abs(v) ** q for v in values) ** (1 / q)


def sparsity_by_hand(z):
    return sum(v == 0 for v in z) / len(z)


def pq_by_hand(z, p, q):
    return 1 - len(z) ** (1 / q - 1 / p) * norm(z, p) / norm(z, q)


def compressibility_by_hand(z, q, kept):
    """The infimum of the definition, over every choice of the entries that are kept."""
    best = min(
        norm([v for i, v in enumerate(z) if i not in choice], q)
        for choice in itertools.combinations(range(len(z)), kept)
    )
    return 1 - best / norm(z, q)


def pruned_by_hand(net, kappa, how, scope, conv="kernel"):
    """A copy in which units are zeroed one after the other, the least of all first."""
    net = copy.deepcopy(net)
    units = []  # (score, place in the list, layer, entries)
    for part in net.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            out, into = part.weight.shape[:2]
            if how == "magnitude":
                places = [(index,) for index in itertools.product(*map(range, part.weight.shape))]
            elif isinstance(part, nn.Linear):
                places = [tuple((o, i) for o in range(out)) for i in range(into)]
            elif conv == "kernel":
                inner = list(itertools.product(*map(range, part.weight.shape[2:])))
                places = [tuple((o, i, *p) for p in inner) for o in range(out) for i in range(into)]
            else:
                inner = list(itertools.product(*map(range, part.weight.shape[1:])))
                places = [tuple((o, *p) for p in inner) for o in range(out)]
            for entries in places:
                rms = math.sqrt(sum(float(part.weight.data[e]) ** 2 for e in entries) / len(entries))
                units.append((rms, len(units), part, entries))

    def cut(some):
        total = sum(len(u[3]) for u in some)
        gone = 0
        for _, _, part, entries in sorted(some, key=lambda u: u[:2]):
            if gone + len(entries) > kappa * total + 1e-6:
                break
            gone += len(entries)
            for e in entries:
                part.weight.data[e] = 0

    if scope == "global":
        cut(units)
    else:
        for part in net.modules():
            cut([u for u in units if u[2] is part])
    return net


def prunability_by_hand(net, accuracy, how, scope, kappas):
    """The mean over κ of what is kept of the accuracy."""
    whole = accuracy(net)
    return sum(accuracy(pruned_by_hand(net, kappa, how, scope)) / whole for kappa in kappas) / len(kappas)


def pruned_activations_by_hand(z, share, how):
    """The least of the activations of each row at 0; structured: those of the neurons with the least power."""
    rows = [list(row) for row in z.tolist()]
    wide = len(rows[0])
    power = [sum(row[i] ** 2 for row in rows) for i in range(wide)]
    for row in rows:
        size = power if how == "structured" else [abs(v) for v in row]
        for i in sorted(range(wide), key=lambda i: size[i])[: int(share * wide + 1e-9)]:
            row[i] = 0.0
    return torch.tensor(rows)


# Features


def separation_by_matrix(x, y):
    """Kornblith's definition from the n x n matrix of cosines."""
    length = x.norm(dim=1, keepdim=True)
    unit = torch.where(length > 0, x / length.clamp_min(1e-300), 0.0)
    distance = 1 - unit @ unit.T  # (n, n)
    classes = y.unique().tolist()
    mean = {(j, k): float(distance[y == j][:, y == k].mean()) for j in classes for k in classes}
    within = sum(mean[k, k] for k in classes) / len(classes)
    return 1 - within / (sum(mean.values()) / len(classes) ** 2)


def separation_by_hand(x, y):
    """Kornblith's sums, pair by pair."""
    classes = sorted(set(y.tolist()))
    rows = {k: [i for i in range(len(y)) if y[i] == k] for k in classes}

    def mean_distance(j, k):
        pairs = [1 - float(cosine_similarity(x[m], x[n], dim=0)) for m in rows[j] for n in rows[k]]
        return sum(pairs) / len(pairs)

    within = sum(mean_distance(k, k) for k in classes) / len(classes)
    total = sum(mean_distance(j, k) for j in classes for k in classes) / len(classes) ** 2
    return 1 - within / total


def csi_by_hand(z, y, epsilon=1e-6):
    """Class selectivity of each neuron, one at a time; with an attribute in the place of y it is bias selectivity."""
    found = []
    for neuron in z.T.tolist():
        means, coverage = [], []
        for k in sorted(set(y.tolist())):
            values = [max(v, 0.0) for v, label in zip(neuron, y.tolist(), strict=True) if label == k]
            means.append(sum(values) / len(values))
            coverage.append(sum(v > 0 for v in values) / len(values))
        best = means.index(max(means))
        rest = sum(m for i, m in enumerate(means) if i != best) / (len(means) - 1)
        found.append(coverage[best] * (means[best] - rest) / (means[best] + rest + epsilon))
    return torch.tensor(found)


def gap_by_hand(x, y, aligned):
    """The alignment gap, pair by pair."""
    among, across = [], []
    for k in sorted(set(y.tolist())):
        ours = [i for i in range(len(y)) if y[i] == k and aligned[i]]
        theirs = [i for i in range(len(y)) if y[i] == k and not aligned[i]]
        if len(ours) < 2 or not theirs:
            continue
        among.append(np.mean([cosine_similarity(x[i], x[j], dim=0) for i in ours for j in ours if i != j]))
        across.append(np.mean([cosine_similarity(x[i], x[j], dim=0) for i in ours for j in theirs]))
    return np.mean(among) - np.mean(across)


# Attribution


def ig_by_hand(f, x, start, target, steps=500):
    """The mean gradient at the middle of `steps` pieces of the straight line, one row and one piece at a time."""
    found = []
    for row, goal in zip(x, target, strict=True):
        total = torch.zeros_like(row)
        for k in range(steps):
            point = (start + (k + 0.5) / steps * (row - start)).requires_grad_()
            total += torch.autograd.grad(f(point[None])[0, goal], point)[0]
        found.append((row - start) * total / steps)
    return torch.stack(found)


def gradcam_by_hand(before, after, x, target):
    """relu(Σ_k mean(∂f/∂A_k) A_k), where A = before(x) and f = after(A); in the size of A."""
    found = []
    for row, goal in zip(x, target, strict=True):
        maps = before(row[None]).detach().requires_grad_()
        slope = torch.autograd.grad(after(maps)[0, goal], maps)[0]
        heat = torch.zeros(maps.shape[2:])
        for k in range(maps.shape[1]):
            heat += slope[0, k].mean() * maps[0, k].detach()
        found.append(heat.clamp(min=0))
    return torch.stack(found)


def deeplift_by_hand(first, second, x, start, target):
    """The rescale rule for linear, ReLU, linear: each hidden unit passes on Δout/Δin."""
    found = []
    for row, goal in zip(x, target, strict=True):
        into, into0 = first(row), first(start)
        ratio = (into.relu() - into0.relu()) / (into - into0)
        found.append((row - start) * ((second.weight[goal] * ratio) @ first.weight))
    return torch.stack(found).detach()


def share_by_hand(maps, mask):
    """How much of each map (n, h, w) is inside the mask, pixel by pixel."""
    found = []
    for one, where in zip(maps.tolist(), mask.tolist(), strict=True):
        inside = sum(
            abs(v) for row, flags in zip(one, where, strict=True) for v, f in zip(row, flags, strict=True) if f
        )
        found.append(inside / sum(abs(v) for row in one for v in row))
    return torch.tensor(found)


def entropy_by_hand(maps):
    """−Σ p log p of each map, pixel by pixel, in nats."""
    found = []
    for one in maps.flatten(1).tolist():
        total = sum(abs(v) for v in one)
        found.append(-sum(abs(v) / total * math.log(abs(v) / total) for v in one if v))
    return torch.tensor(found)


def unit_share_by_hand(net, x, mask, unit, steps=500):
    """The mean share of a penultimate unit's Integrated Gradients from 0 that is inside the mask, row by row."""
    found = []
    for i in range(len(x)):
        maps = ig_by_hand(net.features, x[i : i + 1], torch.zeros_like(x[0]), [unit], steps)[0]
        if maps.abs().sum() > 0:
            found.append(float(maps.abs()[mask].sum() / maps.abs().sum()))
    return sum(found) / len(found) if found else math.nan


def feature_use_by_hand(net, x, y, core, spurious):
    """CSI, and how much of the label's Integrated Gradients from 0 is on core and on spurious inputs, row by row."""
    maps = ig_by_hand(net, x, torch.zeros_like(x[0]), y.tolist())
    inside = {"core_share": [], "spurious_share": []}
    for row in maps.abs():
        for name, mask in (("core_share", core), ("spurious_share", spurious)):
            inside[name].append(float(row[mask].sum() / row.sum()))
    return {"csi": float(csi_by_hand(net.features(x).detach(), y).mean())} | {k: np.mean(v) for k, v in inside.items()}


def accuracies_by_hand(net, images, y, a, mean, std, corrupt):
    """In percent, each image corrupted and judged alone: of all, by agreement of label and attribute, and by group."""
    right = []
    for i, image in enumerate(images):
        x = corrupt(image[None], i)[0].float() / 255
        x = torch.stack([(c - m) / s for c, m, s in zip(x, mean, std, strict=True)])
        right.append(int(net(x[None]).argmax()) == int(y[i]))
    return group_scores_by_hand(right, y.tolist(), a.tolist())


# Several runs, and plots of features


def correlation_by_hand(x, y):
    """Pearson's and Spearman's, by sums and by counting who is smaller; ties share their places."""

    def pearson(x, y):
        mx, my = sum(x) / len(x), sum(y) / len(y)
        over = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
        return over / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))

    def ranks(x):
        return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]

    return pearson(x, y), pearson(ranks(x), ranks(y))


def tsne_loss_by_hand(x, xy, perplexity):
    """What t-SNE makes small, Σ p log(p / q), pair by pair; each row's bell is widened until it has the perplexity."""
    n = len(x)
    p = np.zeros((n, n))
    for i in range(n):
        away = [float(((x[i] - x[j]) ** 2).sum()) if j != i else math.inf for j in range(n)]
        low, high = 1e-12, 1e12
        for _ in range(200):
            beta = math.sqrt(low * high)
            weights = [math.exp(-beta * (d - min(away))) for d in away]
            own = [w / sum(weights) for w in weights]
            narrow = -sum(v * math.log2(v) for v in own if v > 0) < math.log2(perplexity)
            low, high = (low, beta) if narrow else (beta, high)
        p[i] = own
    p = (p + p.T) / (2 * n)
    near = [[0.0 if i == j else 1 / (1 + float(((xy[i] - xy[j]) ** 2).sum())) for j in range(n)] for i in range(n)]
    total = sum(map(sum, near))
    return sum(p[i, j] * math.log(p[i, j] * total / near[i][j]) for i in range(n) for j in range(n) if p[i, j] > 0)


# Training, watched


def watched_by_hand(net, x, y, conflicting, orders, batch_size, lr):
    """Plain SGD on cross entropy. For each step: whose loss it was, mean lengths of logits, and norms by parameter."""
    net.train()
    seen = []
    for order in orders:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            logits = net(x[rows])
            each = [-torch.log_softmax(logits[i].double(), 0)[y[r]].item() for i, r in enumerate(rows.tolist())]
            bad = [v for v, r in zip(each, rows.tolist(), strict=True) if conflicting[r]]
            good = [v for v, r in zip(each, rows.tolist(), strict=True) if not conflicting[r]]
            net.zero_grad()
            nn.functional.cross_entropy(logits, y[rows]).backward()
            seen.append(
                {
                    "loss_share": sum(bad) / sum(each),
                    "loss_conflicting": sum(bad) / len(bad) if bad else math.nan,
                    "loss_aligned": sum(good) / len(good) if good else math.nan,
                    "conflicting": len(bad),
                    "logit_norm": sum(float(row.norm()) for row in logits.detach()) / len(rows),
                    "gradients": {name: float(p.grad.norm()) for name, p in net.named_parameters()},
                    "weights": {name: float(p.detach().norm()) for name, p in net.named_parameters()},
                }
            )
            with torch.no_grad():
                for p in net.parameters():
                    p -= lr * p.grad
    return seen


# Around a solution


def direction_by_hand(net, generator):
    """Filter by filter: a random direction of the filter's own length; nothing where there are no filters."""
    found = {}
    for name, p in net.named_parameters():
        drawn = torch.randn(p.shape, generator=generator)
        found[name] = torch.zeros_like(p.detach())
        if p.dim() > 1:
            for i in range(len(p)):
                found[name][i] = drawn[i] / drawn[i].norm() * p.detach()[i].norm()
    return found


def landscape_by_hand(net, measure, first, second, steps):
    """A copy of the network for each place of the grid."""
    found = np.zeros((len(steps), len(steps)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            other = copy.deepcopy(net)
            for name, p in other.named_parameters():
                p.data = p.data + a * first[name] + b * second[name]
            found[i, j] = measure(other)
    return found


# Confident mistakes


def loss_ratio_by_hand(logits, y, aligned, k):
    """Cross entropy of conflicting over that of aligned rows, of k times the logits, with 120 digits."""
    getcontext().prec = 120
    total = {True: Decimal(0), False: Decimal(0)}
    for row, label, ours in zip(logits.tolist(), y.tolist(), aligned.tolist(), strict=True):
        terms = [(Decimal(k) * (Decimal(v) - Decimal(row[label]))).exp() for v in row]
        total[ours] += sum(terms).ln()
    return float(total[False] / total[True])


def gradient_ratio_by_hand(net, x, y, spurious, core, k):
    """One backward pass for each row."""
    named = dict(net.named_parameters())
    total = {"spurious": 0.0, "core": 0.0}
    for i in range(len(y)):
        net.zero_grad()
        nn.functional.cross_entropy(k * net(x[i : i + 1]), y[i : i + 1]).backward()
        for part, names in (("spurious", spurious), ("core", core)):
            total[part] += math.sqrt(sum(float(named[name].grad.square().sum()) for name in names))
    return total["spurious"] / total["core"]


# Counting


def group_scores_by_hand(correct, y, a):
    """Of one attribute, in percent, row by row; label and value agree where they are the same number."""
    cells = {}
    for right, label, value in zip(correct, y, a, strict=True):
        cells.setdefault((label, value), []).append(bool(right))

    def percent(held):
        return 100 * sum(held) / len(held)

    each = {cell: percent(held) for cell, held in cells.items()}
    return {
        "average": percent(correct),
        "unbiased": sum(each.values()) / len(each),
        "worst_group": min(each.values()),
        "aligned": percent([r for (label, value), held in cells.items() if label == value for r in held]),
        "conflicting": percent([r for (label, value), held in cells.items() if label != value for r in held]),
    }


def wilson_by_hand(correct, n, z=1.959963984540054):
    """The shares p that the seen one would not contradict, |seen − p| ≤ z √(p (1 − p) / n): the ends, by halving."""
    seen = correct / n

    def end(inside, outside):
        for _ in range(200):
            middle = (inside + outside) / 2
            fits = abs(seen - middle) <= z * math.sqrt(middle * (1 - middle) / n)
            inside, outside = (middle, outside) if fits else (inside, middle)
        return inside

    return end(seen, 0.0), end(seen, 1.0)


def lost_classes_by_hand(mined, y, share=0.95, few=20):
    """Classes of which at most one row in twenty was not mined."""
    lost = []
    for c in sorted(set(y)):
        own = [m for m, label in zip(mined, y, strict=True) if label == c]
        if len(own) >= few and sum(own) >= share * len(own):
            lost.append(c)
    return lost


def mining_by_hand(mined, conflicting):
    """Precision and recall in percent."""
    both = sum(m and c for m, c in zip(mined, conflicting, strict=True))
    return 100 * both / sum(mined), 100 * both / sum(conflicting)


def given_away_by_hand(groups, conflicting):
    """Of each row, whether most rows of its group conflict."""
    of = {g: [c for h, c in zip(groups, conflicting, strict=True) if h == g] for g in groups}
    return [2 * sum(of[g]) > len(of[g]) for g in groups]


def largest_share_by_hand(shares, window):
    """The largest mean of `window` shares in a row; batches without one are left out."""
    known = [s for s in shares if not math.isnan(s)]
    return max(sum(known[i : i + window]) / window for i in range(len(known) - window + 1))


def same_order_by_hand(first, second):
    """Whether no two values stand one way round by the first measure and the other way round by the second."""
    return all((first[i] < first[j]) == (second[i] < second[j]) for i in range(len(first)) for j in range(len(first)))


def margins_by_hand(logits, y, aligned):
    """The least lead of the label over the next class among aligned rows; the mean it is behind among the others."""
    lead = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        lead.append(row[label] - max(v for k, v in enumerate(row) if k != label))
    ours = [v for v, own in zip(lead, aligned.tolist(), strict=True) if own]
    theirs = [-v for v, own in zip(lead, aligned.tolist(), strict=True) if not own]
    return min(ours), sum(theirs) / len(theirs)


def growth_by_hand(scales, ratios, power):
    """The slope of log(ratio / k^power) over k, by the sums of least squares."""
    logs = [math.log(r / k**power) for k, r in zip(scales, ratios, strict=True)]
    mk, ml = sum(scales) / len(scales), sum(logs) / len(logs)
    over = sum((k - mk) * (v - ml) for k, v in zip(scales, logs, strict=True))
    return over / sum((k - mk) ** 2 for k in scales)


def statistics_by_hand(x, batches):
    """Mean and variance (of n - 1) of one column, each averaged over batches."""
    means, variances = [], []
    for rows in batches:
        values = [float(x[i]) for i in rows]
        mean = sum(values) / len(values)
        means.append(mean)
        variances.append(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return sum(means) / len(means), sum(variances) / len(variances)


# DCWP's bounds and its weights


def outcomes_by_hand(pi_inv, pi_sp, alpha, p, phi=0.0):
    """Every output of a randomly pruned classifier, times Y / w_inv, and its chance; a spurious term is α, 0 or −α."""
    q = p * (1 - phi)
    for m, signs in itertools.product((0, 1), itertools.product((1, 0, -1), repeat=len(alpha))):
        chance = pi_inv if m else 1 - pi_inv
        for s, pi in zip(signs, pi_sp, strict=True):
            chance *= {1: pi * q, 0: 1 - pi, -1: pi * (1 - q)}[s]
        yield round(m + sum(s * a for s, a in zip(signs, alpha, strict=True)), 12), chance


def margin_by_hand(*world):
    """The mean output."""
    return sum(chance * output for output, chance in outcomes_by_hand(*world))


def pruned_error_by_hand(*world):
    """The chance of an output below 0, and half of that of 0 (equation 2)."""
    return sum(chance * {-1: 1.0, 0: 0.5, 1: 0.0}[np.sign(output)] for output, chance in outcomes_by_hand(*world))


def error_bound_by_hand(pi_inv, pi_sp, alpha, p, phi=0.0):
    """Hoeffding's inequality for a sum of independent terms, each between two ends; twice, as the paper has it."""
    mean = margin_by_hand(pi_inv, pi_sp, alpha, p, phi)
    ends = [(0, 1)] + [(-a, a) for a in alpha]
    return 2 * math.exp(-2 * max(mean, 0) ** 2 / sum((high - low) ** 2 for low, high in ends))


def debiasing_phi_by_hand(p):
    """The φ at which a spurious feature agrees with the label half of the time, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - middle) * p > 0.5 else (low, middle)
    return low


def followed(slope, start, t, dt=1e-3):
    """From 0 to t in small steps."""
    w = np.array(start, dtype=float)
    for _ in range(round(t / dt)):
        w = w + dt * slope(w)
    return w


def flow_by_hand(w_inv, w_sp, p, t):
    """Gradient descent with small steps on E exp(−w·x), the mean over every pattern of signs."""
    rows = [(1, *signs) for signs in itertools.product((1, -1), repeat=len(w_sp))]
    chances = [math.prod(p if s == 1 else 1 - p for s in row[1:]) for row in rows]

    def slope(w):
        return sum(
            chance * math.exp(-np.dot(row, w)) * np.array(row) for row, chance in zip(rows, chances, strict=True)
        )

    return followed(slope, [w_inv, *w_sp], t)


def lowest_factor_by_hand(p):
    """The smallest value of p e^(−w) + (1 − p) e^w, found by trying."""
    return min(p * math.exp(-w) + (1 - p) * math.exp(w) for w in np.linspace(-4, 4, 80_001))


def invariant_bounds_by_hand(w_inv, w_sp, p, t):
    """w_inv where every factor is as small as can be, and where none is smaller than it is on the way to its limit."""
    limit = math.log(p / (1 - p)) / 2
    slow = lowest_factor_by_hand(p) ** len(w_sp)
    fast = math.prod(p * math.exp(-w) + (1 - p) * math.exp(limit) for w in w_sp)
    return [float(followed(lambda w, c=c: c * np.exp(-w), w_inv, t)) for c in (slow, fast)]


def spurious_floor_by_hand(w_sp, p, D, t, last):
    """A spurious weight where w_inv is already at its last value and every other factor as small as can be."""
    pace = math.exp(-last) * lowest_factor_by_hand(p) ** (D - 1)
    return float(followed(lambda w: pace * (p * np.exp(-w) - (1 - p) * np.exp(w)), w_sp, t))


def trained_ratio_by_hand(p, D, n, epochs, batch, lr, seed):
    """SGD on log(1 + exp(−w·x)), row by row, on the same draws."""
    rng = np.random.default_rng(seed)

    def rows(agreement):
        return [[1.0, *(1.0 if u < agreement else -1.0 for u in draws)] for draws in rng.random((n, D))]

    x, w = rows(p), [0.0] * (1 + D)
    for _ in range(epochs):
        for part in np.array_split(rng.permutation(n), max(1, n // batch)):
            step = [0.0] * (1 + D)
            for i in part:
                off = 1 / (1 + math.exp(sum(a * b for a, b in zip(w, x[i], strict=True))))
                step = [s + off * v / len(part) for s, v in zip(step, x[i], strict=True)]
            w = [a + lr * s for a, s in zip(w, step, strict=True)]
    right = [sum(a * b for a, b in zip(w, row, strict=True)) > 0 for row in rows(0.5)]
    return sum(w[1:]) / D / w[0], 100 * sum(right) / n


# AVP's definitions


def edges_by_hand(z, bins):
    """Borders in the middle between the values where there are few; else where equally many rows are on each side."""
    values = sorted(set(z))
    if len(values) <= bins:
        return [(a + b) / 2 for a, b in itertools.pairwise(values)]
    rows, found = sorted(z), []
    for k in range(1, bins):
        at = k / bins * (len(rows) - 1)
        low = min(int(at), len(rows) - 2)
        found.append(rows[low] + (at - low) * (rows[low + 1] - rows[low]))
    return sorted(set(found))


def posteriors_by_hand(z, y, edges):
    """Of each row, how many of the rows of its cell have its label."""
    cell = [sum(v > e for e in edges) for v in z]
    found = []
    for c, label in zip(cell, y, strict=True):
        inside = [other for d, other in zip(cell, y, strict=True) if d == c]
        found.append(inside.count(label) / len(inside))
    return found


def expected_posterior_by_hand(z, y, edges):
    found = posteriors_by_hand(z, y, edges)
    return sum(found) / len(found)


def gain_ratio_by_hand(z, y, edges):
    """(H(y) − H(y | z)) / H(y | z), each entropy the mean surprise of a row."""
    whole = -sum(math.log(list(y).count(label) / len(y)) for label in y) / len(y)
    rest = -sum(math.log(p) for p in posteriors_by_hand(z, y, edges)) / len(y)
    return (whole - rest) / rest if rest > 1e-12 else math.inf


def apart_by_hand(measure, seen, true, bins):
    """For each latent, a measure in the data seen and in the true one, in the same cells."""
    found = []
    for i in range(len(seen[0][0])):
        columns = [[row[i] for row in z] for z, _ in (seen, true)]
        edges = edges_by_hand(columns[0] + columns[1], bins)
        found.append([measure(column, y, edges) for column, (_, y) in zip(columns, (seen, true), strict=True)])
    return found


def spurious_correlation_by_hand(seen, true, bins):
    return [abs(a - b) for a, b in apart_by_hand(expected_posterior_by_hand, seen, true, bins)]


def spurious_ratio_by_hand(seen, true, bins):
    return [abs(a - b) / b for a, b in apart_by_hand(gain_ratio_by_hand, seen, true, bins)]


def variability_by_hand(z, a):
    """Var(A_ij z_i) / mean(A_ij z_i), one pair at a time."""
    found = []
    for i, weights in enumerate(a):
        found.append([])
        for weight in weights:
            values = [weight * row[i] for row in z]
            mean = sum(values) / len(values)
            found[-1].append(sum((v - mean) ** 2 for v in values) / len(values) / mean)
    return found


def hidden_by_hand(net, x):
    """What the two hidden layers of an mlp with tanh give, row by row and unit by unit."""
    layers = [(part.weight.tolist(), part.bias.tolist()) for part in net.encoder if isinstance(part, nn.Linear)]
    found = []
    for row in x.tolist():
        values = []
        for weight, bias in layers:
            row = [
                math.tanh(b + sum(w * v for w, v in zip(ws, row, strict=True)))
                for ws, b in zip(weight, bias, strict=True)
            ]
            values += row
        found.append(values)
    return found


def decomposed_by_hand(u, v, core, spurious, leak):
    """The lead of class 1 in the smallest bias-decomposable network."""
    push = core * (1 if u == v else 4)
    return u * (min(push, 1) + leak * push) + spurious * v

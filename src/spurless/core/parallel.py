"""One training over several processes, each with a GPU of its own, that ends with the numbers of one process.

Every process has the same samples, draws the same random numbers and sees the same batch. A network (`Net.features`)
looks at this process's share of the samples only, and the features are then put together again, so that every process
computes the loss of the whole batch. Pairs of samples, group means and a memory of losses therefore need no special
care: a method is the same code as in one process. Gradients are those of the sum of the processes' (equal) losses;
divided by their number they are the gradients of the one loss:

    features = together(encoder(my samples));  loss = L(features);  gradient = all-reduce(local gradient) / processes

torch's DistributedDataParallel instead takes a loss of each process's own samples, and the mean of those. That is
another loss wherever samples are compared with one another, and wherever shares are not of equal size.

BatchNorm is that of the whole batch, and dropout's mask is drawn for the whole batch on each process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from spurless.core.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
TALK = 20  # steps between two questions whether someone wants to stop or save: each answer waits for the device
MASKS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d}
_division: Division | None = None
_in_step = False


def world() -> int:
    """How many processes train together; 1 where no process group was set up.

    >>> world(), rank(), first()
    (1, 0, True)
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world() > 1 else 0


def first() -> bool:
    """Whether this process is the one that writes and prints."""
    return rank() == 0


def local_gpu() -> int:
    """The number of this process's GPU on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0)) if world() > 1 else 0


@contextmanager
def joined() -> Iterator[None]:
    """Where torchrun started this process: join the others, and keep quiet unless first on this machine."""
    if int(os.environ.get("WORLD_SIZE", 1)) < 2 or not {"RANK", "LOCAL_RANK", "MASTER_ADDR"} <= set(os.environ):
        yield
        return
    here = int(os.environ["LOCAL_RANK"])
    if here < torch.cuda.device_count():
        torch.cuda.set_device(here)
    dist.init_process_group()  # NCCL for tensors on GPUs, gloo for the others
    out, err = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        try:
            if not first():
                sys.stdout = nowhere
            if here > 0:
                sys.stderr = nowhere  # what is said there, another process of this machine says, too
            yield
        except SystemExit:
            dist.destroy_process_group()
            raise
        else:
            dist.destroy_process_group()  # not after an error of this process alone: the others wait for it
        finally:
            sys.stdout, sys.stderr = out, err  # a traceback is always shown


def from_first(make: Callable[[], T]) -> T:
    """What the first process makes; a mistake that it finds is raised by all."""
    if world() == 1:
        return make()
    box: list[Any] = [None]
    if first():
        try:
            box = [(make(), None)]
        except Exception as mistake:
            box = [(None, mistake)]
    dist.broadcast_object_list(box, src=0)
    value, error = box[0]
    if error is not None:
        raise error
    return cast(T, value)


def as_first(tensor: Tensor) -> Tensor:
    """The tensor as the first process has it: two GPUs may differ in the last bit, and a decision must not."""
    if world() > 1:
        tensor = tensor.contiguous()
        dist.broadcast(tensor, src=0)
    return tensor


@torch.no_grad()
def agree(modules: Sequence[nn.Module]) -> None:
    """All parameters and buffers as the first process has them."""
    if world() > 1:
        for tensor in (t for module in modules for t in module.state_dict().values()):
            tensor.copy_(as_first(tensor.detach().clone(memory_format=torch.contiguous_format)))


def any_of(*wishes: bool) -> tuple[bool, ...]:
    """Of each wish, whether any process has it."""
    if world() == 1:
        return wishes
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    flags = torch.tensor([int(w) for w in wishes], device=device)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return tuple(bool(w) for w in flags.tolist())


def shares(n: int, parts: int) -> list[slice]:
    """How `n` samples are divided: one after the other, as evenly as can be.

    >>> [(s.start, s.stop) for s in shares(7, 3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    ends = [n * k // parts for k in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def my_share(n: int) -> slice:
    return shares(n, world())[rank()]


def whole(own: Tensor, n: int) -> Tensor:
    """All `n` samples, of which this process has its share. Added to zeros, a number is itself."""
    rows = torch.zeros((n, *own.shape[1:]), dtype=wide(own).dtype, device=own.device)
    rows[my_share(n)] = own
    dist.all_reduce(rows)
    return rows.to(own.dtype)


def wide(t: Tensor) -> Tensor:
    """In at least single precision: sums of half-precision numbers lose digits, and not every backend adds them."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def _only_once() -> None:
    """Refuse a derivative that is to be derived again. Not torch's once_differentiable: its error waits in the graph,
    where a step that asks for the gradients of its own parameters never comes by, and trains without that term."""
    if torch.is_grad_enabled():
        raise UserError(
            "A loss takes the gradient of a network's outputs with create_graph=True; over several processes such a "
            "gradient cannot be derived again. Use one process, or create_graph=False if it need not be."
        )


class _Together(torch.autograd.Function):
    """My samples -> all samples. Each process continues with all of them, and the gradients of all are added up."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n: int) -> Tensor:
        return whole(own, n)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        _only_once()
        total = wide(grad).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[my_share(len(grad))].to(grad.dtype), None


class _Mine(torch.autograd.Function):
    """All samples -> my samples. The gradient of an input is that of the one loss, for all samples and on every
    process."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.n = len(rows)
        return rows[my_share(ctx.n)].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        _only_once()
        return whole(grad, ctx.n) / world()


@contextmanager
def _dividing() -> Iterator[None]:
    global _in_step
    _in_step = True
    try:
        with Gradients():
            yield
    finally:
        _in_step = False


def dividing() -> AbstractContextManager[None]:
    """Inside, networks divide the samples among the processes. Elsewhere each computes all of them."""
    return nullcontext() if world() == 1 else _dividing()


class Gradients(TorchFunctionMode):
    """While a loss is computed: gradients that it asks for are those of the whole batch, as in one process."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.backward, torch.autograd.backward):
            raise UserError(
                "A loss calls backward(), which over several processes leaves the gradients of a share of the samples. "
                "Take them with torch.autograd.grad(loss, inputs) instead."
            )
        result = func(*args, **kwargs)
        # What is to be derived again came through no division (_only_once): each process has the whole of it.
        if func is torch.autograd.grad and not kwargs.get("create_graph"):
            return self.whole(args[1], result)  # torch hands the inputs on as a tuple
        return result

    def whole(self, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Parameters, and other leaves, are the same on each process and have the gradient of its samples: the mean is
        that of all samples. A batch has that already, and the mean leaves it as it is."""
        grads = list(gradients)
        leaves = {k: g for k, g in enumerate(grads) if g is not None and getattr(inputs[k], "is_leaf", False)}
        for k, mean in zip(leaves, averaged(list(leaves.values())), strict=True):
            grads[k] = mean
        return tuple(grads)


def divided(module: nn.Module, x: Tensor) -> Tensor:
    """module(x), of which each process does its share where samples are divided.

    >>> divided(nn.Identity(), torch.ones(2)).tolist()
    [1.0, 1.0]
    """
    global _division
    if not _in_step or _division is not None:
        return cast(Tensor, module(x))
    n = len(x)
    # A batch that would leave a process with less than two samples is left whole, and so is what has nothing to train:
    # then all processes do the same, and the mean of their gradients is the gradient.
    if n < 2 * world() or next(module.parameters(), None) is None:
        return cast(Tensor, module(x))
    mine = _Mine.apply(x) if x.requires_grad else x[my_share(n)]
    _division = Division(n, mine)
    try:
        with _division:
            own = module(mine)
        _division.check_numbers()
    finally:
        _division = None
    if len(own) != len(mine):
        raise UserError(
            f"The network makes {len(own)} outputs of {len(mine)} samples; over several processes each needs one."
        )
    return cast(Tensor, _Together.apply(own, n))


def drawn(draw: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """draw(x), random numbers like x; where samples are divided, this process's share of those of the whole batch."""
    return draw(x) if _division is None else _division.drawn(draw, x)


class Division(TorchFunctionMode):
    """A batch of `n` samples while a network looks at this process's share: what depends on other samples asks for
    them."""

    def __init__(self, n: int, mine: Tensor):
        super().__init__()
        self.n, self.rows, self.mine, self.device = n, len(mine), my_share(n), mine.device
        self.numbers = self._numbers()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self.batch_norm(*args, **kwargs)
        if func in MASKS:
            return self.masked(func, *args, **kwargs)
        if func is Tensor.bernoulli_:  # stochastic depth, of single samples or of all at once
            return self.bernoulli(*args, **kwargs)
        return func(*args, **kwargs)

    # Random numbers

    def _numbers(self) -> Tensor:
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()

    def check_numbers(self) -> None:
        """Numbers drawn for a share alone would be others than those of one process, and equal on all of them."""
        if not torch.equal(self.numbers, self._numbers()):
            raise UserError(
                "The network draws random numbers in a way that cannot be divided among processes (other than "
                "dropout and stochastic depth); switch that off, such as attention dropout, or use one process."
            )

    def drawn(self, draw: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self.check_numbers()
        if x.stride(0) == x[0].numel():  # the same memory layout, since the order of the draws may follow it
            like = torch.empty_strided((self.n, *x.shape[1:]), x.stride(), dtype=x.dtype, device=x.device)
        else:
            like = torch.empty((self.n, *x.shape[1:]), dtype=x.dtype, device=x.device)
        own = draw(like)[self.mine]
        self.numbers = self._numbers()
        return own

    def bernoulli(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if x.shape[:1] == (self.rows,):
            return x.copy_(self.drawn(lambda like: like.bernoulli_(*args, **kwargs), x))
        self.check_numbers()
        x.bernoulli_(*args, **kwargs)
        if x.numel() == 1:
            self.numbers = self._numbers()
        return x

    def masked(
        self, func: Callable[..., Tensor], x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return x
        mask = self.drawn(lambda like: func(like.fill_(1), p, training=True), x.detach())
        return x.mul_(mask) if inplace else x * mask

    # BatchNorm

    def batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """By mean and variance of the whole batch, from those of the shares.

        torch's SyncBatchNorm does the same, on CUDA alone.
        """
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        var, mean = torch.var_mean(wide(x), [0, *range(2, x.dim())], correction=0)  # (c,), (c,)
        stats = _Together.apply(torch.stack([mean, var])[None], world())  # (processes, 2, c)
        sizes = torch.tensor([s.stop - s.start for s in shares(self.n, world())], dtype=mean.dtype).to(x.device)
        own_share = (sizes / self.n)[:, None]  # (processes, 1)
        mean = (own_share * stats[:, 0]).sum(0)
        var = (own_share * (stats[:, 1] + (stats[:, 0] - mean).square())).sum(0)
        if running_mean is not None and running_var is not None:
            count = self.n * x[0, 0].numel()
            with torch.no_grad():
                running_mean.lerp_(mean.to(running_mean.dtype), momentum)
                running_var.lerp_((var * (count / (count - 1))).to(running_var.dtype), momentum)
        scale = (var + eps).rsqrt()
        scale = scale if weight is None else scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        view = (1, -1, *[1] * (x.dim() - 2))
        return cast(Tensor, (x * scale.view(view) + shift.view(view)).to(x.dtype))


@torch.no_grad()
def averaged(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean of each over all processes, in one exchange."""
    if world() == 1 or not tensors:
        return list(tensors)
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    flat /= world()
    pieces = flat.split([t.numel() for t in tensors])
    return [piece.view(t.shape).to(t.dtype) for t, piece in zip(tensors, pieces, strict=True)]


@torch.no_grad()
def average_gradients(params: Sequence[Tensor]) -> None:
    """Replace the gradients of each process by their mean over all processes."""
    if world() == 1:
        return
    grads = [p.grad for p in params if p.grad is not None]
    for grad, mean in zip(grads, averaged(grads), strict=True):
        grad.copy_(mean)

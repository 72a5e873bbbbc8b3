"""One pool of threads for all that reads, decodes and hashes."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """As many threads as there are cores. Work that runs in it must not wait for other work in it.

    >>> list(pool().map(abs, [-1, 2]))
    [1, 2]
    """
    return ThreadPoolExecutor(cores(), thread_name_prefix="spurless")


def spread(work: Callable[[A], B], items: Sequence[A], together: int = 64) -> Iterator[B]:
    """The work on each item by all cores, in order. So many are handed over together: of a million, each by itself
    would take a minute and half a gigabyte to hand over.

    >>> list(spread(abs, [-1, 2, -3], together=2))
    [1, 2, 3]
    """

    def some(start: int) -> list[B]:
        return [work(item) for item in items[start : start + together]]

    return chain.from_iterable(pool().map(some, range(0, len(items), together)))


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but none of its threads: it would wait for ever
    os.register_at_fork(after_in_child=pool.cache_clear)

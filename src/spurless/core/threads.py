"""One pool of threads for all that reads, decodes and hashes."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache


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


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but none of its threads: it would wait for ever
    os.register_at_fork(after_in_child=pool.cache_clear)

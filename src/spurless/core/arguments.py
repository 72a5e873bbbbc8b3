"""Functions whose parameters are the fields of a dataclass, so that they are listed in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def takes(
    arguments: Callable[Parameters, Asked],
) -> Callable[[Callable[[Asked], Answer]], Callable[Parameters, Answer]]:
    """Give a function of a dataclass the parameters that the dataclass is made from.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Lengths:
    ...     a: float
    ...     b: float = 4
    >>> @takes(Lengths)
    ... def area(of):
    ...     return of.a * of.b
    >>> area(3), area(a=2, b=1)
    (12, 2)
    """

    def decorate(run: Callable[[Asked], Answer]) -> Callable[Parameters, Answer]:
        answer = inspect.signature(run).return_annotation
        signature = inspect.signature(arguments).replace(return_annotation=answer)

        @functools.wraps(run)
        def with_parameters(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{run.__name__}{signature}: {error}") from None
            return run(arguments(*args, **kwargs))

        with_parameters.__signature__ = signature  # type: ignore[attr-defined]
        return with_parameters

    return decorate

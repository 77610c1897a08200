"""Values that are derived from a node of a plan and kept with it, so that later queries of the plan find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
_MISSING: Final = object()


class Memo:
    """Results of functions of one node, by the function. Any thread: two that call at once may both compute a
    result."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: dict[Callable[..., object], object] = {}

    def cached(self, make: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of `make`, a function or a class, which is called the first time only.

        Its arguments are the node, and values that are the same whenever the node is used."""
        result = self._results.get(make, _MISSING)
        if result is _MISSING:
            result = self._results[make] = make(*args, **kwargs)
        return cast(R, result)

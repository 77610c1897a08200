"""Every aggregate by its name: one line each."""

from __future__ import annotations

from typing import Final

from merlot.aggregates.averages import Average
from merlot.aggregates.booleans import Boolean
from merlot.aggregates.counts import Count
from merlot.aggregates.distinct import DistinctCount
from merlot.aggregates.extremes import Extreme
from merlot.aggregates.function import AggregationFunction
from merlot.aggregates.hyperloglog import DistinctCountHll, DistinctCountRawHll
from merlot.aggregates.moments import MOMENTS
from merlot.aggregates.of_lists import OfLists
from merlot.aggregates.precision import SumPrecision
from merlot.aggregates.ranges import MinMaxRange
from merlot.aggregates.sums import Sum, SumLong
from merlot.aggregates.text_extremes import TextExtreme
from merlot.aggregates.with_time import WithTime
from merlot.tree.names import canonical_key
from merlot.vectors.errors import UnsupportedQueryError

_OF_VALUES: Final[tuple[AggregationFunction, ...]] = (
    Count(),
    Sum(),
    SumLong(),
    Average(),
    Extreme("min", is_min=True),
    Extreme("max", is_min=False),
    TextExtreme("minstring", is_min=True),
    TextExtreme("maxstring", is_min=False),
    Extreme("minlong", is_min=True, is_long=True),
    Extreme("maxlong", is_min=False, is_long=True),
    DistinctCount(),
    DistinctCountHll(),
    DistinctCountRawHll(),
    MinMaxRange(),
    SumPrecision(),
    WithTime("firstwithtime", is_first=True),
    WithTime("lastwithtime", is_first=False),
    Boolean("booland", is_and=True),
    Boolean("boolor", is_and=False),
    *MOMENTS,
)
_WITH_LISTS: Final = frozenset(
    {"count", "sum", "min", "max", "minstring", "maxstring", "avg", "minmaxrange", "distinctcount"}
    | {"distinctcounthll", "distinctcountrawhll"}
)
"""Those that have a …MV form."""
FUNCTIONS: Final = (*_OF_VALUES, *(OfLists(one) for one in _OF_VALUES if one.name in _WITH_LISTS))

_BY_KEY: Final = {key: function for function in FUNCTIONS for key in (function.name, *function.aliases)}


def find(name: str) -> AggregationFunction | None:
    """The aggregate of that name, if it is one."""
    return _BY_KEY.get(canonical_key(name))


def named(name: str) -> AggregationFunction:
    """The aggregate of a canonical name; raises UnsupportedQueryError."""
    function = _BY_KEY.get(name)
    if function is None:
        raise UnsupportedQueryError(f"aggregate is not supported function={name}")
    return function

"""Registry of all aggregates by name."""

from __future__ import annotations

import re
from typing import Final

from merlot.aggregates.any_value import AnyValue
from merlot.aggregates.averages import Average
from merlot.aggregates.booleans import Boolean
from merlot.aggregates.collected import ArrayAgg, ListAgg
from merlot.aggregates.counts import Count
from merlot.aggregates.cpc import DistinctCountCpc, DistinctCountRawCpc
from merlot.aggregates.distinct import DistinctCount
from merlot.aggregates.distinct_forms import NO_SKETCHES, PRECISIONS, TEXT, DistinctCountBitmap, DistinctForm
from merlot.aggregates.extremes import Extreme
from merlot.aggregates.function import AggregationFunction
from merlot.aggregates.funnel_windows import (
    FunnelCompleteCount,
    FunnelMatchStep,
    FunnelMaxStep,
    FunnelStepDurationStats,
)
from merlot.aggregates.funnels import FunnelCount
from merlot.aggregates.histogram import Histogram
from merlot.aggregates.hyperloglog import DistinctCountHll, DistinctCountRawHll
from merlot.aggregates.hyperloglog_plus import DistinctCountRawHllPlus
from merlot.aggregates.id_set import IdSetFunction
from merlot.aggregates.kll import PercentileKll, PercentileRawKll
from merlot.aggregates.modes import DistinctSum, ModeFunction
from merlot.aggregates.moments import MOMENTS
from merlot.aggregates.multi_value import MultiValueAggregate
from merlot.aggregates.percentiles import PERCENT, Percentile
from merlot.aggregates.precision import SumPrecision
from merlot.aggregates.projections import Projection
from merlot.aggregates.ranges import MinMaxRange
from merlot.aggregates.sums import Sum, SumLong, SumOrZero
from merlot.aggregates.tdigest import PercentileRawTDigest, PercentileTDigest
from merlot.aggregates.text_extremes import TextExtreme
from merlot.aggregates.theta import DistinctCountRawTheta, DistinctCountTheta
from merlot.aggregates.tuples import AvgValueTuple, DistinctCountRawTuple, DistinctCountTuple, SumValuesTuple
from merlot.aggregates.ultraloglog import DistinctCountRawUll, DistinctCountUll
from merlot.aggregates.with_time import WithTime
from merlot.tree.names import canonical_key
from merlot.tree.types import INT, LONG
from merlot.vectors.errors import UnsupportedQueryError

_OF_VALUES: Final[tuple[AggregationFunction, ...]] = (
    Count(),
    Sum(),
    SumLong(),
    SumOrZero(),
    Average(),
    Extreme("min", is_min=True),
    Extreme("max", is_min=False),
    TextExtreme("minstring", is_min=True),
    TextExtreme("maxstring", is_min=False),
    Extreme("minlong", is_min=True, is_long=True),
    Extreme("maxlong", is_min=False, is_long=True),
    AnyValue(),
    DistinctCount(),
    DistinctCountBitmap(),
    DistinctForm("segmentpartitioneddistinctcount", LONG),
    DistinctForm("distinctcountoffheap", INT, TEXT),
    DistinctForm("distinctcountsmarthll", INT, TEXT),
    DistinctForm("distinctcounthllplus", LONG, PRECISIONS, takes=NO_SKETCHES),
    DistinctCountUll(),
    DistinctCountHll(),
    DistinctCountRawHll(),
    DistinctCountRawHllPlus(),
    DistinctCountRawUll(),
    DistinctCountTheta(),
    DistinctCountRawTheta(),
    DistinctCountCpc(),
    DistinctCountRawCpc(),
    DistinctCountTuple(),
    DistinctCountRawTuple(),
    SumValuesTuple(),
    AvgValueTuple(),
    DistinctSum("distinctsum", is_average=False),
    DistinctSum("distinctavg", is_average=True),
    Percentile("percentile", is_long=False),
    Percentile("percentileest", is_long=True),
    Percentile("percentilesmarttdigest", is_long=False, has_settings=True),
    PercentileTDigest(),
    PercentileRawTDigest(),
    PercentileKll(),
    PercentileRawKll(),
    ModeFunction(),
    MinMaxRange(),
    Histogram(),
    ArrayAgg(),
    ListAgg(),
    SumPrecision(),
    WithTime("firstwithtime", is_first=True),
    WithTime("lastwithtime", is_first=False),
    Projection("exprmin", is_min=True),
    Projection("exprmax", is_min=False),
    FunnelCount(),
    FunnelMaxStep(),
    FunnelMatchStep(),
    FunnelCompleteCount(),
    FunnelStepDurationStats(),
    IdSetFunction(),
    Boolean("booland", is_and=True),
    Boolean("boolor", is_and=False),
    *MOMENTS,
)
_WITH_LISTS: Final = frozenset(
    {"count", "sum", "min", "max", "minstring", "maxstring", "avg", "minmaxrange", "distinctcount"}
    | {
        "distinctcounthllplus",
        "distinctcountrawhllplus",
        "distinctcounthll",
        "distinctcountrawhll",
        "distinctsum",
        "distinctavg",
        "percentile",
        "percentileest",
    }
    | {"percentiletdigest", "percentilerawtdigest", "percentilekll", "percentilerawkll", "distinctcountbitmap"}
)
"""Aggregates that have a …MV form."""
FUNCTIONS: Final = (
    *_OF_VALUES,
    *(MultiValueAggregate(function) for function in _OF_VALUES if function.name in _WITH_LISTS),
)

_NUMBERED: Final = re.compile(r"(?P<name>[a-z]+)(?P<number>[0-9]{1,3})(?P<lists>(?:mv)?)")
_BY_KEY: Final = {key: function for function in FUNCTIONS for key in (function.name, *function.aliases)}


def find(name: str) -> AggregationFunction | None:
    """Return the aggregate of that name, or None."""
    return _BY_KEY.get(canonical_key(name))


def numbered(name: str) -> tuple[AggregationFunction, str] | None:
    """Return the aggregate and the percentile of a name such as PERCENTILE95, or None."""
    match = _NUMBERED.fullmatch(canonical_key(name))
    function = None if match is None else _BY_KEY.get(match["name"] + match["lists"])
    if match is None or function is None or PERCENT not in function.parameters:
        return None
    return function, match["number"]


def named(name: str) -> AggregationFunction:
    """Return the aggregate of a canonical name; raise UnsupportedQueryError."""
    function = _BY_KEY.get(name)
    if function is None:
        raise UnsupportedQueryError(f"aggregate is not supported function={name}")
    return function

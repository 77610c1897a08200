"""Star-trees: rows of a segment aggregated ahead, by dimensions in an order. Names and defaults are Pinot's.

A tree keeps, of each function of a column, a *stored function*: AVG is a sum and a count, MINMAXRANGE both extremes,
and functions that differ in how they show an answer share what they are made of. What is decided by the name alone is
here; whether columns exist and have fitting types is in `manifest.star_tree_checks`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from merlot.spec.derived import DimensionName, derived_of
from merlot.spec.model import SpecModel
from merlot.values.types import TypeName

MAX_DIMENSIONS: Final = 64
DEFAULT_LEAF_RECORDS: Final = 10_000
DEFAULT_DOCUMENTS: Final = 5_000_000
SEPARATOR: Final = "__"
EVERY_ROW: Final = "*"
"""The column of COUNT."""


class StarTreeChoice(StrEnum):
    """Who chooses a star-tree."""

    NONE = "none"
    AUTO = "auto"


class StoredFunction(NamedTuple):
    """What a tree keeps of a column: an aggregate's state per document. `column` is empty for the count of rows."""

    function: str
    """Canonical name in the registry of aggregates."""
    column: str


_NUMBERS: Final = frozenset(
    {TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BOOLEAN, TypeName.TIMESTAMP}
    | {TypeName.BIG_DECIMAL}
)
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})
_HASHED: Final = frozenset(set(TypeName) - {TypeName.BIG_DECIMAL, TypeName.UNKNOWN})


_SKETCHED: Final = _HASHED - {TypeName.BYTES}


class FunctionRule(NamedTuple):
    """What a function of `functionColumnPairs` is made of, and of which columns it may be."""

    stored: tuple[str, ...]
    types: frozenset[TypeName]


FUNCTIONS: Final[dict[str, FunctionRule]] = {
    "count": FunctionRule(("count",), frozenset()),
    "sum": FunctionRule(("sum",), _NUMBERS),
    "sumlong": FunctionRule(("sum",), _WHOLE),
    "sumprecision": FunctionRule(("sum",), _WHOLE | {TypeName.BIG_DECIMAL}),
    "avg": FunctionRule(("sum", "count"), _NUMBERS),
    "min": FunctionRule(("min",), _NUMBERS),
    "minlong": FunctionRule(("min",), _WHOLE),
    "max": FunctionRule(("max",), _NUMBERS),
    "maxlong": FunctionRule(("max",), _WHOLE),
    "minmaxrange": FunctionRule(("min", "max"), _NUMBERS),
    "distinctcounthll": FunctionRule(("distinctcounthll",), _HASHED),
    "distinctcountrawhll": FunctionRule(("distinctcounthll",), _HASHED),
    "distinctcountbitmap": FunctionRule(("distinctcountbitmap",), frozenset({TypeName.INT})),
    "distinctcountthetasketch": FunctionRule(("distinctcountthetasketch",), _SKETCHED),
    "distinctcountrawthetasketch": FunctionRule(("distinctcountthetasketch",), _SKETCHED),
    "percentileest": FunctionRule(("percentileest",), _NUMBERS),
    "percentiletdigest": FunctionRule(("percentiletdigest",), _NUMBERS | {TypeName.BYTES}),
    "percentilerawtdigest": FunctionRule(("percentiletdigest",), _NUMBERS | {TypeName.BYTES}),
}
"""Functions whose states a tree may keep, by canonical name."""
UNBOUNDED: Final[dict[str, str]] = {"distinctcount": "Set", "percentile": "List"}
"""Functions that a tree may not keep, and what their intermediate result is."""


def canonical(function: str) -> str:
    """A function's name as registries have it."""
    return function.replace("_", "").lower()


def parts_of(pair: str) -> tuple[str, str]:
    """Canonical function and column of a pair; the column is empty where the pair has no separator."""
    function, _, column = pair.partition(SEPARATOR)
    return canonical(function), column


def stored_functions(function: str, column: str) -> tuple[StoredFunction, ...]:
    """What a function of a column is made of; nothing if a tree cannot keep it."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        return ()
    return tuple(StoredFunction(name, "" if name == "count" else column) for name in rule.stored)


class StarTreeSpec(SpecModel):
    """One star-tree of every segment: which queries it answers, and how large it may be."""

    dimensions_split_order: Annotated[tuple[DimensionName, ...], Field(min_length=1, max_length=MAX_DIMENSIONS)]
    """Dimensions that queries filter and group by, in the order in which the tree is split: columns, and times cut to a
    unit, DATETRUNC('DAY', ts). List those that most queries name first, and among them those of many values."""
    skip_star_node_creation_for_dimensions: Annotated[tuple[DimensionName, ...], Field(max_length=MAX_DIMENSIONS)] = ()
    """Dimensions of the order that nearly every query names: no documents are made for queries that do not."""
    function_column_pairs: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1)]
    """What queries aggregate: functions and their columns, such as SUM__impressions and COUNT__*."""
    max_leaf_records: int = Field(DEFAULT_LEAF_RECORDS, ge=1)
    """Nodes of more documents are split further: a smaller value makes a larger tree and queries that read less."""
    max_documents: int = Field(DEFAULT_DOCUMENTS, ge=1, le=(1 << 32) - 2)
    """Most documents of the tree of one segment. A batch or a merge whose tree would have more fails; the segment of a
    stream goes without it."""

    @property
    def stored(self) -> tuple[StoredFunction, ...]:
        """What a tree keeps for the pairs, each once, in a fixed order."""
        every = {one for pair in self.function_column_pairs for one in stored_functions(*parts_of(pair))}
        return tuple(sorted(every))

    @property
    def derived(self) -> tuple[str, ...]:
        """Dimensions that are derived columns."""
        return tuple(name for name in self.dimensions_split_order if derived_of(name) is not None)

    @property
    def columns(self) -> frozenset[str]:
        """Columns that are read to build it, derived ones among them."""
        return frozenset(self.dimensions_split_order) | {one.column for one in self.stored if one.column}

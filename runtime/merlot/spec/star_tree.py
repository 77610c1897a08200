"""Star-trees: pre-aggregated rows of a segment, split by dimensions in a fixed order. Names and defaults are Pinot's.

For each function of a column, a tree keeps one or more *stored functions*: AVG is a sum and a count, MINMAXRANGE both
extremes. Functions that only show the same state differently share a stored function. This module knows functions
and columns by name alone; `manifest.star_tree_checks` checks whether columns exist and have fitting types.
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
"""Column of COUNT in a pair."""


class StarTreeChoice(StrEnum):
    """Who chooses a star-tree."""

    NONE = "none"
    AUTO = "auto"


class StoredFunction(NamedTuple):
    """Aggregate whose state a tree keeps per document. `column` is empty for the count of rows."""

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
    """Stored functions of a function in `functionColumnPairs`, and the types of columns that it takes."""

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
"""Functions that a tree may not keep, with the type of their unbounded intermediate result."""


def canonical(function: str) -> str:
    """Return a function's name in the form that registries use."""
    return function.replace("_", "").lower()


def parts_of(pair: str) -> tuple[str, str]:
    """Return the canonical function and the column of a pair; the column is empty if the pair has no separator."""
    function, _, column = pair.partition(SEPARATOR)
    return canonical(function), column


def stored_functions(function: str, column: str) -> tuple[StoredFunction, ...]:
    """Return the stored functions of a function of a column; empty if a tree cannot keep it."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        return ()
    return tuple(StoredFunction(name, "" if name == "count" else column) for name in rule.stored)


class StarTreeSpec(SpecModel):
    """Star-tree of every segment: the queries that it answers, and its size limits."""

    dimensions_split_order: Annotated[tuple[DimensionName, ...], Field(min_length=1, max_length=MAX_DIMENSIONS)]
    """Dimensions by which queries filter and group, in the order in which the tree is split: columns, and times
    truncated to a unit, DATETRUNC('DAY', ts). List first the dimensions that most queries name, and among these the
    ones with many values."""
    skip_star_node_creation_for_dimensions: Annotated[tuple[DimensionName, ...], Field(max_length=MAX_DIMENSIONS)] = ()
    """Dimensions of the order that nearly every query names: no documents are made for queries that do not."""
    function_column_pairs: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1)]
    """Aggregates of queries: functions and their columns, such as SUM__impressions and COUNT__*."""
    max_leaf_records: int = Field(DEFAULT_LEAF_RECORDS, ge=1)
    """Most documents of a leaf. Larger nodes are split further: a smaller value makes a larger tree, and queries that
    read less."""
    max_documents: int = Field(DEFAULT_DOCUMENTS, ge=1, le=(1 << 32) - 2)
    """Most documents of the tree of one segment. A batch or a merge whose tree would have more fails; a stream's
    segment is built without the tree."""

    @property
    def stored(self) -> tuple[StoredFunction, ...]:
        """Stored functions of all pairs, each once, in a fixed order."""
        functions = {function for pair in self.function_column_pairs for function in stored_functions(*parts_of(pair))}
        return tuple(sorted(functions))

    @property
    def derived(self) -> tuple[str, ...]:
        """Dimensions that are derived columns."""
        return tuple(name for name in self.dimensions_split_order if derived_of(name) is not None)

    @property
    def columns(self) -> frozenset[str]:
        """Columns that are read to build the tree, derived columns included."""
        return frozenset(self.dimensions_split_order) | {stored.column for stored in self.stored if stored.column}

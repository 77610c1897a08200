"""Choose the star-tree of `starTree: auto` from a segment's columns. Equal rows give equal trees.

Dimensions are single-value columns, metrics excluded, with a dictionary of at most `MOST_VALUES` values. Dimensions
with more values come first, and times last, as in Pinot's default tree. The tree stores COUNT and the SUM of every
numeric single-value metric. If it would have more documents than a tenth of the segment's rows, or than
`MOST_DOCUMENTS`, it is built with fewer dimensions. Dimensions with the most values are left out first, because they
are nearly a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from merlot.segment.metadata import ColumnMetadata
from merlot.segment.startree.build import BuiltTree, build
from merlot.segment.startree.documents import SourceColumn, TooManyDocumentsError
from merlot.spec.derived import derived_of
from merlot.spec.schema import FieldRole
from merlot.spec.star_tree import EVERY_ROW, FUNCTIONS, MAX_DIMENSIONS, SEPARATOR, StarTreeSpec

MOST_VALUES: Final = 10_000
"""Limit for the cardinality of a dimension."""
ROWS_PER_DOCUMENT: Final = 10
"""Least number of rows per document. A tree with one document for two rows took 36 % of a segment's bytes, and a query
over it cost half a scan."""
MOST_DOCUMENTS: Final = 1_000_000


def takes_part(column: ColumnMetadata) -> bool:
    """Return True if a column may be a dimension or may be summed."""
    return _is_dimension(column) or _is_summed(column)


def widest(columns: Iterable[ColumnMetadata], num_docs: int) -> StarTreeSpec | None:
    """Return the tree of all columns that take part, derived columns too, but of the last `MAX_DIMENSIONS`
    dimensions at most. Return None without dimensions, or with fewer rows than one document needs."""
    candidates = list(columns)
    dimensions = sorted((column for column in candidates if _is_dimension(column)), key=_place)[-MAX_DIMENSIONS:]
    if not dimensions or num_docs < ROWS_PER_DOCUMENT:
        return None
    sums = [f"SUM{SEPARATOR}{column.name}" for column in candidates if _is_summed(column)]
    return StarTreeSpec(
        dimensions_split_order=tuple(column.name for column in dimensions),
        function_column_pairs=(f"COUNT{SEPARATOR}{EVERY_ROW}", *sums),
        max_documents=min(num_docs // ROWS_PER_DOCUMENT, MOST_DOCUMENTS),
    )


def narrowed(wanted: StarTreeSpec, columns: Mapping[str, SourceColumn], num_rows: int) -> BuiltTree | None:
    """Return the tree with the most dimensions that stays within the limit of documents, `max_documents`. Dimensions
    with the most values are left out first. Return None if the last remaining dimension alone exceeds the limit."""
    best: BuiltTree | None = None
    sizes = dict.fromkeys(wanted.dimensions_split_order, 0)
    for name in sizes:
        coded = columns[name].coded
        assert coded is not None
        sizes[name] = coded.cardinality
    by_size = sorted(sizes, key=lambda name: -sizes[name])
    low, high = 0, len(by_size)
    while low < high:
        left_out = (low + high) // 2
        dropped = frozenset(by_size[:left_out])
        remaining = tuple(name for name in wanted.dimensions_split_order if name not in dropped)
        try:
            best = build(wanted.model_copy(update={"dimensions_split_order": remaining}), columns, num_rows)
            high = left_out
        except TooManyDocumentsError:
            low = left_out + 1
    return best


def _is_dimension(column: ColumnMetadata) -> bool:
    is_candidate = not column.multi_value and column.encoding.has_dictionary and column.role != FieldRole.METRIC
    return is_candidate and (column.cardinality or 0) <= MOST_VALUES


def _is_summed(column: ColumnMetadata) -> bool:
    return column.role == FieldRole.METRIC and not column.multi_value and column.type in FUNCTIONS["sum"].types


def _place(column: ColumnMetadata) -> tuple[bool, int, str]:
    is_time = column.role == FieldRole.DATE_TIME or derived_of(column.name) is not None
    return is_time, -(column.cardinality or 0), column.name

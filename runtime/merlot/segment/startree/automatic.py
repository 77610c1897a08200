"""The star-tree of `starTree: auto`, chosen by what a segment's columns are: the same for the same rows.

Dimensions are columns of one value a row with a dictionary of at most `MOST_VALUES`, metrics left out: those of most
values first, times after the others, as in Pinot's default tree. Kept are COUNT and the SUM of every metric. While the
tree would have more documents than a tenth as many as the segment has rows, or than `MOST_DOCUMENTS`, the dimension of
most values is left out: columns that are nearly a key go first.
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
"""Of a dimension."""
ROWS_PER_DOCUMENT: Final = 10
"""At least: half as many documents as rows took 36 % of a segment's bytes, and are half a scan."""
MOST_DOCUMENTS: Final = 1_000_000


def takes_part(column: ColumnMetadata) -> bool:
    """Whether a column may be a dimension, or summed."""
    return _is_dimension(column) or _is_summed(column)


def widest(columns: Iterable[ColumnMetadata], num_docs: int) -> StarTreeSpec | None:
    """The tree of all columns that take part, derived ones too; None if there can be none."""
    known = list(columns)
    dimensions = sorted((one for one in known if _is_dimension(one)), key=_place)[-MAX_DIMENSIONS:]
    if not dimensions or num_docs < ROWS_PER_DOCUMENT:
        return None
    sums = [f"SUM{SEPARATOR}{one.name}" for one in known if _is_summed(one)]
    return StarTreeSpec(
        dimensions_split_order=tuple(one.name for one in dimensions),
        function_column_pairs=(f"COUNT{SEPARATOR}{EVERY_ROW}", *sums),
        max_documents=min(num_docs // ROWS_PER_DOCUMENT, MOST_DOCUMENTS),
    )


def narrowed(wanted: StarTreeSpec, columns: Mapping[str, SourceColumn], num_rows: int) -> BuiltTree | None:
    """The tree of as many of the dimensions as make no too many documents; None if even the last one makes too many."""
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
        gone = frozenset(by_size[:left_out])
        kept = tuple(name for name in wanted.dimensions_split_order if name not in gone)
        try:
            best = build(wanted.model_copy(update={"dimensions_split_order": kept}), columns, num_rows)
            high = left_out
        except TooManyDocumentsError:
            low = left_out + 1
    return best


def _is_dimension(column: ColumnMetadata) -> bool:
    is_one = not column.multi_value and column.encoding.has_dictionary and column.role != FieldRole.METRIC
    return is_one and (column.cardinality or 0) <= MOST_VALUES


def _is_summed(column: ColumnMetadata) -> bool:
    return column.role == FieldRole.METRIC and not column.multi_value and column.type in FUNCTIONS["sum"].types


def _place(column: ColumnMetadata) -> tuple[bool, int, str]:
    is_time = column.role == FieldRole.DATE_TIME or derived_of(column.name) is not None
    return is_time, -(column.cardinality or 0), column.name

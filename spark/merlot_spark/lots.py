"""Rows of a lot as input of segments: one dictionary per column for all of the lot's segments, and one order.

Values are compared once per lot, in making the dictionaries; rows are ordered, and divided into segments, by ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.merge.columns import MergeColumn
from merlot.merge.order import list_codes, order_codes, order_of
from merlot.segment.build.coding import code
from merlot.segment.build.rows import BuildColumn, stored_column
from merlot.segment.build.slices import even_slices
from merlot.segment.index.dict_ids import id_dtype
from merlot.spec.schema import FieldSpec
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName
from merlot.vectors.groups import KeyWords

Key = tuple[int, ...]
"""Key of a group: its day, then its partitions."""


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of one segment."""

    key: Key
    lot: Sequence[MergeColumn]
    place: slice
    """Positions of the rows in the columns of the lot."""
    part: tuple[int, int]
    """Number of this segment within the group, from 1, and the number of the group's segments."""

    @property
    def num_rows(self) -> int:
        return int(self.place.stop - self.place.start)

    def columns(self) -> Iterator[BuildColumn]:
        """Yield the columns in the order of the schema."""
        for column in self.lot:
            yield column.take(self.place).for_build()


@dataclass(frozen=True, slots=True)
class Size:
    """Number of rows of one segment of a group."""

    key: Key
    part: tuple[int, int]
    num_rows: int


def groups(rows: pa.Table, spec: TableSpec, key_names: Sequence[str]) -> Iterator[GroupRows]:
    """Yield the rows of each segment, in the declared order, then by time, then by all other columns, so that equal
    rows give equal files. Raise InvalidInputError if the rows cannot be sorted as declared."""
    keys = _keys(rows, key_names)
    columns = [_coded(field, rows.column(field.name)) for field in spec.table_schema.fields]
    order = _order(keys, columns, spec)
    if order is not None:
        keys, columns = [key[order] for key in keys], [column.take(order) for column in columns]
    start = 0
    for size in sizes(_counts(keys), spec):
        yield GroupRows(size.key, columns, slice(start, start + size.num_rows), size.part)
        start += size.num_rows


def part_of(size: Size, rows: pa.Table, spec: TableSpec) -> GroupRows:
    """Return the rows of one segment, which are in order already."""
    columns = [_coded(field, rows.column(field.name)) for field in spec.table_schema.fields]
    return GroupRows(size.key, columns, slice(0, rows.num_rows), size.part)


def sizes(rows_by_key: Mapping[Key, int], spec: TableSpec) -> list[Size]:
    """Return the sizes of the groups' segments, in their order: none is larger than the table allows."""
    sizes = []
    for key in sorted(rows_by_key):
        parts = even_slices(rows_by_key[key], spec.ingestion.max_rows_per_segment)
        sizes += [Size(key, (number, len(parts)), part.stop - part.start) for number, part in enumerate(parts, 1)]
    return sizes


def counts(rows: pa.Table, key_names: Sequence[str]) -> Mapping[Key, int]:
    """Return how many rows each group has. The rows must be in order."""
    return _counts(_keys(rows, key_names))


def in_order(rows: pa.Table, spec: TableSpec, key_names: Sequence[str]) -> pa.Table:
    """Return the rows in the order that `groups` gives them."""
    return rows.take(pa.array(order_of_rows(rows, spec, key_names)))


def order_of_rows(rows: pa.Table, spec: TableSpec, key_names: Sequence[str]) -> NDArray[np.uint32]:
    """Return the positions of the rows in their order."""
    columns = [_coded(field, rows.column(field.name)) for field in spec.table_schema.fields]
    order = _order(_keys(rows, key_names), columns, spec)
    return np.arange(rows.num_rows, dtype=np.uint32) if order is None else order


def _keys(rows: pa.Table, key_names: Sequence[str]) -> list[NDArray[np.int32]]:
    return [rows.column(name).to_numpy() for name in key_names]


def _counts(keys: Sequence[NDArray[np.int32]]) -> Mapping[Key, int]:
    is_new = np.zeros(max(0, len(keys[0]) - 1), dtype=bool)
    for key in keys:
        is_new |= key[1:] != key[:-1]
    bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(keys[0])]
    return {tuple(int(key[start]) for key in keys): stop - start for start, stop in itertools.pairwise(bounds)}


def _coded(field: FieldSpec, rows: pa.ChunkedArray) -> MergeColumn:
    stored = stored_column(field, rows)
    coded = code(field.type, stored.values)
    return MergeColumn(
        field=field,
        num_rows=stored.num_docs,
        values=coded.values,
        ids=coded.ids,
        offsets=None if stored.offsets is None else stored.offsets.astype(np.int64),
        nulls=np.asarray(rows.is_null()) if stored.num_nulls else None,
        every_value_occurs=True,
    )


def _order(
    keys: Sequence[NDArray[np.int32]], columns: Sequence[MergeColumn], spec: TableSpec
) -> NDArray[np.uint32] | None:
    """Return the positions of the rows in their order, or None if they are in it. Rows that are equal in this order are
    equal in everything that a segment stores of them: -0.0 comes before 0.0, and a null before a value that is its
    default."""
    by_name = {column.field.name: column for column in columns}
    words = KeyWords(len(keys[0]))
    for key in keys:
        coded = code(TypeName.INT, key)
        words.add(coded.ids, coded.cardinality)
    for name in spec.indexing.sorted_columns:
        if by_name[name].offsets is not None:
            raise InvalidInputError(f"rows cannot be sorted by this column column={name}")
        words.add(*order_codes(by_name[name]))
    leading = [*spec.indexing.sorted_columns, *([] if spec.time_column is None else [spec.time_column])]
    for name in dict.fromkeys([*leading, *by_name]):
        words.add(*_codes(by_name[name]))
    return order_of(words)


def _codes(column: MergeColumn) -> tuple[NDArray[np.unsignedinteger], int]:
    """Return numbers in the order of the values, null first."""
    codes, cardinality = order_codes(column) if column.offsets is None else list_codes(column)
    if column.nulls is None:
        return codes, cardinality
    apart = np.where(column.nulls, np.uint32(0), codes + np.uint32(1))
    return apart.astype(id_dtype(cardinality + 1)), cardinality + 1

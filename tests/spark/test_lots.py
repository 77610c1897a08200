"""One order of a lot's rows: whatever order they come in, what a segment stores of them comes out the same."""

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.segment.build.rows import BuildColumn
from merlot.spec.indexing import IndexingSpec
from merlot.spec.ingestion import IngestionSpec
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec
from merlot_spark.lots import GroupRows, Key, groups
from merlot_spark.sorted_runs import Lot

NANS = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0001], np.uint64).view(np.float64).tolist()
FLOATS = st.sampled_from([None, 0.0, -0.0, math.inf, -math.inf, *NANS]) | st.floats(allow_nan=False)
LISTS = st.none() | st.lists(st.sampled_from([0.0, -0.0, 1.5, math.nan, None]), max_size=3)
TEXT_LISTS = st.none() | st.lists(st.sampled_from(["", "a", "b", None]), max_size=3)
TEXTS = st.sampled_from([None, "null", "", "x", "\u00e9"])
ROWS = st.tuples(st.sampled_from([1, 2]), TEXTS, FLOATS, LISTS, TEXT_LISTS)
TYPES = {
    "$key0": pa.int32(),
    "text": pa.string(),
    "double": pa.float64(),
    "doubles": pa.list_(pa.float64()),
    "texts": pa.list_(pa.string()),
}
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "text", "type": "STRING"},
            {"name": "double", "type": "DOUBLE"},
            {"name": "doubles", "type": "DOUBLE", "multiValue": True},
            {"name": "texts", "type": "STRING", "multiValue": True},
        ]
    }
)
Row = tuple[Any, ...]


NUMBERS = TableSpec(
    table_schema=TableSchema.model_validate({"fields": [{"name": "number", "type": "LONG"}]}),
    ingestion=IngestionSpec(max_rows_per_segment=10_000),
)


def spec_of(*sorted_columns: str, most: int = 1_000) -> TableSpec:
    return TableSpec(
        table_schema=SCHEMA,
        indexing=IndexingSpec(sorted_columns=sorted_columns),
        ingestion=IngestionSpec(max_rows_per_segment=most),
    )


def table_of(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table({name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, columns, strict=True)})


def stored(rows: pa.Table, spec: TableSpec) -> list[tuple[tuple[int, ...], list[Row]]]:
    """Rows of each group, as a segment stores them."""
    return [
        (group.key, list(zip(*map(cells, group.columns()), strict=True))) for group in groups(rows, spec, ["$key0"])
    ]


def cells(column: BuildColumn) -> list[tuple[Any, bool]]:
    values = column.values.tolist() if isinstance(column.values, np.ndarray) else column.values.to_pylist()
    if column.offsets is not None:
        ends = column.offsets.tolist()
        values = [values[start:stop] for start, stop in itertools.pairwise(ends)]
    nulls = np.zeros(column.num_docs, bool)
    if column.nulls is not None:
        nulls = np.unpackbits(column.nulls.view(np.uint8), count=column.num_docs, bitorder="little").astype(bool)
    return list(zip(values, nulls.tolist(), strict=True))


@settings(deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from([(), ("text",), ("double", "text")]),
)
def test_the_order_of_the_source_leaves_no_trace(rows: list[Row], chance: Any, leading: tuple[str, ...]) -> None:
    shuffled = rows * 2
    chance.shuffle(shuffled)
    spec = spec_of(*leading)
    # Printed, numbers show the signs of zeros, and all NaNs are alike.
    assert repr(stored(table_of(rows * 2), spec)) == repr(stored(table_of(shuffled), spec))


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_each_group_has_its_rows_by_the_sorted_columns(rows: list[Row]) -> None:
    found = stored(table_of(rows), spec_of("text", "double"))
    assert [key for key, _ in found] == [(key,) for key in sorted({row[0] for row in rows})]
    for (key,), group in found:
        assert len(group) == sum(row[0] == key for row in rows)
        keys = [(text.encode(), _place(number)) for (text, _), (number, _), _, _ in group]
        assert keys == sorted(keys)


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(1, 5))
def test_a_group_is_cut_into_equal_parts_that_are_no_larger_than_the_table_allows(rows: list[Row], most: int) -> None:
    whole = stored(table_of(rows), spec_of("text"))
    found = list(groups(table_of(rows), spec_of("text", most=most), ["$key0"]))
    assert [group.part for group in found] == [
        (number, -(-len(group) // most)) for _, group in whole for number in range(1, -(-len(group) // most) + 1)
    ]
    for _, members in itertools.groupby(found, key=lambda group: group.key):
        counts = [group.num_rows for group in members]
        assert max(counts) <= most
        assert max(counts) - min(counts) <= 1
    assert repr(joined(found)) == repr(whole)


@settings(deadline=None)
@given(
    st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=8),
    st.sampled_from([(), ("text",), ("double", "text")]),
    st.integers(1, 6),
    st.sampled_from([1, 150, 1 << 20]),
    st.sampled_from([1, 100]),
)
def test_rows_that_are_sorted_on_disk_give_the_same_segments(
    batches: list[list[Row]], leading: tuple[str, ...], most: int, run_bytes: int, block_bytes: int
) -> None:
    spec = spec_of(*leading, most=most)
    with tempfile.TemporaryDirectory() as folder:
        lot = Lot(spec, ["$key0"], Path(folder), run_bytes, block_bytes)
        for batch in batches:
            (rows,) = table_of(batch).combine_chunks().to_batches()
            lot.add(rows)
        found = list(lot.groups())
        assert not list(Path(folder).iterdir()), "runs are gone when they have been read"
    expected = list(groups(pa.concat_tables(map(table_of, batches)), spec, ["$key0"]))
    assert [(one.key, one.part) for one in found] == [(one.key, one.part) for one in expected]
    assert repr(list(map(cells_of, found))) == repr(list(map(cells_of, expected)))


def test_a_lot_of_many_runs_is_merged_within_a_few_blocks(tmp_path: Path) -> None:
    """Rows that come in order, and rows that do not; a merge that took whole runs would hold all of them."""
    names = ["$key0"]
    for chance in (None, np.random.default_rng(3)):
        numbers = np.arange(200_000) if chance is None else chance.permutation(200_000)
        lot = Lot(NUMBERS, names, tmp_path, run_bytes=200_000, block_bytes=8_000)
        for part in np.array_split(numbers, 50):
            lot.add(pa.record_batch({"number": part, "$key0": np.zeros(len(part), np.int32)}))
        before, most, found = pa.total_allocated_bytes(), 0, []
        for group in lot.groups():
            most = max(most, pa.total_allocated_bytes() - before)
            (column,) = group.columns()
            found.append(np.asarray(column.values))
        assert np.array_equal(np.concatenate(found), np.arange(200_000))
        assert most < 200_000 * 12 // 2


def joined(found: list[GroupRows]) -> list[tuple[Key, list[Row]]]:
    """Parts of a group together."""
    return [
        (key, [row for one in members for row in cells_of(one)])
        for key, members in itertools.groupby(found, key=lambda group: group.key)
    ]


def cells_of(group: GroupRows) -> list[Row]:
    return list(zip(*map(cells, group.columns()), strict=True))


def test_rows_cannot_be_sorted_by_lists() -> None:
    with pytest.raises(InvalidInputError, match="cannot be sorted by this column column=texts"):
        stored(table_of([(1, "a", 1.0, [1.0], ["a"])]), spec_of("texts"))


def _place(number: float) -> tuple[bool, float, bool]:
    """NaN last, -0.0 before 0.0."""
    if math.isnan(number):
        return True, 0.0, False
    return False, number, math.copysign(1.0, number) > 0

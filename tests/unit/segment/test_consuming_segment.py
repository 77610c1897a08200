"""A consuming segment holds what was appended, for as long as somebody looks, and is sealed as a batch would be."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.segment.segment_tables import all_fields, expected, read_column, read_nulls, same, table_of

from merlot.errors import InvalidInputError
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.nulls import words_of
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.spec.indexing import IndexingSpec, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=all_fields())
REQUEST = BuildRequest(name="t__0__0__20260101T0000Z", table="t", schema=SCHEMA)
Batches = list[tuple[dict[str, list[Any]], list[int]]]


POOLS: dict[TypeName, list[Any]] = {
    TypeName.INT: [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    TypeName.LONG: [0, 1, 2, 9, 2**63 - 1, -(2**63)],
    TypeName.FLOAT: [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf],
    TypeName.DOUBLE: [0.0, -0.0, 0.1, math.nan, math.inf, -math.inf],
    TypeName.BIG_DECIMAL: ["0", "1.5", "-12345678901234567890.1", "99"],
    TypeName.BOOLEAN: [True, False],
    TypeName.TIMESTAMP: [0, 1_700_000_000_000, -1],
    TypeName.STRING: ["", "a", "b", "é", "a\0", "\U0001f377", "longer than a word of eight bytes"],
    TypeName.JSON: ["{}", "[1]", "null"],
    TypeName.BYTES: [b"", b"\x00", b"\xff\xfe", b"ab"],
}


def cell(field: FieldSpec, random: Random) -> Any:
    """A value of a field, now and then null."""
    pool = [*POOLS[field.type], None]
    if not field.multi_value:
        return random.choice(pool)
    return None if random.random() < 0.1 else random.choices(pool, k=random.choice((0, 1, 1, 3)))


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """Rows of every type with the stream's offsets, which have gaps, and of which one may have several rows."""
    found: Batches = []
    random = Random(draw(st.integers(0, 1 << 32)))
    offset = draw(st.integers(0, 5))
    for count in draw(st.lists(st.sampled_from([0, 1, 2, 9, 63, 64, 70]), min_size=1, max_size=4)):
        columns = {field.name: [cell(field, random) for _ in range(count)] for field in SCHEMA.fields}
        offsets = []
        for step in random.choices([0, 1, 1, 1, 7], k=count):
            offset += step
            offsets.append(offset)
        found.append((columns, offsets))
        offset += 1
    return found


def filled(batches: Batches, request: BuildRequest = REQUEST) -> ConsumingSegment:
    segment = ConsumingSegment(request, 0)
    for columns, offsets in batches:
        next_offset = offsets[-1] + 1 if offsets else segment.next_offset
        segment.append(table_of(SCHEMA, columns), np.array(offsets, np.int64), next_offset)
    return segment


def everything(batches: Batches) -> tuple[dict[str, list[Any]], list[int]]:
    columns = {field.name: [cell for part, _ in batches for cell in part[field.name]] for field in SCHEMA.fields}
    return columns, [offset for _, offsets in batches for offset in offsets]


def check_rows(segment: Segment, columns: dict[str, list[Any]]) -> None:
    for field in SCHEMA.fields:
        wanted = columns[field.name]
        assert segment.num_docs == len(wanted)
        assert same(read_column(segment, field), [expected(field, cell) for cell in wanted]), field.name
        column = segment.column(field.name)
        assert column is not None
        is_null = np.array([cell is None for cell in wanted], np.bool_)
        assert (column.nulls is None) != is_null.any(), field.name
        if column.nulls is not None:
            assert column.nulls.tolist() == words_of(is_null).tolist(), field.name


@settings(max_examples=examples(60))
@given(batches())
def test_rows_read_back_as_they_came(some: Batches) -> None:
    columns, offsets = everything(some)
    segment = filled(some)
    check_rows(segment.snapshot(), columns)
    assert [segment.offset_of(doc) for doc in range(segment.num_docs)] == offsets
    for offset in range(max(offsets, default=0) + 2):
        assert segment.docs_before(offset) == sum(one < offset for one in offsets)


@settings(max_examples=examples(40))
@given(batches(), st.data())
def test_a_snapshot_stays_as_it_was(some: Batches, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(some)))
    segment = filled(some[:first])
    snapshot = segment.snapshot()
    early = {field.name: snapshot.column(field.name) for field in SCHEMA.fields[::2]}
    held = {name: column.nulls for name, column in early.items() if column is not None}
    before = {name: None if words is None else words.copy() for name, words in held.items()}
    for columns, offsets in some[first:]:
        segment.append(
            table_of(SCHEMA, columns), np.array(offsets, np.int64), offsets[-1] + 1 if offsets else segment.next_offset
        )
    columns, _ = everything(some[:first])
    check_rows(snapshot, columns)
    for name, column in early.items():
        assert column is not None
        assert held[name] is None or np.array_equal(held[name], before[name]), name
        assert read_nulls(column) == [cell is None for cell in columns[name]], name


@settings(max_examples=25)
@given(batches(), st.data())
def test_a_segment_splits_at_an_offset(some: Batches, data: st.DataObject) -> None:
    columns, offsets = everything(some)
    segment = filled(some)
    end = data.draw(st.integers(0, max(offsets, default=0) + 2))
    tail = segment.split(end, REQUEST)
    check_rows(tail.snapshot(), {name: cells[segment.docs_before(end) :] for name, cells in columns.items()})
    assert tail.start_offset == end
    assert tail.next_offset == max(end, segment.next_offset)
    assert [tail.offset_of(doc) for doc in range(tail.num_docs)] == offsets[segment.docs_before(end) :]
    check_rows(segment.snapshot(), columns)


@settings(max_examples=25)
@given(batches(), st.data())
def test_sealing_writes_what_a_batch_of_the_rows_would(
    tmp_path_factory: pytest.TempPathFactory, some: Batches, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("sealed")
    indexing = IndexingSpec(sorted_columns=("int", "string"), inverted=("longs",), bloom=("long",))
    request = BuildRequest(name=REQUEST.name, table="t", schema=SCHEMA, indexing=indexing)
    columns, _ = everything(some)
    num_docs = data.draw(st.integers(0, len(columns["int"])))
    (folder / "batch").mkdir()
    sealed = filled(some, request).seal(folder, num_docs)
    wanted = build_segment(request, table_of(SCHEMA, columns).slice(0, num_docs), folder / "batch")
    assert sealed.metadata.key == wanted.metadata.key
    assert sealed.path.read_bytes() == wanted.path.read_bytes()


def numbered(start: int, stop: int) -> pa.Table:
    numbers = pa.array(range(start, stop), pa.int64())
    return pa.table({"id": numbers, "name": pa.array([f"n{number % 7}" for number in range(start, stop)])})


NUMBERED = TableSchema(
    fields=(FieldSpec(name="id", type=TypeName.LONG, role=FieldRole.DIMENSION), FieldSpec(name="name", type="STRING"))
)


def test_the_end_by_another_replicas_batches_makes_the_same_file(tmp_path: Path) -> None:
    modulo = PartitioningSpec(columns={"id": PartitionFunctionSpec(function_name="Modulo", num_partitions=1)})
    request = BuildRequest(
        name="t__0__0__x", table="t", schema=NUMBERED, indexing=IndexingSpec(sorted_columns=("name",)),
        partitioning=modulo,
    )  # fmt: skip
    one, other = ConsumingSegment(request, 0), ConsumingSegment(request, 0)
    for start in range(0, 100, 10):
        one.append(numbered(start, start + 10), np.arange(start, start + 10), start + 10)
    other.append(numbered(0, 77), np.arange(77), 77)
    other.append(numbered(77, 95), np.arange(77, 95), 95)
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    first, second = one.seal(folders[0], 90), other.seal(folders[1], 90)
    assert first.metadata.key == second.metadata.key
    assert first.metadata.columns["name"].min == "n0"
    assert first.metadata.columns["name"].max == "n6"
    assert first.metadata.partitions["id"].partitions == (0,)
    with ImmutableSegment.open(first.path) as segment:
        column = segment.column("id")
        assert column is not None
        assert read_column(segment, NUMBERED.fields[0]) == sorted(range(90), key=lambda number: number % 7)


def test_what_does_not_fit_leaves_the_segment_as_it_was() -> None:
    segment = ConsumingSegment(BuildRequest(name="t", table="t", schema=NUMBERED), 5)
    segment.append(numbered(0, 3), np.array([5, 6, 9]), 12)
    wrong = [
        (numbered(3, 5), np.array([12]), 14, "rows without offsets"),
        (numbered(3, 5), np.array([11, 12]), 14, "offsets go back"),
        (numbered(3, 5), np.array([13, 12]), 14, "offsets go back"),
        (numbered(3, 5), np.array([12, 13]), 13, "offsets go back"),
        (numbered(3, 5).select(["id"]), np.array([12, 13]), 14, "rows and schema differ"),
        (pa.table({"id": ["x"], "name": ["y"]}), np.array([12]), 13, "do not fit the schema"),
    ]
    for rows, offsets, next_offset, text in wrong:
        with pytest.raises(InvalidInputError, match=text):
            segment.append(rows, offsets, next_offset)
    assert (segment.num_docs, segment.next_offset) == (3, 12)
    segment.append(numbered(3, 4), np.array([12]), 20)
    assert read_column(segment.snapshot(), NUMBERED.fields[0]) == [0, 1, 2, 3]


def test_memory_grows_with_the_rows() -> None:
    segment = ConsumingSegment(BuildRequest(name="t", table="t", schema=NUMBERED), 0)
    empty = segment.memory_bytes
    segment.append(numbered(0, 10_000), np.arange(10_000), 10_000)
    first = segment.memory_bytes
    assert 8 * 10_000 < first - empty < 48 * 10_000
    segment.append(numbered(10_000, 20_000), np.arange(10_000, 20_000), 20_000)
    assert 8 * 10_000 < segment.memory_bytes - first < 48 * 10_000


def test_a_snapshot_may_be_of_the_first_rows_alone_and_keeps_its_name() -> None:
    segment = ConsumingSegment(BuildRequest(name="t__0__1__x", table="t", schema=NUMBERED), 0)
    segment.append(numbered(0, 30), np.arange(30), 30)
    first, every = segment.snapshot(20), segment.snapshot(40)
    segment.request = replace(segment.request, name="t__0__2__x")
    segment.append(numbered(30, 50), np.arange(30, 50), 50)
    assert (str(first.key), first.num_docs, read_column(first, NUMBERED.fields[0])) == (
        "t__0__1__x@0",
        20,
        [*range(20)],
    )
    assert every.num_docs == 30
    assert str(segment.snapshot().key) == "t__0__2__x@0"

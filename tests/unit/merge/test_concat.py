"""Concatenation keeps every row, of every type and schema, in buckets."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.support.indexes import every_index
from tests.time_formats import PERIODS
from tests.unit.merge.merge_tables import (
    DAY_MS,
    METRICS,
    TIMES,
    Inputs,
    built,
    merge,
    partitioned,
    plan_of,
    read_rows,
    schemas,
    segment_cells,
    tables,
    tokens,
    windows_of,
)

from merlot.errors import InvalidInputError
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName


@settings(max_examples=examples(30))
@given(data=st.data())
def test_every_row_comes_out_once_in_its_bucket(data: Any) -> None:
    schema = data.draw(schemas())
    sorted_columns = data.draw(st.sampled_from([(), ("at",), ("ints", "at")]))
    indexing = IndexingSpec(sorted_columns=sorted_columns)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        inputs: Inputs = data.draw(tables(directory, schema, indexing))
        windows = windows_of(inputs, data.draw(st.sampled_from(PERIODS)))
        most = data.draw(st.sampled_from([1, 3, 1000]))
        outputs = directory / "out"
        outputs.mkdir()
        plan = plan_of(schema, indexing=indexing, windows=windows, max_records_per_segment=most)
        found: Counter[Any] = Counter()
        for segment in merge(plan, inputs.paths, outputs):
            rows = read_rows(segment, schema)
            found.update(rows)
            metadata = segment.metadata
            assert 0 < len(rows) <= most
            assert metadata.start_time_ms is not None
            assert metadata.end_time_ms is not None
            assert any(start <= metadata.start_time_ms <= metadata.end_time_ms < end for start, end in windows)
            keys = [tuple(row[schema.names.index(name)] for name in sorted_columns) for row in rows]
            assert not sorted_columns or None in {cell for key in keys for cell in key} or keys == sorted(keys)
        assert found == tokens(schema, inputs.rows)
        assert sorted(path.name for path in outputs.iterdir()) == sorted(
            segment.path.name for segment in merge(plan, inputs.paths, outputs)
        )


SCHEMA = TableSchema(
    fields=(
        TIMES[0],
        FieldSpec(name="who", type=TypeName.STRING),
        FieldSpec(name="tags", type=TypeName.INT, multi_value=True),
        *METRICS,
    )
)


@settings(max_examples=20)
@given(cells=segment_cells(SCHEMA))
def test_a_merge_of_one_segment_is_a_fresh_build_of_its_rows(cells: Any) -> None:
    indexing = every_index(SCHEMA, ("doubles",), sorted_columns=("at",))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        fresh = built(directory, "in_0", SCHEMA, cells, indexing)
        for segment in merge(plan_of(SCHEMA, indexing=indexing), [fresh.path], directory):
            assert segment.metadata.crc == fresh.metadata.crc


def test_a_merge_of_many_segments_is_a_fresh_build_of_all_rows(tmp_path: Path) -> None:
    schema = TableSchema(
        fields=(
            TIMES[0],
            FieldSpec(name="name", type=TypeName.STRING),
            FieldSpec(name="number", type=TypeName.LONG),
            FieldSpec(name="amount", type=TypeName.DOUBLE, role=FieldRole.METRIC),
        )
    )
    count = 30_000
    rows: dict[str, list[Any]] = {
        "at": [place * 1000 for place in range(count)],
        "name": [f"n{place * 7 % 20_011}" for place in range(count)],
        "number": [place * 1_000_003 % 999_983 * 10**9 for place in range(count)],
        "amount": [place * 0.37 for place in range(count)],
    }
    indexing = IndexingSpec()
    parts = [
        built(
            tmp_path,
            f"in_{start}",
            schema,
            {name: cells[start : start + 4500] for name, cells in rows.items()},
            indexing,
        )
        for start in range(0, count, 4500)
    ]
    fresh = built(tmp_path, "fresh", schema, rows, indexing)
    (merged,) = merge(plan_of(schema), [part.path for part in parts], tmp_path)
    assert merged.metadata.crc == fresh.metadata.crc


def test_outputs_hold_one_partition_each_whether_or_not_inputs_do(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="who", type=TypeName.STRING)))
    partitioning = partitioned("who", 4)
    rows = {"at": [0, 1, 2, 3, 4, 5], "who": ["a", "b", "c", "d", "e", "a"]}
    only_a = {"at": [7, 8], "who": ["a", "a"]}
    indexing = IndexingSpec()
    first = built(tmp_path, "in_0", schema, rows, indexing, partitioning=partitioning)
    second = built(tmp_path, "in_1", schema, only_a, indexing, partitioning=partitioning)
    plan = plan_of(schema, partitioning=partitioning)
    outputs = merge(plan, [first.path, second.path], tmp_path)
    seen = [segment.metadata.partitions["who"].partitions for segment in outputs]
    assert all(len(partitions) == 1 for partitions in seen)
    assert len(set(seen)) == len(seen) == len(first.metadata.partitions["who"].partitions)
    assert sum(segment.metadata.num_docs for segment in outputs) == 8


def test_what_an_asserted_source_mixed_stays_in_one_segment(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="who", type=TypeName.STRING)))
    partitioning = partitioned("who", 4, "assert")
    mixed = {"at": [0, 1, 2], "who": ["a", "b", "c"]}
    paths = [
        built(tmp_path, "in_0", schema, mixed, IndexingSpec(), partitioning=partitioning).path,
        built(tmp_path, "in_1", schema, mixed, IndexingSpec(), partitioning=partitioning).path,
        built(tmp_path, "in_2", schema, {"at": [5], "who": ["a"]}, IndexingSpec(), partitioning=partitioning).path,
    ]
    outputs = merge(plan_of(schema, partitioning=partitioning), paths, tmp_path)
    assert sorted(segment.metadata.num_docs for segment in outputs) == [1, 6]


def test_rows_that_no_window_takes_are_not_lost(tmp_path: Path) -> None:
    cells = {"at": [-1, 0, DAY_MS], "who": ["a", "b", "c"]}
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="who", type=TypeName.STRING)))
    paths = [built(tmp_path, "in_0", schema, cells, IndexingSpec()).path]
    with pytest.raises(InvalidInputError, match=r"would be lost.*rows=2"):
        merge(plan_of(schema, windows=((0, DAY_MS),)), paths, tmp_path)
    (kept,) = merge(plan_of(schema, windows=((0, DAY_MS),), drops_outside=True), paths, tmp_path)
    assert read_rows(kept, schema)[0][1] == "b"
    assert kept.path.name == "merged_0_0_0.mseg"


def test_small_memory_gives_the_same_rows_in_smaller_segments(tmp_path: Path) -> None:
    count = 50_000
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="who", type=TypeName.STRING)))
    cells: dict[str, list[Any]] = {
        "at": [place % 977 for place in range(count)],
        "who": [f"w{place % 31}" for place in range(count)],
    }
    paths = [built(tmp_path, f"in_{number}", schema, cells, IndexingSpec()).path for number in range(3)]
    plan = plan_of(schema, indexing=IndexingSpec(sorted_columns=("who",)))
    (large,) = merge(plan, paths, tmp_path)
    expected = Counter(read_rows(large, schema))
    small = merge(plan, paths, tmp_path, memory_bytes=1 << 20)
    assert len(small) > 2
    assert sum((Counter(read_rows(segment, schema)) for segment in small), Counter()) == expected


def test_outputs_are_cut_evenly(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0],))
    paths = [built(tmp_path, f"in_{day}", schema, {"at": [day * DAY_MS] * 5}, IndexingSpec()).path for day in range(3)]
    outputs = merge(plan_of(schema, max_records_per_segment=6), paths, tmp_path)
    assert [segment.metadata.num_docs for segment in outputs] == [5, 5, 5]
    assert [segment.metadata.start_time_ms for segment in outputs] == [day * DAY_MS for day in range(3)]


def test_instants_that_no_format_reads_are_named(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[3],))
    paths = [built(tmp_path, "in_0", schema, {"at": ["1970010100", "soon"]}, IndexingSpec()).path]
    with pytest.raises(InvalidInputError, match="cannot merge by time column=at"):
        merge(plan_of(schema, windows=((0, DAY_MS),)), paths, tmp_path)


def test_a_merge_without_rows_has_no_outputs(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0],))
    path = built(tmp_path, "in_0", schema, {"at": []}, IndexingSpec()).path
    assert merge(plan_of(schema, windows=((0, DAY_MS),)), [path], tmp_path) == []
    with ImmutableSegment.open(path) as segment:
        assert segment.num_docs == 0

"""Whatever rows go in come out, in every encoding."""

import gc
import math
import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.segment.segment_tables import (
    all_fields,
    build,
    cells,
    expected,
    field_of,
    read_column,
    read_nulls,
    same,
    table_of,
)

from merlot.errors import InvalidInputError
from merlot.segment import buffers
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment, verify_file
from merlot.segment.index import inverted
from merlot.segment.inspect import describe, verify
from merlot.segment.metadata import ColumnEncoding, CreationFacts
from merlot.spec.indexing import Compression, Encoding, IndexingSpec, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=all_fields())
ENCODINGS = st.sampled_from(list(Encoding))


@given(data=st.data(), num_docs=st.integers(0, 40), encoding=ENCODINGS, compression=st.sampled_from(list(Compression)))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_type_reads_back_to_the_bit(
    tmp_path: Path, data: st.DataObject, num_docs: int, encoding: Encoding, compression: Compression
) -> None:
    columns = {
        field.name: data.draw(st.lists(cells(field), min_size=num_docs, max_size=num_docs)) for field in SCHEMA.fields
    }
    inverted = () if encoding is Encoding.RAW else SCHEMA.names
    indexing = IndexingSpec(
        encodings=dict.fromkeys(SCHEMA.names, encoding),
        compression=dict.fromkeys(SCHEMA.names, compression),
        inverted=inverted,
    )
    built = build(tmp_path, SCHEMA, table_of(SCHEMA, columns), indexing)
    with ImmutableSegment.open(built.path, verify=True) as segment:
        assert segment.metadata == built.metadata
        assert segment.num_docs == num_docs
        for field in SCHEMA.fields:
            column = segment.column(field.name)
            assert column is not None
            wanted = [expected(field, cell) for cell in columns[field.name]]
            read = read_column(segment, field)
            if field.type is TypeName.TIMESTAMP:
                wanted = [_millis(value) for value in wanted]
            assert all(map(same, read, wanted)), field.name
            assert read_nulls(column) == [cell is None for cell in columns[field.name]]
            if encoding is not Encoding.AUTO:
                assert column.metadata.encoding.has_dictionary == (encoding is Encoding.DICTIONARY)
            _check_inverted(column, wanted, field)


def _millis(value: object) -> object:
    return [_millis(each) for each in value] if isinstance(value, list) else value


def _check_inverted(column, wanted, field) -> None:  # type: ignore[no-untyped-def]
    index = column.index(inverted.INDEX)
    if index is None:
        return
    ids = column.dict_ids()
    doc_of = np.arange(column.num_docs)
    if field.multi_value:
        doc_of = np.repeat(doc_of, np.diff(column.offsets()))
    for dict_id in range(len(column.dictionary)):
        docs = np.unique(doc_of[ids == dict_id])
        assert index.doc_ids(dict_id).tolist() == docs.tolist()
        assert index.count(dict_id) == len(docs)


@pytest.mark.parametrize("cardinality", [1, 2, 255, 256, 257, 65_536, 65_537])
def test_dict_ids_have_the_smallest_width_that_holds_them(tmp_path: Path, cardinality: int) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"), field_of(TypeName.STRING, name="s")))
    numbers = np.arange(70_000, dtype=np.int32)[::-1] % cardinality * 10
    rows = pa.table({"n": numbers, "s": pa.array(numbers).cast(pa.string())})
    encodings = {"n": Encoding.DICTIONARY, "s": Encoding.DICTIONARY}
    built = build(tmp_path, schema, rows, IndexingSpec(encodings=encodings))
    docs = np.array([0, 17, 69_999], dtype=np.uint32)
    with ImmutableSegment.open(built.path) as segment:
        for name in ("n", "s"):
            column = segment.column(name)
            assert column is not None
            assert column.dictionary is not None
            taken = column.take_dict_ids(docs)
            ids = column.dict_ids()
            assert ids.dtype.itemsize == (1 if cardinality <= 256 else 2 if cardinality <= 65_536 else 4)
            assert not ids.flags.writeable
            assert len(column.dictionary) == cardinality
            assert taken.tolist() == ids[docs].tolist() == column.take_dict_ids(docs).tolist()
            values = column.dictionary.arrow().take(pa.array(ids)).cast(pa.int32())
            assert values.equals(pa.array(numbers))


def test_raw_numbers_pack_to_their_range_and_can_be_taken(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    columns = {
        "narrow": random.integers(-500_000, 500_000, 50_000).astype(np.int32),
        "wide": random.integers(-(2**63), 2**63 - 1, 50_000),
        "real": random.random(50_000),
    }
    schema = TableSchema(
        fields=(
            FieldSpec(name="narrow", type=TypeName.INT, role=FieldRole.METRIC),
            FieldSpec(name="wide", type=TypeName.LONG, role=FieldRole.METRIC),
            FieldSpec(name="real", type=TypeName.DOUBLE, role=FieldRole.METRIC),
        )
    )
    indexing = IndexingSpec(no_dictionary=tuple(columns))
    docs = np.array([5, 6, 49_999], dtype=np.uint32)
    with ImmutableSegment.open(build(tmp_path, schema, pa.table(columns), indexing).path) as segment:
        encodings = {name: column.encoding for name, column in segment.metadata.columns.items()}
        assert encodings == {
            "narrow": ColumnEncoding.RAW_PACKED,
            "wide": ColumnEncoding.RAW_FIXED,
            "real": ColumnEncoding.RAW_FIXED,
        }
        for name, values in columns.items():
            column = segment.column(name)
            assert column is not None
            assert column.take_values(docs).tolist() == values[docs].tolist()
            assert np.array_equal(column.values(), values)
            assert column.take_values(docs).tolist() == values[docs].tolist()
            assert column.zones is not None
            assert column.zones.max.tolist() == [
                values[start : start + 16_384].max() for start in range(0, 50_000, 16_384)
            ]


def test_a_sorted_column_is_runs(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.STRING, name="day"), field_of(TypeName.INT, name="n")))
    rows = pa.table({"day": ["b", "a", "c", "a", "b"] * 100, "n": pa.array(range(500), pa.int32())})
    built = build(tmp_path, schema, rows, IndexingSpec(sorted_columns=("day",)))
    with ImmutableSegment.open(built.path) as segment:
        day, number = segment.column("day"), segment.column("n")
        assert day is not None
        assert number is not None
        assert day.metadata.encoding is ColumnEncoding.DICTIONARY_RUNS
        assert day.metadata.is_sorted
        assert day.runs is not None
        assert day.runs.tolist() == [0, 200, 400, 500]
        assert np.array_equal(day.dict_ids(), np.repeat([0, 1, 2], [200, 200, 100]))
        assert segment.metadata.sort_order == ("day",)
        assert read_column(segment, schema.fields[1])[:4] == [1, 3, 6, 8]


def test_rows_are_sorted_by_several_columns_and_equal_ones_keep_their_order(tmp_path: Path) -> None:
    schema = TableSchema(fields=tuple(field_of(TypeName.INT, name=name) for name in "abc"))
    random = np.random.default_rng(5)
    columns = {"a": random.integers(0, 3, 300), "b": random.integers(0, 3, 300), "c": np.arange(300)}
    rows = pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})
    built = build(tmp_path, schema, rows, IndexingSpec(sorted_columns=("b", "a")))
    order = np.lexsort([columns["a"], columns["b"]])
    with ImmutableSegment.open(built.path) as segment:
        for field in schema.fields:
            assert read_column(segment, field) == columns[field.name][order].tolist()


def test_a_column_of_nulls_is_one_default_and_a_bitmap(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.STRING, name="s"), field_of(TypeName.DOUBLE, name="d")))
    rows = table_of(schema, {"s": [None] * 70, "d": [None] * 70})
    with ImmutableSegment.open(build(tmp_path, schema, rows).path) as segment:
        for name, default in (("s", "null"), ("d", -math.inf)):
            column = segment.column(name)
            assert column is not None
            assert column.metadata.num_nulls == 70
            assert column.dictionary is not None
            assert column.dictionary.arrow().to_pylist() == [default]
            assert read_nulls(column) == [True] * 70
            assert column.zones is not None
            assert column.zones.num_nulls.tolist() == [70]


def test_zones_bound_every_block(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"), field_of(TypeName.FLOAT, name="f")))
    numbers = np.arange(40_000, dtype=np.int32) // 7 * 3
    reals = np.random.default_rng(1).random(40_000).astype(np.float32)
    reals[20_000] = np.nan
    is_null = np.arange(40_000) % 10_000 == 0
    rows = pa.table({"n": pa.array(numbers, mask=is_null), "f": reals})
    built = build(tmp_path, schema, rows, IndexingSpec(no_dictionary=("f",)))
    with ImmutableSegment.open(built.path) as segment:
        number, real = segment.column("n"), segment.column("f")
        assert number is not None
        assert real is not None
        assert number.zones is not None
        assert number.zones.num_nulls.tolist() == [2, 2, 0]
        ids = number.dict_ids()
        assert number.zones.max.tolist() == [ids[:16_384].max(), ids[16_384:32_768].max(), ids[32_768:].max()]
        assert number.zones.min.dtype == ids.dtype
        assert real.zones is not None
        assert np.isnan(real.zones.max[1])
        assert real.zones.min[1] == np.nanmin(reals[16_384:32_768])
        assert real.metadata.max == "NaN"


def test_equal_rows_have_an_equal_crc_whoever_builds_them(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"),))
    rows = table_of(schema, {"n": [1, None, 3]})
    first = build(tmp_path, schema, rows, creation=CreationFacts(host="a", time_ms=1))
    again = build(tmp_path, schema, rows.slice(0), creation=CreationFacts(host="b" * 90, time_ms=2**60))
    other = build(tmp_path, schema, table_of(schema, {"n": [1, None, 4]}))
    assert first.metadata.crc == again.metadata.crc != other.metadata.crc
    assert first.size_bytes == again.size_bytes
    assert again.metadata.creation.host == "b" * 90
    assert str(again.metadata.key) == f"t_0@{again.metadata.crc}"


@pytest.mark.parametrize("no_dictionary", [(), ("x",)])
def test_every_nan_is_one_and_zeros_are_two_in_what_the_crc_names(
    no_dictionary: tuple[str, ...], tmp_path: Path
) -> None:
    schema = TableSchema(fields=(FieldSpec(name="x", type=TypeName.DOUBLE),))
    request = BuildRequest(name="a", table="t", schema=schema, indexing=IndexingSpec(no_dictionary=no_dictionary))
    plain, payload = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0005], np.uint64).view(np.float64)

    def crc_of(*values: float) -> int:
        return build_segment(request, pa.table({"x": np.array(values)}), tmp_path).metadata.crc

    assert crc_of(plain, 0.0, 1.5) == crc_of(payload, 0.0, 1.5)
    assert crc_of(plain, 0.0, 1.5) != crc_of(plain, -0.0, 1.5)


def test_compression_is_part_of_what_the_crc_names(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.LONG, name="n"),))
    rows = table_of(schema, {"n": [number // 1000 for number in range(100_000)]})
    plain, small = (
        build(tmp_path, schema, rows, IndexingSpec(no_dictionary=("n",), compression={"n": codec}))
        for codec in (Compression.NONE, Compression.ZSTD)
    )
    assert plain.metadata.crc != small.metadata.crc
    assert small.metadata.columns["n"].compression == "ZSTD"
    assert small.size_bytes < plain.size_bytes / 5
    verify_file(small.path)


def test_the_footer_says_which_instants_and_partitions_the_rows_cover(tmp_path: Path) -> None:
    schema = TableSchema(
        fields=(
            FieldSpec(name="day", type=TypeName.STRING, role=FieldRole.DATE_TIME, format="SIMPLE_DATE_FORMAT|MMddyyyy"),
            field_of(TypeName.INT, name="user"),
        )
    )
    rows = table_of(schema, {"day": ["01022014", "12312013"], "user": [0, 2]})
    murmur = PartitionFunctionSpec(function_name="Murmur", num_partitions=4)
    built = build(tmp_path, schema, rows, time_column="day", partitioning=PartitioningSpec(columns={"user": murmur}))
    metadata = built.metadata
    assert (metadata.start_time, metadata.end_time) == ("12312013", "01022014")
    assert (metadata.start_time_ms, metadata.end_time_ms) == (1_388_448_000_000, 1_388_620_800_000)
    assert metadata.partitions["user"].partitions == (0,)
    assert metadata.partitions["user"].num_partitions == 4


def test_a_time_that_is_no_instant_leaves_the_range_open(tmp_path: Path) -> None:
    field = FieldSpec(name="day", type=TypeName.STRING, role=FieldRole.DATE_TIME, format="SIMPLE_DATE_FORMAT|yyyyMMdd")
    schema = TableSchema(fields=(field,))
    built = build(tmp_path, schema, table_of(schema, {"day": ["20130101", None]}), time_column="day")
    assert built.metadata.start_time_ms is None
    assert built.metadata.end_time_ms is None


def test_arrays_outlive_their_segment(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.DOUBLE, name="d"), field_of(TypeName.INT, name="n")))
    rows = pa.table({"d": np.random.default_rng(0).random(10_000), "n": pa.array(range(10_000), pa.int32())})
    built = build(tmp_path, schema, rows, IndexingSpec(no_dictionary=("d", "n")))
    segment = ImmutableSegment.open(built.path)
    real, number = segment.column("d"), segment.column("n")
    assert real is not None
    assert number is not None
    mapped, decoded = real.values(), number.values()
    before = buffers.DECODE_CACHE.stats()["entries"]
    segment.close()
    built.path.unlink()
    assert buffers.DECODE_CACHE.stats()["entries"] == before - 1
    assert mapped.sum() == rows["d"].to_numpy().sum()
    assert decoded.sum() == 10_000 * 9_999 // 2


def test_rows_that_do_not_fit_are_refused_with_their_column(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"),))
    with pytest.raises(InvalidInputError, match="column=n"):
        build(tmp_path, schema, pa.table({"n": ["x"]}))
    with pytest.raises(InvalidInputError, match="column=n"):
        build(tmp_path, schema, pa.table({"n": pa.array([2**40])}))
    with pytest.raises(InvalidInputError, match="columns=m,n"):
        build(tmp_path, schema, pa.table({"m": pa.array([1], pa.int32())}))
    request = BuildRequest(name="a/b", table="t", schema=schema)
    with pytest.raises(InvalidInputError, match="a/b"):
        build_segment(request, table_of(schema, {"n": [1]}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_accounts_for_every_byte(tmp_path: Path) -> None:
    rows = {field.name: [None, None, None] for field in SCHEMA.fields}
    built = build(tmp_path, SCHEMA, table_of(SCHEMA, rows), IndexingSpec(inverted=("string",)))
    report = describe(built.path)
    assert sum(report.bytes_by_index.values()) == report.size_bytes == built.path.stat().st_size
    assert report.bytes_by_index["padding"] >= 0
    assert [column.name for column in report.columns] == list(SCHEMA.names)
    assert report.to_json()["crc"] == built.metadata.crc
    assert verify(built.path) == []


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.LZ4])
def test_a_lookup_in_a_compressed_column_expands_only_its_chunks(tmp_path: Path, codec: Compression) -> None:
    numbers = np.arange(300_000) // 3 * 1.5
    schema = TableSchema(fields=(field_of(TypeName.DOUBLE, name="d"),))
    indexing = IndexingSpec(no_dictionary=("d",), compression={"d": codec})
    with ImmutableSegment.open(build(tmp_path, schema, pa.table({"d": numbers}), indexing).path) as segment:
        column = segment.column("d")
        assert column is not None
        entries = buffers.DECODE_CACHE.stats()["entries"]
        near = np.array([7, 5, 7, 31_000], dtype=np.uint32)
        assert np.array_equal(column.take_values(near), numbers[near])
        assert buffers.DECODE_CACHE.stats()["entries"] == entries
        far = np.arange(0, 300_000, 1000, dtype=np.uint32)
        assert np.array_equal(column.take_values(far), numbers[far])
        assert buffers.DECODE_CACHE.stats()["entries"] == entries + 1
        assert np.array_equal(column.take_values(near), numbers[near])


def test_threads_that_read_at_once_see_equal_columns(tmp_path: Path) -> None:
    schema = TableSchema(
        fields=(field_of(TypeName.INT, name="n"), field_of(TypeName.STRING, name="s", multi_value=True))
    )
    rows = table_of(schema, {"n": [i % 700 for i in range(20_000)], "s": [["a", str(i % 9)] for i in range(20_000)]})
    built = build(tmp_path, schema, rows, IndexingSpec(inverted=("n",)))

    def read(_: int) -> tuple[int, int, list[int]]:
        number, many = segment.column("n"), segment.column("s")
        assert number is not None
        assert many is not None
        index = number.index(inverted.INDEX)
        assert index is not None
        return int(number.dict_ids().sum()), int(many.offsets()[-1]), index.doc_ids(3).tolist()

    for _ in range(5):
        with ImmutableSegment.open(built.path) as segment, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(read, range(16)))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][:2] == (sum(i % 700 for i in range(20_000)), 40_000)


@pytest.mark.parametrize(
    ("type_name", "given_array", "stored"),
    [
        (TypeName.STRING, pa.array(["a", None, "a"]).dictionary_encode(), ["a", "null", "a"]),
        (TypeName.STRING, pa.array(["b", "a"], pa.large_string()), ["b", "a"]),
        (TypeName.BIG_DECIMAL, pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)), ["1.5", "0"]),
        (TypeName.TIMESTAMP, pa.array([5, -5], pa.int64()), [5, -5]),
        (TypeName.TIMESTAMP, pa.array([5_000, -5_000], pa.timestamp("us", "UTC")), [5, -5]),
        (TypeName.LONG, pa.array([1, 2], pa.int8()), [1, 2]),
        (TypeName.INT, pa.nulls(2), [-(2**31)] * 2),
    ],
)
def test_arrow_types_that_cast_without_loss_are_taken(
    tmp_path: Path, type_name: TypeName, given_array: pa.Array, stored: list[object]
) -> None:
    schema = TableSchema(fields=(field_of(type_name, name="c"),))
    with ImmutableSegment.open(build(tmp_path, schema, pa.table({"c": given_array})).path) as segment:
        assert read_column(segment, schema.fields[0]) == stored


def test_a_column_of_lists_that_are_all_null_has_one_default_each(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="c", multi_value=True),))
    with ImmutableSegment.open(build(tmp_path, schema, pa.table({"c": pa.nulls(2)})).path) as segment:
        assert read_column(segment, schema.fields[0]) == [[-(2**31)], [-(2**31)]]


def test_open_segments_hold_no_descriptors_and_closed_ones_no_memory(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.DOUBLE, name="d"),))
    rows = pa.table({"d": np.random.default_rng(0).random(1000)})
    path = build(tmp_path, schema, rows, IndexingSpec(no_dictionary=("d",))).path
    descriptors = len(os.listdir("/proc/self/fd"))
    segments = [ImmutableSegment.open(path) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == descriptors
    column = segments[0].column("d")
    assert column is not None
    column.prefetch()
    kept = column.values()[10:20]
    for segment in segments:
        segment.close()
    del segment, segments, column
    gc.collect()
    assert _mappings_of(path) == 1
    assert kept.tolist() == rows["d"].to_pylist()[10:20]
    del kept
    gc.collect()
    assert _mappings_of(path) == 0


def _mappings_of(path: Path) -> int:
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())

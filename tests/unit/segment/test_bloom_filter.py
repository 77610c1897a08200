"""A Bloom filter never denies a value that is there, and denies most of those that are not."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.segment.segment_tables import all_fields, build, cells, field_of, table_of

from merlot.catalog.publish import record_of
from merlot.errors import CorruptionError
from merlot.query.pruning.blooms import ColumnBlooms, SegmentBloom
from merlot.query.pruning.verdicts import NONE, SOME
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import bloom
from merlot.segment.inspect import describe
from merlot.spec.indexing import Encoding, IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=all_fields())


def denies(stored: TypeName, words: np.ndarray[Any, Any], *values: Any) -> bool:
    return bool(ColumnBlooms.of([SegmentBloom(stored, words)]).holding(values)[0] == NONE)


def constant_of(type_name: TypeName, value: Any) -> Any:
    return Decimal(value) if type_name is TypeName.BIG_DECIMAL else value


@given(data=st.data(), num_docs=st.integers(0, 20), encoding=st.sampled_from(list(Encoding)))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_stored_value_is_denied_whatever_the_type_and_encoding(
    tmp_path: Path, data: st.DataObject, num_docs: int, encoding: Encoding
) -> None:
    columns = {
        field.name: data.draw(st.lists(cells(field), min_size=num_docs, max_size=num_docs)) for field in SCHEMA.fields
    }
    indexing = IndexingSpec(encodings=dict.fromkeys(SCHEMA.names, encoding), bloom=SCHEMA.names)
    built = build(tmp_path, SCHEMA, table_of(SCHEMA, columns), indexing)
    with ImmutableSegment.open(built.path, verify=True) as segment:
        for field in SCHEMA.fields:
            reader = segment.column(field.name)
            assert reader is not None
            words = reader.index(bloom.INDEX)
            assert words is not None
            cells_of = [
                value for cell in columns[field.name] for value in (cell if field.multi_value and cell else [cell])
            ]
            for value in (one for one in cells_of if one is not None and one != []):
                assert not denies(field.type, words, constant_of(field.type, value)), (field, value)


@pytest.mark.parametrize("fpp", [0.1, 0.01, 0.001])
def test_few_absent_values_pass(fpp: float) -> None:
    words = bloom.write(TypeName.LONG, np.arange(5000), fpp)[bloom.WORDS]
    passed = sum(not denies(TypeName.LONG, words, value) for value in range(10_000, 15_000))
    assert passed / 5_000 < 1.5 * fpp + 0.001


def test_a_filter_takes_about_ten_bits_a_value() -> None:
    words = bloom.write(TypeName.STRING, pa.array([f"user {number}" for number in range(10_000)]), 0.01)[bloom.WORDS]
    assert 9.5 < words.nbytes * 8 / 10_000 < 10.5


@pytest.mark.parametrize(
    ("stored", "values", "constant"),
    [
        (TypeName.INT, [5], 5.0),
        (TypeName.INT, [5], Decimal(5)),
        (TypeName.LONG, [-1], Decimal("-1.00")),
        (TypeName.FLOAT, [0.1], 0.1),
        (TypeName.FLOAT, [0.1], float(np.float32(0.1))),
        (TypeName.DOUBLE, [-0.0], 0.0),
        (TypeName.DOUBLE, [0.0], 0),
        (TypeName.BOOLEAN, [1], True),
    ],
)
def test_equal_constants_of_other_kinds_are_found(stored: TypeName, values: list[Any], constant: Any) -> None:
    dtype = {
        TypeName.INT: np.int32,
        TypeName.FLOAT: np.float32,
        TypeName.DOUBLE: np.float64,
        TypeName.BOOLEAN: np.int32,
    }
    words = bloom.write(stored, np.array(values, dtype.get(stored, np.int64)), 0.01)[bloom.WORDS]
    assert not denies(stored, words, constant)


@pytest.mark.parametrize(
    ("stored", "constant"),
    [
        (TypeName.INT, "5"),
        (TypeName.INT, None),
        (TypeName.INT, 5.5),
        (TypeName.LONG, math.inf),
        (TypeName.LONG, 1 << 70),
        (TypeName.DOUBLE, math.nan),
        (TypeName.DOUBLE, (1 << 53) + 1),
        (TypeName.STRING, 5),
        (TypeName.STRING, "\ud800"),
        (TypeName.BYTES, "ab"),
        (TypeName.BIG_DECIMAL, Decimal("NaN")),
    ],
)
def test_of_what_cannot_be_compared_nothing_is_said(stored: TypeName, constant: Any) -> None:
    empty = np.zeros(8, np.uint32)
    assert not denies(stored, empty, constant)


def test_filters_of_all_segments_are_asked_at_once() -> None:
    known = [
        None
        if number % 5 == 0
        else SegmentBloom(TypeName.LONG, _words(range(number * 100, number * 100 + 50 + number)))
        for number in range(40)
    ]
    known[7] = SegmentBloom(TypeName.STRING, bloom.write(TypeName.STRING, pa.array(["710"]), 0.001)[bloom.WORDS])
    blooms = ColumnBlooms.of(known)
    verdicts = blooms.holding([1210, 1810])
    for number, one in enumerate(known):
        alone = ColumnBlooms.of([one]).holding([1210, 1810])[0]
        assert verdicts[number] == alone
    assert {12, 18, 7, 0, 5} <= set(np.flatnonzero(verdicts == SOME).tolist())
    assert (blooms.num_known, int((verdicts == NONE).sum()) > 20) == (32, True)


def _words(values: range) -> np.ndarray[Any, Any]:
    return bloom.write(TypeName.LONG, np.array(values), 0.001)[bloom.WORDS]


def test_a_small_filter_travels_in_the_record_and_a_large_one_does_not(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.LONG, name="a"), field_of(TypeName.STRING, name="b")))
    rows = table_of(schema, {"a": [number % 100 for number in range(9000)], "b": [str(one) for one in range(9000)]})
    built = build(tmp_path, schema, rows, IndexingSpec(bloom=("a", "b")))
    record = record_of(built.metadata, "x", built.size_bytes, built.blooms)
    assert set(record.blooms) == {"a"}
    with ImmutableSegment.open(built.path) as segment:
        reader = segment.column("a")
        assert reader is not None
        words = reader.index(bloom.INDEX)
        assert words is not None
        assert bloom.from_text(record.blooms["a"]).tolist() == words.tolist()
    report = describe(built.path)
    assert report.bytes_by_index["bloom"] > bloom.MAX_RECORD_BYTES


@pytest.mark.parametrize("damage", ["", "?", "AAAA", "AAAAAAAAAAA=", "flip", "cut"])
def test_a_damaged_text_is_refused(damage: str) -> None:
    text = bloom.to_text(_words(range(10)))
    odd = {"flip": text[:20] + ("B" if text[20] != "B" else "C") + text[21:], "cut": text[:-8]}.get(damage, damage)
    with pytest.raises(CorruptionError):
        bloom.from_text(odd)


def test_a_segment_without_filters_is_as_it_was(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.LONG, name="a"),))
    rows = table_of(schema, {"a": [1, 2, 3]})
    plain, with_filter = build(tmp_path, schema, rows), build(tmp_path, schema, rows, IndexingSpec(bloom=("a",)))
    assert "bloom.words" not in plain.metadata.columns["a"].buffers
    assert plain.blooms == {}
    assert plain.metadata.crc != with_filter.metadata.crc

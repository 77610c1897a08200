"""Encodings follow from statistics and from what the table asks for."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.segment.segment_tables import build, field_of

from merlot.segment.build.encoding import ColumnStatistics, choose
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import inverted
from merlot.segment.index.inverted import PLAIN_DOCS
from merlot.segment.metadata import ColumnEncoding
from merlot.spec.indexing import Encoding, IndexingSpec
from merlot.spec.schema import FieldRole, TableSchema
from merlot.values.number_text import java_text
from merlot.values.types import TypeName


def statistics_of(**changes: object) -> ColumnStatistics:
    known = {
        "role": FieldRole.DIMENSION,
        "num_values": 100_000,
        "cardinality": 1000,
        "raw_bytes": 400_000,
        "dictionary_bytes": 4000,
        "is_fixed_width": True,
        "is_sorted": False,
        "integer_width": 20,
    }
    return ColumnStatistics(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ColumnEncoding.DICTIONARY_PACKED),
        ({"cardinality": 200}, ColumnEncoding.DICTIONARY_ALIGNED),
        ({"cardinality": 60_000, "dictionary_bytes": 240_000}, ColumnEncoding.DICTIONARY_ALIGNED),
        ({"is_sorted": True}, ColumnEncoding.DICTIONARY_RUNS),
        ({"cardinality": 1, "dictionary_bytes": 4, "is_sorted": True}, ColumnEncoding.DICTIONARY_RUNS),
        ({"cardinality": 90_000, "dictionary_bytes": 360_000}, ColumnEncoding.RAW_PACKED),
        ({"cardinality": 90_000, "dictionary_bytes": 360_000, "integer_width": 31}, ColumnEncoding.RAW_FIXED),
        ({"cardinality": 90_000, "dictionary_bytes": 360_000, "integer_width": None}, ColumnEncoding.RAW_FIXED),
        ({"role": FieldRole.METRIC, "cardinality": 50_000, "dictionary_bytes": 200_000}, ColumnEncoding.RAW_PACKED),
        ({"is_fixed_width": False, "cardinality": 80_000, "integer_width": None}, ColumnEncoding.RAW_VARIABLE),
        ({"is_fixed_width": False, "integer_width": None}, ColumnEncoding.DICTIONARY_PACKED),
    ],
)
def test_statistics_decide(changes: dict[str, object], expected: ColumnEncoding) -> None:
    assert choose(statistics_of(**changes), Encoding.AUTO, needs_dictionary=False) is expected


def test_the_table_decides_over_statistics() -> None:
    assert choose(statistics_of(), Encoding.RAW, needs_dictionary=True) is ColumnEncoding.RAW_PACKED
    unique = statistics_of(cardinality=100_000, dictionary_bytes=400_000)
    assert choose(unique, Encoding.DICTIONARY, needs_dictionary=False).has_dictionary
    assert choose(unique, Encoding.AUTO, needs_dictionary=True).has_dictionary


@pytest.mark.parametrize("stretch", [1, 7, 5000], ids=["scattered", "short", "long"])
def test_an_inverted_index_lists_rare_and_frequent_values(tmp_path: Path, stretch: int) -> None:
    random = np.random.default_rng(4)
    numbers = np.repeat((random.zipf(1.3, 200_000 // stretch + 1) % 3000).astype(np.int32), stretch)[:200_000]
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"),))
    built = build(tmp_path, schema, pa.table({"n": numbers}), IndexingSpec(inverted=("n",)))
    with ImmutableSegment.open(built.path) as segment:
        column = segment.column("n")
        assert column is not None
        index = column.index(inverted.INDEX)
        assert index is not None
        ids, counts = column.dict_ids(), index.counts()
        assert counts.min() <= PLAIN_DOCS or stretch > 1
        assert np.array_equal(counts, np.bincount(ids))
        for dict_id in {0, 1, int(counts.argmin()), int(counts.argmax()), len(counts) - 1}:
            assert np.array_equal(index.doc_ids(dict_id), np.flatnonzero(ids == dict_id))
        several = [0, int(counts.argmin()), len(counts) - 1]
        assert np.array_equal(index.union(several), np.flatnonzero(np.isin(ids, several)))
        assert len(index.union([])) == 0
        for some in (range(len(counts)), range(len(counts) - 5, len(counts)), range(5)):
            within = (ids >= some.start) & (ids < some.stop)
            assert np.array_equal(index.union(some), np.flatnonzero(within))


@pytest.mark.parametrize(
    ("python", "java"),
    [
        ("0.0", "0.0"),
        ("-0.0", "-0.0"),
        ("1e-05", "1.0E-5"),
        ("0.001", "0.001"),
        ("9999999.0", "9999999.0"),
        ("10000000.0", "1.0E7"),
        ("1.25e+22", "1.25E22"),
        ("-123.5", "-123.5"),
        ("100.0", "100.0"),
        ("nan", "NaN"),
        ("-inf", "-Infinity"),
    ],
)
def test_floats_are_partitioned_by_the_text_that_java_gives_them(python: str, java: str) -> None:
    assert java_text(python) == java

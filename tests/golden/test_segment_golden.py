"""Files of every format version are read for ever, and the builder still writes the same content."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.golden.make_segment_golden import NUM_DOCS, build, cell, schema
from tests.unit.segment.segment_tables import expected, read_column, read_nulls, same

from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import inverted
from merlot.segment.inspect import verify
from merlot.segment.layout import FORMAT_VERSION
from merlot.segment.metadata import ColumnEncoding

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("golden_v*.mseg"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_reads_as_it_was_written(path: Path) -> None:
    assert verify(path) == []
    with ImmutableSegment.open(path) as segment:
        assert segment.num_docs == NUM_DOCS
        for field in schema().fields:
            column = segment.column(field.name)
            assert column is not None
            cells = [cell(field, doc) for doc in range(NUM_DOCS)]
            assert all(map(same, read_column(segment, field), (expected(field, value) for value in cells))), field.name
            assert read_nulls(column) == [value is None for value in cells]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_has_its_indexes(path: Path) -> None:
    with ImmutableSegment.open(path) as segment:
        day, one, many = (segment.column(name) for name in ("day", "one_string", "many_int"))
        assert day is not None
        assert one is not None
        assert many is not None
        assert day.metadata.encoding is ColumnEncoding.DICTIONARY_RUNS
        one_index, many_index = one.index(inverted.INDEX), many.index(inverted.INDEX)
        assert one_index is not None
        assert one.zones is not None
        assert len(one.zones.min) == 2
        for dict_id in range(one.metadata.cardinality or 0):
            assert np.array_equal(one_index.doc_ids(dict_id), np.flatnonzero(one.dict_ids() == dict_id))
        assert many.dictionary is not None
        assert many_index is not None
        flat = many.dictionary.arrow().take(pa.array(many.dict_ids())).to_numpy()
        holders = np.repeat(np.arange(NUM_DOCS), np.diff(many.offsets()))[flat == -1000]
        dict_id = many.dictionary.index_of(-1000)
        assert np.array_equal(many_index.doc_ids(dict_id), np.unique(holders))


def test_every_version_has_a_golden_file() -> None:
    assert [path.stem for path in FILES] == [f"golden_v{version}" for version in range(1, FORMAT_VERSION + 1)]
    assert all(path.stat().st_size < 100_000 for path in FILES)


def test_the_builder_writes_the_golden_content(tmp_path: Path) -> None:
    """Else replicas of two releases would disagree on equal rows: raise FORMAT_VERSION, or find out why."""
    with ImmutableSegment.open(FOLDER / f"golden_v{FORMAT_VERSION}.mseg") as golden:
        assert build(tmp_path).metadata == golden.metadata

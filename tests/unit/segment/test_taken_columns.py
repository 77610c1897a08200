"""Chosen docs of a column are what all docs of it say, sealed or consuming, whatever is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merlot.segment.arrow_types import arrow_type
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema

VALUES: dict[str, list[Any]] = {
    "INT": [5, None, -7, 5],
    "LONG": [1 << 40, None, -7, 5],
    "FLOAT": [0.5, None, -0.0, 5.0],
    "DOUBLE": [0.1, None, -0.0, 5.0],
    "BIG_DECIMAL": ["1.5", None, "-3", "12345678901234567890"],
    "BOOLEAN": [True, None, False, True],
    "TIMESTAMP": [1_700_000_000_000, None, 0, -5],
    "STRING": ["", None, "ä", "long" * 20],
    "JSON": ['{"a":1}', None, "[]", "3"],
    "BYTES": [b"", None, b"\x00", b"xy"],
}
FIELDS = [{"name": f"{kind}_one", "type": kind} for kind in VALUES] + [
    {"name": f"{kind}_many", "type": kind, "multiValue": True} for kind in VALUES if kind not in ("BIG_DECIMAL", "JSON")
]
SCHEMA = TableSchema.model_validate({"fields": FIELDS})


def rows() -> pa.Table:
    columns = {}
    for field in SCHEMA.fields:
        values = VALUES[field.type]
        lists = [values[:1], None, values[2:], [values[0], values[3], values[0]]]
        columns[field.name] = pa.array(lists if field.multi_value else values, arrow_type(field))
    return pa.table(columns)


@pytest.mark.parametrize("encoding", ["dictionary", "noDictionary"])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_chosen_docs_come_as_they_were_given(encoding: str, is_sealed: bool, tmp_path: Path) -> None:
    names = [] if encoding == "dictionary" else [field.name for field in SCHEMA.fields]
    indexing = IndexingSpec.model_validate({"noDictionary": names})
    consuming = ConsumingSegment(BuildRequest(name="s", table="t", schema=SCHEMA, indexing=indexing), 0)
    consuming.append(rows(), np.arange(4), 4)
    segment: Segment = consuming.snapshot()
    if is_sealed:
        segment = ImmutableSegment.open(consuming.seal(tmp_path, 4).path)
    for docs in ([], [0], [3, 1, 1, 0, 2], [1]):
        for field in SCHEMA.fields:
            found = taken_column(column_under(segment, field), np.array(docs, np.uint32))
            expected = rows().column(field.name).take(pa.array(docs, pa.int64()))
            assert found.cast(arrow_type(field)).equals(expected.combine_chunks()), field.name


def test_a_column_that_came_later_is_null() -> None:
    consuming = ConsumingSegment(BuildRequest(name="s", table="t", schema=SCHEMA), 0)
    consuming.append(rows(), np.arange(4), 4)
    for document in ({"name": "new", "type": "STRING"}, {"name": "new", "type": "INT", "multiValue": True}):
        reader = column_under(consuming.snapshot(), FieldSpec.model_validate(document))
        assert taken_column(reader, np.array([2, 0], np.uint32)).to_pylist() == [None, None]

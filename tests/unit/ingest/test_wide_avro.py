"""Avro schemas that say little and would be written out as much: records that use the one below them twice."""

import json
from typing import Any

import pyarrow as pa
import pytest

from merlot.ingest.decoders.avro_schema import read_schema
from merlot.ingest.decoders.protocol import Wanted


def twice(levels: int, *, bottom: object) -> dict[str, Any]:
    """A record that uses the one below it twice, as many levels deep: 2 ** levels parts when written out."""
    found: Any = bottom
    for level in range(levels):
        fields = [{"name": "left", "type": found}, {"name": "right", "type": f"r{level - 1}" if level else found}]
        found = {"type": "record", "name": f"r{level}", "fields": fields}
    return {"type": "record", "name": "top", "fields": [{"name": "a", "type": found}, {"name": "b", "type": "long"}]}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bottom", ["int", {"type": "record", "name": "none", "fields": []}])
@pytest.mark.parametrize("column", ["a", "b"])
def test_schema_of_records_used_twice_at_sixty_levels_is_read_at_once(bottom: object, column: str) -> None:
    schema = twice(60, bottom=bottom if isinstance(bottom, str) else "none")
    if not isinstance(bottom, str):
        schema["fields"].insert(0, {"name": "z", "type": bottom})
    found = read_schema(json.dumps(schema), Wanted(columns={column: False}, names=(column,)))
    assert found.program is None, "what cannot be written out is read by its shape"
    assert [field.arrow for field in found.fields] == [None if column == "a" else pa.int64()]


@pytest.mark.parametrize("levels", [1, 5, 10])
def test_schema_of_records_used_twice_a_few_times_is_written_out(levels: int) -> None:
    schema = json.dumps(twice(levels, bottom="int"))
    passed_over = read_schema(schema, Wanted(columns={"b": False}, names=("b",)))
    assert passed_over.program is not None
    assert len(passed_over.program) == 2**levels + 1
    (wanted,) = read_schema(schema, Wanted(columns={"a": False}, names=("a",))).fields
    assert wanted.arrow is not None

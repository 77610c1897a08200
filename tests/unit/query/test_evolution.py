"""Segments older than the schema: columns added and types widened since."""

from dataclasses import replace

import pyarrow as pa
import pytest

from merlot.spec.schema import TableSchema
from merlot.vectors.errors import UnsupportedQueryError

OLD = [{"name": "a", "type": "INT"}, {"name": "f", "type": "FLOAT", "role": "metric"}]
NEW = [
    {"name": "a", "type": "LONG"},
    {"name": "f", "type": "DOUBLE", "role": "metric"},
    {"name": "s", "type": "STRING", "defaultNullValue": "none"},
    {"name": "tags", "type": "STRING", "multiValue": True},
]


def evolved(make_table):
    old = make_table(OLD, [{"a": number, "f": number / 4} for number in range(100)])
    schema = TableSchema.model_validate({"fields": NEW})
    return replace(old, schema=schema, context=replace(old.context, schema=schema))


def test_an_added_column_holds_its_default_value(make_table):
    table = evolved(make_table)
    assert table.query("SELECT a, s, tags FROM t WHERE s = 'none' AND a = 7") == [[7, "none", ["null"]]]
    assert table.query("SELECT COUNT(*) FROM t WHERE s <> 'none'") == [[0]]
    assert table.query("SELECT s, COUNT(*) FROM t GROUP BY s") == [["none", 100]]
    assert table.query("SELECT tags, COUNT(*) FROM t WHERE tags = 'null' GROUP BY tags") == [["null", 100]]
    assert table.query("SELECT COUNT(*) FROM t WHERE s IS NULL") == [[100]]
    assert table.query("SELECT DISTINCTCOUNT(s), MAX(length(s)) FROM t") == [[1, 4.0]]


def test_a_widened_column_is_read_as_its_new_type(make_table):
    table = evolved(make_table)
    assert table.query("SELECT a + 9000000000 FROM t WHERE a >= 98 ORDER BY a") == [[9000000098], [9000000099]]
    assert table.query("SELECT SUM(a), SUM(f), MIN(f) FROM t WHERE a < 5000000000 AND f < 1") == [[6.0, 1.5, 0.0]]
    assert table.query("SELECT f, a FROM t ORDER BY f DESC LIMIT 1") == [[24.75, 99]]


@pytest.mark.parametrize(
    "declared", [{"type": "STRING", "multiValue": False}, {"type": "LONG", "multiValue": True}, {"type": "INT"}]
)
def test_a_segment_of_another_schema_is_an_error_and_not_read_as_what_it_is_not(make_table, declared):
    stored = (
        {"type": "STRING", "multiValue": True}
        if declared == {"type": "STRING", "multiValue": False}
        else {"type": "LONG"}
    )
    rows = [{"a": ["x"] * (number % 3) if "multiValue" in stored else number} for number in range(1000)]
    table = make_table([{"name": "a", **stored}], rows)
    schema = TableSchema.model_validate({"fields": [{"name": "a", **declared}]})
    table = replace(table, schema=schema, context=replace(table.context, schema=schema))
    for sql in (
        "SELECT a FROM t LIMIT 1000",
        "SELECT COUNT(*), a FROM t GROUP BY a",
        "SELECT COUNT(*) FROM t WHERE a = '1'",
    ):
        with pytest.raises(UnsupportedQueryError, match="cannot be read as its new type"):
            table.query(sql)


def test_virtual_columns_name_the_segment(make_table):
    table = evolved(make_table)
    assert table.query('SELECT "$segmentName", "$docId" FROM t WHERE a = 5') == [["t_0", 5]]
    assert table.query('SELECT a FROM t WHERE "$docId" > 97 ORDER BY a') == [[98], [99]]


def test_virtual_columns_tell_of_the_segments_version_and_rows(make_table):
    fields = [{"name": "a", "type": "INT", "role": "dimension"}]
    table = make_table(fields, *(pa.table({"a": pa.array(range(rows), pa.int32())}) for rows in (3, 5)))
    sizes = {segment.key.name: (segment.num_docs, segment.key.crc) for segment in table.segments}
    assert sorted(num_docs for num_docs, _ in sizes.values()) == [3, 5]
    found = table.query(
        "SELECT $segmentName, $totalDocs, $crc, COUNT(*) FROM t GROUP BY $segmentName, $totalDocs, $crc"
    )
    assert {name: (num_docs, crc) for name, num_docs, crc, _ in found} == sizes
    assert all(row[1] == row[3] for row in found)
    assert table.query("SELECT MIN($totalDocs), MAX($totalDocs), SUM($totalDocs) FROM t") == [[3.0, 5.0, 34.0]]
    crc = max(crc for _, crc in sizes.values())
    assert table.query(f"SELECT DISTINCT $crc FROM t WHERE $crc = {crc}") == [[crc]]

"""Files of random tables, read without Spark, hold for us what they hold for DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.contracts.ingestion.random_tables import ALL, Made, fields_of, read, tables, written
from tests.contracts.ingestion.readings import LocalReader

from merlot.spec.table import TableSpec


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(ALL).flatmap(tables))
def test_a_file_holds_for_us_what_it_holds_for_duckdb(made: Made) -> None:
    spec = TableSpec.model_validate({"schema": {"fields": fields_of(made.places)}})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made"
        expected = written(made, path)
        (reader := Path(folder) / "reader").mkdir()
        reading = LocalReader(reader).read({"f": path.read_bytes()}, {"format": made.file_format}, spec)
    assert reading.bad.by_reason == {}
    assert repr(read(made, reading.rows)) == repr(expected)

"""Every reader makes the same of every value, and what docs/ingestion.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.ingestion import page
from tests.contracts.ingestion.grid import BAD, REFUSED, Section, Source, cell_of
from tests.contracts.ingestion.matrix import SECTIONS
from tests.contracts.ingestion.readings import LocalReader, Reader

from merlot.errors import InvalidInputError
from merlot.spec.table import TableSpec

SOURCES = [(section, source) for section in SECTIONS for source in section.sources]
NAMES = [f"{section.title}-{source.format}-{source.name}" for section, source in SOURCES]
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(params=["local"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    assert request.param == "local"
    return LocalReader(tmp_path)


@pytest.mark.parametrize(("section", "source"), SOURCES, ids=NAMES)
def test_each_value_becomes_what_the_page_says(reader: Reader, section: Section, source: Source) -> None:
    found = [_column(reader, source, field) for field in section.declared.values()]
    rows = [tuple(column[row] for column in found) for row in range(len(source.rows))]
    assert dict(zip(source.rows, rows, strict=True)) == dict(zip(source.rows, source.cells(), strict=True))


def _column(reader: Reader, source: Source, field: Any) -> list[str]:
    fields = [{"name": "row", "type": "INT"}, {"name": "c", **field}]
    spec = TableSpec.model_validate({"schema": {"fields": fields}})
    try:
        reading = reader.read({"f": source.file(["c"])}, {"format": source.format}, spec)
    except InvalidInputError as error:
        outer = str(source.values.type).partition("<")[0]
        tells = "column=c" in str(error) and f"type={outer}" in str(error)
        return [REFUSED if tells else str(error)] * len(source.rows)
    values = reading.rows["c"].cast(pa.int64()) if field["type"] == "TIMESTAMP" else reading.rows["c"]
    good = dict(zip(reading.rows["row"].to_pylist(), values.to_pylist(), strict=True))
    # A row that is not stored has been counted, under a reason that names the column.
    assert reading.bad.count == len(source.rows) - len(good)
    assert all(reason.startswith("c: ") for reason in reading.bad.by_reason)
    cells = range(len(source.rows))
    return [cell_of(good[row], field["type"]).strip() if row in good else BAD for row in cells]


def test_the_page_is_what_the_matrix_says() -> None:
    assert page.main(["--check", str(DOCS)]) == 0

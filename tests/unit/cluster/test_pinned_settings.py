"""Settings that decide rows are read from the segment's record; what decides none of them is the table's."""

from pathlib import Path

import pytest
from tests.support.events import events_manifest

from merlot.cluster.consuming.pinned import pin, unpin
from merlot.errors import CorruptionError
from merlot.spec.table import TableSpec


def spec(flush_rows: int = 1000, folder: str = "/topic") -> TableSpec:
    return events_manifest(Path(folder), flush_rows=flush_rows).spec


def with_stream(base: TableSpec, **changes: object) -> TableSpec:
    assert base.ingestion.stream is not None
    stream = base.ingestion.stream.model_copy(update=changes)
    return base.model_copy(update={"ingestion": base.ingestion.model_copy(update={"stream": stream})})


def test_a_pinned_filter_holds_whatever_the_table_says_now() -> None:
    then = with_stream(spec(), filter="n > 1")
    now = spec(flush_rows=5)
    read = unpin(pin(then), now)
    assert read.ingestion.stream is not None
    assert read.ingestion.stream.filter == "n > 1"
    assert read.ingestion.stream.flush.rows == 5
    assert read.table_schema == then.table_schema


def test_what_decides_no_row_is_not_pinned() -> None:
    assert pin(spec(flush_rows=1)) == pin(spec(flush_rows=2))
    assert pin(with_stream(spec(), properties={"client.id": "x"})) == pin(spec())
    assert pin(with_stream(spec(), filter="n > 1")) != pin(spec())


def test_a_table_without_a_stream_pins_nothing() -> None:
    base = spec()
    assert pin(base.model_copy(update={"ingestion": base.ingestion.model_copy(update={"stream": None})})) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}'])
def test_a_text_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(CorruptionError):
        unpin(text, spec())

"""The OFFLINE and the REALTIME table of a table, as Pinot's clients name them. Pure."""

from __future__ import annotations

from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream
from merlot.ids import RawTableName, TableName, offline, realtime
from merlot.spec.table import TableSpec

OFFLINE: Final = "OFFLINE"
REALTIME: Final = "REALTIME"


def table_types(spec: TableSpec) -> tuple[str, ...]:
    """Return which of the two a table has: REALTIME with a stream, OFFLINE without one or with batches beside it."""
    ingestion = spec.ingestion
    if ingestion.stream is None:
        return (OFFLINE,)
    has_batches = bool(ingestion.batch) or ingestion.time_boundary is not None
    return (OFFLINE, REALTIME) if has_batches else (REALTIME,)


def typed_name(raw: RawTableName, half: str) -> TableName:
    """Return `flights_OFFLINE` or `flights_REALTIME`."""
    return offline(raw) if half == OFFLINE else realtime(raw)


def typed_names(raw: RawTableName, spec: TableSpec) -> list[TableName]:
    """Return `flights_OFFLINE`, `flights_REALTIME`, or both."""
    return [typed_name(raw, half) for half in table_types(spec)]


def table_type_of(record: SegmentRecord) -> str:
    """Return which of the two a segment belongs to: REALTIME if its rows came from a stream, also by a merge, else
    OFFLINE."""
    return REALTIME if is_of_stream(record) else OFFLINE

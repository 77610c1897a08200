"""A table as Pinot's clients see it: an OFFLINE half, a REALTIME half, or both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, RawTableName, TableName, offline, realtime
from merlot.spec.table import TableSpec

OFFLINE: Final = "OFFLINE"
REALTIME: Final = "REALTIME"

Json = dict[str, Any]


def halves(spec: TableSpec) -> tuple[str, ...]:
    """Which a table has: REALTIME with a stream, OFFLINE without one or with batches beside it."""
    ingestion = spec.ingestion
    if ingestion.stream is None:
        return (OFFLINE,)
    has_batches = bool(ingestion.batch) or ingestion.time_boundary is not None
    return (OFFLINE, REALTIME) if has_batches else (REALTIME,)


def typed_names(raw: RawTableName, spec: TableSpec) -> list[TableName]:
    """`flights_OFFLINE`, `flights_REALTIME`, or both."""
    return [offline(raw) if half == OFFLINE else realtime(raw) for half in halves(spec)]


def half_of(record: SegmentRecord) -> str:
    """Where a segment lies: what came of a stream is REALTIME."""
    return REALTIME if isinstance(record, StreamSegmentRecord) else OFFLINE


def names_by_half(view: TableView, spec: TableSpec, *, only_visible: bool) -> list[Json]:
    """`/segments/{t}`: an object per half, names sorted."""
    known = view.visible if only_visible else view.segments
    return [{half: sorted(name for name in known if half_of(known[name]) == half)} for half in _all_halves(view, spec)]


def ideal_state(view: TableView, spec: TableSpec) -> Json:
    """`/tables/{t}/idealstate`: what every server of a segment should have of it; null for a half that is not there."""
    wanted = {
        name: dict.fromkeys(view.servers_of(record.name), "CONSUMING" if record.is_open else "ONLINE")
        for name, record in view.segments.items()
    }
    return _by_half(view, spec, wanted)


def external_view(view: TableView, spec: TableSpec, told: Mapping[str, Mapping[InstanceId, str]]) -> Json:
    """`/tables/{t}/externalview`: what servers say that they have."""
    return _by_half(view, spec, told)


def segment_states(view: TableView, told: Mapping[str, Mapping[InstanceId, str]]) -> list[Json]:
    """`/tables/{t}/segmentsStatus`: GOOD if every server has it, BAD if none has."""
    return [
        {"segmentName": name, "segmentStatus": _status(view.servers_of(record.name), told.get(name, {}))}
        for name, record in sorted(view.segments.items())
    ]


def _status(servers: Iterable[InstanceId], told: Mapping[InstanceId, str]) -> str:
    states = [told.get(server) in ("ONLINE", "CONSUMING") for server in servers]
    if states and all(states):
        return "GOOD"
    return "PARTIAL" if any(states) else "BAD"


def _by_half(view: TableView, spec: TableSpec, states: Mapping[str, Mapping[InstanceId, str]]) -> Json:
    present = _all_halves(view, spec)
    answer: Json = {OFFLINE: None, REALTIME: None}
    for half in present:
        answer[half] = {
            name: dict(states.get(name, {})) for name in sorted(view.segments) if half_of(view.segments[name]) == half
        }
    return answer


def _all_halves(view: TableView, spec: TableSpec) -> list[str]:
    """Those of the manifest, and those that segments lie in."""
    found = {*halves(spec), *(half_of(record) for record in view.segments.values())}
    return sorted(found)

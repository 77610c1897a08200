"""What Pinot's clients are told of a table's segments, by the half that they lie in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merlot.cluster.segments.halves import OFFLINE, REALTIME, half_of, halves
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.spec.table import TableSpec

Json = dict[str, Any]


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

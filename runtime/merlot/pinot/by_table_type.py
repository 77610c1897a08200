"""Answers to Pinot's clients about a table's segments, by OFFLINE and REALTIME half. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merlot.cluster.segments.table_types import OFFLINE, REALTIME, table_type_of, table_types
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.spec.table import TableSpec

Json = dict[str, Any]


def names_by_table_type(view: TableView, spec: TableSpec, *, only_visible: bool) -> list[Json]:
    """Return the answer of `/segments/{t}`: an object per half, names sorted."""
    segments = view.visible if only_visible else view.segments
    return [
        {half: sorted(name for name in segments if table_type_of(segments[name]) == half)}
        for half in all_table_types(view, spec)
    ]


def ideal_state(view: TableView, spec: TableSpec) -> Json:
    """Return the answer of `/tables/{t}/idealstate`: the state that each server should have; null for a missing
    half."""
    wanted = {
        name: dict.fromkeys(view.servers_of(record.name), "CONSUMING" if record.is_open else "ONLINE")
        for name, record in view.segments.items()
    }
    return _by_table_type(view, spec, wanted)


def external_view(view: TableView, spec: TableSpec, states: Mapping[str, Mapping[InstanceId, str]]) -> Json:
    """Return the answer of `/tables/{t}/externalview`: the states that servers report."""
    return _by_table_type(view, spec, states)


def segment_states(view: TableView, states: Mapping[str, Mapping[InstanceId, str]]) -> list[Json]:
    """Return the answer of `/tables/{t}/segmentsStatus`: GOOD if every server has the segment, BAD if none has, else
    PARTIAL."""
    return [
        {"segmentName": name, "segmentStatus": _status(view.servers_of(record.name), states.get(name, {}))}
        for name, record in sorted(view.segments.items())
    ]


def _status(servers: Iterable[InstanceId], reported: Mapping[InstanceId, str]) -> str:
    states = [reported.get(server) in ("ONLINE", "CONSUMING") for server in servers]
    if states and all(states):
        return "GOOD"
    return "PARTIAL" if any(states) else "BAD"


def _by_table_type(view: TableView, spec: TableSpec, states: Mapping[str, Mapping[InstanceId, str]]) -> Json:
    present = all_table_types(view, spec)
    answer: Json = {OFFLINE: None, REALTIME: None}
    for half in present:
        answer[half] = {
            name: dict(states.get(name, {}))
            for name in sorted(view.segments)
            if table_type_of(view.segments[name]) == half
        }
    return answer


def all_table_types(view: TableView, spec: TableSpec) -> list[str]:
    """Return the halves of the manifest, and those that segments lie in."""
    return sorted({*table_types(spec), *(table_type_of(record) for record in view.segments.values())})

"""Replacing segments by others, in the eyes of every query at once: start, put the outputs, end; or revert.

The state of an entry is in the root of the table's segments, so that its end is one compare-and-set; what it replaces
by what is beside (`lineage_nodes`). Every call blocks, and repeating one that went through changes nothing.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from merlot.cluster import liveness
from merlot.cluster.changes import (
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PreconditionError,
    PutOutputs,
    RevertReplacement,
    StartReplacement,
)
from merlot.cluster.lineage_nodes import read_details
from merlot.cluster.metastore import Check, Metastore
from merlot.cluster.mutations import Context, Decide, mutate
from merlot.cluster.records import LineageMark, LineageRecord, LineageState, Role, SegmentRecord
from merlot.cluster.reports import ReportReader
from merlot.cluster.view import TableView, load
from merlot.errors import InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, TableName

T = TypeVar("T")

RECENT_TABLES = 4
"""Tables of which a session keeps the last view: reading 20,000 records anew takes 0.6 s of CPU."""
_RECENT: weakref.WeakKeyDictionary[Metastore, dict[TableName, TableView]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()

ENTRY_PATTERN = re.compile(r"[A-Za-z0-9_.:@-]{1,120}")
LOOK_S = 1.0
"""Longest time between two looks at what servers have loaded, whatever the watches say."""
ATTEMPTS = 20

TASK_LEASE = "merlot.taskLease"
"""Key of an entry's custom map: the lease of the task behind it; while it is held, the entry is not given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """A replacement that is not cleaned up yet."""

    id: str
    state: LineageState
    since_ms: int
    """When it got into this state."""
    created_ms: int
    segments_from: tuple[str, ...]
    segments_to: tuple[str, ...]
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What to replace by what. Either side may be empty: outputs that replace nothing, inputs that just go.

    An input given as a key must be of that very version. A given `entry` makes the start repeatable: one that exists
    with the same lists is left as it is (even if it has ended by now), a reverted one is started anew. `force` reverts
    replacements under way that use the same inputs or outputs; `drops_older` takes out those completed ones whose
    outputs are exactly the inputs, with what they replaced.
    """

    segments_from: Sequence[SegmentKey | str]
    segments_to: Sequence[str]
    custom_map: Mapping[str, str] = field(default_factory=dict)
    entry: str | None = None
    force: bool = False
    drops_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How to end. `wait_loaded_s`: how long to wait until servers have the outputs; `segments_to`: those of the outputs
    that shall be, the others are dropped; `custom_map` is added to the entry's."""

    wait_loaded_s: float = 0.0
    segments_to: Sequence[str] | None = None
    custom_map: Mapping[str, str] = field(default_factory=dict)


_AT_ONCE = Ending()


def start_replacement(
    metastore: Metastore,
    table: TableName,
    replacement: Replacement,
    *,
    fence: Check | None = None,
    context: Context | None = None,
) -> str:
    """Announce that the inputs will be replaced by the outputs; returns the entry's id.

    Raises PreconditionError, InvalidInputError.
    """
    inputs = _inputs(replacement.segments_from)
    outputs = tuple(map(str, replacement.segments_to))
    entry = replacement.entry or secrets.token_hex(16)
    if ENTRY_PATTERN.fullmatch(entry) is None:
        raise InvalidInputError(f"entry id must be 1 to 120 letters, digits or any of _.:@- entry={entry!r}")
    context = context or Context()

    def decide(view: TableView) -> Sequence[Mutation]:
        now_ms = context.clock.now_ms()
        mark = view.lineage.get(entry)
        if mark is not None and mark.state is not LineageState.REVERTED:
            _check_same(_details(metastore, view, entry), entry, inputs, outputs)
            return []
        before = [] if mark is None else [ForgetReplacement(entry)]
        older = _older(metastore, view, inputs) if replacement.drops_older else ()
        before += [ForgetReplacement(one) for one in older]
        in_the_way = _overlapping(metastore, view, {*inputs, *outputs}, set(outputs)) if replacement.force else {}
        aside = [RevertReplacement(entry=one, details=details, now_ms=now_ms) for one, details in in_the_way.items()]
        start = StartReplacement(
            entry=entry, segments_from=inputs, segments_to=outputs, now_ms=now_ms, custom_map=replacement.custom_map
        )
        return [*before, *aside, start]

    _mutate(metastore, table, decide, fence, context)
    return entry


def put_outputs(
    metastore: Metastore,
    table: TableName,
    entry: str,
    records: Sequence[SegmentRecord],
    *,
    fence: Check | None = None,
    context: Context | None = None,
) -> None:
    """Publish outputs of an entry IN_PROGRESS. Servers load them; no query sees them before the end."""
    context = context or Context()

    def decide(view: TableView) -> Sequence[Mutation]:
        details = _details(metastore, view, entry)
        strange = sorted({record.name for record in records} - set(details.segments_to))
        if strange:
            raise InvalidInputError(f"segments are no outputs of the replacement entry={entry} segments={strange[:3]}")
        now_ms = context.clock.now_ms()
        return [PutOutputs(entry, tuple(_pushed(record, view, now_ms) for record in records))]

    _mutate(metastore, table, decide, fence, context)


def end_replacement(
    metastore: Metastore,
    table: TableName,
    entry: str,
    ending: Ending = _AT_ONCE,
    *,
    fence: Check | None = None,
    context: Context | None = None,
) -> LineageEntry:
    """Show the outputs in place of the inputs, once every live server that they are assigned to has loaded them.

    UnavailableError if some output is not loaded in time, telling which and why. A completed entry stays as it is.
    """
    context = context or Context()
    wait_until_loaded(metastore, table, entry, ending)

    def decide(view: TableView) -> Sequence[Mutation]:
        details = _details(metastore, view, entry)
        if view.lineage[entry].state is LineageState.COMPLETED:
            return []
        dropped = _dropped(details, entry, ending.segments_to)
        now_ms = context.clock.now_ms()
        return [
            EndReplacement(entry=entry, details=details, now_ms=now_ms, dropped=dropped, custom_map=ending.custom_map)
        ]

    view = _mutate(metastore, table, decide, fence, context)
    return _entry(metastore, view, entry)


def revert_replacement(
    metastore: Metastore,
    table: TableName,
    entry: str,
    *,
    force: bool = True,
    fence: Check | None = None,
    context: Context | None = None,
) -> LineageEntry:
    """Show the inputs again. `force` is needed for an entry IN_PROGRESS. A reverted entry stays as it is."""
    context = context or Context()

    def decide(view: TableView) -> Sequence[Mutation]:
        details = _details(metastore, view, entry)
        if view.lineage[entry].state is LineageState.IN_PROGRESS and not force:
            raise PreconditionError(f"replacement is under way, revert it by force entry={entry}")
        return [RevertReplacement(entry=entry, details=details, now_ms=context.clock.now_ms())]

    view = _mutate(metastore, table, decide, fence, context)
    return _entry(metastore, view, entry)


def list_entries(metastore: Metastore, table: TableName, previous: TableView | None = None) -> tuple[LineageEntry, ...]:
    """All entries that are not cleaned up yet, oldest first."""

    def read(view: TableView) -> tuple[LineageEntry, ...] | None:
        details = read_details(metastore, table, view.lineage)
        entries = [_of(entry, view.lineage[entry], one) for entry, one in details.items() if one is not None]
        return (
            tuple(sorted(entries, key=lambda one: (one.created_ms, one.id))) if len(entries) == len(details) else None
        )

    return _consistent(metastore, table, read, previous)


def find_entry(metastore: Metastore, table: TableName, entry: str) -> LineageEntry | None:
    """One entry; None if it never was or is cleaned up."""

    def read(view: TableView) -> list[LineageEntry | None] | None:
        if entry not in view.lineage:
            return [None]
        details = read_details(metastore, table, {entry: view.lineage[entry]})[entry]
        return None if details is None else [_of(entry, view.lineage[entry], details)]

    return _consistent(metastore, table, read)[0]


def not_loaded(
    metastore: Metastore, view: TableView, names: Collection[str], reader: ReportReader | None = None
) -> Mapping[str, str]:
    """Which of these segments are not loaded on every live server that they are assigned to, and why."""
    reports = (reader or ReportReader(metastore, view.table)).read()
    live = liveness.live_instances(metastore, Role.SERVER)
    reasons = {}
    for name in names:
        record = view.segment(name)
        if record is None:
            reasons[name] = "not published"
            continue
        key = str(record.key)
        servers = [server for server in view.servers_of(name) if server in live]
        lacking = [server for server in servers if server not in reports or key not in reports[server].loaded]
        if not servers:
            reasons[name] = "assigned to no live server yet"
        elif lacking:
            errors = [reports[one].errors[key] for one in lacking if one in reports and key in reports[one].errors]
            reasons[name] = f"not loaded by {lacking[0]}" + (f": {errors[0]}" if errors else "")
    return reasons


def wait_until_loaded(metastore: Metastore, table: TableName, entry: str, ending: Ending) -> None:
    """Return once the outputs of an entry IN_PROGRESS are loaded; UnavailableError if they are not in time."""
    reader = ReportReader(metastore, table)
    changed = threading.Event()
    deadline = time.monotonic() + ending.wait_loaded_s
    is_watching = False
    try:
        while True:
            changed.clear()
            missing = _outputs_not_loaded(metastore, table, entry, ending.segments_to, reader)
            if not missing:
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                name, reason = next(iter(missing.items()))
                raise UnavailableError(
                    f"outputs are not loaded yet, end the replacement again later table={table} entry={entry} "
                    f"missing={len(missing)} first={name} reason: {reason}"
                )
            if not is_watching:
                reader.watch(changed.set)
                is_watching = True
                continue
            changed.wait(min(left_s, LOOK_S))
    finally:
        reader.close()


def _outputs_not_loaded(
    metastore: Metastore, table: TableName, entry: str, segments_to: Sequence[str] | None, reader: ReportReader
) -> Mapping[str, str]:
    def read(view: TableView) -> Mapping[str, str] | None:
        mark = view.lineage.get(entry)
        if mark is None:
            raise NotFoundError(f"replacement does not exist table={table} entry={entry}")
        if mark.state is not LineageState.IN_PROGRESS:
            return {}
        details = read_details(metastore, table, {entry: mark})[entry]
        if details is None:
            return None
        dropped = _dropped(details, entry, segments_to)
        return not_loaded(metastore, view, [name for name in details.segments_to if name not in dropped], reader)

    return _consistent(metastore, table, read)


def _mutate(metastore: Metastore, table: TableName, decide: Decide, fence: Check | None, context: Context) -> TableView:
    view = mutate(metastore, table, decide, fence, previous=_recent(metastore, table), context=context)
    return _remember(metastore, view)


def _recent(metastore: Metastore, table: TableName) -> TableView | None:
    """The last view of this session: what it shares with the current one is not read again."""
    with _LOCK:
        return _RECENT.get(metastore, {}).get(table)


def _remember(metastore: Metastore, view: TableView) -> TableView:
    with _LOCK:
        views = _RECENT.setdefault(metastore, {})
        views.pop(view.table, None)
        views[view.table] = view
        while len(views) > RECENT_TABLES:
            del views[next(iter(views))]
    return view


def _consistent(
    metastore: Metastore,
    table: TableName,
    read: Callable[[TableView], T | None],
    previous: TableView | None = None,
) -> T:
    """What `read` makes of one root; None from it means that the root has moved on meanwhile."""
    view = previous or _recent(metastore, table)
    for _ in range(ATTEMPTS):
        view = _remember(metastore, load(metastore, table, view))
        found = read(view)
        if found is not None:
            return found
    raise UnavailableError(f"replacements change faster than they can be read table={table}")


def _details(metastore: Metastore, view: TableView, entry: str) -> LineageRecord:
    """Inside a compare-and-set: details that are gone are those of a root that is no longer, so it will fail anyway."""
    mark = view.lineage.get(entry)
    if mark is None:
        raise NotFoundError(f"replacement does not exist table={view.table} entry={entry}")
    details = read_details(metastore, view.table, {entry: mark})[entry]
    if details is None:
        raise NotFoundError(f"replacement was cleaned up table={view.table} entry={entry}")
    return details


def _entry(metastore: Metastore, view: TableView, entry: str) -> LineageEntry:
    return _of(entry, view.lineage[entry], _details(metastore, view, entry))


def _of(entry: str, mark: LineageMark, details: LineageRecord) -> LineageEntry:
    return LineageEntry(
        id=entry,
        state=mark.state,
        since_ms=mark.since_ms,
        created_ms=details.created_ms,
        segments_from=details.segments_from,
        segments_to=details.segments_to,
        custom_map=details.custom_map,
    )


def _inputs(segments: Sequence[SegmentKey | str]) -> dict[str, int | None]:
    inputs = {
        str(one.name) if isinstance(one, SegmentKey) else one: one.crc if isinstance(one, SegmentKey) else None
        for one in segments
    }
    if len(inputs) != len(segments):
        raise InvalidInputError("inputs are named twice")
    return inputs


def _overlapping(
    metastore: Metastore, view: TableView, names: Collection[str], outputs: Collection[str]
) -> dict[str, LineageRecord]:
    """Entries under way that use any of these names."""
    under_way = {one: mark for one, mark in view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
    details = read_details(metastore, view.table, under_way)
    return {
        one: record
        for one, record in details.items()
        if record is not None
        and (not set(names).isdisjoint(record.segments_from) or not set(outputs).isdisjoint(record.segments_to))
    }


def _older(metastore: Metastore, view: TableView, inputs: Collection[str]) -> list[str]:
    """Completed entries that made exactly these segments."""
    completed = {one: mark for one, mark in view.lineage.items() if mark.state is LineageState.COMPLETED}
    details = read_details(metastore, view.table, completed)
    names = set(inputs)
    return [one for one, record in details.items() if record is not None and set(record.segments_to) == names != set()]


def _check_same(details: LineageRecord, entry: str, inputs: Mapping[str, int | None], outputs: Sequence[str]) -> None:
    if set(details.segments_from) != inputs.keys() or set(details.segments_to) != set(outputs):
        raise PreconditionError(f"replacement exists already, of other segments entry={entry}")


def _dropped(details: LineageRecord, entry: str, segments_to: Sequence[str] | None) -> tuple[str, ...]:
    if segments_to is None:
        return ()
    strange = sorted(set(segments_to) - set(details.segments_to))
    if strange:
        raise InvalidInputError(f"segments are no outputs of the replacement entry={entry} segments={strange[:3]}")
    return tuple(name for name in details.segments_to if name not in set(segments_to))


def _pushed(record: SegmentRecord, view: TableView, now_ms: int) -> SegmentRecord:
    present = view.segment(record.name)
    return record.model_copy(update={"push_time_ms": now_ms if present is None else present.push_time_ms})

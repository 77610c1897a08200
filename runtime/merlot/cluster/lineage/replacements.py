"""Replace segments by others, for all queries at once: start, put the outputs, end; or revert.

The state of an entry is in the root of the table's segments, so that its end is one compare-and-set. Its inputs and
outputs are in nodes beside it (`lineage_nodes`). Every call blocks, and repeating a call that has succeeded
changes nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from merlot.cluster.lineage.loading import wait_until_loaded
from merlot.cluster.lineage.views import consistent, recent, remember
from merlot.cluster.records import LineageMark, LineageRecord, LineageState, SegmentRecord
from merlot.cluster.segments.lineage_nodes import dropped_outputs, read_details
from merlot.cluster.segments.mutations import (
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PreconditionError,
    PutOutputs,
    RevertReplacement,
    StartReplacement,
)
from merlot.cluster.segments.transaction import Decide, WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.errors import InvalidInputError, NotFoundError
from merlot.ids import SegmentKey, TableName
from merlot.metastore.protocol import Check, Metastore

ENTRY_PATTERN = re.compile(r"[A-Za-z0-9_.:@-]{1,120}")
TASK_LEASE = "merlot.taskLease"
"""Key of an entry's custom map. The value is the lease of the task behind it; while the lease is held, the entry is not
given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """A replacement that is not cleaned up yet."""

    id: str
    state: LineageState
    since_ms: int
    """Time when it got into this state."""
    created_ms: int
    segments_from: tuple[str, ...]
    segments_to: tuple[str, ...]
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Inputs and outputs of a replacement. Either side may be empty: outputs that replace nothing, inputs that just go.

    An input given as a key must be of exactly that version. A given `entry` makes the start repeatable: an entry that
    exists with the same lists is left as it is (even if it has ended by now), a reverted one is started anew. `force`
    reverts replacements under way that have one of the inputs or outputs as an input, or one of the outputs as an
    output. `drops_older` forgets the completed replacements whose outputs are exactly the inputs, together with the
    segments that they replaced."""

    segments_from: Sequence[SegmentKey | str]
    segments_to: Sequence[str]
    custom_map: Mapping[str, str] = field(default_factory=dict)
    entry: str | None = None
    force: bool = False
    drops_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOptions:
    """Options of an end. `wait_loaded_s`: how long to wait until servers have the outputs; `segments_to`: outputs to
    keep, the others are dropped; `custom_map` is added to the entry's."""

    wait_loaded_s: float = 0.0
    segments_to: Sequence[str] | None = None
    custom_map: Mapping[str, str] = field(default_factory=dict)


_AT_ONCE = EndOptions()


def start_replacement(
    metastore: Metastore,
    table: TableName,
    replacement: Replacement,
    *,
    fence: Check | None = None,
    context: WriteContext | None = None,
) -> str:
    """Announce that the outputs will replace the inputs; return the entry's id.

    Raise PreconditionError or InvalidInputError."""
    inputs = _inputs(replacement.segments_from)
    outputs = tuple(map(str, replacement.segments_to))
    entry = replacement.entry or secrets.token_hex(16)
    if ENTRY_PATTERN.fullmatch(entry) is None:
        raise InvalidInputError(f"entry id must be 1 to 120 letters, digits or any of _.:@- entry={entry!r}")
    context = context or WriteContext()

    def decide(view: TableView) -> Sequence[Mutation]:
        now_ms = context.clock.now_ms()
        mark = view.lineage.get(entry)
        if mark is not None and mark.state is not LineageState.REVERTED:
            _check_same(_details(metastore, view, entry), entry, inputs, outputs)
            return []
        before = [] if mark is None else [ForgetReplacement(entry)]
        older = _older(metastore, view, inputs) if replacement.drops_older else ()
        before += [ForgetReplacement(other) for other in older]
        in_the_way = _overlapping(metastore, view, {*inputs, *outputs}, set(outputs)) if replacement.force else {}
        aside = [
            RevertReplacement(entry=other, details=details, now_ms=now_ms) for other, details in in_the_way.items()
        ]
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
    context: WriteContext | None = None,
) -> None:
    """Publish outputs of an entry IN_PROGRESS. Servers load them; no query sees them before the end."""
    context = context or WriteContext()

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
    ending: EndOptions = _AT_ONCE,
    *,
    fence: Check | None = None,
    context: WriteContext | None = None,
) -> LineageEntry:
    """Show the outputs in place of the inputs, once every live server that they are assigned to has loaded them.

    Raise UnavailableError, with the output and the reason, if some output is not loaded in time. A completed entry
    stays as it is."""
    context = context or WriteContext()
    wait_until_loaded(metastore, table, entry, ending.segments_to, ending.wait_loaded_s)

    def decide(view: TableView) -> Sequence[Mutation]:
        details = _details(metastore, view, entry)
        if view.lineage[entry].state is LineageState.COMPLETED:
            return []
        dropped = dropped_outputs(details, entry, ending.segments_to)
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
    context: WriteContext | None = None,
) -> LineageEntry:
    """Show the inputs again. `force` is needed for an entry IN_PROGRESS. A reverted entry stays as it is."""
    context = context or WriteContext()

    def decide(view: TableView) -> Sequence[Mutation]:
        details = _details(metastore, view, entry)
        if view.lineage[entry].state is LineageState.IN_PROGRESS and not force:
            raise PreconditionError(f"replacement is under way, revert it by force entry={entry}")
        return [RevertReplacement(entry=entry, details=details, now_ms=context.clock.now_ms())]

    view = _mutate(metastore, table, decide, fence, context)
    return _entry(metastore, view, entry)


def list_entries(metastore: Metastore, table: TableName, previous: TableView | None = None) -> tuple[LineageEntry, ...]:
    """Return all entries that are not cleaned up yet, oldest first."""

    def read(view: TableView) -> tuple[LineageEntry, ...] | None:
        details = read_details(metastore, table, view.lineage)
        entries = [
            _entry_of(entry, view.lineage[entry], record) for entry, record in details.items() if record is not None
        ]
        return (
            tuple(sorted(entries, key=lambda entry: (entry.created_ms, entry.id)))
            if len(entries) == len(details)
            else None
        )

    return consistent(metastore, table, read, previous)


def find_entry(metastore: Metastore, table: TableName, entry: str) -> LineageEntry | None:
    """Return an entry; None if it never existed or is cleaned up."""

    def read(view: TableView) -> list[LineageEntry | None] | None:
        if entry not in view.lineage:
            return [None]
        details = read_details(metastore, table, {entry: view.lineage[entry]})[entry]
        return None if details is None else [_entry_of(entry, view.lineage[entry], details)]

    return consistent(metastore, table, read)[0]


def _mutate(
    metastore: Metastore, table: TableName, decide: Decide, fence: Check | None, context: WriteContext
) -> TableView:
    view = mutate(metastore, table, decide, fence, previous=recent(metastore, table), context=context)
    return remember(metastore, view)


def _details(metastore: Metastore, view: TableView, entry: str) -> LineageRecord:
    """Return an entry's details, within a compare-and-set. If its nodes are gone, the root has moved on, and the write
    would fail anyway."""
    mark = view.lineage.get(entry)
    if mark is None:
        raise NotFoundError(f"replacement does not exist table={view.table} entry={entry}")
    details = read_details(metastore, view.table, {entry: mark})[entry]
    if details is None:
        raise NotFoundError(f"replacement was cleaned up table={view.table} entry={entry}")
    return details


def _entry(metastore: Metastore, view: TableView, entry: str) -> LineageEntry:
    return _entry_of(entry, view.lineage[entry], _details(metastore, view, entry))


def _entry_of(entry: str, mark: LineageMark, details: LineageRecord) -> LineageEntry:
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
        str(segment.name) if isinstance(segment, SegmentKey) else segment: segment.crc
        if isinstance(segment, SegmentKey)
        else None
        for segment in segments
    }
    if len(inputs) != len(segments):
        raise InvalidInputError("inputs are named twice")
    return inputs


def _overlapping(
    metastore: Metastore, view: TableView, names: Collection[str], outputs: Collection[str]
) -> dict[str, LineageRecord]:
    """Return the entries under way that have one of `names` as an input, or one of `outputs` as an output."""
    under_way = {entry: mark for entry, mark in view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
    details = read_details(metastore, view.table, under_way)
    return {
        entry: record
        for entry, record in details.items()
        if record is not None
        and (not set(names).isdisjoint(record.segments_from) or not set(outputs).isdisjoint(record.segments_to))
    }


def _older(metastore: Metastore, view: TableView, inputs: Collection[str]) -> list[str]:
    """Return the completed entries whose outputs are exactly these segments."""
    completed = {entry: mark for entry, mark in view.lineage.items() if mark.state is LineageState.COMPLETED}
    details = read_details(metastore, view.table, completed)
    names = set(inputs)
    return [
        entry for entry, record in details.items() if record is not None and set(record.segments_to) == names != set()
    ]


def _check_same(details: LineageRecord, entry: str, inputs: Mapping[str, int | None], outputs: Sequence[str]) -> None:
    if set(details.segments_from) != inputs.keys() or set(details.segments_to) != set(outputs):
        raise PreconditionError(f"replacement exists already, of other segments entry={entry}")


def _pushed(record: SegmentRecord, view: TableView, now_ms: int) -> SegmentRecord:
    present = view.segment(record.name)
    return record.model_copy(update={"push_time_ms": now_ms if present is None else present.push_time_ms})

"""Removal of replacements from the lineage once nobody needs their hidden side: its records go, its files move to the
trash.

A completed replacement keeps its inputs for a while, so that it can be reverted and slow brokers can go on with them. A
replacement that was reverted, or begun and abandoned, keeps its outputs for as long as somebody may still be looking
into it.

Entries are stamped by whoever writes them, such as a minion. A stamp that the cleaner knows to be false is corrected in
the root: a clock that was 20 years slow must not end a grace period at once, nor one that was fast keep it for years.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster.instances.leases import holder
from merlot.cluster.lineage.replacements import TASK_LEASE
from merlot.cluster.records import LineageMark, LineageRecord, LineageState
from merlot.cluster.segments.lineage_nodes import read_details
from merlot.cluster.segments.mutations import ForgetReplacement, Mutation, RevertReplacement, StampReplacement
from merlot.cluster.segments.transaction import WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.metastore.protocol import Check, Metastore

_LOG = logging.getLogger(__name__)

SKEW_MS = 60_000
"""Greatest difference between two clocks that are right."""
MAX_SEGMENTS = 10_000
"""Number of records after which a write removes no further entry: the list of their files has to fit a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGrace:
    """Grace periods of lineage entries, in milliseconds."""

    completed_ms: int
    abandoned_ms: int
    """Grace period of entries that are reverted, or in progress without a running task."""


def due(view: TableView, grace: LineageGrace, now_ms: int) -> tuple[str, ...]:
    """Return the entries that have been in their state for too long, oldest first. Pure."""
    entries = [
        entry
        for entry, mark in view.lineage.items()
        if now_ms - mark.since_ms
        >= (grace.completed_ms if mark.state is LineageState.COMPLETED else grace.abandoned_ms)
    ]
    return tuple(sorted(entries, key=lambda entry: (view.lineage[entry].since_ms, entry)))


@dataclass(frozen=True, slots=True)
class SeenMarks:
    """Marks of a table's lineage at a time that has surely come."""

    at_ms: int
    marks: frozenset[tuple[str, LineageMark]]


def false_stamps(
    lineage: Mapping[str, LineageMark], seen: SeenMarks | None, latest_ms: int
) -> tuple[StampReplacement, ...]:
    """Return corrections of stamps that cannot be true, since whoever wrote them had a wrong clock. Pure.

    A mark that was not there at the last look is younger than that look; none is later than `latest_ms`. `seen`: the
    last look of this process; None if there was none: then an early stamp is believed."""
    corrections = []
    for entry, mark in lineage.items():
        earliest_ms = mark.since_ms if seen is None or (entry, mark) in seen.marks else seen.at_ms - SKEW_MS
        if not earliest_ms <= mark.since_ms <= latest_ms + SKEW_MS:
            since_ms = min(max(mark.since_ms, earliest_ms), latest_ms)
            corrections.append(StampReplacement(entry, mark.state, since_ms))
    return tuple(corrections)


def removal(
    view: TableView, entries: Sequence[str], is_running: Callable[[str], bool], now_ms: int
) -> Sequence[Mutation]:
    """Return the mutations that remove these entries, as many as one write holds. Entries in progress are reverted
    first, or skipped while their task runs."""
    mutations: list[Mutation] = []
    num_segments = 0
    for entry in entries:
        mark = view.lineage.get(entry)
        if mark is None or num_segments >= MAX_SEGMENTS:
            continue
        if mark.state is LineageState.IN_PROGRESS:
            if is_running(entry):
                continue
            mutations.append(RevertReplacement(entry=entry, details=LineageRecord(created_ms=-1), now_ms=now_ms))
        mutations.append(ForgetReplacement(entry))
        num_segments += mark.num_from + mark.num_to
    return mutations


def correct_stamps(
    metastore: Metastore, view: TableView, seen: SeenMarks | None, latest_ms: int, fence: Check
) -> TableView:
    """Correct false stamps of the lineage (`false_stamps`); return the view after that."""
    corrections = false_stamps(view.lineage, seen, latest_ms)
    if not corrections:
        return view
    _LOG.warning(
        "times of replacements were stamped by a wrong clock table=%s entries=%s",
        view.table,
        ",".join(correction.entry for correction in corrections[:3]),
    )
    return mutate(metastore, view.table, lambda now: false_stamps(now.lineage, seen, latest_ms), fence, previous=view)


def clean_lineage(
    metastore: Metastore, view: TableView, grace: LineageGrace, fence: Check, context: WriteContext, sure: Clock
) -> TableView:
    """Remove entries whose grace period is over; return the view after that. Idempotent. `sure` decides what is old."""
    while entries := due(view, grace, sure.now_ms()):
        is_running = _task_checker(metastore, view)
        before = view
        view = mutate(
            metastore,
            view.table,
            lambda now, entries=entries, is_running=is_running: removal(  # type: ignore[misc]
                now, entries, is_running, context.clock.now_ms()
            ),
            fence,
            previous=view,
            context=context,
        )
        if view.epoch == before.epoch:
            break
        gone = before.lineage.keys() - view.lineage.keys()
        _LOG.info(
            "replacements cleaned up table=%s num_entries=%d num_segments=%d",
            view.table,
            len(gone),
            len(before.segments) - len(view.segments),
        )
    return view


def _task_checker(metastore: Metastore, view: TableView) -> Callable[[str], bool]:
    """Return a function that says whether the task of an entry in progress holds its lease."""

    def is_running(entry: str) -> bool:
        mark = view.lineage.get(entry)
        details = None if mark is None else read_details(metastore, view.table, {entry: mark})[entry]
        lease = None if details is None else details.custom_map.get(TASK_LEASE)
        return bool(lease) and holder(metastore, str(lease)) is not None

    return is_running

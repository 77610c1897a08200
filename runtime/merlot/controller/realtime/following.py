"""Reconciliation of a table's stream: reads the reports of servers and the requests of users, decides, writes.
Blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from merlot.clock import Clock
from merlot.cluster.backfill_record import BackfillRecord
from merlot.cluster.consuming import backfills, stream_facts
from merlot.cluster.consuming.backfills import pinned_of
from merlot.cluster.consuming.pinned import pinned_upsert
from merlot.cluster.consuming.positions import read_positions
from merlot.cluster.consuming.progress import ProgressRecord, read_progress
from merlot.cluster.manifests.upserts import Upserting, upserting_of
from merlot.cluster.segments.transaction import Mutation, WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.moves import Situation
from merlot.controller.realtime import backfill
from merlot.controller.realtime.backfill import BackfillFacts
from merlot.controller.realtime.decisions import StreamSituation, decide
from merlot.ids import InstanceId, raw_name
from merlot.metastore.protocol import Check, Metastore

MOST_STEPS: Final = 8
"""Most writes of a round. A record changes once in a write, so a record that needs several changes takes several."""


def follow_stream(
    metastore: Metastore,
    view: TableView,
    situation: Situation,
    clock: Clock,
    fence: Check | None,
    draining: Set[InstanceId] = frozenset(),
) -> tuple[TableView, bool]:
    """Make all changes that can be made now. Return the view after them, and whether a backfill waits for reports of
    servers."""
    table = view.table
    stream_record = stream_facts.find_stream(metastore, table)
    upserting = upserting_of(metastore, situation.spec)
    progress = read_progress(metastore, table)
    filling = _follow_backfill(metastore, view, situation, upserting, progress, fence)
    stream = StreamSituation(
        table=situation,
        pinned="" if upserting.waits_for else pinned_of(situation.spec, upserting.spec, filling),
        starts={} if stream_record is None or upserting.waits_for else stream_record.starts,
        is_paused=stream_facts.find_control(metastore, table).is_paused,
        positions=read_positions(metastore, table),
        draining=draining,
        progress=progress,
    )

    def decided(current: TableView) -> Sequence[Mutation]:
        mutations = decide(current, stream)
        if mutations or filling is None or situation.spec.suspend:
            return mutations
        return backfill.asks(filling, current, progress, situation.now_ms)

    for _ in range(MOST_STEPS):
        before = view
        view = mutate(metastore, table, decided, fence, previous=view, context=WriteContext(clock=clock))
        if view.epoch == before.epoch:
            break
    return view, filling is not None and not filling.is_over


def _follow_backfill(
    metastore: Metastore,
    view: TableView,
    situation: Situation,
    upserting: Upserting,
    progress: Mapping[InstanceId, ProgressRecord],
    fence: Check | None,
) -> BackfillRecord | None:
    """Return the backfill of an upsert table after the steps that are done."""
    spec, now_ms = situation.spec, situation.now_ms
    if spec.upsert is None or upserting.spec is None:
        return None
    facts = BackfillFacts(
        view=view,
        progress=progress,
        spec=upserting.spec,
        pinned=lambda record: pinned_of(spec, upserting.spec, record),
        upsert_of=pinned_upsert,
        now_ms=now_ms,
    )

    def change(before: BackfillRecord | None) -> BackfillRecord | None:
        record = _as_declared(before, upserting, facts)
        return record if record is None or spec.suspend else backfill.advance(record, facts)

    return backfills.change_backfill(metastore, view.table, change, fence)


def _as_declared(before: BackfillRecord | None, upserting: Upserting, facts: BackfillFacts) -> BackfillRecord | None:
    """Return the backfill as the UpsertConfig asks for it: begun, ended or updated."""
    wanted = upserting.backfill_of(raw_name(facts.view.table))
    if wanted is None:
        if before is not None and before.is_declared and not before.is_over:
            return backfills.cancelled(before, facts.now_ms)
        return before
    if before is None or (before.is_over and before.name != wanted.name):
        if backfill.refused(wanted.offsets, facts.spec, facts.view):
            return before
        return backfills.begun(
            before,
            wanted.name,
            facts.now_ms,
            offsets=wanted.offsets,
            ignores_memory=wanted.ignore_memory,
            is_declared=True,
        )
    if before.name == wanted.name and not before.is_over:
        more = before.model_copy(update={"ignores_memory": wanted.ignore_memory})
        return backfills.mark_loaded(more, facts.now_ms) if wanted.loaded else more
    return before

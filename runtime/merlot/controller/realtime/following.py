"""Brings a table's stream to how it should be: reads what servers and people said of it, decides, writes. Blocks."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming import found
from merlot.cluster.consuming.pinned import pin
from merlot.cluster.consuming.positions import read_positions
from merlot.cluster.consuming.progress import read_progress
from merlot.cluster.manifests.upserts import upserting_of
from merlot.cluster.segments.transaction import Context, mutate
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.moves import Situation
from merlot.controller.realtime.decisions import StreamSituation, decide
from merlot.ids import InstanceId
from merlot.metastore.protocol import Check, Metastore

MOST_STEPS: Final = 8
"""A record changes once in a write: what needs several is done in as many."""


def follow_stream(
    metastore: Metastore,
    view: TableView,
    situation: Situation,
    clock: Clock,
    fence: Check | None,
    draining: Set[InstanceId] = frozenset(),
) -> TableView:
    """The view after everything that can be done now."""
    table = view.table
    known = found.find_stream(metastore, table)
    upserting = upserting_of(metastore, situation.spec)
    stream = StreamSituation(
        table=situation,
        pinned="" if upserting.waits_for else pin(situation.spec, upserting.spec),
        starts={} if known is None or upserting.waits_for else known.starts,
        is_paused=found.find_control(metastore, table).is_paused,
        positions=read_positions(metastore, table),
        draining=draining,
        told=read_progress(metastore, table),
    )
    for _ in range(MOST_STEPS):
        before = view
        view = mutate(
            metastore,
            table,
            lambda current: decide(current, stream),
            fence,
            previous=view,
            context=Context(clock=clock),
        )
        if view.epoch == before.epoch:
            break
    return view

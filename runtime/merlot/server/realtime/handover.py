"""Before a server stops, wait until its partitions are committed or consumed elsewhere, so that nobody reads hours of
messages again. Blocks.

The controller (`controller.realtime`) sees to it once the server is marked: by an operator, or by the server itself,
here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming.handover import num_to_hand_over
from merlot.cluster.consuming.progress import read_progress
from merlot.cluster.instances.drains import mark, marks
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.records import Role
from merlot.cluster.segments.view import load
from merlot.errors import MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 0.5


def hand_over(
    metastore: Metastore, instance: InstanceId, tables: Collection[TableName], longest_s: float, clock: Clock
) -> bool:
    """Wait until all partitions of the tables are handed over, at most `longest_s` seconds; return True if they are."""
    deadline = clock.monotonic() + longest_s
    try:
        left = _num_left(metastore, instance, tables)
        if left and instance not in marks(metastore):
            mark(metastore, instance, leaving=False, now_ms=clock.now_ms())
        while left and clock.monotonic() < deadline:
            threading.Event().wait(LOOK_S)
            left = _num_left(metastore, instance, tables)
    except MerlotError as error:
        _LOG.warning("streams not handed over instance=%s cause=%s", instance, error)
        return False
    if left:
        _LOG.warning("streams not handed over in time instance=%s partitions=%d", instance, left)
    return not left


def _num_left(metastore: Metastore, instance: InstanceId, tables: Collection[TableName]) -> int:
    live = live_instances(metastore, Role.SERVER)
    mine = live.get(instance)
    if mine is None:
        return 0  # the server is not registered any more
    staying = {server for server, record in live.items() if record.tenant == mine.tenant} - marks(metastore).keys()
    staying -= {instance}
    return sum(_num_left_of(metastore, table, instance, staying) for table in tables)


def _num_left_of(metastore: Metastore, table: TableName, instance: InstanceId, staying: set[InstanceId]) -> int:
    try:
        view = load(metastore, table)
    except NotFoundError:
        return 0
    return num_to_hand_over(view, instance, staying, read_progress(metastore, table))

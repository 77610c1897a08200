"""What servers find out about a stream, and what people ask of it: small nodes beside the tree.

The controller has no access to streams, and needs none of their secrets: a server of the table looks which partitions
there are and where they begin, and writes it down; the controller begins segments for what it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from merlot.cluster import paths
from merlot.cluster.backfill_record import BackfillRecord
from merlot.cluster.consuming.backfills import change_backfill, find_backfill
from merlot.cluster.consuming.positions import forget_positions
from merlot.cluster.consuming.progress import StreamProblem, forget_progress
from merlot.cluster.records import StreamControlRecord, StreamRecord, StreamStateRecord
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, Node, Shelf

LOOK_MS = 10_000
"""How often somebody looks for new partitions."""


def is_due(found: StreamRecord | None, instance: InstanceId, servers: Collection[InstanceId], now_ms: int) -> bool:
    """Whether this server shall look now: the first one by id as soon as it is time, the others when the ones before
    them miss their turn."""
    if found is None or not now_ms - found.looked_ms >= 0:  # nobody has, or a clock is wrong
        return True
    turn = sum(one < instance for one in servers)
    return now_ms - found.looked_ms >= LOOK_MS * (1 + turn)


def find_stream(metastore: Metastore, table: TableName) -> StreamRecord | None:
    """What was found out last; None if nobody has looked yet."""
    path = paths.stream(table)
    node = metastore.get(path)
    return None if node is None else StreamRecord.from_bytes(node.data, path)


def tell_stream(
    metastore: Metastore,
    table: TableName,
    starts: Mapping[int, int],
    by: InstanceId,
    now_ms: int,
    failure: tuple[StreamProblem, str] = (StreamProblem.NONE, ""),
) -> StreamRecord:
    """Write down what was found: partitions are added, never taken away, and keep the start they were found with.
    `failure`: why the look failed."""
    path = paths.stream(table)
    while True:
        node = metastore.get(path)
        known = StreamRecord() if node is None else StreamRecord.from_bytes(node.data, path)
        problem, error = failure
        record = StreamRecord(
            starts={**starts, **known.starts},
            looked_ms=now_ms,
            by=by,
            error=error,
            problem=problem,
            topic_id=known.topic_id,
        )
        try:
            _write(metastore, path, node, record.to_bytes())
        except (ConflictError, NotFoundError):
            continue
        return record


def tell_topic_id(metastore: Metastore, table: TableName, topic_id: str) -> None:
    """Write down which topic it is that the table consumes, unless that is written."""
    path = paths.stream(table)
    node = metastore.get(path)
    while node is not None and not (known := StreamRecord.from_bytes(node.data, path)).topic_id:
        with suppress(ConflictError, NotFoundError):
            metastore.put(path, known.model_copy(update={"topic_id": topic_id}).to_bytes(), node.version)
        node = metastore.get(path)


def find_state(metastore: Metastore, table: TableName) -> StreamStateRecord:
    """Return what has to outlive the metastore, or the table."""
    known = find_stream(metastore, table) or StreamRecord()
    return StreamStateRecord(
        topic_id=known.topic_id,
        starts=known.starts,
        is_paused=find_control(metastore, table).is_paused,
        backfill=_without_message(find_backfill(metastore, table)),
    )


def _without_message(record: BackfillRecord | None) -> BackfillRecord | None:
    """Leave out the condition that a backfill waits for: it is reported again anyway."""
    return None if record is None else record.model_copy(update={"message": ""})


def check_topic(metastore: Metastore, table: TableName, topic_id: str) -> None:
    """Raise ConflictError if a server has found another topic than the one that offsets belong to."""
    known = find_stream(metastore, table)
    if known is not None and topic_id and known.topic_id not in ("", topic_id):
        raise ConflictError(f"the stream's topic is another one now table={table} was={topic_id} is={known.topic_id}")


def restore_state(metastore: Metastore, table: TableName, state: StreamStateRecord, now_ms: int) -> None:
    """Write down what was known of the stream, in place of what servers have found since: partitions that only they
    know are new. ConflictError if they have found another topic. Rerunning it is harmless."""
    path = paths.stream(table)
    while True:
        check_topic(metastore, table, state.topic_id)
        node = metastore.get(path)
        known = StreamRecord() if node is None else StreamRecord.from_bytes(node.data, path)
        update = {
            "topic_id": state.topic_id or known.topic_id,
            "starts": state.starts or known.starts,
            "looked_ms": -1,
        }
        with suppress(ConflictError, NotFoundError):
            _write(metastore, path, node, known.model_copy(update=update).to_bytes())
            break
    if state.backfill is not None:
        change_backfill(metastore, table, lambda _: state.backfill)
    set_paused(metastore, table, paused=state.is_paused, now_ms=now_ms)


def state_nodes(table: TableName, state: StreamStateRecord, now_ms: int) -> dict[str, bytes]:
    """Return the nodes of a state, for whoever creates the table that takes it over."""
    found = StreamRecord(starts=state.starts, topic_id=state.topic_id)
    nodes = {paths.stream(table): found.to_bytes()} if state.starts or state.topic_id else {}
    if state.is_paused:
        nodes[paths.stream_control(table)] = StreamControlRecord(is_paused=True, since_ms=now_ms).to_bytes()
    if state.backfill is not None:
        nodes[paths.backfill(table)] = state.backfill.to_bytes()
    return nodes


def find_control(metastore: Metastore, table: TableName) -> StreamControlRecord:
    """What was asked of the stream last."""
    path = paths.stream_control(table)
    node = metastore.get(path)
    return StreamControlRecord() if node is None else StreamControlRecord.from_bytes(node.data, path)


def set_paused(metastore: Metastore, table: TableName, *, paused: bool, now_ms: int) -> StreamControlRecord:
    """Ask that the stream be consumed no more, or again: the controller sees to it."""
    path = paths.stream_control(table)
    while True:
        node = metastore.get(path)
        record = StreamControlRecord() if node is None else StreamControlRecord.from_bytes(node.data, path)
        if record.is_paused == paused:
            return record
        record = record.model_copy(update={"is_paused": paused, "since_ms": now_ms})
        try:
            _write(metastore, path, node, record.to_bytes())
        except (ConflictError, NotFoundError):
            continue
        return record


def forget_stream(metastore: Shelf, table: TableName) -> None:
    """Delete what is said of a table's stream: the table is gone, or is made anew."""
    forget_positions(metastore, table, ())
    forget_progress(metastore, table)
    folders = (paths.positions(table), paths.all_progress(table))
    for path in (*folders, paths.stream(table), paths.stream_control(table), paths.backfill(table)):
        if metastore.get(path) is not None:
            with suppress(NotFoundError, ConflictError):
                metastore.delete(path)


def _write(metastore: Metastore, path: str, node: Node | None, data: bytes) -> None:
    if node is None:
        metastore.create(path, data)
    else:
        metastore.put(path, data, node.version)

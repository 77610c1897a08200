"""Facts that servers find out about a stream, and requests of clients about it: small nodes beside the tree of
segments.

The controller has no access to streams, and needs none of their secrets. A server of the table looks up the
partitions and where they begin, and records them. The controller begins segments for the recorded partitions.
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
from merlot.metastore.protocol import Metastore, Node, NodeDeleter

LOOK_MS = 10_000
"""Interval at which some server looks for new partitions, in milliseconds."""


def is_due(stream: StreamRecord | None, instance: InstanceId, servers: Collection[InstanceId], now_ms: int) -> bool:
    """Return True if this server must look for new partitions now. The first server by id looks as soon as the interval
    is over. Each of the others waits one interval more than the server before it."""
    if stream is None or not now_ms - stream.looked_ms >= 0:  # no server has looked yet, or a clock is wrong
        return True
    turn = sum(server < instance for server in servers)
    return now_ms - stream.looked_ms >= LOOK_MS * (1 + turn)


def find_stream(metastore: Metastore, table: TableName) -> StreamRecord | None:
    """Return the facts that a server recorded last; None if no server has looked yet."""
    path = paths.stream(table)
    node = metastore.get(path)
    return None if node is None else StreamRecord.from_bytes(node.data, path)


def record_stream(
    metastore: Metastore,
    table: TableName,
    starts: Mapping[int, int],
    by: InstanceId,
    now_ms: int,
    failure: tuple[StreamProblem, str] = (StreamProblem.NONE, ""),
) -> StreamRecord:
    """Record the partitions that a look has found. Partitions are added, never removed, and keep their first start.

    `failure`: why the look failed."""
    path = paths.stream(table)
    while True:
        node = metastore.get(path)
        stream = StreamRecord() if node is None else StreamRecord.from_bytes(node.data, path)
        problem, error = failure
        record = StreamRecord(
            starts={**starts, **stream.starts},
            looked_ms=now_ms,
            by=by,
            error=error,
            problem=problem,
            topic_id=stream.topic_id,
        )
        try:
            _write(metastore, path, node, record.to_bytes())
        except (ConflictError, NotFoundError):
            continue
        return record


def record_topic_id(metastore: Metastore, table: TableName, topic_id: str) -> None:
    """Record the id of the topic that the table consumes, unless one is recorded."""
    path = paths.stream(table)
    node = metastore.get(path)
    while node is not None and not (stream := StreamRecord.from_bytes(node.data, path)).topic_id:
        with suppress(ConflictError, NotFoundError):
            metastore.put(path, stream.model_copy(update={"topic_id": topic_id}).to_bytes(), node.version)
        node = metastore.get(path)


def find_state(metastore: Metastore, table: TableName) -> StreamStateRecord:
    """Return the state of the stream that has to outlive the metastore, or the table."""
    stream = find_stream(metastore, table) or StreamRecord()
    return StreamStateRecord(
        topic_id=stream.topic_id,
        starts=stream.starts,
        is_paused=find_control(metastore, table).is_paused,
        backfill=_without_message(find_backfill(metastore, table)),
    )


def _without_message(record: BackfillRecord | None) -> BackfillRecord | None:
    """Return the record without the condition that the backfill waits for: it is reported again anyway."""
    return None if record is None else record.model_copy(update={"message": ""})


def check_topic(metastore: Metastore, table: TableName, topic_id: str) -> None:
    """Raise ConflictError if a server has found another topic than `topic_id`, which the offsets belong to."""
    stream = find_stream(metastore, table)
    if stream is not None and topic_id and stream.topic_id not in ("", topic_id):
        raise ConflictError(f"the stream's topic is another one now table={table} was={topic_id} is={stream.topic_id}")


def restore_state(metastore: Metastore, table: TableName, state: StreamStateRecord, now_ms: int) -> None:
    """Put a saved state of the stream in place of what servers have recorded since. A state without starts, topic or
    backfill leaves these as they are. Partitions that are not in it count as new at the next look.

    Raise ConflictError if servers have found another topic. Running it again is harmless."""
    path = paths.stream(table)
    while True:
        check_topic(metastore, table, state.topic_id)
        node = metastore.get(path)
        stream = StreamRecord() if node is None else StreamRecord.from_bytes(node.data, path)
        update = {
            "topic_id": state.topic_id or stream.topic_id,
            "starts": state.starts or stream.starts,
            "looked_ms": -1,
        }
        with suppress(ConflictError, NotFoundError):
            _write(metastore, path, node, stream.model_copy(update=update).to_bytes())
            break
    if state.backfill is not None:
        change_backfill(metastore, table, lambda _: state.backfill)
    set_paused(metastore, table, paused=state.is_paused, now_ms=now_ms)


def state_nodes(table: TableName, state: StreamStateRecord, now_ms: int) -> dict[str, bytes]:
    """Return the nodes of a state, by path, for the creation of a table that takes it over."""
    stream = StreamRecord(starts=state.starts, topic_id=state.topic_id)
    nodes = {paths.stream(table): stream.to_bytes()} if state.starts or state.topic_id else {}
    if state.is_paused:
        nodes[paths.stream_control(table)] = StreamControlRecord(is_paused=True, since_ms=now_ms).to_bytes()
    if state.backfill is not None:
        nodes[paths.backfill(table)] = state.backfill.to_bytes()
    return nodes


def find_control(metastore: Metastore, table: TableName) -> StreamControlRecord:
    """Return the last request of a client about the stream."""
    path = paths.stream_control(table)
    node = metastore.get(path)
    return StreamControlRecord() if node is None else StreamControlRecord.from_bytes(node.data, path)


def set_paused(metastore: Metastore, table: TableName, *, paused: bool, now_ms: int) -> StreamControlRecord:
    """Request that the stream is paused, or resumed: the controller carries it out."""
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


def forget_stream(metastore: NodeDeleter, table: TableName) -> None:
    """Delete all nodes about a table's stream: the table is gone, or is created again."""
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

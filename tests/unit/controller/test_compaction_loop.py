"""The leader queues tasks to rewrite segments while servers go on sealing others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, UpsertProgress, write_progress
from merlot.cluster.consuming.transactions import Begin, End, SealedSegment
from merlot.cluster.instances.liveness import register
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.mutations import PutSegments
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.compactions import UPSERT_COMPACTION, compaction_config
from merlot.controller.compactions.loop import CompactionLoop
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Check, Op
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables

TABLE = TableName("t_OFFLINE")
SERVER = InstanceId("Server_a_1")
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: id, type: LONG}, {name: at, type: LONG}], primaryKey: [id]}
  partitioning: {columns: {id: {functionName: Modulo, numPartitions: 1}}}
  ingestion: {stream: {type: files, topic: /topic}}
  upsert:
    config: {mode: FULL, comparisonColumns: [at], compaction: {bufferTimePeriod: 0d}}
""")[0]


class BusyMetastore(SqliteMetastore):
    """Seals another segment of the table before each transaction of its caller."""

    is_busy = False

    def multi(self, ops: Sequence[Op]) -> None:
        if self.is_busy:
            self.is_busy = False
            seal(self)
            self.is_busy = True
        super().multi(ops)


def seal(metastore: SqliteMetastore) -> None:
    record = open_segments(load(metastore, TABLE))[0]
    end = record.start_offset + 10
    proposed = End(segment=record.name, offset=end, sealer=SERVER, now_ms=1)
    mutate(metastore, TABLE, lambda view: transactions.propose_end(view, proposed))
    file = SegmentRecord(name=record.name, crc=record.sequence + 1, size_bytes=1, url="", total_docs=10)
    sealed = SealedSegment(
        segment=record.name, start_offset=record.start_offset, end_offset=end, file=file, sealer=SERVER, now_ms=1
    )
    mutate(metastore, TABLE, lambda view: transactions.commit(view, sealed))


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[BusyMetastore]:
    metastore = BusyMetastore(tmp_path / "meta.db")
    put_table(metastore, MANIFEST)
    begin = Begin(partition=0, offset=0, servers=(SERVER,))
    mutate(metastore, TABLE, lambda view: transactions.begin(view, [begin], "{}", 1))
    yield metastore
    metastore.close()


def test_segments_are_compacted_though_others_are_sealed_all_the_time(metastore: BusyMetastore) -> None:
    for _ in range(3):
        seal(metastore)
    segments = load(metastore, TABLE).stream_segments
    decided = tuple(record.model_copy(update={"upsert": '{"mode":"FULL"}'}) for record in segments)
    mutate(metastore, TABLE, lambda _: [PutSegments(decided, {record.name: record.crc for record in decided})])
    first = segments[0].key_text
    register(metastore, InstanceRecord(id=SERVER, role=Role.SERVER, host="h"))

    def report(*unsettled: str) -> None:
        state = UpsertProgress(replaced={first: 6}, unsettled=unsettled)
        partitions = (PartitionProgress(partition=0, upsert=state),)
        write_progress(metastore, TABLE, ProgressRecord(instance=SERVER, at_ms=1, partitions=partitions))

    metastore.create(paths.lease("controller"), b"")
    loop = CompactionLoop(metastore, SystemClock(), lambda: Check(paths.lease("controller"), 0))
    report(first)
    loop.round()
    assert queue.list_tasks(metastore, UPSERT_COMPACTION) == {}, "nobody can tell its valid docs yet"
    report()
    unread = [paths.task(UPSERT_COMPACTION, f"{TABLE}-1"), paths.task(UPSERT_COMPACTION, "other_OFFLINE-1")]
    for path in unread:
        metastore.create(path, b"{")
    loop.round()
    assert len(metastore.children(paths.tasks(UPSERT_COMPACTION))) == 2, "it is not known which segments its task has"
    metastore.delete(unread[0])
    before = load(metastore, TABLE).version
    metastore.is_busy = True
    loop.round()
    assert load(metastore, TABLE).version > before
    tasks = queue.list_readable(metastore, UPSERT_COMPACTION)[0].values()
    assert [compaction_config(task.record).segment for task in tasks] == [first]
    metastore.is_busy = False
    config = metastore.get(paths.table_config(TABLE))
    assert config is not None
    metastore.put(paths.table_config(TABLE), b"{", config.version)
    loop.round()
    states = [task.record.state for task in queue.list_readable(metastore, UPSERT_COMPACTION)[0].values()]
    assert states == [queue.TaskState.QUEUED], "a table whose record is damaged is left alone"

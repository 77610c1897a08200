"""A table with a stream, and files for its segments."""

from __future__ import annotations

from pathlib import Path

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.transactions import Begin, End, SealedSegment
from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView, load
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables

TABLE = TableName("t_OFFLINE")
SERVERS = (InstanceId("Server_a_1"), InstanceId("Server_b_1"))
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {replication: 2, schema: {fields: [{name: a, type: INT}]}}
""")[0]
NOW_MS = 1_700_000_000_000
PINNED = '{"settings": 1}'


def make_store(folder: Path) -> SqliteMetastore:
    store = SqliteMetastore(folder / "meta.db")
    tables.put_table(store, MANIFEST)
    return store


def begin(store: Metastore, *offsets: int, paused: bool = False) -> TableView:
    """A partition for each offset."""
    begins = [Begin(partition=number, offset=offset, servers=SERVERS) for number, offset in enumerate(offsets)]
    return mutate(store, TABLE, lambda view: transactions.begin(view, begins, PINNED, NOW_MS, paused=paused))


def opened(store: Metastore, partition: int = 0) -> StreamSegmentRecord:
    return open_segments(load(store, TABLE))[partition]


def end_of(record: StreamSegmentRecord, offset: int, sealer: InstanceId = SERVERS[0], **more: int) -> End:
    return End(segment=record.name, offset=offset, sealer=sealer, now_ms=NOW_MS, **more)


def file_of(record: StreamSegmentRecord, docs: int, crc: int, upload: str = "u") -> SegmentRecord:
    return SegmentRecord(
        name=record.name,
        crc=crc,
        size_bytes=docs,
        url=f"file:///d/{TABLE}/{record.name}.{upload}.mseg",
        total_docs=docs,
        start_time_ms=1,
        end_time_ms=2,
    )


def sealed(
    record: StreamSegmentRecord, end: int, *, crc: int = 7, upload: str = "u", sealer: InstanceId = SERVERS[0]
) -> SealedSegment:
    """As many rows as offsets, so none if it ends where it starts."""
    docs = end - record.start_offset
    return SealedSegment(
        segment=record.name,
        start_offset=record.start_offset,
        end_offset=end,
        file=file_of(record, docs, crc, upload) if docs else None,
        sealer=sealer,
        now_ms=NOW_MS + 60_000,
    )

"""Tables that the metastore has lost: the deep store remembers segments of them that the metastore does not.

The leading controller keeps a table's catalog beside the table's files. The catalog contradicts a metastore that is
empty, that is a different metastore, or that was restored from an older copy. Then the table is marked here, and stays
marked until somebody recovers it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from merlot.cluster import paths
from merlot.cluster.record import PackedRecord, Record
from merlot.cluster.records import (
    ConsumingStatus,
    SegmentRecord,
    StreamSegmentRecord,
    StreamStateRecord,
)
from merlot.errors import NotFoundError
from merlot.ids import TableName, raw_name
from merlot.metastore.protocol import Check, Create, Metastore


class CatalogRecord(PackedRecord):
    """Records of a table, in a file beside those of its segments."""

    store_id: str
    """Id of the metastore that the catalog was written from."""
    created_ms: int
    """Time when the table was created, by its record there."""
    epoch: int
    """Epoch of the table's root."""
    num_segments: int
    total_docs: int
    has_stream: bool = False
    records: tuple[SegmentRecord, ...] = ()
    """Records of visible segments, without those of `stream_segments`."""
    stream_segments: tuple[StreamSegmentRecord, ...] = ()
    """Visible segments of the stream's partitions, and the open segments, which say where to resume reading."""
    topic_id: str = ""
    """Id of the topic that the offsets belong to; empty if the stream has none. Older releases read it here."""
    stream: StreamStateRecord | None = None
    """State of the table's stream; None in catalogs of older releases, and of tables without a stream."""
    edition: str = ""
    """Id of the whole catalog; each whole catalog has its own. Changes name the catalog that they belong to."""

    @property
    def stream_state(self) -> StreamStateRecord:
        """State of the stream; derived from the segments in a catalog of an older release."""
        if self.stream is not None:
            return self.stream
        firsts: dict[int, int] = {}
        for segment in self.stream_segments:
            firsts[segment.partition] = min(segment.start_offset, firsts.get(segment.partition, segment.start_offset))
        opened = [segment.status for segment in self.stream_segments if segment.is_open]
        is_paused = bool(opened) and all(status == ConsumingStatus.PAUSED for status in opened)
        return StreamStateRecord(topic_id=self.topic_id, starts=firsts, is_paused=is_paused)


class CatalogChanges(CatalogRecord):
    """Changes since a whole catalog was written, in a file beside it: records that are new or have changed, and all
    fields of the catalog other than records. Older releases read only the whole catalog, which is older."""

    removed: tuple[str, ...] = ()
    """Names of segments that the table no longer has."""

    def applied_to(self, whole: CatalogRecord) -> CatalogRecord:
        """Return the catalog with these changes, or `whole` if they belong to another catalog."""
        if not self.edition or self.edition != whole.edition:
            return whole
        gone = {*self.removed, *(record.name for record in (*self.records, *self.stream_segments))}
        update = {name: getattr(self, name) for name in CatalogRecord.model_fields} | {
            "records": (*(record for record in whole.records if record.name not in gone), *self.records),
            "stream_segments": (
                *(record for record in whole.stream_segments if record.name not in gone),
                *self.stream_segments,
            ),
        }
        return whole.model_copy(update=update)


class LostRecord(Record):
    """Counts of what a table has lost."""

    num_segments: int
    total_docs: int
    reason: str
    since_ms: int

    def to_text(self, table: TableName) -> str:
        """Say in one line what is lost, and what to do."""
        return (
            f"{self.reason}: {self.num_segments} segments of {self.total_docs} rows are in the deep store; "
            f"run merlot recover {raw_name(table)}"
        )


def store_id(metastore: Metastore) -> str | None:
    """Return the unique id of this metastore; None until a controller has looked at its tables."""
    node = metastore.get(paths.STORE_ID)
    return None if node is None else node.data.decode("ascii", "replace")


def name_store(metastore: Metastore, own_id: str, fence: Check) -> None:
    """Set the id of the metastore, so that catalogs can tell it from every other one."""
    metastore.multi([fence, Create(paths.STORE_ID, own_id.encode())])


def find_lost(metastore: Metastore, table: TableName) -> LostRecord | None:
    """Return the record of a table's loss; None if nothing is missing."""
    path = paths.lost(table)
    node = metastore.get(path)
    return None if node is None else LostRecord.from_bytes(node.data, path)


def lost_tables(metastore: Metastore) -> Collection[TableName]:
    """Return the tables that have lost something."""
    return {TableName(name) for name in metastore.children(paths.LOST)}


def mark_lost(metastore: Metastore, table: TableName, lost: LostRecord, fence: Check) -> None:
    """Mark the table, so that its queries are refused; a table that is marked stays as it is."""
    if metastore.get(paths.lost(table)) is None:
        metastore.multi([fence, Create(paths.lost(table), lost.to_bytes())])


def forget_lost(metastore: Metastore, table: TableName) -> None:
    """Remove the mark: the table is whole again, or its loss is accepted."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.lost(table))

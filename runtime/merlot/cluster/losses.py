"""Tables that the metastore has lost: the deep store remembers segments that it does not.

Beside a table's files lies its catalog, as the leading controller wrote it last. A metastore that is empty, that is
another one, or that was restored from an older copy contradicts it; then the table is marked here, and stays so until
somebody recovers it.
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
    """The records of a table, in a file beside those of its segments."""

    store_id: str
    """Id of the metastore that wrote it."""
    created_ms: int
    """When the table was created, by its record there."""
    epoch: int
    """The epoch of the table's root."""
    num_segments: int
    total_docs: int
    has_stream: bool = False
    records: tuple[SegmentRecord, ...] = ()
    """Records of visible segments, without those of `stream_segments`."""
    stream_segments: tuple[StreamSegmentRecord, ...] = ()
    """Visible segments of the stream's partitions, with the open ones, which tell where to read on."""
    topic_id: str = ""
    """Id of the topic that the offsets belong to; empty if the stream does not tell it. Older releases read it here."""
    stream: StreamStateRecord | None = None
    """State of the table's stream; None in catalogs of older releases, and of tables without a stream."""
    edition: str = ""
    """New with every whole catalog; changes name the one that they belong to."""

    @property
    def stream_state(self) -> StreamStateRecord:
        """The state of the stream; of an older catalog, as far as its segments tell it."""
        if self.stream is not None:
            return self.stream
        firsts: dict[int, int] = {}
        for one in self.stream_segments:
            firsts[one.partition] = min(one.start_offset, firsts.get(one.partition, one.start_offset))
        opened = [one.status for one in self.stream_segments if one.is_open]
        is_paused = bool(opened) and all(status == ConsumingStatus.PAUSED for status in opened)
        return StreamStateRecord(topic_id=self.topic_id, starts=firsts, is_paused=is_paused)


class CatalogChanges(CatalogRecord):
    """Changes since a whole catalog was written, in a file beside it: the records that are new or others now,
    and everything that a catalog says beside records. Older releases read the whole catalog alone, which is older."""

    removed: tuple[str, ...] = ()
    """Names of segments that the table has no more."""

    def applied_to(self, whole: CatalogRecord) -> CatalogRecord:
        """Return the catalog as it is now; `whole`, if these changes belong to another one."""
        if not self.edition or self.edition != whole.edition:
            return whole
        gone = {*self.removed, *(one.name for one in (*self.records, *self.stream_segments))}
        update = {name: getattr(self, name) for name in CatalogRecord.model_fields} | {
            "records": (*(one for one in whole.records if one.name not in gone), *self.records),
            "stream_segments": (
                *(one for one in whole.stream_segments if one.name not in gone),
                *self.stream_segments,
            ),
        }
        return whole.model_copy(update=update)


class LostRecord(Record):
    """A count of what is missing of a table."""

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
    """The name of this metastore, which no other one has; None until a controller has looked at its tables."""
    node = metastore.get(paths.STORE_ID)
    return None if node is None else node.data.decode("ascii", "replace")


def name_store(metastore: Metastore, own_id: str, fence: Check) -> None:
    """Name the metastore, so that catalogs can tell it from every other one."""
    metastore.multi([fence, Create(paths.STORE_ID, own_id.encode())])


def find_lost(metastore: Metastore, table: TableName) -> LostRecord | None:
    """Find the record of what a table has lost; None if nothing is missing."""
    path = paths.lost(table)
    node = metastore.get(path)
    return None if node is None else LostRecord.from_bytes(node.data, path)


def lost_tables(metastore: Metastore) -> Collection[TableName]:
    """Tables of which something is missing."""
    return {TableName(name) for name in metastore.children(paths.LOST)}


def mark_lost(metastore: Metastore, table: TableName, lost: LostRecord, fence: Check) -> None:
    """Have nobody answer for the table; one that is marked stays as it is."""
    if metastore.get(paths.lost(table)) is None:
        metastore.multi([fence, Create(paths.lost(table), lost.to_bytes())])


def forget_lost(metastore: Metastore, table: TableName) -> None:
    """The table is whole again, or as somebody wants it."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.lost(table))

"""Compact a segment of an upsert partition whose keys expire: the valid docs come from the partition's checkpoint in
the deep store.

A server that rebuilds the index begins with that checkpoint. So one change of the table's root replaces both the
segment's file and its snapshot, which have the same docs. If the root names a later checkpoint by then, which has fewer
valid docs, the snapshot is made again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import CorruptionError, NotFoundError
from merlot.ids import TableName
from merlot.store.deepstore import DeepStore
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.rewriting import renumbered
from merlot.upsert.snapshots import decode, encode, file_name

Longs = NDArray[np.int64]


def snapshot_of(store: DeepStore, record: StreamSegmentRecord) -> SegmentSnapshot:
    """Read the snapshot that the record names. Raise CorruptionError if it is gone, as after a later checkpoint, or if
    it is of another file."""
    try:
        snapshot = store.read(record.snapshot_url, partial(decode, record.key_text))
    except NotFoundError as error:
        raise CorruptionError(f"snapshot is gone segment={record.key_text}") from error
    if snapshot.num_docs != record.total_docs:
        raise CorruptionError(f"snapshot is of another file segment={record.key_text} docs={snapshot.num_docs}")
    return snapshot


def valid_docs(snapshot: SegmentSnapshot) -> Longs:
    """Return the doc ids of live rows and of tombstones, ascending."""
    docs = snapshot.docs()
    return np.sort(np.concatenate([docs.live.docs(), docs.tombstones.docs()]))


def upload_renumbered(
    store: DeepStore, table: TableName, snapshot: SegmentSnapshot, docs: Longs, key: str, folder: Path
) -> str | None:
    """Upload the snapshot for a file that holds only these docs; return its URL, or None if the file lacks a valid
    doc."""
    renumbered_snapshot = renumbered(snapshot, docs)
    if renumbered_snapshot is None:
        return None
    data = encode(key, renumbered_snapshot)
    name = file_name(key, data)
    (folder / name).write_bytes(data)
    url = store.url_below(table, SNAPSHOT_FOLDER, name)
    store.put(folder / name, url)
    return url

"""A compaction where a time to live decides rows: the partition's checkpoint in the deep store says which are valid.

Whoever builds the index anew begins with that checkpoint, so a segment's new file and its snapshot of the same docs are
named together. A later checkpoint that was named meanwhile has fewer valid docs, and its snapshot is made anew.
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
    """The snapshot that the record names; raises CorruptionError if it is not there, as when a later one was named."""
    try:
        found = store.read(record.snapshot_url, partial(decode, record.key_text))
    except NotFoundError as error:
        raise CorruptionError(f"snapshot is gone segment={record.key_text}") from error
    if found.num_docs != record.total_docs:
        raise CorruptionError(f"snapshot is of another file segment={record.key_text} docs={found.num_docs}")
    return found


def valid_docs(snapshot: SegmentSnapshot) -> Longs:
    """Docs that are shown, and those that delete their keys, ascending."""
    docs = snapshot.docs()
    return np.sort(np.concatenate([docs.live.docs(), docs.tombstones.docs()]))


def put_moved(
    store: DeepStore, table: TableName, snapshot: SegmentSnapshot, kept: Longs, key: str, folder: Path
) -> str | None:
    """Upload the snapshot for the file that has the kept docs; returns its address, None if the file lacks a doc."""
    moved = renumbered(snapshot, kept)
    if moved is None:
        return None
    data = encode(key, moved)
    name = file_name(key, data)
    (folder / name).write_bytes(data)
    url = store.url_below(table, SNAPSHOT_FOLDER, name)
    store.put(folder / name, url)
    return url

"""Send files that were uploaded and will not be named by a record to the trash.

Only the cleaner deletes a segment's file (see `condemned`). A process that lists and deletes files itself may freeze in
between, and wake when another process has published a file of the same name.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from merlot.clock import Clock
from merlot.cluster.records import TrashRecord
from merlot.cluster.segments.commit import trash_nodes
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Create, Metastore


def discard(
    metastore: Metastore,
    table: TableName,
    urls: Sequence[str],
    *,
    fence: Check,
    clock: Clock,
    deep_store: str | None = None,
) -> None:
    """Let the cleaner delete these files, unless a record names them by then or they are written again.

    Raise ConflictError if the fence is lost. `deep_store`: URI of the table's own deep store, if it names one."""
    files = TrashRecord(deleted_ms=clock.now_ms(), urls=tuple(urls), deep_store=deep_store)
    for path, data in trash_nodes(table, f"discarded.{secrets.token_hex(8)}", files).items():
        metastore.multi([fence, Create(path, data)])

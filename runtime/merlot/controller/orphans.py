"""Finds files that nobody will ever name: uploads of jobs that failed before they published.

A file is an orphan if no record names it, no list in the trash does, no replacement under way is about to, and it has
lain there for so long that no job can still be working. It goes to the trash, so that all that `trash` takes care of
holds for it too.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import PurePosixPath

from merlot.clock import Clock
from merlot.cluster.commit import trash_nodes
from merlot.cluster.lineage import list_entries
from merlot.cluster.metastore import Check, Create, Metastore
from merlot.cluster.records import LineageState
from merlot.cluster.view import load
from merlot.controller.trash import OpenFiles, declared_store, trash_lists, urls_in_use
from merlot.errors import InvalidInputError
from merlot.ids import SegmentKey, TableName

_LOG = logging.getLogger(__name__)


def collect_orphans(
    metastore: Metastore, table: TableName, open_files: OpenFiles, clock: Clock, *, grace_ms: int, fence: Check
) -> int:
    """Move the table's orphaned files to the trash; returns how many. Lists the table's files: call it rarely."""
    store = declared_store(metastore, table)
    files = open_files(store)
    # Files first: what is published while this looks around was there before, or is not in the list.
    present = files.list(table)
    named = urls_in_use(metastore, table) | {url for _, one in trash_lists(metastore, table) for url in one.urls}
    awaited = _awaited(metastore, table)
    oldest_ms = clock.now_ms() - grace_ms
    orphans = []
    for url in present:
        if url not in named and _name(url) not in awaited:
            modified_ms = files.modified_ms(url)
            if modified_ms is not None and modified_ms <= oldest_ms:
                orphans.append(url)
    if orphans:
        epoch = load(metastore, table).epoch
        nodes = trash_nodes(table, f"{epoch}.{secrets.token_hex(5)}", orphans, clock, store)
        for path, data in nodes.items():
            metastore.multi([fence, Create(path, data)])
        _LOG.info("orphaned files go to the trash table=%s num_files=%d first=%s", table, len(orphans), orphans[0])
    return len(orphans)


def _awaited(metastore: Metastore, table: TableName) -> set[str]:
    """Names of outputs that may be uploaded and not published yet."""
    under_way = (one for one in list_entries(metastore, table) if one.state is not LineageState.COMPLETED)
    return {name for one in under_way for name in one.segments_to}


def _name(url: str) -> str:
    try:
        return SegmentKey.parse(PurePosixPath(url).stem).name
    except InvalidInputError:
        return ""

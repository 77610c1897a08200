"""Finds files that nobody will ever name: uploads of jobs that failed before they published, and what shards of tasks
left that are no more.

A file is an orphan if no record names it, no list in the trash does, no replacement under way or task that waits is
about to, and it has lain there for so long that no job can still be working. It goes to the trash, so that all that
`trash` takes care of holds for it too.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import dataclass
from pathlib import PurePosixPath

from merlot.clock import Clock
from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER
from merlot.cluster.lineage.replacements import list_entries
from merlot.cluster.records import LineageState
from merlot.cluster.segments.discarding import discard
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.controller.cleaning.trash import OpenFiles, declared_store, trash_lists, urls_in_use
from merlot.errors import InvalidInputError
from merlot.ids import SegmentKey, TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.uris import canonical

_LOG = logging.getLogger(__name__)


def collect_orphans(
    metastore: Metastore, table: TableName, open_files: OpenFiles, clock: Clock, *, grace_ms: int, fence: Check
) -> int:
    """Move the table's orphaned files to the trash; returns how many. Lists the table's files: call it rarely."""
    store = declared_store(metastore, table)
    files = open_files(store)
    # Files first: what is published while this looks around was there before, or is not in the list.
    present = [*files.list(table)]
    for folder in (SHUFFLE_FOLDER, SNAPSHOT_FOLDER):
        present += files.list_below(table, folder)
    claims = _claims(metastore, table)
    listed = {canonical(url) for _, one in trash_lists(metastore, table) for url in one.urls}
    named = urls_in_use(metastore, table) | listed
    oldest_ms = clock.now_ms() - grace_ms
    orphans = []
    for url in present:
        if canonical(url) not in named and not claims.hold(url):
            modified_ms = files.modified_ms(url)
            if modified_ms is not None and modified_ms <= oldest_ms:
                orphans.append(url)
    if orphans:
        discard(metastore, table, orphans, fence=fence, clock=clock, deep_store=store)
        _LOG.info("orphaned files go to the trash table=%s num_files=%d first=%s", table, len(orphans), orphans[0])
    return len(orphans)


@dataclass(frozen=True)
class _Claims:
    """Files that may be uploaded and not published yet."""

    entries: Set[str]
    """Replacements whose shards may go on."""
    outputs: Set[str]
    """Names of segments."""
    prefixes: tuple[str, ...]
    """Of the names of segments that tasks will make."""

    def hold(self, url: str) -> bool:
        """Whether somebody may still need the file."""
        _, is_shared, rest = url.partition(f"/{SHUFFLE_FOLDER}/")
        if is_shared:
            return rest.partition("/")[0] in self.entries
        name = _name(url)
        return name in self.outputs or name.startswith(self.prefixes)


def _claims(metastore: Metastore, table: TableName) -> _Claims:
    queued = [
        one.record for one in queue.list_tasks(metastore, queue.MERGE_ROLLUP).values() if one.record.table == table
    ]
    configs = [queue.merge_config(record) for record in queued]
    under_way = [one for one in list_entries(metastore, table) if one.state is not LineageState.COMPLETED]
    return _Claims(
        entries={one.entry for one in configs} | {one.id for one in under_way},
        outputs={name for one in under_way for name in one.segments_to},
        prefixes=tuple(f"{prefix}_" for one in configs for prefix in (one.output_prefix, one.rest_prefix) if prefix),
    )


def _name(url: str) -> str:
    try:
        return SegmentKey.parse(PurePosixPath(url).stem).name
    except InvalidInputError:
        return ""

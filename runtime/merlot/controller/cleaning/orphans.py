"""Search for files that nothing will ever name: uploads of jobs that failed before they published, and shuffle files of
tasks that are gone.

A file is an orphan if no record and no list in the trash names it, no replacement under way or waiting task is about to
name it, and it is so old that no job can still be working on it. It goes to the trash, so that all precautions of
`trash` hold for it too.
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
    """Move the table's orphaned files to the trash; return their number. This lists the table's files: call it
    rarely."""
    store = declared_store(metastore, table)
    files = open_files(store)
    # Files are listed before names are read: a listed file that is published meanwhile is among the names.
    present = [*files.list(table)]
    for folder in (SHUFFLE_FOLDER, SNAPSHOT_FOLDER):
        present += files.list_below(table, folder)
    claims = _claims(metastore, table)
    listed = {canonical(url) for _, record in trash_lists(metastore, table) for url in record.urls}
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
    """Files that may have been uploaded but not published yet."""

    entries: Set[str]
    """Replacements whose tasks may still use their shuffle files."""
    outputs: Set[str]
    """Names of segments that replacements under way are about to publish."""
    prefixes: tuple[str, ...]
    """Prefixes of the names of segments that tasks will make."""

    def hold(self, url: str) -> bool:
        """Return whether a task or a replacement may still need the file."""
        _, is_shared, rest = url.partition(f"/{SHUFFLE_FOLDER}/")
        if is_shared:
            return rest.partition("/")[0] in self.entries
        name = _name(url)
        return name in self.outputs or name.startswith(self.prefixes)


def _claims(metastore: Metastore, table: TableName) -> _Claims:
    queued = [
        task.record for task in queue.list_tasks(metastore, queue.MERGE_ROLLUP).values() if task.record.table == table
    ]
    configs = [queue.merge_config(record) for record in queued]
    under_way = [entry for entry in list_entries(metastore, table) if entry.state is not LineageState.COMPLETED]
    return _Claims(
        entries={config.entry for config in configs} | {entry.id for entry in under_way},
        outputs={name for entry in under_way for name in entry.segments_to},
        prefixes=tuple(
            f"{prefix}_" for config in configs for prefix in (config.output_prefix, config.rest_prefix) if prefix
        ),
    )


def _name(url: str) -> str:
    try:
        return SegmentKey.parse(PurePosixPath(url).stem).name
    except InvalidInputError:
        return ""

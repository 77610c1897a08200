"""Undo what a merge task has begun: its replacement, the files that its shards share, and uploads that no record names.

The undoing process may be frozen between any two steps and wake after another minion has done the same work under the
same names. So every change of the metastore carries the task's lease; segment files go to the trash in such a write;
and only shared files of shards, which can be made again, are deleted here, after a check of the lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster.lineage import replacements
from merlot.cluster.records import LineageState
from merlot.cluster.segments.discarding import discard
from merlot.cluster.segments.transaction import WriteContext
from merlot.cluster.segments.view import load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import MergeTaskConfig, TaskRecord, TaskState
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.errors import ConflictError, NotFoundError
from merlot.metastore.protocol import Metastore
from merlot.minion import merge_plans
from merlot.minion.control import TaskControl
from merlot.minion.shards import ShardFiles
from merlot.store.deepstore import DeepStore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """Work that one task has begun."""

    metastore: Metastore
    clock: Clock
    task: TaskRecord
    config: MergeTaskConfig
    store: DeepStore
    declared_store: str | None
    """URI of the deep store that the table names for itself."""
    control: TaskControl

    def undo(self) -> None:
        """Undo all of it, unless the replacement is complete."""
        entry = replacements.find_entry(self.metastore, self.task.table, self.config.entry)
        self.control.reached("undo begun")
        if entry is not None and entry.state is LineageState.COMPLETED:
            self.remove_shuffled()
            return
        if entry is not None and entry.state is LineageState.IN_PROGRESS:
            context = WriteContext(clock=self.clock)
            replacements.revert_replacement(
                self.metastore, self.task.table, self.config.entry, fence=self.control.fence, context=context
            )
            self.control.reached("entry reverted")
        if self.task.state is TaskState.POISONED:
            # The bucket may be merged again once the tasks of the other shards are gone: their outputs stay.
            is_last = False
            if self.config.shard is not None:
                self._check_lease()
                self._shards.forget_outputs(self.config.shard)
        else:
            is_last = self.config.num_shards == 1 or not self._siblings()
            if is_last:
                self.remove_shuffled()
            elif self.config.shard is not None:
                self._check_lease()
                self._shards.remove([self.config.shard])
        self.control.reached("shuffle removed")
        self._discard_unnamed(is_last=is_last)

    def remove_shuffled(self) -> None:
        """Delete files that shards share, and those of abandoned shuffles."""
        if self.config.num_shards > 1:
            # Listed before the check of the lease, so that files that others upload later are not in the list.
            urls = self.store.list_below(self.task.table, f"{SHUFFLE_FOLDER}/{self.config.entry}")
            self._check_lease()
            for url in urls:
                self.store.delete(url)

    @property
    def _shards(self) -> ShardFiles:
        return ShardFiles(self.store, self.task.table, self.config.entry, self.config.shuffle)

    def _check_lease(self) -> None:
        """Raise ConflictError unless the lease is held, before a change that cannot carry a fence: another minion may
        have begun the same work again."""
        if not self.control.lease.is_held(self.metastore):
            raise ConflictError(f"lease is lost, the task is another minion's task={self.task.id}")

    def _siblings(self) -> list[str]:
        """Return other tasks that are queued for the same entry."""
        base = self.task.id.rpartition("-")[0] if self.config.shard is not None else self.task.id
        queued = queue.list_tasks(self.metastore, self.task.kind)
        return [id_ for id_ in queued if id_ != self.task.id and (id_ == base or id_.startswith(f"{base}-"))]

    def _discard_unnamed(self, *, is_last: bool) -> None:
        """Discard outputs that were uploaded and never published: this task's, or the whole entry's if this is its last
        task."""
        prefixes = [self.config.output_prefix if is_last else merge_plans.output_prefix(self.config)]
        if self.config.rest_prefix and (is_last or self.config.shard in (None, 0)):
            prefixes.append(self.config.rest_prefix)
        try:
            named = {record.url for record in load(self.metastore, self.task.table).segments.values()}
        except NotFoundError:
            return
        names = tuple(f"{prefix}_" for prefix in prefixes)
        urls = self.store.list(self.task.table)
        unnamed = [url for url in urls if url not in named and url.rpartition("/")[2].startswith(names)]
        self.control.reached("files listed")
        if unnamed:
            discard(
                self.metastore,
                self.task.table,
                unnamed,
                fence=self.control.fence,
                clock=self.clock,
                deep_store=self.declared_store,
            )
            _LOG.info("unpublished files go to the trash task=%s num_files=%d", self.task.id, len(unnamed))
        self.control.reached("files discarded")

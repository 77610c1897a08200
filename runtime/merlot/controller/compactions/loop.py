"""The leader's loop that makes tasks to rewrite segments of upsert tables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.consuming.answering import Reports, by_rows, is_everywhere
from merlot.cluster.consuming.commits import finish_merge
from merlot.cluster.consuming.merged import taken
from merlot.cluster.consuming.progress import ProgressRecord, UpsertProgress, read_progress
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.losses import lost_tables
from merlot.cluster.manifests.tables import readable_tables, spec_of
from merlot.cluster.manifests.upserts import upserting_of
from merlot.cluster.records import Role, TableRecord
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.compactions import UPSERT_COMPACTION, compaction_config, forget_valid_docs, table_of
from merlot.cluster.tasks.queue import QueuedTask, TaskState
from merlot.controller.compactions.generator import CompactionSituation, generate
from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.ids import SegmentKey, TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.spec.upserting import CompactionSpec
from merlot.wakeups import OwnThread

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class CompactionLoop:
    """Loop that makes the tasks. `fence` returns None unless this controller leads; the loop's writes depend on the
    check that it returns."""

    def __init__(self, metastore: Metastore, clock: Clock, fence: Callable[[], Check | None]) -> None:
        self._metastore = metastore
        self._clock = clock
        self._fence = fence
        self._views: dict[TableName, TableView] = {}

    async def run(self) -> None:
        """Make tasks until cancelled."""
        with OwnThread("compaction-round") as thread:
            while True:
                await thread.run(self.round)
                await asyncio.sleep(LOOK_S)

    def round(self) -> None:
        """Look at everything once. Blocks; never raises."""
        try:
            fence = self._fence()
            if fence is not None:
                self._act(fence)
        except MerlotError as error:
            _LOG.info("round of compactions ends cause=%s", error)
        except Exception:  # noqa: BLE001 - the outermost loop: without it nothing would be compacted any more
            _LOG.exception("round of compactions failed by a bug")

    def _act(self, fence: Check) -> None:
        tables, unreadable = readable_tables(self._metastore)
        tasks: dict[TableName, list[QueuedTask]] = defaultdict(list)
        readable, damaged = queue.list_readable(self._metastore, UPSERT_COMPACTION)
        for task in readable.values():
            tasks[task.record.table].append(task)
        self._forget_valid_docs({*readable, *damaged})
        for table in self._views.keys() - tables.keys() - unreadable:
            del self._views[table]
        for task_id, error in damaged.items():
            _LOG.warning("table is not compacted, one of its tasks cannot be read task=%s cause=%s", task_id, error)
        held = {table_of(task_id) for task_id in damaged}  # it is not known which segments these tasks hold
        for table in {*tables, *tasks}.difference(lost_tables(self._metastore), unreadable, held):
            try:
                self._step(table, tables.get(table), tasks[table], fence)
            except MerlotError as error:
                _LOG.info("table is not compacted now table=%s cause=%s", table, error)

    def _step(self, table: TableName, record: TableRecord | None, tasks: Sequence[QueuedTask], fence: Check) -> None:
        spec = self._spec_of(record)
        if not tasks and (record is None or not _is_upsert_stream(record)):
            return
        view = None if record is None else load(self._metastore, table, self._views.get(table))
        if view is not None:
            self._views[table] = view
            self._finish(view, fence)
        for task in tasks:
            if task.record.state is not TaskState.CANCELLED and _is_doomed(task, spec, view):
                with contextlib.suppress(ConflictError, NotFoundError):
                    queue.cancel(self._metastore, task, fence)
        if spec is not None and not spec.suspend and view is not None:
            self._queue(spec, view, tasks, fence)

    def _queue(self, spec: CompactionSpec, view: TableView, tasks: Sequence[QueuedTask], fence: Check) -> None:
        progress = read_progress(self._metastore, view.table)
        live = live_instances(self._metastore, Role.SERVER)
        situation = CompactionSituation(
            spec=spec,
            view=view,
            replaced=_replaced(progress.values()),
            unsettled=_unsettled([record for server, record in progress.items() if server in live]),
            queued={task.record.id for task in tasks},
            busy={key for task in tasks if _is_queued(task) for key in compaction_config(task.record).segments},
            by_rows=by_rows(self._reports(view.table)),
            num_running=sum(map(_is_queued, tasks)),
            now_ms=self._clock.now_ms(),
        )
        new_tasks = generate(situation)
        if new_tasks:
            # The view may be old by now: a partition seals segments at any time. A minion checks what it is to rewrite.
            self._metastore.multi([fence, *(queue.creation(task) for task in new_tasks)])
        for task in new_tasks:
            _LOG.info("compaction queued table=%s segment=%s", task.table, task.config["segment"])

    def _finish(self, view: TableView, fence: Check) -> None:
        """Remove segments that were merged into another one once every server answers from that one."""
        merged = {record.key: record for record in taken(view.stream_segments).values()}
        if not merged:
            return
        reports, live = self._reports(view.table), live_instances(self._metastore, Role.SERVER)
        for key, record in merged.items():
            if is_everywhere(record, reports, view, live):
                finish_merge(self._metastore, view.table, key, fence)
                _LOG.info("segments were merged table=%s segment=%s", view.table, key)

    def _reports(self, table: TableName) -> Reports:
        return {server: report.loaded for server, report in ReportReader(self._metastore, table).read().items()}

    def _spec_of(self, record: TableRecord | None) -> CompactionSpec | None:
        """Return the settings of a table's compaction; None if nothing of the table is to be rewritten."""
        table = None if record is None else spec_of(record).spec
        if table is None or table.upsert is None or table.suspend:
            return None
        upsert = upserting_of(self._metastore, table).spec
        return None if upsert is None else upsert.compaction

    def _forget_valid_docs(self, queued: set[str]) -> None:
        for task in self._metastore.children(paths.VALID_DOCS):
            if task not in queued:
                forget_valid_docs(self._metastore, task)


def _replaced(progress: Iterable[ProgressRecord]) -> Mapping[str, int]:
    """Return the number of replaced docs by segment, as replicas reported it. Reports of dead servers count: they stay
    true."""
    counts: dict[str, int] = {}
    for replicas in _upsert_states(progress).values():
        for key, count in (pair for replica in replicas for pair in replica.replaced.items()):
            counts[key] = max(count, counts.get(key, 0))
    return counts


def _unsettled(progress: Iterable[ProgressRecord]) -> set[str]:
    """Return the segments whose valid docs no replica can tell yet."""
    keys: set[str] = set()
    for replicas in _upsert_states(progress).values():
        keys |= frozenset.intersection(*(frozenset(replica.unsettled) for replica in replicas))
    return keys


def _upsert_states(progress: Iterable[ProgressRecord]) -> Mapping[int, list[UpsertProgress]]:
    """Return the states of the key indexes of each partition's replicas."""
    states: dict[int, list[UpsertProgress]] = defaultdict(list)
    for partition in (partition for record in progress for partition in record.partitions):
        if partition.upsert is not None:
            states[partition.partition].append(partition.upsert)
    return states


def _is_doomed(task: QueuedTask, spec: CompactionSpec | None, view: TableView | None) -> bool:
    """Return whether nobody wants the task any more, or it failed and its segment has been replaced by now."""
    if spec is None or view is None or spec.suspend:
        return True
    if task.record.state is not TaskState.POISONED:
        return False  # its minion decides
    for key in map(SegmentKey.parse, compaction_config(task.record).segments):
        record = view.segment(key.name)
        if record is None or record.crc != key.crc:
            return True
    return False


def _is_queued(task: QueuedTask) -> bool:
    """Return whether the task waits or runs."""
    return task.record.state is TaskState.QUEUED


def _is_upsert_stream(record: TableRecord) -> bool:
    spec = spec_of(record).spec
    return spec.upsert is not None and spec.ingestion.stream is not None

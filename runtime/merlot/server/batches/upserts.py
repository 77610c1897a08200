"""Upsert table of batches on one server: brings each partition to the edition that the table consists of.

Runs on the event loop, except for what a thread computes. A partition moves on once every segment of its next edition
is loaded; until then, and while its index is built, the editions before it answer. Brokers change from one edition to
the next when some server reports it (`answerable`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, UpsertProgress, write_progress
from merlot.cluster.manifests.upserts import Upserting
from merlot.cluster.segments.editions import Edition, editions_of, partitioning_of
from merlot.cluster.segments.view import TableView
from merlot.errors import MerlotError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.segment.reader import Segment
from merlot.server.batches.index import PartitionIndex, StoppedError, deciding
from merlot.server.batches.views import EditionReadView, EditionView
from merlot.server.realtime.key_memory import KeyMemory
from merlot.server.realtime.partition_check import misplaced
from merlot.server.tables import TableSegments
from merlot.spec.table import TableSpec
from merlot.upsert.rules import Rules
from merlot.wakeups import WakeUp

_LOG = logging.getLogger(__name__)

LINGER_S: Final = 360.0
"""Seconds for which an edition still answers after the next edition came: longer than brokers wait for segments that
have to change together (`broker.routing.atomic_swaps`)."""
MAX_EDITIONS: Final = 64
"""Most editions of a partition that are kept."""
REPORT_S: Final = 5.0
"""Seconds between two reports on the keys."""
RETRY_S: Final = 5.0
"""Seconds until an edition that could not be built is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchUpsertsDeps:
    """Dependencies that the table data manager provides."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    segments: TableSegments
    executor: Executor
    """Executor that computes the valid docs."""
    io: Executor
    clock: Clock
    keys: KeyMemory
    on_change: Callable[[], None]
    """Called on the event loop when other editions can be queried."""


@dataclass(slots=True)
class _Partition:
    index: PartitionIndex
    views: deque[tuple[float, EditionView]] = field(default_factory=deque)
    """Views with the time at which each began, the newest last."""
    decided_by: tuple[object, ...] = ()
    """Rules that decided the newest view."""
    retry_at: float = 0.0
    problem: str = ""


class BatchUpserts:
    """Partitions of one table; `run` is the task."""

    def __init__(self, deps: BatchUpsertsDeps) -> None:
        self._deps = deps
        self._loop = asyncio.get_running_loop()
        self._wake_up = WakeUp()
        self._spec: TableSpec | None = None
        self._rules: Rules | None = None
        self._waits_for = ""
        self._view: TableView | None = None
        self._editions: Mapping[str, Edition] = {}
        self._assigned: Collection[str] = ()
        self._partitions: dict[str, _Partition] = {}
        self._views: dict[str, EditionView] = {}
        """Views that can be queried, by key."""
        self._running: asyncio.Future[EditionView] | None = None
        self._is_stopping = False
        self._reported_at = 0.0

    def follow(self, spec: TableSpec, upserting: Upserting, view: TableView, assigned: Collection[str]) -> None:
        """Follow the table as it is now, and the segments that this server shall have."""
        self._spec, self._waits_for = spec, upserting.waits_for
        self._rules = None
        if upserting.spec is not None:
            rules = Rules.of(upserting.spec, spec.table_schema, spec.time_column)
            self._rules = replace(rules, nulls_are_least=True)
        self._look_at(view)
        self._assigned = assigned
        self.wake()

    def _look_at(self, view: TableView) -> None:
        """Find the editions of the view, unless they were found before."""
        if view is self._view:
            return
        assert self._spec is not None
        partitioning = partitioning_of(self._spec)
        assert partitioning is not None
        self._view, self._editions = view, editions_of(view.visible.values(), partitioning)

    def wake(self) -> None:
        """Run a pass soon: segments have come in. Any thread."""
        self._wake_up.call()

    def cut(self) -> EditionReadView:
        """Return the read view for one request."""
        return EditionReadView(self._views)

    def answerable(self, served: Collection[str]) -> list[str]:
        """Return the segments that can be queried, and the editions by which they can."""
        here = set(served)
        whole = [view for view in self._views.values() if view.numbers.keys() <= here]
        keys = dict.fromkeys(key for view in whole for key in view.numbers)
        return [*keys, *(view.key for view in whole)]

    def needed(self, view: TableView) -> set[str]:
        """Return the segments of the editions that answer while the next editions are built."""
        self._look_at(view)
        behind = (
            partition
            for name, partition in self._partitions.items()
            if partition.views and self._is_assigned(name) and not self._is_current(name)
        )
        return {key for partition in behind for key in partition.views[-1][1].numbers}

    def unknown(self, keys: Collection[str]) -> frozenset[str]:
        """Return the loaded segments whose valid docs are about to be known."""
        if self._rules is None:
            return frozenset()
        answered = {key for view in self._views.values() for key in view.numbers}
        unknown: set[str] = set()
        for name, edition in self._editions.items():
            partition = self._partitions.get(name)
            if (partition is None or not partition.problem) and self._is_here(edition):
                unknown |= {key for key in edition.keys if key in keys and key not in answered}
        return frozenset(unknown)

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            wake_at = await self._guarded_pass()
            await self._wake_up.wait(max(0.0, wake_at - self._deps.clock.monotonic()))

    async def stop(self) -> None:
        """Build nothing more; return when nothing is being built."""
        self._is_stopping = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self._deps.keys.forget(self._deps.table)

    async def _guarded_pass(self) -> float:
        now = self._deps.clock.monotonic()
        try:
            await self._pass()
        except MerlotError as error:
            _LOG.warning("upserts not followed table=%s cause=%s", self._deps.table, error)
        except Exception:  # noqa: BLE001 - the outermost loop of the task
            _LOG.exception("upserts not followed table=%s", self._deps.table)
            return now + RETRY_S
        waiting = [partition.retry_at for partition in self._partitions.values() if partition.retry_at > now]
        return min([self._reported_at + REPORT_S, *waiting])

    async def _pass(self) -> None:
        """Build what can be built, drop what no broker asks for any more, and report."""
        while (edition := self._next()) is not None:
            await self._build(edition)
        self._drop_unused_editions()
        if self._deps.clock.monotonic() - self._reported_at >= REPORT_S:
            await self._report()

    def _next(self) -> Edition | None:
        """Return the edition of a partition that can move on; None if there is none."""
        now = self._deps.clock.monotonic()
        for name, edition in self._editions.items():
            partition = self._partitions.get(name)
            is_due = not self._is_current(name) and (partition is None or partition.retry_at <= now)
            if self._rules is not None and is_due and self._is_here(edition):
                return edition
        return None

    def _is_current(self, name: str) -> bool:
        partition, edition = self._partitions.get(name), self._editions.get(name)
        if partition is None or edition is None or not partition.views or partition.views[-1][1].key != edition.key:
            return False
        return self._rules is None or partition.decided_by == deciding(self._rules)

    def _is_assigned(self, name: str) -> bool:
        """Return True if this server shall answer for all of a partition as it is now."""
        edition = self._editions.get(name)
        return edition is not None and all(key in self._assigned for key in edition.keys)

    async def _build(self, edition: Edition) -> None:
        spec, rules = self._spec, self._rules
        assert spec is not None
        assert rules is not None
        partition = self._partitions.get(edition.name)
        if partition is None:
            count = partial(_misplaced, spec, edition.partition)
            partition = self._partitions[edition.name] = _Partition(PartitionIndex(count, lambda: self._is_stopping))
        with ExitStack() as held:
            segments: dict[str, Segment] = {}
            for key in partition.index.unread(edition.keys, rules):
                segment = held.enter_context(self._deps.segments.borrowed(key))
                assert segment is not None
                segments[key] = segment
            work = partial(partition.index.bring, edition.key, segments, edition.keys, rules)
            self._running = self._loop.run_in_executor(self._deps.executor, work)
            try:
                view = await asyncio.shield(self._running)
            except asyncio.CancelledError:
                self._is_stopping = True
                await asyncio.gather(self._running, return_exceptions=True)
                raise
            except StoppedError:
                return
            except MerlotError as error:
                self._failed(edition, partition, error)
                return
            finally:
                self._running = None
        partition.decided_by = deciding(rules)
        self._show(partition, view)

    def _failed(self, edition: Edition, partition: _Partition, error: MerlotError) -> None:
        partition.retry_at, partition.problem = self._deps.clock.monotonic() + RETRY_S, str(error)
        _LOG.warning("index of keys not built table=%s edition=%s cause=%s", self._deps.table, edition.key, error)

    def _show(self, partition: _Partition, view: EditionView) -> None:
        now = self._deps.clock.monotonic()
        partition.retry_at, partition.problem = 0.0, ""
        partition.views.append((now, view))
        self._views[view.key] = view
        self._reported_at = 0.0
        _LOG.debug("edition is answered table=%s edition=%s", self._deps.table, view.key)
        self._deps.on_change()

    def _drop_unused_editions(self) -> None:
        """Drop editions that no broker asks for any more, and partitions without segments."""
        now = self._deps.clock.monotonic()
        gone = []
        for name, partition in self._partitions.items():
            views = partition.views
            while len(views) > 1 and (len(views) > MAX_EDITIONS or now - views[1][0] > LINGER_S):
                gone.append(views.popleft()[1])
            if not self._is_assigned(name) and not (views and self._is_held(views[-1][1])):
                gone += [view for _, view in views]
                views.clear()
        self._partitions = {
            name: partition for name, partition in self._partitions.items() if partition.views or partition.problem
        }
        remaining = [view for partition in self._partitions.values() for _, view in partition.views]
        for view in gone:
            if not any(view.key == other.key for other in remaining):
                self._views.pop(view.key, None)
        if gone:
            self._deps.on_change()

    def _is_held(self, view: EditionView) -> bool:
        return all(key in self._deps.segments for key in view.numbers)

    def _is_here(self, edition: Edition) -> bool:
        return all(key in self._deps.segments for key in edition.keys)

    # Reports

    async def _report(self) -> None:
        """Report on the keys, to status and metrics."""
        self._reported_at = self._deps.clock.monotonic()
        here = [name for name in self._editions if name in self._partitions or self._is_assigned(name)]
        partitions = tuple(self._progress(name) for name in here)
        for progress in partitions:
            labels = (self._deps.table, str(progress.partition))
            telemetry.UPSERT_KEYS.labels(*labels).set(0 if progress.upsert is None else progress.upsert.keys)
            telemetry.UPSERT_BYTES.labels(*labels).set(0 if progress.upsert is None else progress.upsert.memory_bytes)
            telemetry.STREAM_MISPLACED.labels(*labels).set(0 if progress.upsert is None else progress.upsert.misplaced)
        sizes = [progress.upsert.memory_bytes for progress in partitions if progress.upsert is not None]
        record = ProgressRecord(
            instance=self._deps.instance,
            at_ms=self._deps.clock.now_ms(),
            partitions=partitions,
            memory=self._deps.keys.tell(self._deps.table, sum(sizes)),
        )
        await self._loop.run_in_executor(self._deps.io, write_progress, self._deps.metastore, self._deps.table, record)

    def _progress(self, name: str) -> PartitionProgress:
        edition, partition = self._editions[name], self._partitions.get(name)
        problem = "" if partition is None else partition.problem
        return PartitionProgress(
            partition=edition.partition,
            upsert=UpsertProgress(
                **({} if partition is None else self._counts(partition)), **self._state(edition, partition)
            ),
            state="CURRENT" if self._is_current(name) else "ERROR" if problem else "BUILDING",
            error=problem,
        )

    def _state(self, edition: Edition, partition: _Partition | None) -> dict[str, Any]:
        """Return the edition that answers, and the segment or settings that the next edition waits for."""
        missing = next((key for key in edition.keys if key not in self._deps.segments), "")
        return {
            "is_built": self._is_current(edition.name),
            "settings": partition.views[-1][1].key if partition is not None and partition.views else "",
            "waits_for": self._waits_for or missing,
        }

    def _counts(self, partition: _Partition) -> dict[str, Any]:
        stats = partition.index.stats
        return {
            "keys": stats.keys,
            "valid": stats.valid,
            "invalid": stats.invalid,
            "out_of_order": stats.out_of_order,
            "misplaced": partition.index.num_misplaced,
            "memory_bytes": stats.memory_bytes,
        }


def _misplaced(spec: TableSpec, partition: int, rows: pa.Table) -> int:
    return misplaced(spec, rows, partition)

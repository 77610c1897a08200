"""The upsert table of batches on one server: brings each partition to the edition that the table consists of.

On the event loop, but for what a thread works out. A partition moves on once every segment of its next edition is
loaded; until then, and while its index is built, the editions before it answer. Brokers change from one edition to the
next when somebody reports it (`answerable`).
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

KEPT_S: Final = 360.0
"""How long an edition is still answered for after the next one: longer than brokers wait for segments that have to
change together (`broker.routing.exchanges`)."""
MOST_KEPT: Final = 64
"""Editions of a partition."""
TELL_S: Final = 5.0
"""Between two words on how the keys are."""
RETRY_S: Final = 5.0
"""Until an edition that could not be built is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchUpsertsDeps:
    """What the keeper of the table lends."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    segments: TableSegments
    executor: Executor
    """Works out which docs are valid."""
    io: Executor
    clock: Clock
    keys: KeyMemory
    on_change: Callable[[], None]
    """Other editions can be asked for; on the event loop."""


@dataclass(slots=True)
class _Partition:
    index: PartitionIndex
    views: deque[tuple[float, EditionView]] = field(default_factory=deque)
    """With the time at which each began, the newest last."""
    decided_by: tuple[object, ...] = ()
    """What the newest was decided by, beside its rows."""
    retry_at: float = 0.0
    problem: str = ""


class BatchUpserts:
    """All partitions of one table; `run` is its task."""

    def __init__(self, host: BatchUpsertsDeps) -> None:
        self._host = host
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
        """All that can be asked for, by key."""
        self._running: asyncio.Future[EditionView] | None = None
        self._is_stopping = False
        self._told_at = 0.0

    def follow(self, spec: TableSpec, upserting: Upserting, view: TableView, assigned: Collection[str]) -> None:
        """What the table is now, and which of its segments this server shall have."""
        self._spec, self._waits_for = spec, upserting.waits_for
        self._rules = None
        if upserting.spec is not None:
            rules = Rules.of(upserting.spec, spec.table_schema, spec.time_column)
            self._rules = replace(rules, nulls_are_least=True)
        self._look_at(view)
        self._assigned = assigned
        self.wake()

    def _look_at(self, view: TableView) -> None:
        """Find the editions that the view has, if they are of another one yet."""
        if view is self._view:
            return
        assert self._spec is not None
        partitioning = partitioning_of(self._spec)
        assert partitioning is not None
        self._view, self._editions = view, editions_of(view.visible.values(), partitioning)

    def wake(self) -> None:
        """Look again soon: segments have come in. Any thread."""
        self._wake_up.call()

    def cut(self) -> EditionReadView:
        """For one request."""
        return EditionReadView(self._views)

    def answerable(self, served: Collection[str]) -> list[str]:
        """What of these segments may be asked for, and by which editions."""
        here = set(served)
        whole = [view for view in self._views.values() if view.numbers.keys() <= here]
        found = dict.fromkeys(key for view in whole for key in view.numbers)
        return [*found, *(view.key for view in whole)]

    def needed(self, view: TableView) -> set[str]:
        """Return the segments of the editions that answer while the next ones are built."""
        self._look_at(view)
        behind = (
            known
            for name, known in self._partitions.items()
            if known.views and self._is_assigned(name) and not self._is_current(name)
        )
        return {key for known in behind for key in known.views[-1][1].numbers}

    def unknown(self, keys: Collection[str]) -> frozenset[str]:
        """Those of these segments that are here, and of which it is about to be known which docs count."""
        if self._rules is None:
            return frozenset()
        known = {key for view in self._views.values() for key in view.numbers}
        found: set[str] = set()
        for name, edition in self._editions.items():
            partition = self._partitions.get(name)
            if (partition is None or not partition.problem) and self._is_here(edition):
                found |= {key for key in edition.keys if key in keys and key not in known}
        return frozenset(found)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            wake_at = await self._guarded_pass()
            await self._wake_up.wait(max(0.0, wake_at - self._host.clock.monotonic()))

    async def stop(self) -> None:
        """Build nothing more; returns when nothing is being built."""
        self._is_stopping = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self._host.keys.forget(self._host.table)

    async def _guarded_pass(self) -> float:
        now = self._host.clock.monotonic()
        try:
            await self._pass()
        except MerlotError as error:
            _LOG.warning("upserts not followed table=%s cause=%s", self._host.table, error)
        except Exception:  # noqa: BLE001 - the outermost loop of the task
            _LOG.exception("upserts not followed table=%s", self._host.table)
            return now + RETRY_S
        waiting = [one.retry_at for one in self._partitions.values() if one.retry_at > now]
        return min([self._told_at + TELL_S, *waiting])

    async def _pass(self) -> None:
        """Build what can be built, let go what is asked for no more, and tell of it."""
        while (edition := self._next()) is not None:
            await self._build(edition)
        self._let_go()
        if self._host.clock.monotonic() - self._told_at >= TELL_S:
            await self._tell()

    def _next(self) -> Edition | None:
        """A partition that can move on."""
        now = self._host.clock.monotonic()
        for name, edition in self._editions.items():
            known = self._partitions.get(name)
            is_due = not self._is_current(name) and (known is None or known.retry_at <= now)
            if self._rules is not None and is_due and self._is_here(edition):
                return edition
        return None

    def _is_current(self, name: str) -> bool:
        known, edition = self._partitions.get(name), self._editions.get(name)
        if known is None or edition is None or not known.views or known.views[-1][1].key != edition.key:
            return False
        return self._rules is None or known.decided_by == deciding(self._rules)

    def _is_assigned(self, name: str) -> bool:
        """Whether this server shall answer for all of a partition as it is now."""
        edition = self._editions.get(name)
        return edition is not None and all(key in self._assigned for key in edition.keys)

    async def _build(self, edition: Edition) -> None:
        spec, rules = self._spec, self._rules
        assert spec is not None
        assert rules is not None
        known = self._partitions.get(edition.name)
        if known is None:
            count = partial(_misplaced, spec, edition.partition)
            known = self._partitions[edition.name] = _Partition(PartitionIndex(count, lambda: self._is_stopping))
        with ExitStack() as held:
            segments: dict[str, Segment] = {}
            for key in known.index.unread(edition.keys, rules):
                segment = held.enter_context(self._host.segments.borrowed(key))
                assert segment is not None
                segments[key] = segment
            work = partial(known.index.bring, edition.key, segments, edition.keys, rules)
            self._running = self._loop.run_in_executor(self._host.executor, work)
            try:
                view = await asyncio.shield(self._running)
            except asyncio.CancelledError:
                self._is_stopping = True
                await asyncio.gather(self._running, return_exceptions=True)
                raise
            except StoppedError:
                return
            except MerlotError as error:
                self._failed(edition, known, error)
                return
            finally:
                self._running = None
        known.decided_by = deciding(rules)
        self._show(known, view)

    def _failed(self, edition: Edition, known: _Partition, error: MerlotError) -> None:
        known.retry_at, known.problem = self._host.clock.monotonic() + RETRY_S, str(error)
        _LOG.warning("index of keys not built table=%s edition=%s cause=%s", self._host.table, edition.key, error)

    def _show(self, known: _Partition, view: EditionView) -> None:
        now = self._host.clock.monotonic()
        known.retry_at, known.problem = 0.0, ""
        known.views.append((now, view))
        self._views[view.key] = view
        self._told_at = 0.0
        _LOG.debug("edition is answered table=%s edition=%s", self._host.table, view.key)
        self._host.on_change()

    def _let_go(self) -> None:
        """Editions that nobody asks for any more, and partitions without segments."""
        now = self._host.clock.monotonic()
        gone = []
        for name, known in self._partitions.items():
            while len(known.views) > 1 and (len(known.views) > MOST_KEPT or now - known.views[1][0] > KEPT_S):
                gone.append(known.views.popleft()[1])
            if not self._is_assigned(name) and not (known.views and self._is_held(known.views[-1][1])):
                gone += [view for _, view in known.views]
                known.views.clear()
        for name in [name for name, known in self._partitions.items() if not known.views and not known.problem]:
            self._partitions.pop(name)
        for view in gone:
            if not any(view.key == one.key for known in self._partitions.values() for _, one in known.views):
                self._views.pop(view.key, None)
        if gone:
            self._host.on_change()

    def _is_held(self, view: EditionView) -> bool:
        return all(key in self._host.segments for key in view.numbers)

    def _is_here(self, edition: Edition) -> bool:
        return all(key in self._host.segments for key in edition.keys)

    # What is told

    async def _tell(self) -> None:
        """How the keys are, for status and metrics."""
        self._told_at = self._host.clock.monotonic()
        here = [name for name in self._editions if name in self._partitions or self._is_assigned(name)]
        partitions = tuple(self._progress(name) for name in here)
        for one in partitions:
            labels = (self._host.table, str(one.partition))
            telemetry.UPSERT_KEYS.labels(*labels).set(0 if one.upsert is None else one.upsert.keys)
            telemetry.UPSERT_BYTES.labels(*labels).set(0 if one.upsert is None else one.upsert.memory_bytes)
            telemetry.STREAM_MISPLACED.labels(*labels).set(0 if one.upsert is None else one.upsert.misplaced)
        sizes = [one.upsert.memory_bytes for one in partitions if one.upsert is not None]
        record = ProgressRecord(
            instance=self._host.instance,
            at_ms=self._host.clock.now_ms(),
            partitions=partitions,
            memory=self._host.keys.tell(self._host.table, sum(sizes)),
        )
        await self._loop.run_in_executor(self._host.io, write_progress, self._host.metastore, self._host.table, record)

    def _progress(self, name: str) -> PartitionProgress:
        edition, known = self._editions[name], self._partitions.get(name)
        problem = "" if known is None else known.problem
        return PartitionProgress(
            partition=edition.partition,
            upsert=UpsertProgress(**({} if known is None else self._counts(known)), **self._state(edition, known)),
            state="CURRENT" if self._is_current(name) else "ERROR" if problem else "BUILDING",
            error=problem,
        )

    def _state(self, edition: Edition, known: _Partition | None) -> dict[str, Any]:
        """Which edition is answered for, and what the next one waits for."""
        missing = next((key for key in edition.keys if key not in self._host.segments), "")
        return {
            "is_built": self._is_current(edition.name),
            "settings": known.views[-1][1].key if known is not None and known.views else "",
            "waits_for": self._waits_for or missing,
        }

    def _counts(self, known: _Partition) -> dict[str, Any]:
        stats = known.index.stats
        return {
            "keys": stats.keys,
            "valid": stats.valid,
            "invalid": stats.invalid,
            "out_of_order": stats.out_of_order,
            "misplaced": known.index.num_misplaced,
            "memory_bytes": stats.memory_bytes,
        }


def _misplaced(spec: TableSpec, partition: int, rows: pa.Table) -> int:
    return misplaced(spec, rows, partition)

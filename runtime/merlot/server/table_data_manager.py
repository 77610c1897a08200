"""Keep what a server holds of one table equal to what it is assigned, and report it.

One task per table: wake up by a watch or the clock, read the table's view, decide (`loader`), act. Segments are loaded
in threads (`loads`). They are served first and reported afterwards (`reporter`), so that brokers never ask too
early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.reports import ReportReader, ReportWriter
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.manifests.upserts import Upserting, UpsertWatch, upserting_of
from merlot.cluster.records import Role, SegmentRecord
from merlot.cluster.segments.editions import partitioning_of
from merlot.cluster.segments.view import TableView, load
from merlot.errors import CorruptionError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.memory import give_back
from merlot.metastore.protocol import Metastore, Watch
from merlot.segment.contents import check_file
from merlot.segment.immutable import ImmutableSegment, verify_file
from merlot.segment.reader import Segment
from merlot.server.batches.upserts import BatchUpserts, BatchUpsertsDeps
from merlot.server.files import LoadSource, LocalSegmentFiles, delete_file
from merlot.server.indexing import IndexerDeps, TableIndexer
from merlot.server.loader import Actions, Desired, Holdings, LoadFailure, decide
from merlot.server.loads import LoadQueue
from merlot.server.realtime.table import StreamThreads, TableStream, TableStreamDeps
from merlot.server.reporter import ReportContents, TableReporter
from merlot.server.table_state import ServedTableState
from merlot.server.tables import KeyIndexes, ReadView, TableSegments
from merlot.server.tuning import ServerTuning
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore
from merlot.uris import redact
from merlot.wakeups import WakeUp, run_on

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_S = 0.05
"""Seconds within which segments that come in are taken together."""
BORROW_S = 30.0
"""Longest wait for the event loop to lend a segment; beyond it the loop is stopping, or stuck."""
MANY_SEGMENTS = 1000
"""Number of segments whose loading leaves enough free memory behind to give it back to the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDataDeps:
    """Dependencies that the table data managers of a server share. `store_of` opens a table's deep store."""

    metastore: Metastore
    instance: InstanceId
    files: LocalSegmentFiles
    io: Executor
    loads: Executor
    indexes: Executor
    """Executor of one thread, for sidecars."""
    clock: Clock
    store_of: Callable[[TableSpec], DeepStore]
    grace_s: float
    load_threads: int = 4
    """Threads of `loads` for one table."""
    upserts: Executor
    """Executor that computes the valid docs of upsert tables of batches."""
    streams: StreamThreads
    tuning: ServerTuning = field(default_factory=ServerTuning)


class TableDataManager:
    """Manager of one table's segments on one server. Used on the event loop; `run` is its task."""

    def __init__(self, table: TableName, deps: TableDataDeps) -> None:
        self.table = table
        self.segments = TableSegments(table, self._dispose, self._cut)
        self._deps = deps
        self._loop = asyncio.get_running_loop()
        self._wake_up = WakeUp()
        self._state: ServedTableState | None = None
        self._watches: list[Watch] = []
        self._upsert_watch = UpsertWatch(deps.metastore, self.wake)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._have_come_in = WakeUp()
        self._loads = LoadQueue(deps.loads, deps.load_threads, deps.clock, self._have_come_in.call, deps.tuning.loads)
        self._num_come_in = 0
        """Number of segments that have come in since the queue was last empty."""
        self._failures: dict[str, LoadFailure] = {}
        self._retired: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._reporter = TableReporter(
            ReportWriter(deps.metastore, table, deps.instance),
            name=f"table={table} instance={deps.instance}",
            standing=self._standing,
            is_loading=lambda: bool(self._loads.keys),
            io=deps.io,
            clock=deps.clock,
        )
        indexer_deps = IndexerDeps(
            files=deps.files,
            executor=deps.indexes,
            clock=deps.clock,
            on_change=self._reporter.mark,
            tuning=deps.tuning.loads,
        )
        self._indexer = TableIndexer(table, self.segments, indexer_deps)
        self._logged = (-1, -1)
        self._has_stream = asyncio.Event()
        self._has_batches = asyncio.Event()
        self._stream: TableStream | None = None
        """Stream of the table; None until the table has a stream."""
        self._batches: BatchUpserts | None = None
        """Upserts of the table, if it is an upsert table of batches."""

    @property
    def state(self) -> ServedTableState | None:
        """State of the table as last read; None before that."""
        return self._state

    @property
    def failures(self) -> Mapping[str, LoadFailure]:
        """Failures of segments that could not be loaded, by key."""
        return self._failures

    @property
    def is_settled(self) -> bool:
        """True if every assigned segment has been loaded, or tried."""
        return self.missing == frozenset()

    @property
    def missing(self) -> frozenset[str] | None:
        """Keys of assigned segments that have neither been loaded nor tried, or cannot be answered for yet; None if the
        table was never read."""
        if self._state is None:
            return None
        missing = frozenset(
            key for key in self._state.assigned if key not in self.segments and key not in self._failures
        )
        return missing if self._batches is None else missing | self._batches.unknown(self._state.assigned)

    def wake(self) -> None:
        """Run a pass soon; any thread."""
        self._wake_up.call()

    def rewrite_report(self) -> None:
        """Check the report in the metastore and mend it: it may be from before a session was lost."""
        self._reporter.recheck()

    async def refresh(self) -> ServedTableState:
        """Read the table again."""
        self._state = await self._in_io(self._read)
        self.segments.is_upsert = self._state.spec.upsert is not None
        self.segments.has_editions = partitioning_of(self._state.spec) is not None
        return self._state

    async def open_local(self) -> None:
        """Serve every assigned segment whose file is on disk, delete other files, and report. Called before `run`."""
        state = await self.refresh()
        assigned = state.assigned
        self._indexer.follow(state.spec.indexing, state.revision)
        self._follow_batches(state)
        await self._in_io(self._indexer.look_at_disk)
        self._loads.add(assigned.values(), self._bring_local)
        await self._loads.wait()
        self._take_loads()
        await self._in_io(lambda: self._deps.files.sweep(self.table, assigned, self._indexer.used_files()))
        await self._reporter.take_over()

    async def run(self) -> None:
        """Run until the table is gone, or this is cancelled."""
        reporting = self._reporter.run(self._log_progress)
        helpers = [asyncio.create_task(reporting), asyncio.create_task(self._follow_loads())]
        helpers.append(asyncio.create_task(self._run_stream()))
        helpers.append(asyncio.create_task(self._indexer.run()))
        helpers.append(asyncio.create_task(self._run_batches()))
        try:
            with contextlib.suppress(NotFoundError):
                while True:
                    await self._sleep(await self._guarded_pass())
        finally:
            tasks = [*helpers, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self._loads.stop(), self._indexer.stop(), return_exceptions=True)
            if self._stream is not None:
                await self._stream.stop()
            if self._batches is not None:
                await self._batches.stop()
            self._upsert_watch.follow(None)
            for watch in self._watches:
                watch.cancel()

    async def withdraw(self) -> None:
        """Report nothing from now on, so that brokers go elsewhere; what is held stays served."""
        await self._reporter.withdraw()

    async def forget(self) -> None:
        """Close the segments of a table that is gone, delete its files and its report."""
        self.segments.close()
        if self._stream is not None:
            await self._stream.forget()
        with contextlib.suppress(MerlotError):
            await self._reporter.clear()
        await self._in_io(lambda: self._deps.files.sweep(self.table, ()))

    def suspect(self, keys: Iterable[str]) -> None:
        """Check these segments, since a query met corrupt data in one of them."""
        name = "check suspects"
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(
                self._check_all(name, [key for key in keys if key in self.segments])
            )

    async def check(self, key: str, verify: Callable[[Path], None] = verify_file) -> bool:
        """Read every byte of an open segment's file, and return True if it is sound. A corrupt file is set aside and
        fetched again."""
        segment = self.segments.get(key)
        if segment is None:
            return True
        path = self._deps.files.path_of(self.table, key)
        try:
            await self._in_loads(lambda: verify(path))
            if segment.is_lost:
                raise CorruptionError(f"pages of the file could not be read path={path}")
        except (CorruptionError, NotFoundError) as error:
            await self._discard(key, str(error))
            return False
        await self._indexer.check(key)
        return True

    async def _check_all(self, name: str, keys: Iterable[str]) -> None:
        try:
            for key in keys:
                try:
                    await self.check(key, check_file)
                except MerlotError as error:
                    _LOG.warning("segment file not checked table=%s segment=%s cause=%s", self.table, key, error)
        finally:
            self._tasks.pop(name, None)

    async def _discard(self, key: str, reason: str) -> None:
        """Stop serving a segment that turned out corrupt, set its file aside, and load it again."""
        self.segments.drop(key)
        self._reporter.mark()
        self._retired.pop(key, None)
        try:
            await self._in_io(lambda: self._deps.files.quarantine(self.table, key, reason))
        finally:
            self.wake()

    async def _guarded_pass(self) -> float | None:
        """Run a pass, and try again soon if it fails: whatever fails, what is served stays served."""
        try:
            await self._in_io(self._watch)
            return await self._pass()
        except NotFoundError:
            raise
        except MerlotError as error:
            _LOG.warning("table not read, kept as it is table=%s cause=%s", self.table, error)
        except Exception:  # noqa: BLE001 - the outermost loop of the table's task
            _LOG.exception("table not kept table=%s", self.table)
        return self._deps.clock.monotonic() + self._deps.tuning.tables.retry_s

    async def _pass(self) -> float | None:
        """Read, decide, act; return when to run again."""
        state = await self.refresh()
        self._follow_batches(state)
        desired = Desired(records=self._to_load(state), irreplaceable=await self._irreplaceable(state))
        actions = decide(desired, self._holdings(), self._deps.clock.monotonic(), self._deps.grace_s)
        self._carry_out(actions, state.spec)
        self._indexer.follow(state.spec.indexing, state.revision)
        self._follow_stream(state)
        now = self._deps.clock.monotonic()
        moments = [moment for moment in (actions.wake_at,) if moment is not None]
        tuning = self._deps.tuning.tables
        moments += [now + tuning.recheck_s] if desired.irreplaceable else []
        moments += [now + tuning.look_s] if self._loads.keys else []
        return min(moments, default=None)

    def _to_load(self, state: ServedTableState) -> Mapping[str, SegmentRecord]:
        """Return the assigned segments without those whose files this server is making itself."""
        if self._stream is None:
            return state.assigned
        held, making = self.segments.keys, self._stream.making()
        return {key: record for key, record in state.assigned.items() if key in held or record.name not in making}

    async def _sleep(self, wake_at: float | None) -> None:
        timeout = None if wake_at is None else max(0.0, wake_at - self._deps.clock.monotonic())
        await self._wake_up.wait(timeout, settle_s=SETTLE_S if self._loads.keys else 0.0)

    def _holdings(self) -> Holdings:
        return Holdings(
            loaded=self._served_keys(),
            retired=self._retired,
            loading={*self._loads.keys, *self._leaving},
            failures=self._failures,
        )

    def _served_keys(self) -> Collection[str]:
        """Return the keys that are held and not about to be dropped."""
        return self.segments.keys - self._leaving if self._leaving else self.segments.keys

    def _carry_out(self, actions: Actions, spec: TableSpec) -> None:
        now = self._deps.clock.monotonic()
        if actions.load:
            self._reporter.loading_began()
            self._loads.add(actions.load, lambda record: self._bring(record, spec))
        self._retired.update((key, now) for key in actions.retire)
        for key in (*actions.revive, *actions.drop):
            self._retired.pop(key, None)
        for key in actions.forget:
            self._failures.pop(key, None)
        if actions.drop:
            self._leaving.update(actions.drop)
            name = f"drop {actions.drop[0]}"
            self._tasks[name] = asyncio.create_task(self._drop_segments(name, actions.drop))
        self._reporter.mark()

    @property
    def has_stream(self) -> bool:
        """True if the table consumes a stream, as far as this server knows."""
        return self._stream is not None

    def _follow_stream(self, state: ServedTableState) -> None:
        if state.spec.ingestion.stream is None:
            return
        if self._stream is None:
            self._stream = TableStream(self._stream_deps(), self._deps.streams)
            self._has_stream.set()
        self._stream.follow(state.spec, state.view)

    def _stream_deps(self) -> TableStreamDeps:
        deps = self._deps
        return TableStreamDeps(
            metastore=deps.metastore,
            table=self.table,
            instance=deps.instance,
            files=deps.files,
            clock=deps.clock,
            store_of=deps.store_of,
            grace_s=deps.grace_s,
            tuning=deps.tuning.streams,
            reported_as_of=lambda: self._reporter.reported_as_of,
            is_loaded=self.segments.__contains__,
            borrow=self._borrow,
            on_change=lambda: run_on(self._loop, self._reporter.mark),
            on_made=self._wake_up.call,
        )

    async def _run_stream(self) -> None:
        await self._has_stream.wait()
        assert self._stream is not None
        await self._stream.run()

    def _follow_batches(self, state: ServedTableState) -> None:
        if partitioning_of(state.spec) is None:
            return
        if self._batches is None:
            deps = self._deps
            self._batches = BatchUpserts(
                BatchUpsertsDeps(
                    metastore=deps.metastore,
                    table=self.table,
                    instance=deps.instance,
                    segments=self.segments,
                    executor=deps.upserts,
                    io=deps.io,
                    clock=deps.clock,
                    keys=deps.streams.keys,
                    on_change=self._editions_changed,
                )
            )
            self._has_batches.set()
        self._batches.follow(state.spec, state.upserting, state.view, state.assigned)

    def _editions_changed(self) -> None:
        self.segments.editions_changed()
        self._reporter.mark()
        self.wake()

    async def _run_batches(self) -> None:
        await self._has_batches.wait()
        assert self._batches is not None
        await self._batches.run()

    @property
    def _indexes(self) -> KeyIndexes | None:
        return self._stream if self._batches is None else self._batches

    def _cut(self) -> ReadView | None:
        return None if self._indexes is None else self._indexes.cut()

    @contextmanager
    def _borrow(self, key: str) -> Iterator[Segment | None]:
        """Lend a sealed segment to another thread; the event loop holds it meanwhile."""
        held = ExitStack()
        lent: Future[Segment | None] = Future()
        run_on(self._loop, lambda: lent.set_result(held.enter_context(self.segments.borrowed(key))))
        try:
            yield lent.result(BORROW_S)
        except TimeoutError as error:
            raise UnavailableError(f"segment could not be borrowed table={self.table} segment={key}") from error
        finally:
            run_on(self._loop, held.close)

    async def _follow_loads(self) -> None:
        while True:
            await self._have_come_in.wait()
            self._take_loads()
            if self._loads.keys:
                await asyncio.sleep(SETTLE_S)

    def _take_loads(self) -> None:
        """Serve what has come in."""
        num_loaded: Counter[LoadSource] = Counter()
        for outcome in self._loads.take():
            if outcome.error is not None:
                self._failed(outcome.key, outcome.error)
            elif outcome.segment is not None and outcome.source is not None:
                self._failures.pop(outcome.key, None)
                self.segments.add(outcome.segment)
                num_loaded[outcome.source] += 1
                telemetry.SERVER_LOAD_SECONDS.observe(outcome.seconds)
                _LOG.debug("segment loaded table=%s segment=%s source=%s", self.table, outcome.key, outcome.source)
        for source, number in num_loaded.items():
            telemetry.SERVER_LOADS.labels(self.table, source).inc(number)
        self._reporter.mark()
        if num_loaded:
            self._indexer.wake()
            if self._batches is not None:
                self._batches.wake()
        self._num_come_in += num_loaded.total()
        if not self._loads.keys:
            self._reporter.loading_ended()
            self.wake()
            if self._num_come_in >= MANY_SEGMENTS:
                self._deps.io.submit(give_back)
            self._num_come_in = 0

    def _bring(self, record: SegmentRecord, spec: TableSpec) -> tuple[ImmutableSegment, LoadSource]:
        loaded = self._bring_local(record)
        if loaded is not None:
            return loaded
        return self._deps.files.fetch(self.table, record, self._deps.store_of(spec)), LoadSource.DEEP_STORE

    def _bring_local(self, record: SegmentRecord) -> tuple[ImmutableSegment, LoadSource] | None:
        segment = self._deps.files.open_local(self.table, record)
        return None if segment is None else (self._indexer.with_local(segment), LoadSource.DISK)

    def _failed(self, key: str, error: MerlotError) -> None:
        telemetry.SERVER_LOAD_FAILURES.labels(self.table, type(error).__name__).inc()
        now = self._deps.clock.monotonic()
        failure = LoadFailure.after(self._failures.get(key), redact(str(error)), now, self._deps.tuning.loads)
        self._failures[key] = failure
        level = logging.ERROR if isinstance(error, CorruptionError) else logging.WARNING
        _LOG.log(
            level,
            "segment not loaded table=%s segment=%s attempt=%d cause=%s",
            self.table,
            key,
            failure.attempts,
            error,
        )

    async def _drop_segments(self, name: str, keys: Collection[str]) -> None:
        """Drop segments: from the report first, from the server afterwards."""
        try:
            await self._reporter.written()
            await asyncio.sleep(self._deps.tuning.tables.linger_s)
            sidecars = [path for key in keys if (path := self._sidecar_of(key)) is not None]
            read = [segment for key in keys if (segment := self.segments.drop(key)) is not None]
            await self._in_io(lambda: self._remove(keys, read, sidecars))
            _LOG.info("segments dropped table=%s num_segments=%d", self.table, len(keys))
        except MerlotError as error:
            _LOG.warning("files of dropped segments stay until the next start table=%s cause=%s", self.table, error)
        finally:
            self._leaving.difference_update(keys)
            self._tasks.pop(name, None)
            self.wake()

    def _sidecar_of(self, key: str) -> Path | None:
        segment = self.segments.get(key)
        return None if segment is None else segment.sidecar_path

    def _remove(self, keys: Collection[str], read: Iterable[ImmutableSegment], sidecars: Iterable[Path]) -> None:
        """Delete files. Queries that still run may not have opened these segments yet, so they are prepared first."""
        for segment in read:
            with contextlib.suppress(MerlotError):
                segment.prepare()
        self._deps.files.remove(self.table, keys)
        for path in sidecars:
            delete_file(path)

    def _standing(self) -> ReportContents:
        """Return what the report shall say."""
        loaded = self._answerable(self._served_keys())
        errors = {key: failure.message for key, failure in self._failures.items()}
        if self._stream is not None:
            loaded += self._stream.keys()
            errors |= self._stream.errors()
        counts = {"loaded": len(loaded), "failed": len(errors), "retired": len(self._retired)}
        for status, count in counts.items():
            telemetry.SERVER_SEGMENTS.labels(self.table, status).set(count)
        state = self._state
        if state is None:
            return ReportContents(loaded, errors, 0, self._indexer.progress)
        is_missed = partial(state.is_missed, loaded=frozenset(loaded))
        return ReportContents(loaded, errors, state.revision, self._indexer.progress, is_missed)

    def _answerable(self, keys: Collection[str]) -> list[str]:
        """Return the keys without segments of an upsert table whose valid docs are not known yet."""
        if not self.segments.is_upsert:
            return list(keys)
        return [] if self._indexes is None else self._indexes.answerable(keys)

    def _log_progress(self) -> None:
        counts = (len(self.segments.keys), len(self._failures))
        if not self._tasks and not self._loads.keys and counts != self._logged:
            self._logged = counts
            _LOG.info("table is served table=%s num_segments=%d num_failed=%d", self.table, *counts)

    async def _irreplaceable(self, state: ServedTableState) -> Collection[str]:
        """Return segments that were given to other servers, none of which has reported to hold them, and segments by
        which an upsert table is answered until their replacement can be queried."""
        moved = set()
        for key in self.segments.keys - state.assigned.keys():
            record = state.view.segment(key.rpartition("@")[0])
            if record is not None and record.key_text == key:
                moved.add(key)
        needed = set() if self._indexes is None else self._indexes.needed(state.view) & self.segments.keys
        return needed | (moved and moved - await self._in_io(self._held_elsewhere))

    def _held_elsewhere(self) -> set[str]:
        live = live_instances(self._deps.metastore, Role.SERVER).keys() - {self._deps.instance}
        reports = ReportReader(self._deps.metastore, self.table).read()
        return {key for instance in live if instance in reports for key in reports[instance].loaded}

    def _read(self) -> ServedTableState:
        """Read the table. Raise NotFoundError also if it was deleted and applied again: the new table has a manager of
        its own."""
        record, before = get_table(self._deps.metastore, self.table), self._state
        if before is not None and before.version[0] != record.created_ms:
            raise NotFoundError(f"table was deleted and applied again table={self.table}")
        view = load(self._deps.metastore, self.table, None if before is None else before.view)
        is_same = before is not None and before.version == record.version
        spec = before.spec if before is not None and is_same else spec_of(record).spec
        upserting = Upserting()
        if partitioning_of(spec) is not None:
            self._upsert_watch.follow(None if spec.upsert is None else spec.upsert.config_ref)
            upserting = upserting_of(self._deps.metastore, spec)
        if before is not None and is_same and before.view is view and before.upserting == upserting:
            return before
        assigned = before.assigned if before is not None and before.view is view else self._assigned(view)
        return ServedTableState(spec, record.version, view, assigned, upserting)

    def _assigned(self, view: TableView) -> Mapping[str, SegmentRecord]:
        me = self._deps.instance
        mine = (view.segment(name) for name, instances in view.assignment.items() if me in instances)
        return {record.key_text: record for record in mine if record is not None and not record.is_open}

    def _watch(self) -> None:
        """Set the watches that are missing: the metastore may have fallen silent after some of them."""
        table = self.table
        # The report is checked after each change, by any process: changes by others are undone.
        report = (paths.report_root(table, self._deps.instance), self._on_report)
        nodes = ((paths.table_config(table), self.wake), (paths.segments_root(table), self.wake), report)
        for path, callback in nodes[len(self._watches) :]:
            self._watches.append(self._deps.metastore.watch(path, callback))

    def _on_report(self) -> None:
        """Check the report; on a thread of the metastore."""
        run_on(self._loop, self.rewrite_report)

    def _dispose(self, segment: ImmutableSegment) -> None:
        if segment.is_open:
            self._deps.io.submit(segment.close)

    async def _in_io(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._deps.io, work)

    async def _in_loads(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._deps.loads, work)

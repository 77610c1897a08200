"""Indexes and star-trees that a table was given after its segments were built, made while queries go on.

One task per table looks for segments that lack something, and has sidecars made of them on a thread that all tables of
the server share; after each piece of work it rests as long as it worked, up to `MOST_REST_S`. A segment is handed out
with its sidecar once that is complete and was read back; until then, and whenever that fails, it is handed out without.
Sidecars that are no longer asked for are deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.records import IndexingRecord
from merlot.errors import CorruptionError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import TableName
from merlot.segment import lost_pages
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import NOTHING, SidecarPlan, plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.server.files import LocalSegmentFiles, delete_file
from merlot.server.loader import LoadFailure
from merlot.server.tables import TableSegments
from merlot.server.tuning import DEFAULT_LOADS, LoadTuning
from merlot.spec.indexing import IndexingSpec
from merlot.uris import redact
from merlot.wakeups import WakeUp

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

PLANNED_AT_A_TIME: Final = 64
"""Segments whose footers are read in one turn of the thread."""
RECHECK_S: Final = 60.0
"""Seconds until segments are checked again, in case a sidecar turned out to be gone."""
MOST_REST_S: Final = 1.0
"""Longest rest. A turn is followed by a rest as long as itself: queries come first where the processor is busy. A lower
priority of the thread would delay them instead: it keeps the interpreter's lock while it waits for the processor."""


def index_threads() -> ThreadPoolExecutor:
    """Return the executor that makes sidecars: one thread for all tables of a server."""
    return ThreadPoolExecutor(1, thread_name_prefix="server-index")


class SidecarSupersededError(MerlotError):
    """Raised when the sidecar that is being made is no longer wanted."""


@dataclass(frozen=True, slots=True)
class _SidecarRevision:
    """Sidecar that a segment needs, and how making it went."""

    plan: SidecarPlan
    failure: LoadFailure | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerDeps:
    """Dependencies of an indexer. `executor` has one thread."""

    files: LocalSegmentFiles
    executor: Executor
    clock: Clock
    on_change: Callable[[], None]
    """Called when `progress` has changed."""
    tuning: LoadTuning = DEFAULT_LOADS


class TableIndexer:
    """Sidecars of one table on one server. Used on the event loop, except for `with_local`; `run` is its task."""

    def __init__(self, table: TableName, segments: TableSegments, deps: IndexerDeps) -> None:
        self._table = table
        self._segments = segments
        self._files = deps.files
        self._executor = deps.executor
        self._clock = deps.clock
        self._tuning = deps.tuning
        self._on_change = deps.on_change
        self._loop = asyncio.get_running_loop()
        self._wake_up = WakeUp()
        self._indexing = IndexingSpec()
        self._revision = 0
        self._looked_revision = 0
        """Revision by which all segments were checked last."""
        self._sidecars: dict[str, _SidecarRevision] = {}
        self._plans: dict[SidecarPlan, SidecarPlan] = {}
        self._on_disk: dict[str, list[Path]] = {}
        self._is_stopping = False
        self._running: asyncio.Future[Any] | None = None

    def follow(self, indexing: IndexingSpec, revision: int) -> None:
        """Follow the indexes that the table asks for now."""
        if indexing != self._indexing:
            self._indexing = indexing
            self._sidecars, self._plans = {}, {}
        if revision != self._revision:
            self._revision = revision
            self.wake()

    def wake(self) -> None:
        """Run a pass soon: segments have come in. Any thread."""
        self._wake_up.call()

    @property
    def progress(self) -> IndexingRecord:
        """Number of segments that need a sidecar, and of those that have theirs."""
        wanted = {key: sidecar for key, sidecar in self._sidecars.items() if not sidecar.plan.is_empty}
        problems = sorted({failure.message for failure in self._failures()})
        return IndexingRecord(
            revision=self._looked_revision if self._indexing.asks_for_indexes else 0,
            wanted=len(wanted),
            built=sum(self._is_done(key, sidecar) for key, sidecar in wanted.items()),
            left_out=sum(sidecar.left_out for sidecar in wanted.values()),
            problem=problems[0][:500] if problems else "",
        )

    # Sidecars on the disk

    def look_at_disk(self) -> None:
        """Note the sidecars that a former process left. Blocks."""
        self._on_disk = self._files.sidecars(self._table)

    def with_local(self, segment: ImmutableSegment) -> ImmutableSegment:
        """Return a segment that was just opened, with its sidecar if the right one is on the disk and sound. Any
        thread."""
        paths = self._on_disk.get(str(segment.key))
        if not paths:
            return segment
        try:
            metadata = segment.look()
            plan = plan_of(metadata, self._indexing)
            path = self._files.sidecar_path(self._table, segment.key, plan.digest)
            if plan.is_empty or path not in paths:
                _LOG.info("sidecar is of another configuration, not used path=%s", paths[0])
                return segment
            return segment.beside(Sidecar.open(path, metadata, verify=True))
        except MerlotError as error:
            self._report_damage(paths[0], error)
            return segment

    def used_files(self) -> list[Path]:
        """Return the sidecar files that segments are read with."""
        return [path for segment in self._segments.segments.values() if (path := segment.sidecar_path) is not None]

    async def check(self, key: str) -> None:
        """Read every byte of a segment's sidecar; a damaged sidecar is removed and made again."""
        segment = self._segments.get(key)
        path = None if segment is None else segment.sidecar_path
        if segment is None or path is None:
            return
        try:
            await self._in_thread(lambda: Sidecar.open(path, segment.look(), verify=True))
        except (CorruptionError, NotFoundError) as error:
            self._report_damage(path, error)
            self._segments.replace(key, segment.beside(None))
            await self._in_thread(lambda: delete_file(path))
            self.wake()

    # Making sidecars

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            wake_at = await self._guarded_pass()
            await self._wake_up.wait(max(0.0, wake_at - self._clock.monotonic()))

    async def stop(self) -> None:
        """Make nothing more; return when nothing is being made."""
        self._is_stopping = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _guarded_pass(self) -> float:
        try:
            return await self._pass()
        except SidecarSupersededError:
            return self._clock.monotonic()
        except Exception:  # noqa: BLE001 - the outermost loop of the task
            _LOG.exception("indexes not looked after table=%s", self._table)
            return self._clock.monotonic() + RECHECK_S

    async def _pass(self) -> float:
        """Check segments that came in, and make what is missing; return when to check again."""
        indexing, revision = self._indexing, self._revision
        await self._plan(indexing)
        self._looked_revision = revision
        self._on_change()
        for key, sidecar in list(self._sidecars.items()):
            segment = self._segments.get(key)
            is_due = sidecar.failure is None or sidecar.failure.retry_at <= self._clock.monotonic()
            if segment is None or not is_due or self._is_done(key, sidecar):
                continue
            started = self._clock.monotonic()
            await self._tend(key, segment, sidecar.plan, indexing)
            self._on_change()
            await self._rest(started)
            if self._indexing is not indexing:
                raise SidecarSupersededError(f"indexes are asked for anew table={self._table}")
        return min([self._clock.monotonic() + RECHECK_S, *(failure.retry_at for failure in self._failures())])

    def _failures(self) -> list[LoadFailure]:
        """Return the failures of segments that still lack something. A segment that failed may have been fetched again,
        with its sidecar."""
        return [
            sidecar.failure
            for key, sidecar in self._sidecars.items()
            if sidecar.failure is not None and not self._is_done(key, sidecar)
        ]

    async def _plan(self, indexing: IndexingSpec) -> None:
        """Plan the sidecars of segments that were not planned yet."""
        segments = self._segments.segments
        for key in self._sidecars.keys() - segments.keys():
            del self._sidecars[key]
        unplanned = [(key, segment) for key, segment in segments.items() if key not in self._sidecars]
        if not indexing.asks_for_indexes:
            self._sidecars.update((key, _SidecarRevision(NOTHING)) for key, _ in unplanned)
            return
        for start in range(0, len(unplanned), PLANNED_AT_A_TIME):
            some = unplanned[start : start + PLANNED_AT_A_TIME]
            started = self._clock.monotonic()
            plans = await self._in_thread(partial(_plans, some, indexing))
            await self._rest(started)
            if self._indexing is not indexing:
                raise SidecarSupersededError(f"indexes are asked for anew table={self._table}")
            # One object for the many segments that need the same plan.
            self._sidecars.update((key, _SidecarRevision(self._plans.setdefault(plan, plan))) for key, plan in plans)

    def _is_done(self, key: str, sidecar: _SidecarRevision) -> bool:
        segment = self._segments.get(key)
        path = None if segment is None else segment.sidecar_path
        if segment is None or sidecar.plan.is_empty:
            return path is None
        return path == self._files.sidecar_path(self._table, segment.key, sidecar.plan.digest)

    async def _tend(self, key: str, segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec) -> None:
        """Give a segment the sidecar that it needs, or none."""
        sidecar = None
        if not plan.is_empty:
            try:
                sidecar = await self._in_thread(partial(self._make, segment, plan, indexing))
            except SidecarSupersededError:
                return
            except MerlotError as error:
                self._failed(key, error)
                return
            except Exception as error:  # noqa: BLE001 - else the segments behind it would go without theirs
                _LOG.exception("sidecar not made by a bug table=%s segment=%s", self._table, key)
                text = f"internal error, see the server's log error={type(error).__name__}"
                self._failed(key, UnavailableError(text))
                return
        if self._segments.get(key) is not segment:
            # The segment was dropped, or fetched again, meanwhile.
            await self._remove([] if sidecar is None else [sidecar.path])
            return
        self._segments.replace(key, segment.beside(sidecar))
        self._sidecars[key] = _SidecarRevision(plan, left_out=0 if sidecar is None else len(sidecar.left_out))
        before = segment.sidecar_path
        await self._remove([] if before is None or (sidecar and before == sidecar.path) else [before])

    def _make(self, segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec) -> Sidecar:
        """Return the sidecar that is on the disk, or make a new one; in the thread."""
        metadata = segment.look()
        path = self._files.sidecar_path(self._table, segment.key, plan.digest)
        if path.exists():
            try:
                return Sidecar.open(path, metadata, verify=True)
            except (CorruptionError, NotFoundError) as error:
                self._report_damage(path, error)
                path.unlink(missing_ok=True)
        self._files.make_room(self._table)

        def check() -> None:
            if self._is_stopping or self._indexing is not indexing:
                raise SidecarSupersededError(f"sidecar is no longer wanted path={path}")

        started = self._clock.monotonic()
        try:
            with lost_pages.watched("indexes"):
                build_sidecar(segment, plan, indexing, path.parent, check)
            if segment.is_lost:
                raise CorruptionError(f"pages of the segment's file could not be read path={segment.path}")
        except CorruptionError:
            path.unlink(missing_ok=True)
            raise
        telemetry.SERVER_INDEX_BUILD_SECONDS.observe(self._clock.monotonic() - started)
        return Sidecar.open(path, metadata, verify=True)

    def _failed(self, key: str, error: MerlotError) -> None:
        planned = self._sidecars.get(key)
        if planned is None:
            return
        failure = LoadFailure.after(planned.failure, redact(str(error)), self._clock.monotonic(), self._tuning)
        self._sidecars[key] = replace(planned, failure=failure)
        telemetry.SERVER_INDEX_FAILURES.labels(self._table).inc()
        text = "segment is served without new indexes table=%s segment=%s attempt=%d cause=%s"
        _LOG.warning(text, self._table, key, failure.attempts, error)

    def _report_damage(self, path: Path, error: MerlotError) -> None:
        telemetry.SERVER_INDEX_FAILURES.labels(self._table).inc()
        _LOG.error("sidecar is not used, it is made again table=%s path=%s cause=%s", self._table, path, error)

    async def _remove(self, paths: Collection[Path]) -> None:
        for path in paths:
            await self._in_thread(partial(path.unlink, missing_ok=True))

    async def _rest(self, started: float) -> None:
        """Rest as long as the work took that began at `started`."""
        await asyncio.sleep(min(MOST_REST_S, self._clock.monotonic() - started))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        running = self._running = self._loop.run_in_executor(self._executor, work)
        try:
            # Cancelling this task leaves the thread at work: `stop` waits for it.
            return await asyncio.shield(running)
        except RuntimeError as error:
            raise UnavailableError(f"the server stops table={self._table}") from error


def _plans(segments: Sequence[tuple[str, ImmutableSegment]], indexing: IndexingSpec) -> list[tuple[str, SidecarPlan]]:
    """Plan the sidecars of segments, in the thread. A segment whose footer cannot be read now needs nothing: a query
    will discover what is wrong."""
    plans = []
    for key, segment in segments:
        try:
            plans.append((key, plan_of(segment.look(), indexing)))
        except MerlotError as error:
            _LOG.warning("segment could not be looked at for indexes segment=%s cause=%s", key, error)
            plans.append((key, NOTHING))
    return plans

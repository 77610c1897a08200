"""Indexes and star-trees that a table was given after its segments were built, made while queries go on.

One task per table looks for segments that lack something, and has sidecars made of them on a thread that the whole
server has one of; each rests as long as it worked. A segment is handed out with its sidecar once that is whole and was
read back; until then, and whenever that fails, it is handed out without. What is no longer asked for is deleted.
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
from merlot.server.files import SegmentFiles
from merlot.server.loader import Failure
from merlot.server.tables import TableSegments
from merlot.spec.indexing import IndexingSpec
from merlot.uris import redact
from merlot.wakeups import WakeUp

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

PLANNED_AT_A_TIME: Final = 64
"""Segments whose footers are looked at in one turn of the thread."""
RECHECK_S: Final = 60.0
"""Until segments are looked at again, for those that turned out to have no sidecar any more."""
MOST_REST_S: Final = 1.0
"""After a turn, which is followed by a rest as long as itself: queries come first where the processor is busy. A lower
priority of the thread would hold them up instead: it keeps the interpreter's lock while it waits for the processor."""


def index_threads() -> ThreadPoolExecutor:
    """The thread that makes sidecars: one for all tables of a server."""
    return ThreadPoolExecutor(1, thread_name_prefix="server-index")


class SupersededError(MerlotError):
    """What is being made is no longer wanted."""


@dataclass(frozen=True, slots=True)
class _SidecarRevision:
    """What a segment needs, and how that went."""

    plan: SidecarPlan
    failure: Failure | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerParts:
    """What an indexer works with. `executor` has one thread."""

    files: SegmentFiles
    executor: Executor
    clock: Clock
    on_change: Callable[[], None]
    """Is told when `progress` says something else."""


class TableIndexer:
    """Sidecars of one table on one server. Used on the event loop but for `with_local`; `run` is its task."""

    def __init__(self, table: TableName, segments: TableSegments, parts: IndexerParts) -> None:
        self._table = table
        self._segments = segments
        self._files = parts.files
        self._executor = parts.executor
        self._clock = parts.clock
        self._on_change = parts.on_change
        self._loop = asyncio.get_running_loop()
        self._wake_up = WakeUp()
        self._indexing = IndexingSpec()
        self._revision = 0
        self._looked_revision = 0
        """The revision by which all segments were looked at last."""
        self._known: dict[str, _SidecarRevision] = {}
        self._plans: dict[SidecarPlan, SidecarPlan] = {}
        self._on_disk: dict[str, list[Path]] = {}
        self._is_stopping = False
        self._running: asyncio.Future[Any] | None = None

    def follow(self, indexing: IndexingSpec, revision: int) -> None:
        """What the table asks for now."""
        if indexing != self._indexing:
            self._indexing = indexing
            self._known, self._plans = {}, {}
        if revision != self._revision:
            self._revision = revision
            self.wake()

    def wake(self) -> None:
        """Look again soon: segments have come in. Any thread."""
        self._wake_up.call()

    @property
    def progress(self) -> IndexingRecord:
        """How many segments need a sidecar, and how many have theirs."""
        wanted = {key: known for key, known in self._known.items() if not known.plan.is_empty}
        problems = sorted({one.message for one in self._failures()})
        return IndexingRecord(
            revision=self._looked_revision if self._indexing.asks_for_indexes else 0,
            wanted=len(wanted),
            built=sum(self._is_done(key, known) for key, known in wanted.items()),
            left_out=sum(known.left_out for known in wanted.values()),
            problem=problems[0][:500] if problems else "",
        )

    # What is on disk

    def look_at_disk(self) -> None:
        """Note the sidecars that a former life left. Blocks."""
        self._on_disk = self._files.sidecars(self._table)

    def with_local(self, segment: ImmutableSegment) -> ImmutableSegment:
        """A segment that was just opened, with its sidecar if the one that is asked for is on disk and right. Any
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
        """Files that segments are read with."""
        return [path for one in self._segments.segments.values() if (path := one.sidecar_path) is not None]

    async def check(self, key: str) -> None:
        """Read every byte of a segment's sidecar; one that is not right is taken away and made again."""
        segment = self._segments.get(key)
        path = None if segment is None else segment.sidecar_path
        if segment is None or path is None:
            return
        try:
            await self._in_thread(lambda: Sidecar.open(path, segment.look(), verify=True))
        except (CorruptionError, NotFoundError) as error:
            self._report_damage(path, error)
            self._segments.replace(key, segment.beside(None))
            await self._in_thread(lambda: path.unlink(missing_ok=True))
            self.wake()

    # Making them

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            wake_at = await self._guarded_pass()
            await self._wake_up.wait(max(0.0, wake_at - self._clock.monotonic()))

    async def stop(self) -> None:
        """Make nothing more; returns when nothing is being made."""
        self._is_stopping = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _guarded_pass(self) -> float:
        try:
            return await self._pass()
        except SupersededError:
            return self._clock.monotonic()
        except Exception:  # noqa: BLE001 - the outermost loop of the task
            _LOG.exception("indexes not looked after table=%s", self._table)
            return self._clock.monotonic() + RECHECK_S

    async def _pass(self) -> float:
        """Look at segments that came in, make what is missing; returns when to look again."""
        indexing, revision = self._indexing, self._revision
        await self._plan(indexing)
        self._looked_revision = revision
        self._on_change()
        for key, known in list(self._known.items()):
            segment = self._segments.get(key)
            is_due = known.failure is None or known.failure.retry_at <= self._clock.monotonic()
            if segment is None or not is_due or self._is_done(key, known):
                continue
            started = self._clock.monotonic()
            await self._tend(key, segment, known.plan, indexing)
            self._on_change()
            await self._rest(started)
            if self._indexing is not indexing:
                raise SupersededError(f"indexes are asked for anew table={self._table}")
        return min([self._clock.monotonic() + RECHECK_S, *(one.retry_at for one in self._failures())])

    def _failures(self) -> list[Failure]:
        """Of segments that still lack something: one that failed may have been fetched anew with its sidecar."""
        return [
            one.failure for key, one in self._known.items() if one.failure is not None and not self._is_done(key, one)
        ]

    async def _plan(self, indexing: IndexingSpec) -> None:
        """Find what each segment needs that was not looked at yet."""
        segments = self._segments.segments
        for key in self._known.keys() - segments.keys():
            del self._known[key]
        unknown = [(key, one) for key, one in segments.items() if key not in self._known]
        if not indexing.asks_for_indexes:
            self._known.update((key, _SidecarRevision(NOTHING)) for key, _ in unknown)
            return
        for start in range(0, len(unknown), PLANNED_AT_A_TIME):
            some = unknown[start : start + PLANNED_AT_A_TIME]
            started = self._clock.monotonic()
            plans = await self._in_thread(partial(_plans, some, indexing))
            await self._rest(started)
            if self._indexing is not indexing:
                raise SupersededError(f"indexes are asked for anew table={self._table}")
            # One object for the many segments that need the same.
            self._known.update((key, _SidecarRevision(self._plans.setdefault(plan, plan))) for key, plan in plans)

    def _is_done(self, key: str, known: _SidecarRevision) -> bool:
        segment = self._segments.get(key)
        path = None if segment is None else segment.sidecar_path
        if segment is None or known.plan.is_empty:
            return path is None
        return path == self._files.sidecar_path(self._table, segment.key, known.plan.digest)

    async def _tend(self, key: str, segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec) -> None:
        """Give a segment the sidecar that it needs, or none."""
        sidecar = None
        if not plan.is_empty:
            try:
                sidecar = await self._in_thread(partial(self._make, segment, plan, indexing))
            except SupersededError:
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
            # It was let go, or fetched anew, meanwhile.
            await self._remove([] if sidecar is None else [sidecar.path])
            return
        self._segments.replace(key, segment.beside(sidecar))
        self._known[key] = _SidecarRevision(plan, left_out=0 if sidecar is None else len(sidecar.left_out))
        before = segment.sidecar_path
        await self._remove([] if before is None or (sidecar and before == sidecar.path) else [before])

    def _make(self, segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec) -> Sidecar:
        """In the thread: the sidecar that is on disk, or a new one."""
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
                raise SupersededError(f"sidecar is no longer wanted path={path}")

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
        known = self._known.get(key)
        if known is None:
            return
        failure = Failure.after(known.failure, redact(str(error)), self._clock.monotonic())
        self._known[key] = replace(known, failure=failure)
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
        """As long as the work took that began then."""
        await asyncio.sleep(min(MOST_REST_S, self._clock.monotonic() - started))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        running = self._running = self._loop.run_in_executor(self._executor, work)
        try:
            # Whoever is cancelled leaves the thread at work: `stop` waits for it.
            return await asyncio.shield(running)
        except RuntimeError as error:
            raise UnavailableError(f"the server stops table={self._table}") from error


def _plans(segments: Sequence[tuple[str, ImmutableSegment]], indexing: IndexingSpec) -> list[tuple[str, SidecarPlan]]:
    """In the thread. A segment whose footer cannot be read now needs nothing: a query will find out what is wrong."""
    found = []
    for key, segment in segments:
        try:
            found.append((key, plan_of(segment.look(), indexing)))
        except MerlotError as error:
            _LOG.warning("segment could not be looked at for indexes segment=%s cause=%s", key, error)
            found.append((key, NOTHING))
    return found

"""Write a table's report whenever it has to change, and wake those who wait for it.

One task per table runs on the event loop. The table data manager says what to report; whatever it serves is served
before it is reported, so that brokers never ask too early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from merlot.clock import Clock
from merlot.cluster.instances.reports import NOT_INDEXING, ReportWriter
from merlot.cluster.records import IndexingRecord
from merlot.errors import ConflictError, MerlotError

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 1.0
"""Seconds until the metastore is asked again after it failed."""
SETTLE_S = 0.05
"""Seconds within which segments that come in are reported together."""
SHARE = 4
"""Rest after a report, as a multiple of its time: a report costs in proportion to all keys."""
LOADING_SHARE = 8
"""Rest after a report while segments come in."""
LONGEST_WAIT_S = 1.0
"""Longest rest after a report that waited more than it worked: a server that was frozen, or waited for the metastore,
has all the more to report."""
TAKE_OVER_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ReportContents:
    """Contents of a report: keys that are served, messages by key of what is not, the manifest's revision, and the
    progress of indexing."""

    loaded: Collection[str]
    errors: Mapping[str, str]
    revision: int
    indexing: IndexingRecord = NOT_INDEXING
    is_missed: Callable[[str], bool] = lambda _: True
    """Return True if the server still has to have a key that was loaded once, and is not now."""


def rest_s(took_s: float, worked_s: float, *, is_loading: bool) -> float:
    """Return the seconds to rest after a report that took `took_s`, of which the processor was busy `worked_s`."""
    share = LOADING_SHARE if is_loading else SHARE
    return max(share * worked_s, min(share * took_s, LONGEST_WAIT_S))


class TableReporter:
    """Report of one table. `standing` returns what to report, `is_loading` whether more segments are about to come
    in."""

    def __init__(
        self,
        writer: ReportWriter,
        *,
        name: str,
        standing: Callable[[], ReportContents],
        is_loading: Callable[[], bool],
        io: Executor,
        clock: Clock,
    ) -> None:
        self._name = name
        self._standing = standing
        self._is_loading = is_loading
        self._io = io
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._dirty = asyncio.Event()
        self._is_loaded = asyncio.Event()
        """Set while everything that was asked for has come in."""
        self._writing = asyncio.Lock()
        self._written = asyncio.Condition()
        self._num_asked = 0
        """Number of requests for a report; those up to `_num_written` are met."""
        self._num_written = 0
        self.reported_as_of = -math.inf
        """Monotonic time whose state the report in the metastore shows; any thread may read."""
        self._worked_s = 0.0
        """Seconds of the processor's time that the last report took."""
        self._is_doubtful = False
        self._is_withdrawn = False
        self._is_superseded = False

    def mark(self) -> None:
        """Note that the report has to change."""
        self._dirty.set()

    def loading_began(self) -> None:
        """Note that segments are asked for."""
        self._is_loaded.clear()

    def loading_ended(self) -> None:
        """Note that all segments that were asked for have come in, or failed."""
        self._is_loaded.set()

    def recheck(self) -> None:
        """Check the report in the metastore and mend it: it may be from before a session was lost."""
        self._is_doubtful = True
        self._dirty.set()

    async def take_over(self) -> None:
        """Write the report as this process's. A former process of this instance may still write; the last writer
        wins."""
        for _ in range(TAKE_OVER_ATTEMPTS):
            with contextlib.suppress(ConflictError):
                await self.write()
                return
        self.recheck()

    async def withdraw(self) -> None:
        """Report nothing from now on."""
        self._is_withdrawn = True
        await self.write()

    async def clear(self) -> None:
        """Delete the report."""
        await self._in_io(self._writer.clear)

    async def written(self) -> None:
        """Wait until the report shows the present state; a report that is being written already may not."""
        async with self._written:
            self._num_asked += 1
            mine = self._num_asked
            self._dirty.set()
            await self._written.wait_for(lambda: self._num_written >= mine)

    async def run(self, on_written: Callable[[], None]) -> None:
        """Write reports until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            started = self._clock.monotonic()
            try:
                has_changed = await self.write()
            except MerlotError as error:
                _LOG.warning("report not written %s cause=%s", self._name, error)
                self.recheck()
                await asyncio.sleep(RETRY_S)
                continue
            on_written()
            is_loading, took_s = self._is_loading(), self._clock.monotonic() - started
            longest_s = rest_s(took_s, self._worked_s, is_loading=is_loading)
            if is_loading:
                await self._rest(max(SETTLE_S / 2, longest_s))
            else:
                await asyncio.sleep(max(SETTLE_S / 2, longest_s) if has_changed else longest_s)

    async def write(self) -> bool:
        """Write the report; return True if it has changed."""
        async with self._writing:
            # The state is read under the lock: of two reports, the report written last is the newer.
            asked, is_doubtful, self._is_doubtful = self._num_asked, self._is_doubtful, False
            started, as_of = time.thread_time(), self._clock.monotonic()
            standing = self._standing()
            looked_s = time.thread_time() - started
            loaded = () if self._is_withdrawn else standing.loaded
            if is_doubtful:
                self._writer.recheck()
            has_changed, wrote_s = await self._in_io(partial(self._write, loaded, standing))
            self._worked_s, self.reported_as_of = looked_s + wrote_s, as_of
        async with self._written:
            self._num_written = max(self._num_written, asked)
            self._written.notify_all()
        self._note_superseded()
        return has_changed

    def _write(self, loaded: Collection[str], standing: ReportContents) -> tuple[bool, float]:
        """Return whether the report has changed, and the processor's time that this took."""
        started = time.thread_time()
        has_changed = self._writer.write(
            loaded,
            standing.errors,
            revision=standing.revision,
            indexing=standing.indexing,
            is_missed=standing.is_missed,
        )
        return has_changed, time.thread_time() - started

    def _note_superseded(self) -> None:
        if self._writer.is_superseded and not self._is_superseded:
            _LOG.warning("another process reports as this instance, this one reports no more %s", self._name)
        self._is_superseded = self._writer.is_superseded

    async def _rest(self, longest_s: float) -> None:
        """Wait until all segments have come in, at most `longest_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._is_loaded.wait()

    async def _in_io(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._io, work)

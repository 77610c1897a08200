"""Load the segments of one table: a queue that a few threads drain. The event loop takes their outcomes together.

A task and four changes of thread per segment would cost more than reading a small segment. A thread takes one segment
after the other, and calls the loop once until the loop has taken all outcomes. Everything but `_work` runs on the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster.records import SegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.segment.immutable import ImmutableSegment
from merlot.server.files import LoadSource
from merlot.server.tuning import DEFAULT_LOADS, LoadTuning

_LOG = logging.getLogger(__name__)

Bring = Callable[[SegmentRecord], tuple[ImmutableSegment, LoadSource] | None]
"""Load a segment, in a thread; None if the function reads only the local disk, and no sound file is there. Raises
MerlotError."""


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Outcome of loading one segment: at most one of `segment` and `error` is set."""

    key: str
    segment: ImmutableSegment | None
    source: LoadSource | None
    error: MerlotError | None
    seconds: float


class LoadQueue:
    """Queue of segments to load. `on_outcomes` is called on a thread when there are outcomes to take."""

    def __init__(
        self,
        executor: Executor,
        num_threads: int,
        clock: Clock,
        on_outcomes: Callable[[], None],
        tuning: LoadTuning = DEFAULT_LOADS,
    ) -> None:
        self._executor = executor
        self._tuning = tuning
        self._num_threads = num_threads
        self._clock = clock
        self._on_outcomes = on_outcomes
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, SegmentRecord, Bring]] = deque()
        self._outcomes: deque[LoadOutcome] = deque()
        self._is_loop_called = False
        self._keys: set[str] = set()
        self._turns: set[asyncio.Future[None]] = set()

    @property
    def keys(self) -> Collection[str]:
        """Keys that are asked for and whose outcome was not taken yet."""
        return self._keys

    def add(self, records: Iterable[SegmentRecord], bring: Bring) -> None:
        """Load these segments, after those that were asked for before."""
        for record in records:
            key = record.key_text
            self._keys.add(key)
            self._waiting.append((key, record, bring))
        self._start_turns()

    def take(self) -> list[LoadOutcome]:
        """Return the outcomes that have come in since the last call."""
        # In this order: a thread that sees the loop as called has added its outcome before the loop below looks for it.
        self._is_loop_called = False
        outcomes = []
        while self._outcomes:
            outcomes.append(self._outcomes.popleft())
        self._keys.difference_update([outcome.key for outcome in outcomes])
        return outcomes

    async def wait(self) -> None:
        """Wait until everything has come in."""
        while self._turns:
            await asyncio.wait(self._turns)

    async def stop(self) -> None:
        """Load nothing more; return when no thread works for the queue."""
        self._waiting.clear()
        await self.wait()
        self._keys.clear()

    def _start_turns(self) -> None:
        for _ in range(min(self._num_threads - len(self._turns), len(self._waiting))):
            turn = self._loop.run_in_executor(self._executor, self._work)
            self._turns.add(turn)
            turn.add_done_callback(self._end_turn)

    def _end_turn(self, turn: asyncio.Future[None]) -> None:
        self._turns.discard(turn)
        if turn.cancelled():
            self._waiting.clear()  # the threads are gone
        self._start_turns()

    def _work(self) -> None:
        """Load segments until the turn is over; in a thread."""
        ends = self._clock.monotonic() + self._tuning.turn_s
        is_over = False
        while not is_over:
            try:
                key, record, bring = self._waiting.popleft()
            except IndexError:
                return
            self._outcomes.append(self._bring(key, record, bring))
            if not self._is_loop_called:
                self._is_loop_called = True
                self._on_outcomes()
            is_over = self._clock.monotonic() >= ends

    def _bring(self, key: str, record: SegmentRecord, bring: Bring) -> LoadOutcome:
        started = self._clock.monotonic()
        loaded: tuple[ImmutableSegment | None, LoadSource | None] = (None, None)
        error: MerlotError | None = None
        try:
            loaded = bring(record) or loaded
        except MerlotError as problem:
            error = problem
        except Exception as problem:  # noqa: BLE001 - the outermost loop of a load
            _LOG.exception("segment not loaded by a bug segment=%s", key)
            error = UnavailableError(f"internal error, see the server's log error={type(problem).__name__}")
        return LoadOutcome(key, *loaded, error, self._clock.monotonic() - started)

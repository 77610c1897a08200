"""Brings the segments of one table in: a queue that a few threads drain, whose outcomes the event loop takes together.

A task and four changes of thread per segment would cost more than reading a small one. A thread takes one segment after
the other, and tells the loop once until the loop has taken what there is. All but the threads' part is used on the
event loop.
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
from merlot.server.files import Source

_LOG = logging.getLogger(__name__)

TURN_S = 0.1
"""A thread works for one table so long at a time; others have segments to load as well."""

Bring = Callable[[SegmentRecord], tuple[ImmutableSegment, Source] | None]
"""In a thread: the segment, or None where there is none; raises MerlotError."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one segment: at most one of `segment` and `error`."""

    key: str
    segment: ImmutableSegment | None
    source: Source | None
    error: MerlotError | None
    seconds: float


class LoadQueue:
    """`on_outcomes` is called on a thread when there are outcomes to take."""

    def __init__(self, executor: Executor, num_threads: int, clock: Clock, on_outcomes: Callable[[], None]) -> None:
        self._executor = executor
        self._num_threads = num_threads
        self._clock = clock
        self._on_outcomes = on_outcomes
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, SegmentRecord, Bring]] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._is_told = False
        self._keys: set[str] = set()
        self._turns: set[asyncio.Future[None]] = set()

    @property
    def keys(self) -> Collection[str]:
        """What is asked for and was not taken yet."""
        return self._keys

    def add(self, records: Iterable[SegmentRecord], bring: Bring) -> None:
        """Bring these in, after what was asked for before."""
        for record in records:
            key = record.key_text
            self._keys.add(key)
            self._waiting.append((key, record, bring))
        self._start_turns()

    def take(self) -> list[Outcome]:
        """What has come in since."""
        # In this order: whoever adds one now and takes the loop for told has added it before it is looked for.
        self._is_told = False
        taken = []
        while self._outcomes:
            taken.append(self._outcomes.popleft())
        self._keys.difference_update([one.key for one in taken])
        return taken

    async def wait(self) -> None:
        """Until everything has come in."""
        while self._turns:
            await asyncio.wait(self._turns)

    async def stop(self) -> None:
        """Bring in nothing more; returns when no thread works for it."""
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
        """In a thread."""
        ends = self._clock.monotonic() + TURN_S
        is_over = False
        while not is_over:
            try:
                key, record, bring = self._waiting.popleft()
            except IndexError:
                return
            self._outcomes.append(self._bring(key, record, bring))
            if not self._is_told:
                self._is_told = True
                self._on_outcomes()
            is_over = self._clock.monotonic() >= ends

    def _bring(self, key: str, record: SegmentRecord, bring: Bring) -> Outcome:
        started = self._clock.monotonic()
        found: tuple[ImmutableSegment | None, Source | None] = (None, None)
        error: MerlotError | None = None
        try:
            found = bring(record) or found
        except MerlotError as problem:
            error = problem
        except Exception as problem:  # noqa: BLE001 - the outermost loop of a load
            _LOG.exception("segment not loaded by a bug segment=%s", key)
            error = UnavailableError(f"internal error, see the server's log error={type(problem).__name__}")
        return Outcome(key, *found, error, self._clock.monotonic() - started)

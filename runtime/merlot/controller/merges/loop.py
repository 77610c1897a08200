"""The leader's loop over all MergeRollupTasks, which makes merge tasks by schedule.

A run begins when the schedule says so, and goes on, pass by pass as tasks end, until nothing is left to merge. So a
table that is far behind catches up in one run. A new leader takes up runs whose tasks are still there. The loop runs on
an event loop; blocking calls run in one thread at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.losses import lost_tables
from merlot.cluster.tasks.queue import MERGE_ROLLUP
from merlot.controller.merges.facts import RollupFacts, RollupReader
from merlot.controller.merges.gauges import MergeGauges
from merlot.controller.merges.passes import clean_up, run_pass
from merlot.errors import ConflictError, MerlotError
from merlot.metastore.protocol import Check, Metastore, Watch
from merlot.values import schedules
from merlot.wakeups import OwnThread, WakeUp

_LOG = logging.getLogger(__name__)

IDLE_S = 30.0
"""Longest time between two looks. Time alone makes more buckets due."""

SETTLE_S = 0.1
"""Time to wait after a wake-up, so that one pass follows tasks that end together."""

RETRY_S = 1.0
WATCHED = (paths.ROLLUPS, paths.tasks(MERGE_ROLLUP), paths.TABLES)


@dataclass(slots=True)
class _ScheduledRun:
    """State of a MergeRollupTask in its schedule."""

    revision: int
    next_ms: int
    is_on: bool = False


class MergeLoop:
    """Owner of the schedules. `fence` returns None unless this controller leads; the loop's writes depend on the check
    that it returns."""

    def __init__(
        self,
        metastore: Metastore,
        clock: Clock,
        fence: Callable[[], Check | None],
        reader: RollupReader | None = None,
    ) -> None:
        self._metastore = metastore
        self._clock = clock
        self._fence = fence
        self._reader = reader or RollupReader(metastore, clock)
        self._gauges = MergeGauges()
        self._runs: dict[str, _ScheduledRun] = {}
        self._watches: list[Watch] = []
        self._config_watches: dict[str, Watch] = {}
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    async def run(self) -> None:
        """Make tasks until cancelled."""
        wake_up = WakeUp()
        self._wake = wake_up.call
        with OwnThread("merge-round") as thread:
            try:
                while True:
                    await wake_up.wait(await thread.run(self.round), settle_s=SETTLE_S)
            finally:
                await thread.run(self.close)

    def wake(self) -> None:
        """Look again soon; any thread may call."""
        self._wake()

    def round(self) -> float:
        """Look at everything and act where it is time; return the seconds to wait for a wake-up. Blocks."""
        with self._lock:
            try:
                self._watch()
                fence = self._fence()
                if fence is not None:
                    return self._act(fence)
                self._stand_down()
                return RETRY_S
            except ConflictError as error:
                _LOG.info("round of merges ends, something changed meanwhile cause=%s", error)
            except MerlotError as error:
                _LOG.warning("round of merges failed cause=%s", error)
            except Exception:  # noqa: BLE001 - the outermost loop: without it nothing would be merged any more
                _LOG.exception("round of merges failed by a bug")
            return RETRY_S

    def close(self) -> None:
        """Cancel the watches, after the round under way. Blocks."""
        with self._lock:
            for watch in (*self._watches, *self._config_watches.values()):
                watch.cancel()
            self._watches = []
            self._config_watches = {}
            self._stand_down()

    def _stand_down(self) -> None:
        self._runs = {}
        self._gauges.clear()

    def _watch(self) -> None:
        for path in WATCHED[len(self._watches) :]:
            self._watches.append(self._metastore.watch_children(path, self._wake))

    def _watch_configs(self, rollups: Mapping[str, RollupFacts]) -> None:
        for name in self._config_watches.keys() - rollups.keys():
            self._config_watches.pop(name).cancel()
        for name in rollups.keys() - self._config_watches.keys():
            self._config_watches[name] = self._metastore.watch(paths.rollup_config(name), self._wake)

    def _act(self, fence: Check) -> float:
        rollups = {facts.name: facts for facts in self._reader.all()}
        self._watch_configs(rollups)
        clean_up(self._metastore, self._reader.declared, fence, self._reader.unreadable)
        for name in self._runs.keys() - rollups.keys():
            del self._runs[name]
        lost = lost_tables(self._metastore)
        for facts in rollups.values():
            if facts.record.table not in lost:
                self._try(facts, fence)
        self._gauges.keep({facts.record.table for facts in rollups.values() if facts.table is not None})
        now_ms = self._clock.now_ms()
        waits = [(run.next_ms - now_ms) / 1000 for run in self._runs.values()]
        return max(0.05, min((IDLE_S, *waits)))

    def _try(self, facts: RollupFacts, fence: Check) -> None:
        """Take a step of one MergeRollupTask. Errors are logged: they must not stop the others."""
        try:
            self._step(facts, fence)
        except ConflictError as error:
            _LOG.info("pass ends, something changed meanwhile rollup=%s cause=%s", facts.name, error)
            self._wake()
        except MerlotError as error:
            _LOG.warning("pass failed rollup=%s cause=%s", facts.name, error)

    def _step(self, facts: RollupFacts, fence: Check) -> None:
        run = self._run_of(facts)
        run.is_on |= facts.now_ms >= run.next_ms or any(task.is_unfinished for task in facts.tasks)
        if facts.now_ms >= run.next_ms:
            run.next_ms = schedules.parse(facts.spec.schedule).next(facts.now_ms)
        if run.is_on or facts.is_suspended or facts.problem is not None:
            done = run_pass(self._metastore, self._reader, facts, fence)
            is_waiting = any(task.is_unfinished for task in facts.tasks)
            run.is_on = bool(done.created) or is_waiting or done.waits_for_room
            if done.created or done.cancelled:
                facts = self._reader.get(facts.name)
        if facts.problem is None:
            self._gauges.set(facts, self._reader.decide(facts))

    def _run_of(self, facts: RollupFacts) -> _ScheduledRun:
        """Return the task's run, begun anew if its manifest changed. A period's first run is at once, cron's at its
        first time after the last run and the last change of the manifest."""
        run = self._runs.get(facts.name)
        if run is None or run.revision != facts.record.revision:
            run = self._runs[facts.name] = _ScheduledRun(facts.record.revision, self._first_ms(facts))
        return run

    def _first_ms(self, facts: RollupFacts) -> int:
        schedule = schedules.parse(facts.spec.schedule)
        if isinstance(schedule, schedules.PeriodicSchedule):
            return facts.now_ms
        return schedule.next(min(facts.now_ms, max(facts.watermarks.last_run_ms, facts.record.updated_ms)))

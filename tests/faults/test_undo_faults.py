"""Whoever takes back a merge is killed or frozen at each step of it, while others finish that and do the work anew.

Steps are the named ones, the writes of the metastore and the calls of the deep store; minions are no processes, as in
`test_merge_kills`. Whatever happens, no file that a record names goes, and in the end nothing is left over.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count, seed
from tests.faults.moments import some_of
from tests.support.faults import METASTORE_WRITES, STORE_CALLS, Interrupted, ProcessDied
from tests.support.merges import ENTRY, MergeBench
from tests.support.sample import ORDERS, START_MS

from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.manifests import tables
from merlot.cluster.records import LineageState
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.records import SHUFFLE_FOLDER, TaskState
from merlot.errors import InvalidInputError
from merlot.values.periods import DAY_MS

NUM_MOMENTS = count("MERLOT_KILLS", quick=1, every=5, fuzz=100)
"""Of each kind, at which each case is met."""
WHOLE: dict[str, Any] = {}
SHARDS = {"num_shards": 2, "max_records_per_segment": 50}
REST = {
    "windows": ((START_MS, START_MS + 2 * DAY_MS),),
    "rest": ((START_MS + 2 * DAY_MS, START_MS + 3 * DAY_MS),),
    "rest_prefix": "spilled_weekly_0001",
}


@pytest.fixture(autouse=True)
def _small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue each part of a bucket by a write of its own."""
    monkeypatch.setattr(queue, "MAX_MULTI_BYTES", 1)


@dataclass(frozen=True)
class Case:
    """A task that broke off at a step, and was then cancelled or set aside."""

    config: dict[str, Any]
    step: str
    is_poisoned: bool = False


CASES = {
    "uploaded": Case(WHOLE, "output uploaded"),
    "published": Case(WHOLE, "outputs put"),
    "with a rest": Case(REST, "outputs put"),
    "shuffled": Case(SHARDS, "shards uploaded"),
    "a shard uploaded": Case(SHARDS, "output uploaded"),
    "all shards done": Case(SHARDS, "entry started"),
    "set aside": Case(WHOLE, "output uploaded", is_poisoned=True),
    "a shard set aside": Case(SHARDS, "shard done", is_poisoned=True),
}


@dataclass
class World:
    """The bench, with everybody but the minion under test."""

    bench: MergeBench
    case: Case
    expected: list[dict[str, Any]] = field(default_factory=list)

    def break_off(self) -> None:
        """The task comes to its step, and is cancelled there; what is to be set aside only waits for its next run."""
        self.expected = self.bench.expected_rows()
        self.bench.queue(**self.case.config)
        with contextlib.suppress(ProcessDied):
            while queued := self.bench.queued():
                self.bench.run(queued[0], reached=self._die)
        if not self.case.is_poisoned:
            self._cancel_all()

    def undo(self, metastore: Any, store: Any, reached: Callable[[str], None]) -> None:
        """What the minion under test does: it takes back all tasks of the queue, or fails at one for good."""

        def at(step: str) -> None:
            reached(step)
            if self.case.is_poisoned and step == self.case.step:
                raise InvalidInputError("as if it could not be done")

        self._free_leases()
        for task_id in self.bench.queued():
            if self._state(task_id) is not TaskState.POISONED:
                self.bench.run(task_id, metastore=metastore, store=store, reached=at)

    def run(self, metastore: Any, store: Any, reached: Callable[[str], None]) -> None:
        """What the minion under test does: it works off the queue, as it was when it began."""
        self.expected = self.bench.expected_rows()
        self.bench.queue(**self.case.config)
        for _ in range(1 + self.case.config.get("num_shards", 0)):
            for task_id in self.bench.queued()[:1]:
                self.bench.run(task_id, metastore=metastore, store=store, reached=reached)

    def cancel_and_go_on(self, num_tasks: int) -> None:
        """The others, after somebody has cancelled what the minion under test does."""
        self._cancel_all()
        self.go_on(num_tasks)

    def make_anew(self, fate: tables.Files, num_tasks: int) -> None:
        """The others, after somebody has deleted the table and made another one of the same name and segments."""
        bench = self.bench
        tables.delete_table(bench.inner, "orders", files=fate, clock=bench.clock)
        self._cancel_all()
        self._free_leases()
        for task_id in bench.queued():
            bench.run(task_id, owner="Minion_3")
        assert bench.queued() == []
        bench.clean()
        bench.clean()  # which pardons what the first pass has deleted
        bench.publish_anew()
        self.go_on(num_tasks)

    def go_on(self, num_tasks: int) -> None:
        """The others: they take back what is left, and do so many tasks of the same work anew."""
        self._free_leases()
        for task_id in self.bench.queued():
            if self._state(task_id) is TaskState.CANCELLED:
                self.bench.run(task_id, owner="Minion_3")
        for _ in range(num_tasks):
            self._do_one()
        assert self.bench.visible_rows() == self.expected

    def finish(self) -> None:
        """Until the work is done, and the cleaner has been there: no row is lost, no file is left."""
        for _ in range(20):
            if self._is_done():
                break
            self.bench.clean()
            self._do_one()
            assert self.bench.visible_rows() == self.expected
        assert self._is_done()
        self.bench.clean()
        assert self.bench.visible_rows() == self.expected
        view = self.bench.view()
        assert all(record.replaces == ENTRY for record in view.visible.values())
        assert {record.url for record in view.segments.values()} <= set(self.bench.deep_store.list(ORDERS))

    def check_nothing_is_left(self) -> None:
        """Only of a kill: what somebody who was frozen uploads late is an orphan, which goes a day later."""
        view = self.bench.view()
        assert sorted(record.url for record in view.segments.values()) == self.bench.deep_store.list(ORDERS)
        assert list(self.bench.deep_store.list_below(ORDERS, SHUFFLE_FOLDER)) == []

    def _do_one(self) -> None:
        self._free_leases()
        queued = self.bench.queued()
        if not queued and not self._is_done():
            self.bench.queue(**self.case.config)
            queued = self.bench.queued()
        for task_id in queued[:1]:
            found = queue.find_task(self.bench.inner, queue.MERGE_ROLLUP, task_id)
            if found is not None and found.record.state is TaskState.POISONED:
                queue.retry(self.bench.inner, found)
            self.bench.serve()
            self.bench.run(task_id, owner="Minion_3")

    def _is_done(self) -> bool:
        entry = replacements.find_entry(self.bench.inner, ORDERS, ENTRY)
        return entry is not None and entry.state is LineageState.COMPLETED and not self.bench.queued()

    def _state(self, task_id: str) -> TaskState | None:
        found = queue.find_task(self.bench.inner, queue.MERGE_ROLLUP, task_id)
        return None if found is None else found.record.state

    def _cancel_all(self) -> None:
        for task_id in self.bench.queued():
            found = queue.find_task(self.bench.inner, queue.MERGE_ROLLUP, task_id)
            assert found is not None
            queue.cancel(self.bench.inner, found)

    def _free_leases(self) -> None:
        for task_id in [*self.bench.queued(), "t1"]:
            if self.bench.inner.get(paths.lease(queue.lease_name(queue.MERGE_ROLLUP, task_id))) is not None:
                self.bench.free_lease(task_id)

    def _die(self, step: str) -> None:
        if step == self.case.step:
            raise ProcessDied


@contextlib.contextmanager
def a_world(folder: Path, case: Case, *, is_fresh: bool = False) -> Iterator[World]:
    bench = MergeBench(folder, range(3), num_rows=40)
    world = World(bench, case)
    try:
        if not is_fresh:
            world.break_off()
        yield world
    finally:
        bench.close()


@dataclass(frozen=True)
class Place:
    """Where the minion under test is met: before the call number `at` of what it uses, or at that named step."""

    what: str
    at: int


WHATS = ("steps", "metastore", "deep store")


def meet(world: World, place: Place, act: Callable[[], None], work: Callable[..., None]) -> Mapping[str, int]:
    """Have the minion under test work, and `act` at the place; returns how many places of each kind there were."""
    bench = world.bench
    is_step = place.what == "steps"
    metastore = Interrupted(bench.inner, METASTORE_WRITES, place.at if place.what == "metastore" else -1, act)
    store = Interrupted(bench.deep_store, STORE_CALLS, place.at if place.what == "deep store" else -1, act)
    num_steps = 0

    def reached(_: str) -> None:
        nonlocal num_steps
        number, num_steps = num_steps, num_steps + 1
        if is_step and number == place.at:
            act()

    work(metastore, store, reached)
    return {"steps": num_steps, "metastore": metastore.num_calls, "deep store": store.num_calls}


@cache
def places_of(name: str) -> Mapping[str, int]:
    """How many of each kind there are in the undo of a case, or in a run."""
    with tempfile.TemporaryDirectory() as folder:
        if name in CASES:
            with a_world(Path(folder) / "undo", CASES[name]) as world:
                return meet(world, Place("", -1), lambda: None, world.undo)
        with a_world(Path(folder) / "run", RUNS[name], is_fresh=True) as world:
            return meet(world, Place("", -1), lambda: None, world.run)


def places(name: str, what: str, turn: int = 0, turns: int = 1) -> list[Place]:
    """All of them where there is time, else some."""
    number = places_of(name)[what]
    assert number > 0
    return [Place(what, at) for at in some_of(number, NUM_MOMENTS, turn, turns)]


RUNS = {"whole": Case(WHOLE, ""), "with a rest": Case(REST, ""), "shards": Case(SHARDS, "")}


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", CASES)
def test_an_undo_that_is_killed_is_finished_by_the_next_one(name: str, what: str, tmp_path: Path) -> None:
    def die() -> None:
        raise ProcessDied

    for place in places(name, what, list(CASES).index(name), len(CASES)):
        with a_world(tmp_path / str(place.at), CASES[name]) as world:
            with contextlib.suppress(ProcessDied):
                meet(world, place, die, world.undo)
            world.go_on(0)
            world.finish()
            world.check_nothing_is_left()


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", CASES)
def test_an_undo_that_wakes_late_takes_nothing_from_those_who_did_the_work_anew(
    name: str, what: str, tmp_path: Path
) -> None:
    """Frozen until the others have taken back the rest and have done some or all tasks of the same work."""
    rng = random.Random(f"{seed()} {name} {what}")
    for place in places(name, what, len(CASES) - 1 - list(CASES).index(name), len(CASES)):
        num_tasks = rng.choice([0, 1, 2, 9])
        with a_world(tmp_path / str(place.at), CASES[name]) as world:
            meet(world, place, partial(world.go_on, num_tasks), world.undo)
            assert world.bench.visible_rows() == world.expected, place
            world.finish()


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_wakes_after_its_task_was_cancelled_and_done_anew_changes_nothing(
    name: str, what: str, tmp_path: Path
) -> None:
    """Frozen at each place of a run, until others have taken it back and done some or all of it again."""
    rng = random.Random(f"{seed()} {name} {what}")
    for place in places(name, what, list(RUNS).index(name), len(RUNS)):
        num_tasks = rng.choice([0, 1, 2, 9])
        with a_world(tmp_path / str(place.at), RUNS[name], is_fresh=True) as world:
            meet(world, place, partial(world.cancel_and_go_on, num_tasks), world.run)
            assert world.bench.visible_rows() == world.expected, (place, num_tasks)
            world.finish()


FATES = {"files now": tables.Files.NOW, "files later": tables.Files.LATER}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", ["whole", "shards"])
def test_a_run_that_wakes_after_its_table_was_deleted_takes_nothing_from_another_of_its_name(
    name: str, what: str, fate: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed()} {name} {what} {fate}")
    for place in places(name, what, list(FATES).index(fate), len(FATES)):
        num_tasks = rng.choice([0, 1, 9])
        with a_world(tmp_path / str(place.at), RUNS[name], is_fresh=True) as world:
            meet(world, place, partial(world.make_anew, FATES[fate], num_tasks), world.run)
            assert world.bench.visible_rows() == world.expected, (place, num_tasks)
            world.finish()

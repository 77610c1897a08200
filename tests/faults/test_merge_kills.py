"""A merge breaks off at each of its steps: queries see all inputs or all outputs, and the next minion finishes it.

Here nothing is a process: minions die by an exception that nothing catches, at each named step, at each write of the
metastore, at each call of the deep store. With processes: `test_merge_process_kills`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count, seed
from tests.faults.moments import kinds_of, some_of
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.support.faulty_s3 import FaultyS3
from tests.support.merges import ENTRY, MergeBench, rollup_config
from tests.support.processes import can_mount, resize_disk, small_disk
from tests.support.sample import ORDERS

from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import LineageEntry
from merlot.cluster.records import LineageState
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import TaskOutcome, TaskState
from merlot.errors import UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.minion import leftovers
from merlot.minion.execution import Ending
from merlot.minion.tuning import MinionTuning
from merlot.spec.tasks import ROUNDED_TO
from merlot.store.deepstore import DeepStore

SHARDS = {"num_shards": 2, "max_records_per_segment": 50}
FAULTS = list(Fault)
NUM_MOMENTS = count("MERLOT_KILLS", quick=2, every=8, fuzz=200)
"""Of a task that meet a fault."""


@pytest.fixture(autouse=True)
def _small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue each part of a bucket by a write of its own."""
    monkeypatch.setattr(queue, "MAX_MULTI_BYTES", 1)


@contextlib.contextmanager
def a_bench(folder: Path, **config: Any) -> Iterator[MergeBench]:
    bench = MergeBench(folder, range(3), num_rows=40)
    try:
        bench.queue(**config)
        yield bench
    finally:
        bench.close()


def entries(bench: MergeBench) -> list[LineageEntry]:
    return list(replacements.list_entries(bench.inner, ORDERS))


def finish(bench: MergeBench, expected: list[dict[str, Any]]) -> None:
    """Other minions go on until nothing is queued; at every moment the answers are right."""
    for number in range(10):
        for task_id in bench.queued():
            bench.free_lease(task_id)
            bench.serve()
            bench.run(task_id, owner=f"Minion_{number + 2}")
            assert bench.visible_rows() == expected
        if not bench.queued():
            break
    assert bench.queued() == []


def check_all_is_done(bench: MergeBench, expected: list[dict[str, Any]]) -> None:
    """I3: the rows; I4: records and files are the same set; I6: published files are whole."""
    view = bench.view()
    assert bench.visible_rows() == expected
    assert [(one.id, one.state) for one in entries(bench)] == [(ENTRY, LineageState.COMPLETED)]
    assert all(record.replaces == ENTRY for record in view.visible.values())
    assert sorted(record.url for record in view.segments.values()) == bench.deep_store.list(ORDERS)
    leftover = [path for path in (bench.folder / "deep" / ORDERS).rglob("*") if path.is_file()]
    assert len(leftover) == len(view.segments), "nothing of the shuffle is left"
    history = queue.history(bench.inner, queue.MERGE_ROLLUP, ORDERS)
    assert {one.outcome for one in history.tasks} == {TaskOutcome.SUCCEEDED}
    leftovers.sweep(bench.inner, [queue.MERGE_ROLLUP], bench.clock)
    assert bench.inner.children(paths.progress_of(queue.MERGE_ROLLUP)) == []


def steps_of(folder: Path, **config: Any) -> list[str]:
    """The named steps of a task that nothing hinders, in order; more than one minion if there are shards."""
    steps: list[str] = []
    with a_bench(folder, **config) as bench:
        while queued := bench.queued():
            bench.run(queued[0], reached=steps.append)
    return steps


def die_at(number: int) -> Callable[[str], None]:
    """Reached steps are counted; at this one the minion dies."""
    count = iter(range(1 << 30))

    def reached(_: str) -> None:
        if next(count) == number:
            raise ProcessDied

    return reached


@pytest.mark.parametrize("config", [{}, SHARDS], ids=["whole", "shards"])
def test_a_minion_that_dies_at_a_step_leaves_the_rest_to_the_next_one(config: dict[str, Any], tmp_path: Path) -> None:
    steps = steps_of(tmp_path / "plain", **config)
    assert {"inputs fetched", "outputs built", "entry started", "output uploaded", "entry ended"} <= set(steps)
    for number in kinds_of(steps):
        with a_bench(tmp_path / str(number), **config) as bench:
            expected = bench.expected_rows()
            reached = die_at(number)
            with contextlib.suppress(ProcessDied):
                while queued := bench.queued():
                    bench.run(queued[0], reached=reached)
            assert bench.visible_rows() == expected, steps[number]
            finish(bench, expected)
            check_all_is_done(bench, expected)


@pytest.mark.parametrize("config", [{}, SHARDS], ids=["whole", "shards"])
def test_however_a_minion_dies_a_rollup_keeps_how_late_its_rows_were(config: dict[str, Any], tmp_path: Path) -> None:
    config = {**rollup_config(), **config}
    for number in kinds_of(steps_of(tmp_path / "plain", **config)):
        with a_bench(tmp_path / str(number), **config) as bench:
            newest_ms = max(record.end_time_ms or 0 for record in bench.records)
            amount = sum(row["amount"] for row in bench.visible_rows())
            reached = die_at(number)
            with contextlib.suppress(ProcessDied):
                while queued := bench.queued():
                    bench.run(queued[0], reached=reached)
            while queued := bench.queued():
                bench.free_lease(queued[0])
                bench.serve()
                bench.run(queued[0], owner="Minion_2")
            outputs = bench.view().visible.values()
            assert {record.newest_ms for record in outputs} == {newest_ms}
            assert {record.custom_map[ROUNDED_TO] for record in outputs} == {"1d"}
            assert sum(row["amount"] for row in bench.visible_rows()) == amount


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("config", [{}, SHARDS], ids=["whole", "shards"])
def test_a_write_that_breaks_off_is_made_good(fault: Fault, config: dict[str, Any], tmp_path: Path) -> None:
    """Writes of the task's whole life: the lease, the start, the outputs, the end, the history."""
    num_writes = _count_writes(tmp_path / "plain", config)
    assert num_writes > 8
    for at in some_of(num_writes, NUM_MOMENTS, FAULTS.index(fault), len(FAULTS)):
        with a_bench(tmp_path / str(at), **config) as bench:
            expected = bench.expected_rows()
            faulty = FaultyMetastore(bench.inner, fault, at)
            with contextlib.suppress(ProcessDied):
                _run_all(bench, faulty)
            assert bench.visible_rows() == expected, at
            finish(bench, expected)
            check_all_is_done(bench, expected)


def _run_all(bench: MergeBench, store: Metastore) -> None:
    for _ in range(8):
        for task_id in bench.queued():
            bench.serve()
            with contextlib.suppress(UnavailableError):
                bench.run(task_id, metastore=store)


def _count_writes(folder: Path, config: dict[str, Any]) -> int:
    with a_bench(folder, **config) as bench:
        counting = FaultyMetastore(bench.inner, Fault.DIE_BEFORE, -1)
        _run_all(bench, counting)
        return counting.num_writes


@pytest.mark.parametrize("config", [{}, SHARDS], ids=["whole", "shards"])
def test_a_metastore_that_is_silent_again_and_again_never_sets_a_task_aside(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """At another write each time, more often than minions may die or other outages last."""
    num_writes = _count_writes(tmp_path / "plain", config)
    rng = random.Random(seed())
    with a_bench(tmp_path / "silent", **config) as bench:
        expected = bench.expected_rows()
        bench.register("Minion_1")
        for _ in range(MinionTuning().max_deaths + 5):
            faulty = FaultyMetastore(bench.inner, rng.choice([Fault.LOSE_REQUEST, Fault.LOSE_ANSWER]), 0)
            faulty.fail_from(rng.randrange(num_writes // 2))
            with contextlib.suppress(UnavailableError):
                for task_id in bench.queued():
                    bench.serve()
                    bench.run(task_id, metastore=faulty)
            assert bench.visible_rows() == expected
            for task_id in bench.queued():
                found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, task_id)
                assert found is not None
                assert (found.record.state, found.record.attempts) == (TaskState.QUEUED, 0)
        finish(bench, expected)
        check_all_is_done(bench, expected)


@pytest.mark.parametrize("fault", ["failures", "truncations"])
def test_a_deep_store_that_fails_or_cuts_answers_costs_time_and_nothing_else(
    fault: str, s3: FaultyS3, tmp_path: Path
) -> None:
    """Requests of the task's whole life, with no second attempt left inside the task."""
    for first in some_of(14, NUM_MOMENTS, fault == "failures", 2):
        folder = tmp_path / str(first)
        folder.mkdir()
        bench = MergeBench(folder, range(3), num_rows=40, deep_store=s3.uri(prefix=f"deep-{fault}-{first}"))
        expected = bench.expected_rows()
        bench.queue()
        bench.run(store=_Counting(bench.deep_store, s3, fault, first))
        s3.failures = s3.truncations = 0
        assert bench.visible_rows() == expected
        finish(bench, expected)
        assert bench.visible_rows() == expected
        assert sorted(one.url for one in bench.view().segments.values()) == bench.deep_store.list(ORDERS)
        bench.close()


class _Counting:
    """A deep store whose call number `at` meets two faults, which is more than its attempts."""

    def __init__(self, inner: DeepStore, s3: FaultyS3, fault: str, at: int) -> None:
        self._inner = inner
        self._s3 = s3
        self._fault = fault
        self._left = at
        self.uri = inner.uri

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                setattr(self._s3, self._fault, 2)
            return method(*args, **options)

        return call


@pytest.mark.skipif(not can_mount(), reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("is_blind", [False, True], ids=["seen before", "hit"])
def test_a_full_disk_fails_the_attempt_and_a_larger_one_finishes_it(
    is_blind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merlot.catalog import transfer

    monkeypatch.setattr(transfer, "SPARE_BYTES", -(1 << 40) if is_blind else 0)
    bench = MergeBench(tmp_path, range(3), num_rows=20_000)
    expected = bench.expected_rows()
    bench.queue()
    with small_disk(tmp_path / "Minion_1", 600_000):
        assert bench.run() is Ending.FAILED
        found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, "t1")
        assert found is not None
        assert "no space left" in found.record.last_error.lower()
        assert list((tmp_path / "Minion_1").iterdir()) == []
        resize_disk(tmp_path / "Minion_1", 64 << 20)
        assert bench.run() is Ending.DONE
    assert bench.visible_rows() == expected
    check_all_is_done(bench, expected)
    bench.close()


def test_a_frozen_minion_that_wakes_after_another_one_took_over_writes_nothing(tmp_path: Path) -> None:
    steps = steps_of(tmp_path / "plain")
    for number in kinds_of(steps):
        step = steps[number]
        with a_bench(tmp_path / str(number)) as bench:
            expected = bench.expected_rows()
            frozen = _Frozen(bench, number)
            ending = bench.run(reached=frozen.reached)
            assert frozen.was_frozen, step
            assert ending in {Ending.LOST, Ending.DONE, Ending.CANCELLED}, step
            assert bench.visible_rows() == expected
            assert bench.queued() == []
            check_all_is_done(bench, expected)


@dataclass
class _Frozen:
    """A minion that sleeps at a step until another one has done its task."""

    bench: MergeBench
    at: int
    num_steps: int = 0
    was_frozen: bool = False

    def reached(self, _: str) -> None:
        self.num_steps += 1
        if self.num_steps == self.at + 1:
            self.was_frozen = True
            self.bench.free_lease()
            self.bench.serve()
            self.bench.run(owner="Minion_2")

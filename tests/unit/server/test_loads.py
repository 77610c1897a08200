"""Segments come in through a few threads, and what comes in is taken together."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.sample import build_orders

from merlot.clock import SystemClock
from merlot.cluster.records import SegmentRecord
from merlot.errors import NotFoundError
from merlot.segment.immutable import ImmutableSegment
from merlot.server.files import LoadSource
from merlot.server.loads import LoadOutcome, LoadQueue
from merlot.server.tuning import DEFAULT_LOADS, LoadTuning
from merlot.testing.patience import PATIENCE_S, until

NUM_THREADS = 2


def records(count: int) -> list[SegmentRecord]:
    return [SegmentRecord(name=f"s{one}", crc=one, size_bytes=1, url="", total_docs=1) for one in range(count)]


class Bench:
    """A queue, and what was taken from it."""

    def __init__(self, pool: ThreadPoolExecutor, tuning: LoadTuning = DEFAULT_LOADS) -> None:
        self.told = 0
        self.queue = LoadQueue(pool, NUM_THREADS, SystemClock(), self._tell, tuning)
        self.taken: list[LoadOutcome] = []

    def _tell(self) -> None:
        self.told += 1

    def has_taken(self, count: int) -> bool:
        self.taken += self.queue.take()
        return len(self.taken) == count


@pytest.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        bench = Bench(pool, getattr(request, "param", DEFAULT_LOADS))
        yield bench
        await bench.queue.stop()


async def test_all_come_in_and_the_loop_is_told_once_until_it_takes_them(bench: Bench, tmp_path: Path) -> None:
    segment = ImmutableSegment.open(build_orders(tmp_path, 0).path)
    bench.queue.add(records(100), lambda _: (segment, LoadSource.DISK))
    assert len(bench.queue.keys) == 100
    await bench.queue.wait()
    assert bench.told == 1
    assert bench.has_taken(100)
    assert {one.key for one in bench.taken} == {one.key_text for one in records(100)}
    assert all((one.segment, one.source, one.error) == (segment, LoadSource.DISK, None) for one in bench.taken)
    assert not bench.queue.keys


@pytest.mark.parametrize("bench", [LoadTuning(turn_s=0.0)], indirect=True, ids=["a turn a segment"])
async def test_one_that_takes_its_time_holds_up_no_other(bench: Bench) -> None:
    go = threading.Event()

    def bring(record: SegmentRecord) -> None:
        if record.name == "s0":
            assert go.wait(PATIENCE_S)

    bench.queue.add(records(20), bring)
    await until(lambda: bench.has_taken(19))
    assert list(bench.queue.keys) == ["s0@0"]
    go.set()
    await until(lambda: bench.has_taken(20))


async def test_what_fails_is_told_with_its_cause_and_a_bug_as_one(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def bring(record: SegmentRecord) -> None:
        raise NotFoundError("gone") if record.name == "s0" else ZeroDivisionError

    bench.queue.add(records(2), bring)
    await until(lambda: bench.has_taken(2))
    errors = {one.key: str(one.error) for one in bench.taken}
    assert errors["s0@0"] == "gone"
    assert "internal error" in errors["s1@1"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_queue_that_stops_leaves_no_thread_at_work(bench: Bench) -> None:
    go, begun = threading.Event(), threading.Event()
    brought = []

    def bring(record: SegmentRecord) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        brought.append(record)

    bench.queue.add(records(50), bring)
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    stopping = asyncio.create_task(bench.queue.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert 0 < len(brought) <= NUM_THREADS
    assert not bench.queue.keys

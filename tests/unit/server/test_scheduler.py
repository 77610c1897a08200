"""Who may run now, and who waits for whom."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from merlot.server.scheduler import OutOfCapacityError, Scheduler, SchedulerConfig, SchedulingTimeoutError
from merlot.testing.patience import PATIENCE_S


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(SchedulerConfig(max_young=1, max_running=1, max_waiting=4, num_helpers=1))
    yield scheduler
    scheduler.close()


class Gate:
    """Work that holds a thread until it is let go."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.released = threading.Event()

    def __call__(self) -> str:
        self.started.set()
        assert self.released.wait(PATIENCE_S)
        return "done"


def nothing() -> None:
    pass


async def start(scheduler: Scheduler, line: str, work: Callable[[], object]) -> asyncio.Task[object]:
    task: asyncio.Task[object] = asyncio.create_task(scheduler.run(line, work, 10.0, nothing))
    await asyncio.sleep(0)
    return task


async def test_tables_take_turns_however_long_their_lines_are(scheduler: Scheduler) -> None:
    gate = Gate()
    order: list[str] = []
    first = await start(scheduler, "a", gate)
    others = [await start(scheduler, line, lambda line=line: order.append(line)) for line in ("a", "a", "a", "b")]
    gate.released.set()
    await asyncio.gather(first, *others)
    assert order == ["a", "b", "a", "a"]


async def test_a_query_that_runs_long_makes_room_for_short_ones() -> None:
    scheduler = Scheduler(SchedulerConfig(max_young=1, max_running=2, max_waiting=4, num_helpers=1))
    gates = [Gate(), Gate()]
    tasks = [await start(scheduler, "a", gate) for gate in gates]
    await asyncio.to_thread(gates[1].started.wait)
    third = await start(scheduler, "b", lambda: "short")
    await asyncio.sleep(0.03)
    assert not third.done()
    gates[0].released.set()
    assert await third == "short"
    gates[1].released.set()
    assert await asyncio.gather(*tasks) == ["done", "done"]
    scheduler.close()


async def test_a_full_line_refuses(scheduler: Scheduler) -> None:
    gate = Gate()
    tasks = [await start(scheduler, "a", gate) for _ in range(5)]
    done: list[bool] = []
    with pytest.raises(OutOfCapacityError):
        await scheduler.run("a", gate, 10.0, lambda: done.append(True))
    assert done == [True]
    gate.released.set()
    assert await asyncio.gather(*tasks) == ["done"] * 5


async def test_a_table_whose_line_is_long_takes_no_place_from_others(scheduler: Scheduler) -> None:
    gate, order = Gate(), list[str]()
    first = await start(scheduler, "a", gate)
    flood = [await start(scheduler, "a", lambda: order.append("a")) for _ in range(4)]
    others = [await start(scheduler, "b", lambda: order.append("b")) for _ in range(2)]
    for refused in flood[2:]:
        with pytest.raises(OutOfCapacityError):
            await refused
    with pytest.raises(OutOfCapacityError):
        await scheduler.run("b", gate, 10.0, nothing)
    gate.released.set()
    await asyncio.gather(first, *flood[:2], *others)
    assert order == ["a", "b", "a", "b"]
    assert await scheduler.wait_idle(1.0)


async def test_a_query_whose_time_is_over_before_its_turn_leaves_the_line(scheduler: Scheduler) -> None:
    gate = Gate()
    first = await start(scheduler, "a", gate)
    with pytest.raises(SchedulingTimeoutError):
        await scheduler.run("a", gate, 0.01, nothing)
    gate.released.set()
    assert await first == "done"
    assert await scheduler.run("a", lambda: "next", 1.0, nothing) == "next"


async def test_a_cancelled_call_keeps_its_place_until_its_thread_ends(scheduler: Scheduler) -> None:
    gate = Gate()
    done = asyncio.Event()
    task = asyncio.create_task(scheduler.run("a", gate, 10.0, done.set))
    await asyncio.to_thread(gate.started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not done.is_set()
    assert not await scheduler.wait_idle(0.01)
    gate.released.set()
    await done.wait()
    assert await scheduler.wait_idle(1.0)


async def test_a_call_cancelled_in_line_gives_its_turn_away(scheduler: Scheduler) -> None:
    gate = Gate()
    first = await start(scheduler, "a", gate)
    waiting = await start(scheduler, "a", gate)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.released.set()
    assert await first == "done"
    assert await scheduler.run("b", lambda: "next", 1.0, nothing) == "next"


async def test_the_error_of_the_work_is_raised(scheduler: Scheduler) -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await scheduler.run("a", fail, 1.0, nothing)
    assert await scheduler.wait_idle(1.0)

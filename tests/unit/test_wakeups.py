"""A task on the event loop is woken from other threads, by none of their calls in vain."""

import asyncio
import threading

import pytest

from merlot.wakeups import WakeUp


def from_a_thread(wake_up: WakeUp) -> None:
    thread = threading.Thread(target=wake_up.call)
    thread.start()
    thread.join()


def test_a_call_of_a_thread_ends_the_wait() -> None:
    async def scenario() -> None:
        wake_up = WakeUp()
        waiting = asyncio.create_task(wake_up.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(wake_up.call)
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())


def test_calls_before_the_wait_count_as_one() -> None:
    async def scenario() -> None:
        wake_up = WakeUp()
        from_a_thread(wake_up)
        wake_up.call()
        await asyncio.wait_for(wake_up.wait(), 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wake_up.wait(), 0.02)

    asyncio.run(scenario())


def test_calls_that_come_together_wake_once() -> None:
    async def scenario() -> None:
        wake_up = WakeUp()
        wake_up.call()
        waiting = asyncio.create_task(wake_up.wait(settle_s=0.05))
        await asyncio.sleep(0.01)
        wake_up.call()
        await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wake_up.wait(), 0.02)

    asyncio.run(scenario())


def test_the_wait_ends_with_its_time_and_with_a_cancellation() -> None:
    async def scenario() -> None:
        wake_up = WakeUp()
        await wake_up.wait(0.001)
        waiting = asyncio.create_task(wake_up.wait())
        await asyncio.sleep(0)
        wake_up.call()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


def test_a_call_after_the_loop_has_ended_is_nobodys() -> None:
    async def make() -> WakeUp:
        return WakeUp()

    asyncio.run(make()).call()

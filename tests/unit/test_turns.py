"""Slots that clients wait for in turn."""

import asyncio

from merlot.http.turns import FairSlots


async def test_clients_take_turns_and_their_requests_keep_their_order() -> None:
    turns, order = FairSlots(1), list[str]()

    async def work(client: str, name: str) -> None:
        async with turns.slot(client):
            order.append(name)
            await asyncio.sleep(0)

    names = ["a1", "a2", "a3", "b1", "c1", "b2"]
    await asyncio.gather(*(work(name[0], name) for name in names))
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_no_slot_is_lost_with_those_who_give_up_or_fail() -> None:
    turns, entered = FairSlots(2), asyncio.Semaphore(0)

    async def hold() -> None:
        async with turns.slot("a"):
            entered.release()
            await asyncio.Event().wait()

    for _ in range(20):
        tasks = [asyncio.create_task(hold()) for _ in range(5)]
        await entered.acquire()
        await entered.acquire()
        tasks[0].cancel()  # hands its slot to the third, which is cancelled before it runs
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        entered = asyncio.Semaphore(0)
    async with asyncio.timeout(5), turns.slot("b"), turns.slot("b"):
        pass

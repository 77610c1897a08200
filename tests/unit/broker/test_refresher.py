"""State is read again when somebody asks for it."""

import asyncio

import pytest

from merlot.broker.refresher import Refresher
from merlot.testing.patience import PATIENCE_S


@pytest.mark.parametrize("delays_s", [(0.01, 3600.0), (3600.0, 0.01)])
async def test_the_earliest_of_several_requests_counts(delays_s: tuple[float, float]) -> None:
    was_read = asyncio.Event()

    async def read() -> None:
        was_read.set()

    refresher = Refresher("test", read, retry_s=3600.0)
    refresher.start()
    for _ in range(2):
        was_read.clear()
        for delay_s in delays_s:
            refresher.poke_in(delay_s)
        async with asyncio.timeout(PATIENCE_S):
            await was_read.wait()
    await refresher.stop()

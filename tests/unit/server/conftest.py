"""A bench per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from merlot.testing.servers import KeeperBench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[KeeperBench]:
    bench = KeeperBench(tmp_path)
    yield bench
    await bench.close()

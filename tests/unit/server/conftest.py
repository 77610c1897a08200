"""A bench per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.servers import TableDataBench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[TableDataBench]:
    bench = TableDataBench(tmp_path)
    yield bench
    await bench.close()

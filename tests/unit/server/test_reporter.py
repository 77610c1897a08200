"""Reports follow each other by what they cost, not by how long they had to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from merlot.cluster.instances.reports import ReportWriter
from merlot.server.reporter import LOADING_SHARE, LONGEST_WAIT_S, SHARE, ReportContents, TableReporter, rest_s
from merlot.testing.clock import FakeClock
from merlot.testing.patience import PATIENCE_S

FROZEN_S = 1_000.0


class Writer:
    """Stands still in the middle of each report, as a server does that is frozen."""

    is_superseded = False

    def __init__(self, clock: FakeClock) -> None:
        self.reports: list[list[str]] = []
        self._clock = clock

    def write(self, loaded: Collection[str], *_: Any, **__: Any) -> bool:
        self._clock.advance(FROZEN_S)
        self.reports.append(list(loaded))
        return True

    def doubt(self) -> None:
        """Nothing else writes."""


async def test_what_changed_while_a_report_stood_still_is_told_soon_after() -> None:
    clock = FakeClock()
    writer, keys = Writer(clock), ["a@1"]
    with ThreadPoolExecutor(1) as io:
        reporter = TableReporter(
            cast(ReportWriter, writer),
            name="t",
            standing=lambda: ReportContents(list(keys), {}, 0),
            is_loading=lambda: False,
            io=io,
            clock=clock,
        )
        running = asyncio.create_task(reporter.run(lambda: None))
        async with asyncio.timeout(PATIENCE_S):
            await reporter.written()
            keys.append("b@2")
            await reporter.written()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert writer.reports[0] == ["a@1"]
    assert writer.reports[-1] == ["a@1", "b@2"]


@pytest.mark.parametrize(
    ("took_s", "worked_s", "is_loading", "wanted_s"),
    [
        (0.1, 0.1, False, SHARE * 0.1),
        (0.1, 0.0, False, SHARE * 0.1),
        (2.0, 2.0, False, SHARE * 2.0),
        (2.0, 0.01, False, LONGEST_WAIT_S),
        (2.0, 2.0, True, LOADING_SHARE * 2.0),
        (2.0, 0.01, True, LONGEST_WAIT_S),
    ],
)
def test_a_report_rests_for_what_it_cost(took_s: float, worked_s: float, is_loading: bool, wanted_s: float) -> None:
    assert rest_s(took_s, worked_s, is_loading=is_loading) == wanted_s

"""A table data manager reports the present state, whatever else is being written meanwhile."""

import asyncio
import threading

import pytest
from tests.support.sample import ORDERS, orders_manifest, publish_orders
from tests.support.servers import TableDataBench

from merlot.cluster.instances.reports import ReportWriter, remove_report
from merlot.cluster.manifests.tables import put_table
from merlot.server.table_data_manager import TableDataManager
from merlot.testing.patience import PATIENCE_S, until


class HeldWriter(ReportWriter):
    """Stops before the next write, as on a slow metastore, until it is let go."""

    def __init__(self, inner: ReportWriter) -> None:
        self.__dict__.update(inner.__dict__)
        self.is_held = threading.Event()
        self.go = threading.Event()

    def write(self, *arguments: object, **named: object) -> bool:  # type: ignore[override]
        if not self.is_held.is_set():
            self.is_held.set()
            self.go.wait(PATIENCE_S)
        return super().write(*arguments, **named)  # type: ignore[arg-type]


@pytest.fixture
async def served(bench: TableDataBench) -> TableDataManager:
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1])
    bench.assign(bench.me)
    started = await bench.start_manager(grace_s=0.0)
    await until(lambda: len(bench.report().loaded) == len(records))
    return started


async def hold_a_write(served: TableDataManager) -> HeldWriter:
    """Return while a report is being written that says what is so now."""
    writer = served._reporter._writer = HeldWriter(served._reporter._writer)
    served.rewrite_report()
    await asyncio.to_thread(writer.is_held.wait, 5)
    return writer


async def test_a_segment_is_let_go_only_after_a_report_without_it(
    bench: TableDataBench, served: TableDataManager
) -> None:
    writer = await hold_a_write(served)
    key = next(iter(served.segments.keys))
    served._leaving.add(key)
    waiting = asyncio.create_task(served._reporter.written())
    await asyncio.sleep(0)
    reports_at_end = []
    waiting.add_done_callback(lambda _: reports_at_end.append(bench.report().loaded))
    writer.go.set()
    await waiting
    await asyncio.sleep(0)
    assert key not in reports_at_end[0]


async def test_a_report_under_way_does_not_undo_a_withdrawal(bench: TableDataBench, served: TableDataManager) -> None:
    writer = await hold_a_write(served)
    withdrawal = asyncio.create_task(served.withdraw())
    await asyncio.sleep(0)
    writer.go.set()
    await withdrawal
    assert bench.report().loaded == frozenset()
    served.rewrite_report()
    await until(lambda: not served._reporter._dirty.is_set())
    assert bench.report().loaded == frozenset()


async def test_the_end_of_an_old_life_leaves_the_new_ones_report(
    bench: TableDataBench, served: TableDataManager
) -> None:
    new = await bench.start_manager()
    loaded = bench.report().loaded
    assert len(loaded) == 2
    await served.withdraw()
    assert bench.report().loaded == loaded
    await new.withdraw()
    assert bench.report().loaded == frozenset()


async def test_a_report_that_somebody_cleaned_away_is_written_again(
    bench: TableDataBench, served: TableDataManager
) -> None:
    loaded = bench.report().loaded
    remove_report(bench.metastore, ORDERS, bench.me)
    await until(lambda: bench.report().loaded == loaded)


async def test_a_changed_manifest_is_echoed_in_the_report(bench: TableDataBench, served: TableDataManager) -> None:
    assert bench.report().revision == 1
    put_table(bench.metastore, orders_manifest(replication=2))
    await until(lambda: bench.report().revision == 2)

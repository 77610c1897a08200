"""The deep store answers 500, or cuts answers short."""

from pathlib import Path

from tests.support.faulty_s3 import FaultyS3
from tests.support.sample import publish_orders
from tests.support.servers import TableDataBench

from merlot.testing.patience import until


async def test_a_deep_store_that_answers_500_is_reported_and_tried_again(s3: FaultyS3, tmp_path: Path) -> None:
    bench = TableDataBench(tmp_path, deep_store=s3.uri())
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1, 2])
    s3.failures = 1 << 30
    bench.assign(bench.me)
    manager = await bench.start_manager()
    await until(lambda: len(bench.report().errors) == 3)
    assert all("deep store failed action=read" in message for message in bench.report().errors.values())
    assert bench.report().loaded == frozenset()
    assert manager.is_settled
    s3.failures = 0
    await until(lambda: len(bench.report().loaded) == len(records))
    assert bench.report().errors == {}
    await bench.close()


async def test_answers_cut_short_are_never_served(s3: FaultyS3, tmp_path: Path) -> None:
    bench = TableDataBench(tmp_path, deep_store=s3.uri())
    records = publish_orders(bench.metastore, bench.deep_store, [0])
    s3.truncations = 8
    bench.assign(bench.me)
    manager = await bench.start_manager()
    await until(lambda: bench.report().loaded == {str(records[0].key)})
    assert s3.truncations < 8
    acquired = manager.segments.acquire([str(records[0].key)])
    assert acquired.segments[0].num_docs == 100
    manager.segments.release(acquired)
    await bench.close()


async def test_a_restarted_server_needs_no_deep_store_for_what_it_has(s3: FaultyS3, tmp_path: Path) -> None:
    bench = TableDataBench(tmp_path, deep_store=s3.uri())
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1])
    bench.assign(bench.me)
    await bench.start_manager()
    await until(lambda: len(bench.report().loaded) == len(records))
    await bench.stop_managers()
    s3.failures = 1 << 30
    await bench.start_manager()
    assert len(bench.report().loaded) == len(records)
    await bench.close()

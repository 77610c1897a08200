"""A server of an upsert table of batches: what it reports, holds on to and lets go as segments come and go."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sample import ORDERS
from tests.support.servers import TableDataBench

from merlot.catalog.publish import upload
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.manifests.upserts import put_upsert
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.editions import editions_of, is_edition
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import RemoveSegments, mutate
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.server.batches import upserts
from merlot.server.table_data_manager import TableDataManager
from merlot.server.tables import SHARED_KEYS
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot.spec.upsert import UpsertConfig
from merlot.testing.patience import until

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: orders}}
spec:
  schema:
    fields: [{{name: id, type: LONG}}, {{name: version, type: LONG}}]
    primaryKey: [id]
  partitioning: {{columns: {{id: {{functionName: Modulo, numPartitions: 1}}}}}}
  upsert: {upsert}
"""
BY_VERSION = "{config: {mode: FULL, comparisonColumns: [version]}}"
CONFIG = "apiVersion: merlot.dev/v1alpha1\nkind: UpsertConfig\nmetadata: {name: latest}\nspec: {mode: FULL}\n"


def put(bench: TableDataBench, upsert: str = BY_VERSION) -> None:
    [table] = manifest.load(MANIFEST.format(upsert=upsert))
    assert isinstance(table, Table)
    put_table(bench.metastore, table)


def record(bench: TableDataBench, name: str, ids: range, version: int = 1) -> SegmentRecord:
    [table] = manifest.load(MANIFEST.format(upsert=BY_VERSION))
    assert isinstance(table, Table)
    spec = table.spec
    request = BuildRequest(
        name=name,
        table="orders",
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=None,
        partitioning=spec.partitioning,
    )
    rows = pa.table({"id": list(ids), "version": [version] * len(ids)})
    with tempfile.TemporaryDirectory() as folder:
        return upload(bench.deep_store, build_segment(request, rows, Path(folder)), ORDERS)


def edition(*records: SegmentRecord) -> set[str]:
    """What is reported of a table of these segments, which were published one after the other."""
    [table] = manifest.load(MANIFEST.format(upsert=BY_VERSION))
    assert isinstance(table, Table)
    assert table.spec.partitioning is not None
    placed = [one.model_copy(update={"push_time_ms": place}) for place, one in enumerate(records)]
    [found] = editions_of(placed, table.spec.partitioning).values()
    return {found.key, *found.keys}


def push(bench: TableDataBench, *records: SegmentRecord) -> None:
    for one in records:
        publish(bench.metastore, ORDERS, [one])
    bench.assign(bench.me)


def shown(started: TableDataManager, keys: set[str]) -> int | None:
    """How many docs are valid of what is asked for; None if something is missing."""
    acquired = started.segments.acquire(sorted(keys))
    try:
        if acquired.missing:
            return None
        words = [segment.valid_docs.words for segment in acquired.segments]  # type: ignore[union-attr]
        return sum(int(word).bit_count() for one in words for word in one)
    finally:
        started.segments.release(acquired)


async def passes(started: TableDataManager) -> None:
    """Time enough to let go what nobody holds on to."""
    for _ in range(5):
        started.wake()
        await asyncio.sleep(0.04)


async def test_segments_are_reported_with_the_edition_that_they_make_up(bench: TableDataBench) -> None:
    put(bench)
    first, second = record(bench, "a", range(10)), record(bench, "b", range(5, 15))
    push(bench, first)
    started = await bench.start_manager()
    await until(lambda: bench.report().loaded == edition(first))
    assert shown(started, edition(first)) == 10
    push(bench, second)
    await until(lambda: bench.report().loaded == edition(first) | edition(first, second))
    assert shown(started, edition(first, second)) == 15
    assert shown(started, edition(first)) == 10
    assert shown(started, {first.key_text}) is None
    assert started.missing == frozenset()


async def test_a_segment_that_is_deleted_stays_until_it_is_known_what_it_uncovers(bench: TableDataBench) -> None:
    put(bench)
    first, second, lost = (record(bench, name, range(10)) for name in ("a", "b", "c"))
    push(bench, first, second)
    started = await bench.start_manager(grace_s=0.01)
    await until(lambda: edition(first, second) <= bench.report().loaded)
    bench.deep_store.delete(lost.url)
    push(bench, lost)
    mutate(bench.metastore, ORDERS, lambda _: [RemoveSegments((second.key,))])
    await until(lambda: lost.key_text in bench.report().errors)
    await passes(started)
    assert shown(started, edition(first, second)) == 10
    mutate(bench.metastore, ORDERS, lambda _: [RemoveSegments((lost.key,))])
    await until(lambda: second.key_text not in started.segments)
    assert shown(started, edition(first)) == 10
    await until(lambda: bench.report().loaded == edition(first))


async def test_a_partition_that_moves_is_let_go_once_another_server_answers_for_it(bench: TableDataBench) -> None:
    put(bench)
    first, second = record(bench, "a", range(10)), record(bench, "b", range(10))
    push(bench, first, second)
    started = await bench.start_manager(grace_s=0.01)
    await until(lambda: bench.report().loaded >= edition(first, second))
    register(bench.metastore, InstanceRecord(id=bench.other, role=Role.SERVER, host="other"))
    bench.assign(bench.other)
    publish(bench.metastore, ORDERS, [third := record(bench, "c", range(3))])
    bench.assign(bench.other)
    await passes(started)
    assert shown(started, edition(first, second)) == 10
    write_report(bench.metastore, ORDERS, bench.other, edition(first, second, third), {})
    await until(lambda: not bench.report().loaded)
    batches = started._batches
    assert batches is not None
    batches.wake()
    await until(lambda: not batches._partitions)


async def test_a_server_that_waits_for_an_upsert_config_is_ready(bench: TableDataBench) -> None:
    """It would stop others from being stopped, for nothing that it could do."""
    put(bench, "{configRef: latest}")
    push(bench, first := record(bench, "a", range(10)))
    started = await bench.start_manager()
    await until(lambda: first.key_text in started.segments)
    assert started.is_settled
    assert bench.report().loaded == set()
    config = manifest.load(CONFIG.replace("FULL", "FULL, comparisonColumns: [version]"))[0]
    assert isinstance(config, UpsertConfig)
    put_upsert(bench.metastore, config)
    await until(lambda: bench.report().loaded == edition(first))


async def test_a_server_learns_of_a_change_of_the_upsert_config_alone(bench: TableDataBench) -> None:
    """The first change is also noted in the record of the table, which the server watches; the second one is not."""
    put(bench, "{configRef: latest}")
    config = manifest.load(CONFIG.replace("FULL", "FULL, comparisonColumns: [version]"))[0]
    assert isinstance(config, UpsertConfig)
    put_upsert(bench.metastore, config)
    started = await bench.start_manager()

    def put_label(team: str) -> None:
        metadata = config.metadata.model_copy(update={"labels": {"team": team}})
        put_upsert(bench.metastore, config.model_copy(update={"metadata": metadata}))

    put_label("a")
    started.wake()
    await until(lambda: started.state is not None and started.state.upserting.revision == 2)
    put_label("b")
    await until(lambda: started.state is not None and started.state.upserting.revision == 3)


async def test_a_restart_reports_nothing_before_it_knows_which_docs_are_valid(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bench)
    push(bench, first := record(bench, "a", range(10)))
    await bench.start_manager()
    await until(lambda: bench.report().loaded == edition(first))
    await bench.stop_managers()

    def nothing_yet(_self: upserts.BatchUpserts) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(upserts.BatchUpserts, "_next", nothing_yet)
        started = await bench.start_manager()
        assert bench.report().loaded == set()
        assert started.missing == {first.key_text}
    assert started._batches is not None
    started._batches.wake()
    await until(lambda: bench.report().loaded == edition(first))
    assert started.is_settled


async def test_large_requests_share_what_was_acquired_and_see_what_comes(bench: TableDataBench) -> None:
    put(bench)
    records = [record(bench, f"s{number:03}", range(number, number + 2)) for number in range(SHARED_KEYS)]
    publish(bench.metastore, ORDERS, records)
    bench.assign(bench.me)
    started = await bench.start_manager()
    keys = edition(*records)
    assert shown(started, keys) is None
    await until(lambda: bench.report().loaded >= keys)
    one, other = (started.segments.acquire(sorted(keys)) for _ in range(2))
    assert one is other
    started.segments.release(one)
    started.segments.release(other)
    assert shown(started, keys) == SHARED_KEYS + 1
    assert shown(started, {key for key in keys if not is_edition(key)}) is None

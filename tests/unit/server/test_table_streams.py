"""A server reports the state of a table's stream while partitions come and go."""

import asyncio
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.plugins import installed
from tests.unit.cluster.stream_table import SERVERS, TABLE, begin

from merlot import telemetry
from merlot.clock import SystemClock
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, read_progress, write_progress
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import load
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.reader import Segment
from merlot.server.files import LocalSegmentFiles
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.poller import DecodeSlots
from merlot.server.realtime.table import StreamThreads, TableStream, TableStreamDeps
from merlot.spec.manifest import load_tables
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

ME, OTHER = SERVERS
SILENT = """
from merlot.errors import UnavailableError


class SilentStream:
    asked = []

    def __init__(self, settings):
        pass

    def identity(self):
        return ""

    def offsets(self, partition):
        self.asked.append(partition)
        raise UnavailableError("no answer")

    def close(self):
        pass
"""
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  ingestion: {stream: {type: files, topic: t, flush: {age: 1h}}}
  schema: {fields: [{name: a, type: INT}]}
""")[0]


@contextmanager
def nothing_lent(_key: str) -> Iterator[Segment | None]:
    yield None


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(5) as pool:
        yield pool


def stream_of(store: SqliteMetastore, folder: Path, pool: ThreadPoolExecutor) -> TableStream:
    def store_of(_: TableSpec) -> DeepStore:
        return DeepStore(str(folder / "deep"))

    deps = TableStreamDeps(
        metastore=store,
        table=TABLE,
        instance=ME,
        files=LocalSegmentFiles(folder / "server"),
        clock=SystemClock(),
        store_of=store_of,
        grace_s=60.0,
        reported_as_of=lambda: 0.0,
        is_loaded=lambda _: False,
        borrow=nothing_lent,
        on_change=lambda: None,
        on_made=lambda: None,
    )
    threads = StreamThreads(
        seals=pool,
        writes=pool,
        looks=pool,
        snapshots=pool,
        turns=DecodeSlots(2),
        memory=MemoryBudget(1 << 30),
        folder=folder / "sealing",
        snapshot_folder=folder / "snapshots",
        secrets_of=lambda _: {},
    )
    return TableStream(deps, threads)


def lag() -> float | None:
    """The gauge of the lag of the partition."""
    return telemetry.REGISTRY.get_sample_value("merlot_stream_lag", {"table": TABLE, "partition": "0"})


def give_to(store: SqliteMetastore, server: InstanceId) -> None:
    mutate(store, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (server,)))])


async def test_a_server_that_consumes_nothing_any_more_tells_no_progress(
    store: SqliteMetastore, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    put_table(store, MANIFEST)
    begin(store, 0, 0, paused=True)
    give_to(store, ME)
    stream = stream_of(store, tmp_path, pool)
    stream.follow(MANIFEST.spec, load(store, TABLE))
    running = asyncio.create_task(stream.run())
    await until(lambda: ME in read_progress(store, TABLE))
    assert lag() is not None
    give_to(store, OTHER)
    stream.follow(MANIFEST.spec, load(store, TABLE))
    await until(lambda: ME not in read_progress(store, TABLE))
    assert lag() is None
    running.cancel()
    await stream.stop()


async def test_a_stream_that_does_not_answer_is_asked_once_in_a_while(
    store: SqliteMetastore, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    entry_points = {"merlot.streams": {"silent.stream": "silent:SilentStream"}}
    with installed(tmp_path / "plugin", {"silent": SILENT}, entry_points):
        declared = MANIFEST.spec.ingestion.stream
        assert declared is not None
        ingestion = {"stream": declared.model_copy(update={"type": "silent.stream"})}
        spec = MANIFEST.spec.model_copy(update={"ingestion": MANIFEST.spec.ingestion.model_copy(update=ingestion)})
        put_table(store, MANIFEST)
        begin(store, 0, 0, 0, paused=True)
        give_to(store, ME)
        stream = stream_of(store, tmp_path, pool)
        stream.follow(spec, load(store, TABLE))
        running = asyncio.create_task(stream.run())
        await until(lambda: ME in read_progress(store, TABLE))
        asked = importlib.import_module("silent").SilentStream.asked
        assert asked == [0]
        first = read_progress(store, TABLE)[ME]
        assert [partition.latest for partition in first.partitions] == [None, None, None]
        await until(lambda: read_progress(store, TABLE)[ME].at_ms > first.at_ms)
        assert asked == [0]
        running.cancel()
        await stream.stop()


async def test_progress_that_a_former_process_has_left_is_deleted_if_its_partitions_were_moved(
    store: SqliteMetastore, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    put_table(store, MANIFEST)
    for server in SERVERS:
        write_progress(
            store, TABLE, ProgressRecord(instance=server, at_ms=1, partitions=(PartitionProgress(partition=0),))
        )
    begin(store, 0)
    give_to(store, OTHER)
    stream = stream_of(store, tmp_path, pool)
    stream.follow(MANIFEST.spec, load(store, TABLE))
    running = asyncio.create_task(stream.run())
    await until(lambda: read_progress(store, TABLE).keys() == {OTHER})
    running.cancel()
    await stream.stop()

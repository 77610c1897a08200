"""The directory follows tables, segments, reports and servers through the metastore."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import pytest

from merlot.broker.directory import Directory
from merlot.broker.routing.health import CallOutcome
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.tables import TableLostError
from merlot.broker.tuning import BrokerTuning
from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.instances import drains, liveness, reports
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments import publish, view
from merlot.errors import UnavailableError
from merlot.ids import InstanceId, TableName, offline
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import load
from merlot.testing.patience import PATIENCE_S
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

SERVER = InstanceRecord(id=InstanceId("Server_h_1"), role=Role.SERVER, host="h", query_port=1)
FLIGHTS = TableName("Flights_OFFLINE")
VIEW_LOAD = view.load
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: {name}}}
spec:
  schema:
    fields:
      - {{name: carrier, type: STRING, role: dimension}}
"""


def manifest(name: str = "Flights") -> str:
    return MANIFEST.format(name=name)


def record(name: str, crc: int = 1) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///{name}", total_docs=10)


async def answer_nothing(request: ServerRequest) -> ServerResponse:
    return ServerResponse(missing=request.segments)


@pytest.fixture
def metastore(store: Metastore) -> Metastore:
    return store


@pytest.fixture
async def directory(metastore: Metastore, request: pytest.FixtureRequest) -> AsyncIterator[Directory]:
    channels = Channels(lambda record: LocalChannel(answer_nothing))
    directory = Directory(metastore, channels, SystemClock(), getattr(request, "param", None))
    await directory.start()
    yield directory
    await directory.stop()
    await channels.close()


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)


async def create_table(metastore: Metastore, name: str = "Flights") -> None:
    (table,) = load(manifest(name))
    await asyncio.to_thread(tables.put_table, metastore, table)
    await asyncio.to_thread(tables.confirm_table, metastore, offline(table.raw_name))


def keys(directory: Directory) -> set[str]:
    served = directory.find("Flights")
    return set() if served is None else {key for route in served.snapshot.select(0) for key in route.segments}


async def test_table_is_found_by_its_name_with_or_without_type_and_in_any_case(
    metastore: Metastore, directory: Directory
) -> None:
    await create_table(metastore)
    await eventually(lambda: directory.find("Flights") is not None)
    for name in ("Flights", "flights", "Flights_OFFLINE", "FLIGHTS_offline"):
        served = directory.find(name)
        assert served is not None
        assert served.name == FLIGHTS
    assert directory.find("planes") is None


async def test_name_that_fits_two_tables_in_lower_case_means_the_exact_one_only(
    metastore: Metastore, directory: Directory
) -> None:
    await create_table(metastore, "Flights")
    await create_table(metastore, "FLIGHTS")
    await eventually(lambda: len(directory.tables) == 2)
    assert directory.find("flights") is None
    served = directory.find("FLIGHTS")
    assert served is not None
    assert served.name == "FLIGHTS_OFFLINE"
    await asyncio.to_thread(tables.delete_table, metastore, TableName("FLIGHTS_OFFLINE"))
    await eventually(lambda: len(directory.tables) == 1)
    assert directory.find("FLIGHTS") is directory.find("flights") is directory.find("Flights")


class Spelled(str):
    """A table's name that counts how often it is spelled."""

    num_times = 0

    def __str__(self) -> str:
        Spelled.num_times += 1
        return str.__str__(self)


async def test_names_of_tables_that_come_one_after_the_other_are_not_all_spelled_anew(directory: Directory) -> None:
    served: Any = object()
    for number in range(100):
        directory._set(TableName(Spelled(f"t{number}_OFFLINE")), served)
    assert Spelled.num_times <= 3 * 100
    assert all(directory.find(f"T{number}_Offline") is served for number in range(100))


@pytest.mark.parametrize("has_segments", [False, True])
async def test_a_new_table_is_refused_until_a_controller_has_compared_it(
    metastore: Metastore, directory: Directory, has_segments: bool
) -> None:
    await asyncio.to_thread(metastore.create, paths.STORE_ID, b"named")
    (table,) = load(manifest())
    await asyncio.to_thread(tables.put_table, metastore, table)
    if has_segments:
        await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])

    def refusal() -> str:
        served = directory.find("Flights")
        try:
            (served or pytest.fail("table is unknown")).check_enabled()
        except TableLostError as error:
            return str(error)
        return ""

    await eventually(lambda: directory.find("Flights") is not None)
    assert "no controller has compared" in refusal()
    await asyncio.to_thread(tables.confirm_table, metastore, FLIGHTS)
    await eventually(lambda: not refusal())


async def test_segment_is_routed_once_a_live_server_reports_it(metastore: Metastore, directory: Directory) -> None:
    await create_table(metastore)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    await asyncio.to_thread(reports.write_report, metastore, FLIGHTS, SERVER.id, ["s@1"], {})
    await eventually(lambda: keys(directory) == {"s@1"})
    await asyncio.to_thread(registration.close)


async def test_refreshed_segment_is_followed(metastore: Metastore, directory: Directory) -> None:
    await create_table(metastore)
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    writer = reports.ReportWriter(metastore, FLIGHTS, SERVER.id)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])
    await asyncio.to_thread(writer.write, ["s@1"], {})
    await eventually(lambda: keys(directory) == {"s@1"})
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s", crc=2)])
    await asyncio.to_thread(writer.write, ["s@1", "s@2"], {})
    await eventually(lambda: keys(directory) == {"s@2"})
    await asyncio.to_thread(registration.close)


async def test_deleted_table_is_forgotten(metastore: Metastore, directory: Directory) -> None:
    await create_table(metastore)
    await eventually(lambda: directory.find("Flights") is not None)
    await asyncio.to_thread(tables.delete_table, metastore, FLIGHTS)
    await eventually(lambda: directory.find("Flights") is None)


@pytest.mark.parametrize("directory", [BrokerTuning(suspect_s=1e9)], indirect=True, ids=["suspected for long"])
async def test_a_server_that_was_told_to_stop_is_gone_with_its_ephemeral(
    metastore: Metastore, directory: Directory
) -> None:
    """What its next process reports before it can be asked must not be asked of the address of the last one."""
    await create_table(metastore)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])
    await asyncio.to_thread(reports.write_report, metastore, FLIGHTS, SERVER.id, ["s@1"], {})
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    await asyncio.to_thread(drains.mark, metastore, SERVER.id, leaving=False, now_ms=0)
    await eventually(lambda: SERVER.id in directory.drains and keys(directory) == {"s@1"})
    await asyncio.to_thread(registration.close)
    await eventually(lambda: not keys(directory))
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    await eventually(lambda: keys(directory) == {"s@1"})
    await asyncio.to_thread(registration.close)


async def test_server_without_ephemeral_stays_until_a_call_fails(metastore: Metastore, directory: Directory) -> None:
    await create_table(metastore)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])
    await asyncio.to_thread(reports.write_report, metastore, FLIGHTS, SERVER.id, ["s@1"], {})
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    await eventually(lambda: keys(directory) == {"s@1"})
    await asyncio.to_thread(registration.close)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("t")])
    await eventually(lambda: (found := directory.find("Flights")) is not None and found.snapshot.epoch == 2)
    assert keys(directory) == {"s@1"}
    directory.report_call(SERVER.id, CallOutcome.UNREACHED)
    await eventually(lambda: keys(directory) == set())
    served = directory.find("Flights")
    assert served is not None
    assert "s@1" in served.snapshot.unavailable


class SilentMetastore:
    """A metastore that can fall silent, as ZooKeeper does when it freezes."""

    def __init__(self, metastore: Metastore, calls: Collection[str] = ("get", "get_many", "children")) -> None:
        self._metastore = metastore
        self._calls = calls
        self.is_silent = False
        self.num_refused = 0

    def __getattr__(self, name: str) -> object:
        if self.is_silent and name in self._calls:
            self.num_refused += 1
            raise UnavailableError("metastore is silent")
        return getattr(self._metastore, name)


async def test_silent_metastore_leaves_the_last_routes(metastore: Metastore) -> None:
    store = SilentMetastore(metastore)
    await create_table(metastore)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("s")])
    await asyncio.to_thread(reports.write_report, metastore, FLIGHTS, SERVER.id, ["s@1"], {})
    registration = await asyncio.to_thread(liveness.register, metastore, SERVER)
    channels = Channels(lambda record: LocalChannel(answer_nothing))
    directory = Directory(store, channels, SystemClock())  # type: ignore[arg-type]
    await directory.start()
    assert keys(directory) == {"s@1"}
    store.is_silent = True
    await asyncio.to_thread(registration.close)
    await asyncio.to_thread(publish.publish, metastore, FLIGHTS, [record("t")])
    await asyncio.sleep(0.05)
    assert keys(directory) == {"s@1"}
    await directory.stop()
    await channels.close()


@pytest.mark.parametrize("call", ["watch", "watch_children"])
async def test_a_table_that_cannot_be_watched_at_once_is_found_later(metastore: Metastore, call: str) -> None:
    store = SilentMetastore(metastore, [call])
    channels = Channels(lambda record: LocalChannel(answer_nothing))
    directory = Directory(store, channels, SystemClock(), BrokerTuning(retry_s=0.02))  # type: ignore[arg-type]
    await directory.start()
    store.is_silent = True
    await create_table(metastore)
    await eventually(lambda: store.num_refused > 0)
    assert directory.find("Flights") is None
    store.is_silent = False
    await eventually(lambda: directory.find("Flights") is not None)
    await directory.stop()
    await channels.close()


async def test_a_start_waits_for_a_table_that_cannot_be_read_at_once(
    metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.put_table(metastore, load(manifest())[0])
    failures = iter([True, True, False])

    def read(*_: object) -> view.TableView:
        if next(failures, False):
            raise UnavailableError("metastore is silent")
        return VIEW_LOAD(metastore, FLIGHTS)

    monkeypatch.setattr(view, "load", read)
    channels = Channels(lambda record: LocalChannel(answer_nothing))
    directory = Directory(metastore, channels, SystemClock(), BrokerTuning(retry_s=0.02))
    await directory.start()
    assert directory.find("Flights") is None
    await directory.settle(5)
    assert directory.find("Flights") is not None
    await directory.stop()
    await channels.close()

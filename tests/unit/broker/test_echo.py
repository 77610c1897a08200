"""A broker says which revisions it runs, and when it has routed around a marked server."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from merlot.broker.queries import SqlRequest
from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.broker.tuning import BrokerTuning
from merlot.cluster.instances import drains, liveness, reports
from merlot.cluster.instances.echoes import echoing, read_echoes
from merlot.cluster.manifests import tables
from merlot.cluster.records import EchoRecord, InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments import publish
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import load
from merlot.testing.patience import PATIENCE_S
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

TABLE = TableName("t_OFFLINE")
ONE, TWO = (InstanceId(f"Server_h_{port}") for port in (1, 2))
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: t}}
spec:
  limits: {{maxRows: {rows}}}
  schema: {{fields: [{{name: a, type: INT}}]}}
"""


async def answer_nothing(request: ServerRequest) -> ServerResponse:
    return ServerResponse(missing=request.segments)


@pytest.fixture
def metastore(store: Metastore) -> Metastore:
    return store


@pytest.fixture
async def broker(metastore: Metastore) -> AsyncIterator[BrokerRole]:
    tables.put_table(metastore, load(MANIFEST.format(rows=1000))[0])
    tables.confirm_table(metastore, TABLE)
    publish.publish(metastore, TABLE, [SegmentRecord(name="x", crc=1, size_bytes=1, url="file:///x", total_docs=1)])
    for port, server in enumerate((ONE, TWO), start=1):
        liveness.register(metastore, InstanceRecord(id=server, role=Role.SERVER, host="h", query_port=port))
        reports.write_report(metastore, TABLE, server, ["x@1"], {})
    config = BrokerConfig(http_port=0, tuning=BrokerTuning(echo_rest_s=0.01))
    role = BrokerRole(metastore, config, lambda record: LocalChannel(answer_nothing))
    await role.start()
    yield role
    await role.stop()
    assert echoing(metastore) == []


async def heard(metastore: Metastore, is_so: Callable[[EchoRecord], bool]) -> EchoRecord:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for record in read_echoes(metastore, echoing(metastore)).values():
                if is_so(record):
                    return record
            await asyncio.sleep(0.005)


async def test_a_changed_table_is_echoed_without_a_restart(broker: BrokerRole, metastore: Metastore) -> None:
    await heard(metastore, lambda said: said.revisions == {TABLE: 1})
    tables.put_table(metastore, load(MANIFEST.format(rows=2000))[0])
    await heard(metastore, lambda said: said.revisions == {TABLE: 2})


async def test_a_marked_server_is_routed_around_where_another_one_has_the_segment(
    broker: BrokerRole, metastore: Metastore
) -> None:
    token = drains.mark(metastore, ONE, leaving=False, now_ms=0).token
    said = await heard(metastore, lambda said: said.drains == {ONE: token} and not said.busy)
    assert said.revisions == {TABLE: 1}
    second = drains.mark(metastore, TWO, leaving=False, now_ms=0).token
    # Somebody has to answer.
    both = {ONE: (TABLE,), TWO: (TABLE,)}
    await heard(metastore, lambda said: said.drains.get(TWO) == second and said.busy == both)
    drains.unmark(metastore, TWO)
    await heard(metastore, lambda said: said.drains == {ONE: token} and not said.busy)


async def test_what_answers_lack_is_echoed(broker: BrokerRole, metastore: Metastore) -> None:
    """Not a new segment that nobody has loaded: it is not part of the table yet."""
    await heard(metastore, lambda said: said.missed == {})
    late = SegmentRecord(name="y", crc=1, size_bytes=1, url="file:///y", total_docs=1)
    publish.publish(metastore, TABLE, [late])
    tables.put_table(metastore, load(MANIFEST.format(rows=2000))[0])
    said = await heard(metastore, lambda said: said.revisions == {TABLE: 2})
    assert said.missed == {}
    reports.write_report(metastore, TABLE, ONE, ["y@1"], {})
    await heard(metastore, lambda said: said.missed == {})
    reports.write_report(metastore, TABLE, TWO, [], {})
    await heard(metastore, lambda said: said.missed == {TABLE: 1})


async def test_a_marked_broker_is_not_ready_and_answers_all_the_same(broker: BrokerRole, metastore: Metastore) -> None:
    assert broker.unready_reason() is None
    drains.mark(metastore, InstanceId(broker.broker_id), leaving=False, now_ms=0)
    async with asyncio.timeout(PATIENCE_S):
        while broker.unready_reason() is None:
            await asyncio.sleep(0.005)
    assert (await broker.query(SqlRequest("SELECT 1"))).exceptions == ()
    drains.unmark(metastore, InstanceId(broker.broker_id))
    async with asyncio.timeout(PATIENCE_S):
        while broker.unready_reason() is not None:
            await asyncio.sleep(0.005)

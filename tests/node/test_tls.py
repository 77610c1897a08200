"""Controller, server and broker that speak TLS alone: who gets answers, while certificates and CAs change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pinotdb
import pytest
import pytest_asyncio
import requests
import trustme
from tests.node import grpc_client
from tests.support.certificates import CertificateFolder, client_of
from tests.support.sample import ORDERS, orders_manifest, total_amount, upload_orders

from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.cli.app import run as run_command
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.segments.publish import publish
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.errors import UnavailableError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.security.tls import Certificates
from merlot.server.role import ServerConfig, ServerRole
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until
from merlot.wire.client import TcpChannel

pytestmark = pytest.mark.asyncio(loop_scope="module")
DAYS = range(2)
COUNT = "SELECT COUNT(*), SUM(amount) FROM orders"
WHOLE = [[200, float(total_amount(DAYS))]]
ROLES = ("controller", "server", "broker")


class Cluster:
    """Roles on one loop, each with a folder of certificates of its own, by one CA."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = trustme.CA()
        self.folders = {role: CertificateFolder(folder / role, names=(role,), ca=self.ca) for role in ROLES}
        self.certificates = {role: self.of(folder) for role, folder in self.folders.items()}
        self.exits = AsyncExitStack()

    @staticmethod
    def of(folder: CertificateFolder) -> Certificates:
        return Certificates(folder.files(), look_s=0)

    def renew(self, **change: Any) -> None:
        for folder in self.folders.values():
            folder.renew(**change)

    async def start(self) -> None:
        metastore = SqliteMetastore(self._folder / "metastore.sqlite")
        self.exits.callback(metastore.close)
        store = str(self._folder / "deep")
        put_table(metastore, orders_manifest())
        publish(metastore, ORDERS, upload_orders(DeepStore(store), DAYS))
        controller = ControllerRole(
            metastore, ControllerConfig(http_port=0, certificates=self.certificates["controller"])
        )
        self.controller = await controller.start()
        self.exits.push_async_callback(controller.stop)
        self.server = ServerRole(
            metastore,
            ServerConfig(data_dir=self._folder / "data", deep_store=store, certificates=self.certificates["server"]),
        )
        await self.server.start()
        self.exits.push_async_callback(self.server.stop)
        ours = self.certificates["broker"]
        self.role = BrokerRole(
            metastore,
            BrokerConfig(http_port=0, grpc_port=0, certificates=ours),
            lambda record: TcpChannel(record.host, record.query_port, certificates=ours if record.tls else None),
        )
        self.broker = await self.role.start()
        self.exits.push_async_callback(self.role.stop)

    async def ask(self, session: aiohttp.ClientSession, tls: ssl.SSLContext) -> Any:
        url = f"https://localhost:{self.broker}/query/sql"
        async with session.post(url, json={"sql": COUNT}, ssl=tls) as answer:
            fields = await answer.json()
        return fields["exceptions"] or fields["resultTable"]["rows"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """With two days of orders, which the broker answers for."""
    cluster = Cluster(tmp_path_factory.mktemp("tls"))
    try:
        await cluster.start()
        async with aiohttp.ClientSession() as session:

            async def is_served() -> bool:
                return bool(await cluster.ask(session, client_of(cluster.ca)) == WHOLE)

            await until(is_served)
        yield cluster
    finally:
        await cluster.exits.aclose()


async def test_clients_get_answers_over_https_and_grpc(cluster: Cluster) -> None:
    ca = str(cluster.folders["broker"].files().ca)

    def by_requests() -> list[Any]:
        with requests.Session() as session:
            body = {"sql": COUNT}
            url = f"https://localhost:{cluster.broker}/query/sql"
            return [session.post(url, json=body, verify=ca).json()["resultTable"]["rows"] for _ in range(3)]

    def by_pinotdb() -> list[Any]:
        trust = client_of(cluster.ca)
        with pinotdb.connect(host="localhost", port=cluster.broker, scheme="https", verify_ssl=trust) as cursor:
            cursor.execute(COUNT)
            return list(cursor.fetchall())

    assert await asyncio.to_thread(by_requests) == [WHOLE] * 3
    assert await asyncio.to_thread(by_pinotdb) == WHOLE
    assert await ask_by_grpc(cluster, cluster.ca) == WHOLE
    with pytest.raises(grpc.aio.AioRpcError):
        await ask_by_grpc(cluster, trustme.CA())


async def ask_by_grpc(cluster: Cluster, ca: trustme.CA) -> list[Any]:
    trust = grpc.ssl_channel_credentials(ca.cert_pem.bytes())
    async with grpc.aio.secure_channel(f"localhost:{cluster.role.grpc_port}", trust) as channel:
        messages = [grpc_client.Message.read(data) async for data in grpc_client.submit(channel, COUNT)]
    return [row for message in messages[2:] for row in grpc_client.rows_of(message)]


async def test_plain_http_and_unknown_cas_get_nothing(cluster: Cluster) -> None:
    ports = (cluster.broker, cluster.controller, cluster.server.http_port)
    async with aiohttp.ClientSession() as session:
        for port in ports:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://localhost:{port}/health")
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(f"https://localhost:{port}/health", ssl=client_of(trustme.CA()))
            async with session.get(f"https://localhost:{port}/health", ssl=client_of(cluster.ca)) as answer:
                assert answer.status in (200, 404)


async def test_instances_say_that_they_speak_tls_and_roles_call_each_other(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", f"https://localhost:{cluster.controller}", "--ca", str(cluster.folders["broker"].files().ca)]
    assert await asyncio.to_thread(run_command, ["get", "instances", *url]) == 0
    assert capsys.readouterr().out.count("https://") == 3
    assert await asyncio.to_thread(run_command, ["get", "instances", *url[:2]]) == 1
    assert "check --url, and --ca" in capsys.readouterr().err
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"https://localhost:{cluster.controller}/lineage/brokers/orders/x", ssl=client_of(cluster.ca)
        ) as one,
    ):
        assert one.status in (200, 404)


async def test_only_certificates_of_brokers_are_answered(cluster: Cluster, tmp_path: Path) -> None:
    async def ping(certificates: Certificates | None) -> str:
        channel = TcpChannel("127.0.0.1", cluster.server.query_port, certificates=certificates)
        try:
            return await channel.ping(5.0)
        finally:
            await channel.close()

    assert await ping(cluster.certificates["broker"]) == cluster.server.instance
    with pytest.raises(UnavailableError, match=r"certificate is not of a broker names=.*controller.*--tls-peers"):
        await ping(cluster.certificates["controller"])
    stranger = CertificateFolder(tmp_path / "stranger")
    stranger.renew(trusted=(cluster.ca,))  # trusts the server, and is signed by a CA of its own
    with pytest.raises(UnavailableError, match=r"(?i)unknown.ca"):
        await ping(Cluster.of(stranger))
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        await ping(Cluster.of(CertificateFolder(tmp_path / "other")))
    with pytest.raises(UnavailableError):
        await ping(None)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", cluster.server.query_port, ssl=client_of(cluster.ca), server_hostname="localhost"
    )
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await reader.readexactly(1)
    writer.transport.abort()


async def test_leaf_and_ca_change_while_queries_run(cluster: Cluster) -> None:
    """Keep-alive clients, clients that connect for each query, gRPC, and new connections of brokers: none fails."""
    former, next_ca = cluster.ca, trustme.CA()
    trust = client_of(former, next_ca)
    counts = {"kept": 0, "new": 0, "grpc": 0, "frames": 0}
    stopping = asyncio.Event()

    async def kept() -> None:
        async with aiohttp.ClientSession() as session:
            while not stopping.is_set():
                assert await cluster.ask(session, trust) == WHOLE
                counts["kept"] += 1

    async def new() -> None:
        while not stopping.is_set():
            async with aiohttp.ClientSession() as session:
                assert await cluster.ask(session, trust) == WHOLE
                counts["new"] += 1

    async def over_grpc() -> None:
        both = grpc.ssl_channel_credentials(former.cert_pem.bytes() + next_ca.cert_pem.bytes())
        while not stopping.is_set():
            async with grpc.aio.secure_channel(f"localhost:{cluster.role.grpc_port}", both) as channel:
                messages = [data async for data in grpc_client.submit(channel, COUNT)]
                assert len(messages) == 3
                counts["grpc"] += 1

    async def over_frames() -> None:
        while not stopping.is_set():
            channel = TcpChannel("127.0.0.1", cluster.server.query_port, certificates=cluster.certificates["broker"])
            assert await channel.ping(30.0) == cluster.server.instance
            await channel.close()
            counts["frames"] += 1

    async def go_on() -> None:
        before = dict(counts)
        while any(counts[name] < before[name] + 3 for name in counts):
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(coroutine()) for coroutine in (kept, new, over_grpc, over_frames)]
    await go_on()
    steps: list[dict[str, Any]] = [
        {},
        {"trusted": (former, next_ca)},
        {"ca": next_ca, "trusted": (former, next_ca)},
        {"trusted": (next_ca,)},
    ]
    for step in steps:
        cluster.renew(**step)
        await go_on()
    stopping.set()
    await asyncio.gather(*tasks)
    cluster.ca = next_ca
    assert await ask_by_grpc(cluster, next_ca) == WHOLE
    with pytest.raises(grpc.aio.AioRpcError):
        await ask_by_grpc(cluster, former)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await cluster.ask(session, client_of(former))

"""Client certificates at the doors of HTTP and gRPC ports that speak TLS: whom they prove, and whom not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
import trustme
from aiohttp import web
from tests.support.certificates import CertificateFolder, client_of
from tests.unit.security.callers import LeapingClock, rules
from tests.unit.security.test_query_doors import OneRow, status_of

from merlot.broker.http.listener import Listener
from merlot.broker.rpc.endpoint import RpcListener
from merlot.broker.rpc.messages import METHOD, SERVICE, BrokerRequest
from merlot.clock import SystemClock
from merlot.http.described import describe
from merlot.http.door import DOOR, ON_BEHALF_HEADER, identity_of, of_any
from merlot.http.server import HttpServer
from merlot.security.access import Right
from merlot.security.credentials import basic
from merlot.security.door import Door
from merlot.security.tls import Certificates

READER = "reader.example"
"""Name of a certificate that the access document knows; `owner` is its user with a password."""


class Ports:
    """A broker's port and that of another role, behind one door, over TLS alone."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.folder = CertificateFolder(folder, ca=self.ca)
        self.certificates = Certificates(self.folder.files())
        self.door = Door(rules(), LeapingClock())
        self.broker = OneRow()
        self.urls: list[str] = []
        self.exits = AsyncExitStack()

    async def open(self) -> None:
        @describe(answer=None, right=of_any(Right.QUERY))
        async def name(request: web.Request) -> web.Response:
            return web.Response(text=identity_of(request).name)

        self.exits.callback(self.door.close)
        apps = [web.Application(), web.Application()]
        for app in apps:
            app[DOOR] = self.door
            app.add_routes([web.post("/name", name), web.post("/query/sql", name)])
        listener = Listener(self.broker, apps[0], SystemClock(), self.certificates)
        self.urls.append(f"https://localhost:{await listener.open('127.0.0.1', 0)}/query/sql")
        self.exits.push_async_callback(listener.close)
        server = HttpServer(apps[1], certificates=self.certificates, shutdown_s=1)
        self.urls.append(f"https://localhost:{await server.start('127.0.0.1', 0)}/name")
        self.exits.push_async_callback(server.stop)
        self.urls.append(self.urls[0].replace("/query/sql", "/name"))

    def shows(self, *names: str) -> ssl.SSLContext:
        return client_of(self.ca, shows=self.ca.issue_cert(*names) if names else None)

    async def statuses(self, tls: ssl.SSLContext, **headers: str) -> set[int]:
        async with aiohttp.ClientSession() as session:
            statuses = set()
            for url in self.urls:
                async with session.post(url, json={"sql": "SELECT 1"}, headers=headers, ssl=tls) as answer:
                    statuses.add(answer.status)
        return statuses


@pytest.fixture
async def ports(tmp_path: Path) -> AsyncIterator[Ports]:
    ports = Ports(tmp_path)
    async with ports.exits:
        await ports.open()
        yield ports


async def test_a_certificate_proves_whom_the_document_names(ports: Ports) -> None:
    assert await ports.statuses(ports.shows(READER)) == {200}
    assert [request.identity.name for request in ports.broker.asked] == ["reader"]
    assert await ports.statuses(ports.shows("somebody.example")) == {401}
    assert await ports.statuses(ports.shows()) == {401}


async def test_a_certificate_proves_nothing_of_a_request_that_is_passed_on(ports: Ports) -> None:
    """The certificate is that of the process that passes the request on."""
    marked = {ON_BEHALF_HEADER: "1"}
    assert await ports.statuses(ports.shows(READER), **marked) == {401}
    authorization = basic("owner", "owner's")
    assert await ports.statuses(ports.shows(READER), **marked, Authorization=authorization) == {200}


async def test_credentials_in_a_header_come_before_a_certificate(ports: Ports) -> None:
    authorization = basic("owner", "owner's")
    assert await ports.statuses(ports.shows(READER), Authorization=authorization) == {200}
    assert [request.identity.name for request in ports.broker.asked] == ["owner"]
    wrong = basic("owner", "guess")
    assert await ports.statuses(ports.shows(READER), Authorization=wrong) == {401}


async def test_a_certificate_proves_who_calls_over_grpc(ports: Ports) -> None:
    listener = RpcListener(
        ports.broker, ports.door, certificates=Certificates(ports.folder.files(requires_clients=True))
    )
    port = await listener.open("127.0.0.1", 0)
    got: dict[str, Any] = {}
    for name in (READER, "somebody.example"):
        leaf = ports.ca.issue_cert(name)
        shown = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        credentials = grpc.ssl_channel_credentials(ports.ca.cert_pem.bytes(), leaf.private_key_pem.bytes(), shown)
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            call = channel.unary_stream(f"/{SERVICE}/{METHOD}")
            got[name] = await status_of(call(BrokerRequest(sql="SELECT 1").SerializeToString()))
    await listener.close(0)
    assert got == {READER: grpc.StatusCode.OK, "somebody.example": grpc.StatusCode.UNAUTHENTICATED}
    assert [request.identity.name for request in ports.broker.asked] == ["reader"]

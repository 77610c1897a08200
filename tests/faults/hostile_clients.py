"""Clients that burn what one request, one text or one connection can burn, each from an address of its own.

`python -m tests.faults.hostile_clients PORTS COUNT SEED` runs so many, of every kind in turn, until its input ends.
Then it prints how often each kind did what it does, and which answers were the deployment's own fault, as JSON.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import grpc.aio
from tests.node.grpc_client import PATH, request

from merlot.codes import QueryErrorCode
from merlot.wire.frames import FrameKind, Hello, encode

LEFT_S = 20.0
"""How long a client leaves a connection as it is."""
ROUND_S = 60.0
PAUSE_S = 0.02
"""Between two rounds of a client: what is tried is the deployment, not how much CPU this process takes from it."""
TAKEN_BYTES = 65_536
BEGUN = "begun\n"
"""What the program says first."""
HEAVY = (
    "SELECT LENGTH(REPEAT(REPEAT('a', 10000), 10000)) FROM orders LIMIT {}",
    "SELECT LENGTH(REGEXP_REPLACE(REPEAT(city, 10000), '.', REPEAT('b', 10000))) FROM orders LIMIT {}",
    "SELECT REPEAT(city, 10000) FROM orders LIMIT 1000{}",
    "SELECT id, PERCENTILEKLL(amount, 50, 65535) FROM orders GROUP BY id ORDER BY id DESC LIMIT {}",
    "SELECT id, DISTINCTCOUNTHLL(at, 20) FROM orders GROUP BY id LIMIT {}",
    "SELECT COUNT(*) FROM orders a JOIN orders b ON a.city = b.city JOIN orders c ON b.city = c.city LIMIT {}",
    "SELECT a.id, b.id FROM orders a JOIN orders b ON a.city = b.city ORDER BY b.amount, a.at LIMIT {}",
    "SELECT id, SUM(amount) OVER (PARTITION BY city ORDER BY at), RANK() OVER (ORDER BY amount) FROM orders LIMIT {}",
    "SELECT LISTAGG(REPEAT(city, 100), ',') FROM orders GROUP BY amount LIMIT {}",
    "SELECT DATETIMECONVERTWINDOWHOP(at, 'EPOCH', 'EPOCH', '1:SECONDS', '10000:SECONDS') FROM orders LIMIT {}",
    "SELECT city FROM orders WHERE REGEXP_LIKE(REPEAT(city, 5000), '(a|b|ab)*c(d|e)*(x+x+)+y') LIMIT {}",
    "SELECT city FROM orders WHERE " + " OR ".join(f"id = {number}" for number in range(9_000)) + " LIMIT {}",
    "SELECT city FROM orders WHERE id IN (" + ", ".join(map(str, range(90_000))) + ") LIMIT {}",
    "SELECT " + ", ".join(f"id + {number}" for number in range(5_000)) + " FROM orders LIMIT {}",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000 + " FROM orders LIMIT {}",
    "SELECT 1 FROM orders " + "OPTION(a=1) " * 20_000 + "LIMIT {}",
)
ALL_ROWS = "SELECT at, id, city, amount, REPEAT(city, 20) FROM orders LIMIT 1000{}"
BROKEN = re.compile(rb'HTTP/1\.1 500 |"errorCode": ?(%d)\b' % QueryErrorCode.INTERNAL)


@dataclass(frozen=True)
class Ports:
    """Where a deployment of processes answers, all on one machine."""

    broker: int
    grpc: int
    controller: int
    server_http: int
    server_query: int | None
    """None: the server is in the broker's process."""


@dataclass
class Client:
    """One of them."""

    ports: Ports
    address: str
    draw: random.Random
    numbers: Iterator[int]
    """No text is asked twice, so that no plan is known."""
    faults: Counter[str]

    @asynccontextmanager
    async def connected(self, port: int) -> Any:
        """A connection of which little is read ahead."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(self.address, 0), limit=TAKEN_BYTES
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def post(self, port: int, path: str, body: bytes, fields: str = "") -> None:
        """Send a request and read the start of its answer."""
        async with self.connected(port) as (reader, writer):
            writer.write(head(path, len(body), fields) + body)
            await writer.drain()
            self.judge(path, await reader.read(TAKEN_BYTES))

    def judge(self, what: str, answer: bytes) -> None:
        """Note answers that say that the deployment has a fault, as none to any request should."""
        if (found := BROKEN.search(answer)) is not None:
            self.faults[f"{what}: {answer[found.start() : found.start() + 300]!r}"] += 1

    def sql(self, text: str) -> bytes:
        """The body of a query."""
        return json.dumps({"sql": text.format(next(self.numbers))}).encode()


def head(path: str, num_bytes: int, fields: str = "", kind: str = "application/json") -> bytes:
    """The head of a request. fields: more of its lines."""
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}", f"Content-Length: {num_bytes}")
    return ("\r\n".join(lines) + f"\r\n{fields}\r\n").encode()


async def slow_bodies(client: Client) -> None:
    """All of a body but its end, which comes byte by byte."""
    async with client.connected(client.ports.broker) as (_, writer):
        writer.write(head("/query/sql", 4 << 20) + bytes((4 << 20) - 2_000))
        for _ in range(int(LEFT_S / 0.01)):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)


async def slow_heads(client: Client) -> None:
    """Heads of a byte at a time, on many connections."""
    port = client.draw.choice((client.ports.broker, client.ports.controller, client.ports.server_http))
    opened = [await asyncio.open_connection("127.0.0.1", port, local_addr=(client.address, 0)) for _ in range(20)]
    try:
        for byte in b"GET /health HTTP/1.1\r\nX-Pad: aaaaaaaa":
            for _, writer in opened:
                writer.write(bytes([byte]))
            await asyncio.sleep(LEFT_S / 40)
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def unfinished_requests(client: Client) -> None:
    """One byte of each of the bodies that a process takes few of at a time."""
    paths = ("/segments/orders/publish", "/v2/segments", "/segments/orders/delete", "/apply")
    opened = []
    for path, _ in itertools.product(paths, range(5)):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", client.ports.controller, local_addr=(client.address, 0)
        )
        writer.write(head(path, 1 << 20) + b"{")
        opened.append((reader, writer))
    await asyncio.sleep(LEFT_S)
    for _, writer in opened:
        writer.transport.abort()


async def huge_headers(client: Client) -> None:
    """A megabyte in one header, and in 20,000 of them."""
    port = client.draw.choice((client.ports.broker, client.ports.controller, client.ports.server_http))
    await client.post(port, "/query/sql", b"", f"X-Long: {'a' * (1 << 20)}\r\n")
    await client.post(port, "/query/sql", b"", "".join(f"X-{number}: {'b' * 40}\r\n" for number in range(20_000)))


async def deep_json(client: Client) -> None:
    """Brackets within brackets, as JSON and as YAML, to all that reads either."""
    for port, path in (
        (client.ports.broker, "/query/sql"),
        (client.ports.broker, "/query/sql/validateSyntax"),
        (client.ports.controller, "/apply?dryRun=true"),
        (client.ports.controller, "/tables"),
        (client.ports.controller, "/segments/orders/publish"),
    ):
        for depth in (5_000, 400_000):
            await client.post(port, path, b'{"sql": ' + b"[" * depth + b"]" * depth + b"}")
            await client.post(port, path, b'{"a":' * depth + b"1" + b"}" * depth)
    await client.post(client.ports.controller, "/apply?dryRun=true", b"a: [" + b"1," * 90_000 + b"1]")
    aliases = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(12))
    await client.post(client.ports.controller, "/apply?dryRun=true", aliases.encode())


async def heavy_queries(client: Client) -> None:
    """Texts that ask for much work or memory."""
    await client.post(client.ports.broker, "/query/sql", client.sql(client.draw.choice(HEAVY)))


async def hung_up_queries(client: Client) -> None:
    """The same, without waiting for the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(client.draw.uniform(0.01, 0.4)):
            await heavy_queries(client)


async def unread_cursors(client: Client) -> None:
    """Answers that are kept for pages nobody takes."""
    await client.post(client.ports.broker, "/query/sql?getCursor=true&numRows=1", client.sql(ALL_ROWS))


async def unread_answers(client: Client) -> None:
    """Requests in a row whose answers are left with the process."""
    async with client.connected(client.ports.broker) as (reader, writer):
        for _ in range(20):
            body = client.sql(ALL_ROWS)
            writer.write(head("/query/sql", len(body)) + body)
        await reader.read(1)
        await asyncio.sleep(LEFT_S)


async def uploads(client: Client) -> None:
    """Files of 48 MB that are no segments, whole and broken off."""
    for num_parts in (48, 40):
        async with client.connected(client.ports.controller) as (reader, writer):
            writer.write(head("/v2/segments?tableName=orders", 48 << 20, kind="application/octet-stream"))
            for _ in range(num_parts):
                writer.write(client.draw.randbytes(1 << 20))
                await writer.drain()
            if num_parts == 48:
                client.judge("/v2/segments", await reader.read(TAKEN_BYTES))


async def gzip_bombs(client: Client) -> None:
    """Bodies that are a thousand times as large once they are unpacked."""
    bomb = gzip.compress(bytes(16 << 20), 1)
    for port, path in ((client.ports.broker, "/query/sql"), (client.ports.controller, "/apply")):
        await client.post(port, path, bomb, "Content-Encoding: gzip\r\n")


async def unread_streams(client: Client) -> None:
    """Rows over gRPC, of which the first message is read."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{client.ports.grpc}", options=options) as channel:
        calls = []
        for _ in range(10):
            sql = json.loads(client.sql(ALL_ROWS))["sql"]
            calls.append(channel.unary_stream(PATH)(request(sql, {"encoding": "JSON", "compression": "NONE"})))
        for call in calls:
            await call.read()
        await asyncio.sleep(LEFT_S)


async def malformed_calls(client: Client) -> None:
    """Calls over gRPC that hold no request, or numbers that are none."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{client.ports.grpc}") as channel:
        for message in (client.draw.randbytes(200), request("SELECT 1", {"blockRowSize": "9" * 5_000}), bytes(3 << 20)):
            with suppress(grpc.aio.AioRpcError):
                async for _ in channel.unary_stream(PATH)(message):
                    pass
    async with client.connected(client.ports.grpc) as (_, writer):
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + client.draw.randbytes(TAKEN_BYTES))
        await asyncio.sleep(0.1)


async def left_connections(client: Client) -> None:
    """Connections to every port, on which nothing is said."""
    opened = [
        await asyncio.open_connection("127.0.0.1", port, local_addr=(client.address, 0))
        for port, _ in itertools.product(asdict(client.ports).values(), range(12))
        if port is not None
    ]
    await asyncio.sleep(LEFT_S)
    for _, writer in opened:
        writer.transport.abort()


async def malformed_frames(client: Client) -> None:
    """Noise, wrong checksums, endless messages and requests that are none, to a server's query port."""
    hello = encode(FrameKind.HELLO, 0, Hello().to_bytes())
    spoiled = bytearray(encode(FrameKind.LAST, 1, b"{}"))
    spoiled[0] ^= 1
    port = client.ports.server_query
    assert port is not None
    for start in (client.draw.randbytes(4_096), hello + bytes(spoiled), hello * 3):
        async with client.connected(port) as (reader, writer):
            writer.write(start)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.read()
    async with client.connected(port) as (reader, writer):
        writer.write(hello)
        await reader.read(TAKEN_BYTES)
        for call in range(1, 300):
            writer.write(encode(FrameKind.LAST, call, client.draw.randbytes(200)))
            writer.write(encode(FrameKind.PING, 0))
        await writer.drain()
        await reader.read(TAKEN_BYTES)
        for call in itertools.count(1_000):
            writer.write(encode(FrameKind.PART, call, bytes(1 << 20)))
            await writer.drain()


async def noise(client: Client) -> None:
    """What is no HTTP."""
    for port in (client.ports.broker, client.ports.controller, client.ports.server_http):
        async with client.connected(port) as (reader, writer):
            writer.write(client.draw.randbytes(2_000) + b"\r\n\r\n")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    client.judge("noise", await reader.read(TAKEN_BYTES))


KINDS: tuple[Callable[[Client], Awaitable[None]], ...] = (
    slow_bodies,
    slow_heads,
    unfinished_requests,
    huge_headers,
    deep_json,
    heavy_queries,
    hung_up_queries,
    unread_cursors,
    unread_answers,
    uploads,
    gzip_bombs,
    unread_streams,
    malformed_calls,
    left_connections,
    malformed_frames,
    noise,
)


async def _live(kind: Callable[[Client], Awaitable[None]], client: Client, rounds: Counter[str]) -> None:
    """Do it again and again; whatever the deployment does to a client is right."""
    while True:
        with suppress(OSError, EOFError, grpc.aio.AioRpcError):
            rounds[kind.__name__] += 1
            async with asyncio.timeout(ROUND_S):
                await kind(client)
        await asyncio.sleep(PAUSE_S)


async def run(ports: Ports, num_clients: int, seed: int) -> dict[str, Any]:
    """Until the input ends: how many rounds each kind began, and what faults answers told of."""
    rounds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    numbers = itertools.count(1)
    tasks = []
    kinds = [kind for kind in KINDS if kind is not malformed_frames or ports.server_query is not None]
    for number in range(num_clients):
        address = f"127.0.1.{1 + number}"
        client = Client(ports, address, random.Random(seed + number), numbers, faults)
        tasks.append(asyncio.create_task(_live(kinds[number % len(kinds)], client, rounds)))
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"rounds": rounds, "faults": faults}


def main() -> None:
    print(BEGUN, end="", flush=True)
    ports, num_clients, seed = Ports(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(asyncio.run(run(ports, num_clients, seed))))


if __name__ == "__main__":
    main()

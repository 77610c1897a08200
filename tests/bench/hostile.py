"""What an ordinary client feels while others burn what one text, one body or one connection can burn.

`SELECT COUNT(*), SUM(seconds) FROM visits WHERE user_id = …` from one client: alone, then while each hostile client
runs in a process of its own. Of two cores the hostile client itself takes a part: what counts is whether
the median stays a few milliseconds.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.http_load import Load, run_load
from tests.bench.point_query import QUERIES, build, embedded, manifest
from tests.bench.report import ROOT, Case, publish
from tests.support.processes import ClusterProcesses

from merlot.wire.frames import FrameKind, Hello, encode
from merlot_spark.zookeeper import ZooKeeper

Address = tuple[str, int]


def chain(word: str, condition: str, count: int) -> str:
    return "SELECT page FROM visits WHERE " + f" {word} ".join(condition.format(number) for number in range(count))


def listed(text: str, count: int) -> str:
    return ", ".join(text.format(number) for number in range(count))


def posting(
    path: str, bodies: Sequence[bytes], *, patience_s: float = 60.0, fields: str = ""
) -> Callable[[Address], None]:
    """Posts bodies in turn; hangs up when its patience is over."""

    def attack(address: Address) -> None:
        for number in itertools.count(os.getpid() + threading.get_ident()):
            body = bodies[number % len(bodies)]
            with suppress(OSError), socket.create_connection(address, timeout=patience_s) as connection:
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                connection.recv(1 << 16)

    return attack


def texts(*queries: str) -> list[bytes]:
    """Each ends differently, so that no plan is known."""
    return [json.dumps({"sql": f"{sql} LIMIT {limit}"}).encode() for sql in queries for limit in range(1, 200)]


def single_bytes(address: Address) -> None:
    """Bodies of 4 MB of which the last bytes come one by one."""
    with socket.create_connection(address) as connection:
        connection.sendall(
            b"POST /query/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n" + bytes(4 << 20)[:-20_000]
        )
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            connection.send(b" ")
            time.sleep(0.0003)


def slow_heads(address: Address) -> None:
    """Hundreds of connections whose requests never come whole."""
    connections: list[socket.socket] = []
    while True:
        if len(connections) < 300:
            connections.append(socket.create_connection(address))
        for connection in list(connections):
            try:
                connection.send(b"G")
            except OSError:
                connections.remove(connection)
                connection.close()
        time.sleep(0.05)


def unfinished_messages(address: Address) -> None:
    """Parts of requests that never end, on a server's query port."""
    while True:
        with suppress(OSError), socket.create_connection(address) as connection:
            connection.sendall(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
            for call in itertools.count(1):
                connection.sendall(encode(FrameKind.PART, call, bytes(1 << 20)))


def small_frames(frame: bytes) -> Callable[[Address], None]:
    """As many frames as the server takes, and its answers with them."""

    def attack(address: Address) -> None:
        while True:
            with suppress(OSError), socket.create_connection(address) as connection:
                connection.sendall(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
                while connection.recv(1 << 20):
                    connection.sendall(frame * 1_000)

    return attack


def short_connections(address: Address) -> None:
    """Connections that end as soon as they are made."""
    while True:
        with suppress(OSError), socket.create_connection(address) as connection:
            connection.sendall(encode(FrameKind.HELLO, 0, Hello().to_bytes()))


LONG_TEXTS = texts(
    chain("OR", "user_id = {}", 60_000),
    chain("AND", "user_id > {}", 9_000),
    chain("OR", "(user_id = {} AND seconds > 1)", 4_900),
    "SELECT " + listed("user_id", 200_000) + " FROM visits",
    "SELECT " + listed("user_id + {}", 5_000) + " FROM visits",
    "SELECT page FROM visits WHERE user_id IN (" + listed("{}", 99_000) + ")",
)
VALUES = b"a: [" + b"1," * 90_000 + b"1]"
ATTACKS: dict[str, tuple[int, Callable[[Address], None]]] = {
    "long texts": (4, posting("/query/sql", LONG_TEXTS)),
    "long texts, hanging up": (4, posting("/query/sql", LONG_TEXTS, patience_s=0.3)),
    "pages of text": (4, posting("/query/sql", texts(chain("OR", "user_id > {}", 200)))),
    "20,000 OPTION clauses": (2, posting("/query/sql", texts("SELECT 1 " + "OPTION(a=1) " * 20_000))),
    "bodies in single bytes": (3, single_bytes),
    "heads that never end": (1, slow_heads),
    "gzip bombs": (2, posting("/query/sql", [gzip.compress(bytes(64 << 20))], fields="Content-Encoding: gzip\r\n")),
    "90,000 values of YAML": (2, posting("/apply?dryRun=true", [VALUES])),
    "4 MB of YAML": (2, posting("/apply?dryRun=true", [b"a: [" + b"1," * 2_000_000 + b"1]"])),
}
PORT_ATTACKS: dict[str, tuple[int, Callable[[Address], None]]] = {
    "long texts": ATTACKS["long texts"],
    "unfinished messages": (4, unfinished_messages),
    "pings": (4, small_frames(encode(FrameKind.PING, 0))),
    "requests that are none": (4, small_frames(encode(FrameKind.LAST, 1, b"?"))),
    "short connections": (4, short_connections),
}


@contextmanager
def attacking(name: str, address: Address) -> Iterator[None]:
    """From a process of its own."""
    command = [sys.executable, "-m", "tests.bench.hostile", "--attack", name, "--address", f"{address[0]}:{address[1]}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            time.sleep(1.0)
            yield
        finally:
            process.kill()


def attack(name: str, address: Address) -> None:
    num_threads, work = (ATTACKS | PORT_ATTACKS)[name]
    for _ in range(num_threads):
        threading.Thread(target=work, args=(address,), daemon=True).start()
    print("begun", flush=True)
    time.sleep(3_600)


def measure(deployment: str, url: str, targets: dict[str, Address], seconds: float) -> list[Case]:
    def load() -> Load:
        return run_load(f"{url}/query/sql", QUERIES, 1, seconds)

    load()  # plans and pages
    cases = []
    for name, address in targets.items():
        alone = load()
        with attacking(name, address):
            beside = load()
        errors = f", {beside.errors} errors" if beside.errors else ""
        cases.append(Case(f"{deployment}: {name}, p50{errors}", "ms", beside.p50_ms, "alone", alone.p50_ms))
        cases.append(Case(f"{deployment}: {name}, p99", "ms", beside.p99_ms, "alone", alone.p99_ms))
        print(cases[-2], cases[-1], sep="\n", flush=True)
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and seconds")
    parser.add_argument("--only", help="measure beside one hostile client only")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.attack:
        host, _, port = options.address.rpartition(":")
        attack(options.attack, (host, int(port)))
    num_rows, seconds = (10_000, 4.0) if options.quick else (100_000, 10.0)
    wanted = [name for name in (*ATTACKS, *PORT_ATTACKS) if options.only in (None, name)]
    cases = []
    with tempfile.TemporaryDirectory() as name:
        for deployment in (embedded_cases, process_cases):
            folder = Path(name) / deployment.__name__
            folder.mkdir()
            cases += deployment(folder, num_rows, seconds, wanted)
    publish("hostile", "Point queries of one client beside hostile ones", cases)
    return 0


def embedded_cases(folder: Path, num_rows: int, seconds: float, wanted: Sequence[str]) -> list[Case]:
    with embedded(folder, num_rows) as url:
        return measure("embedded", url, {name: address_of(url) for name in ATTACKS if name in wanted}, seconds)


def process_cases(folder: Path, num_rows: int, seconds: float, wanted: Sequence[str]) -> list[Case]:
    with (
        ZooKeeper(folder / "zookeeper") as zookeeper,
        ClusterProcesses(folder / "cluster", f"{zookeeper.hosts}/bench", num_servers=1, level="WARNING") as cluster,
    ):
        cluster.add_table(manifest(), build(folder / "built", cluster.deep_store, num_rows))
        query_port = ("127.0.0.1", cluster.servers[0].port("--query-port"))
        targets = dict.fromkeys(PORT_ATTACKS, query_port) | {"long texts": address_of(cluster.broker.url)}
        chosen = {name: target for name, target in targets.items() if name in wanted}
        return measure("processes", cluster.broker.url, chosen, seconds)


def address_of(url: str) -> Address:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


if __name__ == "__main__":
    sys.exit(main())

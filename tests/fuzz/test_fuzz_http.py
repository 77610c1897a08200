"""Whatever comes to a node's port, it serves on: no bug, no hang, no word in the log, no answer 500."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from tests.fuzz.fuzzing import CASE_S, Loud, cases, spoiled_bytes, spoiled_json
from tests.sql.slt_nodes import Remote

RECORD = {
    "name": "things_0",
    "crc": 7,
    "sizeBytes": 100,
    "url": "things/things_0@7.mseg",
    "totalDocs": 5,
    "ranges": {"id": [1, 2], "color": ["a", "b"]},
    "columns": {"id": "INT", "color": "STRING"},
    "partitions": {"id": {"functionName": "Modulo", "numPartitions": 4, "partitions": [1]}},
    "blooms": {"color": "AAAA"},
    "creationFacts": {},
}
BODIES: tuple[tuple[str, Any], ...] = (
    ("/query/sql", {"sql": "SELECT COUNT(*) FROM things", "queryOptions": "timeoutMs=500;x=y", "trace": True}),
    ("/query", {"sql": "SELECT 1"}),
    ("/sql", {"sql": "SELECT 1"}),
    ("/segments/things/publish", {"publishId": "p", "records": [RECORD], "replace": [], "replaceAll": False}),
    ("/segments/nothing/publish", {"publishId": "p", "records": [RECORD]}),
    ("/segments/things/annotate", {"annotations": [{"name": "things_0", "crc": 7, "ranges": {"id": [1, 2]}}]}),
    ("/segments/things/startReplaceSegments", {"segmentsFrom": ["x"], "segmentsTo": ["y"], "customMap": {"a": "b"}}),
    ("/segments/things/endReplaceSegments?segmentLineageEntryId=x", {"segmentsTo": ["y"]}),
    ("/segments/things/revertReplaceSegments?segmentLineageEntryId=x", {}),
    (
        "/apply?dryRun=true",
        {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": "x"}, "spec": {}},
    ),
    ("/rollups/things/run", {}),
    ("/instances/nobody/drain", {}),
)
PATHS = (
    *(
        "/health",
        "/metrics",
        "/tables",
        "/tables/things",
        "/tables/things/schema",
        "/segments/things",
        "/queries",
        "/status",
    ),
    *(
        "/query/sql?sql=SELECT%201",
        "/debug/routingTable/sql?query=SELECT%201",
        "/tables/%00",
        "/segments/things/%2e%2e/metadata",
    ),
    *(
        "/debug/routingTable/things",
        "/tables/things/rebalance?dryRun=true",
        "/v2/brokers/tables/x",
        "/nothing",
        "*",
        "//",
        "/%",
    ),
)
FIELDS = (
    *(
        "X-Correlation-Id: a",
        "Connection: close",
        "Connection: keep-alive",
        "Expect: 100-continue",
        "Transfer-Encoding: chunked",
    ),
    *(
        "Content-Encoding: gzip",
        "Content-Encoding: br",
        "Content-Type: application/json; charset=x",
        "Upgrade: websocket",
    ),
    *(
        "Content-Length: 5",
        "Content-Length: -1",
        "Content-Length: " + "9" * 30,
        "Host: y",
        "Pinot-Use-Http-Status-For-Errors: true",
    ),
    *(
        "If-None-Match: *",
        "If-None-Match: x,",
        "Merlot-Fence: 1",
        "Cookie: a",
        ": x",
        "X",
        "X: \u00e9",
        "Range: bytes=-1",
        "X: " + "y" * 9000,
    ),
)


ODD_EXPECT = re.compile(rb"expect[^\n]*[^\x00-\x7f]", re.IGNORECASE)
"""aiohttp 3.14 fails to say what it does not expect if that is no UTF-8, with a 500 of its own, before our code."""


def request_of(rng: random.Random) -> bytes:
    """A request, right or spoiled in its head, its body or both."""
    path, value = rng.choice(BODIES)
    method = "POST"
    body = json.dumps(spoiled_json(rng, value) if rng.random() < 0.7 else value).encode()
    if rng.random() < 0.3:
        method, path, body = (
            rng.choice(("GET", "GET", "HEAD", "DELETE", "PUT", "OPTIONS", "PATCH", "x")),
            rng.choice(PATHS),
            b"",
        )
        if method == "DELETE":
            path = "/query/7"
    if rng.random() < 0.15:
        body = spoiled_bytes(rng, body)
    fields = [f"Content-Length: {len(body)}"] if rng.random() < 0.95 else []
    fields += rng.choices(FIELDS, k=rng.choice((0, 0, 0, 1, 2)))
    head = "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *fields, "", "")).encode("utf-8", "replace")
    if rng.random() < 0.05:
        head = head[:-2] + b"X-Correlation-Id: \xff\r\n\r\n"
    if rng.random() < 0.2:
        head = spoiled_bytes(rng, head)
    return head + body


def exchange(address: tuple[str, int], rng: random.Random, data: bytes) -> bytes:
    """What comes back for bytes that are sent in pieces, until the node closes or waits for more."""
    with socket.create_connection(address, timeout=CASE_S) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 5))))
            for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
                connection.sendall(data[start:stop])
                if cuts:
                    time.sleep(0.001)
            with contextlib.suppress(OSError):  # the node may have closed
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
        return answer


def test_a_node_survives_whatever_is_sent_to_its_port(node: Remote, loud: Loud) -> None:
    parts = urlsplit(node.url)
    address = (parts.hostname or "", parts.port or 0)
    expected = node.query("SELECT COUNT(*), SUM(id) FROM things").rows
    problems: list[str] = []
    for rng in cases("http", quick=200, every=1000):
        data = b"".join(request_of(rng) for _ in range(rng.choice((1, 1, 2, 4))))
        if ODD_EXPECT.search(data):
            continue
        answer = exchange(address, rng, data)
        if loud.said or re.search(rb"HTTP/1\.1 5(?!03)\d\d|Traceback|\"errorCode\":450", answer):
            problems.append(f"{data[:1500]!r}\n  {answer[:600]!r}\n  {' '.join(loud.said)[-1500:]}")
            loud.said.clear()
            if len(problems) == 5:
                break
        if rng.random() < 0.05:
            assert node.query("SELECT COUNT(*), SUM(id) FROM things").rows == expected
    assert not problems, "\n".join(problems)
    assert node.query("SELECT COUNT(*), SUM(id) FROM things").rows == expected

"""A small HTTP load generator: N clients, each asking again as soon as it is answered, over connections kept alive.

`python -m tests.bench.http_load URL CLIENTS SECONDS` reads bodies, one JSON object a line, from stdin, posts them in
turn, and prints one JSON object: qps, p50_ms, p99_ms, errors. A process of its own, so that it shares no interpreter
with what it measures; about 25 us of CPU per request.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
WARM_UP_SHARE = 0.2


@dataclass(frozen=True)
class Load:
    """What a run measured; latencies as a client saw them. Answers with exceptions are errors."""

    qps: float
    p50_ms: float
    p99_ms: float
    errors: int


class Client(asyncio.Protocol):
    """Sends the next request when the last is answered."""

    def __init__(self, requests: Iterator[bytes], times: list[tuple[float, float]]) -> None:
        self._requests = requests
        self._times = times
        self._buffer = b""
        self._sent_at = 0.0
        self.errors = 0
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        start = head.index(b"content-length:") + len(b"content-length:")
        line_end = head.find(b"\r\n", start)
        length = int(head[start : line_end if line_end >= 0 else len(head)])
        if len(self._buffer) < head_end + 4 + length:
            return
        now = time.perf_counter()
        self._times.append((now, now - self._sent_at))
        if b'"exceptions":[]' not in self._buffer:
            self.errors += 1
        self._buffer = b""
        if not self.is_over:
            self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._requests))


async def measure(url: str, bodies: Sequence[bytes], num_clients: int, seconds: float) -> Load:
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: "
    requests = itertools.cycle([head.encode() + str(len(body)).encode() + b"\r\n\r\n" + body for body in bodies])
    times: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    connections = [
        await loop.create_connection(lambda: Client(requests, times), parts.hostname, parts.port)
        for _ in range(num_clients)
    ]
    await asyncio.sleep(seconds)
    for transport, client in connections:
        client.is_over = True
        transport.close()
    counted_from = start + seconds * WARM_UP_SHARE
    latencies = sorted(latency for at, latency in times if at >= counted_from)
    if not latencies:
        raise SystemExit(f"no answer from {url}")
    return Load(
        qps=len(latencies) / (start + seconds - counted_from),
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1000,
        errors=sum(client.errors for _, client in connections),
    )


def run_load(url: str, queries: Sequence[str], num_clients: int, seconds: float) -> Load:
    """Measure from a process of its own."""
    command = [sys.executable, "-m", "tests.bench.http_load", url, str(num_clients), str(seconds)]
    lines = "\n".join(json.dumps({"sql": sql}) for sql in queries)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return Load(**json.loads(done.stdout))


if __name__ == "__main__":
    wanted = [line.strip().encode() for line in sys.stdin if line.strip()]
    load = asyncio.run(measure(sys.argv[1], wanted, int(sys.argv[2]), float(sys.argv[3])))
    print(json.dumps(asdict(load)))

"""A constant load of queries through the brokers' Service by pinotdb, every answer checked.

`python client.py HOST PORT THREADS PERIOD_S`, with QUERIES in the environment: a list of {"sql": …, "rows": [[…]]}.
A connection that is refused or reset is tried once more, as any client behind a load balancer must; everything else
that is not the expected answer counts. A line of JSON per second tells the sums so far.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from typing import Any

import httpx
import pinotdb

RETRIED = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
MAX_SAMPLES = 20
USES = 10
TIMEOUT_S = 30


@dataclass
class Sums:
    """What was seen since the start."""

    queries: int = 0
    retried: int = 0
    wrong: int = 0
    failed: int = 0
    slowest_ms: float = 0.0
    samples: list[str] = field(default_factory=list)


class Client:
    """One thread's share of the load. A connection lives for a few queries, so that each broker sees new ones."""

    def __init__(self, host: str, port: int, sums: Sums, lock: threading.Lock) -> None:
        self._host, self._port, self._sums, self._lock = host, port, sums, lock
        self._connection: Any = None
        self._uses = 0

    def ask(self, sql: str) -> list[list[Any]]:
        """One query."""
        if self._connection is None or self._uses == USES:
            self.forget()
            self._connection = pinotdb.connect(
                host=self._host, port=self._port, path="/query/sql", scheme="http", timeout=TIMEOUT_S, verify_ssl=False
            )
        self._uses += 1
        cursor = self._connection.cursor()
        cursor.execute(sql)
        return [list(row) for row in cursor]

    def forget(self) -> None:
        """The next query opens a connection anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._uses = None, 0

    def check(self, query: dict[str, Any]) -> None:
        """Ask, once more if the connection broke, and count."""
        started = time.monotonic()
        retried, problem, is_wrong = 0, None, False
        try:
            try:
                found = self.ask(query["sql"])
            except RETRIED:
                retried = 1
                self.forget()
                found = self.ask(query["sql"])
            if found != query["rows"]:
                is_wrong, problem = True, f"{query['sql']} gave {found[:3]}, not {query['rows'][:3]}"
        except Exception as error:  # noqa: BLE001 - whatever went wrong is a failed query
            self.forget()
            problem = f"{query['sql']} failed: {type(error).__name__}: {error}"
        self._count(retried, problem, is_wrong, (time.monotonic() - started) * 1000)

    def _count(self, retried: int, problem: str | None, is_wrong: bool, took_ms: float) -> None:
        with self._lock:
            self._sums.queries += 1
            self._sums.retried += retried
            self._sums.wrong += is_wrong
            self._sums.failed += problem is not None and not is_wrong
            self._sums.slowest_ms = round(max(self._sums.slowest_ms, took_ms), 1)
            if problem is not None and len(self._sums.samples) < MAX_SAMPLES:
                self._sums.samples.append(f"{time.strftime('%H:%M:%S')} {problem[:500]}")

    def run(self, queries: Iterator[dict[str, Any]], period_s: float) -> None:
        """For ever."""
        for query in queries:
            started = time.monotonic()
            self.check(query)
            time.sleep(max(0.0, period_s - (time.monotonic() - started)))


def main() -> None:
    host, port, threads, period_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    queries = json.loads(os.environ["QUERIES"])
    sums, lock = Sums(), threading.Lock()
    for number in range(threads):
        load = islice(cycle(queries), number, None)
        threading.Thread(target=Client(host, port, sums, lock).run, args=(load, period_s), daemon=True).start()
    while True:
        time.sleep(1)
        with lock:
            print(json.dumps(asdict(sums)), flush=True)


if __name__ == "__main__":
    main()

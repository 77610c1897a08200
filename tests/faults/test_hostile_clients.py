"""Clients of every hostile kind work beside an honest one, whose light queries are all answered, and right."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.budget import IS_QUICK, count, seed
from tests.faults.bounded_program import bounded, can_bound
from tests.faults.hostile_clients import BEGUN, KINDS, Ports
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import START_MS, order_rows, orders_manifest, total_amount, upload_orders

from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot.values.periods import DAY_MS

SECONDS = count("MERLOT_HOSTILE_S", quick=3, every=60)
NUM_CLIENTS = count("MERLOT_HOSTILE_CLIENTS", quick=len(KINDS), every=64)
NUM_ROWS = count("MERLOT_HOSTILE_ROWS", quick=2_000, every=20_000)
"""Of a day."""
DAYS = range(6)
LATER = range(100, 100_000)
"""Days that the honest client publishes meanwhile."""
LATER_MS = START_MS + LATER[0] * DAY_MS
HONEST = "127.0.0.9"
"""The address of the honest client. Hostile ones have others, by which shares go."""
SERVED_S = 4 * PATIENCE_S
"""Whoever is not served by then is not served at all."""
MEMORY_BYTES = {"controller": 512 << 20, "broker": 1 << 30, "server-0": 4 << 30, "node": 2 << 30}
"""What the chart gives a pod of a role; a node has no pod."""
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900 + 4 * SECONDS)]


@dataclass(frozen=True)
class Deployment:
    """Processes that answer, and where."""

    processes: list[RoleProcess]
    ports: Ports
    store: DeepStore


@contextmanager
def cluster_of(folder: Path, zookeeper: str) -> Iterator[Deployment]:
    cluster = ClusterProcesses(folder, zookeeper, num_servers=1).with_grpc().with_files()
    with bounded(limits_of(cluster.processes)), cluster:
        (server,) = cluster.servers
        ports = Ports(
            broker=cluster.broker.port("--http-port"),
            grpc=cluster.broker.port("--grpc-port"),
            controller=cluster.controller.port("--http-port"),
            server_http=server.port("--http-port"),
            server_query=server.port("--query-port"),
        )
        yield Deployment(cluster.processes, ports, cluster.deep_store)


@contextmanager
def node_of(folder: Path) -> Iterator[Deployment]:
    serve = ["serve", "--data", str(folder / "data"), "--log-level", "INFO"]
    node = RoleProcess(folder, "node", serve, ("--port", "--grpc-port"))
    with bounded(limits_of([node])), running(node):
        port = node.port("--port")
        ports = Ports(broker=port, grpc=node.port("--grpc-port"), controller=port, server_http=port, server_query=None)
        yield Deployment([node], ports, DeepStore(str(folder / "data" / "deepstore")))


@contextmanager
def running(node: RoleProcess) -> Iterator[None]:
    node.start()
    try:
        node.wait_ready()
        yield
    finally:
        node.kill()


def limits_of(processes: list[RoleProcess]) -> dict[str, tuple[RoleProcess, int]]:
    """Processes by name, with the memory that the chart gives a pod of each; none where that cannot be bounded."""
    if IS_QUICK or not can_bound():
        return {}
    return {one.name: (one, MEMORY_BYTES[one.name]) for one in processes}


@contextmanager
def hostile_clients(ports: Ports) -> Iterator[dict[str, Any]]:
    """Have them work while the block runs. Afterwards the dictionary holds what they tell."""
    command = [sys.executable, "-m", "tests.faults.hostile_clients"]
    arguments = [json.dumps(asdict(ports)), str(NUM_CLIENTS), str(seed())]
    told: dict[str, Any] = {}
    process = subprocess.Popen(
        [*command, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == BEGUN
    try:
        yield told
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output
        told.update(json.loads(output))
    finally:
        process.kill()
        process.wait()


@dataclass
class HonestClient:
    """Asks light queries and publishes a day now and then, over one connection to each process, and over new ones."""

    deployment: Deployment
    times_s: list[float] = field(default_factory=list)
    """Of queries, and below of publishes."""
    publish_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    num_days: int = 0
    least: int = 0
    _kept: dict[int, http.client.HTTPConnection] = field(default_factory=dict)

    def request(self, port: int, path: str, fields: Mapping[str, Any], *, is_new: bool = False) -> Any:
        """The JSON of an answer with status 200."""
        connection = None if is_new else self._kept.get(port)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SERVED_S, source_address=(HONEST, 0))
            if not is_new:
                self._kept[port] = connection
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {text[:500]!r}"
        if is_new:
            connection.close()
        return json.loads(text)

    def close(self) -> None:
        """Hang up."""
        for connection in self._kept.values():
            connection.close()

    def ask(self, sql: str, *, is_new: bool = False) -> list[list[Any]]:
        """The rows of an answer that is whole."""
        started = time.monotonic()
        fields = {"sql": sql, "queryOptions": f"timeoutMs={1000 * PATIENCE_S:.0f}"}
        answer = self.request(self.deployment.ports.broker, "/query/sql", fields, is_new=is_new)
        self.times_s.append(time.monotonic() - started)
        assert not answer["exceptions"], answer["exceptions"]
        rows: list[list[Any]] = answer["resultTable"]["rows"]
        return rows

    def counted(self) -> int | None:
        """The rows of the table; None while an answer is not whole."""
        answer = self.request(self.deployment.ports.broker, "/query/sql", {"sql": "SELECT COUNT(*) FROM orders"})
        return None if answer["exceptions"] else int(answer["resultTable"]["rows"][0][0])

    def look(self, number: int) -> None:
        """Ask each query once."""
        day = DAYS[number % len(DAYS)]
        window = f"at >= {START_MS + day * DAY_MS} AND at < {START_MS + (day + 1) * DAY_MS}"
        rows = order_rows(day, NUM_ROWS).to_pylist()
        row = rows[number % NUM_ROWS]
        cases = {
            f"SELECT COUNT(*), SUM(amount) FROM orders WHERE {window}": [[NUM_ROWS, total_amount([day], NUM_ROWS)]],
            f"SELECT city, amount FROM orders WHERE id = {row['id']} AND {window}": [[row["city"], row["amount"]]],
            f"SELECT MAX(id) FROM orders WHERE {window} AND city = 'Rome'": [
                [max(one["id"] for one in rows if one["city"] == "Rome")]
            ],
        }
        for place, (sql, expected) in enumerate(cases.items()):
            if (found := self.ask(sql, is_new=place == number % 3)) != expected:
                self.wrong.append(f"{sql}: {found} is not {expected}")
        self.look_for_later_days()

    def publish(self) -> None:
        """Publish one more day."""
        (record,) = upload_orders(self.deployment.store, [LATER[self.num_days]], 10)
        body = {"records": [record.model_dump(mode="json", by_alias=True, exclude_defaults=True)]}
        self.num_days += 1
        started = time.monotonic()
        self.request(self.deployment.ports.controller, "/segments/orders/publish", body)
        self.publish_s.append(time.monotonic() - started)

    def look_for_later_days(self) -> bool:
        """Whether all days answer that were published meanwhile: no fewer than before in any case."""
        ((num_rows, amount),) = self.ask(f"SELECT COUNT(*), SUM(amount) FROM orders WHERE at >= {LATER_MS}")
        num_days, rest = divmod(num_rows, 10)
        if (
            rest
            or not self.least <= num_days <= self.num_days
            or (num_days and amount != total_amount(LATER[:num_days], 10))
        ):
            self.wrong.append(f"{num_rows} rows and {amount} of {self.num_days} days, {self.least} were there before")
        self.least = max(self.least, num_days)
        return num_days == self.num_days


def lives_on(deployment: Deployment, honest: HonestClient) -> None:
    """The honest client is served beside the hostile ones, and no process has died or tells of a bug."""
    manifest = orders_manifest().model_dump(mode="json", by_alias=True, exclude_unset=True)
    records = upload_orders(deployment.store, DAYS, NUM_ROWS)
    body = {"records": [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in records]}
    honest.request(deployment.ports.controller, "/apply", manifest)
    honest.request(deployment.ports.controller, "/segments/orders/publish", body)
    wait_until(lambda: honest.counted() == len(DAYS) * NUM_ROWS)
    with hostile_clients(deployment.ports) as told:
        started = last = time.monotonic()
        number = 0
        while time.monotonic() < started + SECONDS:
            honest.look(number)
            number += 1
            if time.monotonic() > last + SECONDS / 20:
                honest.publish()
                last = time.monotonic()
    times_ms = sorted(1000 * one for one in honest.times_s)
    middle, late = times_ms[len(times_ms) // 2], times_ms[len(times_ms) * 99 // 100]
    wait_until(honest.look_for_later_days)
    peaks = {one.name: f"{one.peak_bytes >> 20} MiB" for one in deployment.processes if one.is_running}
    print(
        f"{NUM_CLIENTS} hostile clients, {len(times_ms)} light queries: p50 {middle:.0f} ms, p99 {late:.0f} ms, {peaks}"
    )
    print(f"{honest.num_days} publishes, the slowest {max(honest.publish_s):.1f} s; rounds: {told['rounds']}")
    assert honest.wrong == []
    assert [one.name for one in deployment.processes if not one.is_running] == []
    assert told["faults"] == {}
    kinds = {one.__name__ for one in KINDS} - ({"malformed_frames"} if deployment.ports.server_query is None else set())
    assert told["rounds"].keys() == kinds
    for process in deployment.processes:
        assert "Traceback" not in (log := process.log.read_text()), log[max(0, log.index("Traceback") - 500) :][:5_000]


def test_an_honest_client_of_a_cluster_is_served_beside_hostile_ones(tmp_path: Path, zookeeper: str) -> None:
    with cluster_of(tmp_path, zookeeper) as deployment, closing(HonestClient(deployment)) as honest:
        lives_on(deployment, honest)


@pytest.mark.slow("the test above has the same roles")
def test_an_honest_client_of_a_node_is_served_beside_hostile_ones(tmp_path: Path) -> None:
    with node_of(tmp_path) as deployment, closing(HonestClient(deployment)) as honest:
        lives_on(deployment, honest)

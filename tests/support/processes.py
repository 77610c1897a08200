"""Cluster of real processes over a ZooKeeper: a controller, a broker, servers; to query, to kill, to freeze.

Calls block; tests on an event loop make them in threads. Each process writes its log to a file in the cluster's
folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.fork_server import Child

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.errors import UnavailableError
from merlot.ids import TableName, offline, raw_name
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.ports import free_port
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until

POLL_S = 0.02


class RoleProcess:
    """`merlot` process with a health endpoint. It can be started again after it ended, on the same ports.

    ports: options that each take a port."""

    def __init__(
        self, folder: Path, name: str, arguments: Sequence[str], ports: Sequence[str] = ("--http-port",)
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.program = "merlot.cli.main"
        """Module that the next start runs."""
        self.environment: Mapping[str, str] = {}
        """Variables that the next start adds to those of this process."""
        self.options: Sequence[str] = ()
        """Options that the next start adds to the arguments."""
        self.host = "127.0.0.1"
        """Host at which it is reached."""
        self._arguments = arguments
        self._ports = {option: free_port() for option in ports}
        self._process: Child | None = None

    @property
    def url(self) -> str:
        """URL of its HTTP endpoint, on the first of its ports."""
        return f"http://{self.host}:{next(iter(self._ports.values()))}"

    def port(self, option: str) -> int:
        """Return the port of an option."""
        return self._ports[option]

    @property
    def pid(self) -> int | None:
        """Id of the process that was started last."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_frozen(self) -> bool:
        """True if a signal has stopped it. Linux."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def peak_bytes(self) -> int:
        """Most memory that it has had resident since it was started. Linux."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))

    def cpu_s(self) -> float:
        """Return the CPU time that it has used, user and system; 0 once it has ended. Linux."""
        stat = Path(f"/proc/{self._process.pid}/stat") if self._process is not None else None
        if stat is None or not stat.exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def start(self) -> None:
        """Start the process, and return at once; see `wait_ready`."""
        ports = [text for option, port in self._ports.items() for text in (option, str(port))]
        environment = {**os.environ, **self.environment}
        self._process = Child(
            self.program, [*self._arguments, *self.options, *ports], self.log, environment=environment
        )

    def wait_ready(self) -> None:
        """Wait until its health is OK. Raise UnavailableError, with the end of its log, if it ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not (self.is_ready() and self.is_running):
            if time.monotonic() > deadline or not self.is_running:
                raise UnavailableError(f"process is not ready name={self.name} log:\n{self.tail()}")
            time.sleep(POLL_S)

    def is_ready(self) -> bool:
        """Return True if its health is OK now."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def get(self, path: str) -> Any:
        """Return the JSON that its HTTP endpoint answers."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        if self._process is not None:
            self._process.send(number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Send SIGTERM and wait for the end; return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end, and kill the process if it does not come in time. Return the exit code."""
        return 0 if self._process is None else self._process.wait(PATIENCE_S)

    def tail(self, num_bytes: int = 4000) -> str:
        """Return the end of its log."""
        return self.log.read_bytes()[-num_bytes:].decode(errors="replace") if self.log.exists() else ""


class ClusterProcesses:
    """Cluster as a context manager: entering starts everything, leaving kills it.

    zookeeper: `host:port/chroot`, with a chroot of its own. The deep store is a folder unless a URI is given."""

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        *,
        num_servers: int = 2,
        num_minions: int = 0,
        deep_store: str | None = None,
        level: str = "INFO",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.zookeeper = zookeeper
        self.deep_store_uri = deep_store or str(folder / "deepstore")
        self._shared = shared = ["--zk", zookeeper, "--log-level", level]
        self._streams = ["--stream-folders", "/"]
        self._num_servers = num_servers
        self.controller = self._role("controller", [*shared, *self._streams], "controller")
        self.broker = self._role("broker", [*shared, "--warm-up", "0"], "broker")
        self.servers = [self._server(number, shared) for number in range(num_servers)]
        self.minions = [self._minion(number, shared) for number in range(num_minions)]

    def with_grpc(self) -> Self:
        """Make the broker accept queries over gRPC too, on its port of `--grpc-port`. Call it before the broker
        starts."""
        ports = ("--http-port", "--grpc-port")
        self.broker = RoleProcess(self.folder, "broker", ["broker", *self._shared, "--warm-up", "0"], ports)
        return self

    def with_files(self) -> Self:
        """Make the controller delete files from the deep store, and keep catalogs there. Call it before the controller
        starts."""
        self.controller = self._role(
            "controller", [*self._shared, *self._streams, "--deep-store", self.deep_store_uri], "controller"
        )
        return self

    def new_server(self, instance: str | None = None) -> RoleProcess:
        """Return another server, not started, that is not among `servers`; the caller has to end it. It may take over
        the name of an existing server."""
        self._num_servers += 1
        named = [] if instance is None else ["--instance", instance]
        return self._server(self._num_servers - 1, [*self._shared, *named])

    def new_minion(self, name: str, *arguments: str) -> RoleProcess:
        """Return another minion, not started, that is not among `minions`; the caller has to end it."""
        own = ["--data-dir", str(self.folder / name), "--deep-store", self.deep_store_uri, *arguments]
        return self._role("minion", [*self._shared, *own], name)

    @property
    def processes(self) -> list[RoleProcess]:
        return [self.controller, *self.servers, *self.minions, self.broker]

    @property
    def deep_store(self) -> DeepStore:
        """Deep store of its tables."""
        return DeepStore(self.deep_store_uri)

    def server_dir(self, number: int) -> Path:
        """Return the data folder of a server."""
        return self.folder / f"server-{number}"

    def __enter__(self) -> Self:
        try:
            for process in self.processes:
                process.start()
            for process in self.processes:
                process.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything that runs."""
        for process in self.processes:
            process.send(signal.SIGCONT)
            process.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    @contextlib.contextmanager
    def metastore(self) -> Iterator[Metastore]:
        """Open a session on the cluster's state."""
        metastore = ZooKeeperMetastore(self.zookeeper)
        try:
            yield metastore
        finally:
            metastore.close()

    def add_table(self, manifest: Table, records: Sequence[SegmentRecord]) -> None:
        """Create the table, publish its segments, and wait until the broker answers for all of them."""
        table = offline(manifest.raw_name)
        with self.metastore() as metastore:
            put_table(metastore, manifest)
            publish(metastore, table, records)
        self.wait_served(table, sum(record.total_docs for record in records), manifest.spec.replication)

    def mend(self, table: TableName, num_docs: int, num_replicas: int = 2) -> None:
        """Start all processes that do not run, and wait until the table is served."""
        for process in self.processes:
            if not process.is_running:
                process.start()
                process.wait_ready()
        self.wait_served(table, num_docs, num_replicas)

    def wait_served(self, table: TableName, num_docs: int, num_replicas: int = 1) -> None:
        """Wait until the table is served: a count over it is right, this many servers have loaded everything, and the
        broker, which learns of it later, routes to as many."""

        def is_served() -> bool:
            num_holders = sum(self._holds(server, table) for server in self.servers)
            return self._count(table) == num_docs and num_holders >= num_replicas and self._asks(table, num_replicas)

        try:
            wait_until(is_served)
        except TimeoutError as error:
            tails = "\n".join(f"{process.name}:\n{process.tail()}" for process in self.processes)
            raise UnavailableError(f"table is not served table={table} num_docs={num_docs}\n{tails}") from error

    def _asks(self, table: TableName, num_servers: int) -> bool:
        try:
            halves = self.broker.get(f"/debug/routingTable/{raw_name(table)}")
        except OSError:
            return False
        routes = [(server, len(names)) for half in halves.values() for server, names in half.items()]
        return len({server for server, _ in routes}) >= min(num_servers, sum(number for _, number in routes))

    def query(self, sql: str, options: str = "") -> dict[str, Any]:
        """Return the broker's whole answer."""
        body = json.dumps({"sql": sql, "queryOptions": options}).encode()
        request = urllib.request.Request(
            f"{self.broker.url}/query/sql", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            fields: dict[str, Any] = json.load(answer)
            return fields

    def _count(self, table: TableName) -> int | None:
        try:
            answer = self.query(f'SELECT count(*) FROM "{raw_name(table)}"')
        except OSError:
            return None
        if answer["exceptions"] or not answer.get("resultTable"):
            return None
        count: int = answer["resultTable"]["rows"][0][0]
        return count

    @staticmethod
    def _holds(server: RoleProcess, table: TableName) -> bool:
        try:
            held = server.get("/tables").get(table, {})
        except OSError:
            return False
        return bool(held.get("loaded")) and bool(held.get("isSettled"))

    def _role(self, command: str, arguments: Sequence[str], name: str) -> RoleProcess:
        return RoleProcess(self.folder, name, [command, *arguments])

    def _server(self, number: int, shared: Sequence[str]) -> RoleProcess:
        own = ["--data-dir", str(self.server_dir(number)), "--deep-store", self.deep_store_uri, "--warm-up", "0"]
        name = f"server-{number}"
        return RoleProcess(
            self.folder, name, ["server", *shared, *self._streams, *own], ("--http-port", "--query-port")
        )

    def _minion(self, number: int, shared: Sequence[str]) -> RoleProcess:
        name = f"minion-{number}"
        own = ["--data-dir", str(self.folder / name), "--deep-store", self.deep_store_uri, "--slots", "2"]
        return self._role("minion", [*shared, *own], name)


@functools.cache
def can_mount() -> bool:
    """Return True if this machine lets a test mount a small tmpfs."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "probe", 1 << 16):
                return True
        except subprocess.CalledProcessError:
            return False


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs of this size at `folder`, which must not be in use when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def resize_disk(folder: Path, size_bytes: int) -> None:
    """Resize the tmpfs of `small_disk`."""
    subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(folder)], check=True)

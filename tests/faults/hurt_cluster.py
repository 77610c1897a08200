"""A cluster in which every role can be hurt in every way, beside tables that are written and asked all the while."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import failing_disks, hurt_program
from tests.faults.failing_disks import FailingDisk
from tests.faults.lives import Life
from tests.faults.networks import Network
from tests.support.events import EventFiles
from tests.support.processes import ClusterProcesses, RoleProcess, resize_disk, small_disk

from merlot.errors import UnavailableError
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot_spark.zookeeper import ZooKeeper

SESSION_MS = 2_000
ROOM_BYTES = 256 << 20
"""Of each disk that can be filled."""
ZOOKEEPER, DEEP_STORE = "zookeeper", "deepstore"
BETWEEN_S = 0.1
"""Between two writes."""


class StubbornLife(Life):
    """Its clients ask again whatever a controller answers that is out or cut off, as jobs do."""

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """Ask until it is done. What was done before its answer was lost is done."""
        deadline = time.monotonic() + PATIENCE_S
        is_asked_again = False
        while True:
            try:
                return self._call_once(method, path, body, kind)
            except urllib.error.HTTPError as error:
                if error.code == 404 and is_asked_again:
                    return None
                if error.code != 503 or time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
            except OSError:
                if time.monotonic() > deadline:
                    raise
            is_asked_again = True
            time.sleep(0.1)

    def _publish(self, day: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                super()._publish(day)
                return
            except (OSError, UnavailableError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)


@contextmanager
def written(life: Life, draw: random.Random) -> Iterator[None]:
    """Write all the while the block runs; afterwards every write was acknowledged."""
    is_over = threading.Event()
    problems: list[BaseException] = []

    def write() -> None:
        try:
            while not is_over.wait(BETWEEN_S):
                life.act(draw)
        except BaseException as problem:  # noqa: BLE001 - raised in the thread of the test
            problems.append(problem)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    for problem in problems:
        raise problem


@dataclass(frozen=True)
class Means:
    """How this machine lets processes be hurt."""

    can_fill: bool
    can_fail: bool
    can_part: bool


class HurtCluster:
    """A context manager: a controller, a broker, a server and a minion over a ZooKeeper of its own."""

    def __init__(self, folder: Path, means: Means) -> None:
        self._folder = folder
        self._means = means
        self._exits = ExitStack()
        self.disks: dict[str, FailingDisk] = {}
        self.network: Network | None = None

    def __enter__(self) -> HurtCluster:
        with ExitStack() as exits:
            self._start(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start(self, exits: ExitStack) -> None:
        folder = self._folder
        if self._means.can_fill:
            for name in (ZOOKEEPER, DEEP_STORE, "server-0", "minion-0"):
                exits.enter_context(small_disk(folder / name, ROOM_BYTES))
        if self._means.can_part:
            self.network = exits.enter_context(Network("controller", "broker", "server-0", "minion-0"))
        host = "127.0.0.1" if self.network is None else self.network.here[1]
        self.zookeeper = ZooKeeper(folder / ZOOKEEPER, max_session_ms=SESSION_MS, host=host)
        self.cluster = ClusterProcesses(folder, f"{self.zookeeper.hosts}/hurt", num_servers=1, num_minions=1)
        self.cluster.with_files()
        self.roles: dict[str, RoleProcess] = {one.name: one for one in self.cluster.processes}
        for name, process in self.roles.items():
            self._prepare(name, process)
        if self._means.can_fail:
            self.disks[ZOOKEEPER] = FailingDisk(folder / "zookeeper.control", folder / ZOOKEEPER)
        self.start_zookeeper()
        exits.callback(self.zookeeper.kill)
        exits.enter_context(self.cluster)
        files = EventFiles(folder / "topic")
        cluster = self.cluster
        self.life = StubbornLife(lambda: cluster.controller.url, lambda: cluster.broker.url, cluster.deep_store, files)
        self.life.begin()

    def _prepare(self, name: str, process: RoleProcess) -> None:
        process.program = hurt_program.__name__
        environment: dict[str, str] = {}
        if self.network is not None:
            environment[hurt_program.NAMESPACE] = self.network.namespace(name)
            process.host = self.network.addresses[name]
            process.options = ("--host", process.host, "--bind", "0.0.0.0")
        if self._means.can_fail:
            data = DEEP_STORE if name == "controller" else name
            self.disks[name] = FailingDisk(self._folder / f"{name}.control", self._folder / data)
            environment |= self.disks[name].environment
        process.environment = environment

    def start_zookeeper(self) -> None:
        """Start it, or start it again, over the disk that can fail."""
        disk = self.disks.get(ZOOKEEPER)
        variables = {} if disk is None else disk.environment
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            self.zookeeper.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def mend(self) -> None:
        """Start what has ended, as an operator does."""
        if not self.zookeeper.is_running:
            self.start_zookeeper()
        for process in self.roles.values():
            if not process.is_running:
                process.start()
        for process in self.roles.values():
            process.wait_ready()

    # The faults

    @contextmanager
    def killed(self, role: str) -> Iterator[None]:
        """SIGKILL; started again by `mend`."""
        (self.zookeeper if role == ZOOKEEPER else self.roles[role]).kill()
        yield

    @contextmanager
    def frozen(self, role: str) -> Iterator[None]:
        """SIGSTOP, then SIGCONT."""
        if role == ZOOKEEPER:
            self.zookeeper.freeze()
        else:
            self.roles[role].send(signal.SIGSTOP)
        try:
            yield
        finally:
            if role == ZOOKEEPER:
                self.zookeeper.thaw()
            else:
                self.roles[role].send(signal.SIGCONT)

    @contextmanager
    def full(self, role: str) -> Iterator[None]:
        """No room on the disk of a role; the controller's is the deep store."""
        disk = self._folder / (DEEP_STORE if role == "controller" else role)
        status = os.statvfs(disk)
        resize_disk(disk, (status.f_blocks - status.f_bfree) * status.f_frsize + status.f_frsize)
        try:
            yield
        finally:
            resize_disk(disk, ROOM_BYTES)

    @contextmanager
    def failing(self, role: str) -> Iterator[None]:
        """EIO for a part of what a role reads, writes and syncs."""
        disk = self.disks[role]
        before = disk.num_failures
        with disk.failing(reads=30, writes=30, syncs=30):
            yield
            wait_until(lambda: disk.num_failures > before or not self.is_running(role))

    @contextmanager
    def parted(self, one: str, other: str, way: str) -> Iterator[None]:
        """Packets between two roles get lost: `to` the other, `from` it, or `both` ways."""
        assert self.network is not None
        here, there = (self._address(name) for name in (one, other))
        with ExitStack() as exits:
            if way != "from":
                exits.enter_context(self.network.lost(here, there))
            if way != "to":
                exits.enter_context(self.network.lost(there, here))
            yield

    def is_running(self, role: str) -> bool:
        """Whether a role's process lives."""
        return self.zookeeper.is_running if role == ZOOKEEPER else self.roles[role].is_running

    def _address(self, role: str) -> str:
        assert self.network is not None
        return self.network.here[1] if role == ZOOKEEPER else self.network.addresses[role]


FAULTS: Mapping[str, Callable[[HurtCluster, str], AbstractContextManager[None]]] = {
    "killed": HurtCluster.killed,
    "frozen": HurtCluster.frozen,
    "full": HurtCluster.full,
    "failing": HurtCluster.failing,
}


def library_is_there() -> bool:
    """Whether disks can fail here."""
    return failing_disks.library() is not None

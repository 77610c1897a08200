"""The clock of a process, or of all, is wrong by up to twenty years for a while, again and again: no row and no file is
lost, and with a right clock retention removes what is due. Times of the processes' own machine stay as they are."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.budget import count, seed
from tests.faults.lives import LATER_MS, NUM_ROWS, Life
from tests.support import hasty
from tests.support.events import EventFiles
from tests.support.fork_server import PRELOAD
from tests.support.processes import ClusterProcesses, RoleProcess

from merlot.store.deepstore import DeepStore
from merlot.testing.patience import wait_until
from merlot_spark.zookeeper import ZooKeeper

NUM_JUMPS = count("MERLOT_JUMPS", quick=1, every=30, fuzz=200)
LONGEST_S = count("MERLOT_JUMP_S", quick=2, every=5, fuzz=60)
"""How long a clock is wrong at most."""
NOTICED_S = 1.0
"""A process reads the file that sets its clock once a second."""
GRACE_S = 20 + 6 * NUM_JUMPS * (1 + LONGEST_S)
"""The grace periods: more than a clock is wrong in a test, in all."""
YEARS_S = 20 * 365 * 86_400
LIBRARY = next(iter(sorted(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"))), None)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (apt-get install libfaketime)"),
    pytest.mark.timeout(600 + 4 * NUM_JUMPS * (1 + LONGEST_S)),
]


class WallClock:
    """The wall clock of a process, which a file sets. Monotonic time and the times of files are right."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, off_s: int) -> None:
        """Have it be off by so many seconds from now on."""
        part = self._file.with_suffix(".part")
        part.write_text(f"{off_s:+d}")
        part.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that goes by it."""
        return {
            PRELOAD: str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }


def given_clocks(folder: Path, processes: Sequence[RoleProcess]) -> dict[str, WallClock]:
    """Have each process go by a clock of its own, and clean up hastily. Before they start."""
    clocks = {one.name: WallClock(folder / f"{one.name}.clock") for one in processes}
    for one in processes:
        one.program = hasty.__name__
        one.environment = {**clocks[one.name].environment, hasty.GRACE: str(GRACE_S)}
    return clocks


@contextmanager
def node_of(folder: Path) -> Iterator[tuple[Life, dict[str, WallClock]]]:
    """A node: no ZooKeeper has a clock beside it."""
    serve = ["serve", "--data", str(folder / "data"), "--log-level", "INFO", "--stream-folders", str(folder)]
    node = RoleProcess(folder, "node", serve, ("--port",))
    clocks = given_clocks(folder, [node])
    store = DeepStore(str(folder / "data" / "deepstore"))
    node.start()
    try:
        node.wait_ready()
        yield Life(lambda: node.url, lambda: node.url, store, EventFiles(folder / "topic")), clocks
    finally:
        node.kill()


@contextmanager
def cluster_of(folder: Path, zookeeper: str) -> Iterator[tuple[Life, dict[str, WallClock]]]:
    """A controller, a broker, a server and a minion over a ZooKeeper whose clock is right."""
    cluster = ClusterProcesses(folder / "cluster", zookeeper, num_servers=1, num_minions=1).with_files()
    clocks = given_clocks(cluster.folder, cluster.processes)
    with cluster:
        files = EventFiles(folder / "topic")
        yield Life(lambda: cluster.controller.url, lambda: cluster.broker.url, cluster.deep_store, files), clocks


@contextmanager
def cluster_under_a_wrong_zookeeper(folder: Path) -> Iterator[tuple[Life, dict[str, WallClock]]]:
    """Roles whose clocks are right, over a ZooKeeper that goes by a clock of its own."""
    clock, server = WallClock(folder / "zookeeper.clock"), ZooKeeper(folder / "zookeeper")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        server.start()
    try:
        with cluster_of(folder, f"{server.hosts}/test") as (life, _):
            yield life, {"zookeeper": clock}
    finally:
        server.stop()


def jump(life: Life, clocks: dict[str, WallClock], draw: random.Random) -> None:
    """Let the tables live while clocks are wrong, and half of the time after they are right again."""
    for number in range(NUM_JUMPS):
        off_s = draw.choice((YEARS_S, -YEARS_S, draw.randrange(-YEARS_S, YEARS_S)))
        victims = list(clocks) if number % 2 == 0 else [draw.choice(list(clocks))]
        for name in victims:
            clocks[name].set(off_s)
        ends_s = time.monotonic() + draw.uniform(NOTICED_S, LONGEST_S)
        life.act(draw)
        while time.monotonic() < ends_s:
            time.sleep(draw.uniform(0.1, 0.4))
            life.act(draw)
        if draw.random() < 0.7:
            for clock in clocks.values():
                clock.set(0)
            life.act(draw)
    for clock in clocks.values():
        clock.set(0)


def survives(life: Life, clocks: dict[str, WallClock]) -> None:
    draw = random.Random(seed())
    life.begin()
    with life.probed():
        jump(life, clocks, draw)
        life.is_whole()
    print(f"seed={seed()} jumps={NUM_JUMPS} days={life.num_days} events={life.events.most} whole={life.num_whole}")
    print(f"not whole: {life.reasons}")
    life.apply_orders("1d")
    wait_until(lambda: life.rows_of("SELECT COUNT(*) FROM orders") == [NUM_ROWS])
    assert life.rows_of(f"SELECT COUNT(*) FROM orders WHERE at >= {LATER_MS}") == [NUM_ROWS]


def test_a_node_whose_clock_is_wrong_for_a_while_loses_no_row_and_no_file(tmp_path: Path) -> None:
    with node_of(tmp_path) as (life, clocks):
        survives(life, clocks)


@pytest.mark.slow("the node of the test above has the same roles")
def test_roles_whose_clocks_are_wrong_for_a_while_lose_no_row_and_no_file(tmp_path: Path, zookeeper: str) -> None:
    with cluster_of(tmp_path, zookeeper) as (life, clocks):
        survives(life, clocks)


@pytest.mark.slow("the clock of the metastore alone; quick runs have the roles' clocks")
def test_a_metastore_whose_clock_is_wrong_for_a_while_costs_no_row_and_no_file(tmp_path: Path) -> None:
    with cluster_under_a_wrong_zookeeper(tmp_path) as (life, clocks):
        survives(life, clocks)

"""The metastore of real processes is emptied, rolled back, cut to nothing, or becomes another deployment's, at random
moments and with sweepers that never rest: no answer lacks rows in silence, no file goes, statuses say what is lost, and
recovering brings all of it back."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count, seed
from tests.faults.lives import FLUSH_ROWS, NUM_ROWS, Life
from tests.support import hasty
from tests.support.events import EventFiles, events_manifest
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS, orders_manifest, publish_orders

from merlot.cluster import paths
from merlot.cluster.manifests.tables import put_table
from merlot.controller.cleaning.catalog_store import read_catalog
from merlot.embedded.node import METASTORE_FILE
from merlot.ids import RawTableName, offline
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.spec.table import ObjectMeta, Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import wait_until
from merlot_spark.zookeeper import ZooKeeper

NUM_LOSSES = count("MERLOT_LOSSES", quick=1, every=6, fuzz=60)
GRACE_S = 1
"""The grace periods: what could be swept is swept while a table is lost."""
SESSION_MS = 2000
CHROOT = "/team/merlot"
EVENTS = offline(RawTableName("events"))
ANOTHERS = "another's"
"""Its segments stay, so the way back is the metastore that was there before."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + 60 * NUM_LOSSES)]


class Sqlite:
    """The metastore of a node, which is a file."""

    kinds = ("emptied", "cut", "rolled back")

    def __init__(self, folder: Path, node: RoleProcess) -> None:
        self._data, self._copy = folder / "data", folder / "copy"
        self._node = node

    def _files(self) -> list[Path]:
        return [*self._data.glob(f"{METASTORE_FILE}*")]

    def keep(self) -> None:
        """Make a backup."""
        shutil.rmtree(self._copy, ignore_errors=True)
        self._copy.mkdir()
        self._node.kill()
        for file in self._files():
            shutil.copy(file, self._copy)
        self._start()

    def lose(self, kind: str) -> None:
        """Break the metastore while the node is down."""
        self._node.kill()
        for file in self._files():
            file.write_bytes(b"") if kind == "cut" else file.unlink()
        if kind == "rolled back":
            for file in self._copy.iterdir():
                shutil.copy(file, self._data)
        self._start()

    def _start(self) -> None:
        self._node.start()
        self._node.wait_ready()


class Ensemble:
    """A ZooKeeper below roles that go on."""

    kinds = ("emptied", "rolled back", ANOTHERS)

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._copy, self._other, self._own = folder / "copy", folder / "other", folder / "own"
        with ZooKeeper(self._other) as other:
            metastore = ZooKeeperMetastore(f"{other.hosts}{CHROOT}")
            metastore.create(paths.STORE_ID, b"another")
            publish_orders(metastore, DeepStore(str(folder / "other-store")), [5])
            metastore.close()

    def keep(self) -> None:
        """Make a backup."""
        self._zookeeper.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._zookeeper.data_dir, self._copy)
        self._zookeeper.start()

    def lose(self, kind: str) -> None:
        """Have it come back with other data."""
        self._zookeeper.kill()
        shutil.rmtree(self._own, ignore_errors=True)
        self._zookeeper.data_dir.rename(self._own)
        if kind != "emptied":
            shutil.copytree(self._copy if kind == "rolled back" else self._other, self._zookeeper.data_dir)
        self._zookeeper.start()

    def give_back(self) -> None:
        """Have it come back with the data that it had."""
        self._zookeeper.kill()
        shutil.rmtree(self._zookeeper.data_dir)
        self._own.rename(self._zookeeper.data_dir)
        self._zookeeper.start()


def status_of(life: Life, table: str) -> str:
    """The reason of a loss as the status gives it; empty while nobody knows of a loss."""
    try:
        told: dict[str, Any] = life.call("GET", "/status")["tables"].get(table, {})
    except (AssertionError, OSError):
        return ""
    return str(told.get("metastoreLost") or "")


def is_in_catalog(life: Life) -> bool:
    """True if the catalog tells of all rows."""
    kept = read_catalog(life.store, ORDERS)
    return kept is not None and kept.total_docs == life.orders.most + NUM_ROWS


def loses(life: Life, metastore: Sqlite | Ensemble, kind: str, draw: random.Random) -> None:
    """Lose the metastore between two moments of a table's life, and get everything back."""
    metastore.keep()
    for _ in range(draw.randrange(1, 4)):
        life.publish()
    wait_until(lambda: is_in_catalog(life))
    time.sleep(draw.uniform(0, 0.5))
    with life.probed(is_sweeping=True):
        metastore.lose(kind)
        life.apply_again()
        wait_until(lambda: status_of(life, "orders"))
        files = life.stored()
        time.sleep(3 * GRACE_S)
        assert files <= life.stored(), "files of a lost table are gone"
        assert life.rows_of("SELECT COUNT(*) FROM orders") is None
        assert "merlot recover orders" in str(life.reasons)
        if kind == ANOTHERS:
            assert isinstance(metastore, Ensemble)
            metastore.give_back()
        else:
            life.call("POST", "/tables/orders/recover")
        life.is_whole()
    assert status_of(life, "orders") == ""


def survives(life: Life, metastore: Sqlite | Ensemble, first: int = 0) -> None:
    draw = random.Random(seed())
    life.begin()
    kinds = list(metastore.kinds)
    for number in range(NUM_LOSSES):
        kind = kinds[(number + first) % len(kinds)]
        print(f"seed={seed()} loss {number}: {kind}")
        loses(life, metastore, kind, draw)
    print(f"whole={life.num_whole} not whole: {life.reasons}")


def in_haste(processes: list[RoleProcess]) -> None:
    for one in processes:
        one.program, one.environment = hasty.__name__, {hasty.GRACE: str(GRACE_S)}


def test_a_node_that_loses_its_metastore_loses_no_row(tmp_path: Path) -> None:
    node = RoleProcess(
        tmp_path,
        "node",
        ["serve", "--data", str(tmp_path / "data"), "--log-level", "INFO", "--stream-folders", str(tmp_path)],
        ("--port",),
    )
    in_haste([node])
    node.start()
    try:
        node.wait_ready()
        store = DeepStore(str(tmp_path / "data" / "deepstore"))
        survives(Life(lambda: node.url, lambda: node.url, store, None), Sqlite(tmp_path, node), first=2)
    finally:
        node.kill()


def applied(life: Life, manifest: Table) -> None:
    """Apply it by the controller, which comes to know of it and of what the metastore lacks."""
    life.call("POST", "/apply", manifest.model_dump_json(by_alias=True, exclude_unset=True).encode())


@pytest.mark.slow("it waits a minute; test_losses has the controller's side, test_directory the broker's")
def test_tables_that_are_applied_while_no_controller_runs_are_not_answered_with_what_is_left(tmp_path: Path) -> None:
    """As an operator does it, to a ZooKeeper that another table has made known already; brokers, old and new, ask."""
    with ZooKeeper(tmp_path / "zookeeper", max_session_ms=SESSION_MS) as zookeeper:
        ensemble = Ensemble(tmp_path, zookeeper)
        hosts = f"{zookeeper.hosts}{CHROOT}"
        cluster = ClusterProcesses(tmp_path / "cluster", hosts, num_servers=1).with_files()
        in_haste(cluster.processes)
        other = orders_manifest().model_copy(update={"metadata": ObjectMeta(name="other")})
        with cluster:
            files = EventFiles(tmp_path / "topic")
            life = Life(lambda: cluster.controller.url, lambda: cluster.broker.url, cluster.deep_store, files)
            life.begin()
            wait_until(lambda: is_in_catalog(life))
            wait_until(lambda: read_catalog(life.store, EVENTS) is not None)
            with life.probed():
                ensemble.lose("emptied")
                applied(life, other)
                wait_until(lambda: life.call("GET", "/status")["tables"]["other"]["unconfirmed"] is False)
                cluster.controller.kill()
                with cluster.metastore() as metastore:
                    put_table(metastore, orders_manifest())
                    put_table(metastore, events_manifest(files.folder, flush_rows=FLUSH_ROWS))
                wait_until(lambda: "no controller has compared" in str(life.reasons))
                cluster.broker.kill()
                cluster.broker.start()
                cluster.broker.wait_ready()
                life.reasons.clear()
                wait_until(lambda: sum("no controller has compared" in one for one in life.reasons.elements()) > 10)
                cluster.controller.start()
                cluster.controller.wait_ready()
                for table in ("orders", "events"):
                    wait_until(lambda table=table: status_of(life, table))
                    life.call("POST", f"/tables/{table}/recover")
                life.is_whole()


@pytest.mark.slow("a node loses the same; test_losses has the controller's side, test_directory the broker's")
def test_roles_whose_zookeeper_loses_its_data_lose_no_row(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper", max_session_ms=SESSION_MS) as zookeeper:
        ensemble = Ensemble(tmp_path, zookeeper)
        hosts = f"{zookeeper.hosts}{CHROOT}"
        cluster = ClusterProcesses(tmp_path / "cluster", hosts, num_servers=1, num_minions=1).with_files()
        in_haste(cluster.processes)
        with cluster:
            life = Life(lambda: cluster.controller.url, lambda: cluster.broker.url, cluster.deep_store, None)
            survives(life, ensemble)

"""A metastore that is empty, new or restored is noticed by what the deep store remembers: nothing is swept or answered
until somebody has recovered the table."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.support.merges import ORDERS, MergeBench
from tests.support.sample import orders_manifest

from merlot.broker.routing.routes import RoutingInputs, build
from merlot.catalog import recovered
from merlot.cluster import paths
from merlot.cluster.instances.liveness import register
from merlot.cluster.losses import CatalogRecord, find_lost, store_id
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, RemoveSegments, mutate
from merlot.cluster.segments.view import load
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.catalog_store import FILE, FOLDER, read_catalog, write_catalog
from merlot.controller.cleaning.catalogs import BACK_OFF_S
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.loop import UNCONFIRMED_S, ControllerLoop, LoopConfig
from merlot.controller.service import ControllerService
from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.table import Table
from merlot.spec.tenancy import DeepStoreSpec
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock
from merlot.testing.patience import wait_until

DAY_S = 86_400


class Cluster:
    """A table with three segments, a controller's loop, and the service that people call."""

    def __init__(self, folder: Path) -> None:
        self.bench = MergeBench(folder, range(3), num_rows=20)
        self.clock = FakeClock(self.bench.clock.now_ms())
        self.folder = folder
        self._num_stores = 0

    @property
    def store(self) -> SqliteMetastore:
        return self.bench.inner

    def loop(self) -> ControllerLoop:
        cleaning = CleaningConfig(orphan_scan_s=0, orphan_s=60)
        files = self.bench.deep_store
        return ControllerLoop(
            self.store,
            LoopConfig(owner="c", cleaning=cleaning, file_grace_s=60),
            open_files=lambda _: files,
            open_catalog_store=lambda _: files,
            clock=self.clock,
        )

    def pass_days(self, days: int) -> None:
        """With a controller that began a moment ago, and sweeps eagerly."""
        loop = self.loop()
        for _ in range(4 * days):
            self.clock.advance(DAY_S / 4)
            loop.round()
        loop.close()

    def service(self, store: Metastore | None = None) -> ControllerService:
        service = ControllerService(
            store or self.store, self.clock, places=AllowedPlaces(AllowedStores(own=self.bench.store_uri))
        )
        service.recovery.open_files = lambda _: self.bench.deep_store
        service.recovery.read = recovered.read
        return service

    def lose(self) -> None:
        """Another metastore, with the table's manifest."""
        self.store.close()
        self._num_stores += 1
        self.bench.inner = SqliteMetastore(self.folder / f"new{self._num_stores}.sqlite")
        tables.put_table(self.store, orders_manifest(), clock=self.clock)

    def kept_epoch(self) -> int:
        """The epoch of the table's catalog."""
        catalog = read_catalog(self.bench.deep_store, ORDERS)
        return -1 if catalog is None else catalog.epoch

    def files(self) -> set[str]:
        return {path.name for path in Path(self.bench.store_uri, ORDERS).glob("*.mseg")}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.pass_days(1)
    yield cluster
    cluster.bench.close()


def test_a_new_metastore_sweeps_nothing_and_gets_its_records_back(cluster: Cluster) -> None:
    rows, files = cluster.bench.visible_rows(), cluster.files()
    assert rows
    cluster.lose()
    cluster.pass_days(30)
    lost = find_lost(cluster.store, ORDERS)
    assert lost is not None
    assert (lost.num_segments, lost.total_docs) == (3, 60)
    assert lost.reason == "the metastore is a new one"
    assert cluster.files() == files
    done = cluster.service().recovery.recover("orders")
    assert len(done["recovered"]) == 3
    cluster.pass_days(2)
    assert find_lost(cluster.store, ORDERS) is None
    assert cluster.bench.visible_rows() == rows
    assert cluster.files() == files
    with pytest.raises(InvalidInputError, match="nothing of the table is missing"):
        cluster.service().recovery.recover("orders")
    cluster.lose()
    cluster.pass_days(1)
    assert find_lost(cluster.store, ORDERS) is not None, "the recovered metastore wrote the catalog, this one did not"


def test_a_restored_metastore_is_older_than_its_files_and_gets_what_came_since(cluster: Cluster) -> None:
    copy = cluster.folder / "copy.sqlite"
    cluster.store.close()
    shutil.copy(cluster.folder / "metastore.sqlite", copy)
    cluster.bench.inner = SqliteMetastore(cluster.folder / "metastore.sqlite")
    gone = cluster.bench.records[0].key
    mutate(cluster.store, ORDERS, lambda _: [RemoveSegments((gone,))])
    loop = cluster.loop()
    loop.round()
    loop.close()
    rows = cluster.bench.visible_rows()
    cluster.store.close()
    cluster.bench.inner = SqliteMetastore(copy)
    files = cluster.files()
    cluster.pass_days(10)
    lost = find_lost(cluster.store, ORDERS)
    assert lost is not None
    assert lost.reason == "the metastore is older than the table's files"
    assert cluster.files() == files
    cluster.service().recovery.recover("orders")
    assert cluster.bench.visible_rows() == rows


def test_a_table_that_was_deleted_is_no_loss_when_it_is_made_again(cluster: Cluster) -> None:
    tables.delete_table(cluster.store, "orders", clock=cluster.clock)
    cluster.clock.advance(1)
    tables.put_table(cluster.store, orders_manifest(), clock=cluster.clock)
    cluster.pass_days(1)
    assert find_lost(cluster.store, ORDERS) is None
    tables.delete_table(cluster.store, "orders", clock=cluster.clock)
    cluster.pass_days(3)
    assert cluster.files() == set()
    assert not Path(cluster.bench.store_uri, ORDERS, FOLDER, FILE).exists()
    cluster.lose()
    cluster.pass_days(1)
    assert find_lost(cluster.store, ORDERS) is None, "its files were deleted on purpose"


def test_files_that_are_gone_are_told_and_can_be_done_without(cluster: Cluster) -> None:
    cluster.lose()
    cluster.pass_days(1)
    missing = cluster.bench.records[1]
    cluster.bench.deep_store.delete(missing.url)
    with pytest.raises(ConflictError, match=r"files are missing .*--accept-loss"):
        cluster.service().recovery.recover("orders")
    assert find_lost(cluster.store, ORDERS) is not None
    done = cluster.service().recovery.recover("orders", accept_loss=True)
    assert done["missing"] == [missing.name]
    assert len(cluster.bench.view().visible) == 2
    assert find_lost(cluster.store, ORDERS) is None


def test_a_metastore_has_no_name_before_a_controller_has_looked_at_its_tables(cluster: Cluster) -> None:
    cluster.lose()
    tables.delete_table(cluster.store, "orders", clock=cluster.clock)
    assert store_id(cluster.store) is None
    loop = cluster.loop()
    loop.round()
    assert store_id(cluster.store) is None, "no table has been applied again yet"
    cluster.clock.advance(1)
    tables.put_table(cluster.store, orders_manifest(), clock=cluster.clock)
    loop.round()
    loop.close()
    assert store_id(cluster.store) is not None
    assert find_lost(cluster.store, ORDERS) is not None


def renamed(name: str, **spec: Any) -> Table:
    manifest = orders_manifest()
    update = {"metadata": manifest.metadata.model_copy(update={"name": name})}
    return manifest.model_copy(update=update | {"spec": manifest.spec.model_copy(update=spec)})


def is_unconfirmed(cluster: Cluster, table: str = "orders") -> bool:
    return tables.get_table(cluster.store, table).is_unconfirmed


def test_each_new_table_is_compared_though_the_metastore_was_named_for_another_before(cluster: Cluster) -> None:
    cluster.lose()
    tables.delete_table(cluster.store, "orders", clock=cluster.clock)
    tables.put_table(cluster.store, renamed("first"), clock=cluster.clock)
    assert is_unconfirmed(cluster, "first")
    loop = cluster.loop()
    loop.round()
    assert not is_unconfirmed(cluster, "first")
    assert store_id(cluster.store) is not None
    cluster.clock.advance(1)
    tables.put_table(cluster.store, orders_manifest(), clock=cluster.clock)
    assert is_unconfirmed(cluster)
    loop.round()
    assert find_lost(cluster.store, ORDERS) is not None
    tables.put_table(cluster.store, renamed("orders", description="changed"), clock=cluster.clock)
    assert is_unconfirmed(cluster), "a change of the manifest says nothing of segments"
    cluster.service().recovery.recover("orders")
    loop.round()
    loop.close()
    assert not is_unconfirmed(cluster)


def test_a_new_table_is_left_alone_until_its_deep_store_was_heard_and_holds_up_no_other(cluster: Cluster) -> None:
    cluster.lose()
    record = cluster.bench.records[0]
    publish(cluster.store, ORDERS, [record])
    own = "file:///elsewhere"
    for name in ("aaa", "zzz"):
        tables.put_table(cluster.store, renamed(name, deep_store=DeepStoreSpec(uri=own)), clock=cluster.clock)
    silent = SilentStore(cluster.bench.deep_store)
    stores = {None: silent, own: cluster.bench.deep_store}
    loop = ControllerLoop(
        cluster.store,
        LoopConfig(owner="c"),
        open_files=lambda _: cluster.bench.deep_store,
        open_catalog_store=lambda uri: cast(Any, stores[uri]),
        clock=cluster.clock,
    )
    server = InstanceRecord(id=InstanceId("Server_h_1"), role=Role.SERVER, host="h", query_port=1)
    with contextlib.closing(register(cluster.store, server)):
        for _ in range(5):
            cluster.clock.advance(30)
            assert loop.round() <= UNCONFIRMED_S
            assert is_unconfirmed(cluster)
        assert not cluster.bench.view().assignment.get(record.name)
        assert not is_unconfirmed(cluster, "aaa")
        assert not is_unconfirmed(cluster, "zzz")
        silent.is_out = False
        cluster.clock.advance(BACK_OFF_S)
        loop.round()
        lost = find_lost(cluster.store, ORDERS)
        assert lost is not None, "what was published meanwhile is not all"
        assert lost.num_segments == 3
    loop.close()


def test_a_leader_that_goes_on_notices_that_the_metastore_went_back(cluster: Cluster) -> None:
    loop = cluster.loop()
    loop.round()
    root = paths.segments_root(ORDERS)
    older = cluster.store.get(root)
    assert older is not None
    mutate(cluster.store, ORDERS, lambda _: [RemoveSegments((cluster.bench.records[0].key,))])
    epoch = load(cluster.store, ORDERS).epoch
    # A watch tells the loop of each change, a moment later.
    wait_until(lambda: (loop.round(), cluster.kept_epoch() == epoch)[1])
    newer = cluster.store.get(root)
    assert newer is not None
    cluster.store.put(root, older.data, newer.version)
    lost = wait_until(lambda: (loop.round(), find_lost(cluster.store, ORDERS))[1])
    loop.close()
    assert lost is not None
    assert lost.reason == "the metastore is older than the table's files"


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_whoever_dies_while_recovering_leaves_a_table_that_is_lost_or_whole(fault: Fault, tmp_path: Path) -> None:
    for at in itertools.count():
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = Cluster(folder)
        rows = cluster.bench.visible_rows()
        cluster.pass_days(1)
        cluster.lose()
        cluster.pass_days(1)
        faulty = FaultyMetastore(cluster.store.session(), fault, at)
        with contextlib.suppress(ProcessDied, MerlotError):
            cluster.service(faulty).recovery.recover("orders")
        cluster.pass_days(2)
        if find_lost(cluster.store, ORDERS) is not None:
            cluster.service().recovery.recover("orders")
        assert cluster.bench.visible_rows() == rows
        cluster.pass_days(2)
        assert find_lost(cluster.store, ORDERS) is None
        assert cluster.bench.visible_rows() == rows
        cluster.bench.close()
        if faulty.num_writes <= at:
            break
    assert at >= 2


def test_records_come_from_the_footers_where_there_is_no_catalog(cluster: Cluster) -> None:
    rows = cluster.bench.visible_rows()
    cluster.bench.deep_store.delete(cluster.bench.deep_store.url_below(ORDERS, FOLDER, FILE))
    with pytest.raises(InvalidInputError, match="the table has segments"):
        cluster.service().recovery.recover("orders", from_footers=True)
    cluster.lose()
    loop = cluster.loop()
    loop.round()
    loop.close()
    cluster.service().recovery.recover("orders", from_footers=True)
    assert cluster.bench.visible_rows() == rows
    before = {one.key: one for one in cluster.bench.records}
    for record in cluster.bench.view().visible.values():
        same = {"url", "total_docs", "ranges", "partitions", "columns", "start_time_ms", "end_time_ms"}
        assert record.model_dump(include=same) == before[record.key].model_dump(include=same)


def test_a_removed_segment_comes_back_from_the_trash_once(cluster: Cluster) -> None:
    rows, name = cluster.bench.visible_rows(), cluster.bench.records[0].name
    service = cluster.service()
    service.delete_segments("orders", lambda _: [name])
    assert [one["segment"] for one in service.recovery.trash("orders")] == [name]
    assert service.recovery.undelete("orders", [name]) == {"restored": [name]}
    assert cluster.bench.visible_rows() == rows
    with pytest.raises(ConflictError, match="exists already"):
        service.recovery.undelete("orders", [name])
    with pytest.raises(NotFoundError, match="not in the trash"):
        service.recovery.undelete("orders", ["other"])
    cluster.pass_days(3)
    assert cluster.bench.visible_rows() == rows, "the trash does not take what is named again"
    assert cluster.store.children(paths.trash(ORDERS)) == []


def test_an_input_of_a_merge_does_not_come_back_beside_its_output(cluster: Cluster) -> None:
    bench = cluster.bench
    rows = bench.visible_rows()
    bench.queue()
    assert bench.run() is not None
    assert len(bench.view().visible) == 1
    loop = cluster.loop()
    cluster.clock.advance(DAY_S)
    loop.round()
    loop.close()
    names = [one["segment"] for one in cluster.service().recovery.trash("orders")]
    assert set(names) >= {one.name for one in bench.records}
    with pytest.raises(ConflictError, match="rows are in the table already"):
        cluster.service().recovery.undelete("orders", [bench.records[0].name])
    assert bench.visible_rows() == rows


def test_a_table_that_consumes_a_stream_is_given_up_by_hand_only(cluster: Cluster) -> None:
    store = cluster.bench.deep_store
    catalog = CatalogRecord(store_id="another", created_ms=1, epoch=9, num_segments=2, total_docs=10, has_stream=True)
    cluster.lose()
    write_catalog(store, ORDERS, catalog)
    cluster.pass_days(1)
    with pytest.raises(InvalidInputError, match=r"consumes a stream cannot be recovered.*--accept-loss"):
        cluster.service().recovery.recover("orders")
    assert find_lost(cluster.store, ORDERS) is not None
    assert cluster.service().recovery.recover("orders", accept_loss=True)["recovered"] == []
    cluster.pass_days(1)
    assert find_lost(cluster.store, ORDERS) is None


class SilentStore:
    """A deep store that is out."""

    def __init__(self, store: DeepStore) -> None:
        self._store = store
        self.is_out = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, *_: Any, **__: Any) -> Any:
        if self.is_out:
            raise UnavailableError("deep store is out")
        return self._store.read(*_, **__)


@pytest.mark.parametrize("hours", [0, 20], ids=["inputs are there", "inputs are gone"])
def test_what_a_recovered_segment_was_merged_of_is_not_added_again(cluster: Cluster, hours: int) -> None:
    bench = cluster.bench
    rows = bench.visible_rows()
    bench.queue()
    bench.run()
    for _ in range(1 + hours):
        loop = cluster.loop()
        loop.round()
        loop.close()
        cluster.clock.advance(3600)
    cluster.lose()
    cluster.pass_days(1)
    cluster.service().recovery.recover("orders")
    assert bench.visible_rows() == rows
    again = publish(cluster.store, ORDERS, bench.records)
    assert (again.published, len(again.unchanged)) == ((), 3)
    assert bench.visible_rows() == rows


def test_a_recovered_segment_is_as_old_as_it_was_and_not_new_to_brokers(cluster: Cluster) -> None:
    before = {one.key: one.push_time_ms for one in cluster.bench.view().visible.values()}
    cluster.lose()
    cluster.pass_days(1)
    cluster.service().recovery.recover("orders")
    view = cluster.bench.view()
    assert {one.key: one.push_time_ms for one in view.visible.values()} == before
    now_ms = min(before.values())
    nobody = RoutingInputs(view=view, reports={}, standings={}, now_ms=now_ms)
    assert len(build(nobody, None).segments) == 3, "missing, and not too new to be missed"


def test_a_metastore_that_is_emptied_below_a_leader_is_a_new_one_to_it(cluster: Cluster) -> None:
    """Its lease has the same version there as before."""
    loop = cluster.loop()
    loop.round()
    cluster.lose()
    vars(loop)["_metastore"] = cluster.store
    for part in ("_sure", "_catalogs", "_cleaner"):
        vars(vars(loop)[part])["_metastore"] = cluster.store
    for _ in range(40):
        cluster.clock.advance(DAY_S / 4)
        loop.round()
    assert loop.is_leader
    assert find_lost(cluster.store, ORDERS) is not None
    loop.close()


def test_a_deep_store_that_is_out_holds_up_no_assignment_and_nothing_is_swept_meanwhile(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    silent = SilentStore(cluster.bench.deep_store)
    cluster.bench.deep_store = cast(DeepStore, silent)
    mutate(cluster.store, ORDERS, lambda view: [Assign(dict.fromkeys(view.segments, ()))])
    orphan = Path(cluster.bench.store_uri, ORDERS, "orphan@7.mseg")
    orphan.write_bytes(b"x")
    cluster.pass_days(3)
    view = cluster.bench.view()
    assert all(view.servers_of(name) for name in view.segments)
    assert orphan.exists()
    silent.is_out = False
    cluster.pass_days(3)
    assert not orphan.exists()
    assert len(cluster.files()) == 3
    cluster.bench.close()

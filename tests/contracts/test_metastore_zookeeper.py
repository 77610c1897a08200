"""ZooKeeper keeps the metastore's contract."""

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from merlot.metastore.checksums import opened
from merlot.metastore.protocol import Create, Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.testing.metastore_contract import MetastoreContract


@pytest.mark.cluster
class TestZooKeeperMetastore(MetastoreContract):
    @pytest.fixture
    def open_session(self, zookeeper: str) -> Iterator[Callable[[], Metastore]]:
        sessions: list[ZooKeeperMetastore] = []

        def open_another() -> Metastore:
            sessions.append(ZooKeeperMetastore(zookeeper))
            return sessions[-1]

        yield open_another
        for session in sessions:
            session.close()


WRITES: dict[str, Callable[[Metastore], None]] = {
    "create": lambda store: store.create("/LEASES/controller/a", b"1"),
    "multi": lambda store: store.multi([Create("/LEASES/controller/a", b"1"), Create("/b", b"2")]),
}


@pytest.mark.cluster
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_chroot_of_any_depth_is_made_and_made_again_after_it_was_lost(zookeeper: str, depth: int, write: str) -> None:
    """As a ZooKeeper that lost its volume: all that was there is gone, and sessions go on."""
    hosts = zookeeper.partition("/")[0]
    levels = [f"lost-{write}-{depth}", *"bcd"][:depth]
    store = ZooKeeperMetastore(f"{hosts}/{'/'.join(levels)}")
    above = KazooClient(hosts=hosts)
    above.start()
    try:
        WRITES[write](store)
        above.delete(f"/{levels[0]}", recursive=True)
        assert store.get("/LEASES/controller/a") is None
        WRITES[write](store)
        node = above.get(f"/{'/'.join(levels)}/LEASES/controller/a")
        assert opened(node[0], "/LEASES/controller/a") == b"1"
    finally:
        above.stop()
        above.close()
        store.close()

"""ZooKeeper keeps the metastore's contract."""

from collections.abc import Callable, Iterator

import pytest

from merlot.metastore.protocol import Metastore
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

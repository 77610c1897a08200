"""Ephemerals of instances, and what happens where two lives of one instance overlap."""

from merlot.cluster import paths
from merlot.cluster.instances.liveness import live_instances, register
from merlot.cluster.records import InstanceRecord, Role
from merlot.ids import InstanceId
from merlot.metastore.protocol import SessionState
from merlot.metastore.sqlite import SqliteMetastore
from merlot.testing.patience import wait_until


def life(started_ms: int) -> InstanceRecord:
    return InstanceRecord(id=InstanceId("Server_a_1"), role=Role.SERVER, host="a", started_ms=started_ms)


def test_a_registration_lasts_until_it_is_closed(store: SqliteMetastore) -> None:
    registration = register(store.session(), life(1))
    assert live_instances(store) == {"Server_a_1": life(1)}
    registration.close()
    assert live_instances(store) == {}


def test_an_ephemeral_that_a_lost_session_takes_away_is_made_anew(store: SqliteMetastore) -> None:
    """After a reconnect the lost session's one may still stand: ZooKeeper expires it later."""
    registration = register(store.session(), life(1))
    store.delete(paths.live(life(1).id))
    wait_until(lambda: live_instances(store))
    assert live_instances(store) == {"Server_a_1": life(1)}
    registration.close()
    assert live_instances(store) == {}


def test_an_old_life_that_ends_late_does_not_unregister_the_new_one(store: SqliteMetastore) -> None:
    old = register(store.session(), life(1))
    new = register(store.session(), life(2))
    old.close()
    assert live_instances(store) == {"Server_a_1": life(2)}
    new.close()
    assert live_instances(store) == {}


def test_an_old_life_that_reconnects_leaves_the_new_ones_registration(store: SqliteMetastore) -> None:
    old = register(store.session(), life(1))
    new = register(store.session(), life(2))
    old._on_session(SessionState.CONNECTED)
    old._restore()
    assert live_instances(store) == {"Server_a_1": life(2)}
    new.close()
    old._restore()
    assert live_instances(store) == {"Server_a_1": life(1)}
    old.close()

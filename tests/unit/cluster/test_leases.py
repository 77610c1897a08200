"""One holder at a time, fenced by version."""

import contextlib

import pytest
from tests.support.faults import Fault, FaultyMetastore

from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease, holder
from merlot.errors import ConflictError, UnavailableError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.testing.clock import FakeClock

CLOCK = FakeClock()


def test_one_holds_until_it_releases(store: SqliteMetastore) -> None:
    first = Lease.acquire(store, "controller", "a", CLOCK)
    assert first is not None
    assert Lease.acquire(store, "controller", "b", CLOCK) is None
    assert holder(store, "controller") == "a"
    assert first.is_held(store)
    first.release(store)
    assert holder(store, "controller") is None
    second = Lease.acquire(store, "controller", "b", CLOCK)
    assert second is not None
    assert not first.is_held(store)


def test_a_former_holders_fence_fails_for_ever(store: SqliteMetastore) -> None:
    first = Lease.acquire(store, "controller", "a", CLOCK)
    assert first is not None
    first.release(store)
    for _ in range(3):
        again = Lease.acquire(store, "controller", "a", CLOCK)
        assert again is not None
        store.multi([again.fence])
        with pytest.raises(ConflictError):
            store.multi([first.fence])


def test_a_lease_ends_with_its_holders_session(store: SqliteMetastore) -> None:
    session = store.session()
    assert Lease.acquire(session, "controller", "a", CLOCK) is not None
    session.close()
    assert Lease.acquire(store, "controller", "b", CLOCK) is not None


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("step", range(4))
def test_whatever_answer_was_lost_the_lease_can_be_taken_again(store: SqliteMetastore, fault: Fault, step: int) -> None:
    with contextlib.suppress(UnavailableError):
        Lease.acquire(FaultyMetastore(store, fault, step), "controller", "a", CLOCK)
    lease = Lease.acquire(store, "controller", "a", CLOCK)
    assert lease is not None
    store.multi([lease.fence])
    lease.release(store)
    assert holder(store, "controller") is None
    assert len(store.children(paths.lease("controller"))) <= 1

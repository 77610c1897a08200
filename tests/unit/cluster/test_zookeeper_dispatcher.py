"""The thread that calls watches back, without a ZooKeeper."""

import threading
from collections.abc import Sequence
from typing import Any

from merlot.metastore.protocol import SessionState
from merlot.metastore.zookeeper import _Dispatcher, _StandingWatch
from merlot.testing.patience import PATIENCE_S


class SlowStore:
    """Arms watches when it is let."""

    is_connected = True

    def __init__(self) -> None:
        self.is_arming = threading.Event()
        self.may_arm = threading.Event()
        self.may_arm.set()

    def arm(self, watches: Sequence[Any]) -> None:
        self.is_arming.set()
        assert self.may_arm.wait(PATIENCE_S)


def test_changes_of_the_session_are_told_in_their_order_whatever_fires_meanwhile() -> None:
    store = SlowStore()
    dispatcher = _Dispatcher(store, give_up_s=60.0)  # type: ignore[arg-type]
    told: list[SessionState] = []
    all_told = threading.Event()

    def tell(state: SessionState) -> None:
        told.append(state)
        if len(told) == 3:
            all_told.set()

    dispatcher.listen(tell)
    watch = _StandingWatch(dispatcher, "/a", lambda: None, of_children=False)
    dispatcher.add(watch)
    store.is_arming.clear()
    store.may_arm.clear()
    dispatcher.post(watch)
    assert store.is_arming.wait(PATIENCE_S)
    states = [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    for item in (watch, *states):
        dispatcher.post(item)
    store.may_arm.set()
    assert all_told.wait(PATIENCE_S)
    assert told == states
    dispatcher.close()

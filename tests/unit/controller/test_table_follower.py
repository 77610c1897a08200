"""The controller's loop wakes for a table when an object that the table names changes."""

from __future__ import annotations

import threading

from merlot.cluster import paths
from merlot.controller.placement.table_follower import TableFollower
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.testing.patience import PATIENCE_S


def test_the_watch_on_settings_of_upserts_follows_the_reference(store: SqliteMetastore) -> None:
    wakes: list[int] = []
    follower = TableFollower(store, TableName("t_OFFLINE"), lambda: wakes.append(1))
    for path in (paths.upsert_config("a"), paths.upsert_config("b"), "/last"):
        store.create(path, b"")

    def change(path: str) -> None:
        node = store.get(path)
        assert node is not None
        store.put(path, b"changed", node.version)

    def wakes_by(name: str) -> bool:
        """Change an UpsertConfig, and return whether the follower wakes before a later change is seen."""
        before = len(wakes)
        change(paths.upsert_config(name))
        # A watch of its own: that of an earlier call may still be called for an earlier change.
        seen = threading.Event()
        watch = store.watch("/last", seen.set)
        change("/last")
        assert seen.wait(PATIENCE_S)
        watch.cancel()
        return len(wakes) > before

    for watched in ("a", "b", None, "b", "a"):
        follower.watch_upsert(watched)
        assert [wakes_by(name) for name in ("a", "b")] == [watched == "a", watched == "b"]
    follower.close()
    assert not wakes_by("a")

"""What wakes the controller's loop for a table follows what the table names."""

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
    seen = threading.Event()
    store.watch("/last", seen.set)
    for path in (paths.upsert_config("a"), paths.upsert_config("b"), "/last"):
        store.create(path, b"")

    def wakes_by(name: str) -> bool:
        """Change an UpsertConfig, and then another node whose watch is called after the first node's."""
        for _ in range(2):
            seen.clear()
            before = len(wakes)
            for path in (paths.upsert_config(name), "/last"):
                node = store.get(path)
                assert node is not None
                store.put(path, b"changed", node.version)
            assert seen.wait(PATIENCE_S)
        return len(wakes) > before

    for watched in ("a", "b", None, "b", "a"):
        follower.watch_upsert(watched)
        assert [wakes_by(name) for name in ("a", "b")] == [watched == "a", watched == "b"]
    follower.close()
    assert not wakes_by("a")

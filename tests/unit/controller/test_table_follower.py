"""The controller's loop wakes for a table when an object that the table names changes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.faults import Interrupted

from merlot.cluster import paths
from merlot.cluster.records import TableRecord
from merlot.controller.placement.table_follower import TableFollower
from merlot.errors import UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load
from merlot.testing.patience import PATIENCE_S

TABLE = TableName("t_OFFLINE")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: t}}
spec: {{replication: {replication}, schema: {{fields: [{{name: a, type: INT}}]}}}}
"""


def test_the_watch_on_settings_of_upserts_follows_the_reference(store: SqliteMetastore) -> None:
    wakes: list[int] = []
    follower = TableFollower(store, TABLE, lambda: wakes.append(1))
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
        follower.upsert_watch.follow(watched)
        assert [wakes_by(name) for name in ("a", "b")] == [watched == "a", watched == "b"]
    follower.close()
    assert not wakes_by("a")


@pytest.mark.parametrize(
    ("follow", "path"),
    [
        (lambda follower: follower.upsert_watch.follow("a"), paths.upsert_config("a")),
        (lambda follower: follower.watch_stream(), paths.stream(TABLE)),
        (lambda follower: follower.follow_reports(is_moving=True), paths.report_root(TABLE, InstanceId("s"))),
    ],
    ids=["upserts", "stream", "reports"],
)
def test_a_watch_that_could_not_be_set_is_set_at_the_next_look(
    store: SqliteMetastore, follow: Callable[[TableFollower], None], path: str
) -> None:
    woken = threading.Event()
    calls = ("watch", "watch_children")

    def fall_silent() -> None:
        raise UnavailableError("metastore is silent")

    follower = TableFollower(Interrupted(store, calls, 2, fall_silent), TABLE, woken.set)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        follow(follower)
    follow(follower)
    woken.clear()
    store.create(path, b"")
    assert woken.wait(PATIENCE_S)
    follower.close()


def test_a_table_that_is_created_again_has_its_new_spec(store: SqliteMetastore) -> None:
    def record(replication: int, created_ms: int) -> TableRecord:
        manifest = load(MANIFEST.format(replication=replication))[0].model_dump(mode="json", by_alias=True)
        return TableRecord(name=TABLE, revision=1, manifest=manifest, created_ms=created_ms)

    follower = TableFollower(store, TABLE, lambda: None)
    assert [follower.spec(record(number, number)).replication for number in (1, 2)] == [1, 2]
    follower.close()

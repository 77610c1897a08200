"""Contract of every metastore, as tests: subclass `MetastoreContract`, provide `open_session`, and run pytest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.metastore.protocol import Check, Create, Delete, Metastore, Put
from merlot.testing.patience import PATIENCE_S, wait_until

OpenSession = Callable[[], Metastore]
"""Function that opens another session of the test's store."""


class MetastoreContract:
    """Tests of the contract. The subclass provides the fixture `open_session`, a function that opens sessions of one
    store. The store is empty before each test, and the sessions are closed after it."""

    @pytest.fixture
    def store(self, open_session: OpenSession) -> Metastore:
        return open_session()

    def test_a_missing_node_is_none(self, store: Metastore) -> None:
        assert store.get("/nothing/here") is None

    def test_a_created_node_has_its_bytes_and_version_zero(self, store: Metastore) -> None:
        store.create("/a", b"\x00bytes\xff")
        node = store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"\x00bytes\xff", 0)

    def test_create_makes_missing_parents(self, store: Metastore) -> None:
        store.create("/a/b/c", b"1")
        assert store.children("/a") == ["b"]
        assert store.get("/a/b") is not None

    def test_creating_an_existing_node_is_a_conflict(self, store: Metastore) -> None:
        store.create("/a", b"1")
        with pytest.raises(ConflictError):
            store.create("/a", b"2")

    def test_put_compares_the_version(self, store: Metastore) -> None:
        store.create("/a", b"1")
        assert store.put("/a", b"2", 0) == 1
        with pytest.raises(ConflictError):
            store.put("/a", b"3", 0)
        node = store.get("/a")
        assert node is not None
        assert node.data == b"2"

    def test_put_of_a_missing_node_is_not_found(self, store: Metastore) -> None:
        with pytest.raises(NotFoundError):
            store.put("/a", b"1", 0)

    def test_delete_compares_the_version_if_given(self, store: Metastore) -> None:
        store.create("/a", b"1")
        with pytest.raises(ConflictError):
            store.delete("/a", 5)
        store.delete("/a", 0)
        with pytest.raises(NotFoundError):
            store.delete("/a")

    def test_a_node_with_children_cannot_be_deleted(self, store: Metastore) -> None:
        store.create("/a/b", b"")
        with pytest.raises(ConflictError):
            store.delete("/a")

    def test_children_are_sorted_and_empty_for_a_missing_node(self, store: Metastore) -> None:
        for name in ("b", "a", "c"):
            store.create(f"/parent/{name}", b"")
        assert store.children("/parent") == ["a", "b", "c"]
        assert store.children("/none") == []

    def test_get_many_keeps_the_order_and_tells_what_is_missing(self, store: Metastore) -> None:
        for number in range(50):
            store.create(f"/many/{number}", str(number).encode())
        nodes = store.get_many([f"/many/{number}" for number in (7, 99, 3, 7)])
        assert [None if node is None else node.data for node in nodes] == [b"7", None, b"3", b"7"]
        assert store.get_many([]) == []

    def test_a_transaction_applies_all_of_its_operations(self, store: Metastore) -> None:
        store.create("/a", b"1")
        store.create("/b", b"1")
        store.multi([Create("/c", b"3"), Put("/a", b"2", 0), Delete("/b", 0), Check("/a", 1)])
        assert [node and node.data for node in store.get_many(["/a", "/b", "/c"])] == [b"2", None, b"3"]

    @pytest.mark.parametrize(
        "failing",
        [
            Create("/a", b""),
            Put("/a", b"x", 7),
            Put("/none", b"x", 0),
            Delete("/a", 7),
            Delete("/none"),
            Check("/a", 7),
        ],
    )
    def test_a_transaction_applies_nothing_if_one_operation_fails(
        self, store: Metastore, failing: Create | Put | Delete | Check
    ) -> None:
        store.create("/a", b"1")
        with pytest.raises(ConflictError, match=type(failing).__name__):
            store.multi([Create("/new", b""), failing, Create("/newer", b"")])
        assert store.get("/new") is None
        assert store.get("/newer") is None

    def test_a_transaction_above_a_megabyte_is_refused(self, store: Metastore) -> None:
        with pytest.raises(InvalidInputError, match="too large"):
            store.multi([Create("/a", bytes(600_000)), Create("/b", bytes(600_000))])

    def test_nodes_of_half_a_megabyte_come_back(self, store: Metastore) -> None:
        data = bytes(range(256)) * 2048
        store.create("/big", data)
        node = store.get("/big")
        assert node is not None
        assert node.data == data

    def test_an_ephemeral_dies_with_its_session(self, store: Metastore, open_session: OpenSession) -> None:
        other = open_session()
        other.create("/live/x", b"", ephemeral=True)
        other.create("/kept", b"")
        assert store.children("/live") == ["x"]
        with _watching(lambda call: store.watch_children("/live", call)) as wait_for_call:
            other.close()
            wait_for_call()
        assert store.children("/live") == []
        assert store.get("/kept") is not None

    def test_a_watch_calls_back_for_create_change_and_delete(self, store: Metastore, open_session: OpenSession) -> None:
        other = open_session()
        with _watching(lambda call: store.watch("/w", call)) as wait_for_call:
            other.create("/w", b"1")
            wait_for_call()
            other.put("/w", b"2", 0)
            wait_for_call()
            other.delete("/w")
            wait_for_call()
            other.create("/w", b"3")
            wait_for_call()

    def test_a_watch_of_children_works_before_the_node_exists(
        self, store: Metastore, open_session: OpenSession
    ) -> None:
        other = open_session()
        with _watching(lambda call: store.watch_children("/dir", call)) as wait_for_call:
            other.create("/dir/a", b"")
            wait_for_call()
            wait_until(lambda: store.children("/dir") == ["a"])
            other.create("/dir/b", b"")
            wait_for_call()
            other.delete("/dir/b")
            wait_for_call()

    def test_a_cancelled_watch_is_silent(self, store: Metastore) -> None:
        calls: list[int] = []
        watch = store.watch("/w", lambda: calls.append(1))
        watch.cancel()
        with _watching(lambda call: store.watch("/w", call)) as wait_for_call:
            store.create("/w", b"")
            wait_for_call()
        assert calls == []

    def test_a_callback_that_raises_does_not_silence_the_others(self, store: Metastore) -> None:
        def fail() -> None:
            raise ValueError("a callback's bug")

        store.watch("/w", fail)
        with _watching(lambda call: store.watch("/w", call)) as wait_for_call:
            store.create("/w", b"")
            wait_for_call()
            store.put("/w", b"2", 0)
            wait_for_call()

    def test_a_callback_may_read_the_store(self, store: Metastore) -> None:
        seen: list[bytes] = []

        def read() -> None:
            node = store.get("/w")
            seen.append(node.data if node else b"")

        store.watch("/w", read)
        store.create("/w", b"1")
        wait_until(lambda: seen[-1:] == [b"1"])

    def test_the_last_of_many_changes_is_always_heard(self, store: Metastore, open_session: OpenSession) -> None:
        other = open_session()
        other.create("/w", b"0")
        seen: list[bytes] = []

        def read() -> None:
            node = store.get("/w")
            seen.append(node.data if node else b"")

        store.watch("/w", read)
        for version in range(100):
            other.put("/w", str(version + 1).encode(), version)
        wait_until(lambda: seen[-1:] == [b"100"])

    def test_only_one_of_many_writers_wins_each_version(self, store: Metastore, open_session: OpenSession) -> None:
        store.create("/counter", b"0")
        sessions = [open_session() for _ in range(3)]

        def add(session: Metastore) -> None:
            for _ in range(20):
                while True:
                    node = session.get("/counter")
                    assert node is not None
                    try:
                        session.put("/counter", str(int(node.data) + 1).encode(), node.version)
                        break
                    except ConflictError:
                        continue

        threads = [threading.Thread(target=add, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        node = store.get("/counter")
        assert node is not None
        assert (node.data, node.version) == (b"60", 60)


@contextmanager
def _watching(subscribe: Callable[[Callable[[], None]], object]) -> Iterator[Callable[[], None]]:
    """Subscribe a callback, and yield a function that waits for its next call."""
    event = threading.Event()
    subscribe(event.set)

    def wait() -> None:
        assert event.wait(PATIENCE_S), "the watch did not call back"
        event.clear()

    yield wait

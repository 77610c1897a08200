"""Sessions of shared state: one per namespace that has any, and none that nobody uses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from merlot.clock import SystemClock
from merlot.cluster.fence import WriterSupersededError, take
from merlot.cluster.records import OperatorRecord
from merlot.metastore.connect import connect
from merlot.metastore.protocol import Metastore
from merlot_operator.config import Config
from merlot_operator.controllers import metastores as metastore
from merlot_operator.controllers.metastores import Metastores
from merlot_operator.kube.cache import Store

POOLS = ("metastore_", "asyncio_")
NAMESPACES = [f"n{number}" for number in range(12)]


@pytest.fixture
def owners() -> Owners:
    return Owners()


@pytest.fixture
async def metastores(tmp_path: Path, owners: Owners) -> AsyncIterator[Metastores]:
    """Each namespace has a database of its own."""
    config = Config(
        metastore=f"sqlite://{tmp_path}/{{namespace}}.db", deep_store="s3://b", runtime_image="r", spark_image="s"
    )
    found = Metastores(config, Store(), owners.check, SystemClock())
    yield found
    await found.close()


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Metastore]:
    """Those that were opened."""
    opened: list[Metastore] = []

    def noted(url: str) -> Metastore:
        opened.append(connect(url))
        return opened[-1]

    monkeypatch.setattr(metastore, "connect", noted)
    return opened


def threads() -> set[str]:
    """All but those of the pools, which are there for every session."""
    return {f"{one.name} {one.ident}" for one in threading.enumerate() if not one.name.startswith(POOLS)}


async def test_sessions_of_namespaces_that_nobody_asks_about_are_closed(
    metastores: Metastores, sessions: list[Metastore], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads()
    for namespace in NAMESPACES:
        await metastores.call(namespace, lambda store: store.children("/"))
        metastores.leave(namespace)
    assert len(sessions) == len(NAMESPACES)
    assert len(threads() - before) >= len(NAMESPACES), "each session has a thread at least"
    await metastores.close_idle()
    assert len(threads() - before) >= len(NAMESPACES), "they were used a moment ago"
    monkeypatch.setattr(metastore, "IDLE_S", -1.0)
    await metastores.close_idle()
    assert threads() == before
    await metastores.call(NAMESPACES[0], lambda store: store.children("/"))
    assert len(sessions) == len(NAMESPACES) + 1


async def test_a_session_in_use_is_not_closed_however_long_that_takes(
    metastores: Metastores, sessions: list[Metastore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metastore, "IDLE_S", -1.0)
    is_in_use, may_end = threading.Event(), threading.Event()

    def slow(store: Metastore) -> list[str]:
        is_in_use.set()
        assert may_end.wait(30)
        return list(store.children("/"))

    call = asyncio.create_task(metastores.call("n", slow))
    assert await asyncio.to_thread(is_in_use.wait, 30)
    await metastores.close_idle()
    may_end.set()
    assert await call
    assert len(sessions) == 1


class Owners:
    """Whose a namespace is, as the API server says."""

    def __init__(self) -> None:
        self.others: set[str] = set()
        self.when_checked: Callable[[], None] = lambda: None

    async def check(self, namespace: str) -> None:
        self.when_checked()
        if namespace in self.others:
            raise WriterSupersededError(f"another release serves namespace {namespace}")


async def come(metastores: Metastores, namespace: str) -> None:
    """What another operator does, or anybody who reaches the namespace's state."""
    url = (await metastores.home(namespace)).metastore
    await metastores._run(url, lambda store: take(store, namespace, OperatorRecord(holder="the next one")))


def write(store: Metastore) -> None:
    if store.get("/edits") is None:
        store.create("/edits", b"0")
    node = store.get("/edits")
    assert node is not None
    store.put("/edits", str(node.version).encode(), node.version)


async def test_a_namespace_whose_fence_another_one_took_is_left_and_tried_again_and_the_others_go_on(
    metastores: Metastores, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    for namespace in ("a", "b"):
        await metastores.call(namespace, write)
    await come(metastores, "a")
    for _ in range(2):
        with pytest.raises(WriterSupersededError, match="holder=the next one"):
            await metastores.call("a", write)
    await metastores.call("b", write)
    monkeypatch.setattr(metastore, "SUPERSEDED_S", -1.0)
    await metastores.call("a", write)
    await come(metastores, "a")
    owners.others.add("a")
    for _ in range(2):
        with pytest.raises(WriterSupersededError):
            await metastores.call("a", write)
    await metastores.call("b", write)
    kept = await metastores.call("b", lambda store: store.get("/edits"))
    assert kept is not None
    assert kept.version == 3


async def test_who_lost_the_namespace_while_it_came_writes_nothing(
    metastores: Metastores, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, False, True, True])

    async def check(namespace: str) -> None:
        if not next(answers):
            raise WriterSupersededError(namespace)

    monkeypatch.setattr(metastores, "_check_owned", check)
    with pytest.raises(WriterSupersededError):
        await metastores.call("a", write)
    await metastores.call("a", write)


async def test_a_namespace_that_is_left_while_its_fence_is_taken_can_be_asked_about(
    metastores: Metastores, owners: Owners
) -> None:
    owners.when_checked = lambda: metastores.leave("n")
    await metastores.fence("n")
    assert await metastores.sharing("n") == frozenset()


async def test_a_mark_that_a_controller_refuses_is_asked_about_at_once(metastores: Metastores) -> None:
    await metastores.check("a")
    await come(metastores, "a")
    with pytest.raises(WriterSupersededError):
        await metastores.check("a")

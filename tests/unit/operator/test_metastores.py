"""Sessions of shared state: one per namespace that has any, and none that nobody uses."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from merlot.clock import SystemClock
from merlot.metastore.connect import connect
from merlot.metastore.protocol import Metastore
from merlot_operator.config import Config
from merlot_operator.controllers import metastores as metastore
from merlot_operator.controllers.metastores import Metastores
from merlot_operator.kube.cache import Store
from merlot_operator.progress import Progress
from merlot_operator.workqueue import WorkQueue

POOLS = ("metastore_", "asyncio_")
NAMESPACES = [f"n{number}" for number in range(12)]


@pytest.fixture
async def metastores(tmp_path: Path) -> AsyncIterator[Metastores]:
    """Each namespace has a database of its own."""
    config = Config(
        metastore=f"sqlite://{tmp_path}/{{namespace}}.db", deep_store="s3://b", runtime_image="r", spark_image="s"
    )
    progress = Progress(WorkQueue(random.Random(0)), (None,), 0.0)
    found = Metastores(config, Store(), progress, SystemClock())
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

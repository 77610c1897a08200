"""A pass that fails, whatever of, leaves a note: the Tables that it concerns are judged, and tell why."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from tests.unit.operator.pool_parts import DEMAND

from merlot.errors import (
    ConflictError,
    CorruptionError,
    InvalidInputError,
    MerlotError,
    NotFoundError,
    UnavailableError,
)
from merlot.metastore.protocol import Metastore
from merlot_operator import __main__ as program
from merlot_operator.config import Config
from merlot_operator.context import ClusterNote, ReconcileContext
from merlot_operator.controllers.statuses import ClusterStatus
from merlot_operator.manifests.pool import stateful_set
from merlot_operator.reconcilers import loop, pools
from merlot_operator.reconcilers.tables import _publish_config
from merlot_operator.workqueue import QueueKey, Subject

CONFIG = Config(metastore="zk://z", deep_store="s3://b", runtime_image="r", spark_image="s", workers=1)
ERRORS = [ConflictError, CorruptionError, InvalidInputError, NotFoundError, UnavailableError]
CLUSTER, POOL = QueueKey(Subject.CLUSTER, "n"), QueueKey(Subject.POOL, "n", "merlot-server-flights")


@pytest.fixture
async def context() -> ReconcileContext:
    """An operator that serves everything, and knows of nothing."""
    found = program._context(CONFIG, kopf.OperatorSettings())
    found.progress.heard[None] = found.clock.monotonic()
    return found


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Iterator[asyncio.Event]:
    """Every pass fails."""
    failed = asyncio.Event()

    async def fail(*_: object) -> float | None:
        failed.set()
        raise error

    monkeypatch.setattr(loop, "RECONCILES", dict.fromkeys(Subject, fail))
    yield failed


@pytest.mark.parametrize("key", [CLUSTER, POOL], ids=["cluster", "pool"])
@pytest.mark.parametrize("error", [*ERRORS, KeyError], ids=lambda kind: kind.__name__)
async def test_whatever_a_pass_over_a_cluster_or_a_pool_fails_of_is_noted(
    context: ReconcileContext, monkeypatch: pytest.MonkeyPatch, key: QueueKey, error: type[Exception]
) -> None:
    with failing(monkeypatch, error("node is missing path=/merlot/n")) as failed:
        context.queue.wake(key)
        worker = asyncio.create_task(loop._work(context))
        async with asyncio.timeout(10):
            await failed.wait()
            while key in context.progress.passes:
                await asyncio.sleep(0)
        worker.cancel()
    notes: dict[QueueKey, Any] = {CLUSTER: context.clusters.get("n"), POOL: context.pools.get(("n", key.name))}
    assert notes[key] is not None
    expected = "node is missing path=/merlot/n" if issubclass(error, MerlotError) else "see its log"
    assert expected in notes[key].problem


def test_a_note_of_the_passs_own_stays(context: ReconcileContext) -> None:
    context.clusters["n"] = ClusterNote("Deployment/merlot-broker: forbidden", 2)
    context.note_failure(CLUSTER, "something")
    assert context.clusters["n"] == ClusterNote("Deployment/merlot-broker: forbidden", 2)


@pytest.mark.parametrize("error", ERRORS, ids=lambda kind: kind.__name__)
async def test_whatever_keeps_a_config_from_being_written_is_told(
    context: ReconcileContext, monkeypatch: pytest.MonkeyPatch, error: type[MerlotError]
) -> None:
    async def call(namespace: str, _: Any) -> Metastore:
        raise error(f"node is missing path=/merlot/{namespace}")

    monkeypatch.setattr(context.metastores, "call", call)
    table: Any = None
    revision, refusal, problem = await _publish_config(context, "n", table, 7)
    assert revision == 7
    told = problem if refusal is None else refusal.message
    assert told is not None
    assert "node is missing path=/merlot/n" in told


@pytest.mark.parametrize(("unreadable", "is_planned"), [("flights", False), ("elsewhere", True)])
async def test_a_pool_waits_while_the_controller_cannot_read_a_table_of_it_and_others_go_on(
    context: ReconcileContext, unreadable: str, is_planned: bool
) -> None:
    for name in ("flights", "elsewhere"):
        metadata = {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}
        context.store.keep({"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": metadata, "spec": {}})
    context.statuses._known["n"] = ClusterStatus(unreadable={unreadable: "damaged"})
    demand = dataclasses.replace(DEMAND, name=POOL.name)
    state = pools._state(context, demand)
    assert (state.statuses is not None) is is_planned
    assert is_planned or state.silence == "the controller cannot read flights"
    set_ = stateful_set(demand, CONFIG, 3)
    set_["metadata"] |= {"uid": "pool", "resourceVersion": "1"}
    context.store.keep(set_)
    assert pools._is_still_needed(context, "n", POOL.name) is not is_planned

"""What is told of an operator that gets on with its work, and of one that does not."""

from __future__ import annotations

import asyncio
import random

import kopf
import pytest
from kopf._cogs.structs.references import Insights

from merlot.errors import NotFoundError
from merlot_operator import __main__ as program
from merlot_operator import handlers
from merlot_operator.config import from_environment
from merlot_operator.kube.client import ForbiddenError
from merlot_operator.kube.kinds import DECLARED, ResourceKind
from merlot_operator.late_kinds import resource_of, watch_missing
from merlot_operator.progress import DEAD_S, UNHEARD_S, UNREADY_S, OperatorProgress
from merlot_operator.rights import listed
from merlot_operator.workqueue import QueueKey, Subject, WorkQueue

KEY = QueueKey(Subject.TABLE, "a", "flights")
START = 1000.0
MINUTE_S = 60.0
FAILED_PROBES_S = 15.0
"""Until kubelet takes an answer of /readyz seriously."""


@pytest.fixture
def progress() -> OperatorProgress:
    """Of an operator of two namespaces that has listed everything."""
    one = OperatorProgress(WorkQueue(random.Random(1)), ("a", "b"), START)
    look(one, START)
    return one


def look(progress: OperatorProgress, now: float, *places: str) -> None:
    """Everything is as it should be."""
    progress.turned_at = now
    for place in places or ("a", "b"):
        progress.tried[place] = progress.heard[place] = now


def test_it_is_unready_within_a_minute_and_ends_within_two() -> None:
    assert UNREADY_S + FAILED_PROBES_S < MINUTE_S
    assert DEAD_S < 2 * MINUTE_S


def test_it_is_ready_once_every_namespace_is_listed() -> None:
    progress = OperatorProgress(WorkQueue(random.Random(1)), ("a", "b"), START)
    look(progress, START, "a")
    assert not progress.verdict(START).is_ready
    assert "namespace b is not listed yet" in progress.verdict(START).text
    assert progress.serves("a")
    assert not progress.serves("b")
    look(progress, START, "b")
    assert progress.verdict(START).is_ready


def test_an_event_loop_that_stands_is_noticed(progress: OperatorProgress) -> None:
    for place in ("a", "b"):
        progress.tried[place] = progress.heard[place] = START + DEAD_S
    assert not progress.verdict(START + UNREADY_S + 1).is_ready
    assert progress.verdict(START + UNREADY_S + 1).is_alive
    assert not progress.verdict(START + DEAD_S).is_alive


def test_one_silent_namespace_is_enough(progress: OperatorProgress) -> None:
    look(progress, START + DEAD_S, "a")
    verdict = progress.verdict(START + DEAD_S)
    assert not verdict.is_ready
    assert not verdict.is_alive
    assert "namespace b" in verdict.text


def test_an_api_server_that_refuses_ends_nothing_for_long(progress: OperatorProgress) -> None:
    now = START + DEAD_S + 1
    progress.turned_at = progress.tried["a"] = progress.tried["b"] = now
    assert not progress.verdict(now).is_ready
    assert progress.verdict(now).is_alive
    progress.turned_at = progress.tried["a"] = progress.tried["b"] = START + UNHEARD_S
    assert not progress.verdict(START + UNHEARD_S).is_alive


def test_a_pass_that_is_cut_off_again_and_again_is_noticed(progress: OperatorProgress) -> None:
    progress.passes[KEY] = START
    look(progress, START + DEAD_S)
    assert not progress.verdict(START + DEAD_S).is_alive
    del progress.passes[KEY]
    assert progress.verdict(START + DEAD_S).is_ready


async def test_keys_that_nobody_takes_are_noticed() -> None:

    queue = WorkQueue(random.Random(1))
    start = asyncio.get_running_loop().time()
    progress = OperatorProgress(queue, ("a",), start)
    queue.wake(KEY)
    queue.wake(QueueKey(Subject.POOL, "a", "later"), 10_000.0)
    look(progress, start + DEAD_S + 1, "a")
    assert not progress.verdict(start + DEAD_S + 1).is_alive
    assert await queue.take() == KEY
    assert progress.verdict(start + DEAD_S + 1).is_ready


def test_a_namespace_without_rights_is_told_and_holds_up_nobody(progress: OperatorProgress) -> None:
    progress.left_out["b"] = "forbidden"
    look(progress, START + UNHEARD_S, "a")
    progress.tried["b"] = START + UNHEARD_S
    verdict = progress.verdict(START + UNHEARD_S)
    assert verdict.is_ready
    assert "left out: namespace b: forbidden" in verdict.text
    assert not progress.serves("b")


def test_an_operator_without_any_rights_ends(progress: OperatorProgress) -> None:
    progress.left_out |= {"a": "forbidden", "b": "forbidden"}
    now = START + DEAD_S
    progress.turned_at = progress.tried["a"] = progress.tried["b"] = now
    assert not progress.verdict(now).is_ready
    assert not progress.verdict(now).is_alive


def test_one_that_is_about_to_end_is_not_ready(progress: OperatorProgress) -> None:
    progress.is_ending = True
    assert not progress.verdict(START).is_ready


def test_one_that_does_not_watch_a_kind_is_not_ready_and_lives(progress: OperatorProgress) -> None:
    progress.unwatched = ("tables.merlot.dev",)
    verdict = progress.verdict(START)
    assert (verdict.is_ready, verdict.is_alive) == (False, True)
    assert "tables.merlot.dev" in verdict.text


@pytest.mark.parametrize("namespaces", ["", "a", "a,b"], ids=["all namespaces", "one", "two"])
@pytest.mark.parametrize("kind", DECLARED, ids=[kind.plural for kind in DECLARED])
async def test_a_kind_that_is_defined_late_is_watched_from_then_on(
    monkeypatch: pytest.MonkeyPatch, namespaces: str, kind: ResourceKind
) -> None:
    environment = {"MERLOT_METASTORE": "zk://z", "MERLOT_DEEP_STORE": "s3://b", "MERLOT_RUNTIME_IMAGE": "r"}
    config = from_environment({**environment, "MERLOT_SPARK_IMAGE": "s", "MERLOT_NAMESPACE": namespaces})
    context = program._context(config, kopf.OperatorSettings())
    undefined, asked = {kind}, []

    async def probe(asked_for: ResourceKind, place: str | None) -> None:
        asked.append(asked_for)
        if place == "a" and namespaces == "a,b":
            raise ForbiddenError("no rights there")
        if asked_for in undefined:
            raise NotFoundError("the server could not find the requested resource")

    monkeypatch.setattr(context.kube, "probe", probe)
    insights = Insights()
    insights.watched_resources.update(map(resource_of, set(listed(config)) - {kind}))
    await watch_missing(context, insights)
    assert context.progress.unwatched == (f"{kind.plural}.merlot.dev",)
    undefined.clear()
    await watch_missing(context, insights)
    assert context.progress.unwatched == ()
    assert resource_of(kind) in insights.watched_resources
    assert set(asked) == {kind}, "what is watched costs no request"
    registry = kopf.OperatorRegistry()
    handlers.register(registry, context)
    assert any(one.select({resource_of(kind)}) for one in registry._watching.get_all_selectors())

"""The broker reduces small answers on its event loop and others in threads, which stop if nobody waits any more."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

from merlot.broker.offloading import in_thread, is_quick
from merlot.query.answer.partial import Partial, PlainRows
from merlot.query.answer.result import QueryStats
from merlot.query.context import CancelToken, QueryCancelledError
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Reduce
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

SCHEMA = TableSchema.model_validate(
    {"fields": [{"name": "s", "type": "STRING"}, {"name": "n", "type": "LONG", "role": "metric"}]}
)


def tree(sql: str) -> Reduce:
    return plan(bind(parse(sql), SCHEMA, {}))


def texts(number: int, length: int) -> Partial:
    return Partial(pa.table({"c0": ["x" * length] * number}), QueryStats())


@pytest.mark.parametrize(
    ("partial", "is_inline"),
    [
        (texts(100, 10), True),
        (texts(101, 10), False),
        (texts(1, 7_000), True),
        (texts(1, 9_000), False),
        (Partial(PlainRows(pa.schema([("c0", pa.string())]), (["x" * 9_000],)), QueryStats()), False),
    ],
)
def test_many_rows_or_bytes_are_reduced_in_a_thread(partial: Partial, is_inline: bool) -> None:
    assert is_quick(tree("SELECT s FROM t"), [partial], 1_000) == is_inline


@pytest.mark.parametrize(
    ("sql", "is_inline"),
    [
        ("SELECT s, SUM(n) / COUNT(*) FROM t GROUP BY s HAVING SUM(n) > 3 ORDER BY COUNT(*) - 1", True),
        ("SELECT UPPER(s), COUNT(*) FROM t GROUP BY UPPER(s)", True),
        ("SELECT LEVENSHTEINDISTANCE(LISTAGG(s, ','), 'x') FROM t", False),
        ("SELECT COUNT(*) FROM t GROUP BY s HAVING REGEXP_LIKE(s, 'x+')", False),
        ("SELECT s FROM t GROUP BY s ORDER BY LENGTH(s)", False),
    ],
)
def test_functions_of_texts_are_computed_in_a_thread(sql: str, is_inline: bool) -> None:
    assert is_quick(tree(sql), [texts(1, 1)], 1_000) == is_inline


async def test_a_thread_stops_when_its_caller_is_cancelled() -> None:
    cancel, has_started, stopped = CancelToken(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        has_started.set()
        try:
            while True:
                cancel.check()
        except QueryCancelledError:
            loop.call_soon_threadsafe(stopped.set)

    task = asyncio.create_task(in_thread(cancel, work))
    await asyncio.to_thread(has_started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stopped.wait()

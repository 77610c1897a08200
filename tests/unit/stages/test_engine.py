"""The engine above the leaves: what it may not reach, and how it ends when it needs more than it may take."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from merlot.broker.stages import ended
from merlot.codes import QueryErrorCode
from merlot.query.stages.engine import EngineRun, StageError, StageInterruptedError, from_engine, to_engine
from merlot.query.stages.engine_calls import EngineFunction
from merlot.query.stages.engine_instances import MOST_IDLE, EngineLimits, Instances
from merlot.query.stages.engine_sql import EngineQuery
from merlot.tree.nodes import Aggregate, Call, Column
from merlot.tree.types import BIG_DECIMAL, LONG, STRING
from merlot.vectors.decimals import exactly, plain_text
from merlot.vectors.errors import LimitExceededError, QueryArithmeticError

ROWS = 600_000


def limits(folder: Path, **changed: int) -> EngineLimits:
    settings = {"memory_bytes": 200_000_000, "spill_bytes": 500_000_000, **changed}
    return EngineLimits(spill_folder=folder, **settings)


def query(sql: str, *functions: EngineFunction) -> EngineQuery:
    return EngineQuery(sql, functions, ("n",), (LONG,))


class Asked(EngineFunction):
    """A function of a LONG that does what a test wants."""

    def __init__(self, act: Callable[[Sequence[pa.Array], Callable[[], None]], pa.Array]) -> None:
        super().__init__("f0", Call("abs", (Column("x0", LONG),), LONG), (LONG,))
        object.__setattr__(self, "call", act)


@pytest.fixture(scope="module")
def numbers() -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table({"c0": random.permutation(ROWS), "c1": [f"{number:060}" for number in range(ROWS)]})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS c0 FROM read_csv('/etc/passwd')",
        "SELECT COUNT(*) AS c0 FROM read_text('/proc/self/environ')",
        "SELECT COUNT(*) AS c0 FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/out-of-the-engine'",
        "ATTACH '/tmp/out-of-the-engine'",
        "SELECT COUNT(*) AS c0 FROM 'https://localhost/x.parquet'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
    ],
)
def test_it_reaches_no_file_no_network_and_no_setting(sql: str, tmp_path: Path) -> None:
    """Not that such text could come to it: that it would be of no use."""
    with pytest.raises(StageError):
        EngineRun(limits(tmp_path)).run(query(sql), {})
    assert not Path("/tmp/out-of-the-engine").exists()


def test_it_reads_no_variable_of_the_program(tmp_path: Path) -> None:
    secret = pa.table({"c0": [1]})
    with pytest.raises(StageError, match="does not exist"):
        EngineRun(limits(tmp_path)).run(query("SELECT c0 FROM secret"), {})
    assert secret.num_rows == 1


WIDE = query(
    """SELECT COUNT(*) AS c0 FROM (SELECT c1, row_number() OVER (ORDER BY c1 DESC) AS r FROM t) x
    WHERE r > 0 AND c1 <> ''"""
)
"""Sorts 50 MB."""


def test_it_spills_and_leaves_nothing_behind(tmp_path: Path, numbers: pa.Table) -> None:
    made = EngineRun(limits(tmp_path, memory_bytes=30_000_000, threads=1)).run(WIDE, {"t": numbers})
    assert made.columns[0].to_pylist() == [ROWS]
    assert os.listdir(tmp_path) == []


def test_an_instance_that_ended_well_is_used_again_and_knows_nothing_of_the_query_before(tmp_path: Path) -> None:
    table = pa.table({"c0": [3]})
    asked = query("SELECT f0(c0) AS c0 FROM t", Asked(lambda columns, check: columns[0]))
    assert EngineRun(limits(tmp_path)).run(asked, {"t": table}).columns[0].to_pylist() == [3]
    folders = os.listdir(tmp_path)
    again = query("SELECT f0(c0) AS c0 FROM t", Asked(lambda columns, check: pa.compute.add(columns[0], 1)))
    assert EngineRun(limits(tmp_path)).run(again, {"t": table}).columns[0].to_pylist() == [4]
    assert os.listdir(tmp_path) == folders != []
    for sql in ("SELECT c0 FROM t", "SELECT f0(1) AS c0"):
        with pytest.raises(StageError, match="does not exist"):
            EngineRun(limits(tmp_path)).run(query(sql), {})
    assert os.listdir(tmp_path) == [], "an instance is closed after a query that failed"


def test_queries_at_the_same_time_have_an_instance_each_and_few_stay(tmp_path: Path) -> None:
    instances = Instances()
    with ExitStack() as stack:
        connections = [stack.enter_context(instances.session(limits(tmp_path))) for _ in range(MOST_IDLE + 1)]
        connections[0].register("t", pa.table({"c0": [1]}))
        assert len(os.listdir(tmp_path)) == MOST_IDLE + 1
        with pytest.raises(duckdb.CatalogException):
            connections[1].execute("SELECT c0 FROM t")
    assert len(os.listdir(tmp_path)) == MOST_IDLE
    with instances.session(limits(tmp_path, threads=1)) as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    assert len(os.listdir(tmp_path)) == MOST_IDLE
    instances.close()
    assert os.listdir(tmp_path) == []


def test_an_instance_whose_spill_folder_is_gone_answers_and_is_closed(tmp_path: Path) -> None:
    instances = Instances()
    for _ in range(2):
        with instances.session(limits(tmp_path)) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
            (folder,) = tmp_path.iterdir()
            folder.rmdir()
    with instances.session(limits(tmp_path)):
        assert len(os.listdir(tmp_path)) == 1
    instances.close()


def test_more_than_memory_and_disk_hold_is_an_error_of_limits(tmp_path: Path, numbers: pa.Table) -> None:
    with pytest.raises(LimitExceededError, match="stages need more") as caught:
        EngineRun(limits(tmp_path, memory_bytes=8_000_000, spill_bytes=1_000_000, threads=1)).run(WIDE, {"t": numbers})
    assert caught.value.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED
    assert os.listdir(tmp_path) == []


def test_more_rows_than_allowed_are_an_error_of_limits(tmp_path: Path, numbers: pa.Table) -> None:
    with pytest.raises(LimitExceededError, match="too many rows limit=100"):
        EngineRun(limits(tmp_path), max_rows=100).run(query("SELECT c0 FROM t"), {"t": numbers})


def test_an_interrupt_ends_a_run_from_another_thread(tmp_path: Path, numbers: pa.Table) -> None:
    engine = EngineRun(limits(tmp_path))
    endless = query("SELECT COUNT(*) AS c0 FROM t a, t b, t c WHERE a.c0 + b.c0 + c.c0 = -1")
    timer = threading.Timer(0.3, engine.interrupt)
    timer.start()
    with pytest.raises(StageInterruptedError):
        engine.run(endless, {"t": numbers})
    timer.join()


def test_what_fails_past_the_first_rows_fails_as_the_first_would(tmp_path: Path) -> None:
    late = np.zeros(ROWS, np.int64)
    late[-1] = 2**62
    with pytest.raises(QueryArithmeticError, match="overflow in multiplication"):
        EngineRun(limits(tmp_path)).run(query("SELECT c0 * 4 AS c0 FROM t"), {"t": pa.table({"c0": late})})


def test_an_interrupt_past_the_first_rows_ends_a_run(tmp_path: Path, numbers: pa.Table) -> None:
    engine = EngineRun(limits(tmp_path))
    seen: list[int] = []

    def second(columns: Sequence[pa.Array], check: Callable[[], None]) -> pa.Array:
        seen.append(len(columns[0]))
        if len(seen) > 1:
            engine.interrupt()
        check()
        return columns[0]

    stops = query("SELECT f0(c0) AS c0 FROM t", Asked(second))
    with pytest.raises(StageInterruptedError):
        engine.run(stops, {"t": numbers})
    assert len(seen) > 1


def test_lists_of_rows_for_aggregates_are_bounded_by_the_memory(tmp_path: Path, numbers: pa.Table) -> None:
    mode = EngineFunction("f0", Aggregate("distinctcounthllplus", (Column("x0", STRING),), LONG), (STRING,))
    listed = query("SELECT f0(list(c1)) AS c0 FROM t", mode)
    assert EngineRun(limits(tmp_path)).run(listed, {"t": numbers}).columns[0].to_pylist() == [ROWS]
    with pytest.raises(LimitExceededError, match="stages need more"):
        EngineRun(limits(tmp_path, memory_bytes=20_000_000)).run(listed, {"t": numbers})


def test_an_interrupt_before_a_run_ends_it_at_once(tmp_path: Path, numbers: pa.Table) -> None:
    engine = EngineRun(limits(tmp_path))
    engine.interrupt()
    with pytest.raises(StageInterruptedError):
        engine.run(query("SELECT COUNT(*) AS c0 FROM t"), {"t": numbers})


def test_a_whole_number_that_does_not_fit_is_an_error_of_arithmetic(tmp_path: Path) -> None:
    table = pa.table({"c0": pa.array([2**63 - 1, 1], pa.int64())})
    with pytest.raises(QueryArithmeticError):
        EngineRun(limits(tmp_path)).run(query("SELECT CAST(sum(c0) AS BIGINT) AS c0 FROM t"), {"t": table})


@pytest.mark.parametrize(
    "texts",
    [
        ["0", "-1.5", None, "123456789012345678901234567890.12345678"],
        ["0.00000000000000000000000000000000000001"],
        [],
        [None],
    ],
)
def test_decimals_come_back_as_they_went(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    assert from_engine(to_engine(column, BIG_DECIMAL), BIG_DECIMAL).to_pylist() == texts


@pytest.mark.parametrize(("digits", "scale"), [(38, 10), (38, 38), (5, 0), (18, 3), (20, 20)])
def test_decimals_have_the_texts_that_python_writes(digits: int, scale: int) -> None:
    random = Random(digits + scale)
    units = [random.choice((None, 0, 1, -1, random.randrange(-(10**digits) + 1, 10**digits))) for _ in range(200)]
    with exactly():
        values = [None if number is None else Decimal(number).scaleb(-scale) for number in units]
        column = pa.array(values, pa.decimal128(digits, scale)).slice(3)
        wanted = [None if value is None else plain_text(value) for value in values[3:]]
    assert from_engine(column, BIG_DECIMAL).to_pylist() == wanted


def test_an_answer_of_decimals_is_stopped_between_two_batches(tmp_path: Path) -> None:
    """The engine itself is done with a batch before the interrupt, which it forgets."""

    class Late(EngineRun):
        num_asked = 0

        def _check(self) -> None:
            self.num_asked += 1
            if self.num_asked > 2:
                self._is_interrupted = True
            super()._check()

    engine = Late(limits(tmp_path))
    decimals = EngineQuery("SELECT CAST(range AS DECIMAL(38, 3)) AS c0 FROM range(400000)", (), ("n",), (BIG_DECIMAL,))
    with pytest.raises(StageInterruptedError):
        engine.run(decimals, {})
    assert engine.num_asked == 3


def test_a_decimal_of_too_many_digits_is_an_error_of_limits() -> None:
    with pytest.raises(LimitExceededError, match="too many digits"):
        to_engine(pa.array(["1" * 39]), BIG_DECIMAL)


class Forgetful(EngineRun):
    """Loses the first interrupt, as DuckDB does one that comes before it executes."""

    num_lost = 0

    def interrupt(self) -> None:
        if self.num_lost:
            super().interrupt()
        self.num_lost += 1


async def test_a_run_whose_first_interrupt_was_lost_ends(tmp_path: Path, numbers: pa.Table) -> None:
    engine = Forgetful(limits(tmp_path))
    endless = query("SELECT COUNT(*) AS c0 FROM t a, t b, t c WHERE a.c0 + b.c0 + c.c0 = -1")
    running = asyncio.ensure_future(asyncio.to_thread(engine.run, endless, {"t": numbers}))
    await ended(running, engine)
    assert isinstance(running.exception(), StageInterruptedError)

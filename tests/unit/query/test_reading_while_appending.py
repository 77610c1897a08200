"""Queries of a consuming segment while its rows arrive see a prefix of the stream, and every row of it whole."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count

from merlot.query.answer.reduce import reduce
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable import coded
from merlot.segment.mutable.consuming import ConsumingSegment, ConsumingSnapshot
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "n", "type": "LONG"},
            {"name": "check", "type": "LONG", "role": "metric"},
            {"name": "half", "type": "DOUBLE", "role": "metric"},
            {"name": "few", "type": "STRING"},
            {"name": "text", "type": "STRING"},
            {"name": "hole", "type": "INT"},
            {"name": "tags", "type": "LONG", "multiValue": True},
        ]
    }
)
NUM_ROWS = count("MERLOT_APPENDED", quick=12_000, every=30_000)
NUM_READERS = 3


def rows(start: int, stop: int) -> pa.Table:
    """Every column of a row follows from its number, so a row that was put together of two shows."""
    n = np.arange(start, stop)
    return pa.table(
        {
            "n": n,
            "check": n * 31 + 7,
            "half": n / 2,
            # More of them as time goes by: ids of one byte, then of two.
            "few": [f"few{number % (1 + number // 40)}" for number in n.tolist()],
            "text": [f"text {number:06} {'x' * (number % 13)}" for number in n.tolist()],
            "hole": pa.array([None if number % 3 == 0 else number for number in n.tolist()], pa.int32()),
            "tags": [[number, -number] if number % 2 else [number] for number in n.tolist()],
        }
    )


@dataclass
class Readers:
    """Threads that ask, one question after another, until the writer is done."""

    segment: ConsumingSegment
    is_done: threading.Event = field(default_factory=threading.Event)

    def read(self) -> list[int]:
        seen = []
        while not self.is_done.is_set() or not seen:
            seen.append(check(self.segment.snapshot()))
        return [*seen, check(self.segment.snapshot())]


def check(snapshot: ConsumingSnapshot) -> int:
    """How many rows there are, after they were compared with what the stream had by then."""
    count = snapshot.num_docs

    def ask(sql: str) -> list[list[object]]:
        query = plan(bind(parse(sql), SCHEMA))
        partial = execute(query.leaf, [snapshot], ExecutionContext(schema=SCHEMA))
        table = reduce(query, [partial], SCHEMA)
        return [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]

    wanted = [[count, 0, count - 1, float(count * (count - 1) // 2)]] if count else ask("SELECT COUNT(*) FROM t")
    if count:
        assert ask("SELECT COUNT(*), MINLONG(n), MAXLONG(n), SUM(n) FROM t") == wanted
    torn = "n * 31 + 7 <> check OR n <> half * 2 OR NOT text LIKE 'text %' OR CAST(substr(text, 5, 11) AS LONG) <> n"
    assert ask(f"SELECT COUNT(*) FROM t WHERE {torn}") == [[0]]
    nulls = "SET enableNullHandling=true; SELECT COUNT(*) FROM t WHERE"
    assert ask(f"{nulls} hole IS NULL") == [[(count + 2) // 3]]
    assert ask(f"{nulls} hole <> n OR (hole IS NULL AND mod(n, 3) <> 0)") == [[0]]
    assert ask("SELECT COUNT(*) FROM t WHERE tags < 0") == [[count // 2]]
    groups = ask("SELECT few, COUNT(*), MINLONG(n) FROM t GROUP BY few LIMIT 100000")
    assert sum(int(str(group[1])) for group in groups) == count
    assert {few for few, _, _ in groups} == {f"few{n % (1 + n // 40)}" for n in range(count)}
    first = ask("SELECT few, n FROM t ORDER BY few, n LIMIT 3")
    assert first == sorted([f"few{n % (1 + n // 40)}", n] for n in range(count))[:3]
    return count


@pytest.fixture
def _many_switches() -> Iterator[None]:
    """Threads take turns every few instructions, so that readers look at whatever the writer is in the middle of."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def _early_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary that does not pay is given up among few rows."""
    monkeypatch.setattr(coded, "FIRST_LOOK", 4096)


@pytest.mark.usefixtures("_many_switches")
def test_readers_see_whole_rows_and_a_prefix_of_the_stream() -> None:
    segment = ConsumingSegment(BuildRequest(name="t__0__0__x", table="t", schema=SCHEMA), 0)
    readers = Readers(segment)
    every = rows(0, NUM_ROWS)
    with ThreadPoolExecutor(NUM_READERS) as pool:
        running = [pool.submit(readers.read) for _ in range(NUM_READERS)]
        start = 0
        sizes = np.random.default_rng(5).choice([1, 63, 64, 200], 10_000)
        try:
            for size in sizes.tolist():
                stop = min(start + size, NUM_ROWS)
                segment.append(every.slice(start, stop - start), np.arange(start, stop), stop)
                start = stop
                if start == NUM_ROWS:
                    break
        finally:
            readers.is_done.set()
        seen = [reader.result() for reader in running]
    for counts in seen:
        assert counts == sorted(counts), "rows that were answered once are not taken back"
        assert counts[-1] == NUM_ROWS


@pytest.mark.parametrize("num_rows", [0, 1, 4095, 5000])
def test_a_snapshot_answers_the_same_whatever_comes_after_it(num_rows: int) -> None:
    segment = ConsumingSegment(BuildRequest(name="t__0__0__x", table="t", schema=SCHEMA), 0)
    segment.append(rows(0, num_rows), np.arange(num_rows), num_rows)
    held = segment.snapshot()
    for start in range(num_rows, num_rows + 9000, 1500):
        segment.append(rows(start, start + 1500), np.arange(start, start + 1500), start + 1500)
        assert check(held) == num_rows

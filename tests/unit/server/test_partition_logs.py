"""What a server has of a partition answers for everything from a segment on, whatever became of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.partition_log import LogPart, PartitionLog, ReleaseRule
from merlot.server.realtime.poller import RowBatch
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=(FieldSpec(name="id", type=TypeName.LONG),))
GRACE_S = 60.0


def rows(name: str, start: int, count: int) -> ConsumingSegment:
    segment = ConsumingSegment(BuildRequest(name=name, table="t", schema=SCHEMA), start)
    ids = np.arange(start, start + count)
    segment.append(pa.table({"id": pa.array(ids)}), ids, start + count, newest_ms=1_000 + start)
    return segment


def log() -> PartitionLog:
    """A sealed segment of ten rows whose file may be loaded, one that has ended with two beyond, one that grows."""
    return PartitionLog(
        (
            LogPart(sequence=0, start=0, name="a", rows=rows("a", 0, 10), end=10, num_docs=10, key="a@7"),
            LogPart(sequence=1, start=10, name="b", rows=rows("b", 10, 12), end=20, num_docs=10),
            LogPart(sequence=2, start=20, rows=rows("", 20, 5)),
        )
    )


def released(log: PartitionLog, now: float, reported_as_of: float = math.inf) -> PartitionLog:
    """The line, of which the file of the first segment is loaded, once more is let go."""
    loaded = {"a@7"}.__contains__
    return rule(now, reported_as_of, loaded=loaded).of(log, 2)


def rule(
    now: float,
    reported_as_of: float = math.inf,
    *,
    loaded: Callable[[str], bool] = lambda _: False,
    elsewhere: Callable[[str], bool] = lambda _: False,
) -> ReleaseRule:
    return ReleaseRule(
        is_loaded=loaded, is_elsewhere=elsewhere, reported_as_of=reported_as_of, now=now, grace_s=GRACE_S
    )


@pytest.mark.parametrize(("name", "expected"), [("a", [10, 10, 5]), ("b", [10, 5])])
def test_a_name_stands_for_all_rows_from_its_beginning_on(name: str, expected: list[int]) -> None:
    resolved = log().resolve(name, lambda _: False)
    assert resolved is not None
    assert [one.num_docs for one in resolved.rows] == expected
    assert resolved.keys == ()


def test_a_part_whose_rows_are_let_go_is_read_from_the_file() -> None:
    loaded = {"a@7"}.__contains__
    resolved = log().resolve("a", loaded)
    assert resolved is not None
    assert resolved.keys == (), "rows answer until they are let go, however early the file is there"
    resolved = released(log(), 100.0).resolve("a", loaded)
    assert resolved is not None
    assert (resolved.keys, [one.num_docs for one in resolved.rows]) == (("a@7",), [10, 5])


def test_rows_are_as_fresh_as_the_newest_message_of_the_line() -> None:
    resolved = log().resolve("a", lambda _: False)
    assert resolved is not None
    assert resolved.newest_ms == 1_020


def test_what_is_carried_on_behind_an_end_is_as_fresh_as_before() -> None:
    segment = rows("a", 5, 10)
    tail = segment.split(12, segment.request)
    assert (tail.num_docs, tail.newest_ms) == (3, 1_005)
    tail.append(tail.rows(0), np.empty(0, np.int64), 20)
    assert tail.newest_ms == 1_005


def test_rows_are_let_go_when_the_file_is_loaded_and_the_part_when_nobody_asks_any_more() -> None:
    loaded = released(log(), 100.0)
    assert [part.rows is None for part in loaded.parts] == [True, False, False]
    assert loaded.names() == ["a", "b"]
    assert released(loaded, 159.0).names() == ["a", "b"]
    assert released(loaded, 160.0).names() == ["b"]


def test_rows_of_a_part_whose_file_another_server_has_answer_for_a_while_and_are_dropped_with_it() -> None:
    elsewhere = {"a@7"}.__contains__
    waiting = rule(100.0).of(log(), 2)
    assert rule(1000.0).of(waiting, 2) == waiting, "nobody has the file yet"
    moved = rule(1000.0, elsewhere=elsewhere).of(waiting, 2)
    resolved = rule(1059.0, elsewhere=elsewhere).of(moved, 2).resolve("a", lambda _: False)
    assert resolved is not None
    assert [segment.num_docs for segment in resolved.rows] == [10, 10, 5]
    assert rule(1060.0, elsewhere=elsewhere).of(moved, 2).names() == ["b"]


def test_a_part_whose_file_comes_back_is_read_from_it() -> None:
    moved = rule(100.0, elsewhere=lambda _: True).of(log(), 2)
    back = released(moved, 150.0)
    assert [part.rows is None for part in back.parts] == [True, False, False]
    assert released(back, 200.0).names() == ["a", "b"]
    assert released(back, 210.0).names() == ["b"]


def test_a_part_stays_until_brokers_can_have_heard_of_its_file() -> None:
    loaded = released(log(), 100.0, reported_as_of=99.0)
    assert [part.rows is None for part in loaded.parts] == [True, False, False]
    waiting = released(loaded, 1000.0, reported_as_of=99.9)
    assert waiting.names() == ["a", "b"], "the metastore was out, or the report is late"
    told = released(waiting, 1001.0, reported_as_of=100.0)
    assert released(told, 1060.0, reported_as_of=1059.0).names() == ["a", "b"]
    assert released(told, 1061.0, reported_as_of=1059.0).names() == ["b"]


def test_a_part_that_is_neither_rows_nor_a_loaded_file_is_not_answered_for() -> None:
    loaded = released(log(), 100.0)
    assert loaded.resolve("a", lambda _: False) is None
    assert loaded.resolve("b", lambda _: False) is not None
    assert loaded.resolve("unknown", lambda _: False) is None


def test_the_head_is_the_part_that_grows() -> None:
    open_part = log().open_part
    assert open_part is not None
    assert open_part.sequence == 2
    assert PartitionLog(log().parts[:2]).open_part is None


def batch(offsets: list[int], next_offset: int) -> RowBatch:
    return RowBatch(
        rows=pa.table({"id": pa.array(range(len(offsets)))}),
        offsets=np.array(offsets),
        next_offset=next_offset,
    )


@pytest.mark.parametrize(("made_ms", "expected"), [(700, 700), (-1, 900), (0, 500)])
def test_a_batch_says_how_fresh_it_is_or_that_it_was_read_just_now(made_ms: int, expected: int) -> None:
    segment = ConsumingSegment(BuildRequest(name="a", table="t", schema=SCHEMA), 0)
    segment.append(pa.table({"id": pa.array([1])}), np.arange(1), 1, newest_ms=500)
    replace(batch([], 4), newest_ms=made_ms).append_to(segment, 900)
    assert (segment.num_docs, segment.next_offset, segment.newest_ms) == (1, 4, expected)


def test_the_largest_segment_ends_when_memory_is_used_up() -> None:
    budget = MemoryBudget(100)
    budget.tell("small", 20, 20)
    budget.tell("large", 70, 60)
    assert not budget.must_end("large")
    budget.tell("small", 40, 40)
    assert (budget.must_end("large"), budget.must_end("small"), budget.is_full) == (True, False, False)
    budget.tell("large", 90, 0)
    assert (budget.must_end("large"), budget.must_end("small"), budget.is_full) == (False, True, True)
    budget.tell("large", 0, 0)
    assert (budget.taken_bytes, budget.is_full) == (40, False)
    budget.tell("large", 0, 0)
    budget.tell("small", 30, 0)
    assert budget.taken_bytes == 30

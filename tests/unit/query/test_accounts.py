"""What a query may hold, what all of them may hold together, and who ends when that is too much."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from merlot.codes import QueryErrorCode
from merlot.functions import search
from merlot.functions.evaluate import evaluate, verdicts
from merlot.functions.source import ValueSource
from merlot.query.accumulators import StateAccumulator
from merlot.query.aggregation import aggregation
from merlot.query.workers import Workers
from merlot.tree.nodes import Aggregate, Call, Column, Literal
from merlot.tree.types import BOOLEAN, INT, LONG, STRING
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.account import MemoryShortError, Total, Working
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.groups import GroupTable
from merlot.vectors.vector import Vector

MB = 1 << 20


def _total(max_bytes: int = 100 * MB, measured: int = 0) -> Total:
    return Total(max_bytes, lambda: measured)


def _add_many(mine: account.Account, number: int) -> None:
    for _ in range(number):
        mine.add("rows", MB)


def test_a_query_that_would_pass_its_share_fails_before():
    total = _total()
    with Working(10 * MB, total=total) as mine:
        account.current().hold("a", 6 * MB)
        with pytest.raises(LimitExceededError, match=r"for REPEAT bytes=5242880 held=6291456 limit=10485760") as caught:
            account.current().expect("REPEAT", 5 * MB)
        assert caught.value.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED
        assert mine.held_bytes == total.held_bytes == 6 * MB
    assert total.held_bytes == 0


def test_no_query_has_more_than_half_of_the_total():
    with Working(1 << 40, total=_total()) as mine:
        assert mine.max_bytes == 50 * MB


def test_a_block_within_that_of_a_query_stops_when_the_query_does():
    calls: list[int] = []
    with Working(total=_total(), check=lambda: calls.append(1)), Working(total=_total()):
        account.current().expect("rows", MB)
    assert calls == [1]


def test_the_query_that_holds_most_ends_when_all_hold_too_much():
    total = _total(10 * MB)
    with Working(total=total) as other, Working(total=total) as large:
        other.add("rows", 3 * MB)
        large.add("states", 4 * MB)
        with Working(total=total) as small:
            small.add("rows", 2 * MB)
            small.add("rows", MB)
            assert not large.is_ended
            small.add("rows", MB // 2)
            assert large.is_ended
            # What it holds goes when it notices, so nobody else has to end for that.
            small.add("rows", MB)
            assert not small.is_ended
            assert not other.is_ended
        with pytest.raises(MemoryShortError, match="too little memory for all queries") as caught:
            large.expect("more", 1)
        assert caught.value.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


def test_a_query_that_asks_and_holds_most_ends_itself():
    total = _total(12 * MB)
    with Working(total=total) as other, Working(total=total) as third, Working(total=total) as mine:
        other.add("rows", 4 * MB)
        third.add("rows", 3 * MB + MB // 2)
        mine.add("rows", 3 * MB + MB // 2)
        with pytest.raises(MemoryShortError):
            other.add("rows", MB + 1)
        assert not mine.is_ended


def test_a_process_that_is_full_ends_the_largest_whatever_was_counted(monkeypatch):
    monkeypatch.setattr("merlot.memory.total_bytes", lambda: 1024 * MB)
    total = Total(None, lambda: 1020 * MB)
    with Working(total=total) as mine, pytest.raises(MemoryShortError):
        _add_many(mine, 100)


def test_errors_of_the_libraries_say_what_lacks():
    for error in (MemoryError(), pa.lib.ArrowCapacityError("array cannot contain more"), pa.lib.ArrowMemoryError("x")):
        with pytest.raises(LimitExceededError, match="query needs more memory than there is"), Working():
            raise error


@pytest.mark.parametrize(
    "message",
    [
        "offset overflow while concatenating arrays, consider casting input from `string` to `large_string` first.",
        "Take operation overflowed binary array capacity",
    ],
)
def test_texts_that_are_too_long_for_one_array_are_beyond_a_limit(message):
    with pytest.raises(LimitExceededError, match=message[:30]), Working(total=_total()):
        raise pa.ArrowInvalid(message)


def test_other_errors_of_arrow_stay_what_they_are():
    with pytest.raises(pa.ArrowInvalid), Working(total=_total()):
        raise pa.ArrowInvalid("not a number")


def test_helpers_hold_for_the_query_of_their_caller():
    total = _total()
    held: list[int] = []

    def work(number: int) -> None:
        account.current().hold("rows", MB)
        held.append(total.held_bytes)

    with ThreadPoolExecutor(3) as pool, Working(total=total):
        Workers(pool, 3).run(work, range(20))
        assert total.held_bytes == 20 * MB
        assert pool.submit(lambda: account.current().account.max_bytes).result() == 0  # of no query any more
    assert max(held) == 20 * MB
    assert total.held_bytes == 0


def test_an_error_of_a_helper_is_mapped_too():
    def work(number: int) -> None:
        raise MemoryError

    with ThreadPoolExecutor(3) as pool, pytest.raises(LimitExceededError), Working():
        Workers(pool, 3).run(work, range(20))


def test_values_on_the_way_are_given_back():
    rows = ValueSource(TypeName.STRING, pa.array(["abcdefgh"] * 20_000))
    repeat = Call("repeat", (Column("x", STRING), Literal("", STRING), Literal(20, INT)), STRING)
    length = Call("length", (Call("upper", (repeat,), STRING),), INT)
    total = _total()
    with Working(20 * MB, total=total) as mine:
        assert evaluate(length, rows).data.tolist() == [160] * 20_000
        assert mine.held_bytes == 0
    with Working(5 * MB, total=total), pytest.raises(LimitExceededError, match=r"for REPEAT bytes=9600000 "):
        evaluate(length, rows)
    assert total.held_bytes == 0


def test_verdicts_on_the_way_are_given_back():
    rows = ValueSource(TypeName.LONG, pa.array(np.arange(100_000)))
    with Working(total=_total()) as mine:
        hits, _ = verdicts(Call("greater_than", (Column("x", LONG), Literal(5, LONG)), BOOLEAN), rows)
        assert (hits.sum(), mine.held_bytes) == (99_994, 0)


def test_constants_and_values_that_repeat_are_bounded():
    long = pa.scalar("a" * 10_000)
    with Working(10 * MB, total=_total()):
        with pytest.raises(LimitExceededError, match="a constant in every row"):
            Vector(STRING, long).spread(2_000)
        few = Vector(STRING, pa.array(["a", "b" * 10_000]))
        assert len(few.take(np.zeros(2_000, np.int64)).data) == 2_000
        with pytest.raises(LimitExceededError, match="values that repeat"):
            few.take(np.ones(2_000, np.int64))
        many = Vector(STRING, pa.array(["a"] * 99_999 + ["b" * 100_000]))
        assert len(many.take(np.zeros(2_000, np.int64)).data) == 2_000
        with pytest.raises(LimitExceededError, match="values that repeat"):
            many.take(np.full(2_000, 99_999))


def test_whoever_works_for_no_query_is_refused_only_what_nobody_can_have(monkeypatch):
    monkeypatch.setattr("merlot.memory.total_bytes", lambda: 64 * MB)
    monkeypatch.setattr(account, "TOTAL", Total())
    account.current().expect("rows", 60 * MB)
    with pytest.raises(LimitExceededError):
        account.current().expect("rows", 61 * MB)


@pytest.mark.parametrize("width", [1, 3])
def test_a_table_of_groups_is_counted_as_it_grows_and_until_it_is_closed(width):
    keys = np.arange(width * 300_000, dtype=np.uint64).reshape(width, -1)
    seen: list[int] = []
    with Working(90 * MB, total=_total(200 * MB)) as mine:
        table = GroupTable(width, keys.shape[1])
        for start in range(0, keys.shape[1], 10_000):
            table.assign(keys[:, start : start + 10_000])
            seen.append(mine.held_bytes)
            assert seen[-1] >= 8 * width * table.num_groups
        assert seen == sorted(seen)
        assert seen[0] < seen[-1] // 8
        table.close()
        assert mine.held_bytes == 0


@pytest.mark.parametrize("width", [1, 3])
def test_a_table_of_groups_takes_no_more_memory_than_its_query_may_have(width):
    keys = np.arange(width * 2_000_000, dtype=np.uint64).reshape(width, -1)
    with Working(20 * MB, total=_total()):
        table = GroupTable(width, keys.shape[1])
        tracemalloc.start()
        try:
            with pytest.raises(LimitExceededError, match="query needs too much memory for groups"):
                [table.assign(keys[:, start : start + 10_000]) for start in range(0, keys.shape[1], 10_000)]
            assert tracemalloc.get_traced_memory()[1] < 20 * MB
        finally:
            tracemalloc.stop()


def test_edits_between_two_long_texts_stop_when_their_query_is_to_stop():
    texts = ValueSource(TypeName.STRING, pa.array(["ab" * 1500]))
    other = Literal("ba" * 1500, STRING)
    distance = Call("levenshteindistance", (Column("x", STRING), other), INT)
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise LimitExceededError("it is late")

    with Working(total=_total(), check=lambda: calls.append(1)):
        assert evaluate(distance, texts).data.tolist() == [2]
    assert len(calls) > 3000 * 3000 // search.CELLS_PER_CHECK
    calls.clear()
    with Working(total=_total(), check=check), pytest.raises(LimitExceededError, match="it is late"):
        evaluate(distance, texts)
    assert len(calls) == 5


def test_room_for_more_stored_states_is_asked_for_in_the_name_of_their_aggregate():
    counts, sums = (
        StateAccumulator(aggregation(Aggregate(name, args, LONG), nulls=False), 1, lambda doc_ids: [])
        for name, args in (("count", ()), ("sum", (Column("a", LONG),)))
    )
    with Working(10 * MB, total=_total()):
        for accumulator, name in ((counts, "COUNT"), (sums, "SUM"), (counts, "COUNT")):
            accumulator.grow(100)
            assert account.current().function == name

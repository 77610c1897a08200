"""Kept answers: their bounds, and their end."""

import pyarrow as pa
import pytest

from merlot.broker.cursors import LIFE_MS, ROW_BYTES, ResponseStore, StoreFullError, page_offset, page_size
from merlot.broker.response import BrokerAnswer, ResultColumns
from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError, NotFoundError
from merlot.query.answer.result import ResultTable
from merlot.testing.clock import FakeClock
from merlot.tree.types import LONG


def answer(number: int, num_rows: int = 1_000) -> BrokerAnswer:
    table = ResultTable(("x",), (LONG,), (pa.array(range(num_rows), pa.int64()),))
    return BrokerAnswer(
        request_id=str(number), client_request_id=None, broker_id="Broker_h_1", result=ResultColumns(table)
    )


def test_what_does_not_fit_is_refused_and_takes_no_room():
    store = ResponseStore(FakeClock(), most_bytes=2 * (8_000 + ROW_BYTES))
    store.keep(answer(1))
    with pytest.raises(StoreFullError, match="delete one") as refused:
        store.keep(answer(2, num_rows=1_001))
    assert refused.value.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED
    store.keep(answer(3))
    with pytest.raises(StoreFullError):
        store.keep(answer(4, num_rows=0))
    store.delete("1")
    store.keep(answer(4))
    assert [kept.answer.request_id for kept in store.all()] == ["3", "4"]


def test_there_are_so_many_answers_however_small():
    store = ResponseStore(FakeClock(), most_answers=3)
    for number in range(3):
        store.keep(answer(number, num_rows=0))
    with pytest.raises(StoreFullError, match="answers=3"):
        store.keep(answer(3, num_rows=0))


def test_one_client_takes_no_room_that_another_wants():
    """Its oldest answers go, as many as are needed, and no more than until both have as much."""
    store = ResponseStore(FakeClock(), most_answers=4, most_bytes=4 * (8_000 + ROW_BYTES))
    for number in range(4):
        store.keep(answer(number), "a")
    assert kept_by(store) == {"a": ["0", "1", "2", "3"]}
    store.keep(answer(4), "b")
    store.keep(answer(5, num_rows=0), "b")
    assert kept_by(store) == {"a": ["2", "3"], "b": ["4", "5"]}
    for client in ("a", "b"):
        with pytest.raises(StoreFullError):
            store.keep(answer(6), client)
    store.keep(answer(7), "c")
    assert kept_by(store) == {"a": ["3"], "b": ["4", "5"], "c": ["7"]}


def test_an_answer_that_never_fits_takes_nobodys_room():
    store = ResponseStore(FakeClock(), most_bytes=10_000)
    store.keep(answer(1), "a")
    with pytest.raises(StoreFullError):
        store.keep(answer(2, num_rows=5_000), "b")
    assert kept_by(store) == {"a": ["1"]}


def kept_by(store: ResponseStore) -> dict[str, list[str]]:
    """Ids by client."""
    found: dict[str, list[str]] = {}
    for kept in store.all():
        found.setdefault(kept.client, []).append(kept.answer.request_id)
    return found


def test_an_hour_later_an_answer_is_gone_and_its_room_free():
    clock = FakeClock()
    store = ResponseStore(clock, most_answers=1)
    store.keep(answer(1))
    clock.advance(LIFE_MS / 1000 - 1)
    assert store.get("1").num_rows == 1_000
    clock.advance(1)
    with pytest.raises(NotFoundError, match="requestId=1"):
        store.get("1")
    store.keep(answer(2))


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "1e3", "9" * 30, "²"])
def test_pages_are_whole_numbers(text):
    with pytest.raises(InvalidInputError, match="must be a whole number"):
        page_size(text)
    with pytest.raises(InvalidInputError, match="must be a whole number"):
        page_offset(text)


def test_pages_have_defaults():
    assert (page_size(None), page_offset(None), page_size("7"), page_offset("0")) == (10_000, 0, 7, 0)

"""Values that a node of a plan keeps for later queries."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from merlot.query.plan.memo import Memo
from merlot.query.plan.nodes import LeafKind, LeafWork


def test_a_result_is_computed_once_for_each_function_even_if_it_is_none():
    calls: list[str] = []

    def first(name: str) -> None:
        calls.append(name)

    def second(name: str) -> str:
        calls.append(name)
        return name

    memo = Memo()
    assert [memo.cached(first, "a"), memo.cached(first, "a")] == [None, None]
    assert [memo.cached(second, "b"), memo.cached(second, "b")] == ["b", "b"]
    assert calls == ["a", "b"]


def test_a_class_makes_a_value_that_its_users_may_change():
    memo = Memo()
    memo.cached(Counter).update("ab")
    assert memo.cached(Counter) == Counter("ab")


def test_a_work_with_other_fields_derives_its_own_values():
    def rows_needed(work: LeafWork) -> int:
        return work.rows_needed

    work = LeafWork(kind=LeafKind.SELECTION, rows_needed=3)
    assert work.memo.cached(rows_needed, work) == 3
    other = replace(work, rows_needed=4)
    assert other.memo.cached(rows_needed, other) == 4

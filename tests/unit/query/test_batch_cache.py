"""What is kept of joined segments, while queries use it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from merlot.query.context import TooMuchWorkError
from merlot.query.shortcuts import coalesced_segments as batches
from merlot.query.shortcuts.coalesced_segments import BatchCache
from merlot.spec.indexing import IndexingSpec

pytestmark = pytest.mark.parametrize("layout", ["apart", "joined"], indirect=True)


class Growing:
    """A column during whose weighing another query joins one more."""

    def __init__(self, columns):
        self.columns = columns

    @property
    def nbytes(self):
        self.columns[len(self.columns)] = self
        return 1


def test_a_column_may_be_joined_while_batches_are_weighed(make_table):
    cache = BatchCache(1 << 20)
    fields = [{"name": "a", "type": "INT"}]
    first = make_table(fields, [{"a": 1}], [{"a": 2}]).segments
    for _ in range(2):
        batch = cache.batch(first)
    batch.columns[0] = Growing(batch.columns)
    assert cache.batch(first) is batch


FIELDS = [{"name": "a", "type": "INT"}, {"name": "b", "type": "INT"}]
SQL = "SELECT SUM(a) FROM t WHERE b > 1"


def small_segments(make_table, monkeypatch):
    """Segments that are joined when they are asked for the second time; a cache of their own."""
    cache = BatchCache(1 << 20)
    monkeypatch.setattr(batches, "BATCH_CACHE", cache)
    monkeypatch.setattr(batches, "SIGHTINGS", 2)
    monkeypatch.setattr(batches, "MIN_SEGMENTS", 1)
    return make_table(FIELDS, *([{"a": number, "b": number}] for number in range(5))), cache


def test_whoever_has_no_time_reads_what_is_joined_and_has_the_rest_joined_later_once(make_table, monkeypatch):
    table, cache = small_segments(make_table, monkeypatch)
    later = []
    hurried = replace(table, context=replace(table.context, coalesce_later=later.append))
    assert [hurried.query(SQL)[0][0] for _ in range(4)] == [9.0] * 4
    assert len(later) == 2
    known = cache.peek(table.segments)
    assert known is not None
    assert not known.columns
    later.pop()()
    assert len(known.columns) == 1
    assert hurried.query(SQL) == [[9.0]]
    later.pop()()
    assert {key[0] for key in known.columns} == {"a", "b"}
    assert later == []
    sightings = known.sightings
    joined = []
    monkeypatch.setattr(batches, "coalesce", joined.append)
    hits = cache.stats()["hits"]
    assert hurried.query(SQL) == [[9.0]]
    assert (later, joined, known.sightings) == ([], [], sightings)
    assert cache.stats()["hits"] == hits + 1


def test_columns_for_which_the_cache_has_no_room_are_not_joined(make_table, monkeypatch):
    table, cache = small_segments(make_table, monkeypatch)
    cache.resize(1)
    later = []
    hurried = replace(table, context=replace(table.context, coalesce_later=later.append))
    assert [which.query(SQL) for which in (table, hurried) * 3] == [[[9.0]]] * 6
    assert (later, cache.peek(table.segments).columns) == ([], {})


def test_columns_that_were_joined_first_make_room_for_others(make_table):
    cache = BatchCache(10)
    cache.due(make_table(FIELDS, [{"a": 1, "b": 1}], [{"a": 2, "b": 2}]).segments)
    (batch,) = cache._batches.values()
    for name in "abc":
        batch.columns[name] = SimpleNamespace(nbytes=4)
        cache.trim()
    assert list(batch.columns) == ["b", "c"]
    batch.columns["d"] = SimpleNamespace(nbytes=40)
    cache.trim()
    assert list(batch.columns) == ["d"]


def fail(*_):
    raise MemoryError


def test_a_column_whose_joining_failed_is_joined_later(make_table, monkeypatch):
    table, cache = small_segments(make_table, monkeypatch)
    later = []
    hurried = replace(table, context=replace(table.context, coalesce_later=later.append))
    with monkeypatch.context() as failing:
        failing.setattr(batches, "coalesce", fail)
        assert [hurried.query(SQL) for _ in range(2)] == [[[9.0]]] * 2
        for work in later:
            with pytest.raises(MemoryError):
                work()
    later.clear()
    assert hurried.query(SQL) == [[9.0]]
    for work in later:
        work()
    assert len(cache.peek(table.segments).columns) == 2


def test_a_query_that_is_too_much_work_is_not_counted_and_joins_nothing(make_table, monkeypatch):
    table, cache = small_segments(make_table, monkeypatch)
    later = []
    tight = replace(table, context=replace(table.context, coalesce_later=later.append, most_docs=2))
    for _ in range(3):
        with pytest.raises(TooMuchWorkError):
            tight.query(SQL)
    assert cache.peek(table.segments) is None
    assert table.query(SQL) == [[9.0]]
    known = cache.peek(table.segments)
    assert known is not None
    assert (known.sightings, known.columns, later) == (1, {}, [])


def test_joined_columns_look_to_kernels_like_those_of_segments(make_table, monkeypatch):
    _, cache = small_segments(make_table, monkeypatch)
    few = [{"a": number % 3, "b": number % 2} for number in range(60)]
    table = make_table(FIELDS, few, few)
    assert [table.query("SELECT SUM(a), SUM(b) FROM t") for _ in range(2)] == [[[120.0, 60.0]]] * 2
    joined = cache.peek(table.segments).columns.values()
    assert len(joined) == 2
    for column in joined:
        assert not column.dict_ids().flags.writeable
        assert not column.dictionary.numeric.flags.writeable


def joined_names(make_table, monkeypatch, indexing=None, **bounds):
    """Columns that are joined after a query was asked twice, where segments of more than one doc are not small."""
    _, cache = small_segments(make_table, monkeypatch)
    for name, value in {"SMALL_DOCS": 1, **bounds}.items():
        monkeypatch.setattr(batches, name, value)
    table = make_table(FIELDS, *([{"a": number, "b": 2}] * 3 for number in range(4)), indexing=indexing)
    assert [table.query(SQL) for _ in range(2)] == [[[18.0]]] * 2
    known = cache.peek(table.segments)
    return None if known is None else {key[0] for key in known.columns}


def test_segments_of_medium_size_are_joined_where_all_are_one_batch(make_table, monkeypatch):
    assert joined_names(make_table, monkeypatch) == {"a", "b"}
    assert joined_names(make_table, monkeypatch, MAX_BATCH_DOCS=11) is None


def test_segments_of_medium_size_are_apart_where_columns_are_large(make_table, monkeypatch):
    assert joined_names(make_table, monkeypatch, MEDIUM_BYTES=23) is None


def test_segments_of_medium_size_are_apart_where_a_query_reads_texts_without_ids_alone(make_table, monkeypatch):
    _, cache = small_segments(make_table, monkeypatch)
    monkeypatch.setattr(batches, "SMALL_DOCS", 1)
    fields = [{"name": "s", "type": "STRING"}, {"name": "a", "type": "INT"}]
    rows = [{"s": "one", "a": 1}, {"s": "two", "a": 2}]
    table = make_table(fields, rows, rows, indexing=IndexingSpec(no_dictionary=("s",)))
    assert [table.query("SELECT COUNT(*) FROM t WHERE s LIKE '%w%'") for _ in range(2)] == [[[2]]] * 2
    assert cache.peek(table.segments) is None
    assert [table.query("SELECT SUM(a) FROM t WHERE s LIKE '%w%'") for _ in range(3)] == [[[4.0]]] * 3
    assert {key[0] for key in cache.peek(table.segments).columns} == {"s", "a"}


def test_segments_of_medium_size_are_apart_where_an_index_answers(make_table, monkeypatch):
    assert joined_names(make_table, monkeypatch, IndexingSpec(inverted=("b",))) is None
    assert joined_names(make_table, monkeypatch, IndexingSpec(inverted=("a",))) == {"a", "b"}

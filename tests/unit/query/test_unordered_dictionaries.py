"""Dict ids that are no ranks: every way through a query that compares ids in place of values must notice.

The columns of a consuming segment, but numbers too have a dictionary here, and entries are in an order that is wrong in
every respect. Answers are those of the same rows in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merlot.segment.index.dictionary import OrderedDictionary
from merlot.segment.mutable.consuming import ConsumingSnapshot
from merlot.segment.reader import EVERY_DOC, RowReader, Segment

FIELDS = [
    {"name": "n", "type": "INT"},
    {"name": "l", "type": "LONG"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "s", "type": "STRING"},
    {"name": "b", "type": "BIG_DECIMAL"},
    {"name": "many", "type": "LONG", "multiValue": True},
]
FLOATS = [0.0, -0.0, 1.5, -7.25, float("inf"), float("-inf"), 1e-300]
QUERIES = [
    "SELECT COUNT(*) FROM t WHERE n < 3",
    "SELECT COUNT(*) FROM t WHERE n BETWEEN 2 AND 5 AND s >= 's3'",
    "SELECT COUNT(*) FROM t WHERE NOT l > 20000000000",
    "SELECT COUNT(*) FROM t WHERE d >= 0 OR d < -1",
    "SELECT COUNT(*) FROM t WHERE d = 0",
    "SELECT COUNT(*) FROM t WHERE s <> 's1' AND s NOT IN ('s2', 's4') AND n IN (1, 2, 3)",
    "SELECT COUNT(*) FROM t WHERE b > 2.5 AND b <= 11",
    "SELECT COUNT(*) FROM t WHERE many > 3",
    "SELECT COUNT(*) FROM t WHERE many IN (1, 900)",
    "SELECT MIN(n), MAX(n), MINLONG(l), MAXLONG(l), MIN(d), MAX(d) FROM t",
    "SELECT MIN(n), MAX(d), MINMAXRANGE(l) FROM t WHERE s > 's2'",
    "SELECT MIN(b), MAX(b), SUM(n), AVG(d) FROM t WHERE d BETWEEN -10 AND 10",
    "SELECT s, MIN(n), MAX(l) FROM t GROUP BY s ORDER BY s",
    "SELECT d, COUNT(*) FROM t GROUP BY d ORDER BY d",
    "SELECT n + 1, COUNT(*), MAX(n) FROM t GROUP BY n + 1 ORDER BY n + 1",
    "SELECT many, COUNT(*) FROM t GROUP BY many ORDER BY many LIMIT 100",
    "SELECT DISTINCT s, n FROM t ORDER BY s DESC, n LIMIT 7",
    "SELECT n, s FROM t ORDER BY n DESC, s LIMIT 9",
    "SELECT s, l FROM t ORDER BY s, l DESC LIMIT 9",
    "SELECT d FROM t ORDER BY d LIMIT 60",
    "SELECT b, l FROM t ORDER BY b DESC, l LIMIT 9",
    "SELECT MIN(s), MAX(s) FROM t WHERE n < 5",
    "SELECT n, MIN(s), MAX(s) FROM t GROUP BY n ORDER BY n",
    "SELECT MODE(n), PERCENTILE(n, 50), PERCENTILE(d, 90) FROM t",
    "SELECT DISTINCTCOUNT(s), DISTINCTCOUNT(n), DISTINCTCOUNT(d), DISTINCTCOUNTHLL(l) FROM t",
]


class Shuffled:
    """A dictionary in the order of arrival: the last value first."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def numeric(self) -> Any:
        return None if pa.types.is_string(self._values.type) else self._values.to_numpy()

    @property
    def ascending(self) -> None:
        return None

    def arrow(self) -> pa.Array:
        return self._values


class ShuffledColumn:
    """A column by such a dictionary."""

    zones = runs = indexes = None
    is_sorted = False

    def __init__(self, stored: RowReader) -> None:
        self.type, self.multi_value, self.num_docs = stored.type, stored.multi_value, stored.num_docs
        self.nulls, self.offsets = stored.nulls, stored.offsets
        values = stored.strings() if stored.dictionary is None and stored.type in ("STRING", "BIG_DECIMAL") else None
        if stored.dictionary is not None:
            values = stored.dictionary.arrow().take(pa.array(stored.dict_ids()))
        if values is None:
            numbers = stored.values()
            bits = numbers.view(np.int64) if numbers.dtype == np.float64 else numbers
            encoded = pa.array(bits[::-1]).dictionary_encode()
            entries = pa.array(encoded.dictionary.to_numpy().view(numbers.dtype))
        else:
            encoded = values[::-1].dictionary_encode()
            entries = encoded.dictionary
        self.dictionary = Shuffled(entries)
        self._ids = encoded.indices.to_numpy()[::-1].astype(np.uint8)
        self._ids.flags.writeable = False

    def dict_ids(self) -> Any:
        return self._ids


class ShuffledSegment:
    """A segment of such columns."""

    valid_docs = EVERY_DOC

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.key, self.num_docs, self.bounds = segment.key, segment.num_docs, segment.bounds

    def column(self, name: str) -> Any:
        stored = self._segment.column(name)
        return None if stored is None else ShuffledColumn(stored)


def rows() -> list[dict[str, Any]]:
    return [
        {
            "n": (number * 7) % 11 - 3,
            "l": (number * 5) % 13 * 4_000_000_000,
            "d": FLOATS[(number * 3) % len(FLOATS)],
            "s": f"s{(number * 5) % 9}",
            "b": str((number * 3) % 17),
            "many": [(number * k) % 10 for k in range(1, 1 + number % 3)],
        }
        for number in range(60)
    ]


@pytest.mark.parametrize("layout", ["apart"], indirect=True)
@pytest.mark.parametrize("sql", QUERIES)
def test_a_dictionary_without_order_gives_the_answers_of_one_with(make_table: Callable[..., Any], sql: str) -> None:
    table = make_table(FIELDS, rows())
    shuffled = replace(table, segments=[ShuffledSegment(segment) for segment in table.segments])
    assert sorted(map(str, shuffled.query(sql))) == sorted(map(str, table.query(sql)))
    if "ORDER BY" in sql:
        assert shuffled.query(sql) == table.query(sql)


@pytest.mark.parametrize("layout", ["consuming"], indirect=True)
def test_a_consuming_segment_claims_no_order(make_table: Callable[..., Any]) -> None:
    segment = make_table(FIELDS, rows()).segments[0]
    assert isinstance(segment, ConsumingSnapshot)
    column = segment.column("s")
    assert column is not None
    dictionary = column.dictionary
    assert dictionary is not None
    assert not isinstance(dictionary, OrderedDictionary)
    assert dictionary.ascending is None
    assert dictionary.arrow().to_pylist()[:3] == ["s0", "s5", "s1"]
    assert (column.zones, column.runs, column.indexes, column.is_sorted) == (None, None, None, False)

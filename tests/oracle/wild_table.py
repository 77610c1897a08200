"""Random tables `wild`: every type with the values that go wrong, stored in every way.

Both ends of INT and LONG, NaN, infinities, both zeros, decimals of 18 places, instants from year 1 to past 9999,
letters whose case is a matter of opinion, numbers as texts; nulls; and columns so narrow that the bounds of what is
computed from them matter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from tests.sql.slt_data import Dataset, arrow_type
from tests.support.indexes import every_index

from merlot.spec.indexing import INDEX_KINDS, IndexingSpec
from merlot.spec.schema import TableSchema

NAME = "wild"
FIRST_MS = 1356998400000
DECIMAL_PLACES = 18

_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "INT"},
    {"name": "i", "type": "INT"},
    {"name": "j", "type": "INT"},
    {"name": "k", "type": "INT", "role": "metric"},
    {"name": "l", "type": "LONG"},
    {"name": "m", "type": "LONG", "role": "metric"},
    {"name": "f", "type": "FLOAT"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "t", "type": "DOUBLE", "role": "metric"},
    {"name": "n", "type": "BIG_DECIMAL"},
    {"name": "b", "type": "BOOLEAN"},
    {"name": "ts", "type": "TIMESTAMP"},
    {"name": "s", "type": "STRING"},
    {"name": "w", "type": "STRING"},
    {"name": "q", "type": "STRING"},
    {"name": "x", "type": "BYTES"},
    {"name": "li", "type": "INT", "multiValue": True},
    {"name": "ls", "type": "STRING", "multiValue": True},
    {"name": "ld", "type": "DOUBLE", "multiValue": True},
    {"name": "ms", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
]
SCHEMA = TableSchema.model_validate({"fields": _FIELDS})
_NULLABLE = ("i", "k", "l", "m", "f", "d", "n", "b", "ts", "s", "x", "li", "ls")
_MAY_BE_SORTED = ("j", "s", "b", "ms", "k", "w")
_SINGLE = [field.name for field in SCHEMA.fields if not field.multi_value]

_INTS = (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1)
_LONGS = (-(2**63), -(2**63) + 1, -(2**53) - 1, -(2**31) - 1, -1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1)
_FLOATS = (math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -2.25, 2.0**127, -(2.0**-149), 16777217.0)
_DOUBLES = (math.nan, -0.0, 0.0, math.inf, -math.inf, 0.1, -1e300, 5e-324, 1.7976931348623157e308, 2.0**63)
_INSTANTS = (0, -1, 253402300799999, 253402300800000, -62135596800000, 2147483648000, 4102444800000, -2208988800000)
_TEXTS = ("", "null", "a", "A", "Straße", "STRASSE", "éa", "É", "Ωμέγα", "жЖ", "日本", "ǆ", "😀x", "a%b_c", "it's", "ﬁ")


@dataclass(frozen=True, kw_only=True)
class WildTable(Dataset):
    """Rows of a pool, as many as are wanted and each any number of times; `id` numbers them."""

    pool: pa.Table
    picks: np.ndarray[Any, np.dtype[np.int64]]

    def defaulted(self) -> pa.Table:
        filled = Dataset(name=self.name, schema=self.schema, rows=self.pool).defaulted()
        return _numbered(filled.take(pa.array(self.picks)))

    @cached_property
    def samples(self) -> dict[str, list[Any]]:
        """Values of each column that are not null; TIMESTAMP as milliseconds."""
        columns = {name: self.pool.column(name) for name in self.pool.column_names}
        columns["ts"] = columns["ts"].cast(pa.int64())
        return {name: [one for one in column.to_pylist() if one is not None] for name, column in columns.items()}


def wild(generator: random.Random, num_rows: int, num_pooled: int = 3000) -> WildTable:
    """A table of so many rows."""
    num_pooled = min(num_rows, num_pooled)
    share = generator.choice((0.02, 0.1, 0.3))
    columns = {}
    for field in SCHEMA.fields:
        make = _maker(field.name, generator)
        nullable = field.name in _NULLABLE and generator.random() < 0.7
        values = [None if nullable and generator.random() < share else make() for _ in range(num_pooled)]
        columns[field.name] = _array(values, arrow_type(field))
    pool = pa.table(columns)
    if num_rows == num_pooled:
        picks = np.arange(num_rows)
    else:
        picks = np.random.default_rng(generator.randrange(1 << 30)).integers(0, num_pooled, num_rows)
    rows = _numbered(pool.take(pa.array(picks)))
    return WildTable(
        name=NAME,
        schema=SCHEMA,
        rows=rows,
        time_column="ms",
        indexings=tuple(_indexing(generator) for _ in range(5)),
        decimal_places=DECIMAL_PLACES,
        pool=pool,
        picks=picks,
    )


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, "id", pa.array(np.arange(rows.num_rows, dtype=np.int32)))


def _maker(name: str, generator: random.Random) -> Callable[[], Any]:
    """How to make a value of a column."""
    pick, choice = generator.randrange, generator.choice
    low, width = choice((-3, 0, 5, 1000)), choice((1, 3, 12))
    wide = generator.random() < 0.5

    def mixed(extremes: tuple[Any, ...], other: Callable[[], Any]) -> Callable[[], Any]:
        share = choice((0.05, 0.3, 1.0))
        return lambda: choice(extremes) if generator.random() < share else other()

    def number() -> float:
        return pick(-400, 400) / 8

    makers: dict[str, Callable[[], Any]] = {
        "id": lambda: 0,
        "i": mixed(_INTS, lambda: pick(-50, 50)),
        "j": lambda: low + pick(width),
        "k": lambda: pick(-20, 20) if wide else pick(3),
        "l": mixed(_LONGS, lambda: pick(-1000, 1000)),
        "m": lambda: pick(-(10**12), 10**12) if wide else pick(-100, 100),
        "f": mixed(_FLOATS, number),
        "d": mixed(_DOUBLES, number),
        "t": lambda: pick(-4000, 4000) / 4,
        "n": lambda: format(Decimal(pick(-(10**15), 10**15)).scaleb(-pick(DECIMAL_PLACES + 1)), "f"),
        "b": lambda: generator.random() < 0.5,
        "ts": mixed(_INSTANTS, lambda: FIRST_MS + pick(10**11)),
        "s": lambda: choice(_TEXTS) if not wide else choice(_TEXTS) + str(pick(400)),
        "w": lambda: str(choice(_LONGS) if wide else pick(-9, 10)),
        "q": lambda: format(Decimal(pick(-(10**9), 10**9)).scaleb(-pick(9)), "f"),
        "x": lambda: generator.randbytes(pick(4)),
        "li": lambda: [choice((*_INTS, 5, 6, 7)) for _ in range(pick(1, 4))],
        "ls": lambda: generator.choices(_TEXTS, k=pick(1, 4)),
        "ld": lambda: [choice((*_DOUBLES, 1.5)) for _ in range(pick(1, 3))],
        "ms": lambda: FIRST_MS + pick(10**12),
    }
    return makers[name]


def _indexing(generator: random.Random) -> IndexingSpec:
    """One way to store the columns."""
    some = {kind: generator.sample(_SINGLE[1:], generator.randrange(8)) for kind in ("raw", "bloom")}
    listed = ["li", "ls", "ld"]
    raw = some["raw"] + [name for name in listed if generator.random() < 0.4]
    every = every_index(SCHEMA, raw)
    indexes = {kind: tuple(name for name in every.columns_of(kind) if generator.random() < 0.3) for kind in INDEX_KINDS}
    return IndexingSpec(
        **{**indexes, "bloom": tuple(name for name in some["bloom"] if name != "b")},
        sorted_columns=tuple(generator.sample(_MAY_BE_SORTED, generator.randrange(3))),
        no_dictionary=tuple(raw),
        compression={name: generator.choice(("ZSTD", "LZ4")) for name in raw if generator.random() < 0.3},
    )

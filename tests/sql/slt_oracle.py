"""DuckDB with the test tables in it: schema `defaulted` (null handling off) and `nulled` (on)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from tests.sql.slt_answers import Row, normalize, sort_rows
from tests.sql.slt_data import Dataset

from merlot.values.types import TypeName


class Oracle:
    """Answers the DuckDB side of a case."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._kept: dict[tuple[str, tuple[str, ...], bool, bool], list[Row]] = {}
        self._connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, function in (("upper", str.upper), ("lower", str.lower)):
            # DuckDB maps a letter to a letter.
            self._connection.create_function(f"full_{name}", function, ["VARCHAR"], "VARCHAR")
            self._connection.execute(f"CREATE TEMP MACRO {name}(x) AS full_{name}(x)")
        for schema in ("defaulted", "nulled"):
            self._connection.execute(f"CREATE SCHEMA {schema}")
        for dataset in datasets:
            self._load("defaulted", dataset, dataset.defaulted())
            self._load("nulled", dataset, dataset.rows)

    def install(self, functions: Callable[[Any], None]) -> None:
        """Give the connection functions that DuckDB lacks."""
        functions(self._connection)

    def execute(self, sql: str) -> None:
        """Run a statement, such as the definition of a view."""
        self._connection.execute(sql)

    def rows(self, sql: str, *, nulls: bool) -> list[Sequence[Any]]:
        """The rows of a query, over the tables with or without nulls."""
        self._connection.execute(f"SET schema = '{'nulled' if nulls else 'defaulted'}'")
        return self._connection.execute(sql).fetchall()

    def kept_rows(self, sql: str, types: tuple[str, ...], *, nulls: bool, is_ordered: bool) -> list[Row]:
        """The normalized rows of a query that every layout is asked, sorted unless they must come in one order: DuckDB
        answers once."""
        key = (sql, types, nulls, is_ordered)
        if key not in self._kept:
            rows = normalize(self.rows(sql, nulls=nulls), types)
            self._kept[key] = rows if is_ordered else sort_rows(rows)
        return self._kept[key]

    def _load(self, schema: str, dataset: Dataset, rows: pa.Table) -> None:
        self._connection.register("incoming", rows)
        columns = ", ".join(_column(field.name, field.type, dataset) for field in dataset.schema.fields)
        self._connection.execute(f"CREATE TABLE {schema}.{dataset.name} AS SELECT {columns} FROM incoming")
        self._connection.unregister("incoming")


def _column(name: str, type_: TypeName, dataset: Dataset) -> str:
    types = {TypeName.BIG_DECIMAL: f"DECIMAL(38, {dataset.decimal_places})", TypeName.TIMESTAMP: "TIMESTAMP"}
    target = types.get(type_)
    return f'CAST("{name}" AS {target}) AS "{name}"' if target else f'"{name}"'

"""Pinot's own cases of queries over several stages: its tables, its queries, and the rows that it expects.

Files of apache/pinot's pinot-query-runtime/src/test/resources/queries, in the folder `pinot_stages` of
MERLOT_TEST_DATA. Where a query has no rows beside it, Pinot's test asks H2; here DuckDB is asked, where it can read the
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.sql.slt_answers import Row, first_difference, normalize, sort_rows
from tests.sql.slt_data import Dataset, arrow_type
from tests.sql.slt_layouts import InProcess
from tests.sql.slt_segments import consuming_segment

from merlot.errors import MerlotError
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

_OPTIONS = "SET useMultistageEngine = true; SET enableNullHandling = true; "
_DUCKDB_TYPES = {
    TypeName.INT: "INTEGER",
    TypeName.LONG: "BIGINT",
    TypeName.FLOAT: "FLOAT",
    TypeName.DOUBLE: "DOUBLE",
    TypeName.BOOLEAN: "BOOLEAN",
    TypeName.TIMESTAMP: "TIMESTAMP",
    TypeName.STRING: "VARCHAR",
    TypeName.JSON: "VARCHAR",
    TypeName.BYTES: "BLOB",
}


@dataclass(frozen=True, kw_only=True)
class PinotQuery:
    """One query of a case."""

    name: str
    """Its file, case and number."""
    sql: str
    reference: str
    """The text for whoever knows the rows, if there are none."""
    outputs: Sequence[Sequence[Any]] | None
    is_ordered: bool
    is_refused: bool


@dataclass(frozen=True, kw_only=True)
class PinotCase:
    """Tables, and queries over them."""

    tables: Mapping[str, Dataset]
    queries: Sequence[PinotQuery]


def cases(folder: Path) -> Iterator[PinotCase]:
    """All of them but what Pinot itself leaves out."""
    for path in sorted(folder.glob("*.json")):
        for name, case in json.loads(path.read_text()).items():
            if case.get("ignored"):
                continue
            told_tables = case.get("tables", {})
            made = {table: _dataset(table, told) for table, told in told_tables.items()}
            tables = {table: dataset for table, dataset in made.items() if dataset is not None}
            queries = [
                _query(f"{path.stem}/{name}/{number}", told, told_tables)
                for number, told in enumerate(case["queries"])
                if not told.get("ignored")
            ]
            yield PinotCase(tables=tables, queries=queries)


def _query(name: str, told: Mapping[str, Any], tables: Mapping[str, Any]) -> PinotQuery:
    def named(sql: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: found[1] if found[1] in tables else found[0], sql)

    reference = re.sub(r"(?i)\bSET\s+\w+\s*=\s*[^;]*;", "", named(told.get("h2Sql", told["sql"])))
    reference = re.sub(r"\bMINUS\b", "EXCEPT", reference)  # which DuckDB does not read
    return PinotQuery(
        name=name,
        sql=named(told["sql"]),
        reference=reference,
        outputs=told.get("outputs"),
        is_ordered=bool(told.get("keepOutputRowOrder")),
        is_refused="expectedException" in told,
    )


def _dataset(name: str, told: Mapping[str, Any]) -> Dataset | None:
    fields = [
        {
            "name": column["name"],
            "type": column["type"].removesuffix("[]"),
            "multiValue": column["type"].endswith("[]") or not column.get("isSingleValue", True),
        }
        for column in told["schema"]
    ]
    # Queries of columns whose names have other letters are refused, the others of the case are not.
    places = [at for at, field in enumerate(fields) if re.fullmatch(r"[A-Za-z_]\w*", field["name"])]
    if not places:
        return None
    # A row may be longer than the schema, or shorter: Pinot's test goes by the schema.
    columns = [[row[at] if at < len(row) else None for row in told["inputs"]] for at in places]
    schema = TableSchema.model_validate({"fields": [fields[at] for at in places]})
    arrays = [
        pa.array([_value(field, value) for value in values], arrow_type(field))
        for field, values in zip(schema.fields, columns, strict=True)
    ]
    return Dataset(name=name, schema=schema, rows=pa.table(arrays, names=list(schema.names)))


def _value(field: FieldSpec, value: Any) -> Any:
    if value is None:
        return None
    match field.type:
        case _ if field.multi_value:
            return value if isinstance(value, list) else [value]
        case TypeName.INT | TypeName.LONG:
            return int(value)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return float(value)
        case TypeName.BIG_DECIMAL:
            return format(Decimal(str(value)), "f")
        case TypeName.BYTES:
            return bytes.fromhex(value)
        case TypeName.TIMESTAMP:
            text = str(value)
            if text.lstrip("-").isdigit():
                return datetime.fromtimestamp(int(text) / 1000, UTC).replace(tzinfo=None)
            instant = datetime.fromisoformat(text)
            return instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
        case TypeName.BOOLEAN:
            return value if isinstance(value, bool) else str(value).lower() == "true"
    return str(value)


def _rounded(rows: Sequence[Row]) -> list[Row]:
    """Pinot's files have seven digits of a DOUBLE, and write a FLOAT as itself and as a DOUBLE."""
    return [tuple(float(f"{cell:.6g}") if isinstance(cell, float) else cell for cell in row) for row in rows]


def _duckdb_type(field: FieldSpec, table: Dataset) -> str:
    """A DECIMAL has the places that its column needs, and is NULL where it would need more than 38 digits."""
    if field.type is not TypeName.BIG_DECIMAL:
        return _DUCKDB_TYPES[field.type] + "[]" * field.multi_value
    texts = [text for text in table.rows.column(field.name).to_pylist() if text is not None]
    places = max((len(text.partition(".")[2]) for text in texts), default=0)
    whole = max((len(text.partition(".")[0].lstrip("-")) for text in texts), default=1)
    return f"DECIMAL({min(whole + places, 38)}, {places})"


class PinotTables:
    """The tables of a case, for Merlot and for DuckDB."""

    def __init__(self, tables: Mapping[str, Dataset]) -> None:
        self._tables = tables
        self._duckdb: duckdb.DuckDBPyConnection | None = None
        segments = {name: [consuming_segment(one, 0, one.rows.num_rows).snapshot()] for name, one in tables.items()}
        self._layout = InProcess({name: one.schema for name, one in tables.items()}, segments, parts=1)

    def problem(self, query: PinotQuery) -> str | None:
        """What is wrong with Merlot's answer, if anything."""
        try:
            answer = self._layout.query(_OPTIONS + query.sql)
        except MerlotError as error:
            return None if query.is_refused else f"refused: {error}"
        if query.is_refused:
            return "answered"
        wanted = self._wanted(query)
        if wanted is None:
            return "nobody knows the rows"
        if wanted and len(wanted[0]) != len(answer.types):
            return f"{len(answer.types)} columns instead of {len(wanted[0])}"
        try:
            rows = [_rounded(normalize(one, answer.types)) for one in (answer.rows, wanted)]
        except (ValueError, AssertionError, ArithmeticError, KeyError, TypeError) as error:
            return f"{error}: {answer.types}, wanted {wanted[:3]}"
        return first_difference(*(rows if query.is_ordered else map(sort_rows, rows)))

    def _wanted(self, query: PinotQuery) -> Sequence[Sequence[Any]] | None:
        if query.outputs is not None:
            return query.outputs
        try:
            return self._connection().execute(query.reference).fetchall()
        except duckdb.Error:
            return None

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._duckdb is None:
            self._duckdb = duckdb.connect(config={"threads": 1})
            self._duckdb.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
            for name, table in self._tables.items():
                self._duckdb.register("incoming", table.rows)
                columns = ", ".join(
                    f'TRY_CAST("{one.name}" AS {_duckdb_type(one, table)}) AS "{one.name}"'
                    for one in table.schema.fields
                )
                self._duckdb.execute(f'CREATE TABLE "{name}" AS SELECT {columns} FROM incoming')
        return self._duckdb

    def close(self) -> None:
        """Stop its threads."""
        self._layout.close()
        if self._duckdb is not None:
            self._duckdb.close()

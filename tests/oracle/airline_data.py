"""Pinot's airlineStats rows and the 200 queries that its own tests run on them; both stay outside the repository."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sql.slt_data import Dataset, arrow_type

from merlot.spec.schema import FieldSpec, TableSchema

TABLE = "mytable"


@dataclass(frozen=True, kw_only=True)
class AirlineQuery:
    """A query of the file, and the same in DuckDB's words without its LIMIT."""

    line: int
    sql: str
    duckdb_sql: str

    @property
    def order_columns(self) -> tuple[str, ...]:
        """Columns that the rows are ordered by."""
        found = re.search(r"ORDER BY (.*?)( LIMIT|$)", self.sql)
        return tuple(column.strip() for column in found.group(1).split(",")) if found else ()

    @property
    def is_selection(self) -> bool:
        """Whether rows come as they are, neither grouped nor aggregated."""
        return not re.search(r"GROUP BY|\b(COUNT|SUM|AVG|MIN|MAX)\(", self.sql)

    def with_order_columns(self) -> AirlineQuery:
        """The query with the columns that it orders by at the end of its SELECT."""
        extra = ", ".join(self.order_columns)
        return AirlineQuery(
            line=self.line,
            sql=self.sql.replace(" FROM ", f", {extra} FROM ", 1),
            duckdb_sql=self.duckdb_sql.replace(" FROM ", f", {extra} FROM ", 1),
        )


def dataset(folder: Path) -> Dataset:
    """The table of the Parquet file under the schema of the JSON file."""
    declared = json.loads((folder / "airlineStats_schema.json").read_text())
    source = pq.read_table(folder / "airlineStats.parquet")
    fields = [
        _field(spec)
        for group in ("dimensionFieldSpecs", "metricFieldSpecs", "dateTimeFieldSpecs")
        for spec in declared[group]
        if spec["name"] in source.column_names
    ]
    schema = TableSchema.model_validate({"fields": fields})
    columns = [pa.array(_values(source, field), arrow_type(field)) for field in schema.fields]
    rows = pa.table(columns, names=list(schema.names))
    return Dataset(name=TABLE, schema=schema, rows=rows, time_column="DaysSinceEpoch")


def _field(spec: dict[str, Any]) -> dict[str, Any]:
    field = {"name": spec["name"], "type": spec["dataType"], "multiValue": not spec.get("singleValueField", True)}
    if "format" in spec:
        field |= {"role": "dateTime", "format": spec["format"]}
    return field


def _values(source: pa.Table, field: FieldSpec) -> list[Any]:
    values = source.column(field.name).to_pylist()
    if not field.multi_value:
        return values
    return [[_element(item) for item in row] if row else None for row in values]


def _element(item: dict[str, Any]) -> Any:
    """Spark's Avro writer wraps each element twice."""
    return item["array"]["element"] if "array" in item else item["element"]


def queries(folder: Path) -> list[AirlineQuery]:
    """The queries of the file."""
    lines = (folder / "on_time_200_queries.jsonl").read_text().splitlines()
    return [_query(number, json.loads(line)) for number, line in enumerate(lines, 1) if line.startswith("{")]


def _query(line: int, pair: dict[str, Any]) -> AirlineQuery:
    theirs = pair.get("hsqls", [pair["sql"]])[0].replace("`", '"').replace("ARRAY_CONTAINS", "list_contains")
    return AirlineQuery(line=line, sql=pair["sql"], duckdb_sql=re.sub(r" LIMIT \d+\s*$", "", theirs))

"""Rows of a DataFrame on their way into a job, prepared by executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from merlot.errors import InvalidInputError, first_line
from merlot.ingest.source import names
from merlot.ingest.transform import CORRUPT_RECORD
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import FieldSpec
from merlot.spec.table import Table
from merlot_spark import parcels, preparing
from merlot_spark.expressions import Expressions, check_repeatable
from merlot_spark.preparing import PrepareTask


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows of a job, conformed and in parcels, and facts about their source from before it is read."""

    rows: DataFrame
    lacking: frozenset[str] = frozenset()
    """Columns that no row has, as far as known; tasks may still find them."""
    needed: frozenset[str] = frozenset()
    """Lacking columns that expressions name."""
    num_files: int | None = None
    empty_files: int = 0


def prepare(df: DataFrame, table: Table, ingestion: BatchIngestion | None, task: PrepareTask) -> Prepared:
    """Prepare the rows of a DataFrame. Raise InvalidInputError for expressions that Spark refuses, and if the DataFrame
    has no column of the table."""
    expressions = Expressions.of(ingestion)
    columns: list[Column] = []
    named: list[str] = []
    lacking = []
    for column in table.spec.table_schema.fields:
        if column.name in expressions.derived:
            continue
        if (name := names.find(column.name, df.columns, "DataFrame")) is not None:
            quoted = name.replace("`", "``")
            columns.append(_readable(F.col(f"`{quoted}`"), df.schema[name].dataType, column))
            named.append(column.name)
        else:
            lacking.append(column.name)
    if not columns and not expressions.derived:
        raise InvalidInputError(f"source has no column of the table table={table.raw_name} columns={df.columns}")
    if CORRUPT_RECORD in df.columns:
        columns.append(F.col(CORRUPT_RECORD))
        named.append(CORRUPT_RECORD)
    try:
        # By position: mapInArrow takes a name with dots for a field of a struct.
        numbered = [column.alias(f"_{place}") for place, column in enumerate(columns)]
        selected = df.select(*numbered, *expressions.columns(df.sparkSession))
        if expressions.texts:
            check_repeatable(selected)
    except PySparkException as error:
        raise wrong_expression(error) from error
    run = partial(_prepare, names=named, expressions=expressions, task=task)
    return Prepared(rows=prepared_by(selected, run), lacking=frozenset(lacking))


def prepared_by(df: DataFrame, run: preparing.BatchFunction) -> DataFrame:
    """Return the parcels that executors make of the batches."""
    return df.mapInArrow(run, from_arrow_schema(parcels.SCHEMA))


def manifest_text(table: Table) -> str:
    """Return the table as text, as it travels to executors."""
    return json.dumps(manifest.dump(table))


def wrong_expression(error: PySparkException) -> InvalidInputError:
    """Return the error for a filter or derived column that Spark refuses."""
    return InvalidInputError(f"wrong filter or derived column: {first_line(error)}")


def _prepare(
    batches: Iterator[pa.RecordBatch], *, names: Sequence[str], expressions: Expressions, task: PrepareTask
) -> Iterator[pa.RecordBatch]:
    judged = (expressions.judge(_named(pa.Table.from_batches([batch]), names)) for batch in batches)
    yield from preparing.prepare(judged, task)


def _named(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows whose first columns have these names."""
    return rows.rename_columns([*names, *rows.column_names[len(names) :]])


def _readable(value: Column, kind: DataType, column: FieldSpec) -> Column:
    """Return a column that Arrow can carry, so that executors write the same text as for that value in a file. Arrow
    has no VARIANT, which becomes JSON. Raise InvalidInputError for a type that cannot be carried."""
    if isinstance(kind, VariantType):
        return F.to_json(value, {"timeZone": "UTC"})
    if (unread := _unread(kind)) is not None:
        raise InvalidInputError(
            f"a column of the DataFrame is of a type that is not read column={column.name} type={kind.simpleString()} "
            f"because of={unread}; cast it to text or a number, or leave it out"
        )
    return value


def _unread(kind: DataType) -> str | None:
    """Return the type, this one or one within it, whose values do not come through Arrow; None if all do."""
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    else:
        is_unread = isinstance(kind, VariantType | YearMonthIntervalType | CalendarIntervalType)
        return kind.simpleString() if is_unread else None
    return next((unread for unread in map(_unread, inner) if unread is not None), None)

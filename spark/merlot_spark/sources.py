"""Files of a batch source, read by executors: all of them use `merlot.ingest.source`, so that no row of a file passes
the JVM before it is conformed.

A filter and derived columns are SQL. Spark gets only the columns that they name: the rows wait in Arrow beside them,
and are combined with the results. For CSV and JSON lines, SQL sees columns of the table in the table's types, null
where a value does not fit, and all others as text; a column that is derived is text too.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from merlot.errors import InvalidInputError
from merlot.ingest.source import names, plan, reader
from merlot.ingest.source.plan import Request, SourcePiece, SourcePlan
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot_spark import preparing, sql_columns
from merlot_spark.expressions import Expressions, JudgedRows, check_repeatable, setting
from merlot_spark.frames import Prepared, prepared_by, wrong_expression
from merlot_spark.preparing import PrepareTask
from merlot_spark.sql_columns import WAITING, SqlColumns

TASKS_PER_CORE = 4
TASK_BYTES = 32 << 20
MAX_SHOWN = 30
PIECE = "piece"
AS_ROWS_OF_THE_PLAN = "spark.sql.execution.arrow.localRelationThreshold"
"""Setting: size in bytes above which each batch of an Arrow table becomes a task."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A batch source whose files were listed and checked."""

    spark: SparkSession
    planned: SourcePlan
    expressions: Expressions
    referenced: frozenset[str]
    """Columns that the expressions name."""

    def prepare(self, table: Table, task: PrepareTask) -> Prepared:
        """Prepare the source's rows. Raise InvalidInputError for expressions that Spark refuses."""
        request = self.planned.request
        if self.expressions.texts:
            rows = self._judged(table, task)
        else:
            rows = prepared_by(self._pieces(), partial(_prepare, request=request, task=task))
        lacking = request.columns.keys() - self.planned.types.keys()
        return Prepared(
            rows=rows,
            lacking=frozenset(lacking),
            needed=frozenset(lacking - set(table.spec.table_schema.names)),
            num_files=self.planned.num_files,
            empty_files=self.planned.empty_files,
        )

    def _pieces(self) -> DataFrame:
        """Return the pieces, a task for each batch. An RDD of Python's would start a daemon and workers of its own,
        which take 2 s of CPU."""
        pieces = self.planned.pieces
        least = TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism
        num_tasks = max(1, min(len(pieces), max(least, self.planned.num_bytes // TASK_BYTES)))
        texts = pa.array(map(pickle.dumps, pieces), pa.binary())
        bounds = [len(pieces) * task // num_tasks for task in range(num_tasks + 1)]
        parts = [texts.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
        with setting(self.spark, AS_ROWS_OF_THE_PLAN, "0"):
            return self.spark.createDataFrame(pa.table({PIECE: pa.chunked_array(parts)}))

    def _judged(self, table: Table, task: PrepareTask) -> DataFrame:
        columns = sql_columns.of(self.planned, table, self.expressions, self.referenced)
        show = partial(_show, request=self.planned.request, columns=columns)
        shown = self._pieces().mapInArrow(show, from_arrow_schema(columns.schema))
        try:
            tried = shown.select(WAITING, *self.expressions.columns(self.spark))
            _check_is_by_row(tried)
            check_repeatable(tried)
        except PySparkException as error:
            raise wrong_expression(error) from error
        return prepared_by(tried, partial(_prepare_judged, expressions=self.expressions, task=task))


def read(spark: SparkSession, source: BatchIngestion, table: Table) -> FileSource:
    """List and check a batch source. Raise NotFoundError if it has no file, InvalidInputError if a file cannot be read
    in its format, UnavailableError if the storage does not answer."""
    expressions = Expressions.of(source)
    try:
        referenced = expressions.references(spark)
    except PySparkException as error:
        raise wrong_expression(error) from error
    planned = plan.make(source, table.spec, sorted(referenced), expressions.derived)
    _check_names(planned, referenced)
    return FileSource(spark, planned, expressions, referenced)


def _check_names(planned: SourcePlan, referenced: Collection[str]) -> None:
    """Raise InvalidInputError if an expression names a column that no file has. JSON lines show their columns only when
    they are read."""
    if planned.request.format is BatchFormat.JSON:
        return
    if unknown := sorted(name for name in referenced if not names.alike(name, planned.types)):
        present = ", ".join(planned.present[:MAX_SHOWN]) + (", …" if len(planned.present) > MAX_SHOWN else "")
        raise InvalidInputError(
            f"wrong filter or derived column: the source has no column columns={unknown}; it has {present}"
        )


def _check_is_by_row(tried: DataFrame) -> None:
    """Raise InvalidInputError for expressions that look at other rows: the rows would not come back in their order."""
    analyzed = tried._jdf.queryExecution().analyzed()
    kinds = [node.getClass().getSimpleName() for node in (analyzed, analyzed.children().apply(0))]
    if kinds != ["Project", "MapInArrow"]:
        raise InvalidInputError(
            "wrong filter or derived column: it looks at more than one row; make a DataFrame of the source, and give "
            "that to build_segments"
        )


def _pieces_of(batches: Iterator[pa.RecordBatch]) -> Iterator[SourcePiece]:
    for batch in batches:
        yield from map(pickle.loads, batch.column(PIECE).to_pylist())


def _prepare(batches: Iterator[pa.RecordBatch], *, request: Request, task: PrepareTask) -> Iterator[pa.RecordBatch]:
    judged = map(JudgedRows, reader.read(request, _pieces_of(batches)))
    yield from preparing.prepare(judged, task)


def _show(batches: Iterator[pa.RecordBatch], *, request: Request, columns: SqlColumns) -> Iterator[pa.RecordBatch]:
    for rows in reader.read(request, _pieces_of(batches)):
        yield columns.show(rows)


def _prepare_judged(
    batches: Iterator[pa.RecordBatch], *, expressions: Expressions, task: PrepareTask
) -> Iterator[pa.RecordBatch]:
    judged = map(expressions.judge, sql_columns.recombined(batches))
    yield from preparing.prepare(judged, task)

"""Filters and derived columns: Spark SQL over a source's rows, tried for each row so that no row ends the job.

An expression that fails for a row ('abc' > 0, an overflow) makes it a bad row, which is counted under the expression's
name. The driver makes columns of expressions; executors read the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn

from merlot.errors import InvalidInputError
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, BadRows
from merlot.ingest.transform import CORRUPT_RECORD, bad_row
from merlot.spec.ingestion import BatchIngestion

TRIED = "__merlot_tried"
MOMENTS = frozenset({"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"})
"""Spark's classes of functions that return the time of the job; it calls them deterministic."""
HOISTING = "spark.sql.subexpressionElimination.enabled"


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Source rows that pass the filter, rows that do not, and rows for which an expression failed."""

    rows: pa.Table
    dropped: pa.Table | None = None
    bad: BadRows = field(default_factory=BadRows)

    @property
    def num_rows(self) -> int:
        """Return the number of all source rows."""
        return int(self.rows.num_rows) + (0 if self.dropped is None else self.dropped.num_rows) + self.bad.count


@dataclass(frozen=True, slots=True)
class Expressions:
    """A source's filter and derived columns."""

    filter: str | None = None
    derived: Mapping[str, str] = field(default_factory=dict)
    """Expressions by the column of the table that they fill."""

    @classmethod
    def of(cls, ingestion: BatchIngestion | None) -> Expressions:
        """Return the expressions of a batch source; no expressions without a source."""
        return cls() if ingestion is None else cls(ingestion.filter, ingestion.derived_columns)

    @property
    def texts(self) -> list[str]:
        """Return the filter, if there is one, and the derived columns."""
        return [*([] if self.filter is None else [self.filter]), *self.derived.values()]

    def columns(self, spark: SparkSession) -> list[Column]:
        """Return a column per expression: a struct of its value, null where the expression fails."""
        return [_tried(spark, F.expr(text)).alias(f"{TRIED}{place}") for place, text in enumerate(self.texts)]

    def references(self, spark: SparkSession) -> frozenset[str]:
        """Return the columns of the source that the expressions name. Raise Spark's error for a text that is no
        expression, InvalidInputError for a star, which names no column, and for a derived column that needs another
        one."""
        parser = spark._jsparkSession.sessionState().sqlParser()
        named = {text: frozenset(_names(parser.parseExpression(text))) for text in self.texts}
        for column, text in self.derived.items():
            folded = {name.lower() for name in named[text]}
            needed = [name for name in self.derived if name != column and name.lower() in folded]
            if needed:
                # Spark would read the source's column of that name, or nothing.
                raise InvalidInputError(
                    f"a derived column of a batch cannot need another column={column} needs={needed[0]}; write what "
                    f"{needed[0]} is worked out by instead of its name"
                )
        return frozenset().union(*named.values())

    def judge(self, rows: pa.Table) -> JudgedRows:
        """Return the rows, with derived columns in place of the expressions' results and divided by the filter."""
        if not self.texts:
            return JudgedRows(rows)
        source = rows.select([name for name in rows.column_names if not name.startswith(TRIED)])
        tried = [rows.column(f"{TRIED}{place}").combine_chunks() for place in range(len(self.texts))]
        # A line that is no record has no values to fail with.
        is_good = np.ones(rows.num_rows, dtype=bool)
        is_record = _is_null(rows.column(CORRUPT_RECORD)) if CORRUPT_RECORD in rows.column_names else is_good.copy()
        bad = BadRows()
        names = [*([] if self.filter is None else ["filter"]), *self.derived]
        for name, answers in zip(names, tried, strict=True):
            failed = _is_null(answers) & is_record & is_good
            bad += _failures(name, source, failed)
            is_good &= ~failed
        result = source
        for name, answers in zip(self.derived, tried[-len(self.derived) :], strict=False):
            result = _with_column(result, name, pc.struct_field(answers, 0))
        if self.filter is None:
            return JudgedRows(result.filter(pa.array(is_good)), None, bad)
        passes = np.asarray(pc.fill_null(pc.struct_field(tried[0], 0), False))
        return JudgedRows(result.filter(pa.array(is_good & passes)), result.filter(pa.array(is_good & ~passes)), bad)


def check_repeatable(selected: DataFrame) -> None:
    """Raise InvalidInputError if an expression gives the same row another value each time. Running the job again would
    replace every segment, and a stage that Spark repeats would mix the values of two runs."""
    columns = selected._jdf.queryExecution().analyzed().expressions()
    for place in range(columns.size()):
        if (name := _unrepeatable(columns.apply(place))) is not None:
            raise InvalidInputError(
                f"wrong filter or derived column: {name} gives a row another value each time; write the value itself, "
                "such as TIMESTAMP '2013-01-31', or give build_segments a DataFrame that has the column"
            )


def _unrepeatable(node: Any) -> str | None:
    """Return the innermost function that does not give the same value each time, or None."""
    children = node.children()
    for place in range(children.size()):
        if (name := _unrepeatable(children.apply(place))) is not None:
            return name
    is_moment = node.getClass().getSimpleName() in MOMENTS
    return str(node.prettyName()) if is_moment or not node.deterministic() else None


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session within the block."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def without_hoisting(spark: SparkSession) -> AbstractContextManager[None]:
    """Turn off Spark's elimination of common subexpressions, for a job that tries expressions. Spark would evaluate
    what occurs in two of them beforehand, and a failure there would end the job."""
    return setting(spark, HOISTING, "false")


def _tried(spark: SparkSession, value: Column) -> Column:
    """Return a struct of the value, null where it cannot be computed. ANSI rules apply, so that no value is
    invented."""
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    inner = sql.classic.ExpressionUtils.expression(F.struct(value.alias("value"))._jc)
    return ClassicColumn(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.TryEval(inner)))


def _names(node: Any) -> Iterator[str]:
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedAttribute":
        yield node.nameParts().apply(0)
    elif kind == "UnresolvedStar":
        raise InvalidInputError("wrong filter or derived column: name columns instead of *")
    children = node.children()
    for place in range(children.size()):
        yield from _names(children.apply(place))


def _failures(name: str, rows: pa.Table, failed: np.ndarray) -> BadRows:
    positions = np.flatnonzero(failed)
    if not len(positions):
        return BadRows()
    reason = f"{name}: the expression fails"
    samples: Sequence[Any] = [bad_row(reason, rows, int(row)) for row in positions[:SAMPLES_PER_REASON]]
    return BadRows({reason: len(positions)}, tuple(samples))


def _with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if place < 0 else rows.set_column(place, name, values)


def _is_null(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    is_null: np.ndarray = np.asarray(values.is_null())
    return is_null

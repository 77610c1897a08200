"""Check the parts of a stream's spec that need the engine: that its expressions can be bound and its decoder made."""

from __future__ import annotations

from typing import Final

from merlot.errors import InvalidInputError
from merlot.ingest import row_expressions
from merlot.ingest.stream import Pipeline
from merlot.spec.manifest import ManifestProblem
from merlot.spec.table import TableSpec

_PATH: Final = "spec.ingestion.stream"


def problems_of(table: TableSpec) -> list[ManifestProblem]:
    """Return the reasons why a server could make no rows of the stream's messages; empty if the table has no stream."""
    stream = table.ingestion.stream
    if stream is None:
        return []
    wrong = row_expressions.problems(table.table_schema, stream.filter, stream.derived_columns)
    if wrong:
        return [ManifestProblem(_path(expression.column), expression.reason) for expression in wrong]
    try:
        Pipeline(table, stream, 0)
    except InvalidInputError as error:
        # Servers may have a library that this process lacks.
        return [] if isinstance(error.__cause__, ImportError) else [ManifestProblem(f"{_PATH}.decoder", str(error))]
    return []


def _path(column: str | None) -> str:
    return f"{_PATH}.filter" if column is None else f"{_PATH}.derivedColumns.{column}"

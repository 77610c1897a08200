"""Part of an answer, between tasks and nodes: an Arrow table, or few rows as plain values.

Building and reading Arrow for one row of sums costs several times what the sums cost. Such rows therefore stay plain
values from the server's execution to the broker's answer, and become a table only for code that needs one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from merlot.query.answer.result import QueryStats


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows by column, as values that `pa.array` takes for the schema's types."""

    schema: pa.Schema
    columns: tuple[list[Any], ...]

    @property
    def num_rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @property
    def nbytes(self) -> int:
        """Letters of the texts, and eight bytes for each other value."""
        return sum([len(value) if isinstance(value, str) else 8 for values in self.columns for value in values])

    def to_table(self) -> pa.Table:
        """Return the same rows as a table."""
        arrays = [pa.array(values, field.type) for values, field in zip(self.columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class Partial:
    """Slots of a leaf as columns, and the statistics of the query."""

    content: pa.Table | PlainRows
    stats: QueryStats

    @property
    def data(self) -> pa.Table:
        """The rows as a table."""
        return self.content.to_table() if isinstance(self.content, PlainRows) else self.content

    @property
    def num_rows(self) -> int:
        num_rows: int = self.content.num_rows
        return num_rows

    @property
    def nbytes(self) -> int:
        """Size of the rows."""
        nbytes: int = self.content.nbytes
        return nbytes

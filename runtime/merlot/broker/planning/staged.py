"""Bind a query of several stages, and cut it into leaves and a query for the engine above them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from merlot.broker.tables import ServedTable
from merlot.broker.view_keys import seen
from merlot.errors import NotFoundError
from merlot.functions.instants import Moment
from merlot.ids import TableName, raw_name
from merlot.query.plan.binding import folding
from merlot.query.stages.engine_sql import EngineQuery, engine_query
from merlot.query.stages.key_filters import KeyFilter
from merlot.query.stages.leaves import StageLeaf, cut
from merlot.query.stages.rewrites.rules import RewriteResult
from merlot.security.access import AccessView
from merlot.security.views import Views
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec
from merlot.sql.bind import merge_options
from merlot.sql.budget import Budget
from merlot.sql.parse import ParsedStatement
from merlot.sql.query_options import with_nulls
from merlot.sql.stages.bind import StageContext, bind_statement
from merlot.tree.relations import Statement

MULTISTAGE_OPTION = "useMultistageEngine"


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """Table that a plan was made for. It is no ServedTable: a cached plan would keep the routes of its moment in
    memory."""

    name: TableName
    spec: TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStages:
    """A bound statement, cut into leaves."""

    statement: Statement
    """The statement over leaves."""
    leaves: Mapping[str, StageLeaf]
    engine: EngineQuery
    tables: Mapping[str, PlannedTable]
    """Tables by name as written. All plans of a table use this spec of it."""
    rewrites: RewriteResult
    """Rewriting of the statement before it was cut."""
    direct: StageLeaf | None = None
    """The leaf that answers the statement without the engine; None if the engine is needed."""
    filters: tuple[KeyFilter, ...] = ()
    """Filters of leaves by the keys of others, which hold if those are asked first."""
    views: Mapping[str, AccessView] = field(default_factory=dict)
    """Views of the tables that the asker does not see whole, by name as written."""


@dataclass(frozen=True, slots=True)
class ServedSizes:
    """Sizes of tables, by the statistics of their sealed segments; implements `sizes.TableSizes`."""

    tables: Mapping[str, ServedTable]

    def num_rows(self, table: str) -> int | None:
        """Return the docs of the sealed segments that queries see."""
        distincts = self.tables[table].distincts
        return None if distincts is None else distincts.num_docs

    def num_groups(self, table: str, columns: Collection[str]) -> int | None:
        """Return an upper bound for the groups of these segments; None if the table limits groups: open segments have
        groups too, and a plan outlives its estimates, so that a query could fail that asked for no groups."""
        distincts, max_groups = self.tables[table].distincts, self.tables[table].spec.limits.max_groups
        return None if distincts is None or max_groups is not None else distincts.num_groups(columns)


def wants_stages(options: Mapping[str, str], parsed: ParsedStatement) -> bool:
    """Return True if a query asks to be answered as Pinot's multi-stage engine would."""
    merged = {name.lower(): value for name, value in [*options.items(), *parsed.options]}
    return merged.get(MULTISTAGE_OPTION.lower(), "").lower() == "true"


def bind_stages(
    parsed: ParsedStatement,
    options: Mapping[str, str],
    find_table: Callable[[str], ServedTable | None],
    moment: Moment,
    budget: Budget,
    views: Views | None = None,
) -> BoundStages:
    """Bind and cut a statement. Raise the errors of binding, NotFoundError for an unknown table, and AccessDeniedError
    for one that must not be queried."""
    tables: dict[str, ServedTable] = {}
    restricted: dict[str, AccessView] = {}

    def find_schema(name: str) -> TableSchema:
        table = tables.get(name) or find_table(name)
        view = seen(views, name if table is None else table.name)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(name)}")
        table.check_spelled(name)
        tables[name] = table
        if not view.is_whole:
            restricted[name] = view
        return table.schema

    context = StageContext(
        find_schema=find_schema, views=restricted, fold=folding(budget), moment=moment, budget=budget
    )
    statement = bind_statement(parsed, context, options)
    null_handling = any(table.spec.null_handling for table in tables.values())
    nulls = with_nulls(dict(statement.options), null_handling=null_handling)
    staged = cut(replace(statement, options=merge_options(nulls, ())), budget, ServedSizes(tables))
    return BoundStages(
        statement=staged.statement,
        leaves=staged.leaves,
        engine=engine_query(staged.statement, budget),
        tables={name: PlannedTable(table.name, table.spec) for name, table in tables.items()},
        rewrites=staged.rewrites,
        direct=staged.direct,
        filters=staged.filters,
        views=restricted,
    )

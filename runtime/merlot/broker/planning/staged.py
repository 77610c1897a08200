"""A query of more than one stage as plans of its leaves and a query for the engine above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from merlot.broker.tables import ServedTable
from merlot.errors import NotFoundError
from merlot.functions.instants import Moment
from merlot.ids import raw_name
from merlot.query.plan.binding import folding
from merlot.query.stages.engine_sql import EngineQuery, engine_query
from merlot.query.stages.leaves import StageLeaf, cut
from merlot.query.stages.rewrites.rules import RewriteResult
from merlot.spec.schema import TableSchema
from merlot.sql.bind import merge_options
from merlot.sql.budget import Budget
from merlot.sql.parse import ParsedStatement
from merlot.sql.query_options import with_nulls
from merlot.sql.stages.bind import StageContext, bind_statement
from merlot.tree.relations import Statement

MULTISTAGE_OPTION = "useMultistageEngine"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStages:
    """A statement whose names are found, cut into leaves."""

    statement: Statement
    """Over leaves."""
    leaves: Mapping[str, StageLeaf]
    engine: EngineQuery
    tables: Mapping[str, ServedTable]
    """By name as written, one state of each for all that is planned of it."""
    rewrites: RewriteResult
    """Rewriting of the statement before it was cut."""
    direct: StageLeaf | None = None
    """The leaf that answers the statement without the engine."""


def wants_stages(options: Mapping[str, str], parsed: ParsedStatement) -> bool:
    """Whether a query asks to be answered as Pinot's multi-stage engine would."""
    merged = {name.lower(): value for name, value in [*options.items(), *parsed.options]}
    return merged.get(MULTISTAGE_OPTION.lower(), "").lower() == "true"


def bind_stages(
    parsed: ParsedStatement,
    options: Mapping[str, str],
    find_table: Callable[[str], ServedTable | None],
    moment: Moment,
    budget: Budget,
) -> BoundStages:
    """The leaves and what is above them; raises as binding does, NotFoundError for an unknown table."""
    tables: dict[str, ServedTable] = {}

    def find_schema(name: str) -> TableSchema:
        table = tables.get(name) or find_table(name)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(name)}")
        table.check_spelled(name)
        tables[name] = table
        return table.schema

    context = StageContext(find_schema=find_schema, fold=folding(budget), moment=moment, budget=budget)
    statement = bind_statement(parsed, context, options)
    nulls = with_nulls(dict(statement.options), null_handling=any(one.spec.null_handling for one in tables.values()))
    made = cut(replace(statement, options=merge_options(nulls, ())))
    return BoundStages(
        statement=made.statement,
        leaves=made.leaves,
        engine=engine_query(made.statement),
        tables=tables,
        rewrites=made.rewrites,
        direct=made.direct,
    )

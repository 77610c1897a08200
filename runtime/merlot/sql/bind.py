"""A parsed query against a table's schema: names to columns, types, the rules of grouping, and options.

Pure and safe on any thread. What comes out (`tree.nodes.BoundQuery`) is all that planning needs; the syntax ends here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from merlot.aggregates import registry as aggregates
from merlot.aggregates.projections import together
from merlot.functions import registry
from merlot.functions.instants import Moment
from merlot.ids import raw_name
from merlot.spec.schema import TableSchema
from merlot.sql import limits, query_options
from merlot.sql.budget import Budget
from merlot.sql.expressions import Binder, Fold, has_aggregate
from merlot.sql.labels import LabelNames, label, literal_label
from merlot.sql.logic import without_null_verdict
from merlot.sql.parse import ParsedQuery
from merlot.sql.scope import Scope
from merlot.sql.syntax import Alias, Node, Number, Ordered, Select, Star, Table
from merlot.sql.syntax import Column as ColumnNode
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import TRUE, Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output

DEFAULT_LIMIT = 10


def bind(
    parsed: ParsedQuery,
    schema: TableSchema | None,
    options: Mapping[str, str] | None = None,
    *,
    fold: Fold,
    moment: Moment | None = None,
    budget: Budget | None = None,
) -> BoundQuery:
    """The query with every name resolved and every expression typed.

    `options` come with the request; those in the text win. `schema` is None for a SELECT without FROM. `fold` gives
    calls of constants their values, `moment` is when the query is asked. Raises UnknownColumnError, SqlValidationError,
    QueryOptionError, UnsupportedSqlError.
    """
    merged = merge_options(options or {}, parsed.options)
    query_options.check(merged)
    query = BoundQuery(parsed.table or "", (), options=merged, explain=parsed.explain)
    select = parsed.select
    scope = Scope(parsed.table, schema, _qualifiers(select))
    binder = Binder(scope, fold, moment, query.null_handling, budget=budget or Budget())
    outputs, aliases = _bind_outputs(select.items, binder, scope)
    scope = replace(scope, aliases=aliases)
    later = replace(binder, scope=scope, aliases_first=True)
    query = replace(
        query,
        select=outputs,
        distinct=select.is_distinct,
        where=bind_where(select.where, replace(binder, scope=scope)),
        group_by=bind_group_by(select.group, outputs, later),
        having=None if select.having is None else replace(later, place="HAVING").condition(select.having),
        order_by=bind_order_by(select.order, outputs, later),
        limit=DEFAULT_LIMIT if select.limit is None else select.limit,
        offset=select.offset,
    )
    _check(query)
    return query


def merge_options(request: Mapping[str, str], text: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Options of a request and of a text by name; the text wins."""
    merged = {name.lower(): (name, value) for name, value in [*request.items(), *text]}
    return tuple(sorted(merged.values()))


def _qualifiers(select: Select) -> frozenset[str]:
    source = select.source
    if not isinstance(source, Table):
        return frozenset()
    name = source.name.rpartition(".")[2]
    return frozenset(known.lower() for known in (name, source.alias, raw_name(name)) if known)


def _bind_outputs(nodes: Sequence[Node], binder: Binder, scope: Scope) -> tuple[tuple[Output, ...], dict[str, Expr]]:
    outputs: list[Output] = []
    aliases: dict[str, Expr] = {}
    for node in nodes:
        if isinstance(node, Star):
            outputs.extend(Output(column.name, column) for column in scope.all_columns(node.qualifier))
            if len(outputs) > limits.MAX_ITEMS and len(nodes) > 1:
                raise SqlValidationError(f"too many columns in SELECT got={len(outputs)} limit={limits.MAX_ITEMS}")
            continue
        if isinstance(node, Alias):
            expr = binder.bind(node.value)
            aliases.setdefault(node.name, expr)
            outputs.append(Output(node.name, expr))
            continue
        expr = binder.bind(node)
        outputs.append(Output(_label(node, binder, scope), expr))
    if all(isinstance(output.expr, Literal) for output in outputs):
        outputs = list(map(_of_constants, nodes, outputs))
    return _rows_together(outputs), aliases


def _of_constants(node: Node, output: Output) -> Output:
    """A constant of a query that selects nothing else, which Pinot labels in a way of its own."""
    if isinstance(node, Alias) or not isinstance(output.expr, Literal):
        return output
    return Output(literal_label(output.expr), output.expr)


def _rows_together(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Aggregates that give rows, told of one another: rows with the same measures stay together."""
    found = {place: output.expr for place, output in enumerate(outputs) if _gives_rows(output.expr)}
    if not found:
        return tuple(outputs)
    made = dict(zip(found, together([expr for expr in found.values() if isinstance(expr, Aggregate)]), strict=True))
    return tuple(Output(output.label, made.get(place, output.expr)) for place, output in enumerate(outputs))


def _gives_rows(expr: Expr) -> bool:
    return isinstance(expr, Aggregate) and aggregates.named(expr.function).gives_rows


def _label(node: Node, binder: Binder, scope: Scope) -> str:
    def column_name(column: ColumnNode) -> str:
        found = scope.named(column.name, column.qualifier)
        return found.name if isinstance(found, Column) else column.name

    def constant(part: Node) -> Literal | None:
        found = binder.bind(part)
        return found if isinstance(found, Literal) else None

    def is_list(column: ColumnNode) -> bool:
        found = scope.named(column.name, column.qualifier)
        return found is not None and found.type.is_array

    return label(node, LabelNames(column_name, constant, is_list, binder.nulls))


def bind_where(where: Node | None, binder: Binder) -> Expr | None:
    """The filter, None if it keeps every row."""
    if where is None:
        return None
    bound = replace(binder, place="WHERE", allows_aggregates=False).condition(where)
    bound = without_null_verdict(bound)
    return None if bound == TRUE else bound


def bind_group_by(nodes: Sequence[Node], outputs: Sequence[Output], binder: Binder) -> tuple[Expr, ...]:
    """Distinct keys."""
    clause = replace(binder, place="GROUP BY", allows_aggregates=False)
    keys: dict[Expr, None] = {}
    for node in nodes:
        position = ordinal(node, outputs, "GROUP BY")
        bound = position.expr if position is not None else clause.bind(node)
        if has_aggregate(bound):
            raise SqlParseError("GROUP BY cannot use an aggregate")
        keys[bound] = None
    return tuple(keys)


def bind_order_by(nodes: Sequence[Ordered], outputs: Sequence[Output], binder: Binder) -> tuple[OrderKey, ...]:
    """Distinct keys, first ones first."""
    clause = replace(binder, place="ORDER BY")
    keys: dict[Expr, OrderKey] = {}
    for node in nodes:
        position = ordinal(node.value, outputs, "ORDER BY")
        bound = position.expr if position is not None else clause.bind(node.value)
        keys.setdefault(bound, OrderKey(bound, not node.is_descending, not node.nulls_first))
    return tuple(keys.values())


def ordinal(node: Node, outputs: Sequence[Output], place: str) -> Output | None:
    """The SELECT item a bare whole number points to."""
    if not isinstance(node, Number) or not node.text.isdigit():
        return None
    position = int(node.text)
    if not 1 <= position <= len(outputs):
        raise SqlParseError(f"{place} position out of range position={position} columns={len(outputs)}")
    return outputs[position - 1]


def _check(query: BoundQuery) -> None:
    """Rules between clauses: what may be selected and ordered by when rows are grouped."""
    aggregated = bool(query.group_by) or _any_aggregate(query)
    if query.distinct:
        _check_distinct(query)
    if aggregated:
        keys = frozenset(query.group_by)
        for output in query.select:
            _check_grouped(output.expr, keys, "SELECT")
        for key in query.order_by:
            _check_grouped(key.expr, keys, "ORDER BY")
            if key.expr.type.is_array and key.expr not in keys:
                raise SqlValidationError(f"ORDER BY of a list that an aggregate answers type={key.expr.type}")
        if query.having is not None:
            _check_grouped(query.having, keys, "HAVING")
    elif query.having is not None:
        raise SqlValidationError("HAVING needs GROUP BY or an aggregate")
    elif not query.distinct:
        _check_selection(query)


def _any_aggregate(query: BoundQuery) -> bool:
    expressions = [*(output.expr for output in query.select), *(key.expr for key in query.order_by)]
    if query.having is not None:
        expressions.append(query.having)
    return any(has_aggregate(expr) for expr in expressions)


def _check_distinct(query: BoundQuery) -> None:
    selected = {output.expr for output in query.select}
    if any(key.expr not in selected for key in query.order_by):
        raise SqlParseError("ORDER BY of a SELECT DISTINCT must be among the selected expressions")
    for expr in selected:
        if _gives_rows(expr):
            raise UnsupportedSqlError("SELECT DISTINCT of an aggregate that gives rows")
        if expr.type.is_array and expr not in query.group_by and has_aggregate(expr):
            raise SqlValidationError(f"SELECT DISTINCT of a list that an aggregate answers type={expr.type}")


def _check_grouped(expr: Expr, keys: frozenset[Expr], place: str) -> None:
    if _gives_rows(expr) and place != "SELECT":
        raise UnsupportedSqlError(f"{place} of an aggregate that gives rows")
    if expr in keys or isinstance(expr, Literal | Aggregate):
        return
    if isinstance(expr, Column):
        raise SqlParseError(f"{place} uses a column that is neither grouped nor aggregated column={expr.name}")
    assert isinstance(expr, Call)
    if any(map(_gives_rows, expr.args)):
        raise UnsupportedSqlError(f"an aggregate that gives rows inside of {expr.function.upper()}")
    for position, arg in enumerate(expr.args):
        if arg in keys and registry.of(expr).wants_list(position):
            problem = f"{place} needs a list of which GROUP BY takes each value function={expr.function}"
            raise SqlValidationError(problem)
        _check_grouped(arg, keys, place)


def _check_selection(query: BoundQuery) -> None:
    for key in query.order_by:
        if key.expr.type.is_array:
            raise SqlValidationError(f"ORDER BY of a multi-value column type={key.expr.type}")

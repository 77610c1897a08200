"""Bind a parsed query to a table's schema: resolve names, infer types, and check options and the rules of grouping.

Pure and safe on any thread. The result (`tree.nodes.BoundQuery`) is all that planning needs; no later step sees the
syntax tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from merlot.aggregates import registry as aggregates
from merlot.aggregates.projections import together
from merlot.functions import registry
from merlot.ids import raw_name
from merlot.security.access import WHOLE_TABLE, AccessView
from merlot.spec.schema import TableSchema
from merlot.sql import limits, query_options
from merlot.sql.boolean_logic import without_null_verdict
from merlot.sql.budget import Budget
from merlot.sql.expressions import Binder, has_aggregate
from merlot.sql.labels import LabelNames, label, literal_label
from merlot.sql.parse import ParsedQuery
from merlot.sql.scope import Scope
from merlot.sql.syntax import Alias, Node, Number, Ordered, Select, Star, Table, bare
from merlot.sql.syntax import Column as ColumnNode
from merlot.sql.views import BindContext, visible_columns
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import TRUE, Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output

DEFAULT_LIMIT = 10


def bind(
    parsed: ParsedQuery,
    schema: TableSchema | None,
    options: Mapping[str, str] | None = None,
    *,
    context: BindContext,
    view: AccessView = WHOLE_TABLE,
) -> BoundQuery:
    """Return the query with every name resolved and every expression typed.

    `options` come with the request; those in the text win. `schema` is None for a SELECT without FROM. `view` decides
    which columns exist, and what stands for them; its row filter is joined to the query's when that is planned. Raise
    QueryOptionError, UnusableViewError, the errors of `tree.errors` and those of the budget."""
    merged = merge_options(options or {}, parsed.options)
    query_options.check(merged)
    query = BoundQuery(parsed.table or "", (), options=merged, explain=parsed.explain)
    select = parsed.select
    scope = Scope(parsed.table, schema, _qualifiers(select))
    if schema is not None and not view.is_whole:
        seen = visible_columns(view, query.table, schema, context, nulls=query.null_handling)
        scope = replace(scope, schema=seen.schema, masks=seen.masks, has_virtual_columns=False)
    budget = context.budget or Budget()
    binder = Binder(scope, context.fold, context.moment, query.null_handling, budget=budget)
    outputs, aliases = _bind_outputs(select.items, binder, scope)
    scope = replace(scope, aliases=aliases)
    clause_binder = replace(binder, scope=scope, aliases_first=True)
    query = replace(
        query,
        select=outputs,
        distinct=select.is_distinct,
        where=bind_where(select.where, replace(binder, scope=scope)),
        group_by=bind_group_by(select.group, outputs, clause_binder),
        having=None if select.having is None else replace(clause_binder, place="HAVING").condition(select.having),
        order_by=bind_order_by(select.order, outputs, clause_binder),
        limit=DEFAULT_LIMIT if select.limit is None else select.limit,
        offset=select.offset,
    )
    _check(query)
    return query


def merge_options(request: Mapping[str, str], text: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Merge the options of a request and of a text by name; the text wins."""
    merged = {name.lower(): (name, value) for name, value in [*request.items(), *text]}
    return tuple(sorted(merged.values()))


def _qualifiers(select: Select) -> frozenset[str]:
    source = select.source
    if not isinstance(source, Table):
        return frozenset()
    name = source.name.rpartition(".")[2]
    return frozenset(qualifier.lower() for qualifier in (name, source.alias, raw_name(name)) if qualifier)


def _bind_outputs(nodes: Sequence[Node], binder: Binder, scope: Scope) -> tuple[tuple[Output, ...], dict[str, Expr]]:
    outputs: list[Output] = []
    aliases: dict[str, Expr] = {}
    for node in nodes:
        if isinstance(node, Star):
            outputs.extend(Output(name, expr) for name, expr in scope.all_columns(node.qualifier))
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
    if not scope.masks and all(isinstance(output.expr, Literal) for output in outputs):
        outputs = list(map(_relabeled, nodes, outputs))
    return _with_combined_rows(outputs), aliases


def _relabeled(node: Node, output: Output) -> Output:
    """Relabel a constant of a query that selects only constants, as Pinot does."""
    if isinstance(node, Alias) or not isinstance(output.expr, Literal):
        return output
    return Output(literal_label(output.expr), output.expr)


def _with_combined_rows(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Combine aggregates that give rows (EXPR_MIN, EXPR_MAX): those with the same measures give values of the same
    rows."""
    row_exprs = {position: output.expr for position, output in enumerate(outputs) if _gives_rows(output.expr)}
    if not row_exprs:
        return tuple(outputs)
    combined = together([expr for expr in row_exprs.values() if isinstance(expr, Aggregate)])
    replaced = dict(zip(row_exprs, combined, strict=True))
    return tuple(Output(output.label, replaced.get(position, output.expr)) for position, output in enumerate(outputs))


def _gives_rows(expr: Expr) -> bool:
    return isinstance(expr, Aggregate) and aggregates.named(expr.function).gives_rows


def _label(node: Node, binder: Binder, scope: Scope) -> str:
    def column_name(column: ColumnNode) -> str:
        return scope.spelling(column.name, column.qualifier)

    def constant(part: Node) -> Literal | None:
        expr = binder.bind(part)
        return expr if isinstance(expr, Literal) else None

    def is_list(column: ColumnNode) -> bool:
        expr = scope.named(column.name, column.qualifier)
        return expr is not None and expr.type.is_array

    return label(node, LabelNames(column_name, constant, is_list, binder.nulls))


def bind_where(where: Node | None, binder: Binder) -> Expr | None:
    """Return the filter; None if it keeps every row."""
    if where is None:
        return None
    bound = replace(binder, place="WHERE", allows_aggregates=False).condition(where)
    bound = without_null_verdict(bound)
    return None if bound == TRUE else bound


def bind_group_by(nodes: Sequence[Node], outputs: Sequence[Output], binder: Binder) -> tuple[Expr, ...]:
    """Return the distinct keys of GROUP BY. A name by itself is an alias first, a name in an expression a column: tools
    group `TRIM(name) AS name` by `TRIM(name)`."""
    clause = replace(binder, place="GROUP BY", allows_aggregates=False)
    inner = replace(clause, aliases_first=False)
    keys: dict[Expr, None] = {}
    for node in nodes:
        item = ordinal(node, outputs, "GROUP BY")
        bound = item.expr if item is not None else (clause if isinstance(bare(node), ColumnNode) else inner).bind(node)
        if has_aggregate(bound):
            raise SqlParseError("GROUP BY cannot use an aggregate")
        keys[bound] = None
    return tuple(keys)


def bind_order_by(nodes: Sequence[Ordered], outputs: Sequence[Output], binder: Binder) -> tuple[OrderKey, ...]:
    """Return the distinct keys of ORDER BY. A repeated key counts only where it first occurs."""
    clause = replace(binder, place="ORDER BY")
    keys: dict[Expr, OrderKey] = {}
    for node in nodes:
        item = ordinal(node.value, outputs, "ORDER BY")
        bound = item.expr if item is not None else clause.bind(node.value)
        keys.setdefault(bound, OrderKey(bound, not node.is_descending, not node.nulls_first))
    return tuple(keys.values())


def ordinal(node: Node, outputs: Sequence[Output], place: str) -> Output | None:
    """Return the SELECT item that a bare whole number names; None for any other expression."""
    if not isinstance(node, Number) or not node.text.isdigit():
        return None
    position = int(node.text[:20])
    if not 1 <= position <= len(outputs):
        raise SqlParseError(f"{place} position out of range position={position} columns={len(outputs)}")
    return outputs[position - 1]


def _check(query: BoundQuery) -> None:
    """Check the rules between clauses: the expressions that may be selected and ordered by when rows are grouped."""
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

"""A parsed query against a table's schema: names to columns, types, the rules of grouping, and options.

Pure and safe on any thread. What comes out (`tree.nodes.BoundQuery`) is all that planning needs; sqlglot ends here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from merlot.aggregates import registry as aggregates
from merlot.aggregates.projections import together
from merlot.functions import registry
from merlot.functions.instants import Moment
from merlot.ids import raw_name
from merlot.spec.schema import TableSchema
from merlot.sql import limits, query_options
from merlot.sql.budget import Budget
from merlot.sql.expressions import Binder, Fold, has_aggregate, qualifier_of
from merlot.sql.labels import LabelNames, label, literal_label
from merlot.sql.logic import without_null_verdict
from merlot.sql.parse import ParsedQuery
from merlot.sql.scope import Scope
from merlot.tree import literals
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import TRUE, Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output

DEFAULT_LIMIT = 10
MAX_LIMIT = literals.INT_MAX


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
    outputs, aliases = _bind_outputs(select.expressions, binder, scope)
    scope = replace(scope, aliases=aliases)
    later = replace(binder, scope=scope, aliases_first=True)
    having, order = select.args.get("having"), select.args.get("order")
    limit, offset = limit_and_offset(select)
    query = replace(
        query,
        select=outputs,
        distinct=is_distinct(select),
        where=bind_where(select.args.get("where"), replace(binder, scope=scope)),
        group_by=bind_group_by(select.args.get("group"), outputs, later),
        having=replace(later, place="HAVING").condition(having.this) if having is not None else None,
        order_by=bind_order_by(order, outputs, later),
        limit=limit,
        offset=offset,
    )
    _check(query)
    return query


def merge_options(request: Mapping[str, str], text: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Options of a request and of a text by name; the text wins."""
    merged = {name.lower(): (name, value) for name, value in [*request.items(), *text]}
    return tuple(sorted(merged.values()))


def _qualifiers(select: exp.Select) -> frozenset[str]:
    source = select.args.get("from_")
    if source is None:
        return frozenset()
    names = (source.this.name, source.this.alias, raw_name(source.this.name))
    return frozenset(name.lower() for name in names if name)


def _bind_outputs(
    nodes: Sequence[exp.Expr], binder: Binder, scope: Scope
) -> tuple[tuple[Output, ...], dict[str, Expr]]:
    outputs: list[Output] = []
    aliases: dict[str, Expr] = {}
    for node in nodes:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            if isinstance(node, exp.Star) and any(node.args.values()):
                raise UnsupportedSqlError("SELECT * with EXCEPT, REPLACE or RENAME")
            qualifier = qualifier_of(node) if isinstance(node, exp.Column) else ""
            outputs.extend(Output(column.name, column) for column in scope.all_columns(qualifier))
            if len(outputs) > limits.MAX_ITEMS and len(nodes) > 1:
                raise SqlValidationError(f"too many columns in SELECT got={len(outputs)} limit={limits.MAX_ITEMS}")
            continue
        if isinstance(node, exp.Alias):
            expr = binder.bind(node.this)
            aliases.setdefault(node.alias, expr)
            outputs.append(Output(node.alias, expr))
            continue
        expr = binder.bind(node)
        outputs.append(Output(_label(node, binder, scope), expr))
    if not outputs:
        raise SqlParseError("SELECT needs at least one expression")
    if all(isinstance(output.expr, Literal) for output in outputs):
        outputs = list(map(_of_constants, nodes, outputs))
    return _rows_together(outputs), aliases


def _of_constants(node: exp.Expr, output: Output) -> Output:
    """A constant of a query that selects nothing else, which Pinot labels in a way of its own."""
    if isinstance(node, exp.Alias) or not isinstance(output.expr, Literal):
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


def _label(node: exp.Expr, binder: Binder, scope: Scope) -> str:
    def column_name(column: exp.Column) -> str:
        found = scope.named(column.name, qualifier_of(column))
        return found.name if isinstance(found, Column) else str(column.name)

    def constant(part: exp.Expr) -> Literal | None:
        found = binder.bind(part)
        return found if isinstance(found, Literal) else None

    def is_list(column: exp.Column) -> bool:
        found = scope.named(column.name, qualifier_of(column))
        return found is not None and found.type.is_array

    return label(node, LabelNames(column_name, constant, is_list, binder.nulls))


def is_distinct(select: exp.Select) -> bool:
    """Whether it is SELECT DISTINCT."""
    distinct = select.args.get("distinct")
    if distinct is None:
        return False
    if distinct.args.get("on"):
        raise UnsupportedSqlError("DISTINCT ON")
    return True


def bind_where(where: exp.Where | None, binder: Binder) -> Expr | None:
    """The filter, None if it keeps every row."""
    if where is None:
        return None
    bound = replace(binder, place="WHERE", allows_aggregates=False).condition(where.this)
    bound = without_null_verdict(bound)
    return None if bound == TRUE else bound


def bind_group_by(group: exp.Group | None, outputs: Sequence[Output], binder: Binder) -> tuple[Expr, ...]:
    """Distinct keys."""
    if group is None:
        return ()
    for name, value in group.args.items():
        if value and name != "expressions":
            raise UnsupportedSqlError(f"GROUP BY {name.strip('_').upper()}")
    clause = replace(binder, place="GROUP BY", allows_aggregates=False)
    keys: dict[Expr, None] = {}
    for node in group.expressions:
        position = ordinal(node, outputs, "GROUP BY")
        bound = position.expr if position is not None else clause.bind(node)
        if has_aggregate(bound):
            raise SqlParseError("GROUP BY cannot use an aggregate")
        keys[bound] = None
    return tuple(keys)


def bind_order_by(order: exp.Order | None, outputs: Sequence[Output], binder: Binder) -> tuple[OrderKey, ...]:
    """Distinct keys, first ones first."""
    if order is None:
        return ()
    clause = replace(binder, place="ORDER BY")
    keys: dict[Expr, OrderKey] = {}
    for node in order.expressions:
        position = ordinal(node.this, outputs, "ORDER BY")
        bound = position.expr if position is not None else clause.bind(node.this)
        keys.setdefault(bound, OrderKey(bound, not node.args.get("desc"), not node.args.get("nulls_first")))
    return tuple(keys.values())


def ordinal(node: exp.Expr, outputs: Sequence[Output], place: str) -> Output | None:
    """The SELECT item a bare whole number points to."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    position = int(node.this)
    if not 1 <= position <= len(outputs):
        raise SqlParseError(f"{place} position out of range position={position} columns={len(outputs)}")
    return outputs[position - 1]


def limit_and_offset(query: exp.Query, default: int = DEFAULT_LIMIT) -> tuple[int, int]:
    """LIMIT and OFFSET of a query."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    count = default
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise UnsupportedSqlError("FETCH with PERCENT or TIES")
        count = _whole_number(limit.args.get("count"), "FETCH")
    elif limit is not None:
        if limit.args.get("expressions") or limit.args.get("offset"):
            raise UnsupportedSqlError("LIMIT BY")
        count = _whole_number(limit.args["expression"], "LIMIT")
    return count, _whole_number(offset.args["expression"], "OFFSET") if offset is not None else 0


def _whole_number(node: exp.Expr | None, place: str) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        raise SqlParseError(f"{place} needs a whole number that is not negative")
    value = int(node.this[:20])
    if value > MAX_LIMIT:
        raise SqlValidationError(f"{place} out of range value={node.this[:20]} limit={MAX_LIMIT}")
    return value


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

"""A tree of sqlglot as nodes of our own: the two readers of SQL are compared by it as long as there are two."""

from typing import Any

from sqlglot import exp

from merlot.sql import lists, syntax
from merlot.sql.chains import Chain, joined
from merlot.sql.labels import OPERATOR_NAMES
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError

_OPERATIONS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class UnknownFormError(Exception):
    """The tree has a node that no query here may have."""


def converted(node: Any) -> Any:
    """The node, and all below it."""
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(node)
    if isinstance(node, _OPERATIONS):
        return syntax.Operation(OPERATOR_NAMES[type(node)], converted(node.this), converted(node.expression))
    if isinstance(node, _COMPARISONS):
        return syntax.Comparison(OPERATOR_NAMES[type(node)], converted(node.this), converted(node.expression))
    raise UnknownFormError(type(node).__name__)


def _all(nodes: Any) -> list[Any]:
    return [converted(node) for node in nodes or ()]


def _optional(node: Any) -> Any:
    return None if node is None else converted(node)


def _column(node: Any) -> Any:
    names = [part.name for part in node.parts]
    qualifier = names[:-1]
    qualifier = ".".join(qualifier[1:] if qualifier[:1] == ["default"] else qualifier)
    if isinstance(node.this, exp.Star):
        return syntax.Star(qualifier)
    return syntax.Column(names[-1], qualifier, bool(node.this.args.get("quoted")))


def _star(node: Any) -> Any:
    if any(node.args.values()):
        raise UnsupportedSqlError("SELECT * with EXCEPT, REPLACE or RENAME")
    return syntax.Star()


def _literal(node: Any) -> Any:
    return syntax.Text(node.this) if node.is_string else syntax.Number(node.this)


def _connector(kind: Any, wanted: Any) -> Any:
    def convert(node: Any) -> Any:
        parts = []
        while type(node) is kind:
            parts.append(converted(node.expression))
            node = node.this
        return wanted([converted(node), *reversed(parts)])

    return convert


def _chain(node: Any) -> Any:
    return converted(joined(node.this, node.args["parts"], is_labelled=True))


def _in(node: Any) -> Any:
    if node.args.get("query"):
        return syntax.InQuery(converted(node.this), _query_in(node.args["query"]))
    if node.args.get("unnest") or node.args.get("field"):
        raise UnsupportedSqlError("IN without values in parentheses")
    if not node.expressions:
        raise SqlParseError("IN needs at least one value")
    return syntax.In(converted(node.this), _all(node.expressions))


def _query_in(node: Any) -> Any:
    """A query without the parentheses that stand around it anyway."""
    found = converted(node)
    while isinstance(found, syntax.Subquery) and not (found.order or found.limit is not None or found.common):
        found = found.query
    return found


def _like(node: Any) -> Any:
    return syntax.Like(converted(node.this), converted(node.expression), None, bool(node.args.get("negate")))


def _escape(node: Any) -> Any:
    like = converted(node.this)
    like.escape = converted(node.expression)
    return like


def _is(node: Any) -> Any:
    right = node.expression
    if isinstance(right, exp.Null):
        return syntax.IsNull(converted(node.this))
    if isinstance(right, exp.Boolean):
        return syntax.IsTruth(converted(node.this), bool(right.this))
    raise UnknownFormError("IS")


def _quantified(node: Any) -> Any:
    if not isinstance(node.this, exp.Query):
        raise UnsupportedSqlError("ANY and ALL of anything but a subquery")
    return syntax.Quantified(isinstance(node, exp.All), _query_in(node.this))


def _case(node: Any) -> Any:
    branches = [(converted(one.this), converted(one.args["true"])) for one in node.args["ifs"]]
    return syntax.Case(_optional(node.this), branches, _optional(node.args.get("default")))


def _cast(node: Any) -> Any:
    kind = node.to
    written = kind.this.name if kind.this.name != "USERDEFINED" else str(kind.args.get("kind")).strip('"`').upper()
    return syntax.Cast(converted(node.this), written)


def _call(node: Any) -> Any:
    name = node.this if isinstance(node.this, str) else node.this.name
    args = node.expressions
    if args and isinstance(args[0], exp.Distinct):
        return syntax.Call(name, _all(args[0].expressions), is_distinct=True)
    return syntax.Call(name, _all(args))


def _treated(node: Any) -> Any:
    return syntax.NullsTreated(converted(node.this), isinstance(node, exp.IgnoreNulls))


def _window(node: Any) -> Any:
    return syntax.Window(converted(node.this), _definition(node))


def _definition(node: Any) -> Any:
    name = node.args.get("alias")
    found = syntax.WindowDefinition(name.name if name is not None else "")
    found.partition_by = _all(node.args.get("partition_by"))
    found.order = _orders(node.args.get("order"))
    spec = node.args.get("spec")
    if spec is not None:
        start = _bound(spec.args.get("start"), spec.args.get("start_side"))
        end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
        left_out = spec.args.get("exclude")
        exclude = left_out.name.upper() if left_out else ""
        found.frame = syntax.Frame(str(spec.args["kind"]).upper(), start, end, exclude)
    return found


def _bound(value: Any, side: Any) -> Any:
    if value == "CURRENT ROW":
        return syntax.Bound("CURRENT ROW")
    if value == "UNBOUNDED":
        return syntax.Bound(f"UNBOUNDED {str(side).upper()}")
    return syntax.Bound(str(side).upper(), converted(value))


def _orders(order: Any) -> Any:
    return [_ordered(node) for node in (order.expressions if order is not None else ())]


def _ordered(node: Any) -> Any:
    return syntax.Ordered(converted(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _clauses(query: Any, node: Any) -> Any:
    with_ = node.args.get("with_")
    if with_ is not None:
        if with_.args.get("recursive"):
            raise UnsupportedSqlError("WITH RECURSIVE")
        query.common = [
            syntax.Common(
                one.alias, [name.name for name in one.args["alias"].args.get("columns") or ()], _query_in(one.this)
            )
            for one in with_.expressions
        ]
    query.order = _orders(node.args.get("order"))
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise UnsupportedSqlError("FETCH with PERCENT or TIES")
        query.limit = _whole(limit.args.get("count"))
    elif limit is not None:
        query.limit = _whole(limit.args["expression"])
    query.offset = _whole(offset.args["expression"]) if offset is not None else 0
    return query


def _whole(node: Any) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        raise SqlParseError("LIMIT needs a whole number that is not negative")
    if int(node.this) >= 1 << 31:
        raise SqlValidationError("LIMIT out of range")
    return int(node.this)


def _select(node: Any) -> Any:
    from merlot.sql.dialect import SUPPORTED_CLAUSES
    from merlot.sql.parse import STAGE_CLAUSES

    for name, value in node.args.items():
        if value and name not in SUPPORTED_CLAUSES and name not in STAGE_CLAUSES:
            raise UnsupportedSqlError(name)
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise UnsupportedSqlError("DISTINCT ON")
    source, where, having = node.args.get("from_"), node.args.get("where"), node.args.get("having")
    qualify, group = node.args.get("qualify"), node.args.get("group")
    if group is not None and any(value for name, value in group.args.items() if name != "expressions"):
        raise UnsupportedSqlError("GROUP BY with totals")
    found = syntax.Select(
        [_item(one) for one in node.expressions],
        distinct is not None,
        None if source is None else _relation(source.this),
        [_join(one) for one in [*(source.this.args.get("joins") or () if source else ()), *(node.args.get("joins") or ())]],
        None if where is None else converted(where.this),
        [] if group is None else _all(group.expressions),
        None if having is None else converted(having.this),
        [(one.this.name, _definition(one)) for one in node.args.get("windows") or ()],
        None if qualify is None else converted(qualify.this),
    )
    return _clauses(found, node)


def _item(node: Any) -> Any:
    return syntax.Alias(converted(node.this), node.alias) if isinstance(node, exp.Alias) else converted(node)


def _subquery(node: Any) -> Any:
    inner = converted(node.this)
    found = _clauses(syntax.Subquery(inner), node)
    if isinstance(inner, syntax.Subquery) and not (found.order or found.limit is not None or found.common):
        return inner
    return found


def _set_operation(node: Any) -> Any:
    read = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
    for name, value in node.args.items():
        if value and name not in read:
            raise UnsupportedSqlError(name)
    kind = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}[type(node)]
    left, right = converted(node.this), converted(node.expression)
    return _clauses(syntax.SetOperation(kind, not node.args.get("distinct"), left, right), node)


def _relation(node: Any) -> Any:
    alias = node.args.get("alias")
    columns = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    found = _bare_relation(node, columns)
    found.alias, found.columns = node.alias, columns
    return found


def _bare_relation(node: Any, columns: Any) -> Any:
    if isinstance(node, exp.Subquery):
        if isinstance(node.this, exp.Table | exp.Values):
            raise UnsupportedSqlError("a table in parentheses")
        return syntax.Derived(_query_in(node.this))
    if isinstance(node, exp.Lateral):
        if not isinstance(node.this, exp.Subquery) or node.args.get("view") or node.args.get("outer"):
            raise UnsupportedSqlError("LATERAL of anything but a subquery")
        return syntax.Derived(_query_in(node.this), is_lateral=True)
    if isinstance(node, exp.Values):
        return syntax.Values([_all(row.expressions) for row in node.expressions])
    if isinstance(node, exp.Unnest):
        places = node.args.get("offset")
        if isinstance(places, exp.Identifier):
            columns.append(places.name)
        return syntax.Unnest(_all(node.expressions), bool(places))
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise UnsupportedSqlError("a function or a path in FROM")
    for name, value in node.args.items():
        if value and name not in ("this", "db", "catalog", "alias", "joins"):
            raise UnsupportedSqlError(name)
    return syntax.Table(".".join(part.name for part in node.parts if part.name != "default"))


def _join(node: Any) -> Any:
    for name, value in node.args.items():
        if value and name not in ("this", "on", "using", "side", "kind", "method", "match_condition"):
            raise UnsupportedSqlError(name)
    words = {node.method.upper(), node.side.upper(), node.kind.upper()} - {""}
    using = [column.name for column in node.args.get("using") or ()]
    kind = " ".join(sorted(words))
    return syntax.Join(
        _relation(node.this), kind, _optional(node.args.get("on")), using, _optional(node.args.get("match_condition"))
    )


def _hex(node: Any) -> Any:
    return syntax.HexText(node.this)


_HANDLERS: dict[type[Any], Any] = {
    exp.Column: _column,
    exp.Star: _star,
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: lambda node: syntax.Boolean(bool(node.this)),
    exp.Null: lambda _node: syntax.Null(),
    lists.Constants: lambda node: syntax.Constants(node.this, node.values),
    exp.Paren: lambda node: syntax.Paren(converted(node.this)),
    exp.Tuple: lambda node: syntax.Row(_all(node.expressions)),
    exp.Neg: lambda node: syntax.Negative(converted(node.this)),
    exp.NullSafeEQ: lambda node: syntax.Distinct(converted(node.this), converted(node.expression), is_same=True),
    exp.NullSafeNEQ: lambda node: syntax.Distinct(converted(node.this), converted(node.expression), is_same=False),
    exp.And: _connector(exp.And, syntax.And),
    exp.Or: _connector(exp.Or, syntax.Or),
    Chain: _chain,
    exp.Not: lambda node: syntax.Not(converted(node.this)),
    exp.In: _in,
    exp.Between: lambda node: syntax.Between(
        converted(node.this),
        converted(node.args["low"]),
        converted(node.args["high"]),
        bool(node.args.get("symmetric")),
    ),
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Is: _is,
    exp.Any: _quantified,
    exp.All: _quantified,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Anonymous: _call,
    exp.Extract: lambda node: syntax.Extract(node.this.name, converted(node.expression)),
    exp.Array: lambda node: syntax.Array(_all(node.expressions)),
    exp.Bracket: lambda node: syntax.Element(converted(node.this), _all(node.expressions)),
    exp.Filter: lambda node: syntax.Filter(converted(node.this), converted(node.expression.this)),
    exp.WithinGroup: lambda node: syntax.WithinGroup(converted(node.this), _orders(node.expression)),
    exp.IgnoreNulls: _treated,
    exp.RespectNulls: _treated,
    exp.Window: _window,
    exp.Subquery: _subquery,
    exp.Select: _select,
    exp.Union: _set_operation,
    exp.Intersect: _set_operation,
    exp.Except: _set_operation,
    exp.Exists: lambda node: syntax.Exists(_query_in(node.this)),
    exp.Rollup: lambda node: syntax.Rollup(_all(node.expressions)),
    exp.Cube: lambda node: syntax.Cube(_all(node.expressions)),
    exp.GroupingSets: lambda node: syntax.GroupingSets(_all(node.expressions)),
}


def normal(node: Any) -> Any:
    """A tree as plain values, in which the words of a join have no order and parentheses around a query no number."""
    if isinstance(node, syntax.Join):
        words = " ".join(sorted(set(node.kind.split()) - {"OUTER"} - ({"INNER"} if node.kind == "INNER" else set())))
        return "Join", normal(node.relation), words, normal(node.on), list(node.using), normal(node.match_condition)
    if isinstance(node, syntax.Subquery):
        inner = node.query
        if isinstance(inner, syntax.Subquery) and not (node.order or node.limit is not None or node.common):
            return normal(inner)
    if isinstance(node, syntax.Node):
        kind = type(node)
        return kind.__name__, [normal(getattr(node, name)) for name in kind.__dataclass_fields__]  # type: ignore[attr-defined]
    return [normal(one) for one in node] if isinstance(node, list | tuple) else node

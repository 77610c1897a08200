"""Windows and subqueries inside expressions: bound to a slot, a column that stands for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from sqlglot import exp

from merlot.aggregates import registry as aggregates
from merlot.functions.conversion import cast_to, common_type
from merlot.sql.aggregation import check_arity, count_rows, typed_aggregate
from merlot.sql.expressions import Binder
from merlot.sql.labels import OPERATOR_NAMES
from merlot.sql.parse import feature_name
from merlot.sql.stages.scope import StageScope
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Aggregate, Column, Expr, Literal, OrderKey
from merlot.tree.relations import Query, Slot, Subquery, SubqueryKind, Window
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, LONG, SqlType
from merlot.values.types import TypeName

_RANKS: Final[Mapping[str, tuple[str, SqlType]]] = {
    "rownumber": ("row_number", LONG),
    "rank": ("rank", LONG),
    "denserank": ("dense_rank", LONG),
    "percentrank": ("percent_rank", DOUBLE),
    "cumedist": ("cume_dist", DOUBLE),
}
_VALUES: Final = {"firstvalue": "first_value", "lastvalue": "last_value"}
_SHIFTS: Final = frozenset({"lag", "lead"})
OVER: Final = frozenset({"count", "sum", "min", "max", "avg", "minstring", "maxstring", "booland", "boolor"})
"""Aggregates that may stand OVER a window, by canonical key."""
_NOT_HERE: Final = frozenset({"WHERE", "GROUP BY", "HAVING", "ON", "USING", "FILTER", "OVER"})


class Statements(Protocol):
    """What binding a slot needs of the statement."""

    def new_id(self, letter: str) -> str: ...

    def query(self, node: exp.Expr, outer: StageScope | None) -> Query: ...

    def cast_outputs(self, query: Query, types: Sequence[SqlType]) -> Query: ...


class Slots:
    """The slots of one block (`sql.expressions.StageBinder`)."""

    def __init__(self, statement: Statements, windows: Mapping[str, Any]) -> None:
        self._statement = statement
        self._windows = windows
        self.found: dict[str, Slot] = {}

    def typed(self, aggregate: Aggregate, *, is_distinct: bool) -> Aggregate:
        """Sums of whole numbers are LONG, extremes of the type of what they are of."""
        name, args = aggregate.function, aggregate.args
        if name == "sum":
            return replace(aggregate, type=_sum_type(args[0].type))
        if name in ("min", "max") and args[0].type.base in _KEPT:
            return replace(aggregate, type=args[0].type)
        if name == "distinctcount" and is_distinct:
            return replace(aggregate, type=LONG)
        return aggregate

    def window(self, binder: Binder, node: Any) -> Expr:
        """A function OVER a window."""
        if binder.place in _NOT_HERE:
            raise SqlValidationError(f"{binder.place} cannot use a window function")
        definition = self._definition(node)
        called, condition = node.this, None
        if isinstance(called, exp.Filter):
            inner = replace(binder, place="FILTER", allows_aggregates=False, aliases_first=False)
            called, condition = called.this, inner.condition(called.args["expression"].this)
        ignores_nulls = isinstance(called, exp.IgnoreNulls)
        if isinstance(called, exp.IgnoreNulls | exp.RespectNulls):
            called = called.this
        if not isinstance(called, exp.Anonymous):
            raise UnsupportedSqlError(f"{feature_name(called)} OVER a window")
        plain = replace(binder, place="OVER", aliases_first=False)
        function, args, type_ = self._called(plain, called)
        if ignores_nulls and function not in (*_VALUES.values(), *_SHIFTS):
            raise SqlValidationError(f"IGNORE NULLS is of LAG, LEAD, FIRST_VALUE and LAST_VALUE, not {function}")
        order_by = _order(definition.args.get("order"), plain)
        window = Window(
            function=function,
            args=args,
            type=type_,
            partition_by=tuple(_key(plain, one, "PARTITION BY") for one in definition.args.get("partition_by") or ()),
            order_by=order_by,
            frame=_frame(definition.args.get("spec"), order_by),
            ignores_nulls=ignores_nulls,
            filter=condition,
        )
        known = next((name for name, slot in self.found.items() if slot == window), None)
        return Column(known or self._keep("w", window), type_)

    def subquery(self, binder: Binder, node: Any) -> Expr:
        """A scalar subquery, EXISTS, or IN with a subquery."""
        if isinstance(node, exp.Exists):
            query = self._query(binder, node.this)
            return self._slot(Subquery(SubqueryKind.EXISTS, query, BOOLEAN))
        if isinstance(node, exp.In):
            operands = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
            bound = [binder.bind(one) for one in operands]
            return self._compared(binder, SubqueryKind.IN, bound, node.args["query"], "equals")
        query = self._query(binder, node)
        if len(query.outputs) != 1:
            raise SqlValidationError(f"a subquery for a value has one column, not {len(query.outputs)}")
        return self._slot(Subquery(SubqueryKind.SCALAR, query, query.outputs[0].expr.type))

    def compared(self, binder: Binder, node: Any) -> Expr | None:
        """A comparison with ANY or ALL of a subquery; None for any other comparison."""
        right = node.args["expression"]
        if not isinstance(right, exp.All | exp.Any):
            return None
        kind = SubqueryKind.ALL if isinstance(right, exp.All) else SubqueryKind.ANY
        function = OPERATOR_NAMES[type(node)]
        return binder.predicate(self._compared(binder, kind, [binder.bind(node.this)], right.this, function))

    def _compared(
        self, binder: Binder, kind: SubqueryKind, operands: Sequence[Expr], node: exp.Expr, function: str
    ) -> Expr:
        query = self._query(binder, node)
        if len(query.outputs) != len(operands):
            raise SqlValidationError(f"IN compares {len(operands)} values with {len(query.outputs)} columns")
        types = []
        for operand, output in zip(operands, query.outputs, strict=True):
            common = _compared_as(operand.type, output.expr.type)
            if common is None:
                raise SqlValidationError(f"cannot compare {operand.type} with {output.expr.type}")
            types.append(common)
        cast = tuple(cast_to(operand, type_) for operand, type_ in zip(operands, types, strict=True))
        query = self._statement.cast_outputs(query, types)
        return self._slot(Subquery(kind, query, BOOLEAN, cast, function))

    def _query(self, binder: Binder, node: exp.Expr) -> Query:
        assert isinstance(binder.scope, StageScope)
        return self._statement.query(node, replace(binder.scope, aliases={}))

    def _slot(self, subquery: Subquery) -> Column:
        return Column(self._keep("q", subquery), subquery.type)

    def _keep(self, letter: str, slot: Slot) -> str:
        name = self._statement.new_id(letter)
        self.found[name] = slot
        return name

    def _definition(self, node: Any) -> Any:
        name = node.args.get("alias")
        if name is None:
            return node
        known = self._windows.get(name.name.lower())
        if known is None:
            raise SqlValidationError(f"unknown window name={name.name}")
        if any(node.args.get(part) for part in ("partition_by", "order", "spec")):
            raise UnsupportedSqlError("a window that adds to a named one")
        return known

    def _called(self, binder: Binder, node: Any) -> tuple[str, tuple[Expr, ...], SqlType]:
        written = node.this if isinstance(node.this, str) else node.this.name
        key = canonical_key(written)
        if key in _RANKS:
            if node.expressions:
                raise SqlValidationError(f"{written} takes no arguments")
            return _RANKS[key][0], (), _RANKS[key][1]
        if key in _SHIFTS or key in _VALUES or key == "ntile":
            return _shifted(key, written, tuple(binder.bind(arg) for arg in node.expressions))
        function = aggregates.find(key)
        if function is None or canonical_key(function.name) not in OVER:
            raise UnsupportedSqlError(f"{written.upper()} OVER a window")
        if node.expressions and isinstance(node.expressions[0], exp.Distinct):
            raise UnsupportedSqlError("DISTINCT OVER a window")
        check_arity(function, len(node.expressions))
        if isinstance(node.expressions[0], exp.Star):
            return "count", (), count_rows(function).type
        args = [binder.bind(arg) for arg in node.expressions]
        typed = self.typed(typed_aggregate(function, args, nulls=True), is_distinct=False)
        return typed.function, typed.args, typed.type


def _compared_as(left: SqlType, right: SqlType) -> SqlType | None:
    """The type that both are compared in; a NULL has that of the other."""
    if TypeName.UNKNOWN in (left.base, right.base):
        return right if left.base is TypeName.UNKNOWN else left
    return common_type(left, right)


def _shifted(key: str, written: str, args: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...], SqlType]:
    if key == "ntile":
        if len(args) != 1 or not _is_whole(args[0]) or not _is_positive(args[0]):
            raise SqlValidationError("NTILE takes one whole number above 0")
        return "ntile", args, LONG
    if key in _VALUES:
        if len(args) != 1:
            raise SqlValidationError(f"{written} takes 1 argument, got {len(args)}")
        return _VALUES[key], args, args[0].type
    if not 1 <= len(args) <= 3:
        raise SqlValidationError(f"{written} takes 1 to 3 arguments, got {len(args)}")
    if len(args) > 1 and not _is_whole(args[1]):
        raise SqlValidationError(f"{written} needs its distance as a whole number")
    if len(args) == 3:
        if not isinstance(args[2], Literal) and common_type(args[0].type, args[2].type) != args[0].type:
            raise SqlValidationError(f"{written} needs a default of type {args[0].type}, not {args[2].type}: cast it")
        args = (args[0], args[1], cast_to(args[2], args[0].type))
    return key, args, args[0].type


def _is_whole(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.type.is_integer


def _is_positive(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int) and expr.value > 0


def _key(binder: Binder, node: Any, clause: str) -> Expr:
    key = binder.bind(node)
    if key.type.is_array:
        raise SqlValidationError(f"{clause} of a multi-value column in a window")
    return key


def _order(order: Any, binder: Binder) -> tuple[OrderKey, ...]:
    """Numbers are constants here, not places."""
    return tuple(
        OrderKey(_key(binder, node.this, "ORDER BY"), not node.args.get("desc"), not node.args.get("nulls_first"))
        for node in (order.expressions if order is not None else ())
    )


def _frame(spec: Any, order_by: Sequence[OrderKey]) -> str:
    """ROWS or RANGE between two ends, maybe without the rows next to a row."""
    if spec is None:
        return ""
    kind = str(spec.args["kind"]).upper()
    if kind not in ("ROWS", "RANGE"):
        raise UnsupportedSqlError(f"{kind} in a window")
    keys = [key.expr.type for key in order_by] if kind == "RANGE" else None
    start = _end(spec.args.get("start"), spec.args.get("start_side"), keys)
    end = _end(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), keys)
    ends = [_ENDS.index(end.lstrip("0123456789. ")) for end in (start, end)]
    if ends[0] > ends[1] or _ENDS[0] == end or _ENDS[-1] == start:
        raise SqlValidationError(f"a window cannot go from {start} to {end}")
    left_out = spec.args.get("exclude")
    return f"{kind} BETWEEN {start} AND {end}{f' EXCLUDE {left_out.name.upper()}' if left_out else ''}"


_ENDS: Final = ("UNBOUNDED PRECEDING", "PRECEDING", "CURRENT ROW", "FOLLOWING", "UNBOUNDED FOLLOWING")
"""From first to last, without distances."""


def _end(value: Any, side: Any, keys: Sequence[SqlType] | None) -> str:
    """An end in canonical words. `keys`: of RANGE, the types of what rows are ordered by."""
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    word = str(side).upper()
    if word not in ("PRECEDING", "FOLLOWING"):
        raise SqlValidationError("a window's end is PRECEDING, FOLLOWING or CURRENT ROW")
    if value == "UNBOUNDED":
        return f"UNBOUNDED {word}"
    return f"{_rows(value) if keys is None else _distance(value, keys)} {word}"


def _rows(value: Any) -> int:
    if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdigit() or len(value.this) > 9:
        raise SqlValidationError("a window's distance is a whole number")
    return int(value.this)


def _distance(value: Any, keys: Sequence[SqlType]) -> str:
    """How far from a row's key; of a TIMESTAMP in milliseconds."""
    if len(keys) != 1 or keys[0].base not in _DISTANT:
        raise SqlValidationError("RANGE with a distance needs ORDER BY of one number or time")
    text = value.this if isinstance(value, exp.Literal) and not value.is_string else ""
    whole, _, fraction = text.partition(".")
    is_whole = keys[0].base not in (TypeName.FLOAT, TypeName.DOUBLE)
    if not whole.isdigit() or (fraction and not fraction.isdigit()) or (is_whole and fraction) or len(text) > 18:
        raise SqlValidationError(f"a distance in {keys[0]} is a number that is not negative, as 5 or 2.5")
    return text


_DISTANT: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})


_KEPT: Final = frozenset(
    {
        TypeName.INT,
        TypeName.LONG,
        TypeName.FLOAT,
        TypeName.DOUBLE,
        TypeName.BIG_DECIMAL,
        TypeName.TIMESTAMP,
        TypeName.BOOLEAN,
    }
)


def _sum_type(type_: SqlType) -> SqlType:
    if type_.base in (TypeName.INT, TypeName.LONG, TypeName.BOOLEAN):
        return LONG
    return BIG_DECIMAL if type_.base is TypeName.BIG_DECIMAL else DOUBLE

"""Bind windows and subqueries inside expressions to slots: columns that stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from merlot.aggregates import registry as aggregates
from merlot.functions.conversion import cast_to, common_type
from merlot.sql import syntax
from merlot.sql.aggregation import check_arity, count_rows, typed_aggregate
from merlot.sql.expressions import Binder
from merlot.sql.stages.scope import StageScope
from merlot.sql.unsupported_features import feature_name
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
"""Canonical keys of the aggregates that may be computed OVER a window."""
_AGGREGATES_WITHOUT_WINDOWS: Final = frozenset({"HAVING", "OVER"})
"""Clauses that may use aggregates, but no windows. A clause without aggregates has no windows either."""


class Statements(Protocol):
    """The part of a statement's binder that binding slots needs."""

    def new_id(self, letter: str) -> str: ...

    def query(self, node: syntax.Query, outer: StageScope | None) -> Query: ...

    def cast_outputs(self, query: Query, types: Sequence[SqlType]) -> Query: ...


class Slots:
    """The slots of one block; implements `sql.expressions.StageBinder`."""

    def __init__(self, statement: Statements, windows: Mapping[str, syntax.WindowDefinition]) -> None:
        self._statement = statement
        self._windows = windows
        self.found: dict[str, Slot] = {}

    def typed(self, aggregate: Aggregate, *, is_distinct: bool) -> Aggregate:
        """Return the aggregate with its type in queries of several stages: sums of whole numbers and
        COUNT(DISTINCT) are LONG, and extremes have their argument's type."""
        name, args = aggregate.function, aggregate.args
        if name == "sum":
            return replace(aggregate, type=_sum_type(args[0].type))
        if name in ("min", "max") and args[0].type.base in _SAME_TYPE_EXTREMES:
            return replace(aggregate, type=args[0].type)
        if name == "distinctcount" and is_distinct:
            return replace(aggregate, type=LONG)
        return aggregate

    def window(self, binder: Binder, node: syntax.Window) -> Expr:
        """Bind a function OVER a window; equal windows share a slot."""
        if not binder.allows_aggregates or binder.place in _AGGREGATES_WITHOUT_WINDOWS:
            raise SqlValidationError(f"{binder.place} cannot use a window function")
        definition = self._definition(node.definition)
        called, condition, ignores_nulls = node.call, None, False
        while isinstance(called, syntax.NullsTreated | syntax.Filter):
            if isinstance(called, syntax.NullsTreated):
                ignores_nulls = called.is_ignoring
            else:
                inner = replace(binder, place="FILTER", allows_aggregates=False, aliases_first=False)
                condition = inner.condition(called.condition)
            called = called.call
        if not isinstance(called, syntax.Call):
            raise UnsupportedSqlError(f"{feature_name(called)} OVER a window")
        plain = replace(binder, place="OVER", aliases_first=False)
        function, args, type_ = self._bound_function(plain, called)
        if ignores_nulls and function not in (*_VALUES.values(), *_SHIFTS):
            raise SqlValidationError(f"IGNORE NULLS is of LAG, LEAD, FIRST_VALUE and LAST_VALUE, not {function}")
        order_by = _order(definition.order, plain)
        window = Window(
            function=function,
            args=args,
            type=type_,
            partition_by=tuple(_key(plain, key, "PARTITION BY") for key in definition.partition_by),
            order_by=order_by,
            frame=_frame(definition.frame, order_by),
            ignores_nulls=ignores_nulls,
            filter=condition,
        )
        existing = next((name for name, slot in self.found.items() if slot == window), None)
        return Column(existing or self._new_slot("w", window), type_)

    def subquery(self, binder: Binder, node: syntax.Node) -> Expr:
        """Bind a scalar subquery, EXISTS, or IN with a subquery."""
        if isinstance(node, syntax.Exists):
            query = self._query(binder, node.query)
            return self._slot(Subquery(SubqueryKind.EXISTS, query, BOOLEAN))
        if isinstance(node, syntax.InQuery):
            operands = node.subject.items if isinstance(node.subject, syntax.Row) else [node.subject]
            bound = [binder.bind(operand) for operand in operands]
            return self._compared(binder, SubqueryKind.IN, bound, node.query, "equals")
        assert isinstance(node, syntax.Subquery)
        query = self._query(binder, node)
        if len(query.outputs) != 1:
            raise SqlValidationError(f"a subquery for a value has one column, not {len(query.outputs)}")
        return self._slot(Subquery(SubqueryKind.SCALAR, query, query.outputs[0].expr.type))

    def compared(self, binder: Binder, node: syntax.Comparison, right: syntax.Quantified) -> Expr:
        """Bind a comparison with ANY or ALL of a subquery."""
        kind = SubqueryKind.ALL if right.is_all else SubqueryKind.ANY
        bound = [binder.bind(node.left)]
        return binder.predicate(self._compared(binder, kind, bound, right.query, node.function))

    def _compared(
        self, binder: Binder, kind: SubqueryKind, operands: Sequence[Expr], node: syntax.Query, function: str
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

    def _query(self, binder: Binder, node: syntax.Query) -> Query:
        assert isinstance(binder.scope, StageScope)
        return self._statement.query(node, replace(binder.scope, aliases={}))

    def _slot(self, subquery: Subquery) -> Column:
        return Column(self._new_slot("q", subquery), subquery.type)

    def _new_slot(self, letter: str, slot: Slot) -> str:
        name = self._statement.new_id(letter)
        self.found[name] = slot
        return name

    def _definition(self, definition: syntax.WindowDefinition) -> syntax.WindowDefinition:
        if not definition.name:
            return definition
        named = self._windows.get(definition.name.lower())
        if named is None:
            raise SqlValidationError(f"unknown window name={definition.name}")
        if definition.partition_by or definition.order or definition.frame is not None:
            raise UnsupportedSqlError("a window that adds to a named one")
        return named

    def _bound_function(self, binder: Binder, node: syntax.Call) -> tuple[str, tuple[Expr, ...], SqlType]:
        written = node.name
        key = canonical_key(written)
        if key in _RANKS:
            if node.args:
                raise SqlValidationError(f"{written} takes no arguments")
            return _RANKS[key][0], (), _RANKS[key][1]
        if key in _SHIFTS or key in _VALUES or key == "ntile":
            return _bound_value_function(key, written, tuple(binder.bind(arg) for arg in node.args))
        function = aggregates.find(key)
        if function is None or canonical_key(function.name) not in OVER:
            raise UnsupportedSqlError(f"{written.upper()} OVER a window")
        if node.is_distinct:
            raise UnsupportedSqlError("DISTINCT OVER a window")
        check_arity(function, len(node.args))
        if isinstance(node.args[0], syntax.Star):
            return "count", (), count_rows(function).type
        args = [binder.bind(arg) for arg in node.args]
        typed = self.typed(typed_aggregate(function, args, nulls=True), is_distinct=False)
        return typed.function, typed.args, typed.type


def _compared_as(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type in which two values are compared; a NULL takes the type of the other."""
    if TypeName.UNKNOWN in (left.base, right.base):
        return right if left.base is TypeName.UNKNOWN else left
    return common_type(left, right)


def _bound_value_function(key: str, written: str, args: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...], SqlType]:
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


def _key(binder: Binder, node: syntax.Node, clause: str) -> Expr:
    key = binder.bind(node)
    if key.type.is_array:
        raise SqlValidationError(f"{clause} of a multi-value column in a window")
    return key


def _order(order: Sequence[syntax.Ordered], binder: Binder) -> tuple[OrderKey, ...]:
    """Bind ORDER BY of a window. Numbers are constants here, not positions."""
    return tuple(
        OrderKey(_key(binder, node.value, "ORDER BY"), not node.is_descending, not node.nulls_first) for node in order
    )


def _frame(frame: syntax.Frame | None, order_by: Sequence[OrderKey]) -> str:
    """Return a frame in canonical spelling: ROWS or RANGE between two ends, perhaps with EXCLUDE."""
    if frame is None:
        return ""
    if frame.kind not in ("ROWS", "RANGE"):
        raise UnsupportedSqlError(f"{frame.kind} in a window")
    keys = [key.expr.type for key in order_by] if frame.kind == "RANGE" else None
    start, end = _end(frame.start, keys), _end(frame.end, keys)
    if _ENDS.index(frame.start.side) > _ENDS.index(frame.end.side) or _ENDS[0] == end or _ENDS[-1] == start:
        raise SqlValidationError(f"a window cannot go from {start} to {end}")
    return f"{frame.kind} BETWEEN {start} AND {end}{f' EXCLUDE {frame.exclude}' if frame.exclude else ''}"


_ENDS: Final = ("UNBOUNDED PRECEDING", "PRECEDING", "CURRENT ROW", "FOLLOWING", "UNBOUNDED FOLLOWING")
"""Kinds of ends without distances, from first to last."""


def _end(bound: syntax.Bound, keys: Sequence[SqlType] | None) -> str:
    """Return an end in canonical spelling. `keys`: types of the ORDER BY keys for RANGE, None for ROWS."""
    if bound.distance is None:
        return bound.side
    return f"{_rows(bound.distance) if keys is None else _distance(bound.distance, keys)} {bound.side}"


def _rows(node: syntax.Node) -> int:
    if not isinstance(node, syntax.Number) or not node.text.isdigit() or len(node.text) > 9:
        raise SqlValidationError("a window's distance is a whole number")
    return int(node.text)


def _distance(node: syntax.Node, keys: Sequence[SqlType]) -> str:
    """Return the text of a RANGE distance, by which keys may differ from the row's key; for a TIMESTAMP it is in
    milliseconds."""
    if len(keys) != 1 or keys[0].base not in _DISTANCE_TYPES:
        raise SqlValidationError("RANGE with a distance needs ORDER BY of one number or time")
    text = node.text if isinstance(node, syntax.Number) else ""
    whole, _, fraction = text.partition(".")
    is_whole = keys[0].base not in (TypeName.FLOAT, TypeName.DOUBLE)
    if not whole.isdigit() or (fraction and not fraction.isdigit()) or (is_whole and fraction) or len(text) > 18:
        raise SqlValidationError(f"a distance in {keys[0]} is a number that is not negative, as 5 or 2.5")
    return text


_DISTANCE_TYPES: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})


_SAME_TYPE_EXTREMES: Final = frozenset(
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

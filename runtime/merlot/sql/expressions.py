"""Bind expressions of the syntax tree: a function for each kind of node; other nodes are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from merlot.aggregates import registry as aggregates
from merlot.aggregates.function import AggregationFunction
from merlot.aggregates.funnel_windows import Funnel
from merlot.aggregates.funnels import FunnelCount
from merlot.functions import registry
from merlot.functions.arguments import fitted
from merlot.functions.conditional import typed_case
from merlot.functions.date_fields import FIELD_NAMES
from merlot.functions.instants import Moment
from merlot.functions.time_words import TRUNC_UNITS
from merlot.sql import condition_lists, funnels, predicates
from merlot.sql.aggregation import check_arity, count_rows, typed_aggregate
from merlot.sql.boolean_logic import conjunction, disjunction, predicate
from merlot.sql.budget import Budget
from merlot.sql.decimal_constants import decimal_result
from merlot.sql.expression_sizes import ExprSizes
from merlot.sql.labels import DISTINCT_FORMS, cast_type_name
from merlot.sql.scope import NameScope
from merlot.sql.syntax import (
    And,
    Array,
    Between,
    Boolean,
    Case,
    Cast,
    Column,
    Comparison,
    Constants,
    Distinct,
    Element,
    Exists,
    Extract,
    Filter,
    HexText,
    In,
    InQuery,
    IsNull,
    IsTruth,
    Like,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Operation,
    Or,
    Paren,
    Quantified,
    Row,
    Star,
    Subquery,
    Text,
    Window,
    WithinGroup,
)
from merlot.sql.syntax import Call as SyntaxCall
from merlot.sql.unsupported_features import feature_name
from merlot.tree import literals
from merlot.tree.errors import MisplacedAggregateError, SqlError, SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import FALSE, TRUE, Aggregate, Call, Expr, Literal
from merlot.tree.relations import GROUPING
from merlot.tree.types import BOOLEAN, BYTES, INT, STRING, SqlType
from merlot.values.types import TypeName

Fold = Callable[[Call], Expr]
"""Computes a call whose arguments are constants; returns any other call as it is."""


class StageBinder(Protocol):
    """Binds the parts of an expression that need other stages. Each becomes a slot that the expression refers to."""

    def window(self, binder: Binder, node: Window) -> Expr:
        """Bind a function OVER a window."""
        ...

    def subquery(self, binder: Binder, node: Node) -> Expr:
        """Bind a scalar subquery, EXISTS, or IN with a subquery."""
        ...

    def compared(self, binder: Binder, node: Comparison, right: Quantified) -> Expr:
        """Bind a comparison with ANY or ALL of a subquery."""
        ...

    def typed(self, aggregate: Aggregate, *, is_distinct: bool) -> Aggregate:
        """Return the aggregate with its type in a query of several stages."""
        ...


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds the expressions of one clause. `place` names the clause in messages."""

    scope: NameScope
    fold: Fold
    moment: Moment | None
    nulls: bool
    place: str = "SELECT"
    allows_aggregates: bool = True
    aliases_first: bool = False
    budget: Budget = field(default_factory=Budget)
    stages: StageBinder | None = None
    """Binder of slots; None if the query has one stage."""
    sizes: ExprSizes = field(default_factory=ExprSizes)

    def bind(self, node: Node) -> Expr:
        """Return the typed expression. Raise errors of `tree.errors`."""
        self.budget.step()
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise UnsupportedSqlError(feature_name(node))
        try:
            bound = handler(self, node)
            self.sizes.check(bound)
            return bound
        except SqlError as error:
            if error.token is None:  # otherwise a node below this one is to blame
                error.token = getattr(node, "token", None)
            raise

    def call(self, name: str, args: tuple[Expr, ...]) -> Expr:
        """Return the typed call of a function, computed if all arguments are constants."""
        function = registry.callable_as(name)
        if function.name == "regexplike" and len(args) > 1 and not isinstance(args[1], Literal):
            function = registry.callable_as("regexplikevar")
        converted = fitted(function, args)
        bound = function.bind(self, tuple(map(self._folded, converted, args)))
        return self.fold(bound) if isinstance(bound, Call) else bound

    def _folded(self, converted: Expr, given: Expr) -> Expr:
        return self.fold(converted) if converted is not given and isinstance(converted, Call) else converted

    def equal(self, left: Expr, right: Expr) -> Expr:
        """Return the predicate that two expressions are equal."""
        return predicates.compare("equals", left, right, nulls=self.nulls)

    def predicate(self, expr: Expr) -> Expr:
        """Return a condition as a predicate."""
        return predicate(expr, self.place)

    def now_ms(self) -> int:
        """Return the time of the query in ms."""
        if self.moment is None:
            raise SqlValidationError("NOW and AGO are of queries that somebody asks now")
        return self.moment.now_ms()

    def condition(self, node: Node) -> Expr:
        """Bind an expression as a predicate."""
        return predicate(self.bind(node), self.place)


def data_type(written: str) -> SqlType:
    """Return the type that a CAST names. Raise UnsupportedSqlError if there is none."""
    name = cast_type_name(written)
    if name not in TypeName.__members__:
        raise UnsupportedSqlError(f"type {written}{': write DATETRUNC' if name == 'DATE' else ''}")
    return SqlType(TypeName(name))


def cast(expr: Expr, target: SqlType) -> Expr:
    """Return an explicit CAST. Raise SqlValidationError or UnsupportedSqlError if no such conversion exists."""
    if expr.type.is_array:
        raise UnsupportedSqlError("CAST of a multi-value column")
    if expr.type != target and BYTES in (expr.type, target) and not {expr.type.base, target.base} & {TypeName.STRING}:
        raise SqlValidationError(f"cannot cast {expr.type} to {target}")
    return expr if expr.type == target else Call("cast", (expr,), target)


_MOMENTS = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "LOCALTIMESTAMP"), "CAST(NOW() AS TIMESTAMP)"),
    "CURRENT_DATE": "DATETRUNC('DAY', NOW())",
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), "NOW()"),
}


def _star(_binder: Binder, _node: Star) -> Expr:
    raise SqlValidationError("* stands alone in SELECT, or in COUNT(*)")


def _column(binder: Binder, node: Column) -> Expr:
    name, qualifier = node.name, node.qualifier
    if binder.aliases_first and not qualifier:
        aliased = binder.scope.alias(name)
        if aliased is not None:
            return _checked_alias(binder, name, aliased)
    column = binder.scope.find(name) if not qualifier else None
    if column is not None:
        return column
    aliased = binder.scope.alias(name) if not qualifier else None
    if aliased is None and not qualifier and not node.is_quoted and name.upper() in _MOMENTS:
        raise UnsupportedSqlError(f"{name.upper()}: write {_MOMENTS[name.upper()]}")
    return _checked_alias(binder, name, aliased) if aliased is not None else binder.scope.column(name, qualifier)


def _checked_alias(binder: Binder, name: str, aliased: Expr) -> Expr:
    if not binder.allows_aggregates and has_aggregate(aliased):
        raise _misplaced(binder, f"{binder.place} cannot use an aggregate alias={name}")
    return aliased


def _misplaced(binder: Binder, problem: str) -> SqlValidationError:
    is_in_filter = binder.place == "WHERE" and binder.stages is None
    return MisplacedAggregateError(problem) if is_in_filter else SqlValidationError(problem)


def has_aggregate(expr: Expr) -> bool:
    """Return True if the expression is, or contains, an aggregate."""
    if isinstance(expr, Aggregate):
        return True
    return isinstance(expr, Call) and any(has_aggregate(arg) for arg in expr.args)


def _number(_binder: Binder, node: Number) -> Expr:
    return literals.number(node.text)


def _text(_binder: Binder, node: Text) -> Expr:
    return Literal(node.value, STRING)


def _negative(binder: Binder, node: Negative) -> Expr:
    if isinstance(node.operand, Number):
        return literals.number("-" + node.operand.text)
    return binder.call("negate", (binder.bind(node.operand),))


def _operation(binder: Binder, node: Operation) -> Expr:
    if node.function == "concat":
        return binder.call("concat", (binder.bind(node.left), binder.bind(node.right)))
    exact = decimal_result(node)
    if exact is not None:
        return exact
    args = (_operand(binder.bind(node.left)), _operand(binder.bind(node.right)))
    return binder.call(node.function, args)


def _operand(expr: Expr) -> Expr:
    """Convert a string constant in arithmetic to the number that it spells."""
    if isinstance(expr, Literal) and expr.type == STRING:
        return literals.as_number(expr)
    return expr


def _comparison(binder: Binder, node: Comparison) -> Expr:
    if isinstance(node.right, Quantified):
        if binder.stages is None:
            raise UnsupportedSqlError(feature_name(node.right))
        return binder.stages.compared(binder, node, node.right)
    return predicates.compare(node.function, binder.bind(node.left), binder.bind(node.right), nulls=binder.nulls)


def _joined(binder: Binder, node: And | Or) -> Expr:
    return condition_lists.bind_conditions(
        node, bind=binder.bind, condition=binder.condition, nulls=binder.nulls, budget=binder.budget
    )


def _negation(binder: Binder, node: Not) -> Expr:
    inner = node.operand
    if isinstance(inner, In):
        return _membership(binder, inner, negated=True)
    if isinstance(inner, IsNull):
        return _is_null(binder, inner, negated=True)
    if isinstance(inner, IsTruth):
        return _is_truth(binder, inner, negated=True)
    return predicates.invert(binder.condition(inner))


def _membership(binder: Binder, node: In, *, negated: bool = False) -> Expr:
    items = node.items
    if isinstance(node.subject, Row):
        rows = disjunction([_same_row(binder, node.subject, item) for item in items])
        return predicates.invert(rows) if negated else rows
    if isinstance(items[0], Constants):
        return _listed(binder.bind(node.subject), items[0], negated=negated, nulls=binder.nulls)
    bound = [binder.bind(item) for item in items]
    subject = binder.bind(node.subject)
    binder.sizes.check(subject, len(bound))
    return predicates.member(subject, bound, negated=negated, nulls=binder.nulls)


def _membership_in_query(binder: Binder, node: InQuery) -> Expr:
    if binder.stages is None:
        raise UnsupportedSqlError("IN with a subquery")
    return binder.predicate(binder.stages.subquery(binder, node))


def _listed(subject: Expr, constants: Constants, *, negated: bool, nulls: bool) -> Expr:
    listed = predicates.member_of_values(subject, constants.values, negated=negated, nulls=nulls)
    return listed or predicates.member(subject, constants.literals, negated=negated, nulls=nulls)


def _same_row(binder: Binder, row: Row, other: Node) -> Expr:
    """Bind the equality of two rows: `(a, b) = (1, 'x')`."""
    if not isinstance(other, Row) or len(other.items) != len(row.items):
        raise SqlValidationError(f"IN of {len(row.items)} values a row needs as many in each of its rows")
    pairs = zip(row.items, other.items, strict=True)
    return conjunction([binder.equal(binder.bind(left), binder.bind(right)) for left, right in pairs])


def _between(binder: Binder, node: Between) -> Expr:
    subject, low, high = (binder.bind(part) for part in (node.subject, node.low, node.high))
    between = predicates.between(subject, low, high, nulls=binder.nulls)
    if not node.is_symmetric:
        return between
    return disjunction([between, predicates.between(subject, high, low, nulls=binder.nulls)])


def _like(binder: Binder, node: Like) -> Expr:
    escape = None if node.escape is None else binder.bind(node.escape)
    pattern = binder.bind(node.pattern)
    matched = predicates.like(binder.bind(node.subject), pattern, escape, nulls=binder.nulls)
    return predicates.invert(matched) if node.is_negated else matched


def _is_null(binder: Binder, node: IsNull, *, negated: bool = False) -> Expr:
    return predicates.is_null(binder.bind(node.subject), negated=negated)


def _is_truth(binder: Binder, node: IsTruth, *, negated: bool = False) -> Expr:
    tested = binder.condition(node.subject)
    wanted = tested if node.truth else predicates.invert(tested)
    verdict = Call("case", (wanted, TRUE, FALSE), BOOLEAN) if binder.nulls else wanted
    return predicates.invert(predicate(verdict, binder.place)) if negated else predicate(verdict, binder.place)


def _distinct(binder: Binder, node: Distinct) -> Expr:
    same = predicates.same(binder.bind(node.left), binder.bind(node.right), nulls=binder.nulls)
    return same if node.is_same else predicates.invert(same)


def _case(binder: Binder, node: Case) -> Expr:
    subject = binder.bind(node.subject) if node.subject is not None else None
    if subject is not None:
        binder.sizes.check(subject, len(node.branches))
    branches: list[tuple[Expr, Expr]] = []
    for condition, value in node.branches:
        if subject is None:
            test = binder.condition(condition)
        else:
            test = predicates.compare("equals", subject, binder.bind(condition), nulls=binder.nulls)
        branches.append((test, binder.bind(value)))
    otherwise = binder.bind(node.default) if node.default is not None else literals.NULL
    return typed_case(branches, otherwise, nulls=binder.nulls)


def _cast(binder: Binder, node: Cast) -> Expr:
    converted = cast(binder.bind(node.operand), data_type(node.type))
    return binder.fold(converted) if isinstance(converted, Call) else converted


_UNIT_FIRST = frozenset({"datetrunc", "timestampadd", "timestampdiff"})
_UNITS = frozenset(TRUNC_UNITS) | {f"{unit}S" for unit in TRUNC_UNITS}


def _with_unit(name: str, args: Sequence[Node]) -> Sequence[Node]:
    """Read the unit of `TIMESTAMPADD(DAY, …)` as the text 'DAY', even if a column has that name."""
    function = registry.find(name)
    first = args[0] if args else None
    if function is None or function.name not in _UNIT_FIRST or not isinstance(first, Column):
        return args
    is_unit = first.name.upper() in _UNITS and not first.qualifier and not first.is_quoted
    return [Text(first.name), *args[1:]] if is_unit else args


def _function(binder: Binder, node: SyntaxCall) -> Expr:
    name = node.name
    function = aggregates.find(name)
    if function is not None:
        return _aggregate(binder, node, node.args, function)
    numbered = aggregates.numbered(name)
    if numbered is not None:
        return _aggregate(binder, node, [*node.args, Number(str(numbered[1]))], numbered[0])
    if node.is_distinct:
        raise UnsupportedSqlError(f"DISTINCT in {name.upper()}")
    if canonical_key(name) in ("grouping", "groupingid"):
        return _grouping(binder, node)
    return binder.call(name, tuple(binder.bind(arg) for arg in _with_unit(name, node.args)))


def _grouping(binder: Binder, node: SyntaxCall) -> Expr:
    """Bind GROUPING(a, b), whose arguments must be keys."""
    if binder.stages is None:
        raise SqlValidationError(NEEDS_GROUPING_SETS)
    if not binder.allows_aggregates:
        raise SqlValidationError(f"{binder.place} cannot use GROUPING")
    if not 1 <= len(node.args) <= MAX_GROUPING_ARGUMENTS:
        raise SqlValidationError(f"GROUPING takes 1 to {MAX_GROUPING_ARGUMENTS} keys, got {len(node.args)}")
    return Call(GROUPING, tuple(binder.bind(arg) for arg in node.args), INT)


NEEDS_GROUPING_SETS = "GROUPING needs GROUPING SETS, ROLLUP or CUBE"
MAX_GROUPING_ARGUMENTS = 30
"""Most arguments: each is a bit of an INT, which has 31 bits besides its sign."""


def _array(binder: Binder, node: Array) -> Expr:
    """Bind `ARRAY[1, 2]`."""
    if not node.items:
        raise SqlValidationError("ARRAY needs at least one value")
    return binder.call("arrayvalueconstructor", tuple(binder.bind(item) for item in node.items))


def _element(binder: Binder, node: Element) -> Expr:
    """Bind `list[1]`; elements are counted from 1."""
    if len(node.places) != 1:
        raise SqlParseError("an element of a list has one place")
    return binder.call("arrayelementatint", (binder.bind(node.subject), binder.bind(node.places[0])))


def _extract(binder: Binder, node: Extract) -> Expr:
    """Bind `EXTRACT(YEAR FROM at)` as `YEAR(at)`."""
    if canonical_key(node.field) not in FIELD_NAMES:
        raise UnsupportedSqlError(f"EXTRACT {node.field.upper()}")
    return binder.call(node.field, (binder.bind(node.operand),))


_IGNORING_REPEATS = frozenset({"min", "max", *DISTINCT_FORMS.values()})
"""Aggregates that have the same result with and without DISTINCT."""


def _aggregate(binder: Binder, call: SyntaxCall, args: Sequence[Node], function: AggregationFunction) -> Expr:
    name = function.name
    if not binder.allows_aggregates:
        raise _misplaced(binder, f"{binder.place} cannot use an aggregate: {name}")
    if call.is_distinct:
        if name not in DISTINCT_FORMS and name not in _IGNORING_REPEATS:
            raise UnsupportedSqlError(f"DISTINCT in {name.upper()}")
        function = aggregates.named(DISTINCT_FORMS.get(name, name))
        args, name = call.args, function.name
    if name == FunnelCount.name:
        inner = replace(binder, place=f"{name}(…)", allows_aggregates=False, aliases_first=False)
        return typed_aggregate(function, funnels.arguments(inner, args), nulls=binder.nulls)
    if isinstance(function, Funnel):
        inner = replace(binder, place=f"{name}(…)", allows_aggregates=False, aliases_first=False)
        return typed_aggregate(function, funnels.window_arguments(inner, name, args), nulls=binder.nulls)
    check_arity(function, len(args))
    if function.gives_rows and (binder.place != "SELECT" or binder.stages is not None):
        where = binder.place if binder.stages is None else "a query of several stages"
        raise UnsupportedSqlError(f"{name.upper()} in {where}")
    if isinstance(args[0], Star) and not args[0].qualifier:
        return count_rows(function)
    inner = replace(binder, place=f"{name}(…)", allows_aggregates=False, aliases_first=False)
    typed = typed_aggregate(function, [inner.bind(arg) for arg in args], nulls=binder.nulls)
    return typed if binder.stages is None else binder.stages.typed(typed, is_distinct=call.is_distinct)


def _window(binder: Binder, node: Window) -> Expr:
    if binder.stages is None:
        raise UnsupportedSqlError(feature_name(node))
    return binder.stages.window(binder, node)


def _subquery(binder: Binder, node: Subquery | Exists) -> Expr:
    if binder.stages is None:
        raise UnsupportedSqlError(feature_name(node))
    return binder.stages.subquery(binder, node)


def _filtered(binder: Binder, node: Filter) -> Expr:
    bound = binder.bind(node.call)
    if not isinstance(bound, Aggregate):
        raise SqlValidationError("FILTER belongs to an aggregate")
    inner = replace(binder, place="FILTER", allows_aggregates=False, aliases_first=False)
    condition = inner.condition(node.condition)
    return bound if condition == TRUE else replace(bound, filter=condition)


def _within_group(binder: Binder, node: WithinGroup) -> Expr:
    """Bind `LISTAGG(x, ',') WITHIN GROUP (ORDER BY x)`, which is the order that it always has; refuse any other
    order."""
    bound = binder.bind(node.call)
    if not (isinstance(bound, Aggregate) and bound.function == "listagg"):
        raise UnsupportedSqlError("WITHIN GROUP of another aggregate than LISTAGG")
    inner = replace(binder, place="WITHIN GROUP", allows_aggregates=False, aliases_first=False)
    keys = node.order
    if len(keys) != 1 or keys[0].is_descending or inner.bind(keys[0].value) != bound.args[0]:
        raise UnsupportedSqlError("LISTAGG in another order than that of its values, ascending")
    return bound


def _parenthesis(binder: Binder, node: Paren) -> Expr:
    return binder.bind(node.inner)


def _boolean(_binder: Binder, node: Boolean) -> Expr:
    return TRUE if node.value else FALSE


def _null(_binder: Binder, _node: Null) -> Expr:
    return literals.NULL


def _hex_text(_binder: Binder, node: HexText) -> Expr:
    return literals.convert(Literal(node.digits, STRING), BYTES)


_Handler = Callable[[Binder, Any], Expr]

_HANDLERS: dict[type[Node], _Handler] = {
    Column: _column,
    Star: _star,
    Number: _number,
    Text: _text,
    Negative: _negative,
    Paren: _parenthesis,
    Boolean: _boolean,
    Null: _null,
    HexText: _hex_text,
    Operation: _operation,
    Comparison: _comparison,
    And: _joined,
    Or: _joined,
    Not: _negation,
    In: _membership,
    InQuery: _membership_in_query,
    Between: _between,
    Like: _like,
    IsNull: _is_null,
    IsTruth: _is_truth,
    Distinct: _distinct,
    Case: _case,
    Cast: _cast,
    SyntaxCall: _function,
    Extract: _extract,
    Array: _array,
    Element: _element,
    Filter: _filtered,
    WithinGroup: _within_group,
    Window: _window,
    Subquery: _subquery,
    Exists: _subquery,
}

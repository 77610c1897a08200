"""Expressions of the syntax tree to typed ones: one function per kind of node, anything else refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

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
from merlot.sql import chains, funnels, predicates
from merlot.sql.aggregation import check_arity, count_rows, typed_aggregate
from merlot.sql.budget import Budget
from merlot.sql.decimals import decimal_result
from merlot.sql.labels import DISTINCT_FORMS, OPERATOR_NAMES, cast_type_name
from merlot.sql.lists import Constants
from merlot.sql.logic import conjunction, disjunction, predicate
from merlot.sql.parse import feature_name
from merlot.sql.scope import Names
from merlot.tree import literals
from merlot.tree.errors import MisplacedAggregateError, SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import FALSE, TRUE, Aggregate, Call, Expr, Literal
from merlot.tree.relations import GROUPING
from merlot.tree.types import BOOLEAN, BYTES, INT, STRING, SqlType
from merlot.values.types import TypeName

Fold = Callable[[Call], Expr]
"""What a call is worth if its arguments are constants; else the call itself."""


class StageBinder(Protocol):
    """Binds what an expression needs of other stages, to the slot that stands for it."""

    def window(self, binder: Binder, node: Any) -> Expr:
        """A function OVER a window."""
        ...

    def subquery(self, binder: Binder, node: Any) -> Expr:
        """A scalar subquery, EXISTS, or IN with a subquery."""
        ...

    def compared(self, binder: Binder, node: Any) -> Expr | None:
        """A comparison with ANY or ALL of a subquery; None for any other comparison."""
        ...

    def typed(self, aggregate: Aggregate, *, is_distinct: bool) -> Aggregate:
        """An aggregate, typed as stages type it."""
        ...


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds the expressions of one clause. `place` names the clause in messages."""

    scope: Names
    fold: Fold
    moment: Moment | None
    nulls: bool
    place: str = "SELECT"
    allows_aggregates: bool = True
    aliases_first: bool = False
    budget: Budget = field(default_factory=Budget)
    stages: StageBinder | None = None
    """None: the query has one stage."""

    def bind(self, node: exp.Expr) -> Expr:
        """The typed expression; raises errors of `sql.errors`."""
        self.budget.step()
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise UnsupportedSqlError(feature_name(node))
        read = _ARGS_READ.get(type(node), _BINARY_ARGS)
        for name, value in node.args.items():
            if value and name not in read:
                raise UnsupportedSqlError(f"{feature_name(node)} {name.upper()}")
        return handler(self, node)

    def call(self, name: str, args: tuple[Expr, ...]) -> Expr:
        """The typed call of a function, worked out where all is constant."""
        function = registry.callable_as(name)
        if function.name == "regexplike" and len(args) > 1 and not isinstance(args[1], Literal):
            function = registry.callable_as("regexplikevar")
        taken = fitted(function, args)
        bound = function.bind(self, tuple(map(self._worked_out, taken, args)))
        return self.fold(bound) if isinstance(bound, Call) else bound

    def _worked_out(self, converted: Expr, given: Expr) -> Expr:
        return self.fold(converted) if converted is not given and isinstance(converted, Call) else converted

    def equal(self, left: Expr, right: Expr) -> Expr:
        """The predicate that two expressions are equal."""
        return predicates.compare("equals", left, right, nulls=self.nulls)

    def predicate(self, expr: Expr) -> Expr:
        """A condition as a predicate."""
        return predicate(expr, self.place)

    def now_ms(self) -> int:
        """The instant that the query goes by."""
        if self.moment is None:
            raise SqlValidationError("NOW and AGO are of queries that somebody asks now")
        return self.moment.now_ms()

    def condition(self, node: exp.Expr) -> Expr:
        """The typed expression as a predicate."""
        return predicate(self.bind(node), self.place)


def data_type(node: exp.DataType) -> SqlType:
    """The type a CAST names; raises UnsupportedSqlError."""
    name = cast_type_name(node)
    if name not in TypeName.__members__ or node.args.get("nested"):
        raise UnsupportedSqlError(f"type {node.sql()}")
    return SqlType(TypeName(name))


def cast(expr: Expr, target: SqlType) -> Expr:
    """An explicit CAST; raises where no such conversion exists."""
    if expr.type.is_array:
        raise UnsupportedSqlError("CAST of a multi-value column")
    if expr.type != target and BYTES in (expr.type, target) and not {expr.type.base, target.base} & {TypeName.STRING}:
        raise SqlValidationError(f"cannot cast {expr.type} to {target}")
    return expr if expr.type == target else Call("cast", (expr,), target)


def qualifier_of(node: exp.Column) -> str:
    """Read what stands before a column's name, without the name of the only database."""
    names = [part.name for part in node.parts[:-1]]
    return ".".join(names[1:] if names[:1] == ["default"] else names)


_MOMENTS = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "LOCALTIMESTAMP"), "CAST(NOW() AS TIMESTAMP)"),
    "CURRENT_DATE": "DATETRUNC('DAY', NOW())",
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), "NOW()"),
}


def _column(binder: Binder, node: Any) -> Expr:
    identifier = node.this
    if isinstance(identifier, exp.Star):
        raise SqlValidationError("* stands alone in SELECT, or in COUNT(*)")
    name, qualifier = identifier.name, qualifier_of(node)
    if binder.aliases_first and not qualifier:
        aliased = binder.scope.alias(name)
        if aliased is not None:
            return _checked_alias(binder, name, aliased)
    found = binder.scope.find(name) if not qualifier else None
    if found is not None:
        return found
    aliased = binder.scope.alias(name) if not qualifier else None
    if aliased is None and not qualifier and not identifier.args.get("quoted") and name.upper() in _MOMENTS:
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
    """Whether an aggregate stands anywhere in it."""
    if isinstance(expr, Aggregate):
        return True
    return isinstance(expr, Call) and any(has_aggregate(arg) for arg in expr.args)


def _literal(_binder: Binder, node: Any) -> Expr:
    return Literal(node.this, STRING) if node.is_string else literals.number(node.this)


def _negative(binder: Binder, node: Any) -> Expr:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return literals.number("-" + node.this.this)
    return binder.call("negate", (binder.bind(node.this),))


def _operator(binder: Binder, node: Any) -> Expr:
    exact = decimal_result(node)
    if exact is not None:
        return exact
    args = (_operand(binder.bind(node.left)), _operand(binder.bind(node.right)))
    return binder.call(OPERATOR_NAMES[type(node)], args)


def _operand(expr: Expr) -> Expr:
    """A string constant in arithmetic is the number it spells."""
    if isinstance(expr, Literal) and expr.type == STRING:
        return literals.as_number(expr)
    return expr


def _concat(binder: Binder, node: Any) -> Expr:
    return binder.call("concat", (binder.bind(node.left), binder.bind(node.right)))


def _comparison(binder: Binder, node: Any) -> Expr:
    function = OPERATOR_NAMES[type(node)]
    compared = None if binder.stages is None else binder.stages.compared(binder, node)
    if compared is not None:
        return compared
    return predicates.compare(function, binder.bind(node.left), binder.bind(node.right), nulls=binder.nulls)


def _connector(binder: Binder, node: Any) -> Expr:
    """A chain of ANDs or ORs leans left, as deep as it is long: walked here without recursion."""
    kind = type(node)
    parts: list[exp.Expr] = []
    while isinstance(node, kind):
        parts.append(node.args["expression"])
        node = node.this
    parts.append(node)
    combine = conjunction if kind is exp.And else disjunction
    return combine([binder.condition(part) for part in reversed(parts)])


def _chain(binder: Binder, node: Any) -> Expr:
    return chains.bound(node, bind=binder.bind, condition=binder.condition, nulls=binder.nulls, budget=binder.budget)


def _negation(binder: Binder, node: Any) -> Expr:
    inner = node.this
    if isinstance(inner, exp.In):
        return _membership(binder, inner, negated=True)
    if isinstance(inner, exp.Is):
        return _is(binder, inner, negated=True)
    return predicates.invert(binder.condition(inner))


def _membership(binder: Binder, node: Any, *, negated: bool = False) -> Expr:
    if node.args.get("query") and binder.stages is not None:
        found = binder.predicate(binder.stages.subquery(binder, node))
        return predicates.invert(found) if negated else found
    if node.args.get("unnest") or node.args.get("field"):
        raise UnsupportedSqlError("IN without values in parentheses")
    if node.args.get("query"):
        raise UnsupportedSqlError("IN with a subquery")
    candidates = node.expressions
    if not candidates:
        raise SqlParseError("IN needs at least one value")
    if isinstance(node.this, exp.Tuple):
        found = disjunction([_same_row(binder, node.this, candidate) for candidate in candidates])
        return predicates.invert(found) if negated else found
    if isinstance(candidates[0], Constants):
        return _listed(binder.bind(node.this), candidates[0], negated=negated, nulls=binder.nulls)
    bound = [binder.bind(candidate) for candidate in candidates]
    return predicates.member(binder.bind(node.this), bound, negated=negated, nulls=binder.nulls)


def _listed(subject: Expr, constants: Constants, *, negated: bool, nulls: bool) -> Expr:
    found = predicates.member_of_values(subject, constants.values, negated=negated, nulls=nulls)
    return found or predicates.member(subject, constants.literals, negated=negated, nulls=nulls)


def _same_row(binder: Binder, row: exp.Tuple, other: exp.Expr) -> Expr:
    """`(a, b) = (1, 'x')`."""
    if not isinstance(other, exp.Tuple) or len(other.expressions) != len(row.expressions):
        raise SqlValidationError(f"IN of {len(row.expressions)} values a row needs as many in each of its rows")
    pairs = zip(row.expressions, other.expressions, strict=True)
    return conjunction([binder.equal(binder.bind(left), binder.bind(right)) for left, right in pairs])


def _between(binder: Binder, node: Any) -> Expr:
    this, low, high = (binder.bind(node.args[part]) for part in ("this", "low", "high"))
    between = predicates.between(this, low, high, nulls=binder.nulls)
    if not node.args.get("symmetric"):
        return between
    return disjunction([between, predicates.between(this, high, low, nulls=binder.nulls)])


def _like(binder: Binder, node: Any, escape: Expr | None = None) -> Expr:
    pattern = binder.bind(node.args["expression"])
    matched = predicates.like(binder.bind(node.this), pattern, escape, nulls=binder.nulls)
    return predicates.invert(matched) if node.args.get("negate") else matched


def _escape(binder: Binder, node: Any) -> Expr:
    if not isinstance(node.this, exp.Like):
        raise UnsupportedSqlError("ESCAPE")
    return _like(binder, node.this, binder.bind(node.args["expression"]))


def _is(binder: Binder, node: Any, *, negated: bool = False) -> Expr:
    right = node.args["expression"]
    if isinstance(right, exp.Null):
        return predicates.is_null(binder.bind(node.this), negated=negated)
    if isinstance(right, exp.Boolean):
        tested = binder.condition(node.this)
        wanted = tested if right.this else predicates.invert(tested)
        verdict = Call("case", (wanted, TRUE, FALSE), BOOLEAN) if binder.nulls else wanted
        return predicates.invert(predicate(verdict, binder.place)) if negated else predicate(verdict, binder.place)
    raise UnsupportedSqlError("IS with anything but NULL, TRUE and FALSE")


def _is_same(binder: Binder, node: Any) -> Expr:
    return predicates.same(binder.bind(node.this), binder.bind(node.args["expression"]), nulls=binder.nulls)


def _is_distinct(binder: Binder, node: Any) -> Expr:
    return predicates.invert(_is_same(binder, node))


def _case(binder: Binder, node: Any) -> Expr:
    subject = binder.bind(node.this) if node.this is not None else None
    branches: list[tuple[Expr, Expr]] = []
    for branch in node.args["ifs"]:
        if subject is None:
            test = binder.condition(branch.this)
        else:
            test = predicates.compare("equals", subject, binder.bind(branch.this), nulls=binder.nulls)
        branches.append((test, binder.bind(branch.args["true"])))
    default = node.args.get("default")
    otherwise = binder.bind(default) if default is not None else literals.NULL
    return typed_case(branches, otherwise, nulls=binder.nulls)


def _cast(binder: Binder, node: Any) -> Expr:
    converted = cast(binder.bind(node.this), data_type(node.to))
    return binder.fold(converted) if isinstance(converted, Call) else converted


_UNIT_FIRST = frozenset({"datetrunc", "timestampadd", "timestampdiff"})
_UNITS = frozenset(TRUNC_UNITS) | {f"{unit}S" for unit in TRUNC_UNITS}


def _with_unit(name: str, args: list[Any]) -> list[Any]:
    """`TIMESTAMPADD(DAY, …)` is `TIMESTAMPADD('DAY', …)`, also where a column is called so."""
    function = registry.find(name)
    if function is None or function.name not in _UNIT_FIRST or not args or not isinstance(args[0], exp.Column):
        return args
    first = args[0]
    is_unit = first.name.upper() in _UNITS and not first.table and not first.this.args.get("quoted")
    return [exp.Literal.string(first.name), *args[1:]] if is_unit else args


def _function(binder: Binder, node: Any) -> Expr:
    name = node.this if isinstance(node.this, str) else node.this.name
    function = aggregates.find(name)
    if function is not None:
        return _aggregate(binder, node.expressions, function)
    numbered = aggregates.numbered(name)
    if numbered is not None:
        return _aggregate(binder, [*node.expressions, exp.Literal.number(numbered[1])], numbered[0])
    if canonical_key(name) in ("grouping", "groupingid"):
        return _grouping(binder, node)
    args = _with_unit(name, node.expressions)
    if any(isinstance(arg, exp.Distinct) for arg in args):
        raise UnsupportedSqlError(f"DISTINCT in {name.upper()}")
    return binder.call(name, tuple(binder.bind(arg) for arg in args))


def _grouping(binder: Binder, node: Any) -> Expr:
    """GROUPING(a, b), of keys alone."""
    if binder.stages is None:
        raise SqlValidationError(NEEDS_GROUPING_SETS)
    if not binder.allows_aggregates:
        raise SqlValidationError(f"{binder.place} cannot use GROUPING")
    if not 1 <= len(node.expressions) <= MAX_GROUPING_ARGUMENTS:
        raise SqlValidationError(f"GROUPING takes 1 to {MAX_GROUPING_ARGUMENTS} keys, got {len(node.expressions)}")
    return Call(GROUPING, tuple(binder.bind(arg) for arg in node.expressions), INT)


NEEDS_GROUPING_SETS = "GROUPING needs GROUPING SETS, ROLLUP or CUBE"
MAX_GROUPING_ARGUMENTS = 30
"""Bits of an INT."""


def _array(binder: Binder, node: Any) -> Expr:
    """ARRAY[1, 2]"""
    if not node.expressions:
        raise SqlValidationError("ARRAY needs at least one value")
    return binder.call("arrayvalueconstructor", tuple(binder.bind(one) for one in node.expressions))


def _element(binder: Binder, node: Any) -> Expr:
    """`list[1]`, counted from 1."""
    if len(node.expressions) != 1:
        raise SqlParseError("an element of a list has one place")
    return binder.call("arrayelementatint", (binder.bind(node.this), binder.bind(node.expressions[0])))


def _extract(binder: Binder, node: Any) -> Expr:
    """EXTRACT(YEAR FROM at) is YEAR(at)."""
    field = node.this.name
    if canonical_key(field) not in FIELD_NAMES:
        raise UnsupportedSqlError(f"EXTRACT {field.upper()}")
    return binder.call(field, (binder.bind(node.expression),))


_IGNORING_REPEATS = frozenset({"min", "max", *DISTINCT_FORMS.values()})
"""Aggregates that answer the same of distinct values."""


def _aggregate(binder: Binder, args: Sequence[exp.Expr], function: AggregationFunction) -> Expr:
    name = function.name
    if not binder.allows_aggregates:
        raise _misplaced(binder, f"{binder.place} cannot use an aggregate: {name}")
    is_distinct = bool(args) and isinstance(args[0], exp.Distinct)
    if is_distinct:
        if name not in DISTINCT_FORMS and name not in _IGNORING_REPEATS:
            raise UnsupportedSqlError(f"DISTINCT in {name.upper()}")
        function = aggregates.named(DISTINCT_FORMS.get(name, name))
        args, name = args[0].expressions, function.name
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
    if isinstance(args[0], exp.Star):
        return count_rows(function)
    inner = replace(binder, place=f"{name}(…)", allows_aggregates=False, aliases_first=False)
    typed = typed_aggregate(function, [inner.bind(arg) for arg in args], nulls=binder.nulls)
    return typed if binder.stages is None else binder.stages.typed(typed, is_distinct=is_distinct)


def _window(binder: Binder, node: Any) -> Expr:
    if binder.stages is None:
        raise UnsupportedSqlError(feature_name(node))
    return binder.stages.window(binder, node)


def _subquery(binder: Binder, node: Any) -> Expr:
    if binder.stages is None:
        raise UnsupportedSqlError(feature_name(node))
    return binder.stages.subquery(binder, node)


def _filtered(binder: Binder, node: Any) -> Expr:
    bound = binder.bind(node.this)
    if not isinstance(bound, Aggregate):
        raise SqlValidationError("FILTER belongs to an aggregate")
    inner = replace(binder, place="FILTER", allows_aggregates=False, aliases_first=False)
    condition = inner.condition(node.args["expression"].this)
    return bound if condition == TRUE else replace(bound, filter=condition)


def _within_group(binder: Binder, node: Any) -> Expr:
    """`LISTAGG(x, ',') WITHIN GROUP (ORDER BY x)`: in the order that it has anyway, and in no other."""
    bound = binder.bind(node.this)
    if not (isinstance(bound, Aggregate) and bound.function == "listagg"):
        raise UnsupportedSqlError("WITHIN GROUP of another aggregate than LISTAGG")
    inner = replace(binder, place="WITHIN GROUP", allows_aggregates=False, aliases_first=False)
    keys = node.args["expression"].expressions
    if len(keys) != 1 or keys[0].args.get("desc") or inner.bind(keys[0].this) != bound.args[0]:
        raise UnsupportedSqlError("LISTAGG in another order than that of its values, ascending")
    return bound


def _parenthesis(binder: Binder, node: Any) -> Expr:
    return binder.bind(node.this)


def _boolean(_binder: Binder, node: Any) -> Expr:
    return TRUE if node.this else FALSE


def _null(_binder: Binder, _node: Any) -> Expr:
    return literals.NULL


def _hex_string(_binder: Binder, node: Any) -> Expr:
    return literals.convert(Literal(node.this, STRING), BYTES)


_Handler = Callable[[Binder, Any], Expr]

_HANDLERS: dict[type[exp.Expr], _Handler] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Neg: _negative,
    exp.Paren: _parenthesis,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.HexString: _hex_string,
    exp.DPipe: _concat,
    exp.And: _connector,
    exp.Or: _connector,
    chains.Chain: _chain,
    exp.Not: _negation,
    exp.In: _membership,
    exp.Between: _between,
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Is: _is,
    exp.NullSafeEQ: _is_same,
    exp.NullSafeNEQ: _is_distinct,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Anonymous: _function,
    exp.Extract: _extract,
    exp.Array: _array,
    exp.Bracket: _element,
    exp.Filter: _filtered,
    exp.WithinGroup: _within_group,
    exp.Window: _window,
    exp.Subquery: _subquery,
    exp.Exists: _subquery,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _operator),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _comparison),
}

_BINARY_ARGS = frozenset({"this", "expression"})
_ARGS_READ: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    chains.Chain: frozenset({"this", "parts", "expressions"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.In: frozenset({"this", "expressions", "query", "unnest", "field"}),
    exp.Between: frozenset({"this", "low", "high", "symmetric"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Array: frozenset({"expressions", "bracket_notation"}),
    exp.Bracket: frozenset({"this", "expressions"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "alias", "over"}),
    exp.Subquery: frozenset({"this", "with_"}),
    exp.Div: frozenset({"this", "expression", "typed", "safe"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
}
"""What a node may hold for its handler to have read it all: a part that sqlglot adds is refused, never ignored."""

"""Build comparisons with the same type on both sides: literals take the type of the other operand.

`intCol < 5.1` becomes `intCol <= 5`; a literal that no value of the type can equal decides the comparison at once;
literals stand on the right. On a multi-value column a positive comparison is met by any value, `not_equals` and
`not_in` must be met by all. Without null handling, a comparison with NULL is FALSE; with it, the rewrites keep NULL for
a null operand.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeGuard, cast

from merlot.functions.comparisons import with_backslashes
from merlot.functions.conversion import cast_to, common_type
from merlot.sql.boolean_logic import conjunction, disjunction, negation
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import FALSE, TRUE, Call, Expr, Literal, Value
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, STRING, SqlType
from merlot.values.types import TypeName

FLIPPED = {
    "equals": "equals",
    "not_equals": "not_equals",
    "less_than": "greater_than",
    "less_than_or_equal": "greater_than_or_equal",
    "greater_than": "less_than",
    "greater_than_or_equal": "less_than_or_equal",
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": operator.eq,
    "not_equals": operator.ne,
    "less_than": operator.lt,
    "less_than_or_equal": operator.le,
    "greater_than": operator.gt,
    "greater_than_or_equal": operator.ge,
}
_TEXT = (TypeName.STRING, TypeName.JSON)
_FLOATS = (TypeName.FLOAT, TypeName.DOUBLE)
_NULL_VERDICT = Literal(None, BOOLEAN)
MAX_DOUBLE: Final = sys.float_info.max


def compare(function: str, left: Expr, right: Expr, *, nulls: bool) -> Expr:
    """Compare two bound expressions. Raise SqlValidationError if their types cannot be compared."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, function = right, left, FLIPPED[function]
    for side in (left, right):
        if isinstance(side, Literal) and side.value is None:
            return _NULL_VERDICT if nulls else FALSE
    if isinstance(left, Literal) and isinstance(right, Literal):
        return _compare_constants(function, left, right)
    if isinstance(right, Literal):
        return _compare_with_literal(function, left, right, nulls=nulls)
    return _compare_expressions(function, left, right)


def member(expr: Expr, candidates: Iterable[Expr], *, negated: bool, nulls: bool) -> Expr:
    """Build `expr IN (…)` or `NOT IN`. A list of literals becomes one call, any other list several comparisons."""
    candidates = tuple(candidates)
    function = "not_equals" if negated else "equals"
    combine = conjunction if negated else disjunction
    if isinstance(expr, Literal) or not all(isinstance(candidate, Literal) for candidate in candidates):
        return combine(compare(function, expr, candidate, nulls=nulls) for candidate in candidates)
    wanted: dict[Literal, None] = {}
    rest: list[Expr] = []
    element = SqlType(expr.type.base)
    for candidate in candidates:
        if isinstance(candidate, Literal) and candidate.type == element and _is_plain(candidate):
            wanted[candidate] = None
            continue
        verdict = compare("equals", expr, candidate, nulls=nulls)
        if _is_range_end(verdict, expr, "equals") and isinstance(verdict.args[1], Literal):
            wanted[verdict.args[1]] = None
        else:
            rest.append(compare(function, expr, candidate, nulls=nulls))
    return _member(expr, list(wanted), rest, negated=negated)


def member_of_values(expr: Expr, values: Sequence[int | str | Literal], *, negated: bool, nulls: bool) -> Expr | None:
    """Build `member` of many whole numbers, or many texts, at once; None if they do not have the type of `expr`."""
    base = expr.type.base
    whole = cast("Sequence[int]", values) if base in literals.INTEGER_RANGES else ()
    if isinstance(expr, Literal) or not isinstance(values[0], int if whole else str if base is TypeName.STRING else ()):
        return None
    members: Iterable[Value] = dict.fromkeys(cast("Sequence[Value]", values))
    rest: list[Expr] = []
    if whole:
        low, high = literals.INTEGER_RANGES[base]
        if not low <= min(whole) <= max(whole) <= high:
            members = dict.fromkeys(value for value in whole if low <= value <= high)
            rest.append(_always(expr, negated, nulls=nulls))
    element = SqlType(base)
    return _member(expr, [Literal(value, element) for value in members], rest, negated=negated)


def _member(expr: Expr, wanted: Sequence[Literal], rest: list[Expr], *, negated: bool) -> Expr:
    """Combine the list of distinct values that `expr` may have with the verdicts on all other candidates."""
    if len(wanted) > 1:
        rest.append(Call("not_in" if negated else "in", (expr, *wanted), BOOLEAN))
    else:
        rest.extend(Call("not_equals" if negated else "equals", (expr, value), BOOLEAN) for value in wanted)
    return conjunction(rest) if negated else disjunction(rest)


def _is_plain(literal: Literal) -> bool:
    return literal.value is not None and not _is_nan(literal)


def between(expr: Expr, low: Expr, high: Expr, *, nulls: bool) -> Expr:
    """Build `expr BETWEEN low AND high`, both inclusive; a reversed range matches nothing."""
    if isinstance(high, Literal) and _is_nan(high):
        return compare("greater_than_or_equal", expr, low, nulls=nulls)  # NaN is the largest
    if isinstance(low, Literal) and _is_nan(low):
        return compare("greater_than", expr, low, nulls=nulls)
    above = compare("greater_than_or_equal", expr, low, nulls=nulls)
    below = compare("less_than_or_equal", expr, high, nulls=nulls)
    if TRUE in (above, below) or FALSE in (above, below):
        return conjunction((above, below))
    if nulls and (decided := _decided_range(expr, above, below)) is not None:
        return decided
    if not (_is_range_end(above, expr, "greater_than_or_equal") and _is_range_end(below, expr, "less_than_or_equal")):
        if expr.type.is_array:
            raise UnsupportedSqlError("BETWEEN of a multi-value column with bounds that are not constants")
        return conjunction((above, below))
    assert isinstance(above, Call)
    assert isinstance(below, Call)
    lowest, highest = above.args[1], below.args[1]
    assert isinstance(lowest, Literal)
    assert isinstance(highest, Literal)
    if not nulls and _order_key(lowest) > _order_key(highest):
        return FALSE
    return Call("between", (expr, lowest, highest), BOOLEAN)


def _decided_range(expr: Expr, above: Expr, below: Expr) -> Expr | None:
    """Return the verdict if a bound lies outside the type's range: every value meets it, or none. None otherwise."""
    if expr.type.base not in literals.INTEGER_RANGES:
        return None
    always, never = (_always(expr, verdict, nulls=True) for verdict in (True, False))
    if never in (above, below):
        return never
    if always in (above, below):
        return above if below == always else below
    return None


def like(expr: Expr, pattern: Expr, escape: Expr | None, *, nulls: bool) -> Expr:
    """Build `expr LIKE pattern`. A constant pattern is bound with backslashes as escapes, whatever ESCAPE says."""
    if any(isinstance(side, Literal) and side.value is None for side in (expr, pattern)):
        return _NULL_VERDICT if nulls else FALSE
    for side in (expr, pattern):
        if side.type.base not in _TEXT or (side is pattern and side.type.is_array):
            raise SqlValidationError(f"LIKE needs a STRING, not {side.type}")
    character = "\\" if escape is None else _escape_character(escape)
    if isinstance(pattern, Literal):
        return Call("like", (expr, Literal(with_backslashes(str(pattern.value), character), STRING)), BOOLEAN)
    if expr.type.is_array:
        raise UnsupportedSqlError("LIKE of a multi-value column with a pattern that is not a constant")
    return Call("likevar", (expr, pattern, Literal(character, STRING)), BOOLEAN)


def _escape_character(escape: Expr) -> str:
    if not (isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) == 1):
        raise SqlValidationError("ESCAPE needs one character")
    return escape.value


def is_null(expr: Expr, *, negated: bool) -> Expr:
    """Build `expr IS [NOT] NULL`."""
    if isinstance(expr, Literal):
        return TRUE if (expr.value is None) != negated else FALSE
    return Call("is_not_null" if negated else "is_null", (expr,), BOOLEAN)


def same(left: Expr, right: Expr, *, nulls: bool) -> Expr:
    """Build `left IS NOT DISTINCT FROM right`: equal, or both null. It is never NULL, with or without null handling."""
    if left.type.is_array or right.type.is_array:
        raise UnsupportedSqlError("IS DISTINCT FROM of a multi-value column")
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and side.value is None:
            return is_null(other, negated=False)
    both_null = conjunction(is_null(side, negated=False) for side in (left, right))
    not_null = [is_null(side, negated=True) for side in (left, right)]
    return disjunction((conjunction((*not_null, compare("equals", left, right, nulls=nulls))), both_null))


def _compare_constants(function: str, left: Literal, right: Literal) -> Expr:
    if left.type.base is TypeName.TIMESTAMP or right.type.base is TypeName.TIMESTAMP:
        left, right = (literals.convert(side, SqlType(TypeName.TIMESTAMP)) for side in (left, right))
    elif left.type.is_numeric != right.type.is_numeric:
        left, right = literals.as_number(left), literals.as_number(right)
    elif common_type(left.type, right.type) is None:
        raise SqlValidationError(f"cannot compare {left.type} with {right.type}")
    return TRUE if _OPERATORS[function](_order_key(left), _order_key(right)) else FALSE


def _order_key(literal: Literal) -> Any:
    """Return a key that Python orders as the engine orders values: text by code point, numbers of any kind exactly, NaN
    last."""
    return (True, 0) if _is_nan(literal) else (False, literal.value)


def _is_nan(literal: Literal) -> bool:
    return isinstance(literal.value, float) and math.isnan(literal.value)


def _compare_with_literal(function: str, expr: Expr, literal: Literal, *, nulls: bool) -> Expr:
    element = SqlType(expr.type.base)
    base = element.base
    if base is TypeName.TIMESTAMP and isinstance(literal.value, str):
        literal = literals.convert(literal, element)
    if base in literals.INTEGER_RANGES:
        return _compare_integer(function, expr, literals.as_number(literal).value, nulls=nulls)
    if base in _FLOATS:
        return _compare_float(function, expr, literals.as_number(literal), nulls=nulls)
    if base is TypeName.BIG_DECIMAL and isinstance(literal.value, float) and not math.isfinite(literal.value):
        return _compare_float(function, cast_to(expr, DOUBLE), literal, nulls=nulls)
    return Call(function, (expr, literals.convert(literal, element)), BOOLEAN)


def _compare_integer(function: str, expr: Expr, value: Value, *, nulls: bool) -> Expr:
    """Compare an integer with any number exactly, by moving to the nearest whole number that meets the comparison."""
    assert isinstance(value, int | float | Decimal)
    low, high = literals.INTEGER_RANGES[expr.type.base]
    if not low <= value <= high:
        return _decided(function, expr, is_above=not value < low, nulls=nulls)
    floor = math.floor(value)
    if floor != value:
        if function in ("equals", "not_equals"):
            return _always(expr, function == "not_equals", nulls=nulls)
        is_less = function.startswith("less")
        function = "less_than_or_equal" if is_less else "greater_than_or_equal"
        floor = floor if is_less else floor + 1
    if not nulls and not expr.type.is_array:
        if (function, floor) in (("less_than", low), ("greater_than", high)):
            return FALSE
        if (function, floor) in (("less_than_or_equal", high), ("greater_than_or_equal", low)):
            return TRUE
    return Call(function, (expr, Literal(floor, SqlType(expr.type.base))), BOOLEAN)


def _compare_float(function: str, expr: Expr, literal: Literal, *, nulls: bool) -> Expr:
    element = SqlType(expr.type.base)
    converted = literals.convert(literal, element)
    if _is_nan(converted):
        return _compare_nan(function, expr, nulls=nulls)
    if converted.value in (math.inf, -math.inf) and literal.value != converted.value:
        is_above = converted.value == math.inf
        if function in ("equals", "not_equals"):
            return _always(expr, function == "not_equals", nulls=nulls)
        # A number beyond the type's range lies between its greatest number and infinity.
        if is_above:
            function = "less_than" if function.startswith("less") else "greater_than_or_equal"
        else:
            function = "less_than_or_equal" if function.startswith("less") else "greater_than"
    return Call(function, (expr, converted), BOOLEAN)


def _compare_nan(function: str, expr: Expr, *, nulls: bool) -> Expr:
    """Compare with NaN, which is greater than infinity."""
    if function in ("less_than_or_equal", "greater_than"):
        return _always(expr, function == "less_than_or_equal", nulls=nulls)
    infinity = Literal(math.inf, SqlType(expr.type.base))
    if function == "less_than":
        return Call("less_than_or_equal", (expr, infinity), BOOLEAN)
    is_nan = Call("greater_than", (expr, infinity), BOOLEAN)
    return negation(is_nan) if function == "not_equals" else is_nan


def _decided(function: str, expr: Expr, *, is_above: bool, nulls: bool) -> Expr:
    """Return the verdict for a constant outside the type's range, above or below it."""
    if function in ("equals", "not_equals"):
        return _always(expr, function == "not_equals", nulls=nulls)
    return _always(expr, function.startswith("less") == is_above, nulls=nulls)


def _always(expr: Expr, verdict: bool, *, nulls: bool) -> Expr:
    """Return a constant verdict; with null handling it is still NULL for a null operand."""
    if not nulls:
        return TRUE if verdict else FALSE
    base = expr.type.base
    lowest: Value = -math.inf if base in _FLOATS else literals.INTEGER_RANGES[base][0]
    function = "greater_than_or_equal" if verdict else "less_than"
    return Call(function, (expr, Literal(lowest, SqlType(base))), BOOLEAN)


def _compare_expressions(function: str, left: Expr, right: Expr) -> Expr:
    if left.type.is_array or right.type.is_array:
        raise UnsupportedSqlError("comparison of a multi-value column with anything but constants")
    target = common_type(left.type, right.type)
    if target is None:
        raise SqlValidationError(f"cannot compare {left.type} with {right.type}")
    verdict = Call(function, (cast_to(left, target), cast_to(right, target)), BOOLEAN)
    floats = [side for side in (left, right) if side.type.base in _FLOATS]
    if target != BIG_DECIMAL or not floats:
        return verdict
    # NaN and the infinities are no decimals, but they are ordered among numbers.
    most = Literal(MAX_DOUBLE, DOUBLE)
    is_finite = Call("between", (cast_to(floats[0], DOUBLE), Literal(-MAX_DOUBLE, DOUBLE), most), BOOLEAN)
    as_doubles = Call(function, (cast_to(left, DOUBLE), cast_to(right, DOUBLE)), BOOLEAN)
    return Call("equals", (Call("case", (is_finite, verdict, as_doubles), BOOLEAN), TRUE), BOOLEAN)


def _is_range_end(verdict: Expr, expr: Expr, function: str) -> TypeGuard[Call]:
    """Return True if a verdict is the comparison of `expr` with a constant."""
    return (
        isinstance(verdict, Call)
        and verdict.function == function
        and verdict.args[0] == expr
        and isinstance(verdict.args[1], Literal)
    )


def invert(expr: Expr) -> Expr:
    """Return NOT of a predicate: the opposite call, if both agree on multi-value columns and on NULL."""
    if isinstance(expr, Call) and expr.function in _OPPOSITES:
        return Call(_OPPOSITES[expr.function], expr.args, BOOLEAN)
    return negation(expr)


_OPPOSITES = {
    "in": "not_in",
    "not_in": "in",
    "equals": "not_equals",
    "not_equals": "equals",
    "is_null": "is_not_null",
    "is_not_null": "is_null",
}

"""Convert arguments whose types are not those that a function wants, as Pinot does."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from merlot.functions.function import INSTANTS, TEXTS, WHOLE, Parameter, ScalarFunction
from merlot.tree.nodes import Aggregate, Call, Expr
from merlot.tree.types import LONG, STRING
from merlot.values.types import TypeName

_WITH_FRACTIONS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL})
_WHOLE_FORMS: Final = {"max": "maxlong", "min": "minlong"}
"""Aggregates that answer DOUBLE, and the aggregates that answer the same as LONG."""


def fitted(function: ScalarFunction, args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the arguments as text where the function wants text, and as whole numbers, cut off at the point, where it
    wants those.

    Lists, arguments of predicates, and arguments that have to be constants are not converted."""
    if function.is_predicate or not function.parameters:
        return args
    return tuple(_fitted(function.parameter(place), arg) for place, arg in enumerate(args))


def as_whole(arg: Expr) -> Expr:
    """Return a FLOAT, DOUBLE or BIG_DECIMAL as a LONG, and any other expression as it is. MAX and MIN of whole numbers
    and times are computed as LONG, so that they lose no digit and have a value even without rows."""
    if arg.type.base not in _WITH_FRACTIONS:
        return arg
    if isinstance(arg, Aggregate) and arg.function in _WHOLE_FORMS and arg.args[0].type.base in INSTANTS.types:
        return replace(arg, function=_WHOLE_FORMS[arg.function], type=LONG)
    return Call("cast", (arg,), LONG)


def _fitted(parameter: Parameter, arg: Expr) -> Expr:
    base = arg.type.base
    if base in parameter.kind.types or arg.type.is_array or parameter.is_constant or parameter.is_list:
        return arg
    if parameter.kind is TEXTS and base is not TypeName.UNKNOWN:
        return Call("cast", (arg,), STRING)
    return as_whole(arg) if parameter.kind in (WHOLE, INSTANTS) else arg

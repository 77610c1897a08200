"""Arguments as Pinot takes them: values of other types than a function wants, converted."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from merlot.functions.function import INSTANTS, TEXTS, WHOLE, Parameter, ScalarFunction
from merlot.tree.nodes import Aggregate, Call, Expr
from merlot.tree.types import LONG, STRING
from merlot.values.types import TypeName

_WITH_FRACTIONS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL})
_WHOLE_FORMS: Final = {"max": "maxlong", "min": "minlong"}
"""Aggregates that answer DOUBLE, and the same as LONG."""


def fitted(function: ScalarFunction, args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The arguments, as text where text is wanted, as whole numbers where these are: what follows the point is cut off.

    Predicates take what they say they take, and constants that a function needs have to be what they are.
    """
    if function.is_predicate or not function.parameters:
        return args
    return tuple(_fitted(function.parameter(place), arg) for place, arg in enumerate(args))


def as_whole(arg: Expr) -> Expr:
    """A number as a LONG. MAX and MIN of whole numbers and times lose no digit, and have a value of no rows."""
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

"""Type calls of aggregates: arguments and result, as each aggregate declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateParameter, AggregationFunction
from merlot.functions.function import arity
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Aggregate, Expr, Literal
from merlot.tree.types import SqlType

OF_LISTS: Final = {
    name: f"{name}mv"
    for name in (
        *("distinctcount", "distinctsum", "distinctavg", "distinctcountbitmap"),
        *("distinctcounthll", "distinctcountrawhll"),
    )
}
"""Aggregates of distinct values that take every value of a multi-value column, without an MV in their name."""


def count_rows(function: AggregationFunction) -> Aggregate:
    """Return COUNT(*). Raise SqlValidationError for any other aggregate."""
    if not function.counts_rows:
        raise SqlValidationError(f"{function.name} cannot take *")
    return Aggregate(function.name, (), function.result((), ()))


def check_arity(function: AggregationFunction, number: int) -> None:
    """Raise SqlValidationError if an aggregate does not take this number of arguments."""
    least, most = function.arity
    if not least <= number <= most:
        raise SqlValidationError(f"{function.name} takes {arity(least, most)}, got {number}")


def typed_aggregate(function: AggregationFunction, args: Sequence[Expr], *, nulls: bool) -> Aggregate:
    """Return the typed call. Raise SqlValidationError or UnsupportedSqlError if it is not valid."""
    first = args[0]
    if first.type.is_array and function.name in OF_LISTS and all(isinstance(arg, Literal) for arg in args[1:]):
        function = registry.named(OF_LISTS[function.name])
    if function.counts_rows and (not nulls or (isinstance(first, Literal) and first.value is not None)):
        return count_rows(function)
    args = function.complete(args)
    name, type_ = _called(function, args)
    return Aggregate(name, tuple(args), type_)


def check_typed(aggregate: Aggregate) -> None:
    """Raise SqlValidationError, UnsupportedSqlError or UnsupportedQueryError for a call that binding would not
    produce."""
    function = registry.named(aggregate.function)
    if not aggregate.args and function.counts_rows:
        expected = function.name, function.result((), ())
    else:
        least, most = sum(not parameter.is_optional for parameter in function.parameters), len(function.parameters)
        if not least <= len(aggregate.args) <= most:
            raise SqlValidationError(f"{function.name} takes {arity(least, most)}, got {len(aggregate.args)}")
        expected = _called(function, aggregate.args)
    if expected != (aggregate.function, aggregate.type):
        name, type_ = expected
        raise SqlValidationError(f"{name} answers {type_}, not {aggregate.type} by {aggregate.function:.100}")


def _called(function: AggregationFunction, args: Sequence[Expr]) -> tuple[str, SqlType]:
    """Return the name and the type of a call with complete arguments."""
    for parameter, arg in zip(function.parameters, args, strict=False):
        _check(function, parameter, arg)
    pairs = list(zip(function.parameters, args, strict=False))
    types = [arg.type for parameter, arg in pairs if not parameter.is_constant]
    constants = [arg.value for parameter, arg in pairs if parameter.is_constant and isinstance(arg, Literal)]
    function = registry.named(function.variant(types))
    problem = function.problem(types, constants)
    if problem is not None:
        raise SqlValidationError(f"{function.name}: {problem}")
    return function.name, function.result(types, constants)


def _check(function: AggregationFunction, parameter: AggregateParameter, arg: Expr) -> None:
    if parameter.is_constant and not isinstance(arg, Literal):
        raise SqlValidationError(f"{function.name} needs its {parameter.name} as a constant")
    if parameter.is_constant and isinstance(arg, Literal) and arg.value is None:
        raise SqlValidationError(f"{function.name} needs a value for its {parameter.name}, not NULL")
    takes_lists = function.flattens and parameter is function.parameters[0]
    if takes_lists and not arg.type.is_array:
        raise SqlValidationError(f"{function.name} needs a multi-value column, not {arg.type}")
    if arg.type.is_array and not (takes_lists or function.counts_rows):
        raise UnsupportedSqlError(f"{function.name.upper()} of a multi-value column")
    if arg.type.base not in parameter.takes:
        raise SqlValidationError(f"{function.name} cannot take {arg.type}")

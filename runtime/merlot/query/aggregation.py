"""Aggregates of a plan: the function of each, its call, and the expressions that feed its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateCall, AggregationFunction, StateField
from merlot.tree.nodes import Aggregate, Expr, Literal, Value
from merlot.tree.types import SqlType
from merlot.vectors.errors import UnsupportedQueryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """Aggregate in slot `a0`, `a1`, … of a partial answer."""

    function: AggregationFunction
    call: AggregateCall
    arguments: tuple[Expr, ...]
    """Arguments that have a value per row; the others are constants."""
    filter: Expr | None
    fields: tuple[StateField, ...]

    @property
    def tells_nothing(self) -> bool:
        """True if a state shows whether it had values, with null handling or without."""
        return self.fields == self.function.fields(replace(self.call, nulls=True))


def aggregation(aggregate: Aggregate, *, nulls: bool) -> Aggregation:
    """Return an aggregate with its function from the registry. Raises UnsupportedQueryError."""
    function = registry.named(aggregate.function)
    if len(aggregate.args) > len(function.parameters):
        raise UnsupportedQueryError(f"aggregate has too many arguments function={function.name}")
    arguments: list[Expr] = []
    constants: list[Value] = []
    for parameter, arg in zip(function.parameters, aggregate.args, strict=False):
        if not parameter.is_constant:
            arguments.append(arg)
        elif isinstance(arg, Literal):
            constants.append(arg.value)
        else:
            raise UnsupportedQueryError(f"{parameter.name} of an aggregate must be a constant function={function.name}")
    if any(arg.type.is_array for arg in arguments) and not (function.counts_rows or function.flattens):
        raise UnsupportedQueryError(f"aggregate of a multi-value column function={function.name}")
    if function.counts_rows and not nulls:
        arguments = []
    types = tuple(SqlType(arg.type.base) for arg in arguments)
    call = AggregateCall(types=types, constants=tuple(constants), result=aggregate.type, nulls=nulls)
    return Aggregation(
        function=function, call=call, arguments=tuple(arguments), filter=aggregate.filter, fields=function.fields(call)
    )

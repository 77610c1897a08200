"""Outputs of a leaf for a SELECT over one table that groups, and the expressions that replace its aggregates above.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.aggregates import registry
from merlot.functions.registry import BY_NAME
from merlot.query.aggregation import aggregation
from merlot.query.stages.conjuncts import all_of, conjuncts
from merlot.query.stages.rewriting import substituted
from merlot.tree.nodes import FALSE, Aggregate, Call, Column, Expr, Literal, Output
from merlot.tree.relations import Block
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, LONG, STRING, SqlType
from merlot.values.types import TypeName

_WHOLE = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})


class Grouping:
    """Outputs of a leaf that aggregates, and the expressions over them that replace keys and aggregates for readers."""

    def __init__(self, scan: str, keys: tuple[Expr, ...], *, nulls: bool, is_whole: bool) -> None:
        self._scan = scan
        self._nulls = nulls
        self._is_whole = is_whole
        self.outputs: list[Output] = []
        self.types: list[SqlType] = []
        self.slots: dict[Expr, Expr] = {}
        self._numbers: dict[Expr, int] = {}
        """Positions of the outputs by their expressions."""
        for key in keys:
            self.slots[key] = self._output(of_table(key), key.type)

    def add(self, aggregate: Aggregate) -> None:
        own = of_table(aggregate)
        assert isinstance(own, Aggregate)
        computed, type_ = _single_stage_aggregate(own if self._nulls or own.function != "count" else _count_of(own))
        slot: Expr = self._output(computed, type_)
        if slot.type != aggregate.type:
            slot = Call("cast", (slot,), aggregate.type)
        flattens = registry.named(own.function).flattens
        may_be_empty = self._is_whole or aggregate.filter is not None or flattens or any(map(_may_be_null, own.args))
        if may_be_empty and not self._nulls and _needs_count(computed):
            count = Aggregate("countmv", own.args[:1], LONG, own.filter) if flattens else _count_of(own)
            counted = self._output(count, LONG)
            some = Call("greater_than", (counted, Literal(0, LONG)), BOOLEAN)
            slot = Call("case", (some, slot, Literal(None, aggregate.type)), aggregate.type)
        self.slots[aggregate] = slot

    def _output(self, expr: Expr, type_: SqlType) -> Column:
        number = self._numbers.setdefault(expr, len(self.outputs))
        if number == len(self.outputs):
            self.outputs.append(Output(f"c{number}", expr))
            self.types.append(type_)
        return Column(f"{self._scan}.c{number}", type_)


def _single_stage_aggregate(aggregate: Aggregate) -> tuple[Aggregate, SqlType]:
    """Return the aggregate of a single-stage query that has the exact value, and the type to read it as."""
    name, type_ = aggregate.function, aggregate.type
    if name == "sum" and type_ == LONG:
        return replace(aggregate, function="sumlong"), LONG
    if name == "sum" and type_ == BIG_DECIMAL:
        return replace(aggregate, function="sumprecision", type=STRING), BIG_DECIMAL
    if name in ("min", "max") and type_.base in _WHOLE:
        return replace(aggregate, function=f"{name}long", type=LONG), LONG
    if name in ("min", "max"):
        return replace(aggregate, type=DOUBLE), DOUBLE
    if name == "distinctcount":
        return replace(aggregate, type=SqlType(TypeName.INT)), SqlType(TypeName.INT)
    return aggregate, type_


def _count_of(aggregate: Aggregate) -> Aggregate:
    """Return the count of rows in which every argument has a value. Without null handling, COUNT(x) of a single-stage
    query counts all rows."""
    are_present = [
        FALSE if isinstance(arg, Literal) else Call("is_not_null", (arg,), BOOLEAN)
        for arg in aggregate.args
        if _may_be_null(arg)
    ]
    condition = all_of([*conjuncts(aggregate.filter), *are_present])
    args = aggregate.args if aggregate.function == "count" else ()
    return Aggregate("count", () if are_present else args, LONG, condition)


def _may_be_null(expr: Expr) -> bool:
    """Return whether an expression may be NULL although columns hold default values instead of nulls."""
    if isinstance(expr, Call):
        function = BY_NAME[expr.function]
        return function.lazy is not None or any(map(_may_be_null, expr.args))
    return isinstance(expr, Literal) and expr.value is None


def _needs_count(aggregate: Aggregate) -> bool:
    """Return whether an aggregate is NULL over no values, and its state does not show that without null handling."""
    plain = aggregation(aggregate, nulls=False)
    if plain.tells_nothing:
        return False
    call = replace(plain.call, nulls=True)
    return bool(plain.function.finish(call, plain.function.identity(call)).to_arrow(1).null_count)


def is_leaf_aggregate(aggregate: Aggregate) -> bool:
    return not (aggregate.function in ("min", "max") and aggregate.type == BIG_DECIMAL)


def aggregates_in(block: Block) -> list[Aggregate]:
    aggregates: dict[Aggregate, None] = {}
    for expr in block.exprs:
        _collect(expr, aggregates)
    return list(aggregates)


def _collect(expr: Expr, aggregates: dict[Aggregate, None]) -> None:
    if isinstance(expr, Aggregate):
        aggregates[expr] = None
    elif isinstance(expr, Call):
        for arg in expr.args:
            _collect(arg, aggregates)


def of_table(expr: Expr) -> Expr:
    """Return an expression over a scan's columns as one over the table's columns."""

    def own(node: Expr) -> Expr | None:
        return Column(node.name.partition(".")[2], node.type) if isinstance(node, Column) else None

    return substituted(expr, own)

"""Say what a leaf is asked where a SELECT over one table groups, and what stands for its aggregates above. Pure."""

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
    """Outputs of a leaf that aggregates, and what readers have instead of keys and aggregates."""

    def __init__(self, scan: str, keys: tuple[Expr, ...], *, nulls: bool, is_whole: bool) -> None:
        self._scan = scan
        self._nulls = nulls
        self._is_whole = is_whole
        self.outputs: list[Output] = []
        self.types: list[SqlType] = []
        self.slots: dict[Expr, Expr] = {}
        for key in keys:
            self.slots[key] = self._output(of_table(key), key.type)

    def add(self, aggregate: Aggregate) -> None:
        own = of_table(aggregate)
        assert isinstance(own, Aggregate)
        asked, type_ = _asked(own if self._nulls or own.function != "count" else _count_of(own))
        slot: Expr = self._output(asked, type_)
        if slot.type != aggregate.type:
            slot = Call("cast", (slot,), aggregate.type)
        flattens = registry.named(own.function).flattens
        may_be_empty = self._is_whole or aggregate.filter is not None or flattens or any(map(_may_be_null, own.args))
        if may_be_empty and not self._nulls and _needs_count(asked):
            count = Aggregate("countmv", own.args[:1], LONG, own.filter) if flattens else _count_of(own)
            counted = self._output(count, LONG)
            some = Call("greater_than", (counted, Literal(0, LONG)), BOOLEAN)
            slot = Call("case", (some, slot, Literal(None, aggregate.type)), aggregate.type)
        self.slots[aggregate] = slot

    def _output(self, expr: Expr, type_: SqlType) -> Column:
        number = next((at for at, one in enumerate(self.outputs) if one.expr == expr), len(self.outputs))
        if number == len(self.outputs):
            self.outputs.append(Output(f"c{number}", expr))
            self.types.append(type_)
        return Column(f"{self._scan}.c{number}", type_)


def _asked(aggregate: Aggregate) -> tuple[Aggregate, SqlType]:
    """The aggregate of one stage that gives the value exactly, and the type to read it as."""
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
    """How many rows have a value of every argument: without null handling COUNT(x) of one stage counts all rows."""
    known = [
        FALSE if isinstance(arg, Literal) else Call("is_not_null", (arg,), BOOLEAN)
        for arg in aggregate.args
        if _may_be_null(arg)
    ]
    condition = all_of([*conjuncts(aggregate.filter), *known])
    args = aggregate.args if aggregate.function == "count" else ()
    return Aggregate("count", () if known else args, LONG, condition)


def _may_be_null(expr: Expr) -> bool:
    """Whether an expression has NULLs of its own, where columns are their default values."""
    if isinstance(expr, Call):
        function = BY_NAME[expr.function]
        return function.lazy is not None or any(map(_may_be_null, expr.args))
    return isinstance(expr, Literal) and expr.value is None


def _needs_count(aggregate: Aggregate) -> bool:
    """Whether it is NULL of no values, and its state does not tell that without null handling."""
    one = aggregation(aggregate, nulls=False)
    if one.tells_nothing:
        return False
    call = replace(one.call, nulls=True)
    return bool(one.function.finish(call, one.function.identity(call)).to_arrow(1).null_count)


def is_leaf_aggregate(aggregate: Aggregate) -> bool:
    return not (aggregate.function in ("min", "max") and aggregate.type == BIG_DECIMAL)


def aggregates_in(block: Block) -> list[Aggregate]:
    found: dict[Aggregate, None] = {}
    for expr in block.exprs:
        _collect(expr, found)
    return list(found)


def _collect(expr: Expr, found: dict[Aggregate, None]) -> None:
    if isinstance(expr, Aggregate):
        found[expr] = None
    elif isinstance(expr, Call):
        for arg in expr.args:
            _collect(arg, found)


def of_table(expr: Expr) -> Expr:
    """An expression of a scan's columns as one of the table's."""

    def own(one: Expr) -> Expr | None:
        return Column(one.name.partition(".")[2], one.type) if isinstance(one, Column) else None

    return substituted(expr, own)

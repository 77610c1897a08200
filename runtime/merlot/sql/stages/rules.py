"""Check the clauses of a SELECT over relations against each other: what may be selected and ordered by in groups."""

from __future__ import annotations

from collections.abc import Mapping

from merlot.sql.expressions import NEEDS_GROUPING_SETS, has_aggregate
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.relations import GROUPING, Block, Slot, Window, relations_in, slot_exprs, source_id


def is_grouped(block: Block) -> bool:
    """Return True if the block's rows are groups."""
    return bool(block.group_by or block.grouping_sets) or any(map(has_aggregate, block.exprs))


def check_block(block: Block) -> None:
    """Raise SqlValidationError or UnsupportedSqlError for a SELECT whose clauses do not fit each other."""
    if any(key.type.is_array for key in block.group_by) or (
        block.is_distinct and any(output.expr.type.is_array for output in block.outputs)
    ):
        raise UnsupportedSqlError("GROUP BY and DISTINCT of a list beside other stages")
    if any(key.expr.type.is_array for key in block.order_by):
        raise SqlValidationError("ORDER BY of a multi-value column")
    if block.is_distinct:
        selected = {output.expr for output in block.outputs}
        if any(key.expr not in selected for key in block.order_by):
            raise SqlValidationError("ORDER BY of a SELECT DISTINCT must be among the selected expressions")
    if block.qualify is not None and not windows_of(block):
        raise SqlValidationError("QUALIFY needs a window function")
    if is_grouped(block):
        _check_groups(block)
    elif block.having is not None:
        raise SqlValidationError("HAVING needs GROUP BY or an aggregate")


def _check_groups(block: Block) -> None:
    keys = frozenset(block.group_by)
    if not block.grouping_sets and any(map(_has_grouping, block.exprs)):
        raise SqlValidationError(NEEDS_GROUPING_SETS)
    own = frozenset(relation.id for relation in relations_in(block.source))
    later = [output.expr for output in block.outputs] + [key.expr for key in block.order_by]
    later += [expr for expr in (block.having, block.qualify) if expr is not None]
    for expr in later:
        _check(expr, keys, own, block.slots)


def _check(expr: Expr, keys: frozenset[Expr], own: frozenset[str], slots: Mapping[str, Slot]) -> None:
    if expr in keys or isinstance(expr, Literal | Aggregate):
        return
    if isinstance(expr, Column):
        slot = slots.get(expr.name)
        if slot is not None:
            for inner in slot_exprs(slot):
                _check(inner, keys, own, slots)
        elif source_id(expr) in own:
            name = expr.name.partition(".")[2]
            raise SqlValidationError(f"a column is neither grouped nor aggregated column={name}")
        return
    assert isinstance(expr, Call)
    if expr.function == GROUPING and not keys.issuperset(expr.args):
        raise SqlValidationError("GROUPING is of keys of the GROUP BY")
    for arg in expr.args:
        _check(arg, keys, own, slots)


def _has_grouping(expr: Expr) -> bool:
    return isinstance(expr, Call) and (expr.function == GROUPING or any(map(_has_grouping, expr.args)))


def windows_of(block: Block) -> Mapping[str, Window]:
    """Return the block's windows by slot."""
    return {name: slot for name, slot in block.slots.items() if isinstance(slot, Window)}

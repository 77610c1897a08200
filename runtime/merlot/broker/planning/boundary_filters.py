"""Combine a query's filter with the time boundary, for segments of a hybrid table that reach beyond it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from merlot.broker.tables import ServedTable
from merlot.cluster.segments.boundary import BEFORE_ALL, BoundaryRule, TimeSplit
from merlot.tree.nodes import Call, Column, Literal
from merlot.tree.tree_json import both_wheres, where_to_json
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName

_NONE: Final[Mapping[TimeSplit, bytes]] = {}


def boundary_filters(table: ServedTable, where: bytes) -> Mapping[TimeSplit, bytes]:
    """Return the encoded filters by the rows that a query sees of a segment; empty for a table without a boundary."""
    rule, boundary_ms = table.rule, table.snapshot.time_boundary_ms
    if rule is None or boundary_ms is None or boundary_ms == BEFORE_ALL:
        return _NONE
    field = table.schema.field(rule.column)
    assert field is not None, "a table's time column stays"
    conditions = _conditions(rule, boundary_ms, field.type)
    return {seen: both_wheres(where, condition) for seen, condition in conditions.items()}


@functools.lru_cache(maxsize=1024)
def _conditions(rule: BoundaryRule, boundary_ms: int, type_: TypeName) -> Mapping[TimeSplit, bytes]:
    """Encode the boundary's conditions. Cached, as a boundary moves once a day."""
    sql_type = SqlType(type_)
    operands = (Column(rule.column, sql_type), Literal(rule.value(boundary_ms), sql_type))
    calls = {TimeSplit.BEFORE: "less_than", TimeSplit.FROM: "greater_than_or_equal"}
    return {seen: where_to_json(Call(function, operands, BOOLEAN)) for seen, function in calls.items()}

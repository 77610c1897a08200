"""Filters from SQL, and statistics from plain lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from merlot.query.plan.binding import bind
from merlot.query.pruning.partitions import ColumnPartitions, SegmentPartitions, function_of
from merlot.query.pruning.ranges import ColumnRanges
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.tree.nodes import Expr
from merlot.values.types import TypeName

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "t", "type": "LONG"},
            {"name": "x", "type": "LONG"},
            {"name": "name", "type": "STRING"},
            {"name": "price", "type": "DOUBLE"},
            {"name": "tags", "type": "LONG", "multiValue": True},
            {"name": "memberId", "type": "STRING"},
        ]
    }
)


@pytest.fixture
def where() -> Callable[..., Expr | None]:
    """where("t > 5") is the bound filter."""

    def bound(condition: str, **options: str) -> Expr | None:
        return bind(parse(f"SELECT count(*) FROM flights WHERE {condition}"), SCHEMA, options).where

    return bound


@pytest.fixture
def ranged() -> Callable[..., SegmentStatistics]:
    """ranged(t=[(10, 60), None]) are the statistics of two segments."""

    def make(**columns: Sequence[tuple[Any, Any] | None]) -> SegmentStatistics:
        ranges = {name: ColumnRanges.of(bounds) for name, bounds in columns.items()}
        return SegmentStatistics(num_segments=len(next(iter(columns.values()))), ranges=ranges)

    return make


@pytest.fixture
def partitioned() -> Callable[..., SegmentStatistics]:
    """partitioned(memberId=[("Murmur", 4, {0}), None]) likewise."""

    def make(**columns: Sequence[tuple[str, int, set[int]] | None]) -> SegmentStatistics:
        partitions: Mapping[str, ColumnPartitions] = {
            name: ColumnPartitions.of(
                TypeName.STRING if name == "memberId" else TypeName.LONG,
                [None if one is None else _partitions(*one) for one in segments],
            )
            for name, segments in columns.items()
        }
        return SegmentStatistics(num_segments=len(next(iter(columns.values()))), partitions=partitions)

    return make


def _partitions(function: str, count: int, held: set[int]) -> SegmentPartitions:
    return SegmentPartitions(function_of(function, count, None), frozenset(held))

"""Bounds for the groups of a table, from the records of its segments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.broker.planning.staged import ServedSizes
from merlot.broker.routing.distincts import TableDistincts
from merlot.broker.routing.routes import RoutingSnapshot
from merlot.broker.tables import ServedTable
from merlot.cluster.column_types import format_columns
from merlot.cluster.distincts import format_distincts
from merlot.cluster.records import SegmentRecord
from merlot.ids import TableName
from merlot.spec.table import QueryLimits, TableSpec
from merlot.values.types import TypeName

COLUMNS = format_columns({"a": (TypeName.INT, False), "b": (TypeName.STRING, False)})


def record(docs: int, distincts: str, columns: str = COLUMNS) -> SegmentRecord:
    return SegmentRecord(name="s", crc=1, size_bytes=1, url="", total_docs=docs, columns=columns, distincts=distincts)


def test_groups_are_the_product_of_values_and_never_more_than_rows() -> None:
    sizes = TableDistincts.of([record(1000, format_distincts({"a": 4, "b": 16})), record(50, "24")])
    assert sizes.num_docs == 1050
    assert sizes.num_groups(["a"]) == 4 + 4
    assert sizes.num_groups(["a", "b"]) == 64 + 50
    assert sizes.num_groups([]) == 2


def test_rows_are_groups_where_a_record_says_nothing() -> None:
    known = record(1000, "2.")
    for unknown in (record(7, ""), record(7, "222"), record(7, "ä2"), record(7, "22", columns="")):
        sizes = TableDistincts.of([known, unknown])
        assert sizes.num_groups(["a"]) == 4 + 7
        assert sizes.num_groups(["b"]) == sizes.num_groups(["c"]) == 1007
    assert TableDistincts.of([]).num_groups(["a"]) == 0


@pytest.mark.parametrize(("max_groups", "wanted"), [(None, 4), (1, None), (1_000_000, None)])
def test_no_leaf_groups_below_joins_if_its_table_limits_groups(max_groups: int | None, wanted: int | None) -> None:
    """Open segments, and those of tomorrow, may bring any number of groups."""
    sizes = TableDistincts.of([record(1000, "22")])
    spec = cast("TableSpec", SimpleNamespace(limits=QueryLimits(max_groups=max_groups)))
    table = ServedTable(TableName("t_OFFLINE"), 1, spec, cast("RoutingSnapshot", None), distincts=sizes)
    assert ServedSizes({"t": table}).num_groups("t", ["a"]) == wanted


@given(st.lists(st.tuples(st.integers(0, 1 << 32), st.text(max_size=3)), max_size=5))
def test_any_record_gives_a_bound(facts: list[tuple[int, str]]) -> None:
    sizes = TableDistincts.of([record(docs, text) for docs, text in facts])
    assert 0 <= sizes.num_groups(["a", "b"]) <= sizes.num_docs

"""Test tables as several identities see them: planned by the broker's planner, executed here, and written out for
DuckDB as views of the rows that pass the row filter, with masks in place of columns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.sql.slt_answers import Answer
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess
from tests.sql.slt_nodes import manifest
from tests.sql.slt_oracle import Oracle
from tests.support.viewers import Viewer

from merlot.broker.planning.planner import PlannedQuery, Planner
from merlot.broker.routing.distincts import TableDistincts
from merlot.broker.routing.routes import RoutingInputs, build
from merlot.broker.tables import ServedTable
from merlot.clock import SystemClock
from merlot.cluster.column_types import format_columns
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import offline, raw_name
from merlot.query.stages.engine import EngineRun, relation_of
from merlot.query.stages.engine_instances import EngineLimits
from merlot.security.access import AccessView
from merlot.security.views import Views
from merlot.spec.manifest import load_document
from merlot.tree.nodes import BoundQuery
from merlot.tree.tree_json import from_json, where_from_json


@dataclass(frozen=True)
class SeenTable:
    """A view in the words of an access document and in DuckDB's."""

    row_filter: tuple[str, str] | None = None
    hidden: frozenset[str] = frozenset()
    masks: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def view(self) -> AccessView:
        filters = () if self.row_filter is None else (self.row_filter[0],)
        return AccessView(filters, self.hidden, {name: ours for name, (ours, _) in self.masks.items()})


_SAME: Final = "color IN ('red', 'blue', '') AND small < 15"
_NULLS: Final = "signed > 0 OR note IS NULL OR NOT (maybe = 3)"
IDENTITIES: Final[Mapping[str, Mapping[str, SeenTable]]] = {
    "some rows": {"things": SeenTable((_SAME, _SAME)), "edges": SeenTable(("few > 1 OR few IS NULL",) * 2)},
    "rows by nulls, and masks": {
        "things": SeenTable(
            (_NULLS, _NULLS),
            frozenset({"payload"}),
            {
                "color": ("CASE WHEN color = 'red' THEN color ELSE 'other' END",) * 2,
                "name": ("substr(name, 0, 2)", "substr(name, 1, 2)"),
                "sold": ("sold % 7", "sold % 7"),
                "price": ("price * 2", "price * 2"),
            },
        )
    },
    "constants": {
        "things": SeenTable(
            ("active", "active"),
            frozenset({"payload"}),
            {"color": ("'***'", "'***'"), "revenue": ("1.5", "1.5::DOUBLE"), "small": ("4", "4")},
        ),
        "edges": SeenTable(masks={"few": ("few + 1", "few + 1")}),
    },
}
"""Masks are of columns whose nulls the generators do not test: a leaf without null handling computes a mask from
default values."""


def viewer(tables: Mapping[str, SeenTable]) -> Viewer:
    """The asker who sees this of tables."""
    return Viewer({name: seen.view for name, seen in tables.items()})


def oracle_of(datasets: Iterable[Dataset], tables: Mapping[str, SeenTable]) -> Oracle:
    """DuckDB with views in place of the tables."""
    used = list(datasets)
    oracle = Oracle(used)
    for schema in ("defaulted", "nulled"):
        for dataset in used:
            oracle.execute(f"ALTER TABLE {schema}.{dataset.name} RENAME TO all_{dataset.name}")
    for schema in ("defaulted", "nulled"):
        for dataset in used:
            seen = tables.get(dataset.name, SeenTable())
            columns = [
                f'({seen.masks[name][1]}) AS "{name}"' if name in seen.masks else f'"{name}"'
                for name in dataset.schema.names
                if name not in seen.hidden
            ]
            passing = "true"
            if seen.row_filter is not None:
                passing = f"id IN (SELECT id FROM nulled.all_{dataset.name} WHERE {seen.row_filter[1]})"
            selected = f"SELECT {', '.join(columns)} FROM {schema}.all_{dataset.name} WHERE {passing}"
            oracle.execute(f"CREATE VIEW {schema}.{dataset.name} AS {selected}")
    return oracle


class ViewedTables:
    """Tables in segments, asked as somebody."""

    def __init__(self, layout: InProcess, datasets: Sequence[Dataset]) -> None:
        self._layout = layout
        self._tables = {dataset.name: _served(dataset) for dataset in datasets}
        self.planner = Planner(self._find, SystemClock())

    def _find(self, name: str) -> ServedTable | None:
        return self._tables.get(raw_name(name))

    def plan(self, sql: str, views: Views | None) -> PlannedQuery:
        """The broker's plan."""
        return asyncio.run(self.planner.plan(sql, "", views))

    def query(self, sql: str, views: Views | None) -> Answer:
        """The answer."""
        plan = self.plan(sql, views)
        if plan.stages is None:
            table = self._layout.leaf(_bound(plan), is_below=plan.rewrites is not None)
        else:
            bound = plan.stages.bound
            asked = self._layout.leaves({id_: _bound(leaf) for id_, leaf in plan.stages.leaves.items()}, bound.filters)
            relations = {id_: relation_of(bound.leaves[id_], table) for id_, table in asked.items()}
            engine = EngineRun(EngineLimits(memory_bytes=500_000_000, spill_bytes=500_000_000))
            table = engine.run(bound.engine, relations)
        rows = [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
        return Answer(list(table.column_names), [str(type_) for type_ in table.column_types], rows)


def _bound(plan: PlannedQuery) -> BoundQuery:
    """What servers are asked, as they read it."""
    return replace(from_json(plan.query), where=where_from_json(plan.where))


def _served(dataset: Dataset) -> ServedTable:
    name = offline(dataset.name)
    snapshot = build(RoutingInputs(view=TableView(name, RootRecord(), 1, {}), reports={}, standings={}, now_ms=0))
    return ServedTable(name, 1, load_document(manifest(dataset)).spec, snapshot, distincts=_few_groups(dataset))


def _few_groups(dataset: Dataset) -> TableDistincts:
    """A million rows with so few distinct values that leaves group below joins where they can."""
    columns = format_columns({field.name: (field.type, field.multi_value) for field in dataset.schema.fields})
    few = "1" * len(dataset.schema.fields)
    return TableDistincts.of(
        [SegmentRecord(name="s", crc=1, size_bytes=1, url="", total_docs=1_000_000, columns=columns, distincts=few)]
    )

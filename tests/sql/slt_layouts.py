"""Where a case's query runs: each layout holds every dataset and answers SQL.

A new layout (an embedded node, servers over ZooKeeper) is one more entry of `IN_PROCESS` or `OVER_HTTP`: a context
manager over the datasets and an empty folder that yields an object with `query(sql) -> Answer`, raising an error that
has a `code`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from tests.sql.slt_answers import Answer
from tests.sql.slt_data import Dataset
from tests.sql.slt_nodes import embedded_node, zookeeper_with_two_servers
from tests.sql.slt_odd_names import OddNames, odd_segments, renamed
from tests.sql.slt_segments import (
    build_paths,
    built_live,
    consuming_segment,
    overwritten,
    star_trees_of,
    uneven_segments,
)
from tests.sql.slt_stages import FEW_GROUPS, bind_stages, is_staged

from merlot.query import execute
from merlot.query.answer import combine, reduce
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import ResultTable
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan as make_plan
from merlot.query.plan.validity import check
from merlot.query.stages.engine import EngineRun, relation_of
from merlot.query.stages.engine_instances import EngineLimits
from merlot.query.stages.engine_sql import engine_query
from merlot.query.stages.key_filters import MIN_RATIO, KeyFilter, narrowed, worthwhile
from merlot.query.stages.leaves import cut
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.segment_view import SegmentView
from merlot.spec.schema import TableSchema
from merlot.sql.parse import ParsedStatement, one_stage, parse, parse_statement
from merlot.tree.nodes import BoundQuery
from merlot.tree.tree_json import from_json, to_json


class Layout(Protocol):
    """Something that answers SQL over the datasets."""

    def query(self, sql: str) -> Answer:
        """The answer; raises an error that has a `code`."""


LayoutFactory = Callable[[Sequence[Dataset], Path], AbstractContextManager[Layout]]


MOST_KEPT = 2_000
_ENGINE_ANSWERS: dict[tuple[str, bytes], ResultTable] = {}
"""By the query and what its leaves answered. Most of what a query of stages costs is the start of an engine."""


def _digest(relations: Mapping[str, pa.Table]) -> bytes:
    """Of names, types, nulls and values, in their order."""
    found = hashlib.blake2b()
    for name, table in sorted(relations.items()):
        found.update(name.encode())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        found.update(sink.getvalue())
    return found.digest()


class InProcess:
    """Segments executed by this process, in one partial answer or in several that are combined and reduced."""

    def __init__(self, schemas: dict[str, TableSchema], segments: dict[str, list[Segment]], parts: int) -> None:
        self._schemas = schemas
        self._segments = segments
        self._parts = parts
        self._pool = ThreadPoolExecutor(2)

    def query(self, sql: str) -> Answer:
        """Parse, bind, plan, execute, combine and reduce."""
        statement = parse_statement(sql)
        if is_staged(statement):
            table = self._staged(sql, statement)
        else:
            parsed = one_stage(statement)
            table = self.leaf(bind(parsed, self._schemas[parsed.table or ""]))
        rows = [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
        return Answer(list(table.column_names), [str(type_) for type_ in table.column_types], rows)

    def _staged(self, sql: str, statement: ParsedStatement) -> ResultTable:
        """Leaves as any query, and the engine above them: once for the same leaves, byte by byte, of any layout."""
        made = cut(bind_stages(statement, self._schemas), sizes=FEW_GROUPS)
        if made.direct is not None:
            return self.leaf(made.direct.query, is_below=True)
        asked = self.leaves({id_: leaf.query for id_, leaf in made.leaves.items()}, made.filters)
        relations = {id_: relation_of(made.leaves[id_], table) for id_, table in asked.items()}
        key = (sql, _digest(relations))
        if key not in _ENGINE_ANSWERS:
            if len(_ENGINE_ANSWERS) >= MOST_KEPT:
                _ENGINE_ANSWERS.clear()
            engine = EngineRun(EngineLimits(memory_bytes=500_000_000, spill_bytes=500_000_000))
            _ENGINE_ANSWERS[key] = engine.run(engine_query(made.statement), relations)
        return _ENGINE_ANSWERS[key]

    def leaves(self, queries: Mapping[str, BoundQuery], implied: Sequence[KeyFilter]) -> dict[str, ResultTable]:
        """Leaves' answers. Each leaf is filtered by the keys of as many leaves as possible, in one order of all of them
        or in the other, whatever their rows."""
        ids = sorted(queries, reverse=bool(len(queries) + len(implied) & 1))
        filters = worthwhile(implied, {id_: MIN_RATIO ** (number + 1) for number, id_ in enumerate(ids)})
        tables: dict[str, ResultTable] = {}
        for id_ in ids:
            own, query = filters.get(id_, ()), queries[id_]
            where = narrowed(
                query.where, own, [tables[key_filter.source].columns[key_filter.position] for key_filter in own]
            )
            tables[id_] = self.leaf(replace(query, where=where), is_below=True)
        return tables

    def leaf(self, bound: BoundQuery, *, is_below: bool = False) -> ResultTable:
        """The whole answer to a query of one table."""
        query = from_json(to_json(bound))
        check(query)
        schema = self._schemas[query.table]
        plan = make_plan(query)
        context = execute.ExecutionContext(schema=schema, pool=self._pool)
        held = self._segments[query.table]
        shares = [held[start :: self._parts] for start in range(self._parts)]
        partials = [execute.execute(plan.leaf, share, context) for share in shares if share]
        if len(partials) > 2:
            merged = combine.combine_data(plan.leaf.work, [partial.data for partial in partials[:2]])
            partials = [Partial(merged, partials[0].stats), *partials[2:]]
        return reduce.reduce(plan, partials, schema, nothing_is_null=is_below)

    def plans(self, sql: str) -> list[str]:
        """What EXPLAIN tells of each group of segments, as JSON."""
        parsed = parse(sql)
        schema = self._schemas[parsed.table or ""]
        leaf = make_plan(bind(parsed, schema)).leaf
        rows = explain(leaf, self._segments[parsed.table or ""], execute.ExecutionContext(schema=schema))
        return [row["plan"] for row in rows if "plan" in row]

    def close(self) -> None:
        """Stop the pool."""
        self._pool.shutdown()


@contextmanager
def one_segment(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table as one segment of the default encodings."""
    paths = [(dataset, build_paths(dataset, folder, [0, dataset.rows.num_rows], varied=False)) for dataset in datasets]
    with _in_process(paths, parts=1) as layout:
        yield layout


@contextmanager
def twelve_segments(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table as 12 segments of uneven size, one of a single row, answered in three parts."""
    with _in_process([(dataset, uneven_segments(dataset, folder)) for dataset in datasets], parts=3) as layout:
        yield layout


@contextmanager
def consuming(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table as one consuming segment, whose rows came in batches of uneven size."""
    with ExitStack() as stack:
        schemas = {dataset.name: dataset.schema for dataset in datasets}
        segments: dict[str, list[Segment]] = {
            dataset.name: [consuming_segment(dataset, 0, dataset.rows.num_rows).snapshot()] for dataset in datasets
        }
        layout = InProcess(schemas, segments, parts=1)
        stack.callback(layout.close)
        yield layout


@contextmanager
def half_sealed(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table as five sealed segments of one half of its rows and two consuming ones of the other, in two parts."""
    with ExitStack() as stack:
        schemas = {dataset.name: dataset.schema for dataset in datasets}
        segments: dict[str, list[Segment]] = {}
        for dataset in datasets:
            rows = dataset.rows.num_rows
            half, middle = rows // 2, rows * 2 // 3
            paths = build_paths(dataset, folder, [half * part // 5 for part in range(6)], varied=True)
            segments[dataset.name] = [
                *(stack.enter_context(ImmutableSegment.open(path)) for path in paths),
                consuming_segment(dataset, half, middle).snapshot(),
                consuming_segment(dataset, middle, rows).snapshot(),
            ]
        layout = InProcess(schemas, segments, parts=2)
        stack.callback(layout.close)
        yield layout


@contextmanager
def upserted(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table as segments, the last one consuming, in which an earlier version stands before every row."""
    with ExitStack() as stack:
        schemas = {dataset.name: dataset.schema for dataset in datasets}
        segments: dict[str, list[Segment]] = {}
        for dataset in datasets:
            segments[dataset.name] = []
            for segment, is_valid in overwritten(dataset, folder):
                if isinstance(segment, ImmutableSegment):
                    stack.callback(segment.close)
                segments[dataset.name].append(SegmentView(segment, SomeDocs(words_of(is_valid))))
        layout = InProcess(schemas, segments, parts=2)
        stack.callback(layout.close)
        yield layout


@contextmanager
def star_trees(datasets: Sequence[Dataset], folder: Path) -> Iterator[InProcess]:
    """Each table as two segments with star-trees, which answer what they can."""
    with ExitStack() as stack:
        segments: dict[str, list[Segment]] = {}
        for dataset in datasets:
            rows = dataset.rows.num_rows
            paths = build_paths(dataset, folder, [0, rows // 3, rows], varied=False, indexing=star_trees_of(dataset))
            segments[dataset.name] = [stack.enter_context(ImmutableSegment.open(path)) for path in paths]
        layout = InProcess({dataset.name: dataset.schema for dataset in datasets}, segments, parts=2)
        stack.callback(layout.close)
        yield layout


@contextmanager
def indexed_later(datasets: Sequence[Dataset], folder: Path) -> Iterator[InProcess]:
    """Each table as segments without indexes, with all of them and star-trees in files beside them."""
    with ExitStack() as stack:
        segments: dict[str, list[Segment]] = {
            dataset.name: [stack.enter_context(segment) for segment in built_live(dataset, folder)]
            for dataset in datasets
        }
        layout = InProcess({dataset.name: dataset.schema for dataset in datasets}, segments, parts=2)
        stack.callback(layout.close)
        yield layout


@contextmanager
def oddly_named(datasets: Sequence[Dataset], folder: Path) -> Iterator[Layout]:
    """Each table under names that are no plain words: in every encoding, with star-trees, and consuming."""
    with ExitStack() as stack:
        segments = {one.name: list(stack.enter_context(odd_segments(one, folder))) for one in datasets}
        layout = InProcess({one.name: renamed(one).schema for one in datasets}, segments, parts=2)
        stack.callback(layout.close)
        yield OddNames(layout)


@contextmanager
def _in_process(paths: Sequence[tuple[Dataset, Sequence[Path]]], *, parts: int) -> Iterator[InProcess]:
    with ExitStack() as stack:
        segments: dict[str, list[Segment]] = {
            dataset.name: [stack.enter_context(ImmutableSegment.open(path)) for path in files]
            for dataset, files in paths
        }
        layout = InProcess({dataset.name: dataset.schema for dataset, _ in paths}, segments, parts=parts)
        stack.callback(layout.close)
        yield layout


IN_PROCESS: dict[str, LayoutFactory] = {
    "one-segment": one_segment,
    "twelve-segments": twelve_segments,
    "consuming": consuming,
    "half-sealed": half_sealed,
    "upserted": upserted,
    "star-tree": star_trees,
    "indexed-later": indexed_later,
    "odd-names": oddly_named,
}
OVER_HTTP: dict[str, LayoutFactory] = {
    "embedded-node": embedded_node,
    "zookeeper-two-servers": zookeeper_with_two_servers,
}
LAYOUTS = {**IN_PROCESS, **OVER_HTTP}

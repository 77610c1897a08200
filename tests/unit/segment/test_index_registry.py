"""Every index is declared and found, and nobody who does not use one by itself names it."""

import pkgutil
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.segment.segment_tables import build, field_of

from merlot.query.filter.predicates import DocList, RangeMatch
from merlot.query.filter.resolve import Node, Resolver
from merlot.query.plan.binding import bind
from merlot.query.read.columns import SegmentColumns
from merlot.segment import index
from merlot.segment.footer_checks import check_column
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.kind import Index
from merlot.segment.index.registry import INDEXES
from merlot.segment.inspect import describe
from merlot.spec.indexing import INDEX_KINDS, IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=(field_of(TypeName.LONG, name="n"), field_of(TypeName.STRING, name="s")))
ROWS = pa.table({"n": [number % 3000 for number in range(60_000)], "s": [str(number % 7) for number in range(60_000)]})


def test_modules_with_an_index_are_those_that_tables_may_ask_for() -> None:
    modules = [import_module(f"{index.__name__}.{found.name}") for found in pkgutil.iter_modules(index.__path__)]
    found = {module.__name__.rpartition(".")[2] for module in modules if hasattr(module, "INDEX")}
    assert found == set(INDEX_KINDS) == set(INDEXES)


@pytest.mark.parametrize("name", INDEX_KINDS)
def test_an_index_is_built_for_the_column_that_asks_for_it_and_seen_by_everybody(name: str, tmp_path: Path) -> None:
    kind = INDEX_KINDS[name]
    column = next(field.name for field in SCHEMA.fields if field.type in kind.types)
    indexing = IndexingSpec.model_validate({name: (column,)})
    assert indexing.kinds_of(column) == (name,)
    built = build(tmp_path, SCHEMA, ROWS, indexing)
    for report in describe(built.path).columns:
        assert (report.bytes_by_index.get(name, 0) > 0) == (report.name == column)
    with ImmutableSegment.open(built.path) as segment:
        read = {one: segment.column(one) for one in SCHEMA.names}
        assert all(
            reader is not None and (reader.indexes is not None) == (one == column) for one, reader in read.items()
        )
        reader = read[column]
        assert reader is not None
        assert reader.index(INDEXES[name]) is not None
        check_column(reader.metadata, segment.num_docs, segment.file)


def resolved(path: Path, where: str, indexing: IndexingSpec | None = None) -> Node:
    segment = ImmutableSegment.open(path)
    condition = bind(parse(f"SELECT COUNT(*) FROM t WHERE {where}"), SCHEMA).where
    return Resolver(SegmentColumns(segment, SCHEMA), null_handling=False, indexing=indexing).resolve(condition)


def test_a_query_uses_an_index_only_while_the_table_asks_for_it(tmp_path: Path) -> None:
    indexing = IndexingSpec(inverted=("n",))
    path = build(tmp_path, SCHEMA, ROWS, indexing).path
    for asked in (None, indexing):
        node = resolved(path, "n = 77", asked)
        assert isinstance(node, DocList)
        assert node.index == "inverted"
        assert node.docs.tolist() == list(range(77, 60_000, 3000))
    assert isinstance(resolved(path, "n = 77", IndexingSpec(inverted=("s",))), RangeMatch)


def test_a_scan_is_taken_where_it_costs_less_than_any_index(tmp_path: Path) -> None:
    path = build(tmp_path, SCHEMA, ROWS, IndexingSpec(inverted=("n", "s"))).path
    assert isinstance(resolved(path, "s = '3'"), RangeMatch)


def test_an_index_keeps_to_its_name() -> None:
    for name, one in INDEXES.items():
        assert isinstance(one, Index)
        assert one.name == name
        assert all(buffer.startswith(f"{name}.") for buffer in one.buffers)

"""Star-trees of small segments: the example of the document, rules of the tree, files that lie about theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.forgery import Parts, expand, put_together, taken_apart
from tests.unit.segment.segment_tables import build, table_of
from typer.testing import CliRunner

from merlot.cli.segment import app
from merlot.errors import CorruptionError, InvalidInputError
from merlot.kernels.star_tree import STAR
from merlot.merge import task as merge
from merlot.merge.plan import MergePlan
from merlot.segment import contents, inspect
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.startree.documents import TooManyDocumentsError
from merlot.segment.startree.rendering import Drawing
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.spec.star_tree import StarTreeSpec, StoredFunction

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "Country", "type": "STRING"},
            {"name": "Browser", "type": "STRING"},
            {"name": "Locale", "type": "STRING"},
            {"name": "Impressions", "type": "LONG", "role": "metric"},
        ]
    }
)
ROWS = [
    ("CA", "Chrome", "en", 400),
    ("CA", "Firefox", "fr", 200),
    ("MX", "Safari", "es", 300),
    ("MX", "Safari", "en", 100),
    ("USA", "Chrome", "en", 600),
    ("USA", "Firefox", "es", 200),
    ("USA", "Firefox", "en", 400),
]
DOCUMENTS = """
CA Chrome en 400, CA Firefox fr 200, MX Safari en 100, MX Safari es 300, USA Chrome en 600, USA Firefox en 400,
USA Firefox es 200, CA * en 400, CA * fr 200, CA * * 600, MX Safari * 400, USA Firefox * 600, USA * en 1000,
USA * es 200, USA * * 1200, * Chrome en 1000, * Firefox en 400, * Firefox es 200, * Firefox fr 200, * Firefox * 800,
* Safari en 100, * Safari es 300, * Safari * 400, * * en 1500, * * es 500, * * fr 200, * * * 2200
"""
"""Of the document, in its order."""
ORDER = ("Country", "Browser", "Locale")


def spec(**changed: Any) -> StarTreeSpec:
    given = {"dimensions_split_order": ORDER, "function_column_pairs": ("SUM__Impressions",), "max_leaf_records": 1}
    return StarTreeSpec(**{**given, **changed})


def built(folder: Path, rows: list[tuple[Any, ...]], *trees: StarTreeSpec) -> BuiltSegment:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(SCHEMA.names)}
    return build(folder, SCHEMA, table_of(SCHEMA, columns), IndexingSpec(star_tree_index_configs=trees))


def drawing(folder: Path, rows: list[tuple[Any, ...]], tree: StarTreeSpec) -> Drawing:
    segment = ImmutableSegment.open(built(folder, rows, tree).path, verify=True)
    contents.check_contents(segment)
    return Drawing(segment, segment.star_trees[0])


def test_the_documents_example_has_exactly_its_27_documents(tmp_path: Path) -> None:
    wanted = [tuple(line.split()) for line in DOCUMENTS.replace("\n", " ").split(",")]
    assert len(wanted) == 27
    found = drawing(tmp_path, ROWS, spec()).documents()
    assert sorted((*row[:3], str(int(row[3]))) for row in found) == sorted(wanted)
    assert len(found) == len(set(found))


def test_a_tree_is_drawn_node_by_node(tmp_path: Path) -> None:
    lines = list(drawing(tmp_path, ROWS, spec(max_leaf_records=10)).lines(100))
    assert lines == [
        "all (SUM__Impressions 2200.0)",
        "  Country = * (SUM__Impressions 2200.0, 6 documents)",
        "  Country = CA (SUM__Impressions 600.0, 2 documents)",
        "  Country = MX (SUM__Impressions 400.0, 2 documents)",
        "  Country = USA (SUM__Impressions 1200.0, 3 documents)",
    ]
    assert list(drawing(tmp_path, ROWS, spec()).lines(2))[-1].startswith("… ")


def test_a_report_counts_documents_and_bytes_of_trees(tmp_path: Path) -> None:
    file = built(tmp_path, ROWS, spec(), spec(dimensions_split_order=("Locale",)))
    report = inspect.describe(file.path)
    assert [(tree.num_docs, tree.functions) for tree in report.star_trees] == [
        (27, ("SUM__Impressions",)),
        (4, ("SUM__Impressions",)),
    ]
    assert sum(report.bytes_by_index.values()) == report.size_bytes
    assert report.bytes_by_index["star_tree"] == sum(tree.size_bytes for tree in report.star_trees)


def test_the_command_line_draws_the_trees_of_a_file(tmp_path: Path) -> None:
    path = str(built(tmp_path, ROWS, spec(max_leaf_records=10)).path)
    shown = CliRunner().invoke(app, ["inspect", "--star-tree", path]).output.splitlines()
    assert shown[0].startswith("star-tree 0 of Country, Browser, Locale: 17 documents, 5 nodes, ")
    assert shown[1:3] == [
        "all (SUM__Impressions 2200.0)",
        "  Country = * (SUM__Impressions 2200.0, 6 documents)",
    ]
    plain = CliRunner().invoke(app, ["inspect", path]).output
    assert "Country, Browser, Locale: 17 documents" in plain


def test_sealing_and_merging_make_the_tree_of_their_rows(tmp_path: Path) -> None:
    """The same rows have the same file, whoever made it; merged ones have the tree of all rows."""
    indexing = IndexingSpec(star_tree_index_configs=(spec(),))
    columns = {name: [row[place] for row in ROWS] for place, name in enumerate(SCHEMA.names)}
    rows = table_of(SCHEMA, columns)
    consuming = ConsumingSegment(BuildRequest(name="s", table="t", schema=SCHEMA, indexing=indexing), 0)
    for start in (0, 3):
        part = rows.slice(start, 3 if start == 0 else 4)
        consuming.append(part, np.arange(start, start + part.num_rows), start + part.num_rows)
    (tmp_path / "sealed").mkdir()
    sealed = consuming.seal(tmp_path / "sealed", len(ROWS))
    whole = built(tmp_path, ROWS, spec())
    assert sealed.metadata.crc == whole.metadata.crc

    halves = []
    for number, part in enumerate((ROWS[:3], ROWS[3:])):
        (tmp_path / f"half{number}").mkdir()
        halves.append(built(tmp_path / f"half{number}", part, spec()).path)
    plan = MergePlan(table="t", schema=SCHEMA, indexing=indexing)
    (tmp_path / "merged").mkdir()
    [merged] = merge.run(plan, halves, tmp_path / "merged", lambda *_: None, lambda: False, 1 << 30)
    with ImmutableSegment.open(merged.path) as segment:
        contents.check_contents(segment)
        assert len(Drawing(segment, segment.star_trees[0]).documents()) == 27


def test_a_skipped_dimension_has_no_star_nodes(tmp_path: Path) -> None:
    tree = drawing(tmp_path, ROWS, spec(skip_star_node_creation_for_dimensions=("Country",)))
    assert all(node.path[:1] != ("*",) for node in tree.nodes())
    assert [row for row in tree.documents() if row[0] == "*"] == [("*", "*", "*", 2200.0)]


@pytest.mark.parametrize("most", [7, 26])
def test_a_tree_with_more_documents_than_allowed_fails_the_build_and_leaves_no_file(tmp_path: Path, most: int) -> None:
    with pytest.raises(TooManyDocumentsError, match=f"limit={most} .*maxLeafRecords"):
        built(tmp_path, ROWS, spec(max_documents=most))
    assert list(tmp_path.iterdir()) == []


def test_a_stream_goes_on_without_a_tree_that_would_be_too_large(tmp_path: Path) -> None:
    trees = (spec(max_documents=26), spec(dimensions_split_order=("Locale",)))
    indexing = IndexingSpec(star_tree_index_configs=trees)
    columns = {name: [row[place] for row in ROWS] for place, name in enumerate(SCHEMA.names)}
    consuming = ConsumingSegment(BuildRequest(name="s", table="t", schema=SCHEMA, indexing=indexing), 0)
    consuming.append(table_of(SCHEMA, columns), np.arange(len(ROWS)), len(ROWS))
    with ImmutableSegment.open(consuming.seal(tmp_path, len(ROWS)).path) as segment:
        assert [tree.dimensions for tree in segment.star_trees] == [("Locale",)]
        contents.check_contents(segment)


def test_a_stream_goes_on_without_a_tree_that_its_values_cannot_be_in(tmp_path: Path) -> None:
    schema = TableSchema.model_validate(
        {"fields": [{"name": "kind", "type": "STRING"}, {"name": "price", "type": "DOUBLE", "role": "metric"}]}
    )
    trees = [
        {"dimensionsSplitOrder": ["kind"], "functionColumnPairs": [pair]}
        for pair in ("PERCENTILETDIGEST__price", "MAX__price")
    ]
    indexing = IndexingSpec.model_validate({"starTreeIndexConfigs": trees})
    request = BuildRequest(name="s", table="t", schema=schema, indexing=indexing)
    rows = table_of(schema, {"kind": ["a", "a", "b"], "price": [1.0, math.nan, math.inf]})
    consuming = ConsumingSegment(request, 0)
    consuming.append(rows, np.arange(3), 3)
    with ImmutableSegment.open(consuming.seal(tmp_path, 3).path) as segment:
        assert [tree.functions for tree in segment.star_trees] == [{StoredFunction("max", "price")}]
        contents.check_contents(segment)
    with pytest.raises(InvalidInputError, match=r"pair=PERCENTILETDIGEST__price: .* finite numbers only"):
        build_segment(request, rows, tmp_path)


def test_a_null_that_is_an_infinity_is_named_with_the_pair_that_cannot_have_it(tmp_path: Path) -> None:
    fields = [{"name": "kind", "type": "STRING"}, {"name": "price", "type": "DOUBLE"}]
    schema = TableSchema.model_validate({"fields": fields})
    tree = {"dimensionsSplitOrder": ["kind"], "functionColumnPairs": ["PERCENTILETDIGEST__price"]}
    indexing = IndexingSpec.model_validate({"starTreeIndexConfigs": [tree]})
    request = BuildRequest(name="s", table="t", schema=schema, indexing=indexing)
    with pytest.raises(InvalidInputError, match=r"pair=PERCENTILETDIGEST__price: .* a null of a DOUBLE dimension"):
        build_segment(request, table_of(schema, {"kind": ["a"], "price": [None]}), tmp_path)


def test_a_segment_without_rows_has_no_tree(tmp_path: Path) -> None:
    with ImmutableSegment.open(built(tmp_path, [], spec()).path) as segment:
        assert segment.star_trees == ()


NAMES = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(-(2**62), 2**62)), min_size=1, max_size=30),
    st.permutations(ORDER),
    st.sets(st.sampled_from(ORDER)),
    st.integers(1, 9),
)
def test_every_node_stands_for_the_rows_of_its_path(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[Any, ...]],
    order: list[str],
    skipped: set[str],
    leaf_records: int,
) -> None:
    made = spec(
        dimensions_split_order=tuple(order),
        skip_star_node_creation_for_dimensions=tuple(sorted(skipped)),
        function_column_pairs=("SUMPRECISION__Impressions", "COUNT__*", "MINMAXRANGE__Impressions"),
        max_leaf_records=leaf_records,
    )
    tree = drawing(tmp_path_factory.mktemp("tree"), rows, made)
    assert tree.headers == ("COUNT__*", "MAX__Impressions", "MIN__Impressions", "SUM__Impressions")
    places = [SCHEMA.names.index(name) for name in order]
    for node in tree.nodes():
        held = [
            row
            for row in rows
            if all(value in ("*", row[place]) for place, value in zip(places, node.path, strict=False))
        ]
        numbers = [row[3] for row in held]
        assert node.answers == (len(held), float(max(numbers)), float(min(numbers)), float(sum(numbers)))
        assert node.num_children or node.num_docs <= leaf_records or len(node.path) == len(order)
        assert "*" not in [value for name, value in zip(order, node.path, strict=False) if name in skipped]


def tree_of(parts: Parts) -> dict[str, Any]:
    found: dict[str, Any] = parts.content["star_trees"][0]
    return found


def put(name: str, place: int, value: int) -> Callable[[Parts], None]:
    """Change an element of the nodes."""

    def lie(parts: Parts) -> None:
        number, dtype, size, _ = tree_of(parts)["buffers"][name]
        expand(parts, number, size * int(dtype[1]))
        values = np.frombuffer(parts.buffers[number], "<u4").copy()
        values[place] = value
        parts.buffers[number] = values.tobytes()

    return lie


def say(**fields: Any) -> Callable[[Parts], None]:
    return lambda parts: tree_of(parts).update(fields)


def say_of_ids(**fields: Any) -> Callable[[Parts], None]:
    return lambda parts: tree_of(parts)["ids"][0].update(fields)


def say_of_states(**fields: Any) -> Callable[[Parts], None]:
    return lambda parts: tree_of(parts)["functions"][0]["states"][0].update(fields)


LIES: dict[str, Callable[[Parts], None]] = {
    "more documents": say(num_docs=1 << 20),
    "no documents": say(num_docs=0),
    "more nodes": say(num_nodes=1 << 20),
    "no nodes": say(num_nodes=0),
    "no dimensions": say(dimensions=[], ids=[]),
    "a dimension without ids": say(dimensions=["Country", "Browser"]),
    "a raw dimension": say(dimensions=["Country", "Browser", "Impressions"]),
    "an unknown dimension": say(dimensions=["Country", "Browser", "Shoes"]),
    "a dimension twice": say(dimensions=["Country", "Browser", "Country"]),
    "no buffers": say(buffers={}),
    "ids above the cardinality": say_of_ids(base=3),
    "ids below zero": say_of_ids(base=-1),
    "ids of another type": say_of_ids(type="DOUBLE"),
    "states of a type that none has": say_of_states(type="TIMESTAMP"),
    "a child of two": put("nodes.children", 1, 0),
    "a node that is its own child": put("nodes.children", 0, 0),
    "children beyond the last node": put("nodes.children", -1, 1 << 20),
    "a value beyond the dictionary": put("nodes.values", 2, 3),
    "a star child that is not the first": put("nodes.values", 2, int(STAR)),
    "documents beyond the last": put("nodes.ends", 0, 1 << 20),
    "a range that ends before it starts": put("nodes.starts", 0, 9),
    "an aggregated document that there is not": put("nodes.aggregated", 0, 27),
}


@pytest.mark.parametrize("name", LIES)
def test_a_tree_that_cannot_be_is_refused_before_it_is_walked(tmp_path: Path, name: str) -> None:
    path = built(tmp_path, ROWS, spec()).path
    parts = taken_apart(path.read_bytes())
    LIES[name](parts)
    path.write_bytes(put_together(parts))
    with pytest.raises(CorruptionError):
        read_all(path)


def read_all(path: Path) -> None:
    with ImmutableSegment.open(path) as segment:
        tree = segment.star_trees[0]
        assert tree.nodes is not None
        for place in range(len(tree.dimensions)):
            tree.ids(place)


@pytest.mark.parametrize(
    "lie",
    [
        put("nodes.aggregated", 0, 0),
        put("nodes.ends", 1, 8),
        say(max_leaf_records=3),
        say(skipped=["Country"]),
        say(max_leaf_records=0),
        lambda parts: tree_of(parts)["functions"][0].update(function="avg"),
        lambda parts: tree_of(parts)["functions"][0]["states"][1].update(base=1),
    ],
)
def test_verifying_a_file_finds_a_tree_of_other_rows(tmp_path: Path, lie: Callable[[Parts], None]) -> None:
    path = built(tmp_path, ROWS, spec()).path
    parts = taken_apart(path.read_bytes())
    lie(parts)
    path.write_bytes(put_together(parts))
    with ImmutableSegment.open(path) as segment, pytest.raises(CorruptionError, match="star-tree"):
        contents.check_contents(segment)


@pytest.mark.parametrize(
    "functions",
    [[], [{"function": "of_a_newer_release"}], [{"function": "min", "column": "Locale", "type": "STRING"}]],
    ids=["none", "one of a newer release", "one of a type that a newer release may take"],
)
def test_a_tree_of_functions_that_are_not_known_is_passed_over(tmp_path: Path, functions: list[dict[str, Any]]) -> None:
    path = built(tmp_path, ROWS, spec(function_column_pairs=("SUM__Impressions",))).path
    parts = taken_apart(path.read_bytes())
    states = tree_of(parts)["functions"][0]
    tree_of(parts)["functions"] = [{**states, **function} for function in functions]
    path.write_bytes(put_together(parts))
    with ImmutableSegment.open(path) as segment:
        contents.check_contents(segment)


def test_verifying_a_file_takes_sums_of_decimals_by_value(tmp_path: Path) -> None:
    fields = [{"name": "Country", "type": "STRING"}, {"name": "price", "type": "BIG_DECIMAL", "role": "metric"}]
    schema = TableSchema.model_validate({"fields": fields})
    rows = table_of(schema, {"Country": ["CA", "CA", "MX"], "price": ["1.5", "1.5", "0.25"]})
    tree = spec(dimensions_split_order=("Country",), function_column_pairs=("SUM__price",))
    file = build(tmp_path, schema, rows, IndexingSpec(star_tree_index_configs=(tree,)))
    with ImmutableSegment.open(file.path) as segment:
        contents.check_contents(segment)

"""Accesses that are chosen by cost find what a look at every row finds, and are chosen where they pay."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.segment.segment_tables import build, field_of, matching

from merlot.functions.comparisons import beginning_of_like
from merlot.functions.regular import beginning_of
from merlot.kernels import scan as kernels
from merlot.query.filter.predicates import DocList, FilterScan, LateMatch, RangeMatch, SpanMatch, TableMatch
from merlot.query.filter.prefixes import ids_to_look_at
from merlot.query.filter.resolve import All, And, Node, Nothing, Or
from merlot.query.read.columns import Columns
from merlot.segment.index.dictionary import VariableDictionary
from merlot.segment.index.variable import buffers_of
from merlot.segment.index.zones import BLOCK_DOCS, ZoneMaps, bounds
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.tree.nodes import Call, Column, Literal
from merlot.tree.types import BOOLEAN, STRING
from merlot.values.types import TypeName

NUM_DOCS = 60_000
SCHEMA = TableSchema(
    fields=(
        field_of(TypeName.LONG, name="id"),
        field_of(TypeName.STRING, name="city"),
        field_of(TypeName.STRING, name="text"),
        field_of(TypeName.LONG, name="at"),
        field_of(TypeName.DOUBLE, name="real"),
        field_of(TypeName.LONG, name="day"),
    )
)
INDEXING = IndexingSpec.model_validate(
    {
        "sortedColumns": ["day"],
        "inverted": ["id", "city"],
        "noDictionary": ["at", "real"],
        "encodings": dict.fromkeys(("id", "city", "text"), "DICTIONARY"),
    }
)
RAW = IndexingSpec(no_dictionary=tuple(field.name for field in SCHEMA.fields))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """With everything, and with nothing but values."""
    random = np.random.default_rng(7)
    real = np.sort(random.normal(0, 100, NUM_DOCS))
    real[-3:] = np.nan
    rows = pa.table(
        {
            "id": random.integers(0, 20_000, NUM_DOCS),
            "city": [f"c{value}" for value in random.integers(0, 300, NUM_DOCS)],
            "text": [f"{value % 97:02} of {value}" for value in random.integers(0, 50_000, NUM_DOCS)],
            "at": np.arange(NUM_DOCS) * 10 + random.integers(0, 500, NUM_DOCS),
            "real": real,
            "day": np.arange(NUM_DOCS) // 500,
        }
    )
    folder = tmp_path_factory.mktemp
    return build(folder("a"), SCHEMA, rows, INDEXING).path, build(folder("b"), SCHEMA, rows, RAW).path


def found(paths: tuple[Path, Path], where: str) -> Node:
    """The node of a filter, which finds what values alone find."""
    node, docs = matching(paths[0], SCHEMA, where)
    assert docs == matching(paths[1], SCHEMA, where)[1]
    return node


def kinds(node: Node) -> list[type]:
    return [type(child) for child in node.children] if isinstance(node, And | Or) else [type(node)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("TEXT_MATCH(text, '77') AND id = 77", [DocList, LateMatch]),
        ("TEXT_MATCH(text, '77') AND day = 7", [SpanMatch, LateMatch]),
        ("TEXT_MATCH(text, '77') AND real < 1", [RangeMatch, LateMatch]),
        ("NOT TEXT_MATCH(text, '77') AND id = 77", [DocList, LateMatch]),
        ("NOT (TEXT_MATCH(text, '77') OR id <> 77)", [DocList, LateMatch]),
        ("upper(text) = '07 OF 7' AND id = 77", [DocList, LateMatch]),
        ("upper(text) LIKE '07 OF 7%' AND id = 77", [DocList, LateMatch]),
        ("text LIKE '%of 77%' AND id = 77", [DocList, LateMatch]),
        ("text LIKE '%of 77%' AND at > 300000", [RangeMatch, LateMatch]),
        ("text LIKE '%of 77%' AND NOT TEXT_MATCH(text, '70')", [LateMatch, LateMatch]),
        ("TEXT_MATCH(city, 'c7') AND id = 77", [DocList, LateMatch]),
        ("city LIKE '%7' AND id = 77", [DocList, TableMatch]),
        ("text LIKE '%of 77%' OR id = 77", [TableMatch, DocList]),
        ("text LIKE '77 of 1%' AND id = 77", [DocList, RangeMatch]),
        ("id = 77 AND city = 'c7'", [DocList, RangeMatch]),
        ("city IN ('c7', 'c9') AND id = 77", [DocList, DocList]),
    ],
)
def test_what_is_dear_is_asked_of_the_docs_that_are_left(
    paths: tuple[Path, Path], where: str, expected: list[type]
) -> None:
    assert kinds(found(paths, where)) == expected


@pytest.mark.parametrize("where", ["id = 77 AND (TEXT_MATCH(text, '77') OR city = 'c7')", "NOT (id = 77 AND at > 5)"])
def test_operands_of_an_or_are_asked_of_all_docs(paths: tuple[Path, Path], where: str) -> None:
    found(paths, where)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("at >= 0", All),
        ("at < 0", Nothing),
        ("at BETWEEN 0 AND 10000000", All),
        ("NOT at > 10000000", All),
        ("at <> -5", All),
        ("at = -5", Nothing),
        ("real < 1e6", RangeMatch),
        ("real >= -1e6", All),
        ("real < -1e6", Nothing),
        ("NOT real < -1e6", All),
    ],
)
def test_the_least_and_the_greatest_value_decide_for_all(paths: tuple[Path, Path], where: str, expected: type) -> None:
    assert type(found(paths, where)) is expected


@pytest.mark.parametrize("where", ["at > 100000", "NOT at > 100000", "at BETWEEN 200000 AND 500000", "real > 0"])
@pytest.mark.parametrize("beside", ["", " AND city = 'c7'", " OR city = 'c7'", " AND day > 3"])
def test_blocks_that_are_certain_are_taken_whole(paths: tuple[Path, Path], where: str, beside: str) -> None:
    found(paths, f"{where}{beside}")


@given(
    values=st.lists(st.sampled_from([0, 1, 2, 3]), min_size=4, max_size=4),
    low=st.integers(0, 3),
    width=st.integers(0, 2),
    negate=st.booleans(),
    mode=st.sampled_from([kernels.SET, kernels.AND, kernels.OR]),
    start=st.integers(0, 700),
    short=st.integers(0, 40_000),
    noise=st.booleans(),
)
def test_a_scan_of_uncertain_blocks_finds_what_a_scan_of_all_finds(
    values: list[int], low: int, width: int, negate: bool, mode: int, start: int, short: int, noise: bool
) -> None:
    random = np.random.default_rng(short)
    column = np.repeat(np.array(values, np.int64), BLOCK_DOCS)[:-5]
    if noise:
        column[random.integers(0, len(column), 3)] = 2
    zones = ZoneMaps(*bounds(column, np.append(np.arange(0, len(column), BLOCK_DOCS), len(column))), np.zeros(4, "<u4"))
    first, last = 64 * start, max(64 * start + 1, len(column) - short)
    before = random.integers(0, 1 << 63, (last - first + 63) >> 6).astype(np.uint64)
    kernels.clear_tail(last - first, before)
    words = []
    for known in (zones, None):
        columns: Columns = None  # type: ignore[assignment] # a range reads its own values
        scan = FilterScan(columns, first, last, before.copy(), null_handling=False)
        one = RangeMatch(lambda: column, np.int64(low), np.int64(low + width), negate, 0.5, known)
        one.apply(scan, mode)
        words.append(scan.words)
    assert np.array_equal(*words)


TEXTS = st.text("ab%_\\^$.é\ud7ff\U0010ffff", max_size=6)
LIKES = st.text("ab%_\\é\ud7ff\U0010ffff", max_size=6)
REGEXES = st.lists(
    st.sampled_from(
        ["a", "b", "é", "^", "$", ".", "*", "+", "?", "{2}", "{0,1}", "(", ")", "[ab]", "|", "\\.", "\\d", "\U0010ffff"]
    ),
    max_size=6,
).map(lambda parts: "^" + "".join(parts))


def ids(function: str, pattern: str, texts: list[str]) -> range | None:
    distinct = sorted(set(texts), key=str.encode)
    dictionary = VariableDictionary(TypeName.STRING, *buffers_of(pa.array(distinct)))
    call = Call(function, (Column("t", STRING), Literal(pattern, STRING)), BOOLEAN)
    return ids_to_look_at(call, TypeName.STRING, dictionary)


@given(LIKES, st.lists(TEXTS, min_size=1, max_size=12))
def test_a_beginning_of_like_leaves_out_no_match(pattern: str, texts: list[str]) -> None:
    found = ids("like", pattern, [*texts, beginning_of_like(pattern) + "\U0010ffffa"])
    distinct = sorted({*texts, beginning_of_like(pattern) + "\U0010ffffa"}, key=str.encode)
    begin = [number for number, text in enumerate(distinct) if text.startswith(beginning_of_like(pattern))]
    assert list(found if found is not None else range(len(distinct))) == begin


@given(REGEXES, TEXTS)
def test_every_match_of_a_regular_expression_begins_as_it_is_said(pattern: str, text: str) -> None:
    try:
        is_match = pc.match_substring_regex(pa.array([text]), pattern)[0].as_py()
    except pa.ArrowInvalid:
        return
    if is_match:
        assert text.startswith(beginning_of(pattern))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("^abc", "abc"), ("^abc*", "ab"), ("^ab+c", "ab"), ("^a\\.b$", "a.b"), ("abc", ""), ("^a|b", ""), ("^\\d", "")],
)
def test_a_regular_expression_says_what_it_begins_with(pattern: str, expected: str) -> None:
    assert beginning_of(pattern) == expected

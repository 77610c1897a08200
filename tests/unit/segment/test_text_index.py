"""A text index finds the docs that TEXT_MATCH keeps when it reads every text."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.segment.segment_tables import build, field_of, matching

from merlot.functions import text_filter
from merlot.query.filter.predicates import DocList, ValueMatch
from merlot.query.filter.resolve import And, Node
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

NUM_DOCS = 2_000
SCHEMA = TableSchema(fields=(field_of(TypeName.STRING, name="coded"), field_of(TypeName.STRING, name="raw")))
WORDS = ("alpha", "beta", "Gamma", "delta", "alphabet", "日本", "naïve", "x_1", "it's", "50%")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    chance = random.Random(8)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(7))) for _ in range(NUM_DOCS)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    indexing = IndexingSpec(text=SCHEMA.names, no_dictionary=("raw",))
    return build(tmp_path_factory.mktemp("text"), SCHEMA, pa.table({"coded": texts, "raw": texts}), indexing).path


def found(path: Path, column: str, query: str, *, negate: bool = False) -> tuple[Node, list[int]]:
    text = query.replace("'", "''")
    return matching(path, SCHEMA, f"TEXT_MATCH({column}, '{text}')", negate=negate)


QUERIES = (
    "alpha",
    "GAMMA",
    "alpha*",
    "alpha AND beta",
    "alpha beta",
    "alpha AND NOT beta",
    '"alpha beta"',
    '"alpha beta" OR delta AND gamma',
    "日本",
    "本日",
    "naïve AND x_1",
    "it's",
    "nothing",
    "nothing*",
)


@pytest.mark.parametrize("negate", [False, True], ids=["", "not"])
@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize("query", QUERIES)
def test_it_finds_what_reading_every_text_finds(
    path: Path, texts: list[str], query: str, column: str, negate: bool
) -> None:
    _, docs = found(path, column, query, negate=negate)
    wanted = text_filter.parse(query)
    assert docs == [number for number, text in enumerate(texts) if text_filter.holds(wanted, text) != negate]


def test_texts_are_read_only_for_phrases_and_exclusions(path: Path) -> None:
    node, _ = found(path, "raw", "alpha AND beta AND gam*")
    assert isinstance(node, DocList)
    assert node.index == "text"
    for query in ('"alpha beta"', "alpha AND NOT beta"):
        node, _ = found(path, "raw", query)
        assert isinstance(node, And)
        assert [type(child) for child in node.children] == [DocList, ValueMatch]

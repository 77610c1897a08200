"""An n-gram index finds the docs that LIKE and REGEXP_LIKE keep when they read every text."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.segment.segment_tables import build, field_of, matching

from merlot.functions.comparisons import spelled_out_by_like
from merlot.functions.regular import spelled_out
from merlot.query.filter.predicates import DocList
from merlot.query.filter.resolve import And, Node
from merlot.segment.index import ngram
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

NUM_DOCS = 8_000
SCHEMA = TableSchema(fields=(field_of(TypeName.STRING, name="coded"), field_of(TypeName.STRING, name="raw")))
LETTERS = "abcdefghijklmnopqrstuvwxyz%_.é日\\ "


@pytest.fixture(scope="module")
def texts() -> list[str]:
    chance = random.Random(8)
    return ["".join(chance.choices(LETTERS, k=chance.randrange(30))) for _ in range(NUM_DOCS - 2)] + ["", "a needle b"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    indexing = IndexingSpec(ngram=SCHEMA.names, no_dictionary=("raw",))
    return build(tmp_path_factory.mktemp("ngram"), SCHEMA, pa.table({"coded": texts, "raw": texts}), indexing).path


def is_by_index(node: Node) -> bool:
    return isinstance(node, And) and any(isinstance(one, DocList) and one.index == "ngram" for one in node.children)


def likes(pattern: str, text: str) -> bool:
    letters = iter(pattern)
    parts = [
        {"%": ".*", "_": "."}.get(one) or re.escape(next(letters, "\\") if one == "\\" else one) for one in letters
    ]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize("negate", [False, True], ids=["", "not"])
@pytest.mark.parametrize("pattern", ["%needle%", "a nee%", "%n_edle b", "%é日%", "%dle_b%", "%a%", "%nowhere%"])
def test_like_is_as_without_it(path: Path, texts: list[str], column: str, pattern: str, negate: bool) -> None:
    _, docs = matching(path, SCHEMA, f"{column} LIKE '{pattern}'", negate=negate)
    assert docs == [doc for doc, text in enumerate(texts) if likes(pattern, text) != negate]


@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize(
    "pattern", ["needle", "a ne+dle", "^a need?le b$", "[mn]eedle", "(needle)", "ab|needle", "é.日"]
)
def test_regexp_like_is_as_without_it(path: Path, texts: list[str], column: str, pattern: str) -> None:
    _, docs = matching(path, SCHEMA, f"REGEXP_LIKE({column}, '{pattern}')")
    assert docs == [doc for doc, text in enumerate(texts) if re.search(pattern, text)]


@pytest.mark.parametrize("column", SCHEMA.names)
def test_what_a_pattern_spells_out_is_looked_up(path: Path, column: str) -> None:
    for where in (f"{column} LIKE '%needle%'", f"REGEXP_LIKE({column}, 'ne+dle')"):
        node, docs = matching(path, SCHEMA, where)
        assert is_by_index(node)
        assert docs == [NUM_DOCS - 1]
    assert not is_by_index(matching(path, SCHEMA, f"{column} LIKE '%ab%'")[0])


def test_terms_are_those_of_each_text_however_it_is_cut(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [{text.encode()[place : place + 3] for place in range(len(text.encode()) - 2)} for text in texts]
    for size in (1, 100, 4 << 20):
        monkeypatch.setattr(ngram, "CHUNK_BYTES", size)
        terms, ends = ngram.INDEX.terms_of(pa.array(["skipped", *texts]).slice(1))
        found = [terms[start:stop].to_pylist() for start, stop in itertools.pairwise(ends)]
        assert [set(some) for some in found] == wanted
        assert all(len(set(some)) == len(some) for some in found)


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "abc",
        ".",
        "*",
        "+",
        "?",
        "{2}",
        "{0,1}",
        "(",
        ")",
        "[ab]",
        "[^a]",
        "^",
        "$",
        "\\.",
        "\\d",
        "\\b",
        "é",
        "]",
        "}",
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join), st.text("abcé.]}1", max_size=12))
def test_every_match_of_a_regular_expression_holds_what_it_spells_out(pattern: str, text: str) -> None:
    try:
        is_match = pc.match_substring_regex(pa.array([text]), pattern)[0].as_py()
    except pa.ArrowInvalid:
        return
    if is_match:
        assert all(part in text for part in spelled_out(pattern))


@given(st.text("ab%_\\", max_size=8), st.text("ab%_\\", max_size=8))
def test_every_match_of_like_holds_what_it_spells_out(pattern: str, text: str) -> None:
    if likes(pattern, text):
        assert all(part in text for part in spelled_out_by_like(pattern))

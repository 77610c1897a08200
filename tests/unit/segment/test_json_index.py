"""A JSON index finds the docs that JSON_MATCH keeps when it reads every value, and looks at candidates only."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.forgery import Parts, put_together, taken_apart
from tests.unit.segment.segment_tables import build, field_of, matching

from merlot.errors import CorruptionError
from merlot.functions import json_filter
from merlot.query.filter.predicates import DocList, ValueMatch
from merlot.query.filter.resolve import And, Node, Or
from merlot.segment.contents import check_file
from merlot.segment.index import json_paths
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

NUM_DOCS = 3_000
SCHEMA = TableSchema(fields=(field_of(TypeName.JSON, name="coded"), field_of(TypeName.STRING, name="raw")))
INDEXING = IndexingSpec(json_paths=("coded", "raw"), no_dictionary=("raw",))
ODD = (
    "",
    "null",
    "{",
    "[]",
    "{}",
    "7",
    '"text"',
    '{"a.b": 1, "a": {"b": 2}, "c[*]": 3}',
    '{"\\u0001a": "\\u0000", "é": "日本"}',
)


def doc(chance: random.Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(ODD)
    items = [{"k": chance.choice("abc"), "n": chance.randrange(5)} for _ in range(chance.randrange(4))]
    return json.dumps(
        {"k": chance.choice("abc"), "n": chance.randrange(200) / 4, "items": items, "deep": [[1], [2, [3]]]}
    )


@pytest.fixture(scope="module")
def texts() -> list[str]:
    chance = random.Random(3)
    return [doc(chance) for _ in range(NUM_DOCS)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    return build(tmp_path_factory.mktemp("json"), SCHEMA, pa.table({"coded": texts, "raw": texts}), INDEXING).path


def found(path: Path, column: str, wanted: str, *, negate: bool = False) -> tuple[Node, list[int]]:
    text = wanted.replace("'", "''")
    return matching(path, SCHEMA, f"JSON_MATCH({column}, '{text}')", negate=negate)


FILTERS = (
    "\"$.k\" = 'a'",
    "\"$.k\" IN ('a', 'c', 'nothing')",
    "\"$.k\" <> 'a'",
    "\"$.items[*].k\" <> 'b'",
    "\"$.items[*].k\" NOT IN ('a', 'b') AND \"$.items[*].n\" = 3",
    "\"$.nothing[*]\" NOT IN ('a') OR \"$.items[0].k\" <> 'a'",
    '"$.n" BETWEEN 10 AND 12.5',
    '"$.n" < 1',
    "\"$.k\" > 'a'",
    "\"$.k\" <= 'b'",
    '"$.k" > \'a\' AND "$.n" >= 49',
    '"$.items[*].n" = 3',
    '"$.items[*].n" = 3 AND "$.items[*].k" = \'b\'',
    '"$.items[2].n" = 3',
    '"$.items[*].n" = 3 OR "$.n" = 7.5',
    '"$.k" = \'a\' AND "$.items[*].n" = 4',
    '"$.deep[*][*]" = 2',
    '"$.deep[1][1][*]" = 3',
    '"$.items" IS NULL',
    '"$.items[*].k" IS NOT NULL',
    '"$.a.b" = 2',
    '"$" = 7',
    "\"$\" = 'text'",
    "\"$.é\" = '日本'",
    '"$.nothing" = 1',
    '"$.nothing" IS NULL',
)


@pytest.mark.parametrize("negate", [False, True], ids=["", "not"])
@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize("wanted", FILTERS)
def test_it_finds_what_reading_every_value_finds(
    path: Path, texts: list[str], wanted: str, column: str, negate: bool
) -> None:
    _, docs = found(path, column, wanted, negate=negate)
    kept = json_filter.parse(wanted)
    assert docs == [number for number, text in enumerate(texts) if json_filter.holds(kept, text) != negate]


def test_values_are_read_only_where_terms_do_not_decide(path: Path) -> None:
    exact, _ = found(path, "raw", '"$.k" = \'a\' AND "$.items[*].n" = 4')
    assert isinstance(exact, DocList)
    assert exact.index == "json_paths"
    candidates, _ = found(path, "raw", '"$.items[*].n" = 3 AND "$.items[*].k" = \'b\'')
    assert isinstance(candidates, And)
    assert [type(child) for child in candidates.children] == [DocList, ValueMatch]
    others, _ = found(path, "raw", '"$.items[*].n" = 3 AND "$.items[*].k" = \'b\'', negate=True)
    assert isinstance(others, Or)


def test_keys_do_not_pass_for_paths() -> None:
    assert json_paths.terms_of_value('{"a": {"b": 1}}') != json_paths.terms_of_value('{"a\\u0001b": 1}')
    assert json_paths.terms_of_value('{"a": [1]}') != json_paths.terms_of_value('{"a\\u0002": 1}')
    assert json_paths.terms_of_value('{"a\\u0000x": 1}') != json_paths.terms_of_value('{"a": "x\\u00001"}')


def swap_terms(parts: Parts) -> None:
    number, _, _, _ = parts.column("raw")["buffers"]["json_paths.terms.bytes"]
    parts.buffers[number] = parts.buffers[number][::-1]


def other_docs(parts: Parts) -> None:
    number, _, _, _ = parts.column("raw")["buffers"]["json_paths.counts"]
    parts.buffers[number] = (7).to_bytes(4, "little") + parts.buffers[number][4:]


def far_terms(parts: Parts) -> None:
    number, _, _, _ = parts.column("raw")["buffers"]["json_paths.terms.offsets"]
    parts.buffers[number] = parts.buffers[number][:-4] + (1 << 30).to_bytes(4, "little")


@pytest.mark.parametrize("lie", [swap_terms, other_docs, far_terms])
def test_terms_that_lie_are_refused(path: Path, tmp_path: Path, lie: object) -> None:
    parts = taken_apart(path.read_bytes())
    lie(parts)  # type: ignore[operator]
    forged = tmp_path / "forged.mseg"
    forged.write_bytes(put_together(parts))
    with pytest.raises(CorruptionError):
        check_file(forged)

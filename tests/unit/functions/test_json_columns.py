"""What the kernel finds in a column of JSON texts is what the reader of one text at a time finds."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merlot.functions import json_filter
from merlot.functions.json_columns import matches, read_json, values_at
from merlot.functions.json_path import ABSENT, JsonPath, parse_path
from merlot.functions.registry import BY_NAME
from merlot.tree.nodes import Literal
from merlot.tree.types import STRING, SqlType
from merlot.vectors.vector import Attempt, Vector, constant

SCALARS = (
    '"x"', '"y z"', '""', "0", "-0", "7", "-12", '"é"', '"\\n\\"\\\\"', '"\\u00e9"', '"7"', '"1.5"', '"true"', '"{"',
    '"]"', '"\x7f"', '"2024-02-03"', "1.50", "0.1", "1e3", "-0.0", "1E-2", "123456789012345678", "1234567890123456789",
    "3000000000", "0.1234567890123456", "1e400", "9" * 4_400, "true", "false", "null", "NaN", "01", "+1", ".5", "1.",
    "tru", "'x'", "",
)  # fmt: skip
TEXTS, WHOLE = SCALARS[:3], SCALARS[3:7]
KEYS = ('"a"', '"b"', '"c d"', '"A"', '"a\\u0062"', '"é"', '""', "a")
PATHS = (
    "$", "$.a", "$.a.b", "$['c d']", "$.é", "$.a[0]", "$.a[1].b", "$[0]", "$[1][0]", "$.a[-1]", "$.a.length()",
    "$.b[0,1]", "$.a[*]", "$.a[*].b", "$..b", "$.a[?(@.b > 1)]", "$.a[?(@.b == $.b)].b", "$.a['a','b']", "$.a[1:]",
)  # fmt: skip
NAMES = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP", "STRING", "JSON")
DEFAULTS = {"STRING": "none", "JSON": "{}", "BOOLEAN": True}


def _text(draw: random.Random, depth: int = 0) -> str:
    """JSON, mostly; with blanks where they may be, keys that are there twice, and values that are none."""
    kind = draw.random()
    if depth > 4 or (depth and kind < 0.5):
        # Mostly of the first, so that whole columns are of one kind.
        return draw.choice(SCALARS if draw.random() < 0.05 else TEXTS if draw.random() < 0.5 else WHOLE)
    parts = [_text(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 0.85:
        keys = [draw.choice(KEYS if draw.random() < 0.1 else KEYS[:3]) for _ in parts]
        parts = [f"{key}{_blank(draw)}:{_blank(draw)}{part}" for key, part in zip(keys, parts, strict=True)]
    inner = f"{_blank(draw)},{_blank(draw)}".join(parts)
    return f"{{{_blank(draw)}{inner}}}" if kind < 0.85 else f"[{inner}{_blank(draw)}]"


def _blank(draw: random.Random) -> str:
    return draw.choice(("", "", "", "", " ", "\n\t"))


def _damaged(draw: random.Random, text: str) -> str:
    place = draw.randrange(len(text) + 1)
    kind = draw.random()
    return text[:place] + (text[place + 1 :] if kind < 0.4 else draw.choice('{}[],:"0x ') + text[place:])


def _texts(draw: random.Random) -> pa.Array:
    texts = [_text(draw) for _ in range(draw.randrange(1, 60))]
    texts = [_damaged(draw, one) if draw.random() < 0.1 else one for one in texts]
    if draw.random() < 0.3:
        texts.append("[" * 70 + "]" * 70)
    array = pa.array(texts, pa.string())
    first = draw.randrange(len(array))
    return array.slice(first) if draw.random() < 0.3 else array


def _found(path: JsonPath, text: str) -> Any:
    return path.value(read_json(text))


@pytest.mark.parametrize("seed", range(12))
def test_values_at_paths_are_those_of_the_reader_of_one_text(seed: int) -> None:
    draw = random.Random(seed)
    num_sure = 0
    for _ in range(60):
        texts, path = _texts(draw), parse_path(draw.choice(PATHS))
        steps, rest = path.split()
        assert not rest.steps or rest.steps == path.steps[len(steps) :]
        values, unsure = values_at(texts, steps)
        sure = np.setdiff1d(np.arange(len(texts)), unsure)
        num_sure += len(sure)
        prefix = JsonPath(path.steps[: len(steps)])
        raw = values.raw().to_pylist()
        for row in sure.tolist():
            assert read_json(raw[row]) == _found(prefix, texts[row].as_py()), texts[row]
    assert num_sure > 500


def _extracted(texts: Vector, path: str, name: str, default: Literal | None) -> tuple[Any, list[bool]]:
    given = [Literal(path, STRING), Literal(name, STRING), *([] if default is None else [default])]
    extract = BY_NAME["jsonextractscalar"].apply
    assert extract is not None
    attempt = extract(SqlType.parse(name), [texts, *map(constant, given)])
    assert isinstance(attempt, Attempt)
    lost = [] if attempt.failure is None else np.atleast_1d(attempt.failure.rows).tolist()
    data = attempt.data
    if isinstance(data, pa.Scalar) or (isinstance(data, np.ndarray) and data.ndim == 0):
        return [data.as_py() if isinstance(data, pa.Scalar) else data.item()], lost
    return (data.tolist() if isinstance(data, np.ndarray) else data.to_pylist()), lost


@pytest.mark.parametrize("seed", range(12))
def test_what_is_extracted_from_a_column_is_what_python_extracts_from_each_text(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(25):
        texts, path = _texts(draw), draw.choice(PATHS)
        name = draw.choice(NAMES)
        if not parse_path(path).is_definite:
            name = draw.choice(("STRING_ARRAY", "LONG_ARRAY", "STRING"))
        is_given = draw.random() < 0.5 and not name.endswith("_ARRAY") and name != "BIG_DECIMAL"
        default = Literal(DEFAULTS.get(name, 3), SqlType.parse(name)) if is_given else None
        together, lost = _extracted(Vector(STRING, texts), path, name, default)
        for row, text in enumerate(texts):
            # A constant is read by Python.
            [alone], is_lost = _extracted(Vector(STRING, text), path, name, default)
            assert any(is_lost) == (bool(lost) and lost[row]), (path, name, text)
            assert any(is_lost) or repr(together[row]) == repr(alone), (path, name, text)


@pytest.mark.parametrize("name", ["INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL"])
@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_a_number_beyond_double_is_infinite_and_fits_no_other_type(name: str, number: str) -> None:
    texts = pa.array([f'{{"a":{number}}}', '{"a":7}', '{"a":1e2}'])
    is_double = name in ("FLOAT", "DOUBLE")
    column, lost = _extracted(Vector(STRING, texts), "$.a", name, None)
    assert [float(value) for value in column[1:]] == [7, 100]
    assert column[0] == float(number) if is_double else lost == [True, False, False]
    default = Literal(3, SqlType.parse("INT" if name == "BIG_DECIMAL" else name))
    [alone], _ = _extracted(Vector(STRING, texts[0]), "$.a", name, default)
    assert alone == (float(number) if is_double else 3)


CONDITIONS = (
    "\"$.a\" = 'x'", '"$.a" = 7', '"$.a.b" = 7', "\"$.a\" <> 'x'", '"$.a.b" IS NULL', '"$.a" IS NOT NULL',
    "\"$.a\" IN ('7', 'x', 'true')", "\"$.b\" BETWEEN 'a' AND 'z'", '"$.a" > 0 AND "$.b" < 10', '"$.b" > 1.4',
    "\"$.a\" = 'x' OR \"$.a.b\" = 0",
    '"$.a[0]" = 7', '"$.a[*]" = 7', '"$.a[0]" = 7 AND "$.a[1]" = 7', '"$" = 7', '"$.a" = 1.5', "\"$.c d\" = 'x'",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_column_matches_where_each_text_matches(seed: int) -> None:
    draw = random.Random(seed)
    num_found = 0
    for _ in range(60):
        texts = _texts(draw)
        wanted = json_filter.parse(draw.choice(CONDITIONS))
        found = matches(wanted, texts)
        if found is not None:
            num_found += int(found.sum())
            assert found.tolist() == [json_filter.holds(wanted, text) for text in texts.to_pylist()]
    assert num_found > 20


def test_paths_are_split_where_they_find_many() -> None:
    assert parse_path("$.a['b'][2].c[*].d").split()[0] == ["a", "b", 2, "c"]
    assert parse_path("$.a[-1]").split()[0] == ["a"]
    assert parse_path("$..a").split()[0] == []
    assert parse_path("$.a[?(@.b == $.c)]").split()[0] == [], "its condition asks for the root"
    assert _found(parse_path("$.a"), "{") is ABSENT


def test_long_texts_have_wide_offsets() -> None:
    texts = pa.array([json.dumps({"a": {"b": number}}) for number in range(5)], pa.large_string())
    values, unsure = values_at(texts, ["a", "b"])
    assert not len(unsure)
    numbers = values.whole()
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 2, 3, 4]

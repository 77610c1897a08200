"""How Java's replacements of regular expressions are spelled for RE2."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from merlot.functions.registry import BY_NAME
from merlot.functions.regular import _replacement
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Literal
from merlot.tree.types import INT, STRING
from merlot.vectors.vector import Vector, constant


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$1-$0", "b-b"),
        ("[$1]\\$1", "[b]$1"),
        ("\\\\$1", "\\b"),
        ("\\n", "n"),
        ("end\\", "end\\"),
        ("two\nlines $1", "two\nlines b"),
        ("$1" * 3_000, "b" * 3_000),
        ("x" * 10_000, "x" * 10_000),
    ],
)
def test_groups_and_escapes_mean_what_they_mean_in_java(template: str, result: str) -> None:
    assert re.sub("(b)", _replacement(template, 1).replace("\\0", "\\g<0>"), "b") == result


@pytest.mark.parametrize("template", ["$", "a$", "$2", "$x", "$\n", "$²", "$٣", "$-1"])
def test_what_names_no_group_is_refused(template: str) -> None:
    with pytest.raises(SqlValidationError, match="no such group"):
        _replacement(template, 1)


@pytest.mark.parametrize(
    ("template", "groups", "result"),
    [("$10", 3, "\\10"), ("$00", 1, "\\0"), ("$01", 1, "\\1"), ("$012", 11, "\\12"), ("$90", 20, "\\90")],
)
def test_a_group_takes_as_many_digits_as_name_a_group_of_the_pattern(template: str, groups: int, result: str) -> None:
    assert _replacement(template, groups) == result


@pytest.mark.parametrize("template", ["$10", "$010", "$11x"])
def test_a_group_beyond_the_ninth_is_refused(template: str) -> None:
    with pytest.raises(SqlValidationError, match="limit=9"):
        _replacement(template, 11)


@pytest.mark.parametrize(
    ("template", "num_groups"), [("$0$0$1", 3), ("\\\\1", 0), ("\\\\$1", 1), ("x", 0), ("$0" * 300, 300)]
)
def test_the_bound_of_a_result_counts_the_groups_of_the_replacement(template: str, num_groups: int) -> None:
    texts = Vector(STRING, pa.array(["b" * (1 << 20)]))
    words = (Literal("(b+)", STRING), Literal(_replacement(template, 1), STRING), Literal(0, INT), Literal(-1, INT))
    most_bytes = BY_NAME["regexpreplace"].most_bytes
    assert most_bytes is not None
    assert most_bytes([texts, *map(constant, words)]) >> 20 == 1 + num_groups

"""Regular expressions match what they match in Java, or are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from merlot.functions.registry import BY_NAME
from merlot.functions.regular import check_pattern
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Literal
from merlot.tree.types import INT, STRING
from merlot.vectors.vector import Vector, constant


def _extracted(text: str, pattern: str, group: int) -> str:
    function = BY_NAME["regexpextract"]
    assert function.apply is not None
    assert function.complete is not None
    assert function.check_complete is not None
    args = function.complete((Literal(text, STRING), Literal(pattern, STRING), Literal(group, INT)))
    function.check_complete(args)
    words = [constant(arg) for arg in args[1:] if isinstance(arg, Literal)]
    extracted: str = function.apply(STRING, [Vector(STRING, pa.array([text])), *words])[0].as_py()
    return extracted


@pytest.mark.parametrize(
    ("text", "pattern", "group", "match"),
    [
        ("a+b", r"\Qa+", 0, "a+"),
        ("xa+b", r"(x)\Qa+", 1, "x"),
        ("a\\b", "\\Qa\\", 0, "a\\"),
        ("a+b+", r"\Qa+\E(.)\Q+", 1, "b"),
        (r"\Qa)", r"\\Q(a)", 1, "a"),
        ("(a+)", r"\Q(a+)\E", 0, "(a+)"),
    ],
)
def test_a_quotation_ends_where_the_pattern_ends(text: str, pattern: str, group: int, match: str) -> None:
    assert _extracted(text, pattern, group) == match


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        r"(a)\11",
        r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10",
        r"[\12]",
        r"\0123",
        "(?U)a+",
        "(?iU:a+)",
        "(?i-U)a+",
        r"\C",
    ],
)
def test_what_java_reads_differently_is_refused(pattern: str) -> None:
    with pytest.raises(SqlValidationError, match="regular expression is not supported"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("\n", r"\012"),
        ("\n9", r"\0129"),
        (" 0", r"\0400"),
        (r"\11", r"\\11"),
        (r"\11", r"\Q\11"),
        ("(?U)", r"\Q(?U)\E"),
        ("U", "[(?U]"),
        ("aU", "(?i)au"),
        ("U", "(?P<U>u|U)"),
    ],
)
def test_what_only_resembles_it_is_matched(text: str, pattern: str) -> None:
    assert _extracted(text, pattern, 0) == text

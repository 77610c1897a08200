"""How Java's replacements of regular expressions are spelled for RE2."""

from __future__ import annotations

import re

import pytest

from merlot.functions.regular import _replacement
from merlot.tree.errors import SqlValidationError


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

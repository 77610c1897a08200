"""SPLIT and SPLIT_PART answer what StringUtils.splitByWholeSeparator does."""

from __future__ import annotations

import pytest
from tests.contracts.functions.values import value_of


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("SPLIT('a b', '')", ["a", "b"]),
        ("SPLIT('a b', '', 5)", ["a", "b"]),
        ("SPLIT('  a  b  c ', '', 2)", ["a", "b  c "]),
        ("SPLIT('a ', '')", ["a"]),
        ("SPLIT('a ', '', 1)", ["a "]),
        ("SPLIT('  a  b  c ', '')", ["a", "b", "c"]),
        ("SPLIT('  ', '')", []),
        ("SPLIT('', '', 2)", []),
        ("SPLIT('a\u00a0b\u3000c\u0085d', '')", ["a\u00a0b", "c\u0085d"]),
        ("SPLIT(' a\u00a0b c\u2007d\x1ce', '', 2)", ["a\u00a0b", "c\u2007d\x1ce"]),
        ("SPLIT('a,b,', ',')", ["a", "b", ""]),
        ("SPLIT('a,b,', ',', 5)", ["a", "b", ""]),
        ("SPLIT(',a,b', ',', 1)", ["a,b"]),
        ("SPLIT('a,,b,c', ',', 2)", ["a", "b,c"]),
        ("SPLIT(',a,,b,', ',', 2)", ["a", "b,"]),
        ("SPLIT(',,', ',', 1)", [""]),
        ("SPLIT_PART('a b', '', 5, 1)", "b"),
        ("SPLIT_PART('a b ', '', 0, -1)", "b"),
        ("SPLIT_PART('a,,b,c', ',', 2, 1)", "b,c"),
    ],
)
def test_a_text_is_split(call: str, wanted: object) -> None:
    assert value_of(call) == wanted

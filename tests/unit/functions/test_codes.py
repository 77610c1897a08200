"""Character sets are those of Java."""

import pytest
from tests.contracts.functions.values import value_of


@pytest.mark.parametrize("charset", ["UTF-16", "utf-16", "UTF_16"])
@pytest.mark.parametrize(
    ("text", "code"), [("a", "feff0061"), ("", ""), ("\U0001f600", "feffd83dde00"), ("\ufeff", "fefffeff")]
)
def test_utf_16_is_big_endian_after_its_mark(charset: str, text: str, code: str) -> None:
    assert value_of(f"TOBYTES('{text}', '{charset}')") == code
    assert value_of(f"FROMBYTES(HEXTOBYTES('{code}'), '{charset}')") == text


@pytest.mark.parametrize(
    ("code", "charset", "text"),
    [
        ("0061", "UTF-16", "a"),
        ("fffe6100", "UTF-16", "a"),
        ("feff0061", "UTF-16BE", "\ufeffa"),
        ("6100", "UTF-16LE", "a"),
    ],
)
def test_a_mark_tells_the_order_of_bytes_in_utf_16_alone(code: str, charset: str, text: str) -> None:
    assert value_of(f"FROMBYTES(HEXTOBYTES('{code}'), '{charset}')") == text

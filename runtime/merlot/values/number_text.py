"""Numbers as text: the one grammar that manifests and sources share.

ASCII digits with an optional sign, point and exponent, blanks around them: `-12`, `+5`, `1.50`, `.5`, `5.`, `1e3`. What
Python reads beyond that, `1_000` and digits of other scripts, is no number.
"""

import math
import re
from decimal import Decimal, InvalidOperation

BLANKS = " \t\n\v\f\r"
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""Without blanks around it; for Python and RE2 alike."""
NOT_FINITE = r"^[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
"""`NaN`, `inf` and `Infinity` in any case."""
_NUMBER = re.compile(NUMBER)
_NOT_FINITE = re.compile(NOT_FINITE)
_INTEGER = re.compile(r"^[+-]?[0-9]+$")


def is_integer(text: str) -> bool:
    """Whether the text is digits with an optional sign, blanks around them."""
    stripped = text.strip(BLANKS)
    return bool(_INTEGER.fullmatch(stripped))


def decimal_of(text: str) -> Decimal:
    """Exactly the number; ValueError if it is none, or has an exponent that no Decimal holds."""
    stripped = text.strip(BLANKS)
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"not a number: {text!r}")
    try:
        return Decimal(stripped)
    except InvalidOperation:
        raise ValueError(f"not a number that can be held: {text!r}") from None


def double_of(text: str) -> float:
    """The nearest double; ValueError if the text is no number, OverflowError if it is finite and no double is."""
    stripped = text.strip(BLANKS)
    if _NOT_FINITE.fullmatch(stripped):
        return float(stripped)
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"not a number: {text!r}")
    number = float(stripped)
    if math.isinf(number):
        raise OverflowError(text)
    return number

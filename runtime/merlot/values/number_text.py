"""Numbers as text: the grammar that manifests and sources share.

ASCII digits with an optional sign, point and exponent, and blanks around them: `-12`, `+5`, `1.50`, `.5`, `5.`, `1e3`.
`1_000` and digits of other scripts, which Python reads too, are no numbers.
"""

import math
import re
from decimal import Decimal, InvalidOperation

BLANKS = " \t\n\v\f\r"
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""Numbers without blanks around them; for Python and RE2 alike."""
NOT_FINITE = r"^[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
"""`NaN`, `inf` and `Infinity` in any case."""
_NUMBER = re.compile(NUMBER)
_NOT_FINITE = re.compile(NOT_FINITE)
_INTEGER = re.compile(r"^[+-]?[0-9]+$")


def is_integer(text: str) -> bool:
    """Return True if the text is digits with an optional sign and blanks around them."""
    stripped = text.strip(BLANKS)
    return bool(_INTEGER.fullmatch(stripped))


def decimal_of(text: str) -> Decimal:
    """Return the exact number. Raise ValueError if the text is no number, or has an exponent that no Decimal holds."""
    stripped = text.strip(BLANKS)
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"not a number: {text!r}")
    try:
        return Decimal(stripped)
    except InvalidOperation:
        raise ValueError(f"not a number that can be held: {text!r}") from None


def double_of(text: str) -> float:
    """Return the nearest double. Raise ValueError if the text is no number, and OverflowError if it is finite but
    beyond every double."""
    stripped = text.strip(BLANKS)
    if _NOT_FINITE.fullmatch(stripped):
        return float(stripped)
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"not a number: {text!r}")
    number = float(stripped)
    if math.isinf(number):
        raise OverflowError(text)
    return number


def java_text(shortest: str) -> str:
    """Format a float's shortest decimal text like Java's `Double.toString`: `1.0E7`, `0.001`, `1.0E-4`."""
    number = Decimal(shortest)
    if not number.is_finite():
        return "NaN" if number.is_nan() else "-Infinity" if number < 0 else "Infinity"
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not text:
        return minus + "0.0"
    power = len(digits) + int(exponent) - 1
    if -3 <= power < 7:
        plain = format(abs(number), "f")
        whole, _, fraction = plain.partition(".")
        return f"{minus}{whole}.{fraction.rstrip('0') or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"

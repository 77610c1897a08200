"""BIG_DECIMAL without rounding, and its text. Python's own context rounds everything, even a negation, to 28 digits."""

from contextlib import AbstractContextManager
from decimal import Context, Decimal, localcontext
from typing import Final

EXACT: Final = Context(prec=100_000, Emax=999_999, Emin=-999_999)
"""Stored numbers have some 10,000 digits on each side of the point at the most. Past the bounds a result is rounded, or
`decimal.Overflow` is raised, so that no query can ask for a number that fills the memory."""


def exactly() -> AbstractContextManager[Context]:
    """Decimals of this thread are added, multiplied and negated exactly inside."""
    return localcontext(EXACT)


def plain_text(value: Decimal) -> str:
    """The one text of a number: no exponent, no zeros at the end of a fraction, no minus before zero."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text

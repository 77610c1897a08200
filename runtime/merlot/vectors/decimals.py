"""BIG_DECIMAL without rounding, and its text. Python's own context rounds everything, even a negation, to 28 digits."""

from contextlib import AbstractContextManager
from decimal import Context, Decimal, localcontext
from typing import Final

from merlot.vectors.errors import LimitExceededError

EXACT: Final = Context(prec=100_000, Emax=999_999, Emin=-999_999)
"""Context that rounds no number of up to 100,000 digits. Stored numbers have at most 10,001 digits before the point and
rarely many after it. Beyond its bounds a result is rounded, or `decimal.Overflow` is raised, so that no query can ask
for a number that fills the memory."""


def exactly() -> AbstractContextManager[Context]:
    """Return a context in which this thread adds, multiplies and negates decimals exactly."""
    return localcontext(EXACT)


def plain_text(value: Decimal) -> str:
    """Return the canonical text of a number: no exponent, no zeros at the end of a fraction, no minus before zero.

    Raise LimitExceededError if it would have more digits than a result of EXACT."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and (exponent < -EXACT.Emax or value.adjusted() > EXACT.Emax):
        raise LimitExceededError(f"number has too many digits to be written limit={EXACT.Emax} value={value:.3e}")
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text

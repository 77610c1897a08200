"""Texts of instants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merlot.tree.literals import timestamp_text

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Bounds of years of four digits, which numpy writes as Java does."""


def timestamp_texts(millis: NDArray[np.int64]) -> list[str]:
    """Return `yyyy-MM-dd HH:mm:ss.S`, UTC: fractions without trailing zeros, but at least one digit
    (java.sql.Timestamp)."""
    each = np.atleast_1d(millis)
    if len(each) and (each.min() < _FIRST_MS or each.max() > _LAST_MS):
        return [timestamp_text(one_ms) for one_ms in each.tolist()]
    return [_trim(text) for text in np.datetime_as_string(each.astype("datetime64[ms]"), unit="ms").tolist()]


def _trim(text: str) -> str:
    text = text.replace("T", " ").rstrip("0")
    return text + "0" if text.endswith(".") else text

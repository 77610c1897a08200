"""Parse settings of sketches in one text, as Pinot's queries give them:
'nominalEntries=4096;accumulatorThreshold=2'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from merlot.tree.nodes import Value

ENTRIES: Final = "nominalentries"
LEAST_ENTRIES: Final = 16
MOST_ENTRIES: Final = 1 << 20
_MOST_DIGITS: Final = 20
"""Most digits of a number that is read; Python reads no more than 4,300."""
_TUNING: Final = frozenset({"accumulatorthreshold"})
"""Settings that decide when Pinot merges, but not the result."""


def nominal_entries_problem(constants: Sequence[Value]) -> str | None:
    """Return what is wrong with the settings; None if nothing is."""
    if not constants:
        return None
    settings = _settings(constants[0])
    if settings is None:
        return f"settings must be name=value;name=value got={constants[0]!r}"
    for name, value in settings.items():
        if name == "samplingprobability" and value in ("1", "1.0"):
            continue
        if name not in _TUNING | {ENTRIES}:
            return f"setting is not supported, only nominalEntries is: {name}={value}"
    wanted = settings.get(ENTRIES, str(LEAST_ENTRIES))
    if not wanted.isdecimal() or len(wanted) > _MOST_DIGITS or not LEAST_ENTRIES <= int(wanted) <= MOST_ENTRIES:
        return f"nominalEntries must be {LEAST_ENTRIES} to {MOST_ENTRIES} got={wanted:.100}"
    return None


def nominal_entries(constants: Sequence[Value], default: int) -> int:
    """Return the requested number of entries, rounded up to a power of two."""
    settings = _settings(constants[0]) if constants else None
    wanted = int((settings or {}).get(ENTRIES, default))
    return 1 << (wanted - 1).bit_length()


def _settings(given: Value) -> Mapping[str, str] | None:
    """Return settings by their names in lower case; a whole number is the number of entries. None if the text is
    malformed."""
    if isinstance(given, int):
        return {ENTRIES: str(given)}
    settings: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in str(given).split(";"))):
        name, is_set, value = part.partition("=")
        if not is_set:
            return None
        settings[name.strip().lower()] = value.strip()
    return settings

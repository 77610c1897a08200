"""Types of a segment's columns as one text: `SegmentRecord.columns`. Pure."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from types import MappingProxyType

from merlot.values.types import TypeName


def format_columns(columns: Mapping[str, tuple[TypeName, bool]]) -> str:
    """Return the types, and whether columns are multi-value, as `a:INT,b:STRING[]`."""
    pairs = sorted(columns.items())
    return ",".join(f"{_escaped(name)}:{type_}{'[]' if multi else ''}" for name, (type_, multi) in pairs)


@functools.lru_cache(maxsize=256)
def parse_columns(text: str) -> Mapping[str, tuple[TypeName, bool]]:
    """Parse a text of `format_columns`; leave out types that this version does not know."""
    columns = {}
    for item in text.split(","):
        name, _, type_name = item.rpartition(":")
        with contextlib.suppress(ValueError):
            columns[_unescaped(name)] = (TypeName(type_name.removesuffix("[]")), type_name.endswith("[]"))
    return MappingProxyType(columns)


def names_in(text: str) -> list[str]:
    """Return the names of the columns in a text of `format_columns`, in its order."""
    return [_unescaped(item.rpartition(":")[0]) for item in text.split(",")] if text else []


def _escaped(name: str) -> str:
    """Return the name without commas."""
    return name.replace("%", "%25").replace(",", "%2C")


def _unescaped(text: str) -> str:
    return text.replace("%2C", ",").replace("%25", "%")

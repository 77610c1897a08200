"""Options of a request: `"k=v;k=v"` as clients send them, and the deadline that they and the table's limits make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merlot.spec.table import MAX_TIMEOUT_MS
from merlot.sql.query_options import QueryOptionError, warnings
from merlot.tree.nodes import BoundQuery
from merlot.tree.relations import Statement

DEFAULT_TIMEOUT_MS = 10_000
MAX_CHARS = 16_384
MAX_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWishes:
    """What options say of the answer, apart from its rows."""

    drops_rows: bool = False
    """`dropResults=true`: the query runs, and its answer tells all but the rows."""
    client_request_id: str | None = None
    """`clientQueryId`."""
    warnings: tuple[str, ...] = ()
    """Options that nobody knows."""


def wishes(query: BoundQuery | Statement) -> AnswerWishes:
    """What a query's options say of its answer."""
    return AnswerWishes(
        drops_rows=(query.option("dropResults") or "").lower() == "true",
        client_request_id=query.option("clientQueryId"),
        warnings=warnings(query.options),
    )


def parse(text: str) -> dict[str, str]:
    """Read `k=v;k=v`; pinotdb begins with a semicolon. An entry without `=` is refused."""
    if len(text) > MAX_CHARS:
        raise QueryOptionError(f"query options too long chars={len(text)} limit={MAX_CHARS}")
    options = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = entry.partition("=")
        if not separator or not name.strip():
            raise QueryOptionError(f"query option must be name=value got={entry!r}")
        options[name.strip()] = value.strip()
    return options


def timeout_ms(options: Mapping[str, str], table_limit_ms: int | None) -> int:
    """How long the query may take: its own `timeoutMs`, else the table's limit, else ten seconds.

    Raises QueryOptionError if it asks for more than the table, or any broker, allows."""
    wanted = own_timeout_ms(options)
    if wanted is None:
        return table_limit_ms or DEFAULT_TIMEOUT_MS
    if table_limit_ms is not None and wanted > table_limit_ms:
        raise QueryOptionError(f"timeoutMs is above the table's limits.timeoutMs got={wanted} limit={table_limit_ms}")
    return wanted


def planning_timeout_ms(text: str) -> int:
    """How long a query's text may be read before its own options are known."""
    return own_timeout_ms(parse(text)) or DEFAULT_TIMEOUT_MS


def own_timeout_ms(options: Mapping[str, str]) -> int | None:
    """`timeoutMs`, if it is given."""
    wanted = next((value for name, value in options.items() if name.lower() == "timeoutms"), None)
    if wanted is None:
        return None
    # Digits are counted first: Python refuses to read thousands of them.
    number = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) <= MAX_DIGITS else 0
    if not 1 <= number <= MAX_TIMEOUT_MS:
        shown = f"{wanted[:MAX_DIGITS]}…" if len(wanted) > MAX_DIGITS else wanted
        raise QueryOptionError(f"timeoutMs must be a whole number from 1 to {MAX_TIMEOUT_MS} got={shown!r}")
    return number

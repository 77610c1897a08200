"""Read the options of a request, `k=v;k=v`, and derive the deadline from them and the table's limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from merlot.spec.table import MAX_TIMEOUT_MS, QueryLimits
from merlot.sql.query_options import QueryOptionError, warnings
from merlot.tree.nodes import BoundQuery
from merlot.tree.relations import Statement

DEFAULT_TIMEOUT_MS = 10_000
MAX_CHARS = 16_384
MAX_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWishes:
    """Options that concern the answer, apart from its rows."""

    drops_rows: bool = False
    """`dropResults=true`: the query runs, and its answer has all but the rows."""
    client_request_id: str | None = None
    """`clientQueryId`."""
    warnings: tuple[str, ...] = ()
    """Lines about options that nobody knows, and options above a limit."""


def wishes(query: BoundQuery | Statement, limits: QueryLimits | None = None) -> AnswerWishes:
    """Read a query's options about its answer, within the limits of its table."""
    return AnswerWishes(
        drops_rows=(query.option("dropResults") or "").lower() == "true",
        client_request_id=query.option("clientQueryId"),
        warnings=(*warnings(query.options), *_capped(query, limits or QueryLimits())),
    )


def least(limits: Iterable[QueryLimits]) -> QueryLimits:
    """Return the limits of a query over several tables: for each limit, the least that a table has."""
    all_limits = list(limits)
    fields = {limit.field for limit in LIMITED}
    values_of = {name: [getattr(table_limits, name) for table_limits in all_limits] for name in fields}
    given = {name: [value for value in values if value is not None] for name, values in values_of.items()}
    return QueryLimits().model_copy(update={name: min(values) for name, values in given.items() if values})


def _capped(query: BoundQuery | Statement, limits: QueryLimits) -> Iterator[str]:
    """Yield a line for each option that asks for more than a limit allows. This is no error, as clients send their
    options with every query; the limit applies."""
    for limit in LIMITED:
        wanted = _count(query.option(limit.option))
        most = getattr(limits, limit.field)
        if wanted is not None and most is not None and wanted > most:
            yield f"{limit.option}={wanted} is above the table's {limit.path}={most}, which applies"
    wanted = _count(query.option("timeoutMs"))
    if wanted is not None and wanted > MAX_TIMEOUT_MS and limits.timeout_ms is None:
        yield f"timeoutMs={wanted} is above the longest time of a query, {MAX_TIMEOUT_MS} ms, which applies"


@dataclass(frozen=True, slots=True)
class _Limited:
    """An option that a limit of the table bounds: names in SQL, in the model and in the manifest."""

    option: str
    field: str
    path: str


LIMITED: Final = (
    _Limited("timeoutMs", "timeout_ms", "limits.timeoutMs"),
    _Limited("maxServerResponseSizeBytes", "max_bytes", "limits.maxBytes"),
    _Limited("maxQueryResponseSizeBytes", "max_bytes", "limits.maxBytes"),
    _Limited("numGroupsLimit", "max_groups", "limits.maxGroups"),
)


def parse(text: str) -> dict[str, str]:
    """Read `k=v;k=v`; pinotdb begins with a semicolon. Raise QueryOptionError if the text is too long, or an entry has
    no name or no `=`."""
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
    """Return the time that the query may take: its own `timeoutMs`, but no more than the table's limit. If it has none:
    the table's limit, or ten seconds. Raise QueryOptionError if `timeoutMs` is no number above 0."""
    wanted = own_timeout_ms(options)
    if wanted is None:
        return table_limit_ms or DEFAULT_TIMEOUT_MS
    return wanted if table_limit_ms is None else min(wanted, table_limit_ms)


def planning_timeout_ms(text: str) -> int:
    """Return the time that planning may take until the options in the query's text are known."""
    return own_timeout_ms(parse(text)) or DEFAULT_TIMEOUT_MS


def own_timeout_ms(options: Mapping[str, str]) -> int | None:
    """Return `timeoutMs` if it is given, but no more than a day. Raise QueryOptionError if it is no number above 0."""
    wanted = next((value for name, value in options.items() if name.lower() == "timeoutms"), None)
    if wanted is None:
        return None
    number = _count(wanted)
    if not number:
        shown = f"{wanted[:MAX_DIGITS]}…" if len(wanted) > MAX_DIGITS else wanted
        raise QueryOptionError(f"timeoutMs must be a whole number above 0 got={shown!r}")
    return min(number, MAX_TIMEOUT_MS)


def _count(text: str | None) -> int | None:
    """Read a whole number that is not negative; None for any other text."""
    # Count the digits first: Python refuses to convert thousands of them.
    is_count = text is not None and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_count and text is not None else None

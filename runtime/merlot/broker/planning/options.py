"""Options of a request: `"k=v;k=v"` as clients send them, and the deadline that they and the table's limits make."""

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
    """What options say of the answer, apart from its rows."""

    drops_rows: bool = False
    """`dropResults=true`: the query runs, and its answer tells all but the rows."""
    client_request_id: str | None = None
    """`clientQueryId`."""
    warnings: tuple[str, ...] = ()
    """Options that nobody knows, and those above a limit."""


def wishes(query: BoundQuery | Statement, limits: QueryLimits | None = None) -> AnswerWishes:
    """Read from a query's options how its answer is to look, within the limits of its table."""
    return AnswerWishes(
        drops_rows=(query.option("dropResults") or "").lower() == "true",
        client_request_id=query.option("clientQueryId"),
        warnings=(*warnings(query.options), *_capped(query, limits or QueryLimits())),
    )


def least(limits: Iterable[QueryLimits]) -> QueryLimits:
    """The limits of a query over several tables: of each, the least that a table has."""
    all_limits = list(limits)
    fields = {limit.field for limit in LIMITED}
    given = {name: [value for one in all_limits if (value := getattr(one, name)) is not None] for name in fields}
    return QueryLimits().model_copy(update={name: min(values) for name, values in given.items() if values})


def _capped(query: BoundQuery | Statement, limits: QueryLimits) -> Iterator[str]:
    """A line for each option that asks for more than a limit allows: clients send their own with every query, so it is
    no error, and the limit holds."""
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
    """How long the query may take: its own `timeoutMs`, at most the table's limit; without one the table's limit, else
    ten seconds. Raises QueryOptionError if `timeoutMs` is no number above 0."""
    wanted = own_timeout_ms(options)
    if wanted is None:
        return table_limit_ms or DEFAULT_TIMEOUT_MS
    return wanted if table_limit_ms is None else min(wanted, table_limit_ms)


def planning_timeout_ms(text: str) -> int:
    """How long a query's text may be read before its own options are known."""
    return own_timeout_ms(parse(text)) or DEFAULT_TIMEOUT_MS


def own_timeout_ms(options: Mapping[str, str]) -> int | None:
    """`timeoutMs`, if it is given, at most a day."""
    wanted = next((value for name, value in options.items() if name.lower() == "timeoutms"), None)
    if wanted is None:
        return None
    number = _count(wanted)
    if not number:
        shown = f"{wanted[:MAX_DIGITS]}…" if len(wanted) > MAX_DIGITS else wanted
        raise QueryOptionError(f"timeoutMs must be a whole number above 0 got={shown!r}")
    return min(number, MAX_TIMEOUT_MS)


def _count(text: str | None) -> int | None:
    """A whole number that is not negative, None for any other text."""
    # Digits are counted first: Python refuses to read thousands of them.
    is_count = text is not None and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_count and text is not None else None

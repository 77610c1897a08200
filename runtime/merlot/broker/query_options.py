"""Options of a request: `"k=v;k=v"` as clients send them, and the deadline that they and the table's limits make."""

from __future__ import annotations

from collections.abc import Mapping

from merlot.broker.query_errors import QueryErrorCode
from merlot.errors import InvalidInputError

DEFAULT_TIMEOUT_MS = 10_000
_SWITCHES = frozenset({"enablenullhandling", "skipsegmentpruning"})


class QueryOptionError(InvalidInputError):
    """An option whose value makes no sense."""

    code = QueryErrorCode.QUERY_VALIDATION


def parse(text: str) -> dict[str, str]:
    """Read `k=v;k=v`; pinotdb begins with a semicolon. An entry without `=` is refused."""
    options = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = entry.partition("=")
        if not separator or not name.strip():
            raise QueryOptionError(f"query option must be name=value got={entry!r}")
        options[name.strip()] = value.strip()
    return options


def check(options: Mapping[str, str]) -> None:
    """Raise QueryOptionError if a switch is neither on nor off: read as off, `enableNullHandling=yes` would answer
    another question."""
    for name, value in options.items():
        if name.lower() in _SWITCHES and value.lower() not in ("true", "false"):
            raise QueryOptionError(f"{name} must be true or false got={value!r}")


def timeout_ms(options: Mapping[str, str], table_limit_ms: int | None) -> int:
    """How long the query may take: its own `timeoutMs`, else the table's limit, else ten seconds."""
    wanted = next((value for name, value in options.items() if name.lower() == "timeoutms"), None)
    if wanted is None:
        return table_limit_ms or DEFAULT_TIMEOUT_MS
    if not wanted.isdecimal() or int(wanted) == 0:
        raise QueryOptionError(f"timeoutMs must be a positive number got={wanted!r}")
    return int(wanted)

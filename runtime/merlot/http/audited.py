"""Tell the audit log about requests over HTTP: each that is refused, and each that may change something."""

from __future__ import annotations

import time
from typing import Any, Final, Self

from aiohttp import web

from merlot.http.door import DOOR, PUBLIC, RouteRight, identity_of
from merlot.security.access import Right
from merlot.security.audit import AuditLog, entry

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: Final = frozenset({401, 403})
_MAX_PATH: Final = 1_000


class Audited:
    """A request that may be recorded once it is answered."""

    def __init__(self, log: AuditLog | None) -> None:
        self._log = log
        self._started = time.monotonic() if log is not None else 0.0

    @classmethod
    def begin(cls, request: web.Request) -> Self:
        """Begin to measure a request."""
        door = request.config_dict.get(DOOR)
        return cls(None if door is None else door.audit)

    def end(self, request: web.Request, needed: RouteRight | None, response: web.StreamResponse | None) -> None:
        """Record the request if it was refused, or may have changed something. No response: it was cut off."""
        if self._log is None or needed is PUBLIC:
            return
        status = None if response is None else response.status
        changes = request.method not in _READING and (needed is None or Right.QUERY not in needed.rights)
        if status in _REFUSALS or changes:
            self._log.record(self._entry(request, status))

    def _entry(self, request: web.Request, status: int | None) -> dict[str, Any]:
        return entry(
            "request",
            identity_of(request),
            request.remote or "",
            verb=request.method,
            path=request.path[:_MAX_PATH],
            query={name: value[:_MAX_PATH] for name, value in request.query.items() if name not in _WITH_SQL},
            decision="refused" if status in _REFUSALS else "allowed",
            status=status,
            durationMs=round((time.monotonic() - self._started) * 1000, 3),
        )


_WITH_SQL: Final = frozenset({"sql", "query", "queryOptions"})
"""Parameters that hold constants of queries."""

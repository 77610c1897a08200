"""Tell the audit log about queries: those that are refused, and all others if it wants them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Protocol

from merlot.broker.response import BrokerAnswer
from merlot.codes import QueryErrorCode
from merlot.security.access import Identity
from merlot.security.audit import MAX_TEXT, AuditLog, entry
from merlot.sql.normal_form import normal_form


class AskedQuery(Protocol):
    """The part of a request that is recorded."""

    @property
    def sql(self) -> str: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def client(self) -> str: ...


def audit_query(log: AuditLog | None, query: AskedQuery, answer: BrokerAnswer) -> None:
    """Record a query that was answered. Its constants may be literals of hidden columns, so only a hash of the text
    without them is recorded, unless texts are asked for."""
    if log is None:
        return
    is_refused = answer.error_code == QueryErrorCode.ACCESS_DENIED
    if not is_refused and not log.settings.with_queries:
        return
    fingerprint = sha256(normal_form(query.sql[:MAX_TEXT]).encode()).hexdigest()[:16]
    facts: dict[str, Any] = {
        "requestId": answer.request_id,
        "fingerprint": fingerprint,
        "tables": list(answer.tables),
        "decision": "refused" if is_refused else "allowed",
        "errorCode": answer.error_code,
        "numRows": 0 if answer.result is None else answer.result.num_rows,
        "durationMs": answer.time_used_ms,
    }
    if is_refused:
        facts["why"] = answer.exceptions[0].message  # names the table, which the answer does not
    if log.settings.with_texts:
        facts["sql"] = query.sql[:MAX_TEXT]
    log.record(entry("query", query.identity, query.client, **facts))

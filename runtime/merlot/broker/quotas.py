"""Limit the queries a second that a table takes (`limits.maxQueriesPerSecond`). Each live broker has an equal share.

A share fills up evenly and holds a second's worth, at least one query. A burst may be that large; later queries come at
the rate of the share. Belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.ids import TableName


class QuotaExceededError(UnavailableError):
    """Raised if a table takes no more queries now."""

    code: ClassVar[int] = QueryErrorCode.TOO_MANY_REQUESTS


@dataclass(slots=True)
class _Share:
    left: float
    at_s: float


class Quotas:
    """Queries that this broker may still run for each table."""

    def __init__(self) -> None:
        self._shares: dict[TableName, _Share] = {}

    def take(self, tables: Iterable[ServedTable], num_brokers: int, now_s: float) -> None:
        """Charge a query to its tables. Raise QuotaExceededError, and charge no table, if one of them takes no more."""
        charged = []
        for table in tables:
            limit = table.spec.limits.max_queries_per_second
            if limit is None:
                self._shares.pop(table.name, None)
                continue
            share = self._filled(table.name, limit / num_brokers, now_s)
            if share.left < 1:
                raise QuotaExceededError(
                    f"table takes no more queries now table={table.raw_name} maxQueriesPerSecond={limit:g} "
                    f"brokers={num_brokers}"
                )
            charged.append(share)
        for share in charged:
            share.left -= 1

    def _filled(self, name: TableName, rate: float, now_s: float) -> _Share:
        most = max(1.0, rate)
        share = self._shares.setdefault(name, _Share(most, now_s))
        share.left = min(most, share.left + rate * (now_s - share.at_s))
        share.at_s = now_s
        return share

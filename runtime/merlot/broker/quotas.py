"""How many queries a second a table takes: `limits.maxQueriesPerSecond`, of which each live broker has its share.

A share fills up evenly and holds a second's worth, at least one query: so a burst may be as large, and what follows it
comes at the pace of the share. Belongs to the event loop.
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
    """The table takes no more queries now."""

    code: ClassVar[int] = QueryErrorCode.TOO_MANY_REQUESTS


@dataclass(slots=True)
class _Share:
    left: float
    at_s: float


class Quotas:
    """What is left of the shares of a broker."""

    def __init__(self) -> None:
        self._shares: dict[TableName, _Share] = {}

    def take(self, tables: Iterable[ServedTable], num_brokers: int, now_s: float) -> None:
        """A query of these tables comes; raises QuotaExceededError if one of them takes no more, and then none is
        charged."""
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

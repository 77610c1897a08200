"""Limit the queries a second that a table takes (`limits.maxQueriesPerSecond`), and those of each identity (`limits` of
the access document). Each live broker has an equal share.

A share fills up evenly and holds a second's worth, at least one query. A burst may be that large; later queries come at
the rate of the share. Belongs to the event loop.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.security.access import NO_LIMITS, Identity, IdentityLimits

MAX_IDENTITIES: Final = 10_000


class QuotaExceededError(UnavailableError):
    """Raised if a table takes no more queries now, or an identity may ask no more."""

    code: ClassVar[int] = QueryErrorCode.TOO_MANY_REQUESTS


@dataclass(slots=True)
class _Share:
    left: float
    at_s: float

    def fill(self, rate: float, now_s: float) -> None:
        """Add what has come in since the last time."""
        self.left = min(max(1.0, rate), self.left + rate * (now_s - self.at_s))
        self.at_s = now_s


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
        share = self._shares.setdefault(name, _Share(max(1.0, rate), now_s))
        share.fill(rate, now_s)
        return share


class IdentityQuotas:
    """Queries that this broker may still run for each identity, and how many it runs."""

    def __init__(self) -> None:
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        self._running: Counter[str] = Counter()

    @contextlib.contextmanager
    def taken(self, identity: Identity, limits: IdentityLimits, num_brokers: int, now_s: float) -> Iterator[None]:
        """Charge a query to an identity while it runs. Raise QuotaExceededError if the identity may ask no more now."""
        if limits is NO_LIMITS:
            yield
            return
        name = identity.name
        self._check_rate(name, limits.queries_per_second, max(1, num_brokers), now_s)
        if limits.concurrent is not None and self._running[name] >= limits.concurrent:
            raise QuotaExceededError(
                f"too many queries of one user run user={name:.200} concurrent={limits.concurrent}"
            )
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]

    def _check_rate(self, name: str, limit: float | None, num_brokers: int, now_s: float) -> None:
        if limit is None:
            return
        rate = limit / num_brokers
        share = self._shares.pop(name, None) or _Share(max(1.0, rate), now_s)
        self._shares[name] = share
        if len(self._shares) > MAX_IDENTITIES:
            self._shares.popitem(last=False)
        share.fill(rate, now_s)
        if share.left < 1:
            raise QuotaExceededError(
                f"user asks too often user={name:.200} queriesPerSecond={limit:g} brokers={num_brokers}"
            )
        share.left -= 1

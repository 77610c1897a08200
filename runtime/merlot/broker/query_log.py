"""Log recent queries for `merlot advise`: by normal form, with counts, times and samples.

The log is in memory and bounded in every direction. A query only leaves its text and figures. Some times a second, a
few of them are sorted into forms; the others are counted as if they had the same forms. Every day begins a new
generation, and the one before it is kept. Belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from merlot.broker.response import BrokerAnswer
from merlot.broker.settings import BrokerSettings
from merlot.clock import Clock
from merlot.security.access import ANONYMOUS
from merlot.sql.normal_form import normal_form
from merlot.values.periods import DAY_MS

FOLD_S: Final = 0.2
MOST_PENDING: Final = 50
"""Most queries that are sorted into forms at a time: 10 us each."""
MOST_CHARS: Final = 4096
"""Longest text of a query that is logged."""
_PERSONAL: Final = frozenset({"clientqueryid", "timeoutms"})


class LoggedQuery(NamedTuple):
    """A query and its cost."""

    table: str
    sql: str
    options: str
    time_ms: float
    num_docs_scanned: int
    num_entries_scanned_in_filter: int
    num_segments_processed: int
    asker: str


@dataclass(slots=True)
class Form:
    """Sums over the queries of one normal form."""

    table: str
    normal: str
    options: str
    asker: str = ""
    """Name of who asked; empty in sums over everybody's queries."""
    count: float = 0.0
    time_ms: float = 0.0
    longest_ms: float = 0.0
    num_docs_scanned: float = 0.0
    num_entries_scanned_in_filter: float = 0.0
    num_segments_processed: float = 0.0
    last_ms: int = 0
    samples: list[str] = field(default_factory=list)
    """Some of the texts, the newest last."""

    def add(self, other: Form, max_samples: int) -> None:
        """Add the counts of `other`."""
        self.count += other.count
        self.time_ms += other.time_ms
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.num_docs_scanned += other.num_docs_scanned
        self.num_entries_scanned_in_filter += other.num_entries_scanned_in_filter
        self.num_segments_processed += other.num_segments_processed
        self.last_ms = max(self.last_ms, other.last_ms)
        earlier = [text for text in self.samples if text not in other.samples]
        self.samples = (earlier + other.samples)[-max_samples:] if max_samples else []

    def to_json(self) -> dict[str, Any]:
        """Return the form's entry in the log that clients read."""
        return {
            "query": self.normal,
            "options": self.options,
            "count": round(self.count),
            "timeMs": round(self.time_ms, 3),
            "longestMs": round(self.longest_ms, 3),
            "numDocsScanned": round(self.num_docs_scanned),
            "numEntriesScannedInFilter": round(self.num_entries_scanned_in_filter),
            "numSegmentsProcessed": round(self.num_segments_processed),
            "lastMs": self.last_ms,
            "samples": self.samples,
        }


Forms = OrderedDict[tuple[str, str, str, str], Form]


class QueryLog:
    """The query log of a broker."""

    def __init__(self, clock: Clock, settings: BrokerSettings) -> None:
        self._clock = clock
        self._max_forms = settings.query_log_forms
        self._max_samples = settings.query_log_samples
        self._forms: Forms = OrderedDict()
        self._former: Forms = OrderedDict()
        self._since_ms = self._former_since_ms = clock.now_ms()
        self._pending: list[LoggedQuery] = []
        self._num_skipped = 0
        self._timer: asyncio.TimerHandle | None = None

    def observe(
        self, sql: str, options: str, answer: BrokerAnswer, elapsed_s: float, *, asker: str = ANONYMOUS.name
    ) -> None:
        """Log a query that was answered, under the name of who asked. Failed queries, and queries that read no table,
        are left out."""
        if not self._max_forms or not answer.tables or answer.exceptions or len(sql) > MOST_CHARS:
            return
        pending = self._pending
        if len(pending) >= MOST_PENDING:
            self._num_skipped += 1
            return
        if not pending:
            self._timer = asyncio.get_running_loop().call_later(FOLD_S, self._fold)
        stats = answer.stats
        scanned = stats.num_docs_scanned, stats.num_entries_scanned_in_filter, stats.num_segments_processed
        shared_options = _shared(options)
        pending.extend(
            LoggedQuery(table, sql, shared_options, elapsed_s * 1000, *scanned, asker) for table in answer.tables
        )

    def report(self, table: str, asker: str | None = None) -> dict[str, Any]:
        """Return the log of a table, by its raw name, of everybody's queries or the asker's; forms that took longest in
        total come first."""
        self._fold()
        merged: Forms = OrderedDict()
        for form in (*self._former.values(), *self._forms.values()):
            if form.table == table and asker in (None, form.asker):
                _add(merged, form, self._max_samples, asker="")
        queries = sorted(merged.values(), key=lambda form: -form.time_ms)
        return {
            "table": table,
            "sinceMs": self._former_since_ms,
            "untilMs": self._clock.now_ms(),
            "queries": [form.to_json() for form in queries],
        }

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fold(self) -> None:
        pending, self._pending = self._pending, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not pending:
            return
        weight = (len(pending) + self._num_skipped) / len(pending)
        self._num_skipped = 0
        now_ms = self._clock.now_ms()
        self._turn(now_ms)
        for form in _forms_of(pending, weight, now_ms):
            _add(self._forms, form, self._max_samples)
        while len(self._forms) > self._max_forms:
            self._forms.popitem(last=False)

    def _turn(self, now_ms: int) -> None:
        """Begin a new generation if the current one is a day old."""
        if now_ms - self._since_ms >= DAY_MS:
            self._former, self._former_since_ms = self._forms, self._since_ms
            self._forms, self._since_ms = OrderedDict(), now_ms


def _shared(options: str) -> str:
    """Return the options that queries of one form share: not the caller's id, and not the time that it allows."""
    entries = filter(None, (entry.strip() for entry in options.split(";")))
    return ";".join(sorted(entry for entry in entries if entry.partition("=")[0].strip().lower() not in _PERSONAL))


def _forms_of(pending: Iterable[LoggedQuery], weight: float, now_ms: int) -> Iterable[Form]:
    for query in pending:
        yield Form(
            table=query.table,
            normal=normal_form(query.sql),
            options=query.options,
            asker=query.asker,
            count=weight,
            time_ms=weight * query.time_ms,
            longest_ms=query.time_ms,
            num_docs_scanned=weight * query.num_docs_scanned,
            num_entries_scanned_in_filter=weight * query.num_entries_scanned_in_filter,
            num_segments_processed=weight * query.num_segments_processed,
            last_ms=now_ms,
            samples=[query.sql],
        )


def _add(forms: Forms, form: Form, max_samples: int, asker: str | None = None) -> None:
    """Add a form to `forms`, as its own asker's or another's, and move it to the end, where the latest is."""
    key = form.table, form.normal, form.options, form.asker if asker is None else asker
    total = forms.pop(key, None) or Form(*key)
    total.add(form, max_samples)
    forms[key] = total

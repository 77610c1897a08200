"""Retry of a row at which the table's own merger fails: the row alone is tried again, not all that depends on it.

A batch that could not be merged has been entered into the index, which is given up and built again from stored rows. So
before the batch is taken again, the merger is called with the same values. As long as it fails, rows that are here are
answered, and nothing behind them is consumed. All replicas have the same rows and do the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from merlot.errors import InvalidInputError
from merlot.server.realtime.poller import RowBatch
from merlot.upsert.mergers import MergerError

_LOG = logging.getLogger(__name__)

WHAT_TO_DO = "mend the package of the merger on all servers and restart them; nothing is lost meanwhile"


class PoisonRowError(InvalidInputError):
    """Raised while a merger fails: names the row, the merger, and what to do."""


class MergerRetry:
    """Failure of one partition's merger. Belongs to the consuming thread."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._failed: tuple[PoisonRowError, MergerError] | None = None

    def check(self) -> None:
        """Raise PoisonRowError as long as the merger fails at the row at which it failed."""
        if self._failed is None:
            return
        failure, error = self._failed
        try:
            error.again()
        except InvalidInputError:
            raise failure from None
        _LOG.info("merger does not fail any more %s", self._where)
        self._failed = None

    @contextmanager
    def noted(self, batch: RowBatch) -> Iterator[None]:
        """Raise PoisonRowError in place of MergerError, and note it."""
        try:
            yield
        except MergerError as error:
            offset = int(batch.offsets[error.row])
            failure = PoisonRowError(f"{error} {self._where} offset={offset}: {WHAT_TO_DO}")
            self._failed = failure, error
            raise failure from error

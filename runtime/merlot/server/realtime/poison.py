"""A row that the table's own merger fails of: it is not tried again with all that hangs on it, but by itself.

A batch that could not be merged has been entered into the index, which is given up and built anew of what is stored.
So before the batch is taken again, the merger is asked for the same values: as long as it fails, rows that are here
are answered, and nothing behind them is consumed. The same on all replicas, which have the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from merlot.errors import InvalidInputError
from merlot.server.realtime.intake import Batch
from merlot.upsert.mergers import MergerError

_LOG = logging.getLogger(__name__)

WHAT_TO_DO = "mend the package of the merger on all servers and restart them; nothing is lost meanwhile"


class PoisonRowError(InvalidInputError):
    """Why nothing is consumed: which row, which merger, and what to do."""


class Poison:
    """One partition's; the consuming thread's."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._found: tuple[PoisonRowError, MergerError] | None = None

    def check(self) -> None:
        """Raises PoisonRowError as long as the merger fails of the row that it failed of."""
        if self._found is None:
            return
        told, error = self._found
        try:
            error.again()
        except InvalidInputError:
            raise told from None
        _LOG.info("merger does not fail any more %s", self._where)
        self._found = None

    @contextmanager
    def noted(self, batch: Batch) -> Iterator[None]:
        """Raises PoisonRowError in place of MergerError, and takes note of it."""
        try:
            yield
        except MergerError as error:
            offset = int(batch.offsets[error.row])
            told = PoisonRowError(f"{error} {self._where} offset={offset}: {WHAT_TO_DO}")
            self._found = told, error
            raise told from error

"""Call users' own segment pruners, from entry points. A pruner that fails costs a query no rows and does not fail it.

If a pruner cannot be loaded, fails or returns no mask, every segment is kept. Each failure is counted, the first one is
logged, and `problem` reports the last one for the table's status. Pruners are made in a thread and called on the event
loop, or in a thread for a long filter. Nothing can stop a call that does not return (docs/operations.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from merlot import telemetry
from merlot.cluster.records import SegmentRecord
from merlot.entry_points import entry_points_named
from merlot.ids import TableName
from merlot.spec import pruners
from merlot.spec.table import TableSpec
from merlot.tree.nodes import Expr

_LOG = logging.getLogger(__name__)

KeepMask = NDArray[np.bool_]


class PreparedPruner(Protocol):
    """A user's own pruner over the segments of one snapshot."""

    def __call__(self, where: Expr) -> KeepMask:
        """Return, for each of the records that the pruner was made with, whether the segment may hold rows that pass
        the filter: an array of bool as long as the records, in their order."""
        ...


PreparePruner = Callable[[TableSpec, Sequence[SegmentRecord]], PreparedPruner]
"""Type of the function that an entry point of `merlot.segment_pruners` names."""

_NO_RECORD: Final = SegmentRecord(name="", crc=0, size_bytes=0, url="", total_docs=-1)


class PluginPruner:
    """A user's pruner, prepared for the records of one snapshot."""

    def __init__(
        self,
        table: TableName,
        name: str,
        spec: TableSpec,
        records: Sequence[SegmentRecord],
        logged: set[str],
    ) -> None:
        """Prepare the pruner. `logged` holds the names of the table's pruners whose first failure is logged; it is
        shared with the pruners of other snapshots, as queries may still ask an older snapshot while one is built."""
        self.name = name
        self.problem: str | None = None
        """Last failure, in one line; None if there was none."""
        self.logged = logged
        self._table = table
        self._num_segments = len(records)
        self._prepared: PreparedPruner | None = None
        try:
            (entry_point,) = entry_points_named(pruners.ENTRY_POINTS, name)
            prepare: PreparePruner = entry_point.load()
            self._prepared = prepare(spec, records)
        except Exception as error:  # noqa: BLE001 - foreign code must not take the table away
            self._fail(f"pruner cannot be had name={name} cause={error!r:.200}", error)

    def keep(self, where: Expr) -> KeepMask:
        """Return the mask of segments to keep; all of them if the pruner fails."""
        if self._prepared is not None:
            try:
                mask = np.asarray(self._prepared(where))
                if mask.dtype == np.bool_ and mask.shape == (self._num_segments,):
                    return mask
                self._fail(f"pruner answered no mask name={self.name} dtype={mask.dtype} shape={mask.shape}", None)
            except Exception as error:  # noqa: BLE001 - foreign code must not fail a query
                self._fail(f"pruner failed name={self.name} cause={error!r:.200}", error)
        return np.ones(self._num_segments, np.bool_)

    def _fail(self, problem: str, error: Exception | None) -> None:
        telemetry.BROKER_PRUNER_FAILURES.labels(self._table, self.name).inc()
        if self.name not in self.logged:
            _LOG.warning("segments are kept table=%s problem=%s", self._table, problem, exc_info=error)
        self.logged.add(self.name)
        self.problem = problem


def prepare_all(
    table: TableName, spec: TableSpec, records: Sequence[SegmentRecord | None], previous: Sequence[PluginPruner] = ()
) -> tuple[PluginPruner, ...]:
    """Prepare the users' pruners that a table lists, in its order. A segment whose record is None gets an empty
    record. A pruner that failed in an earlier snapshot, of which `previous` is the last, is not logged again."""
    known_records = [_NO_RECORD if record is None else record for record in records]
    names = filter(pruners.is_own, spec.routing.segment_pruners)
    logged: set[str] = previous[0].logged if previous else set()
    return tuple(PluginPruner(table, name, spec, known_records, logged) for name in names)

"""Choose the time boundary that a broker uses for a hybrid table. Pure.

The root of the table's segments holds the boundary. A broker adopts a new one in the snapshot that routes all segments
of batches before it, and uses its former one until then. If the snapshot lacks the newest segments of batches, the
broker's boundary is lower than the root's (`BoundaryRule.lowered`), so that the stream answers for their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream


def followed(root_ms: int | None, previous_ms: int | None, *, is_ready: bool) -> int | None:
    """Return the boundary to use; None: queries see all rows of the OFFLINE and of the REALTIME table. `is_ready`: True
    if the segments of batches before the root's boundary are routed. A lower boundary need not wait for that."""
    if root_ms is None or is_ready or (previous_ms is not None and root_ms < previous_ms):
        return root_ms
    return previous_ms


def is_ready(records: Mapping[str, SegmentRecord], waiting: Set[str], boundary_ms: int | None) -> bool:
    """Return True if no segment of batches that may begin before the boundary still waits to be routed."""
    if boundary_ms is None:
        return True
    of_batches = (records[name] for name in waiting & records.keys() if not is_of_stream(records[name]))
    return all(record.start_time_ms is not None and record.start_time_ms >= boundary_ms for record in of_batches)

"""The time boundary that a broker goes by, and what queries see of each segment by it. Pure.

A broker takes over the boundary of the table's root in the snapshot that routes all that batches have before it. Until
then it keeps the one that it had. Where its own snapshot has lost the newest segments of the batches, the boundary
falls with them, whatever the root says: no time is left to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream


def followed(root_ms: int | None, previous_ms: int | None, *, is_ready: bool) -> int | None:
    """The boundary to go by; None: all rows of both parts are the table's. `is_ready`: whether what batches have before
    the root's boundary is routed. Downwards there is nothing to wait for."""
    if root_ms is None or is_ready or (previous_ms is not None and root_ms < previous_ms):
        return root_ms
    return previous_ms


def is_ready(records: Mapping[str, SegmentRecord], waiting: Set[str], boundary_ms: int | None) -> bool:
    """Whether none of the batches' segments that begin before the boundary still waits to be routed."""
    if boundary_ms is None:
        return True
    of_batches = (records[name] for name in waiting & records.keys() if not is_of_stream(records[name]))
    return all(one.start_time_ms is not None and one.start_time_ms >= boundary_ms for one in of_batches)

"""Names of the segment pruners that `routing.segmentPruners` may list."""

from importlib.metadata import entry_points
from typing import Final

SEGMENT_PRUNERS: Final = ("empty", "time", "range", "partition", "bloom")
"""Built in, in the order in which they are told apart: whatever order a table lists them in, all work together."""
ENTRY_POINTS: Final = "merlot.segment_pruners"
"""Group of users' own pruners. Their names hold a dot (`acme.geo`), so that none clashes with a later version's."""


def is_known(name: str) -> bool:
    """Whether this installation has the pruner."""
    return name in SEGMENT_PRUNERS or (is_own(name) and bool(entry_points(group=ENTRY_POINTS, name=name)))


def is_own(name: str) -> bool:
    """Whether the name is of a user's own pruner."""
    return "." in name

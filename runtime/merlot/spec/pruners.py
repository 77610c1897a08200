"""Names of the segment pruners that `routing.segmentPruners` may list."""

from typing import Final

from merlot.entry_points import entry_points_named

SEGMENT_PRUNERS: Final = ("empty", "time", "range", "partition", "bloom")
"""Built-in pruners, in the order in which their effects are counted. All pruners of a table are
applied, in whatever order it lists them."""
ENTRY_POINTS: Final = "merlot.segment_pruners"
"""Entry point group of plug-in pruners. Their names contain a dot (`acme.geo`), so that none clashes with a built-in
pruner of a later version."""


def is_known(name: str) -> bool:
    """Return True if this installation has the pruner."""
    return name in SEGMENT_PRUNERS or (is_own(name) and bool(entry_points_named(ENTRY_POINTS, name)))


def is_own(name: str) -> bool:
    """Return True if the name is of a plug-in pruner."""
    return "." in name

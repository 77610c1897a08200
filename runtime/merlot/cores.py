"""Count the processors that this process may keep busy: its affinity, or its container's quota if that is less.

A container limited to two processors on a machine of 64 sees all of them. Threads for 64 would only take turns, and use
up a period's quota in its first milliseconds.
"""

import math
import os

from merlot import cgroups


def usable() -> int:
    """Return the number of processors, at least one."""
    affine, quota = len(os.sched_getaffinity(0)), cgroups.num_cpus()
    return affine if quota is None else max(1, min(affine, math.ceil(quota)))

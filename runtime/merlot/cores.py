"""Processors that this process may keep busy: its affinity, or less if its container has a quota.

A container limited to two processors on a machine of 64 sees all of them; threads for 64 would only take turns, and use
up the quota of a period in its first milliseconds.
"""

import math
import os

from merlot import cgroups


def usable() -> int:
    """At least one."""
    affine, quota = len(os.sched_getaffinity(0)), cgroups.num_cpus()
    return affine if quota is None else max(1, min(affine, math.ceil(quota)))

"""Processors that this process may keep busy: its affinity, or less if its container has a quota.

A container limited to two processors on a machine of 64 sees all of them; threads for 64 would only take turns, and use
up the quota of a period in its first milliseconds.
"""

import math
import os
from pathlib import Path
from typing import Final

_CGROUP_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""`quota period` in microseconds, or `max period`."""


def usable() -> int:
    """At least one."""
    affine = len(os.sched_getaffinity(0))
    try:
        quota, _, period = _CGROUP_QUOTA.read_text().strip().partition(" ")
    except OSError:
        return affine
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return affine
    return max(1, min(affine, math.ceil(int(quota) / int(period))))

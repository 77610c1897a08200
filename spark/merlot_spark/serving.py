"""Wait until servers have loaded what a job has published.

A publish ends when the controller has written it. Servers load the segments after that, and until then queries do not
see new ones. A query that follows a job has to wait for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from merlot_spark.publish import ControllerClient

FIRST_LOOK_S, LONGEST_LOOK_S = 0.1, 2.0
ONLINE = "ONLINE"


@dataclass(frozen=True, slots=True)
class Served:
    """Outcome of a wait."""

    waiting: tuple[str, ...] = ()
    """Names of segments that no server answers for yet."""
    reason: str = ""
    """Reason why the wait has ended; empty if all segments are served."""


def unserved(statuses: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    """Return the names of those segments `name@crc` that no server has loaded. A segment that has been replaced,
    removed or merged away is no longer waited for. Pure."""
    names = []
    for key in keys:
        name, _, crc = key.rpartition("@")
        status = statuses.get(name)
        is_current = status is not None and str(status["crc"]) == crc and status.get("visible", True)
        if is_current and status is not None and ONLINE not in status["servers"].values():
            names.append(name)
    return names


def wait(
    client: ControllerClient,
    table: str,
    keys: Iterable[str],
    patience_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Served:
    """Ask again and again until every segment is served, patience ends, or no server lives that could serve them."""
    keys = list(keys)
    deadline, look_s = now() + patience_s, FIRST_LOOK_S
    while True:
        waiting = tuple(unserved(client.get(f"/segments/{table}/metadata"), keys))
        if not waiting:
            return Served()
        if not any(instance["role"] == "SERVER" for instance in client.get("/instances")["details"]):
            return Served(waiting, "no server is live")
        if now() + look_s > deadline:
            return Served(waiting, f"not loaded within {patience_s:g} s")
        sleep(look_s)
        look_s = min(2 * look_s, LONGEST_LOOK_S)

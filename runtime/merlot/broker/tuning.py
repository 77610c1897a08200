"""Waits of a broker that no deployment has a reason to change, and that tests shorten (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTuning:
    """Waits of a broker, in seconds."""

    retry_s: float = 1.0
    """Time until state is read again after it could not be."""
    suspect_s: float = 30.0
    """Time for which a server without its ephemeral node stays in the routing, unless a call to it fails."""
    echo_rest_s: float = 1.0
    """Shortest time between two comparisons of the echo, whether or not the first led to a write."""
    echo_look_s: float = 10.0
    """Time between two comparisons of the echo if nothing reports a change."""

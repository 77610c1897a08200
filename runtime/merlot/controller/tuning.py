"""Waits of a controller that no deployment has a reason to change, and that tests shorten (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTuning:
    """Waits of a controller, in seconds."""

    retry_s: float = 1.0
    """Pause after a round that failed, and between attempts at the lease."""

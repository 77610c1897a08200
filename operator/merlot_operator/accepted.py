"""The spec by which a Table is run: the last accepted spec, which its status keeps. Pure.

A refused change has no effect: not on the config, servers, brokers or batches, nor on what a deletion does. A new Table
gets servers and volumes once its spec is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from merlot_operator.kube.kinds import Object

MAX_PARSED = 4096
"""Number of parsed specs that are cached."""


def text_of(spec: Mapping[str, Any]) -> str:
    """Return a spec as the text that the status keeps."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spec_of(table: Object) -> Mapping[str, Any] | None:
    """Return the spec that was accepted last, or None. The caller must not change it."""
    status = table.get("status") or {}
    accepted = _parsed(str(status["accepted"])) if "accepted" in status else None
    # A Table with a revision is served: its status is from before the spec was kept there, or somebody damaged it.
    is_served = accepted is None and "revision" in status
    return table["spec"] if is_served else accepted


def with_accepted_spec(table: Object) -> Object:
    """Return the Table with its accepted spec in place of the declared one; the Table itself if no spec was
    accepted."""
    spec = spec_of(table)
    return table if spec is None or spec is table["spec"] else {**table, "spec": spec}


def with_accepted_specs(tables: Iterable[Object]) -> list[Object]:
    """Return each Table that has an accepted spec, with that spec."""
    return [with_accepted_spec(table) for table in tables if spec_of(table) is not None]


@lru_cache(MAX_PARSED)
def _parsed(text: str) -> Mapping[str, Any] | None:
    """Return the spec; None if the text is no JSON object."""
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return spec if isinstance(spec, dict) else None

"""By which spec a Table is run: the last one that was accepted, which its status keeps. Pure.

A change that is refused alters nothing: not the config, nor servers, brokers, batches, or what a deletion does. A new
Table gets servers and volumes once it is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from merlot_operator.kube.kinds import Object

MOST_KNOWN = 4096
"""Specs that are kept parsed."""


def text_of(spec: Mapping[str, Any]) -> str:
    """A spec as the status keeps it."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spec_of(table: Object) -> Mapping[str, Any] | None:
    """The spec that was accepted last; None if none was. It must not be changed."""
    status = table.get("status") or {}
    if "accepted" in status:
        return _parsed(status["accepted"])
    # Served since before the status kept it.
    spec: Mapping[str, Any] | None = table["spec"] if "revision" in status else None
    return spec


def as_run(table: Object) -> Object:
    """The Table with the spec that it is run by; with its own as long as none was accepted."""
    spec = spec_of(table)
    return table if spec is None or spec is table["spec"] else {**table, "spec": spec}


def all_run(tables: Iterable[Object]) -> list[Object]:
    """Those that had a spec accepted, with it."""
    return [as_run(table) for table in tables if spec_of(table) is not None]


@lru_cache(MOST_KNOWN)
def _parsed(text: str) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = json.loads(text)
    return spec

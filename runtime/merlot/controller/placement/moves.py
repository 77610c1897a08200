"""Steps of a segment's move from one server to another. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.controller.placement.assignment import Servers
from merlot.ids import InstanceId, SegmentKey
from merlot.spec.table import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Input of a decision. `loaded`: keys (`name@crc`) that servers report; None while reports are not read."""

    spec: TableSpec
    servers: Servers
    now_ms: int
    sure_ms: int = 0
    """Time that has surely come; it decides what is too old. 0: nothing is."""
    loaded: Mapping[InstanceId, Set[str]] | None = None
    balance: bool = True
    """False: only repair, and leave uneven loads as they are."""


def step(
    key: SegmentKey, current: Sequence[InstanceId], wanted: Sequence[InstanceId], situation: Situation
) -> tuple[InstanceId, ...]:
    """Return the next servers on the way from `current` to `wanted`. Both hold the segment until every live server of
    `wanted` has it."""
    servers = situation.servers
    staying = [server for server in current if server not in servers.gone and _may_have(situation, server, key)]
    waiting = [server for server in wanted if server in servers.live and not has(situation, server, key)]
    return tuple(sorted({*wanted, *staying} if waiting else set(wanted)))


def has(situation: Situation, server: InstanceId, key: SegmentKey) -> bool:
    """Return whether the server reports this version."""
    return situation.loaded is not None and str(key) in situation.loaded.get(server, frozenset())


def _may_have(situation: Situation, server: InstanceId, key: SegmentKey) -> bool:
    return situation.loaded is None or has(situation, server, key)

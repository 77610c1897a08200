"""Decide which segments to load, retire and drop: a pure function of the desired segments and those that are held.

A version that is no longer desired is *retired*: it is still served, since brokers may hold an older view, and dropped
when its grace period is over. The grace period begins only when its replacement can be queried: the new version is
loaded here, or another server has the segment. So a broken replacement never takes good rows away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from merlot.cluster.records import SegmentRecord
from merlot.server.tuning import DEFAULT_LOADS, LoadTuning


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Failure to load a segment: why, and when to try again (monotonic seconds)."""

    message: str
    attempts: int
    retry_at: float

    @staticmethod
    def after(
        previous: LoadFailure | None, message: str, now: float, tuning: LoadTuning = DEFAULT_LOADS
    ) -> LoadFailure:
        """Return the next failure of the same segment; waits double, up to `longest_retry_s`."""
        attempts = 1 if previous is None else previous.attempts + 1
        wait = min(tuning.first_retry_s * 2 ** min(attempts - 1, 20), tuning.longest_retry_s)
        return LoadFailure(message, attempts, now + wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Segments that a server has of a table, by keys `name@crc`. `retired` has the monotonic time at which each was
    retired; its keys are part of `loaded`."""

    loaded: Collection[str] = ()
    retired: Mapping[str, float] = field(default_factory=dict)
    loading: Collection[str] = ()
    failures: Mapping[str, LoadFailure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Actions to carry out now, and the time of the next check if nothing happens before."""

    load: tuple[SegmentRecord, ...] = ()
    retire: tuple[str, ...] = ()
    revive: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    """Failures of segments that are no longer desired."""
    wake_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Records assigned to this server, by their keys; `irreplaceable` are keys that no other server has, or by which an
    upsert table is answered until their replacement can be queried."""

    records: Mapping[str, SegmentRecord] = field(default_factory=dict)
    irreplaceable: Collection[str] = ()


def decide(desired: Desired, holdings: Holdings, now: float, grace_s: float) -> Actions:
    """Return the actions that bring the segments held closer to those desired. Idempotent: after they are carried out,
    nothing is left to do until `wake_at`."""
    wanted = desired.records
    waiting = [key for key in holdings.failures if key in wanted and holdings.failures[key].retry_at > now]
    busy = {*holdings.loaded, *holdings.loading, *waiting}
    unwanted = [key for key in holdings.loaded if key not in wanted]
    successors = {record.name: key for key, record in wanted.items()} if unwanted else {}
    replaced = (key for key in unwanted if _is_replaced(key, successors, holdings.loaded))
    retirable = [key for key in replaced if key not in desired.irreplaceable]
    drop = [key for key in retirable if now - holdings.retired.get(key, now) >= grace_s]
    wake_times = [holdings.failures[key].retry_at for key in waiting]
    wake_times += [since + grace_s for key, since in holdings.retired.items() if key in retirable and key not in drop]
    retire = [key for key in retirable if key not in holdings.retired]
    wake_times += [now + grace_s for _ in retire[:1]]
    return Actions(
        load=tuple(record for key, record in wanted.items() if key not in busy),
        retire=tuple(retire) if grace_s > 0 else (),
        revive=tuple(key for key in holdings.retired if key in wanted or key not in retirable),
        drop=tuple(drop) if grace_s > 0 else tuple(retirable),
        forget=tuple(key for key in holdings.failures if key not in wanted),
        wake_at=min(wake_times, default=None),
    )


def _is_replaced(key: str, successors: Mapping[str, str], loaded: Collection[str]) -> bool:
    successor = successors.get(key.rpartition("@")[0])
    return successor is None or successor in loaded

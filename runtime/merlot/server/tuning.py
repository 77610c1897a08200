"""Waits and sizes of a server that no deployment has a reason to change, and that tests lower (ADR 27).

Each part of a server is given its section; the values here are those that were measured. What depends on the machine
or the cluster is a setting (`merlot.server.settings`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTuning:
    """Waits of loading segments, in seconds."""

    first_retry_s: float = 2.0
    """Wait after the first failure of a segment; each further wait is twice as long, up to `longest_retry_s`."""
    longest_retry_s: float = 120.0
    turn_s: float = 0.1
    """Time for which a thread loads segments of one table; other tables have segments to load as well."""


DEFAULT_LOADS: Final = LoadTuning()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTuning:
    """Sizes of segment files on the local disk, in bytes."""

    spare_bytes: int = 16 << 20
    """Bytes left free on the disk, so that a full disk is noticed before it is hit."""
    small_bytes: int = 1 << 20
    """Size up to which a file is read and verified in one piece, and mapped when a query first reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTuning:
    """Waits of a table data manager, in seconds."""

    retry_s: float = 1.0
    """Wait before the metastore is asked again after it failed."""
    recheck_s: float = 5.0
    """Time between two readings of other servers' reports, while a segment waits for them."""
    linger_s: float = 1.0
    """Time for which a segment that has left the report is still served: brokers that chose before ask within it."""
    look_s: float = 1.0
    """Time between two passes while segments come in, for segments whose time for a retry has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTuning:
    """Waits of consumed partitions."""

    retry_s: float = 1.0
    """Seconds to wait after the first failure to read; each further wait is twice as long, up to `longest_retry_s`."""
    longest_retry_s: float = 30.0
    catch_up_s: float = 10.0
    """Seconds after which a replica that begins is queried although it has not caught up, if no other replica can be.
    Otherwise it is queried once it has what the stream had when it began."""
    checkpoint_rest_ms: int = 5_000
    """Milliseconds between two checkpoints of an upsert partition, and before a retry. Of the states captured
    meanwhile, the last is kept."""
    tidy_s: float = 0.01
    """Longest time, in seconds, for which an upsert partition prunes its index between two polls. A small index is
    pruned within it."""

    def wait_s(self, num_failures: int) -> float:
        """Return the seconds to wait after a failure that `num_failures` others came before."""
        return min(self.longest_retry_s, self.retry_s * 2.0 ** min(num_failures, 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTuning:
    """Waits and sizes of all parts of a server."""

    loads: LoadTuning = field(default_factory=LoadTuning)
    files: FileTuning = field(default_factory=FileTuning)
    tables: TableTuning = field(default_factory=TableTuning)
    streams: StreamTuning = field(default_factory=StreamTuning)

"""Settings of a server that a deployment may tune. Everything else is a constant where it is used (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from merlot import cores
from merlot.query.context import DOCS_PER_THREAD
from merlot.segment.immutable import MAX_OPENED

CORES: Final = cores.usable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Threads, bounds and shares of the memory."""

    query_threads: int = CORES
    """Short queries that run at a time, and threads among which their segments are shared."""
    max_waiting: int = 1_000
    """Queries that wait for a thread; brokers take further queries to another replica."""
    inline_docs: int = 65_536
    """Docs that a query may read, once indexes have narrowed them down, and still be answered on the event loop,
    without a thread; other queries wait meanwhile. 0: only queries that read no doc."""
    docs_per_thread: int = DOCS_PER_THREAD
    """Docs to read that are worth one more thread of a query."""
    load_threads: int = 4
    """Segments that are fetched and verified at a time."""
    open_segments: int = MAX_OPENED
    """Small segments that the whole process keeps open."""
    decoded_bytes: int | None = None
    """Bytes of decoded columns in memory; None: a quarter of the memory."""
    coalesced_bytes: int | None = None
    """Bytes of coalesced small segments in memory; None: an eighth of the memory, 512 MiB at most."""
    consuming_bytes: int | None = None
    """Bytes of rows of streams that are not sealed yet; None: a quarter of the memory."""

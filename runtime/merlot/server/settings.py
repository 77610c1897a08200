"""What a deployment may tune of a server. Everything else is a constant where it is used (ADR 27)."""

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
    """Short queries that run at a time, and threads that their segments are shared among."""
    max_waiting: int = 1_000
    """Queries that wait for a thread; brokers take those beyond to another replica."""
    inline_docs: int = 65_536
    """Docs that a query may look at, once indexes have said where, and be answered on the event loop, without a thread:
    others wait meanwhile. 0: only queries that look at none."""
    docs_per_thread: int = DOCS_PER_THREAD
    """Docs to look at that are worth one more thread of a query."""
    load_threads: int = 4
    """Segments that are fetched and checked at a time."""
    open_segments: int = MAX_OPENED
    """Small segments that stay open, of the whole process."""
    decoded_bytes: int | None = None
    """Columns decoded from files, in memory; None: a quarter of it."""
    joined_bytes: int | None = None
    """Small segments joined in memory; None: an eighth of it, 512 MiB at most."""
    consuming_bytes: int | None = None
    """Rows of streams that are not sealed yet, in memory; None: a quarter of it."""

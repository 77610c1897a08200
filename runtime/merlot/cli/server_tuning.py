"""Options that tune a server, the same in `merlot serve` and in a process of its own (ADR 27)."""

from __future__ import annotations

from typing import Annotated

from merlot.cli.tuning import option, size_option
from merlot.server.settings import ServerSettings

DEFAULTS = ServerSettings()


def of_server(
    *,
    query_threads: Annotated[
        int,
        option(
            "--query-threads",
            "Short queries that a server runs at a time, and threads for their segments.",
            default="the cores it may use",
        ),
    ] = DEFAULTS.query_threads,
    max_waiting: Annotated[
        int, option("--max-waiting", "Queries that may wait for a thread; others go to another replica.", least=0)
    ] = DEFAULTS.max_waiting,
    inline_docs: Annotated[
        int, option("--inline-docs", "Docs up to which a query is answered without a thread.", least=0)
    ] = DEFAULTS.inline_docs,
    docs_per_thread: Annotated[
        int, option("--docs-per-thread", "Docs to read per thread of a query.")
    ] = DEFAULTS.docs_per_thread,
    load_threads: Annotated[
        int, option("--load-threads", "Segments to fetch and check at a time.")
    ] = DEFAULTS.load_threads,
    open_segments: Annotated[
        int, option("--open-segments", "Segments of up to 1 MB that stay open.", least=0)
    ] = DEFAULTS.open_segments,
    decoded_cache: Annotated[
        int | None,
        size_option(
            "--decoded-cache", "Memory for columns decoded from files, such as 512m.", default="a quarter of it"
        ),
    ] = None,
    joined_cache: Annotated[
        int | None,
        size_option(
            "--joined-cache", "Memory for small segments that are joined.", default="an eighth of it, 512m at most"
        ),
    ] = None,
    consuming_memory: Annotated[
        int | None,
        size_option(
            "--consuming-memory", "Memory for rows of streams that are not sealed yet.", default="a quarter of it"
        ),
    ] = None,
) -> ServerSettings:
    """Return the server's settings from the options of a command."""
    return ServerSettings(
        query_threads=query_threads,
        max_waiting=max_waiting,
        inline_docs=inline_docs,
        docs_per_thread=docs_per_thread,
        load_threads=load_threads,
        open_segments=open_segments,
        decoded_bytes=decoded_cache,
        coalesced_bytes=joined_cache,
        consuming_bytes=consuming_memory,
    )

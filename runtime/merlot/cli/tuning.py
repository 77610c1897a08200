"""Options that tune a role, the same in `merlot serve` and in a process of its own (ADR 27)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from merlot.broker.settings import BrokerSettings
from merlot.cli.sizes import parse_size
from merlot.server.settings import ServerSettings

SERVER, BROKER = ServerSettings(), BrokerSettings()
PANEL = "Tuning"


def _variable(flag: str) -> str:
    """Return the environment variable of an option, by which pods are configured."""
    return f"MERLOT_{flag.removeprefix('--').replace('-', '_').upper()}"


def _option(flag: str, text: str, *, least: int = 1, default: str | bool = True) -> Any:
    """Return an option with a number. default: text to show if the value says too little, such as a value that depends
    on the machine."""
    return typer.Option(flag, envvar=_variable(flag), min=least, help=text, show_default=default, rich_help_panel=PANEL)


def _size(flag: str, text: str, *, default: str) -> Any:
    return typer.Option(
        flag,
        envvar=_variable(flag),
        parser=parse_size,
        metavar="SIZE",
        help=text,
        show_default=default,
        rich_help_panel=PANEL,
    )


def of_server(
    *,
    query_threads: Annotated[
        int,
        _option(
            "--query-threads",
            "Short queries that a server runs at a time, and threads for their segments.",
            default="the cores it may use",
        ),
    ] = SERVER.query_threads,
    max_waiting: Annotated[
        int, _option("--max-waiting", "Queries that may wait for a thread; others go to another replica.", least=0)
    ] = SERVER.max_waiting,
    inline_docs: Annotated[
        int, _option("--inline-docs", "Docs up to which a query is answered without a thread.", least=0)
    ] = SERVER.inline_docs,
    docs_per_thread: Annotated[
        int, _option("--docs-per-thread", "Docs to read per thread of a query.")
    ] = SERVER.docs_per_thread,
    load_threads: Annotated[
        int, _option("--load-threads", "Segments to fetch and check at a time.")
    ] = SERVER.load_threads,
    open_segments: Annotated[
        int, _option("--open-segments", "Segments of up to 1 MB that stay open.", least=0)
    ] = SERVER.open_segments,
    decoded_cache: Annotated[
        int | None,
        _size("--decoded-cache", "Memory for columns decoded from files, such as 512m.", default="a quarter of it"),
    ] = None,
    joined_cache: Annotated[
        int | None,
        _size("--joined-cache", "Memory for small segments that are joined.", default="an eighth of it, 512m at most"),
    ] = None,
    consuming_memory: Annotated[
        int | None,
        _size("--consuming-memory", "Memory for rows of streams that are not sealed yet.", default="a quarter of it"),
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


def of_broker(
    *,
    inline_values: Annotated[
        int,
        _option("--inline-values", "Values of partial answers up to which a broker reduces without a thread.", least=0),
    ] = BROKER.inline_values,
    plan_cache: Annotated[
        int | None,
        _size(
            "--plan-cache",
            "Texts and encoded plans that a broker remembers; they take twenty times that in memory.",
            default="8 MB",
        ),
    ] = None,
    stage_queries: Annotated[
        int, _option("--stage-queries", "Queries of several stages (joins, windows) that a broker runs at a time.")
    ] = BROKER.stage_queries,
    stage_memory: Annotated[
        int | None,
        _size(
            "--stage-memory",
            "Memory of such a query for its leaves, and as much again for its engine.",
            default="an eighth of it, 512 MB at most",
        ),
    ] = None,
    stage_spill: Annotated[
        int | None, _size("--stage-spill", "Disk that such a query may take once its memory is full.", default="2 GB")
    ] = None,
    query_log: Annotated[
        int,
        _option("--query-log", "Queries that a broker remembers for `merlot advise`; 0 for none.", least=0),
    ] = BROKER.query_log_forms,
    query_log_samples: Annotated[
        int,
        _option("--query-log-samples", "Texts kept of each such query; with 0, no constant is kept.", least=0),
    ] = BROKER.query_log_samples,
) -> BrokerSettings:
    """Return the broker's settings from the options of a command."""
    return BrokerSettings(
        inline_values=inline_values,
        plan_cache_bytes=plan_cache or BROKER.plan_cache_bytes,
        stage_queries=stage_queries,
        stage_memory_bytes=stage_memory,
        stage_spill_bytes=stage_spill or BROKER.stage_spill_bytes,
        query_log_forms=query_log,
        query_log_samples=query_log_samples,
    )


def takes(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of each maker to a command. The command gets each maker's result as the keyword argument of that
    name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        more = {name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()}
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in signature.parameters.values()]
        options = [parameter for parameter in own if parameter.name not in makers]
        options += [parameter for parameters in more.values() for parameter in parameters.values()]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {name: make(**{option: given.pop(option) for option in more[name]}) for name, make in makers.items()}
            command(**given, **made)

        run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return decorate

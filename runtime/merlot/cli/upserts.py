"""`merlot upsert backfill`: have old rows of an upsert table read, as one command that shows how far it is."""

import time
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, Client, Url, path_of
from merlot.cli.errors import CommandError, UsageError

app = typer.Typer(no_args_is_help=True, help="Backfill an upsert table.")

POLL_S = 1.0
STREAM = "stream"
DONE, LOAD = "DONE", "LOAD"


@app.callback()
def _group() -> None:
    """Backfill an upsert table."""


@app.command("backfill")
def backfill(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="PARTITION:OFFSET to read again from, once for each partition; or `stream`: rows are produced anew.",
            show_default=False,
        ),
    ] = None,
    loaded: Annotated[bool, typer.Option("--loaded", help="Everything has been produced into the stream.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it early: nothing more is loaded.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show how far it is.")] = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Go on though servers may lack memory for all keys.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Stay until it is done.")] = True,
    url: Url = DEFAULT_URL,
) -> None:
    """Read rows of keys that may have expired, without a second row of any key.

    Keys do not expire meanwhile, and every stored row is decided anew. It goes on
    by itself when this command is stopped.
    """
    if [bool(since), loaded, cancel, status].count(True) != 1:
        raise UsageError("say one of --from, --loaded, --cancel and --status")
    client, path = Client(url), path_of("tables", table, "backfill")
    if status:
        _show(client.get(path))
        return
    if since:
        answer = client.post(path, b"", "application/json", _query(since, ignore_memory=ignore_memory))
    elif loaded:
        answer = client.post(f"{path}/loaded", b"", "application/json")
    else:
        client.delete(path)
        answer = client.get(path)
    _show(answer)
    if wait:
        _follow(client, path, answer, stays_for_rows=since != [STREAM])


def _query(since: list[str], *, ignore_memory: bool) -> dict[str, str]:
    query = {"ignoreMemory": "true"} if ignore_memory else {}
    if since == [STREAM]:
        return query
    for one in since:
        partition, _, offset = one.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise UsageError(f"--from is PARTITION:OFFSET, or {STREAM} alone, not {one}")
    return {**query, "offsets": ",".join(since)}


def _follow(client: Client, path: str, shown: dict[str, Any], *, stays_for_rows: bool) -> None:
    """Until it is done; of rows that are produced anew, until it is time to produce them."""
    while shown["step"] != DONE and (stays_for_rows or shown["step"] != LOAD):
        time.sleep(POLL_S)
        told = client.get(path)
        if told["name"] != shown["name"]:
            raise CommandError(f"another backfill has begun: {told['name']}")
        if (told["step"], told["message"]) != (shown["step"], shown["message"]):
            _show(told)
        shown = told


def _show(told: dict[str, Any]) -> None:
    text = f"{told['name']} {told['step']}{' (cancelled)' if told['isCancelled'] else ''}"
    output.say(f"{text}: waits for {told['message']}" if told["message"] else text)

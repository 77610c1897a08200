"""`merlot upsert`: show the keys of an upsert table, and run a backfill with its progress."""

import time
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import CommandError, UsageError

app = typer.Typer(no_args_is_help=True, help="Show the keys of an upsert table, or backfill it.")

POLL_S = 1.0
STREAM = "stream"
DONE, LOAD = "DONE", "LOAD"


@app.callback()
def _group() -> None:
    """Show the keys of an upsert table, or backfill it."""


@app.command("keys")
def keys(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    how: Annotated[
        output.ListFormat, typer.Option("--output", "-o", help="Format of the list; wide has more columns.")
    ] = output.ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the keys of each replica of each partition.

    VALID counts stored rows that are the newest of their key, INVALID those that
    were replaced; wide: rows of another partition than the table declares
    (MISPLACED), and the segment or object that a replica waits for.
    """
    answer = NodeClient(url).get(path_of("tables", table, "upsert"))
    rows = [
        {"partition": partition["partition"], "server": server, **_of_replica(replica)}
        for partition in answer["partitions"]
        for server, replica in partition["replicas"].items()
    ]
    if answer["waitsFor"]:
        output.warn(f"table/{answer['table']} waits: {answer['waitsFor']}")
    if not rows and how is output.ListFormat.TABLE:
        output.warn(f"no keys: table/{answer['table']} has no partitions yet")
        return
    columns = {"PARTITION": "partition", "STATE": "state", "SERVER": "server"}
    columns |= {"KEYS": "keys", "VALID": "valid", "INVALID": "invalid", "INDEX": "index"}
    wide = {"MISPLACED": "misplaced", "WAITS FOR": "waitsFor", "ERROR": "error"}
    output.show_list(rows, columns, wide, how)


def _of_replica(replica: dict[str, Any]) -> dict[str, Any]:
    names = ("state", "keys", "valid", "invalid", "misplaced", "waitsFor", "error")
    return {**{name: replica.get(name, "") for name in names}, "index": output.size(replica.get("memoryBytes"))}


@app.command("backfill")
def backfill(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="PARTITION:OFFSET to read again from, once per partition; or `stream`: a producer sends rows again.",
            show_default=False,
        ),
    ] = None,
    loaded: Annotated[bool, typer.Option("--loaded", help="All rows have been produced into the stream.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the backfill early: nothing more is loaded.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show its progress.")] = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Continue even if servers may lack memory for all keys.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is done.")] = True,
    url: Url = DEFAULT_URL,
) -> None:
    """Read old rows again, also of keys that have expired, without a second row of any key.

    Keys do not expire meanwhile, and every stored row is decided anew. The backfill
    continues when you stop this command.
    """
    if [bool(since), loaded, cancel, status].count(True) != 1:
        raise UsageError("say one of --from, --loaded, --cancel and --status")
    client, path = NodeClient(url), path_of("tables", table, "backfill")
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
    for text in since:
        partition, _, offset = text.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise UsageError(f"--from is PARTITION:OFFSET, or {STREAM} alone, not {text}")
    return {**query, "offsets": ",".join(since)}


def _follow(client: NodeClient, path: str, shown: dict[str, Any], *, stays_for_rows: bool) -> None:
    """Show steps until the backfill is done, or, if rows are produced anew, until it is time to produce them."""
    while shown["step"] != DONE and (stays_for_rows or shown["step"] != LOAD):
        time.sleep(POLL_S)
        status = client.get(path)
        if status["name"] != shown["name"]:
            raise CommandError(f"another backfill has begun: {status['name']}")
        if (status["step"], status["message"]) != (shown["step"], shown["message"]):
            _show(status)
        shown = status


def _show(status: dict[str, Any]) -> None:
    text = f"{status['name']} {status['step']}{' (cancelled)' if status['isCancelled'] else ''}"
    output.say(f"{text}: waits for {status['message']}" if status["message"] else text)

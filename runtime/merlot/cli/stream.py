"""`merlot stream` and `merlot get streams`: show, pause, resume, commit and re-read the stream of a table."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import UsageError
from merlot.cli.output import ListFormat

app = typer.Typer(no_args_is_help=True, help="Pause, resume or commit the stream of a table, or read it again.")

Table = Annotated[str, typer.Argument(help="Name of the table.", show_default=False)]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="Only this partition; may be repeated.", show_default=False),
]


@app.command("pause")
def pause(table: Table, url: Url = DEFAULT_URL) -> None:
    """Stop consuming. Rows read so far are committed first, and queries continue."""
    NodeClient(url).post(path_of("tables", table, "pauseConsumption"), b"", "application/json")
    output.say(f"stream of table/{table} is paused: its consuming segments are committed")


@app.command("resume")
def resume(table: Table, url: Url = DEFAULT_URL) -> None:
    """Continue consuming where it was paused."""
    NodeClient(url).post(path_of("tables", table, "resumeConsumption"), b"", "application/json")
    output.say(f"stream of table/{table} continues")


@app.command("commit")
def commit(table: Table, partition: Partitions = None, url: Url = DEFAULT_URL) -> None:
    """End the consuming segments now, and begin the next ones."""
    query = {"partitions": ",".join(map(str, partition))} if partition else None
    answer = NodeClient(url).post(path_of("tables", table, "forceCommit"), b"", "application/json", query)
    output.say(f"{output.plural(len(answer['segments']), 'segment')} of table/{table} will be committed")


@app.command("consume-from")
def consume_from(
    table: Table,
    offset: Annotated[int, typer.Option(help="Offset to continue from.", show_default=False)],
    partition: Partitions = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Continue from another offset. Rows that were read before stay; rows from the offset on are read again.

    To have rows only once, delete the segments that hold them first.
    """
    if not partition:
        raise UsageError("say which partitions: --partition N, once for each")
    query = {"offsets": ",".join(f"{number}:{offset}" for number in partition)}
    answer = NodeClient(url).post(path_of("tables", table, "consumeFrom"), b"", "application/json", query)
    count = output.plural(len(answer["segments"]), "partition")
    output.say(f"{count} of table/{table} will continue from offset {offset}")


def list_streams(
    table: Annotated[str | None, typer.Argument(help="Only this table.", show_default=False)] = None,
    how: Annotated[
        ListFormat,
        typer.Option("--output", "-o", help="Format of the list; wide has more columns, name is for scripts."),
    ] = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the consumed partitions: how far each replica is, and how far behind.

    LAG counts messages, of files bytes; AGE is that of the newest message read
    while others wait behind it. Of upsert tables it shows the keys, how many
    stored rows are the newest of theirs, the memory that the index takes, and
    the age of the snapshot of valid docs that a restart would begin with;
    wide: rows that were not stored (DROPPED), and rows that producers wrote into
    another partition than the table declares (MISPLACED).
    """
    client = NodeClient(url)
    names = [table] if table else client.get("/tables")["tables"]
    streams = [client.get(path_of("tables", name, "stream")) for name in names]
    rows = [row for stream in streams for row in _rows(stream)]
    if not rows and how is ListFormat.TABLE:
        output.warn("no streams: no table has spec.ingestion.stream")
        return
    for stream in streams:
        if stream["error"] and how in (ListFormat.TABLE, ListFormat.WIDE):
            output.warn(f"stream of table/{stream['table']}: {stream['error']}")
    columns = {"TABLE": "table", "PARTITION": "partition", "STATE": "state", "SERVER": "server", "OFFSET": "offset"}
    columns |= {"LAG": "lag", "AGE": "age", "ROWS/S": "rowsPerS", "ROWS": "rows"}
    wide: dict[str, str] = {}
    if any(row["keys"] is not None for row in rows):
        columns |= {"KEYS": "keys", "VALID": "valid", "INVALID": "invalid", "EXPIRED": "expired", "INDEX": "index"}
        columns["SNAPSHOT"] = "snapshot"
        wide = {"DROPPED": "dropped", "MISPLACED": "misplaced"}
    wide |= {"SEGMENT": "segment", "STATUS": "status", "START": "startOffset", "LATEST": "latest", "MEMORY": "memory"}
    wide |= {"BAD": "numBad", "LOST": "lostRanges", "ERROR": "error"}
    output.show_list(rows, columns, wide, how)


def _keys(upsert: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the key statistics of a replica of an upsert table; empty values for other tables."""
    names = ("keys", "valid", "invalid", "expired", "dropped", "misplaced")
    if upsert is None:
        return dict.fromkeys((*names, "index", "snapshot"))
    index = output.size(upsert["memoryBytes"]) if upsert["isBuilt"] else "being built"
    return {**{name: upsert.get(name, 0) for name in names}, "index": index, "snapshot": _snapshot(upsert)}


def _snapshot(upsert: Mapping[str, Any]) -> str:
    """Return the age of the checkpoint and the number of segments missing in it; empty if there are no snapshots."""
    if not upsert.get("snapshot"):
        return ""
    age_ms, missing = upsert.get("snapshotAgeMs"), upsert.get("snapshotsMissing", 0)
    age = "none" if age_ms is None else f"{age_ms / 1000:.0f}s"
    return f"{age}, {missing} missing" if missing else age


def _rows(stream: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each replica."""
    return [
        {
            **replica,
            "table": stream["table"],
            "name": f"{stream['table']}/{partition['partition']}",
            "partition": partition["partition"],
            "server": server,
            "state": "PAUSED" if partition["status"] == "PAUSED" else replica["state"],
            "segment": partition["segment"],
            "status": partition["status"],
            "startOffset": partition["startOffset"],
            "age": f"{replica.get('lagMs', 0) / 1000:.1f}s",
            "memory": output.size(replica.get("memoryBytes")),
            **_keys(replica.get("upsert")),
            "lostRanges": ", ".join(f"{first}..{last}" for first, last in partition["lost"]),
        }
        for partition in stream["partitions"]
        for server, replica in partition["replicas"].items()
    ]

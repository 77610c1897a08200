"""`merlot get`: list tables, segments and other objects."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from merlot.cli import output, rollups, stream
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.output import ListFormat

Output = Annotated[
    ListFormat, typer.Option("--output", "-o", help="Format of the list; wide has more columns, name is for scripts.")
]

app = typer.Typer(no_args_is_help=True, help="List tables, segments, streams, merges, upsert configs or instances.")
app.command("rollups")(rollups.list_rollups)
app.command("upserts")(rollups.list_upserts)
app.command("streams")(stream.list_streams)


@app.command("tables")
def tables(
    name: Annotated[str | None, typer.Argument(help="Only this table.", show_default=False)] = None,
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the tables, with their segments, rows and size."""
    client = NodeClient(url)
    names = [name] if name else client.get("/tables")["tables"]
    has_facts = name is not None or how is not ListFormat.NAME
    rows = [_table(client, table, is_wide=how in (ListFormat.WIDE, ListFormat.JSON)) for table in names if has_facts]
    if not rows and not names and how is ListFormat.TABLE:
        output.warn("no tables: create one with `merlot apply -f FILE`")
        return
    columns = {"NAME": "name", "SEGMENTS": "segments", "ROWS": "rows", "SIZE": "size"}
    wide = {"COLUMNS": "columns", "TIME COLUMN": "timeColumn", "REPLICATION": "replication", "REVISION": "revision"}
    wide |= {"IN SYNC": "inSync", "INDEXES": "indexes", "UNPARTITIONED": "unpartitioned", "STREAM FROM": "streamFrom"}
    output.show_list(rows or [{"name": table} for table in names], columns, wide, how)


def _table(client: NodeClient, name: str, *, is_wide: bool) -> dict[str, Any]:
    facts = client.get(path_of("tables", name, "metadata"))
    row = {
        "name": name,
        "segments": facts["numSegments"],
        "rows": facts["numRows"],
        "sizeBytes": facts["diskSizeInBytes"],
        "size": output.size(facts["diskSizeInBytes"]),
    }
    if is_wide:
        record = client.get(path_of("tables", name, "manifest"))
        spec = record["manifest"]["spec"]
        status = client.get("/status")["tables"].get(name, {})
        row |= {
            "columns": len(spec["schema"]["fields"]),
            "timeColumn": spec.get("timeColumn"),
            "replication": spec.get("replication", 1),
            "revision": record["revision"],
            "inSync": _in_sync(status, record["revision"]),
            "indexes": _indexes(status),
            "unpartitioned": facts["numSegmentsUnpartitioned"] if "partitioning" in spec else None,
            "streamFrom": output.instant(facts["timeBoundaryMs"]),
        }
    return row


def _indexes(table: Mapping[str, Any]) -> str | None:
    """Return `12/40`: how many segments were given missing indexes, of all that lacked some, counted on each server."""
    indexes = table.get("indexes")
    return None if indexes is None else f"{indexes['built']}/{indexes['wanted']}"


def _in_sync(table: Mapping[str, Any], revision: int) -> str:
    """Return `3/4`: how many of the live processes that serve the table run this revision."""
    pods = [
        *table.get("brokers", {}).values(),
        *(pod for pod in table.get("servers", {}).values() if pod["live"]),
    ]
    return f"{sum(pod['revision'] == revision for pod in pods)}/{len(pods)}"


@app.command("segments")
def segments(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the segments of a table, by time, with the servers that have loaded them.

    STATE tells what queries see of it: all of it (Visible), nothing yet, since
    it is to replace others (Pending), nothing any more, since others did
    (Replaced), or that its replacement was taken back (Reverted).
    """
    statuses = NodeClient(url).get(path_of("segments", table, "metadata"))
    if not statuses and how is ListFormat.TABLE:
        output.warn(f"no segments: table {table} is empty")
        return
    rows = [_segment(status) for status in statuses.values()]
    rows.sort(key=lambda row: (row.get("startTimeMs") or 0, row["name"]))
    columns = {"NAME": "name", "ROWS": "totalDocs", "SIZE": "size", "START": "start", "END": "end", "LOADED": "loaded"}
    columns |= {"STATE": "visibility"}
    wide = {"CRC": "version", "SERVERS": "where", "DEFAULTED": "defaulted", "WIDENED": "widened"}
    wide |= {"PARTITIONS": "partitioned", "URL": "url"}
    output.show_list(rows, columns, wide, how)


def _segment(status: Mapping[str, Any]) -> dict[str, Any]:
    servers: Mapping[str, str] = status.get("servers", {})
    shown = {
        "size": output.size(status.get("sizeBytes")),
        "start": output.instant(status.get("startTimeMs")),
        "end": output.instant(status.get("endTimeMs")),
        "loaded": f"{sum(state == 'ONLINE' for state in servers.values())}/{len(servers)}",
        "version": str(status.get("crc", "")),
        "where": ", ".join(f"{server} {state}" for server, state in servers.items()),
        "defaulted": ", ".join(status.get("defaultedColumns", ())),
        "widened": ", ".join(status.get("widenedColumns", ())),
        "partitioned": ", ".join(_partitions(status)),
    }
    return {**status, **shown}


def _partitions(status: Mapping[str, Any]) -> list[str]:
    """Return `3 of 64 by Murmur(user_id)` for each column."""
    held = [
        f"{' '.join(map(str, facts['partitions']))} of {facts['numPartitions']} by {facts['functionName']}({column})"
        for column, facts in status.get("partitions", {}).items()
        if column
    ]
    return [*held, *(f"none by {column}" for column in status.get("unpartitionedColumns", ()))]


@app.command("instances")
def instances(how: Output = ListFormat.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the processes of the cluster that are alive."""
    rows = [_instance(instance) for instance in NodeClient(url).get("/instances")["details"]]
    columns = {"NAME": "instanceName", "ROLE": "roleName", "HTTP": "http", "SINCE": "since"}
    wide = {"QUERIES": "queries", "TAGS": "tagNames", "ZONE": "zone", "VERSION": "version"}
    output.show_list(rows, columns, wide, how)


def _instance(record: Mapping[str, Any]) -> dict[str, Any]:
    host, http_port, query_port = record["hostName"], int(record["port"]), record["queryPort"]
    shown = {
        "roleName": record["role"].lower(),
        "http": f"{'https://' if record.get('tls') else ''}{host}:{http_port}" if http_port > 0 else "",
        "queries": f"{host}:{query_port}" if query_port > 0 else "",
        "tagNames": ", ".join(record["tags"]),
        "since": output.instant(record["startedMs"]),
    }
    return {**record, **shown}

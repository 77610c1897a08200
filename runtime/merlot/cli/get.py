"""`merlot get`: what is there."""

from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, Client, Url, segment_of
from merlot.cli.output import ListFormat

Output = Annotated[
    ListFormat,
    typer.Option("--output", "-o", help="Form of the list: table, wide (more columns), json or name."),
]

app = typer.Typer(no_args_is_help=True, help="List tables, segments or instances.")


@app.command("tables")
def tables(
    name: Annotated[str | None, typer.Argument(help="Only this table.", show_default=False)] = None,
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the tables, with their segments, rows and size."""
    client = Client(url)
    names = [name] if name else client.get("/tables")["tables"]
    if how is ListFormat.NAME and name is None:
        found = [{"name": one} for one in names]
    else:
        found = [_table(client, one) for one in names]
    columns = {"NAME": "name", "SEGMENTS": "segments", "ROWS": "rows", "SIZE": "size"}
    output.show_list(found, columns, {"COLUMNS": "columns", "TIME COLUMN": "timeColumn"}, how)


def _table(client: Client, name: str) -> dict[str, Any]:
    facts = client.get(f"/tables{segment_of(name)}/metadata")
    num_bytes = facts.get("diskSizeInBytes")
    return {
        "name": name,
        "segments": facts.get("numSegments"),
        "rows": facts.get("numRows"),
        "sizeBytes": num_bytes,
        "size": output.size(num_bytes),
    }


@app.command("segments")
def segments(
    table: Annotated[str, typer.Argument(help="Name of the table.")],
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the segments of a table, with their state on the servers."""
    raise NotImplementedError


@app.command("instances")
def instances(how: Output = ListFormat.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the processes of the cluster."""
    raise NotImplementedError

"""`merlot delete`: delete tables, segments, merges and upsert configs, after asking."""

import sys
from typing import Annotated

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import CommandError, UsageError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

app = typer.Typer(no_args_is_help=True, help="Delete a table, a segment, a merge or an upsert config.")


@app.command("table")
def table(
    name: Annotated[str, typer.Argument(help="Name of the table.")], yes: Yes = False, url: Url = DEFAULT_URL
) -> None:
    """Delete a table with all its segments."""
    _confirm(f"Delete table {name} with all its segments?", yes)
    NodeClient(url).delete(path_of("tables", name))
    output.say(f"table/{name} deleted")


@app.command("segment")
def segment(
    table: Annotated[str, typer.Argument(help="Name of the table.")],
    name: Annotated[str, typer.Argument(help="Name of the segment.")],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete one segment of a table."""
    _confirm(f"Delete segment {name} of table {table}?", yes)
    NodeClient(url).delete(path_of("segments", table, name))
    output.say(f"segment/{name} deleted")


@app.command("rollup")
def rollup(
    name: Annotated[str, typer.Argument(help="Name of the MergeRollupTask.")], yes: Yes = False, url: Url = DEFAULT_URL
) -> None:
    """Delete a MergeRollupTask. Its running tasks are reverted; merged segments stay."""
    _confirm(f"Delete rollup {name}? What it has merged stays merged.", yes)
    NodeClient(url).delete(path_of("rollups", name))
    output.say(f"rollup/{name} deleted")


@app.command("upsert")
def upsert(
    name: Annotated[str, typer.Argument(help="Name of the UpsertConfig.")], yes: Yes = False, url: Url = DEFAULT_URL
) -> None:
    """Delete an UpsertConfig."""
    _confirm(f"Delete upsert config {name}?", yes)
    NodeClient(url).delete(path_of("upserts", name))
    output.say(f"upsert/{name} deleted")


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("cannot ask for confirmation without a terminal: pass --yes")
    if not typer.confirm(question):
        raise CommandError("nothing was deleted")

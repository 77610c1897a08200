"""`merlot recover` and `merlot undelete`: bring back a table that the metastore has lost, or segments from the
trash.
"""

from typing import Annotated

import orjson
import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import UsageError

Table = Annotated[str, typer.Argument(help="Name of the table.", show_default=False)]


def recover(
    table: Table,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without what cannot be brought back.")
    ] = False,
    from_footers: Annotated[
        bool,
        typer.Option("--from-footers", help="Read all segment files of a table that has no segments."),
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Have a table answer again that the metastore has lost.

    Segments come back as the catalog beside their files has them. A table that
    consumes a stream reads on where its last committed segments end.
    """
    if accept_loss and from_footers:
        raise UsageError("--accept-loss and --from-footers exclude each other")
    flags = {"acceptLoss": accept_loss, "fromFooters": from_footers}
    query = {name: "true" for name, is_set in flags.items() if is_set}
    answer = NodeClient(url).post(path_of("tables", table, "recover"), b"", "application/json", query or None)
    missing = f", {output.plural(len(answer['missing']), 'segment')} without a file" if answer["missing"] else ""
    output.say(f"table/{table} recovered: {output.plural(len(answer['recovered']), 'segment')} brought back{missing}")
    for partition in answer.get("partitions", ()):
        sealed = output.plural(partition["segments"], "segment")
        output.say(f"partition/{partition['partition']} has {sealed}, reads on from offset {partition['offset']}")


def undelete(
    table: Table,
    segments: Annotated[
        list[str] | None, typer.Argument(help="Segments to bring back; without any, the trash is listed.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Bring removed segments back from the trash, which keeps their files for seven days.

    Segments that others have replaced are in the trash too. Inputs of a merge whose
    output is in the table are refused; of what somebody else replaced, delete the
    replacement, or rows are there twice.
    """
    client = NodeClient(url)
    if not segments:
        entries = client.get(path_of("tables", table, "trash"))
        rows = [[entry["segment"], output.instant(entry["deletedMs"])] for entry in entries]
        output.show_table(["SEGMENT", "REMOVED"], rows)
        return
    path = path_of("tables", table, "undelete")
    answer = client.post(path, orjson.dumps(segments), "application/json")
    for name in answer["restored"]:
        output.say(f"segment/{name} restored")

"""`merlot recover` and `merlot undelete`: bring back tables that the metastore has lost, or segments from the trash."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import orjson
import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import ApiError, CommandError, UsageError
from merlot.cli.output import plural

COMPARED_S: Final = 60.0
"""Longest time to wait until a controller has compared a table that was declared again with its files."""
_LOOK_S: Final = 0.2


def recover(
    table: Annotated[str | None, typer.Argument(help="Name of the table.", show_default=False)] = None,
    all_tables: Annotated[
        bool, typer.Option("--all", help="Recover every lost table; declare again those that are unknown.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --all: list the tables, and change nothing.")
    ] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Print the manifests of unknown tables, for kubectl apply -f -.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without what cannot be brought back.")
    ] = False,
    from_footers: Annotated[
        bool,
        typer.Option("--from-footers", help="Read all segment files of a table that has no segments."),
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Have tables answer again that the metastore has lost.

    Segments come back as the catalog beside their files has them. A table that
    consumes a stream reads on where its last committed segments end. After the
    metastore has lost everything, --all declares tables by the copies of their
    manifests in the deep store.
    """
    _check_usage(table, is_all=all_tables or manifests, dry_run=dry_run)
    if accept_loss and from_footers:
        raise UsageError("--accept-loss and --from-footers exclude each other")
    client = NodeClient(url)
    flags = {"acceptLoss": accept_loss, "fromFooters": from_footers}
    query = {name: "true" for name, is_set in flags.items() if is_set}
    if manifests:
        _print_manifests(client.get("/undeclared"))
    elif table is None:
        _recover_all(client, query, dry_run=dry_run)
    else:
        _recover(client, table, query)


def _check_usage(table: str | None, *, is_all: bool, dry_run: bool) -> None:
    if (table is None) != is_all:
        raise UsageError("name a table, or write --all")
    if dry_run and not is_all:
        raise UsageError("--dry-run belongs to --all")


def _print_manifests(undeclared: Sequence[Mapping[str, Any]]) -> None:
    import yaml

    documents = [manifest for entry in undeclared for manifest in entry["manifests"]]
    output.say(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True).rstrip("\n"))
    output.warn(f"{plural(len(undeclared), 'table')} that this cluster does not know")


def _recover_all(client: NodeClient, query: Mapping[str, str], *, dry_run: bool) -> None:
    undeclared = client.get("/undeclared")
    tables = client.get("/status")["tables"]
    lost = [name for name, status in tables.items() if status["metastoreLost"]]
    if dry_run:
        _show(undeclared, lost)
        return
    failed = [name for name in lost if not _tried(client, name, query)]
    for entry in undeclared:
        if entry["problem"]:
            output.warn(f"table/{entry['table']}: {entry['problem']}")
            failed.append(entry["table"])
            continue
        _declare(client, entry["manifests"])
        if entry["segments"] and not _tried(client, entry["table"], query):
            failed.append(entry["table"])
    if failed:
        raise CommandError(f"not recovered: {', '.join(failed)}; see above, and try each with `merlot recover TABLE`")
    if not undeclared and not lost:
        output.say("nothing is lost")


def _show(undeclared: Sequence[Mapping[str, Any]], lost: Sequence[str]) -> None:
    rows = [
        [
            entry["table"],
            "damaged" if entry["problem"] else "unknown",
            entry["segments"],
            entry["rows"],
            output.instant(entry["copiedMs"]),
        ]
        for entry in undeclared
    ]
    rows += [[name, "lost", "", "", ""] for name in lost]
    output.show_table(["TABLE", "STATE", "SEGMENTS", "ROWS", "COPIED"], rows, right=(2, 3))


def _declare(client: NodeClient, manifests: Sequence[Mapping[str, Any]]) -> None:
    text = b"\n---\n".join(orjson.dumps(manifest) for manifest in manifests)  # JSON is YAML
    for applied in client.post("/apply", text, "application/yaml"):
        output.say(f"{applied['kind'].lower()}/{applied['name']} {applied['result']}")


def _tried(client: NodeClient, table: str, query: Mapping[str, str]) -> bool:
    """Return whether a table is recovered; say why it is not. Others must not wait for it."""
    try:
        _recover(client, table, query)
    except ApiError as error:
        output.warn(f"table/{table}: {error}")
        return False
    return True


def _recover(client: NodeClient, table: str, query: Mapping[str, str]) -> None:
    answer = _compared(client, path_of("tables", table, "recover"), query)
    missing = f", {plural(len(answer['missing']), 'segment')} without a file" if answer["missing"] else ""
    output.say(f"table/{table} recovered: {plural(len(answer['recovered']), 'segment')} brought back{missing}")
    for partition in answer.get("partitions", ()):
        sealed = plural(partition["segments"], "segment")
        output.say(f"partition/{partition['partition']} has {sealed}, reads on from offset {partition['offset']}")


def _compared(client: NodeClient, path: str, query: Mapping[str, str]) -> Any:
    """Return the answer, once a controller has compared the table with its files."""
    ends = time.monotonic() + COMPARED_S
    while True:
        try:
            return client.post(path, b"", "application/json", query or None)
        except ApiError as error:
            if error.status != 503 or time.monotonic() > ends:
                raise
        time.sleep(_LOOK_S)


def undelete(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
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

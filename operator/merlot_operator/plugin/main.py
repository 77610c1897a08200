"""`kubectl merlot …`: kubectl finds the program `kubectl-merlot` on the PATH."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from merlot.cli import output
from merlot.cli import stream as streams_of
from merlot.cli.client import NodeClient
from merlot.cli.errors import CommandError
from merlot.cli.output import ListFormat, RowFormat
from merlot.cli.query import QUERY_TIMEOUT_S, Session, show_rows
from merlot_operator.desired.demand import own_pool
from merlot_operator.kube.kinds import COMPONENT, POOL, labels_of, namespace_of
from merlot_operator.manifests.parts import BROKER, CONTROLLER, PORTS
from merlot_operator.plugin.changes import Cost, changes, refusals, summary
from merlot_operator.plugin.kubectl import Kubectl, lines
from merlot_operator.plugin.restricted import refused_by_operator
from merlot_operator.plugin.tree import table_tree

app = typer.Typer(no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})

stream = typer.Typer(no_args_is_help=True, help="Pause, resume or commit the stream of a table, or read it again.")
app.add_typer(stream, name="stream")

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the Table.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace; the kubeconfig's if left out.")]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig; the current one if left out.")]
SEGMENT_COLUMNS = {"segment": "STRING", "rows": "LONG", "bytes": "LONG", "crc": "STRING", "servers": "STRING"}

Output = Annotated[RowFormat, typer.Option("--output", "-o", help="Format of the answer.")]


@app.command()
def status(table: TableName, namespace: Namespace = "", context: Context = "") -> None:
    """Show a table as a tree: conditions, pods, segments per server, batches."""
    kubectl = Kubectl(namespace, context)
    body = kubectl.get("tables.merlot.dev", table)
    pool = _pool(body, table)
    pods = [pod for pod in kubectl.managed("pods") if labels_of(pod).get(POOL, pool) == pool]
    try:
        answer = _controller(kubectl, "/status")["tables"].get(table)
    except CommandError:
        answer = None
    sys.stdout.write(lines(table_tree(body, pods, answer).lines()))


@app.command()
def query(
    table: TableName,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Query.")],
    namespace: Namespace = "",
    context: Context = "",
    how: Output = RowFormat.TABLE,
) -> None:
    """Query a broker of the table's cluster, without setting up a port-forward."""
    kubectl = Kubectl(namespace, context)
    kubectl.get("tables.merlot.dev", table)
    with kubectl.forwarded(f"service/merlot-{BROKER}", PORTS[BROKER]["http"]) as url:
        Session(client=NodeClient(url, QUERY_TIMEOUT_S), how=how).run(sql)


@app.command()
def segments(table: TableName, namespace: Namespace = "", context: Context = "", how: Output = RowFormat.TABLE) -> None:
    """List a table's segments as the controller knows them."""
    answer = _controller(Kubectl(namespace, context), f"/segments/{table}/metadata")
    rows = [
        [name, segment.get("totalDocs", 0), segment.get("sizeBytes", 0), str(segment.get("crc", "")), _servers(segment)]
        for name, segment in sorted(answer.items())
    ]
    schema = {"columnNames": list(SEGMENT_COLUMNS), "columnDataTypes": list(SEGMENT_COLUMNS.values())}
    show_rows({"dataSchema": schema, "rows": rows}, how)


@app.command()
def streams(
    table: TableName,
    namespace: Namespace = "",
    context: Context = "",
    how: Annotated[ListFormat, typer.Option("--output", "-o", help="Format of the list.")] = ListFormat.TABLE,
) -> None:
    """List the partitions that a table consumes: how far each replica is, and how far behind."""
    with _controller_of(namespace, context) as url:
        streams_of.list_streams(table, how, url)


@stream.command("pause")
def pause(table: TableName, namespace: Namespace = "", context: Context = "") -> None:
    """Stop consuming. Rows read so far are committed first, and queries continue."""
    with _controller_of(namespace, context) as url:
        streams_of.pause(table, url)


@stream.command("resume")
def resume(table: TableName, namespace: Namespace = "", context: Context = "") -> None:
    """Continue consuming where it was paused."""
    with _controller_of(namespace, context) as url:
        streams_of.resume(table, url)


@stream.command("commit")
def commit(
    table: TableName, partition: streams_of.Partitions = None, namespace: Namespace = "", context: Context = ""
) -> None:
    """End the consuming segments now, and begin the next ones."""
    with _controller_of(namespace, context) as url:
        streams_of.commit(table, partition, url)


@stream.command("consume-from")
def consume_from(
    table: TableName,
    offset: Annotated[int, typer.Option(help="Offset to continue from.", show_default=False)],
    partition: streams_of.Partitions = None,
    namespace: Namespace = "",
    context: Context = "",
) -> None:
    """Continue from another offset. Rows that were read before stay; rows from the offset on are read again."""
    with _controller_of(namespace, context) as url:
        streams_of.consume_from(table, offset, partition, url)


@app.command()
def logs(
    table: TableName,
    namespace: Namespace = "",
    context: Context = "",
    role: Annotated[str, typer.Option("--role", help="Role: controller, broker, server, minion or batch.")] = "server",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new lines.")] = False,
    tail: Annotated[int, typer.Option("--tail", min=-1, help="Lines per pod; -1 for all.")] = 50,
) -> None:
    """Show logs of the pods that serve a table, each line with its pod's name."""
    kubectl = Kubectl(namespace, context)
    body = kubectl.get("tables.merlot.dev", table)
    selector = f"{COMPONENT}={role}" + (f",{POOL}={_pool(body, table)}" if role == "server" else "")
    arguments = ["logs", "-l", selector, "--prefix", f"--tail={tail}", "--max-log-requests=50"]
    raise typer.Exit(kubectl.passed_through(*arguments, *(["--follow"] if follow else [])))


def _pool(body: dict[str, Any], table: str) -> str:
    """Return the name of the pool that serves a Table: the status names a tenant's pool."""
    return str(body.get("status", {}).get("pool") or own_pool(table))


@app.command()
def plan(
    file: Annotated[Path, typer.Option("--file", "-f", help="Manifest of a Table; - for standard input.")],
    namespace: Namespace = "",
    context: Context = "",
) -> None:
    """Show what applying a manifest would do: hot, reload or restart. Changes nothing; exits with 2 if refused."""
    kubectl = Kubectl(namespace, context)
    refused = [_plan_table(kubectl, document) for document in _tables(file)]
    raise typer.Exit(2 if any(refused) else 0)


def _tables(file: Path) -> list[dict[str, Any]]:
    """Return the Tables of a manifest; raise CommandError if it is none."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {file}: {' '.join(str(error).split())}") from error
    if not all(isinstance(document, dict) for document in documents):
        raise CommandError(f"{file} is no manifest: write objects, such as a Table, divided by ---")
    tables = [document for document in documents if document.get("kind") == "Table"]
    if not all(isinstance(table.get("metadata"), dict) and table["metadata"].get("name") for table in tables):
        raise CommandError(f"a Table in {file} has no metadata.name")
    return tables


def _plan_table(kubectl: Kubectl, document: dict[str, Any]) -> bool:
    """Show a table's plan; return True if it would be refused."""
    name, after = document["metadata"]["name"], _dry_run(kubectl, document)
    try:
        before = replace(kubectl, namespace=namespace_of(after)).get("tables.merlot.dev", name)
    except CommandError as error:
        if "not found" not in str(error):
            raise
        before = None
    refused, note = _refused_by_operator(kubectl, after)
    differences = changes(before, after, refused) if before is not None else refusals(refused)
    is_refused = any(change.cost is Cost.REFUSED for change in differences)
    outcome = "new" if before is None and not is_refused else summary(differences)
    sys.stdout.write(f"table/{name}: {outcome}\n" + lines([*note, *(change.line() for change in differences)]))
    return is_refused


def _refused_by_operator(kubectl: Kubectl, table: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the refused fields with reasons, and a note if that cannot be found out and may matter."""
    try:
        return refused_by_operator(kubectl, table), []
    except CommandError as error:
        spec = table["spec"]
        ingestion = spec.get("ingestion") or {}
        is_harmless = not (spec.get("deepStore") or ingestion.get("batch") or ingestion.get("stream"))
        text = "whether its Secret and its places are allowed is not known, condition Accepted will tell:"
        return {}, [] if is_harmless else [f"     note  {text} {error}"]


def _dry_run(kubectl: Kubectl, document: dict[str, Any]) -> dict[str, Any]:
    """Return the object as the API server would store it. Raise CommandError if it refuses the object."""
    answer = kubectl.run("apply", "--dry-run=server", "-o", "json", "-f", "-", text=yaml.safe_dump(document))
    return dict(json.loads(answer))


def _controller(kubectl: Kubectl, path: str) -> Any:
    with kubectl.forwarded(f"service/merlot-{CONTROLLER}", PORTS[CONTROLLER]["http"]) as url:
        return NodeClient(url).get(path)


@contextmanager
def _controller_of(namespace: str, context: str) -> Iterator[str]:
    """Yield the URL of a namespace's controller."""
    with Kubectl(namespace, context).forwarded(f"service/merlot-{CONTROLLER}", PORTS[CONTROLLER]["http"]) as url:
        yield url


def _servers(segment: dict[str, Any]) -> str:
    return ", ".join(sorted(segment.get("servers", ())))


def main() -> None:
    """Run the program `kubectl-merlot`."""
    try:
        app()
    except CommandError as error:
        output.show_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

"""A year of real flights, end to end: Spark builds 366 segments, a node serves them, pinotdb asks five questions.

Every step finds what an earlier run finished, so that a second run takes seconds and one that was interrupted goes on:
the Parquet file appears whole, segments are published at once, and each record says which rows it was built from.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demos import quickstart_data as data
from examples.demos import quickstart_queries as queries
from examples.demos.local_node import HOST, LocalNode, free_port
from rich.console import Console
from rich.text import Text

import merlot
from merlot.errors import ConflictError, InvalidInputError, MerlotError, UnavailableError
from merlot.programs import run_group
from merlot.segment.layout import FORMAT_VERSION
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot_spark.progress import StatusLine
from merlot_spark.publish import ControllerClient

_LOG = logging.getLogger(__name__)

SOURCE_KEY = "merlot.source"
"""Key in a record's custom map: fingerprint of the rows and of the table that it was built from."""
SERVED_WITHIN_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """Choices of the user."""

    folder: Path
    port: int
    serve: bool
    examples: Path


class Steps:
    """Printer of steps, each with its duration and the time since the start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Announce a step; what the block appends to the list is printed when it ends."""
        self.console.print(Text.assemble((f"{self.elapsed():6.1f} s  ", "dim"), title))
        began = time.monotonic()
        notes: list[str] = []
        yield notes
        notes.append(f"{time.monotonic() - began:.1f} s")
        self.console.print(Text("          " + ", ".join(notes), style="green"), soft_wrap=True)

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the quickstart; return the exit code."""
    console = Console(highlight=False)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(_settings(arguments), Steps(console))
    except KeyboardInterrupt:
        console.print("\nStopped. Run it again: it goes on where it was.")
        return 130
    except MerlotError as error:
        Console(stderr=True, highlight=False).print(Text(f"error: {error}", style="red"))
        return 1
    except OSError as error:
        Console(stderr=True, highlight=False).print(Text(f"error: {_plain(error)}", style="red"))
        return 1
    return 0


def run(settings: QuickstartSettings, steps: Steps) -> None:
    """Run all steps, in order."""
    manifest_text, table = _read_manifest(settings.examples / "table.yaml")
    questions = queries.read_questions(settings.examples / "queries.sql")
    with steps.step(f"Taking {data.NUM_FLIGHTS:,} flights from {data.PACKAGE}") as notes:
        source = data.flights_file(settings.folder / "source")
        notes.append(f"{source}, {source.stat().st_size / 1e6:.1f} MB")
    fingerprint = data.fingerprint(source, json.dumps(manifest.dump(table)), str(FORMAT_VERSION), merlot.__version__)
    with _started_node(settings, steps) as node:
        controller = ControllerClient(node.url)
        with steps.step(f"Applying {settings.examples / 'table.yaml'}"):
            controller.apply(manifest_text)
        if _is_published(controller, table, fingerprint):
            with steps.step("Nothing to build: these flights are published already"):
                pass
        else:
            _build(settings, steps, table, node.url, fingerprint)
        with steps.step("Waiting until every segment is served") as notes:
            notes.append(f"{_wait_until_served(node.port, table):,} rows answer queries")
        for question in questions:
            queries.show(steps.console, question, queries.ask(HOST, node.port, question.sql))
        steps.console.print(f"\nDone in {steps.elapsed():.1f} s.")
        if settings.serve:
            _serve(steps.console, node.url)


def _settings(arguments: Sequence[str] | None) -> QuickstartSettings:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demos.quickstart", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=True, help="keep serving after the answers"
    )
    parser.add_argument("--data", type=Path, default=Path("build/quickstart"), help="folder of all files (%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="HTTP port; another one if it is taken (%(default)s)")
    chosen = parser.parse_args(arguments)
    return QuickstartSettings(folder=chosen.data, port=chosen.port, serve=chosen.serve, examples=_examples())


def _examples() -> Path:
    """Return the example's folder, relative to the working directory if it is below it."""
    folder = Path(__file__).resolve().parents[1] / "flights"
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _read_manifest(path: Path) -> tuple[str, Table]:
    text = path.read_text()
    (table,) = manifest.load_tables(text)
    return text, table


@contextmanager
def _started_node(settings: QuickstartSettings, steps: Steps) -> Iterator[LocalNode]:
    port = free_port(settings.port)
    node = LocalNode(settings.folder / "node", port)
    try:
        with steps.step("Starting a node: controller, broker, server and minion in this process") as notes:
            if port != settings.port:
                notes.append(f"port {settings.port} is taken: using a free one")
            _start(node)
            notes.append(node.url)
        yield node
    finally:
        _stop(node)


def _stop(node: LocalNode) -> None:
    """Stop the node. If it does not leave in order, only log that: it must not hide why the node has to leave."""
    try:
        node.stop()
    except MerlotError as error:
        _LOG.warning("node did not leave in order cause=%s", error)


def _start(node: LocalNode) -> None:
    try:
        node.start()
    except (ConflictError, UnavailableError) as error:
        hint = "if another quickstart runs, stop it or give --data another folder"
        raise UnavailableError(f"{error}; {hint}") from error


def _is_published(controller: ControllerClient, table: Table, fingerprint: str) -> bool:
    statuses = controller.get(f"/segments/{table.raw_name}/metadata")
    sources = {status.get("customMap", {}).get(SOURCE_KEY) for status in statuses.values()}
    return len(statuses) == data.NUM_DAYS and sources == {fingerprint}


def _build(settings: QuickstartSettings, steps: Steps, table: Table, url: str, fingerprint: str) -> None:
    """Run the Spark job in a process group of its own, so that Ctrl-C ends all of it, whatever it is doing."""
    report_file = settings.folder / "report.json"
    report_file.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "merlot_spark.build_segments", "--short", "--json"),
        *("--table", str(settings.examples / "table.yaml")),
        *("--source", str(data.flights_file(settings.folder / "source")), "--format", "parquet"),
        *("--deep-store", str((settings.folder / "node" / "deepstore").resolve()), "--controller", url),
        *("--report", str(report_file), "--custom", f"{SOURCE_KEY}={fingerprint}", "--replace-rows"),
    ]
    with steps.step(f"Building one segment per UTC day of {table.spec.time_column}: a PySpark job") as notes:
        code = run_group(command)
        report = _read_report(report_file, code)
        if code != 0:
            raise UnavailableError("the Spark job failed; its own error is above")
        if report["segments"] != data.NUM_DAYS or report["rowsOut"] != data.NUM_FLIGHTS:
            raise InvalidInputError(f"unexpected flights segments={report['segments']} rows={report['rowsOut']}")
        seconds = report["seconds"]
        notes.append(f"{report['rowsOut']:,} rows, {report['segments']} segments, {report['bytes'] / 1e6:.1f} MB")
        notes.append(f"Spark started in {seconds['session']:.1f} s, built in {seconds['build']:.1f} s")
        notes.append(f"published in {seconds['publish']:.1f} s")


def _read_report(path: Path, code: int) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"error": f"exit code {code}"}
    return report


def _wait_until_served(port: int, table: Table) -> int:
    """Wait until COUNT(*) sees all rows; return their number. Raise UnavailableError after SERVED_WITHIN_S."""
    line = StatusLine()
    deadline = time.monotonic() + SERVED_WITHIN_S
    rows, problem = 0, ""
    try:
        while time.monotonic() < deadline:
            try:
                answer = queries.ask(HOST, port, f"SELECT COUNT(*) FROM {table.raw_name}", repeats=0)
                rows, problem = int(answer.rows[0][0]) if answer.rows else 0, ""
            except UnavailableError as error:
                rows, problem = 0, f": {error}"
            if rows == data.NUM_FLIGHTS:
                return rows
            line.show(f"  {rows:,} of {data.NUM_FLIGHTS:,} rows served")
            time.sleep(POLL_S)
    finally:
        line.clear()
    raise UnavailableError(f"{rows} of {data.NUM_FLIGHTS} rows served after {SERVED_WITHIN_S:.0f} s{problem}")


def _serve(console: Console, url: str) -> None:
    sql = "SELECT origin, COUNT(*) FROM flights GROUP BY origin"
    body = json.dumps({"sql": sql})
    commands = (
        f"curl -s {url}/query/sql -H 'Content-Type: application/json' -d '{body}'",
        f'{Path(sys.executable).parent}/merlot query --url {url} "{sql}"',
    )
    console.print(f"\nServing at {url} until Ctrl-C. In another terminal:\n")
    for command in commands:
        console.print(Text(f"  {command}"), soft_wrap=True)
    console.print()
    while True:
        signal.pause()


def _plain(error: OSError) -> str:
    place = f" file={error.filename}" if error.filename else ""
    return f"{error.strerror or error}{place}"


if __name__ == "__main__":
    raise SystemExit(main())

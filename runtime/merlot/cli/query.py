"""`merlot query`: run one statement, a script from standard input, or a conversation."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

import typer

from merlot.cli import output, statements
from merlot.cli.client import DEFAULT_URL, NodeClient, Url
from merlot.cli.errors import ApiError, CommandError, UsageError
from merlot.cli.output import RowFormat, plural

QUERY_TIMEOUT_S = 600.0
_NUMERIC_TYPES = frozenset({"INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL"})


class QueryError(CommandError):
    """Raised if the broker answers with exceptions."""


@dataclass(kw_only=True)
class Session:
    """State between two statements: the node, the options and the output format."""

    client: NodeClient
    how: RowFormat = RowFormat.TABLE
    options: dict[str, str] = field(default_factory=dict)
    shows_timing: bool = False

    def run(self, statement: str) -> None:
        """Run one statement and show its answer; a `SET` holds for the next statements. Raise CommandError."""
        option = statements.session_option(statement)
        if option is not None:
            self.options[option[0]] = option[1]
            return
        started = time.perf_counter()
        answer = ask(self.client, statement, self.options)
        elapsed_ms = (time.perf_counter() - started) * 1000
        table = answer.get("resultTable")
        # A failed query has no rows; a header alone would look like an empty answer.
        is_shown = table is not None and bool(table.get("rows") or not answer.get("exceptions"))
        if table is not None and is_shown:
            show_rows(table, self.how)
        for warning in answer.get("queryWarnings") or ():
            output.warn(f"warning: {warning}")
        _raise_exceptions(answer, shown=is_shown)
        if self.shows_timing:
            output.warn(summary(answer, elapsed_ms))


def query(
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]", help="Query; if left out, read from standard input or a prompt.", show_default=False
        ),
    ] = None,
    how: Annotated[
        RowFormat,
        typer.Option(
            "--output", "-o", help="Format of the answer; a table too wide for the terminal becomes vertical."
        ),
    ] = RowFormat.TABLE,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="Query option, such as timeoutMs=500; may be repeated.",
            show_default=False,
        ),
    ] = None,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing",
            help="Show how long it took and what was read; on by default at the prompt.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Query in SQL.

    Without SQL it is a conversation: end a statement with ; and leave with \\q.
    If something is piped in, that is run as a script. SET timeoutMs=500; holds
    for the statements after it.

    [bold]Examples[/bold]

      merlot query "SELECT carrier, count(*) FROM flights GROUP BY carrier"

      merlot query -o csv < report.sql > report.csv

      merlot query
    """
    client = NodeClient(url, QUERY_TIMEOUT_S)
    session = Session(client=client, how=how, options=parse_options(option or []))
    if sql is None and sys.stdin.isatty():
        from merlot.cli.conversation import converse

        session.shows_timing = timing is not False
        raise typer.Exit(converse(session))
    session.shows_timing = (
        timing if timing is not None else how in (RowFormat.TABLE, RowFormat.VERTICAL) and sys.stdout.isatty()
    )
    run_script(session, sys.stdin.read() if sql is None or sql == "-" else sql)


def run_script(session: Session, text: str) -> None:
    """Run the statements of a text; the last one needs no semicolon. Raise CommandError at the first that fails."""
    complete, rest = statements.split(text)
    scripts = complete if statements.is_blank(rest) else [*complete, rest.strip()]
    if not scripts:
        raise UsageError('no SQL given: pass it as an argument, as in `merlot query "SELECT 1"`, or pipe it in')
    for statement in scripts:
        session.run(statement)


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """Return `key=value` texts as a mapping; raise UsageError."""
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"not an option: {pair!r}; write --option timeoutMs=500")
        options[key.strip()] = value.strip()
    return options


def ask(client: NodeClient, sql: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the broker's answer, in Pinot's format; raise CommandError if there is none."""
    body: dict[str, Any] = {"sql": sql}
    if options:
        body["queryOptions"] = ";".join(f"{key}={value}" for key, value in options.items())
    try:
        answer = client.post_json("/query/sql", body)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        # The node is a controller, which passes queries to a broker.
        answer = client.post_json("/sql", body)
    if not isinstance(answer, dict):
        raise CommandError(f"{client.url} answers, but not as merlot does: check --url")
    return answer


def show_rows(table: Mapping[str, Any], how: RowFormat) -> None:
    """Print a result table."""
    names, types = table["dataSchema"]["columnNames"], table["dataSchema"]["columnDataTypes"]
    match how:
        case RowFormat.CSV:
            output.show_csv(names, table["rows"])
        case RowFormat.JSON:
            output.show_objects(names, table["rows"])
        case RowFormat.TABLE | RowFormat.VERTICAL:
            rows = [["NULL" if value is None else value for value in row] for row in table["rows"]]
            if how is RowFormat.VERTICAL or output.is_too_wide(names, rows):
                output.show_vertical(names, rows)
                return
            numbers = [place for place, name in enumerate(types) if name in _NUMERIC_TYPES]
            output.show_table(names, rows, right=numbers)


def summary(answer: Mapping[str, Any], elapsed_ms: float) -> str:
    """Return one line with the number of rows, the time, and how much was read."""
    rows = len((answer.get("resultTable") or {}).get("rows", ()))
    parts = [f"{plural(rows, 'row')} in {elapsed_ms:,.1f} ms"]
    if answer.get("totalDocs"):
        parts.append(f"{answer.get('numDocsScanned', 0):,} of {plural(answer['totalDocs'], 'doc')} scanned")
    if answer.get("numSegmentsQueried"):
        processed, queried = answer.get("numSegmentsProcessed", 0), answer["numSegmentsQueried"]
        parts.append(f"{processed:,} of {plural(queried, 'segment')}")
    return f"({'; '.join(parts)})"


def _described(exception: Mapping[str, Any]) -> str:
    """Return the message of an exception, with its code at the end of the first line: an excerpt of the query may
    follow."""
    first, *excerpt = str(exception.get("message", "")).split("\n")
    return "\n".join([f"{first} (error {exception.get('errorCode')})", *excerpt])


def _raise_exceptions(answer: Mapping[str, Any], *, shown: bool) -> None:
    """Raise QueryError if the answer has exceptions, or too few servers responded: it is not complete."""
    exceptions = [_described(exception) for exception in answer.get("exceptions") or ()]
    queried, responded = answer.get("numServersQueried", 0), answer.get("numServersResponded", 0)
    if not exceptions and responded < queried:
        exceptions = [f"only {responded} of {queried} servers answered: try again"]
    if not exceptions:
        return
    if shown:
        output.warn("warning: the rows above are not the whole answer")
    first, *others = exceptions
    raise QueryError(first, others)

"""Conversation of `merlot query`: lines until a semicolon, history between sessions, a few backslash commands."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from merlot.cli import completion, output, statements
from merlot.cli.client import path_of
from merlot.cli.errors import CommandError
from merlot.cli.output import RowFormat
from merlot.cli.query import Session

HELP = r"""  SELECT …;         ask; a statement ends with a semicolon and may have many lines
  SET key = value;  query option for the statements after it
  \d                tables
  \d NAME           columns of a table
  \o FORM           form of the answers: table, vertical, csv or json
  \timing           say how long queries take, or no longer
  \q                leave (Ctrl-D too); Ctrl-C drops what is typed; Tab completes names"""
HISTORY_LENGTH = 2_000


def converse(session: Session) -> int:
    """Read and answer statements until the end; return the exit code."""
    output.say(f"merlot at {session.client.url}. \\? for help, \\q to leave.")
    with _line_editing(session):
        pending = ""
        while True:
            try:
                line = input("   ...> " if pending else "merlot> ")
            except EOFError:
                output.say()
                return 0
            except KeyboardInterrupt:
                output.say()
                pending = ""
                continue
            if not pending and line.lstrip().startswith("\\"):
                if _command(session, line.split()):
                    return 0
                continue
            pending = _answer_complete(session, f"{pending}{line}\n")


def _answer_complete(session: Session, text: str) -> str:
    """Run the complete statements; return the incomplete rest."""
    complete, rest = statements.split(text)
    try:
        for statement in complete:
            session.run(statement)
    except CommandError as error:
        output.show_error(error)
        return ""
    except KeyboardInterrupt:
        output.warn("interrupted")
        return ""
    return rest if rest.strip() else ""


def _command(session: Session, words: list[str]) -> bool:
    """Run a backslash command; return True if it ends the conversation."""
    try:
        match words:
            case ["\\q" | "\\quit"]:
                return True
            case ["\\?" | "\\h" | "\\help"]:
                output.say(HELP)
            case ["\\timing"]:
                session.shows_timing = not session.shows_timing
                output.say(f"timing is {'on' if session.shows_timing else 'off'}")
            case ["\\o", form] if form in RowFormat.__members__.values():
                session.how = RowFormat(form)
            case ["\\d"]:
                for name in session.client.get("/tables")["tables"]:
                    output.say(name)
            case ["\\d", name]:
                _show_columns(session, name)
            case _:
                output.warn(f"no such command: {' '.join(words)}; \\? lists them")
    except CommandError as error:
        output.show_error(error)
    return False


def _show_columns(session: Session, table: str) -> None:
    schema = session.client.get(path_of("tables", table, "schema"))
    rows = []
    for key, role in (
        ("dimensionFieldSpecs", "dimension"),
        ("metricFieldSpecs", "metric"),
        ("dateTimeFieldSpecs", "dateTime"),
    ):
        for field in schema.get(key, ()):
            is_list = field.get("singleValueField") is False
            rows.append([field["name"], field["dataType"] + ("[]" if is_list else ""), role])
    output.show_table(["column", "type", "role"], rows)


def history_file() -> Path:
    """Return the path of the history, below XDG_STATE_HOME or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "merlot" / "query_history"


@contextmanager
def _line_editing(session: Session) -> Iterator[None]:
    """Enable history and Tab completion if readline is installed. If the history cannot be written, it is lost."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_file()
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LENGTH)
    completion.install(completion.Completer(session.client))
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)

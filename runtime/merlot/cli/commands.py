"""Names of the subcommands, and the help text of `merlot` itself.

`merlot --help` prints this without importing a command: typer and the commands take longer to load than Python does to
start. A test compares the lines with the commands' own help.
"""

USAGE = """\
Usage: merlot [--version] COMMAND [OPTIONS] [ARGS]...

Merlot: real-time analytics in SQL, over Apache Pinot's API.

A first look:
  merlot serve                                  in one terminal
  merlot apply -f examples/flights/table.yaml   in another
  merlot get tables
  merlot query "SELECT count(*) FROM flights"

Commands that talk to a node take --url, or MERLOT_URL from the environment;
for https:// also --ca, --cert and --key (MERLOT_CA, MERLOT_CERT, MERLOT_KEY).
They log in with `merlot --user NAME` or `merlot --token-file FILE`, or with MERLOT_TOKEN,
MERLOT_TOKEN_FILE or MERLOT_USER.
They exit with 0 on success, with 1 on failure, and with 2 if called wrongly.
`merlot COMMAND --help` explains a command; --install-completion lets the shell complete names.
"""

ROLES = {
    "serve": "Run every role in one process over a local folder.",
    "controller": "Run a controller: assigns segments, applies retention, serves the tables' API.",
    "broker": "Run a broker: answers queries.",
    "server": "Run a server: holds segments.",
    "minion": "Run a minion: executes tasks, such as merges.",
}
"""Roles. Each is a module of `merlot.cli` with a function of its name, imported only to run it."""

COMMANDS = {
    "apply": "Create or change tables, merge tasks and upsert configs from manifests.",
    "access": "Check an access document, hash a password, or import Pinot's principals.",
    "import": "Turn Pinot's table config and schema into manifests.",
    "get": "List tables, segments, streams, merges, upsert configs or instances.",
    "query": "Query in SQL.",
    "advise": "Show which indexes, sort order and star-trees would make a table's queries faster.",
    "rebalance": "Even out how many segments the servers of a table hold, while queries run.",
    "drain": "Have brokers send queries elsewhere, until the process restarts or `merlot undrain` undoes it.",
    "undrain": "Undo a drain.",
    "backfill": "Replace a window of time by the rows of a source.",
    "recover": "Have tables answer again that the metastore has lost.",
    "undelete": "Bring removed segments back from the trash, which keeps their files for seven days.",
    "segment": "Inspect or verify segment files (.mseg), or annotate published segments.",
    "stream": "Pause, resume or commit the stream of a table, or read it again.",
    "rollup": "Merge tasks: run one now.",
    "upsert": "Show the keys of an upsert table, or backfill it.",
    "delete": "Delete a table, a segment, a merge or an upsert config.",
    "version": "Show the version.",
}


def help_text() -> str:
    """Return the help text of `merlot`."""
    commands = {"serve": ROLES["serve"], **COMMANDS}
    roles = {name: text for name, text in ROLES.items() if name != "serve"}
    return f"{USAGE}\nCommands:\n{_lines(commands)}\nRoles as separate processes:\n{_lines(roles)}"


def _lines(commands: dict[str, str]) -> str:
    return "".join(f"  {name:<11} {text}\n" for name, text in commands.items())

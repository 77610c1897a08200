"""Tab completion in a conversation: keywords, functions, and the names of tables and columns."""

from collections.abc import Callable
from functools import cache

from merlot.cli.client import NodeClient, path_of
from merlot.cli.errors import CommandError

WORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "AS", "ASC", "DESC"),
    *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("CAST", "SET"),
)
DELIMITERS = " \t\n,;()=<>+-*/'"


class Completer:
    """Completer for readline. It fetches names at the first Tab; without a node it knows only keywords and
    functions."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client
        self._names: list[str] | None = None
        self._found: list[str] = []

    def __call__(self, prefix: str, state: int) -> str | None:
        """Return the completion of a prefix at index `state`, which is how readline asks for them; None at the end."""
        if state == 0:
            self._found = self.completions(prefix)
        return self._found[state] if state < len(self._found) else None

    def completions(self, prefix: str) -> list[str]:
        """Return all completions, names first. Keywords and functions are in lower case if a letter of the prefix
        is."""
        if self._names is None:
            self._names = self._ask()
        is_lower = prefix != prefix.upper()
        words = [word.lower() if is_lower else word for word in (*WORDS, *_functions())]
        start = prefix.lower()
        return [word for word in (*self._names, *words) if start and word.lower().startswith((start, f'"{start}'))]

    def _ask(self) -> list[str]:
        try:
            tables: list[str] = self._client.get("/tables")["tables"]
            columns = {name for table in tables for name in self._columns(table)}
        except CommandError:
            return []
        return sorted({*tables, *columns})

    def _columns(self, table: str) -> list[str]:
        schema = self._client.get(path_of("tables", table, "schema"))
        from merlot.spec.column_names import in_sql

        keys = ("dimensionFieldSpecs", "metricFieldSpecs", "dateTimeFieldSpecs")
        return [in_sql(field["name"]) for key in keys for field in schema.get(key, ())]


@cache
def _functions() -> tuple[str, ...]:
    """Return the names of all functions that need no syntax of their own, each with an opening parenthesis."""
    # Loading the engine takes longer than most commands, so only a completion waits for it.
    from merlot.aggregates.registry import FUNCTIONS as AGGREGATES
    from merlot.functions.registry import FUNCTIONS as SCALARS

    names = {function.name for function in AGGREGATES}
    names |= {name for function in SCALARS if not function.syntax for name in (function.name, *function.aliases)}
    return tuple(f"{name.upper()}(" for name in sorted(names))


def install(completer: Callable[[str, int], str | None]) -> None:
    """Let Tab complete; readline must be installed."""
    import readline

    readline.set_completer(completer)
    readline.set_completer_delims(DELIMITERS)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

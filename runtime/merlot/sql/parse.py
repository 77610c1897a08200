"""Parse SQL text to a syntax tree: options, EXPLAIN and one query. Anything else is refused by its name.

This is the entry point of parsing. `_StatementTokens` takes options, EXPLAIN and OPTION(…) off the tokens, and
`Parser` reads the query that is left. `limits` bounds the size of a text, the caller's `Budget` the time. Safe on any
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from merlot.sql import limits
from merlot.sql.budget import Budget
from merlot.sql.excerpts import error_at, excerpt, unsupported_at
from merlot.sql.lexer import offset_of_token, text_in, tokens_of
from merlot.sql.parser import Parser
from merlot.sql.syntax import Column, Comparison, Node, Number, Query, Select, Table, Text, children
from merlot.sql.token_reader import QueryTokens
from merlot.sql.unsupported_features import feature_name
from merlot.tree.errors import SqlError, SqlParseError, UnsupportedSqlError

MAX_TREE_DEPTH: Final = 100
"""Most levels of a tree: code that walks it is recursive."""
_STATEMENT_WORDS: Final = frozenset(
    {
        *("ALTER", "ANALYZE", "ATTACH", "BEGIN", "CALL", "COMMIT", "COPY", "CREATE", "DELETE", "DESCRIBE", "DROP"),
        *("GRANT", "INSERT", "LOAD", "MERGE", "REFRESH", "REPLACE", "REVOKE", "ROLLBACK", "SHOW", "TABLE"),
        *("TRUNCATE", "UPDATE", "USE"),
    }
)
_QUERY_WORDS: Final = frozenset({"SELECT", "(", "WITH", "VALUES"})
_EXPLAIN_FORMS: Final = [
    form.split()
    for form in (
        "EXPLAIN PLAN FOR",
        "EXPLAIN IMPLEMENTATION PLAN FOR",
        "EXPLAIN PLAN WITH IMPLEMENTATION FOR",
        "EXPLAIN PLAN INCLUDING ALL ATTRIBUTES FOR",
        "EXPLAIN PLAN INCLUDING ALL ATTRIBUTES WITH IMPLEMENTATION FOR",
    )
]


@dataclass(frozen=True, slots=True, eq=False)
class ParsedQuery:
    """A SELECT over at most one table, before names are looked up. `select` is for `bind` only."""

    sql: str
    table: str | None
    """Table as written, without quotes: `flights`, `flights_OFFLINE`; None for a SELECT without FROM."""
    select: Select
    options: tuple[tuple[str, str], ...] = ()
    """Options by SET and OPTION(…), each name once, in any case: SET wins over OPTION, then the later one."""
    explain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ParsedStatement:
    """A query of any number of stages, before names are looked up. `tree` is for binding only."""

    sql: str
    tree: Query
    options: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    has_stages: bool = False
    """True if the query needs more than a SELECT over one table: joins, set operations, subqueries, WITH, windows."""


def parse(sql: str, budget: Budget | None = None) -> ParsedQuery:
    """Parse a query of one stage. Raise as `parse_statement`, and UnsupportedSqlError for a query of several stages."""
    return one_stage(parse_statement(sql, budget))


def one_stage(statement: ParsedStatement) -> ParsedQuery:
    """Return the statement as a SELECT over one table. Raise UnsupportedSqlError if it is more."""
    select = statement.tree
    if not isinstance(select, Select):
        raise UnsupportedSqlError(feature_name(select))
    clauses = {"WITH": select.common, "JOIN": select.joins, "WINDOW": select.windows, "QUALIFY": select.qualify}
    for name, clause in clauses.items():
        if clause:
            raise UnsupportedSqlError(name)
    return ParsedQuery(statement.sql, _table_name(select), select, statement.options, statement.explain)


def _table_name(select: Select) -> str | None:
    source = select.source
    if source is None:
        return None
    if not isinstance(source, Table):
        raise UnsupportedSqlError(feature_name(source))
    if source.columns:
        raise UnsupportedSqlError("names for a table's columns")
    return source.name


def parse_statement(sql: str, budget: Budget | None = None) -> ParsedStatement:
    """Parse one query. Raise SqlParseError, SqlValidationError or UnsupportedSqlError, with messages of one line."""
    budget = budget or Budget()
    budget.look()
    limits.check_length(sql)
    text, tokens = tokens_of(sql)
    budget.look()
    if len(tokens) > limits.MAX_TOKENS:
        raise SqlParseError(f"query has too many words limit={limits.MAX_TOKENS}")
    text_tokens = _StatementTokens(text, tokens, list(map(str.upper, tokens)))
    text_tokens.leave_query()
    parser = Parser(QueryTokens(text, text_tokens.tokens, text_tokens.words, text_tokens.numbers), budget)
    try:
        tree = parser.statement()
    except UnsupportedSqlError as error:
        parser.show_feature(error)
        raise
    except SqlParseError as error:
        parser.refuse_construct()
        raise error
    except RecursionError as error:
        raise SqlParseError("query is nested too deeply") from error
    if len(text_tokens.tokens) > MAX_TREE_DEPTH:
        _check_depth(tree)
    options = {**text_tokens.clause_options, **text_tokens.set_options}  # SET wins, as in Pinot
    return ParsedStatement(sql, tree, tuple(options.values()), text_tokens.is_explained, parser.has_stages)


def show_place(error: SqlError, sql: str) -> None:
    """Give an error of binding an excerpt of the text, if it has a token."""
    if error.token is not None and not error.excerpt:
        text, _ = tokens_of(sql)
        error.excerpt = excerpt(sql, offset_of_token(text, error.token))


@dataclass(slots=True)
class _StatementTokens:
    """A text's tokens, and the facts that are read off them before the query."""

    sql: str
    tokens: list[str]
    """At first all tokens of the text, in the end those of the query."""
    words: list[str]
    """The tokens in upper case."""
    numbers: Sequence[int] | None = None
    """Position of each token among the text's tokens; None if no token was taken off."""
    set_options: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names and values by SET, by name in lower case."""
    clause_options: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names and values by OPTION(…), by name in lower case."""
    is_explained: bool = False
    _num_options: int = 0

    def leave_query(self) -> None:
        """Read and remove all tokens that are not part of the query."""
        words = self.words
        if ";" in words or words[:1] == ["SET"]:
            self._read_statements()
        if "OPTION" in words:
            self._take_options()
        if '"*"' in words or "`*`" in words:
            self._unquote_stars()
        if not self.tokens:
            raise SqlParseError("no query found in the text")
        if self.words[0] == "EXPLAIN":
            self._take_explain()
        self._check_start()

    def _place(self, index: int) -> int:
        return offset_of_token(self.sql, index if self.numbers is None else self.numbers[index])

    def _keep(self, positions: Sequence[int]) -> None:
        """Keep only the tokens at these positions."""
        self.numbers = [position if self.numbers is None else self.numbers[position] for position in positions]
        self.tokens = [self.tokens[position] for position in positions]
        self.words = [self.words[position] for position in positions]

    def _read_statements(self) -> None:
        query: list[int] = []
        for statement in _statements(self.tokens):
            if self.words[statement[0]] == "SET":
                self._read_set(statement)
            elif query:
                raise SqlParseError("more than one query in a request")
            else:
                query = statement
        if not query:
            raise SqlParseError("no query found in the text")
        self._keep(query)

    def _read_set(self, positions: Sequence[int]) -> None:
        """Read `SET name = value`; the value may be a string, a word or a signed number."""
        words = [self.tokens[position] for position in positions]
        if len(words) < 4 or words[2] != "=":
            raise error_at(self.sql, self._place(positions[0]), "expected SET name = value")
        self._add_option(self.set_options, words[1], words[3:])

    def _add_option(self, options: dict[str, tuple[str, str]], name: str, value: Sequence[str]) -> None:
        self._num_options += 1
        if self._num_options > limits.MAX_OPTIONS:
            raise SqlParseError(f"too many options limit={limits.MAX_OPTIONS}")
        options[text_in(name).lower()] = text_in(name), "".join(map(text_in, value))

    def _take_options(self) -> None:
        """Read and remove `OPTION(a = b, c = 'd')` anywhere in the text, as Pinot does; there may be several."""
        tokens, words = self.tokens, self.words
        remaining: list[int] = []
        at = 0
        while at < len(tokens):
            if words[at] != "OPTION" or tokens[at + 1 : at + 2] != ["("]:
                remaining.append(at)
                at += 1
                continue
            end = next((position for position in range(at, len(tokens)) if tokens[position] == ")"), None)
            if end is None:
                raise error_at(self.sql, self._place(at), "expected OPTION(name = value, …)")
            self._read_option_list(at + 2, end)
            at = end + 1
        self._keep(remaining)

    def _read_option_list(self, start: int, end: int) -> None:
        entry: list[str] = []
        for at in range(start, end + 1):
            if at < end and self.tokens[at] != ",":
                entry.append(self.tokens[at])
                continue
            if len(entry) < 3 or entry[1] != "=":
                raise error_at(self.sql, self._place(at - len(entry)), "expected OPTION(name = value, …)")
            self._add_option(self.clause_options, entry[0], entry[2:])
            entry = []

    def _unquote_stars(self) -> None:
        """Treat a star in quotes as a star, as Pinot does, which has no column of that name: Trino writes
        `count("*")`."""
        for at, word in enumerate(self.words):
            if word in ('"*"', "`*`") and at and self.words[at - 1] in _BEFORE_STAR:
                self.tokens[at] = self.words[at] = "*"

    def _take_explain(self) -> None:
        """Read EXPLAIN in any form. All forms have the same answer: the servers' plan."""
        words = self.words[:10]
        for form in _EXPLAIN_FORMS:
            if words[: len(form)] == form:
                self._keep(range(len(form), len(self.tokens)))
                self.is_explained = True
                if not self.tokens:
                    raise SqlParseError("no query found in the text")
                return
        form = words[: words.index("FOR") + 1] if "FOR" in words else words[:2]
        raise UnsupportedSqlError(f"{' '.join(form)[:80]}: write EXPLAIN PLAN FOR")

    def _check_start(self) -> None:
        first = self.words[0]
        if first in _STATEMENT_WORDS:
            raise unsupported_at(self.sql, self._place(0), first)
        if first not in _QUERY_WORDS:
            raise error_at(self.sql, self._place(0), "expected SELECT")


def _statements(tokens: Sequence[str]) -> list[list[int]]:
    """Return the positions of each statement's tokens."""
    statements: list[list[int]] = [[]]
    for at, token in enumerate(tokens):
        if token == ";":
            statements.append([])
        else:
            statements[-1].append(at)
    return [statement for statement in statements if statement]


_BEFORE_STAR: Final = frozenset({"SELECT", "DISTINCT", "(", ","})


def _check_depth(tree: Node) -> None:
    """Raise SqlParseError if the tree is too deep for the recursive code that walks it."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_TREE_DEPTH:
            raise SqlParseError(f"expression nested deeper than {MAX_TREE_DEPTH} levels")
        pending.extend((child, depth + 1) for child in children(node) if not _is_flat(child))


def _is_flat(node: Node) -> bool:
    kind = type(node)
    return kind in _LEAVES or (kind is Comparison and type(node.left) in _LEAVES and type(node.right) in _LEAVES)  # type: ignore[attr-defined]


_LEAVES: Final = frozenset({Column, Number, Text})

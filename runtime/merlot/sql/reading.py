"""SQL text to a syntax tree: options, EXPLAIN and one query; anything else is refused by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from merlot.sql import limits
from merlot.sql.budget import Budget
from merlot.sql.lexer import error_at, place_of, text_in, tokens_of
from merlot.sql.parser import Parser
from merlot.sql.syntax import Column, Comparison, Node, Number, Query, Text, children
from merlot.tree.errors import SqlParseError, UnsupportedSqlError

MAX_TREE_DEPTH = 100
_STATEMENT_WORDS: Final = frozenset(
    {
        *("ALTER", "ANALYZE", "ATTACH", "BEGIN", "CALL", "COMMIT", "COPY", "CREATE", "DELETE", "DESCRIBE", "DROP"),
        *("GRANT", "INSERT", "LOAD", "MERGE", "REFRESH", "REPLACE", "REVOKE", "ROLLBACK", "SHOW", "TRUNCATE"),
        *("UPDATE", "USE"),
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
class Statement:
    """A query of any number of stages, its names not yet looked up. `tree` is for binding only."""

    sql: str
    tree: Query
    options: tuple[tuple[str, str], ...] = ()
    """By SET and OPTION(…), in the order of the text; a later one wins."""
    explain: bool = False
    has_stages: bool = False
    """Whether it takes more than one SELECT over one table: joins, set operations, subqueries, WITH, windows."""


def read(sql: str, budget: Budget | None = None) -> Statement:
    """Read one query; raises SqlParseError, SqlValidationError or UnsupportedSqlError, each of one line."""
    budget = budget or Budget()
    limits.check_length(sql)
    text, tokens = tokens_of(sql)
    budget.look()
    if len(tokens) > limits.MAX_TOKENS:
        raise SqlParseError(f"query has too many words limit={limits.MAX_TOKENS}")
    found = _Text(text, tokens).statement()
    parser = Parser(text, found.query, found.numbers, budget)
    tree = parser.statement()
    if len(found.query) > MAX_TREE_DEPTH:
        _check_depth(tree)
    return Statement(sql, tree, tuple(found.options.items()), found.is_explained, parser.has_stages)


@dataclass(slots=True)
class _Text:
    """A text's tokens, and what is read off them before the query."""

    sql: str
    query: Sequence[str]
    """First all tokens, in the end those of the query."""
    numbers: Sequence[int] | None = None
    """Which of the text's tokens they are; None if they are all."""
    options: dict[str, str] = field(default_factory=dict)
    is_explained: bool = False
    _num_options: int = 0

    def statement(self) -> _Text:
        """Leave the query alone."""
        tokens = self.query
        if ";" in tokens or (tokens and tokens[0].upper() == "SET"):
            self._read_statements()
        if any(len(token) == 6 and token.upper() == "OPTION" for token in self.query):
            self._take_options()
        if '"*"' in self.query:
            self.query = _with_stars(self.query)
        if not self.query:
            raise SqlParseError("no query found in the text")
        self._take_explain()
        self._check_start()
        return self

    def _place(self, at: int) -> int:
        return place_of(self.sql, at if self.numbers is None else self.numbers[at])

    def _keep(self, places: Sequence[int]) -> None:
        """Keep the tokens in these places alone."""
        self.numbers = [place if self.numbers is None else self.numbers[place] for place in places]
        self.query = [self.query[place] for place in places]

    def _read_statements(self) -> None:
        query: list[int] = []
        for statement in _statements(self.query):
            if self.query[statement[0]].upper() == "SET":
                self._read_set(statement)
            elif query:
                raise SqlParseError("more than one query in a request")
            else:
                query = statement
        if not query:
            raise SqlParseError("no query found in the text")
        self._keep(query)

    def _read_set(self, places: Sequence[int]) -> None:
        """`SET name = value`, where the value may be a string, a word or a signed number."""
        words = [self.query[place] for place in places]
        if len(words) < 4 or words[2] != "=":
            raise error_at(self.sql, self._place(places[0]), "expected SET name = value")
        self._add_option(words[1], words[3:])

    def _add_option(self, name: str, value: Sequence[str]) -> None:
        self._num_options += 1
        if self._num_options > limits.MAX_OPTIONS:
            raise SqlParseError(f"too many options limit={limits.MAX_OPTIONS}")
        self.options[text_in(name)] = "".join(map(text_in, value))

    def _take_options(self) -> None:
        """Read and cut `OPTION(a = b, c = 'd')` wherever the text has it, as Pinot does; there may be several."""
        tokens = self.query
        kept: list[int] = []
        at = 0
        while at < len(tokens):
            if tokens[at].upper() != "OPTION" or tokens[at + 1 : at + 2] != ["("]:
                kept.append(at)
                at += 1
                continue
            end = next((place for place in range(at, len(tokens)) if tokens[place] == ")"), None)
            if end is None:
                raise error_at(self.sql, self._place(at), "expected OPTION(name = value, …)")
            self._read_option_list(at + 2, end)
            at = end + 1
        self._keep(kept)

    def _read_option_list(self, start: int, end: int) -> None:
        entry: list[str] = []
        for at in range(start, end + 1):
            if at < end and self.query[at] != ",":
                entry.append(self.query[at])
                continue
            if len(entry) < 3 or entry[1] != "=":
                raise error_at(self.sql, self._place(at - len(entry)), "expected OPTION(name = value, …)")
            self._add_option(entry[0], entry[2:])
            entry = []

    def _take_explain(self) -> None:
        """What servers would do is all there is to tell, and is told in every form that asks for it."""
        words = [token.upper() for token in self.query[:10]]
        if words[0] != "EXPLAIN":
            return
        for form in _EXPLAIN_FORMS:
            if words[: len(form)] == form:
                self._keep(range(len(form), len(self.query)))
                self.is_explained = True
                if not self.query:
                    raise SqlParseError("no query found in the text")
                return
        form = words[: words.index("FOR") + 1] if "FOR" in words else words[:2]
        raise UnsupportedSqlError(f"{' '.join(form)[:80]}: write EXPLAIN PLAN FOR")

    def _check_start(self) -> None:
        first = self.query[0].upper()
        if first in _STATEMENT_WORDS:
            raise UnsupportedSqlError(first)
        if first not in _QUERY_WORDS:
            raise error_at(self.sql, self._place(0), "expected SELECT")


def _statements(tokens: Sequence[str]) -> list[list[int]]:
    """The places of each statement's tokens."""
    statements: list[list[int]] = [[]]
    for at, token in enumerate(tokens):
        if token == ";":
            statements.append([])
        else:
            statements[-1].append(at)
    return [statement for statement in statements if statement]


def _with_stars(tokens: Sequence[str]) -> list[str]:
    """A star in quotes is a star, as in Pinot, where a column cannot be called so: Trino writes `count("*")`."""
    return [
        "*" if token == '"*"' and at and tokens[at - 1].upper() in _BEFORE_STAR else token
        for at, token in enumerate(tokens)
    ]


_BEFORE_STAR: Final = frozenset({"SELECT", "DISTINCT", "(", ","})


def _check_depth(tree: Node) -> None:
    """Refuse what is too deep for those who recurse on it."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_TREE_DEPTH:
            raise SqlParseError(f"expression nested deeper than {MAX_TREE_DEPTH} levels")
        if type(node) is not Comparison or not (_is_leaf(node.left) and _is_leaf(node.right)):
            pending.extend((child, depth + 1) for child in children(node))


def _is_leaf(node: Node) -> bool:
    return type(node) in _LEAVES



_LEAVES: Final = frozenset({Column, Number, Text})

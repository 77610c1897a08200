"""SQL text to a syntax tree: options, EXPLAIN and one query; anything else is refused by its name.

Owns the limits on depth; those on size are in `limits`, that on time is the caller's `Budget`. Safe on any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from merlot.sql import grammar, limits, syntax_errors
from merlot.sql.budget import Budget
from merlot.sql.dialect import CLAUSE_NAMES, NODE_NAMES, SUPPORTED_CLAUSES, MerlotDialect
from merlot.sql.lists import Constants, CutText, cut
from merlot.sql.plain_select import read_plain
from merlot.tree.errors import SqlParseError, UnsupportedSqlError

MAX_TREE_DEPTH = 100
"""Operators within operators, chains of AND and of OR not counted: what walks the tree after us recurses on it."""
MAX_OPERATOR_RUN = 30
"""NOTs or minus signs in a row: the parser recurses on each."""

_DIALECT = MerlotDialect()
_PARSER = MerlotDialect.Parser
_STATEMENT_WORDS = frozenset(
    {
        "ALTER",
        "ANALYZE",
        "ATTACH",
        "BEGIN",
        "CALL",
        "COMMIT",
        "COPY",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DROP",
        "GRANT",
        "INSERT",
        "LOAD",
        "MERGE",
        "REFRESH",
        "REPLACE",
        "REVOKE",
        "ROLLBACK",
        "SHOW",
        "TRUNCATE",
        "UPDATE",
        "USE",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedQuery:
    """One SELECT, its names not yet looked up. `select` is for `bind` only."""

    sql: str
    table: str | None
    """As written, without quotes: `flights`, `flights_OFFLINE`; None for a SELECT without FROM."""
    select: exp.Select
    options: tuple[tuple[str, str], ...] = ()
    """By SET and OPTION(…), in the order of the text; a later one wins."""
    explain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ParsedStatement:
    """A query of any number of stages, its names not yet looked up. `tree` is for binding only."""

    sql: str
    tree: exp.Query
    options: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    has_stages: bool = False
    """Whether it takes more than one SELECT over one table: joins, set operations, subqueries, WITH, windows."""


@dataclass(slots=True)
class _Options:
    """Values by name, from every place of the text that has some."""

    values: dict[str, str] = field(default_factory=dict)
    num_read: int = 0

    def add(self, name: Token, value: Sequence[Token]) -> None:
        self.num_read += 1
        if self.num_read > limits.MAX_OPTIONS:
            raise SqlParseError(f"too many options limit={limits.MAX_OPTIONS}")
        self.values[name.text] = "".join(token.text for token in value)


def parse(sql: str, budget: Budget | None = None) -> ParsedQuery:
    """Read a query of one stage; raises as `parse_statement`, and UnsupportedSqlError for one that takes more."""
    return one_stage(parse_statement(sql, budget))


def one_stage(statement: ParsedStatement) -> ParsedQuery:
    """The statement as one SELECT over one table; raises UnsupportedSqlError if it is more."""
    select = statement.tree
    if not isinstance(select, exp.Select):
        raise UnsupportedSqlError(feature_name(select))
    _check_clauses(select)
    return ParsedQuery(statement.sql, _table_name(select), select, statement.options, statement.explain)


def parse_statement(sql: str, budget: Budget | None = None) -> ParsedStatement:
    """Read one query; raises SqlParseError, SqlValidationError or UnsupportedSqlError, each of one line."""
    budget = budget or Budget()
    limits.check_length(sql)
    plain = read_plain(sql, budget)
    budget.look()
    return read_any(sql, budget) if plain is None else ParsedStatement(sql, plain)


def read_any(sql: str, budget: Budget) -> ParsedStatement:
    """As `parse_statement`, of any text, by the dialect's own parser."""
    statement = _statement(cut(sql), budget)
    if statement is None:  # a list stands where the parser looked for none: it shall say so itself
        statement = _statement(CutText(sql, sql), budget)
    assert statement is not None
    return statement


def _statement(text: CutText, budget: Budget) -> ParsedStatement | None:
    """None if a list that is cut out of the text is in no IN of the tree, or in the way of an error."""
    limits.check_text(text, budget)
    sql = text.sql
    options = _Options()
    query: list[Token] | None = None
    tokens = _tokenize(text)
    if tokens is None:
        return None
    budget.look()
    for statement in _statements(tokens):
        if statement[0].text.upper() == "SET":
            _read_set(statement, sql, options)
        elif query is not None:
            raise SqlParseError("more than one query in a request")
        else:
            query = statement
    if query is None:
        raise SqlParseError("no query found in the text")
    query = _in_our_words(_strip_option_clauses(query, sql, options))
    if text.lists and sum(token.start in text.lists for token in query) < len(text.lists):
        return None
    num_words = _words_of_explain(query)
    tree = _parse_query(query[num_words:], text, budget)
    has_stage_nodes, num_lists = (False, -1) if tree is None else _look_through(tree)
    if tree is None or num_lists != len(text.lists):
        return None
    grammar.check(query[num_words:], sql, budget)
    has_stages = has_stage_nodes or any(tree.args.get(name) for name in STAGE_CLAUSES)
    return ParsedStatement(sql, tree, tuple(options.values.items()), num_words > 0, has_stages)


def _tokenize(text: CutText) -> list[Token] | None:
    """None if it fails where lists are cut out: the whole text says where."""
    try:
        tokens = _DIALECT.tokenize(text.short)
    except TokenError as error:
        if text.lists:
            return None
        start = error.start if error.start is not None else len(text.sql)
        raise syntax_errors.at(text.sql, start, "unfinished string, name or comment") from error
    if text.lists:
        text.place(tokens)
    return tokens


def _statements(tokens: Sequence[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _read_set(statement: Sequence[Token], sql: str, options: _Options) -> None:
    """`SET name = value`, where the value may be a string, a word or a signed number."""
    if len(statement) < 4 or statement[2].token_type != TokenType.EQ:
        raise syntax_errors.at(sql, statement[0].start, "expected SET name = value")
    options.add(statement[1], statement[3:])


def _strip_option_clauses(query: Sequence[Token], sql: str, options: _Options) -> list[Token]:
    """Read and cut `OPTION(a = b, c = 'd')` wherever the text has it, as Pinot does; there may be several."""
    kept: list[Token] = []
    position = 0
    while position < len(query):
        if not _starts_option(query, position):
            kept.append(query[position])
            position += 1
            continue
        end = next((at for at in range(position, len(query)) if query[at].token_type == TokenType.R_PAREN), None)
        if end is None:
            raise syntax_errors.at(sql, query[position].start, "expected OPTION(name = value, …)")
        _read_option_list(query[position + 2 : end], sql, options)
        position = end + 1
    return kept


def _starts_option(query: Sequence[Token], position: int) -> bool:
    word = query[position]
    if word.text.upper() != "OPTION" or word.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return False
    return position + 1 < len(query) and query[position + 1].token_type == TokenType.L_PAREN


def _read_option_list(tokens: Sequence[Token], sql: str, options: _Options) -> None:
    entry: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type != TokenType.COMMA:
            entry.append(token)
            continue
        if len(entry) < 3 or entry[1].token_type != TokenType.EQ:
            at = entry[0].start if entry else (tokens[0].start if tokens else len(sql))
            raise syntax_errors.at(sql, at, "expected OPTION(name = value, …)")
        options.add(entry[0], entry[2:])
        entry = []


def _in_our_words(query: list[Token]) -> list[Token]:
    """A star in quotes is a star, as in Pinot, where a column cannot be called so: Trino writes `count("*")`. MINUS
    between queries is EXCEPT; it is the name of a function, too."""
    ours = list(query)
    for position, token in enumerate(query):
        if token.token_type == TokenType.IDENTIFIER and token.text == "*":
            if position and query[position - 1].token_type in _BEFORE_STAR:
                ours[position] = _renamed(token, TokenType.STAR, "*")
        elif token.token_type == TokenType.VAR and token.text.upper() == "MINUS" and _is_query(query[position + 1 :]):
            ours[position] = _renamed(token, TokenType.EXCEPT, "EXCEPT")
    return ours


_BEFORE_STAR = frozenset({TokenType.SELECT, TokenType.DISTINCT, TokenType.L_PAREN, TokenType.COMMA})
_QUERY_STARTS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.VALUES})


def _renamed(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)


def _is_query(tokens: Sequence[Token]) -> bool:
    """Whether a query begins here, after ALL or DISTINCT, perhaps in one parenthesis."""
    kinds = [token.token_type for token in tokens[:3]]
    if kinds[:1] in ([TokenType.ALL], [TokenType.DISTINCT]):
        kinds = kinds[1:]
    if kinds[:1] == [TokenType.L_PAREN]:
        kinds = kinds[1:]
    return bool(kinds) and kinds[0] in _QUERY_STARTS


def _words_of_explain(query: Sequence[Token]) -> int:
    """How many words before the query ask to explain it. What servers would do is all there is to tell, and is told in
    every form that asks for it."""
    words = [token.text.upper() for token in query[:10]]
    if words[:1] != ["EXPLAIN"]:
        return 0
    for form in _EXPLAIN_FORMS:
        if words[: len(form)] == form:
            return len(form)
    form = words[: words.index("FOR") + 1] if "FOR" in words else words[:2]
    raise UnsupportedSqlError(f"{' '.join(form)[:80]}: write EXPLAIN PLAN FOR")


_EXPLAIN_FORMS = [
    form.split()
    for form in (
        "EXPLAIN PLAN FOR",
        "EXPLAIN IMPLEMENTATION PLAN FOR",
        "EXPLAIN PLAN WITH IMPLEMENTATION FOR",
        "EXPLAIN PLAN INCLUDING ALL ATTRIBUTES FOR",
        "EXPLAIN PLAN INCLUDING ALL ATTRIBUTES WITH IMPLEMENTATION FOR",
    )
]


def _parse_query(tokens: list[Token], text: CutText, budget: Budget) -> exp.Query | None:
    """None if the parser failed inside of a list that is cut out."""
    sql = text.sql
    if not tokens:
        raise SqlParseError("no query found in the text")
    first = tokens[0]
    if first.text.upper() in _STATEMENT_WORDS:
        raise UnsupportedSqlError(first.text.upper())
    if first.token_type not in (TokenType.SELECT, TokenType.L_PAREN, TokenType.WITH, TokenType.VALUES):
        raise syntax_errors.at(sql, first.start, "expected SELECT")
    limits.check_names(tokens)
    _check_nesting(tokens, sql)
    parser = _PARSER(dialect=_DIALECT)
    parser.budget = budget
    parser.lists = text.lists
    try:
        tree = parser.parse(tokens, sql)[0]
    except ParseError as error:
        if any(token is not None and token.start in text.lists for token in (parser._prev, parser._curr)):
            return None
        raise syntax_errors.of_parser(error) from error
    except RecursionError as error:
        raise SqlParseError("query is nested too deeply") from error
    if isinstance(tree, exp.Values):
        tree = exp.Select(expressions=[exp.Star()], from_=exp.From(this=tree))
    if not isinstance(tree, exp.Query):
        raise UnsupportedSqlError(feature_name(tree) if tree is not None else "this statement")
    return tree


def _check_nesting(tokens: Sequence[Token], sql: str) -> None:
    """Refuse what would exhaust the parser's stack, and the dangling commas that it would let pass."""
    depth = run = 0
    previous = None
    for token in tokens:
        kind = token.token_type
        if previous == TokenType.COMMA and kind in _AFTER_EXPRESSION:
            raise syntax_errors.at(sql, token.start, "expected an expression after the comma")
        if kind == TokenType.COMMA and previous in _BEFORE_EXPRESSION:
            raise syntax_errors.at(sql, token.start, "expected an expression before the comma")
        previous = kind
        if kind in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        elif kind in (TokenType.R_PAREN, TokenType.END):
            depth -= 1
        run = run + 1 if kind in (TokenType.NOT, TokenType.DASH, TokenType.TILDE) else 0
        if depth > limits.MAX_NESTING or run > MAX_OPERATOR_RUN:
            raise syntax_errors.at(sql, token.start, limits.TOO_DEEP)
    if previous == TokenType.COMMA:
        raise syntax_errors.at(sql, tokens[-1].start, "expected an expression after the comma")


_BEFORE_EXPRESSION = frozenset({TokenType.SELECT, TokenType.L_PAREN, TokenType.GROUP_BY, TokenType.ORDER_BY})
_AFTER_EXPRESSION = frozenset(
    {
        TokenType.COMMA,
        TokenType.R_PAREN,
        TokenType.FROM,
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
    }
)


def _look_through(tree: exp.Expr) -> tuple[bool, int]:
    """Refuse what is too deep; whether any node but the first takes a stage of its own, and how many lists there are
    that were cut out."""
    pending = [(tree, 0)]
    num_lists = 0
    has_stages = type(tree) is not exp.Select
    while pending:
        node, depth = pending.pop()
        if depth > MAX_TREE_DEPTH:
            raise SqlParseError(f"expression nested deeper than {MAX_TREE_DEPTH} levels")
        kind = type(node)
        num_lists += kind is Constants
        has_stages = has_stages or (kind in _STAGE_NODES and node is not tree)
        is_chain = kind is exp.And or kind is exp.Or
        pending.extend(
            (child, depth if is_chain and type(child) is kind else depth + 1)
            for child in node.iter_expressions()
            if type(child) is not exp.Literal
        )
    return has_stages, num_lists


_STAGE_NODES = frozenset(
    {
        *(
            exp.Select,
            exp.Subquery,
            exp.Union,
            exp.Intersect,
            exp.Except,
            exp.Window,
            exp.Exists,
            exp.Values,
            exp.Unnest,
        ),
        *(exp.Lateral, exp.Rollup, exp.Cube, exp.GroupingSets),
    }
)
STAGE_CLAUSES = ("with_", "joins", "windows", "qualify")


def _check_clauses(select: exp.Select) -> None:
    for name, value in select.args.items():
        if value and name not in SUPPORTED_CLAUSES:
            raise UnsupportedSqlError(CLAUSE_NAMES.get(name, name.strip("_").upper()))
    if select.args.get("kind"):
        raise UnsupportedSqlError(f"SELECT AS {select.args['kind']}")


def _table_name(select: exp.Select) -> str | None:
    source = select.args.get("from_")
    if source is None:
        return None
    alias = source.this.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise UnsupportedSqlError("names for a table's columns")
    return table_name(source.this)


def table_name(table: exp.Expr) -> str:
    """The table that stands in a FROM, as written; raises UnsupportedSqlError for anything else."""
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise UnsupportedSqlError(feature_name(table))
    for name, value in table.args.items():
        if value and name not in ("this", "db", "catalog", "alias"):
            raise UnsupportedSqlError(CLAUSE_NAMES.get(name, name.strip("_").upper()))
    return ".".join(part.name for part in table.parts if part.name != "default")


def feature_name(node: exp.Expr) -> str:
    """What to call a piece of SQL that is refused."""
    return NODE_NAMES.get(type(node)) or node.key.upper()

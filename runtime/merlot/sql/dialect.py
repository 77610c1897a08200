"""Pinot's SQL as a small sqlglot dialect: what is not here does not parse.

Every function is left as a name with arguments (`exp.Anonymous`), so that the registries alone say what exists.
Identifiers are quoted by `"` or a backtick; a string alias (`AS 'x'`) is an identifier too, as Grafana writes it.
"""
# ruff: noqa: RUF012 (sqlglot's own idiom: class attributes configure its metaclasses)

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser as BaseParser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer as BaseTokenizer

from merlot.sql.budget import Budget
from merlot.sql.lists import Constants
from merlot.tree.errors import UnsupportedSqlError

_KEPT_RANGES = (TokenType.BETWEEN, TokenType.IN, TokenType.IS, TokenType.LIKE, TokenType.ILIKE)
_REFUSED_WORDS = {
    "FLOOR": ("TO", "DATETRUNC"),
    "CEIL": ("TO", "DATETRUNC"),
    "CEILING": ("TO", "DATETRUNC"),
    "OVERLAY": ("PLACING", "CONCAT and SUBSTR"),
    "POSITION": ("IN", "STRPOS"),
}
"""Words inside of calls that neither Pinot nor we have, and what to write instead."""
_TRIMS = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}


class MerlotDialect(Dialect):
    """Tokens and grammar of the queries that brokers accept."""

    NULL_ORDERING = "nulls_are_large"

    class Tokenizer(BaseTokenizer):
        """Standard tokens; hints are comments, DIV and SETTINGS are names, and `$` may begin one (`$segmentName`)."""

        IDENTIFIERS = ['"', "`"]
        QUOTES = ["'"]
        STRING_ESCAPES = ["'"]
        VAR_SINGLE_TOKENS = {"$"}
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]
        COMMANDS = set()
        HINT_START = "\0"
        KEYWORDS = {
            **{word: token for word, token in BaseTokenizer.KEYWORDS.items() if word not in ("/*+", "DIV", "SETTINGS")},
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    class Parser(BaseParser):
        """The expression grammar, without sqlglot's knowledge of functions."""

        FUNCTIONS = {}
        NO_PAREN_FUNCTIONS = {}
        NO_PAREN_FUNCTION_PARSERS = {"CASE": BaseParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        FUNCTION_PARSERS = {
            **{name: BaseParser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")},
            "TRIM": lambda self: self._parse_trim_call(),
            "SUBSTRING": lambda self: self._parse_substring_call(),
            "TRY_CAST": lambda self: self._refuse("TRY_CAST: write CAST"),
            **dict.fromkeys(_REFUSED_WORDS, lambda self: self._parse_call_without_words()),
        }
        FUNCTIONS_WITH_ALIASED_ARGS = set()
        LAMBDAS = {}
        ID_VAR_TOKENS = BaseParser.ID_VAR_TOKENS | {TokenType.MATCH_CONDITION}
        COLUMN_OPERATORS = {TokenType.DOT: None}
        RANGE_PARSERS = {token: BaseParser.RANGE_PARSERS[token] for token in _KEPT_RANGES}
        STRING_ALIASES = True
        budget = Budget()
        lists: Mapping[int, Constants] = {}
        """Lists that were cut out of the text, by where they open."""

        def _advance(self, times: int = 1) -> None:
            self.budget.step()
            super()._advance(times)

        def _parse_types(self, *arguments: Any, **named: Any) -> exp.Expr | None:
            """A name in quotes is never a type: its text would be read once more, as SQL."""
            is_quoted = self._curr is not None and self._curr.token_type == TokenType.IDENTIFIER
            return None if is_quoted else super()._parse_types(*arguments, **named)

        def _parse_column(self) -> exp.Expr | None:
            """A name of many parts, as nested messages have them, is one column's like any other."""
            found = super()._parse_column()
            return _of_many_parts(found) if isinstance(found, exp.Dot) else found

        def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
            """`LEFT ASOF JOIN`, besides what sqlglot knows."""
            method, side, kind = super()._parse_join_parts()
            if method is None and kind is None and self._match(TokenType.ASOF):
                method = self._prev
            return method, side, kind

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            """Parse any expressions: sqlglot takes no conditions there."""
            kind = exp.Cube if self._match(TokenType.CUBE) else exp.Rollup if self._match(TokenType.ROLLUP) else None
            if kind is None:
                return None
            keys = [] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction)
            return self.expression(kind(expressions=keys))

        def _parse_grouping_set(self) -> exp.Expr | None:
            return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

        def _parse_trim_call(self) -> exp.Anonymous:
            """`TRIM(LEADING 'x' FROM a)` is `LTRIM(a, 'x')`; a column may be called LEADING."""
            name = self._tokens[self._index - 2].text
            if self._next and self._next.token_type not in (TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT):
                name = _TRIMS[self._prev.text.upper()] if self._match_texts(_TRIMS) else name
            has_from_first = self._curr and self._curr.token_type == TokenType.FROM
            args = [] if has_from_first else self._parse_function_args(alias=True)
            if self._match(TokenType.FROM):
                args = [self._parse_operand(), *args]
            return self.expression(exp.Anonymous(this=name, expressions=args))

        def _parse_substring_call(self) -> exp.Anonymous:
            """`SUBSTRING(a FROM 2 FOR 3)` is `SUBSTRING(a, 2, 3)`."""
            name = self._tokens[self._index - 2].text
            args = self._parse_function_args(alias=True)
            if self._match(TokenType.FROM):
                args.append(self._parse_operand())
            if self._match(TokenType.FOR):
                first: list[exp.Expr] = [exp.Literal.number(1)] if len(args) == 1 else []
                args += [*first, self._parse_operand()]
            return self.expression(exp.Anonymous(this=name, expressions=args))

        def _parse_call_without_words(self) -> exp.Anonymous:
            """`FLOOR(x)`, but not SQL's `FLOOR(at TO DAY)`."""
            name = self._tokens[self._index - 2].text
            word, instead = _REFUSED_WORDS[name.upper()]
            args = [] if self._curr and self._curr.token_type == TokenType.R_PAREN else [self._parse_operand()]
            if self._curr and self._curr.text.upper() == word:
                raise UnsupportedSqlError(f"{name.upper()}(… {word} …): write {instead}")
            if args and self._match(TokenType.COMMA):
                args += self._parse_function_args(alias=True)
            return self.expression(exp.Anonymous(this=name, expressions=args))

        def _refuse(self, feature: str) -> exp.Expr:
            raise UnsupportedSqlError(feature)

        def _parse_operand(self) -> exp.Expr:
            operand = self._parse_bitwise()
            if operand is None:
                self.raise_error("expected an expression")
            return operand or exp.Null()

        def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
            """A list of constants is read off the tokens: a query with 10,000 parses in 80 ms, not 340. A long one that
            was cut out of the text is there already."""
            cut_out = self.lists.get(self._curr.start) if self._curr and self.lists else None
            if cut_out is not None:
                self._advance(2)
                return self.expression(exp.In(this=this, expressions=[cut_out]))
            constants, num_tokens = _constants(self._tokens, self._index)
            if not constants:
                return super()._parse_in(this, alias=alias)
            self._advance(num_tokens)
            return self.expression(exp.In(this=this, expressions=constants))


def _of_many_parts(node: exp.Dot) -> exp.Expr:
    """A column of more parts than sqlglot's has: all but the last are its qualifier."""
    parts: list[str] = []
    inner: exp.Expr = node
    while isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier):
        parts.append(inner.expression.name)
        inner = inner.this
    if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
        return node
    names = [*(part.name for part in inner.parts), *reversed(parts)]
    return exp.Column(this=exp.Identifier(this=names[-1]), table=exp.Identifier(this=".".join(names[:-1])))


def _constants(tokens: Sequence[Token], start: int) -> tuple[list[exp.Expr], int]:
    """The constants of `(1, -2, 'x')` at this token, and how many tokens that is; ([], 0) for anything else."""
    found: list[exp.Expr] = []
    if start >= len(tokens) or tokens[start].token_type != TokenType.L_PAREN:
        return [], 0
    position = start + 1
    while position + 1 < len(tokens):
        is_negative = tokens[position].token_type == TokenType.DASH
        position += is_negative
        token = tokens[position]
        if token.token_type == TokenType.NUMBER:
            literal: exp.Expr = exp.Literal(this=token.text, is_string=False)
            found.append(exp.Neg(this=literal) if is_negative else literal)
        elif token.token_type == TokenType.STRING and not is_negative:
            found.append(exp.Literal(this=token.text, is_string=True))
        else:
            return [], 0
        following = tokens[position + 1].token_type if position + 1 < len(tokens) else None
        position += 2
        if following == TokenType.R_PAREN:
            return found, position - start
        if following != TokenType.COMMA:
            return [], 0
    return [], 0


SUPPORTED_CLAUSES = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "hint", "kind"}
)
"""Parts of an `exp.Select` that binding reads; any other that is set is refused by its name."""

CLAUSE_NAMES = {
    "joins": "JOIN",
    "with_": "WITH",
    "laterals": "LATERAL",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "into": "SELECT INTO",
    "operation_modifiers": "SELECT modifiers",
    "pivots": "PIVOT",
}

NODE_NAMES: dict[type[exp.Expr], str] = {
    exp.Subquery: "subquery",
    exp.Select: "subquery",
    exp.Exists: "EXISTS",
    exp.Window: "window function (OVER)",
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
    exp.GroupingSets: "GROUPING SETS",
    exp.Interval: "INTERVAL: write TIMESTAMPADD",
    exp.WithinGroup: "WITHIN GROUP",
    exp.Extract: "EXTRACT",
    exp.ILike: "ILIKE",
    exp.National: "N'…': write '…'",
    exp.Placeholder: "query parameter (?)",
    exp.Parameter: "query parameter (@)",
    exp.Alias: "AS inside of an expression",
    exp.Tuple: "several values in parentheses",
    exp.Struct: "a map in braces",
    exp.Slice: "a part of a list ([a:b])",
    exp.Dot: "a name of such parts",
    exp.Table: "a function or a path in FROM",
    exp.AtTimeZone: "AT TIME ZONE: write TODATETIME",
    exp.BitwiseAnd: "the operator &: write BITAND",
    exp.BitwiseOr: "the operator |: write BITOR",
    exp.BitwiseXor: "the operator ^: write BITXOR",
    exp.BitwiseNot: "the operator ~: write BITNOT",
    exp.BitwiseLeftShift: "the operator <<: write BITSHIFTLEFT",
    exp.BitwiseRightShift: "the operator >>: write BITSHIFTRIGHT",
}

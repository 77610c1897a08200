"""Plain SELECTs, read in a fifth of the time: the same syntax tree as the dialect's parser makes, or None.

Plain is: names that no dialect reserves, numbers, texts without backslashes, `+ - * /`, calls, comparisons, BETWEEN,
IN of constants, LIKE, IS NULL, AND, OR, NOT, DISTINCT, AS, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET, over
one table. Whatever else is met, every error included, is left to `sql.parse`, which has the words for it: nothing is
refused here, what passes a limit of `sql.parse` neither. Pure and safe on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from sqlglot import exp

from merlot.sql import limits, lists
from merlot.sql.budget import Budget
from merlot.sql.chains import Comparison, Part, joined, node_of, unquoted
from merlot.sql.dialect import MerlotDialect

T = TypeVar("T")

MAX_CHARS: Final = 1 << 18
"""Longer texts with more commas than expressions may be hold long lists, which are not read here."""
MAX_DEPTH: Final = 50
"""Operators, calls and parentheses of one expression, of which no tree is deeper."""
MAX_OPEN: Final = 10
"""Parentheses within one another: some five Python frames each."""

_TOKEN: Final = re.compile(
    r"[A-Za-z_]\w{0,99}|[0-9]+(?:\.[0-9]+)?(?![\w.])|'(?:[^'\\]++|'')*+'|<>|!=|<=|>=|[^ \t\n\r]", re.ASCII
)
"""What is no token of a plain text is taken letter by letter, which nothing expects."""
_NAME_STARTS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_DIGITS: Final = frozenset("0123456789")
_RESERVED: Final = frozenset(
    word for phrase in MerlotDialect.Tokenizer.KEYWORDS for word in phrase.upper().split()
) | frozenset(
    # Words that the parser knows by their text.
    {"CAST", "CUBE", "EXPLAIN", "EXTRACT", "GROUPING", "OPTION", "ROLLUP", "SET", "SUBSTRING", "TOP", "TOTALS", "TRIM"}
)
_COMPARISONS: Final[dict[str, type[exp.Expr]]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_ARITHMETIC: Final = frozenset("+-*/")
_END: Final = ""


class _NotPlainError(Exception):
    """The text is for the dialect's parser."""


def read_plain(sql: str, budget: Budget | None = None) -> exp.Select | None:
    """The tree of a plain SELECT; None of any other text. Raises what `budget` does when its time is over."""
    if "--" in sql or "/*" in sql or (len(sql) > MAX_CHARS and sql.count(",") > limits.MAX_ITEMS):
        return None
    try:
        return _Reader(_TOKEN.findall(sql), budget or Budget()).select()
    except _NotPlainError:
        return None


class _Reader:
    """Reads a text from its first token to its last."""

    def __init__(self, tokens: list[str], budget: Budget) -> None:
        self._budget = budget
        self._items_left = limits.MAX_ITEMS
        """Expressions between commas, of all clauses together."""
        self._values_left = limits.MAX_IN_VALUES
        self._joins_left = limits.MAX_PREDICATES
        """ANDs and ORs."""
        self._names: set[str] = set()
        """Of columns, as far as they are known to be names."""
        self._is_labelled = True
        """Whether the clause's expressions name columns of the answer, for which each node is read again."""
        self._tokens = [*tokens, _END]
        self._at = 0
        self._depth = 0
        self._open = 0

    # Tokens

    def _word(self) -> str:
        """The next token, as keywords are compared."""
        return self._tokens[self._at].upper()

    def _takes(self, word: str) -> bool:
        """Whether the next token is this keyword or sign, which is taken."""
        if self._tokens[self._at].upper() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise _NotPlainError

    def _name(self) -> exp.Expr:
        token = self._tokens[self._at]
        if token[:1] not in _NAME_STARTS or token.upper() in _RESERVED:
            raise _NotPlainError
        self._at += 1
        return exp.Identifier(this=token, quoted=False)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotPlainError

    def _list(self, item: Callable[[], T]) -> list[T]:
        items = [self._item(item)]
        while self._takes(","):
            items.append(self._item(item))
        return items

    def _item(self, item: Callable[[], T]) -> T:
        self._items_left -= 1
        if self._items_left < 0:
            raise _NotPlainError
        return self._apart(item)

    def _join(self, condition: Callable[[], T]) -> T:
        self._joins_left -= 1
        if self._joins_left < 0:
            raise _NotPlainError
        return self._apart(condition)

    def _apart(self, read: Callable[[], T]) -> T:
        """What goes as deep as it does by itself."""
        self._budget.step()
        if not self._open:
            self._depth = 0
        return read()

    # Clauses

    def select(self) -> exp.Select:
        self._expect("SELECT")
        distinct = exp.Distinct() if self._takes("DISTINCT") else None
        select = exp.Select(distinct=distinct, expressions=self._list(self._output))
        self._expect("FROM")
        select.set("from_", exp.From(this=exp.Table(this=self._name())))
        if self._takes("WHERE"):
            self._is_labelled = False
            select.set("where", exp.Where(this=self._item(self._either)))
            self._is_labelled = True
        if self._takes("GROUP"):
            self._expect("BY")
            select.set("group", exp.Group(expressions=self._list(self._either)))
        if self._takes("HAVING"):
            select.set("having", exp.Having(this=self._item(self._either)))
        if self._takes("ORDER"):
            self._expect("BY")
            select.set("order", exp.Order(expressions=self._list(self._ordered)))
        if self._takes("LIMIT"):
            select.set("limit", exp.Limit(expression=self._number()))
        if self._takes("OFFSET"):
            select.set("offset", exp.Offset(expression=self._number()))
        self._expect(_END)
        return select

    def _output(self) -> exp.Expr:
        if self._takes("*"):
            return exp.Star()
        value = self._either()
        return exp.Alias(this=value, alias=self._name()) if self._takes("AS") else value

    def _ordered(self) -> exp.Expr:
        value = self._either()
        word = self._word()
        self._at += word in ("ASC", "DESC")
        # Nulls are the largest.
        return exp.Ordered(this=value, desc={"ASC": False, "DESC": True}.get(word), nulls_first=word == "DESC")

    # Conditions, each method of what binds more tightly than the one before

    def _either(self) -> exp.Expr:
        return node_of(self._joined("OR", exp.Or, self._both))

    def _both(self) -> Part:
        return self._joined("AND", exp.And, self._condition)

    def _joined(self, word: str, kind: type[exp.Connector], read: Callable[[], Part]) -> Part:
        first = read()
        if not self._takes(word):
            return first
        parts = [first, self._join(read)]
        while self._takes(word):
            parts.append(self._join(read))
        return joined(kind, parts, is_labelled=self._is_labelled)

    def _condition(self) -> Part:
        if self._takes("NOT"):
            self._deeper()
            if self._word() == "NOT":
                raise _NotPlainError
            return exp.Not(this=node_of(self._condition()))
        return self._comparison() or self._test()

    def _comparison(self) -> Comparison | None:
        """`column = constant`, if that is what follows: most conditions of long texts are."""
        tokens, at = self._tokens, self._at
        name = tokens[at]
        if name not in self._names:
            if name[:1] not in _NAME_STARTS or name.upper() in _RESERVED:
                return None
            self._names.add(name)
        kind = _COMPARISONS.get(tokens[at + 1])
        if kind is None:
            return None
        at += 2
        constant = tokens[at]
        if constant == "-":
            at += 1
            constant = "-" + tokens[at]
            is_constant = tokens[at][:1] in _DIGITS
        else:
            is_constant = constant[:1] in _DIGITS or (constant[:1] == "'" and len(constant) > 1)
        if not is_constant or tokens[at + 1] in _ARITHMETIC:
            return None
        self._at = at + 1
        return name, kind, constant

    def _test(self) -> exp.Expr:
        left = self._sum()
        comparison = _COMPARISONS.get(self._tokens[self._at])
        if comparison is not None:
            self._at += 1
            return comparison(this=left, expression=self._sum())
        word = self._word()
        if word not in ("NOT", "BETWEEN", "IN", "LIKE", "IS"):
            return left
        self._at += 1
        if word == "IS":
            return self._null_test(left)
        is_negated = word == "NOT"
        if is_negated:
            word = self._word()
            self._at += 1
        if word == "LIKE":
            # `a NOT LIKE b` is one node, with a flag.
            negate = {"negate": True} if is_negated else {}
            return exp.Like(this=left, expression=self._sum(), **negate)
        found = self._range(left, word)
        return exp.Not(this=found) if is_negated else found

    def _null_test(self, left: exp.Expr) -> exp.Expr:
        is_negated = self._takes("NOT")
        self._expect("NULL")
        found = exp.Is(this=left, expression=exp.Null())
        return exp.Not(this=found) if is_negated else found

    def _range(self, left: exp.Expr, word: str) -> exp.Expr:
        if word == "BETWEEN":
            low = self._sum()
            self._expect("AND")
            return exp.Between(this=left, low=low, high=self._sum())
        if word != "IN":
            raise _NotPlainError
        self._expect("(")
        constants = [self._constant()]
        while self._takes(","):
            if len(constants) + 1 >= lists.MIN_VALUES:
                raise _NotPlainError  # long ones are not made nodes of, value by value
            constants.append(self._constant())
        self._expect(")")
        self._values_left -= len(constants)
        if self._values_left < 0:
            raise _NotPlainError
        return exp.In(this=left, expressions=constants)

    # Values

    def _sum(self) -> exp.Expr:
        left = self._product()
        while (sign := self._tokens[self._at]) in ("+", "-"):
            self._at += 1
            self._deeper()
            kind = exp.Add if sign == "+" else exp.Sub
            left = kind(this=left, expression=self._product())
        return left

    def _product(self) -> exp.Expr:
        left = self._signed()
        while (sign := self._tokens[self._at]) in ("*", "/"):
            self._at += 1
            self._deeper()
            right = self._signed()
            if sign == "*":
                left = exp.Mul(this=left, expression=right)
            else:
                left = exp.Div(this=left, expression=right, typed=False, safe=False)
        return left

    def _signed(self) -> exp.Expr:
        if self._tokens[self._at] != "-":
            return self._operand()
        self._at += 1
        self._deeper()
        return exp.Neg(this=self._operand())

    def _operand(self) -> exp.Expr:
        token = self._tokens[self._at]
        first = token[:1]
        if first in _NAME_STARTS:
            name = self._name()
            return self._call(token) if self._takes("(") else exp.Column(this=name)
        if token == "(":
            self._at += 1
            return exp.Paren(this=self._within(self._either))
        return self._constant()

    def _call(self, name: str) -> exp.Expr:
        if self._takes(")"):
            return exp.Anonymous(this=name, expressions=[])
        return exp.Anonymous(this=name, expressions=self._within(self._arguments))

    def _arguments(self) -> list[exp.Expr]:
        if self._takes("*"):
            return [exp.Star()]
        if self._takes("DISTINCT"):
            return [exp.Distinct(expressions=self._list(self._either))]
        return self._list(self._either)

    def _within(self, read: Callable[[], T]) -> T:
        """What stands up to the parenthesis that closes."""
        self._deeper()
        self._open += 1
        if self._open > MAX_OPEN:
            raise _NotPlainError
        found = read()
        self._expect(")")
        self._open -= 1
        return found

    def _constant(self) -> exp.Expr:
        token = self._tokens[self._at]
        if token[:1] == "'" and len(token) > 1:
            self._at += 1
            return exp.Literal(this=unquoted(token), is_string=True)
        if token == "-":
            self._at += 1
            return exp.Neg(this=self._number())
        return self._number()

    def _number(self) -> exp.Expr:
        token = self._tokens[self._at]
        if token[:1] not in _DIGITS:
            raise _NotPlainError
        self._at += 1
        return exp.Literal(this=token, is_string=False)

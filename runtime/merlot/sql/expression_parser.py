"""Expressions, from tokens to nodes: a method for each level of SQL's grammar. Pure and safe on any thread.

What SQL has and no query here can have is refused by its name, everything else that does not fit as a syntax error.
Recursion is as deep as parentheses, CASEs and signs, which are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from merlot.sql import limits
from merlot.sql.budget import Budget
from merlot.sql.lexer import END, MIN_LIST_CHARS, constants_in, error_at, place_of, text_in
from merlot.sql.syntax import (
    And,
    Array,
    Between,
    Boolean,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Distinct,
    Element,
    Exists,
    Extract,
    Filter,
    Frame,
    HexText,
    In,
    InQuery,
    IsNull,
    IsTruth,
    Like,
    Negative,
    Node,
    Not,
    Null,
    NullsTreated,
    Number,
    Operation,
    Or,
    Ordered,
    Paren,
    Quantified,
    Query,
    Row,
    Star,
    Subquery,
    Text,
    Window,
    WindowDefinition,
    WithinGroup,
)
from merlot.sql.syntax import Bound as FrameBound
from merlot.sql.words import QUERY_STARTS, RESERVED, SET_OPERATIONS, STRUCTURE, TYPED_TEXTS, TYPES
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError

T = TypeVar("T")

MAX_RUN: Final = 30
"""NOTs or signs in a row."""
MAX_CHAIN: Final = 100
"""Operators in a row, as `a + b + …` has them: each is a level of the tree."""

_NAME_STARTS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$")
_QUOTES: Final = frozenset("\"`")
_DIGITS: Final = frozenset("0123456789")
ORDERED: Final = {
    "<": "less_than",
    "<=": "less_than_or_equal",
    ">": "greater_than",
    ">=": "greater_than_or_equal",
}
_COMPARISONS: Final = {"=": "equals", "==": "equals", "<>": "not_equals", "!=": "not_equals", **ORDERED}
_COMPARING: Final = frozenset({"IS", "ISNULL", "NOTNULL", "NOT", "BETWEEN", "IN", "LIKE", "ILIKE", "<=>"})
_OPERATIONS: Final = {
    "||": (0, "concat"),
    "+": (1, "plus"),
    "-": (1, "minus"),
    "*": (2, "times"),
    "/": (2, "divide"),
    "%": (2, "mod"),
}
"""How tightly an operator binds, and its function."""
_NO_OPERATORS: Final = {
    "&": "the operator &: write BITAND",
    "|": "the operator |: write BITOR",
    "^": "the operator ^: write BITXOR",
    "~": "the operator ~: write BITNOT",
    "<<": "the operator <<: write BITSHIFTLEFT",
    ">>": "the operator >>: write BITSHIFTRIGHT",
    "COLLATE": "COLLATE",
    "XOR": "XOR",
}
_WORDS_IN_CALLS: Final = {
    "FLOOR": ("TO", "DATETRUNC"),
    "CEIL": ("TO", "DATETRUNC"),
    "CEILING": ("TO", "DATETRUNC"),
    "OVERLAY": ("PLACING", "CONCAT and SUBSTR"),
    "POSITION": ("IN", "STRPOS"),
}
"""Words inside of calls that neither Pinot nor we have, and what to write instead."""
_TYPE_ENDS: Final = (
    ("PRECISION",),
    ("VARYING",),
    ("WITH", "TIME", "ZONE"),
    ("WITH", "LOCAL", "TIME", "ZONE"),
    ("WITHOUT", "TIME", "ZONE"),
    ("ARRAY",),
)
_TRIMS: Final = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
_TREATMENTS: Final = frozenset({"IGNORE", "RESPECT"})
_ROWS: Final = frozenset({"ROW", "ROWS"})
_FRAMES: Final = frozenset({"ROWS", "RANGE", "GROUPS"})
_QUANTIFIERS: Final = frozenset({"ANY", "ALL", "SOME"})
_QUERY_ENDS: Final = frozenset({"ORDER", "LIMIT", "OFFSET", "FETCH"})
_AFTER_EXPRESSION: Final = frozenset({",", ")", "FROM", "WHERE", "GROUP", "HAVING", "ORDER"})
_AFTER_COMPARISON: Final = frozenset({"AND", "OR", "GROUP", "HAVING", "LIMIT", "ORDER", "THEN", ")", ",", END})
_BEFORE_EXPRESSION: Final = frozenset({"SELECT", "(", "BY"})
_CALLED: Final = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "EXISTS"})


_AFTER_THE_END: Final = (END,) * 5
"""As many as a rule may look ahead, and more."""


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """The tokens of one query."""

    sql: str
    """The text that they are of."""
    tokens: Sequence[str]
    words: Sequence[str]
    """The tokens in upper case."""
    numbers: Sequence[int] | None = None
    """Which of the text's tokens they are; None if they are all."""


class Expressions:
    """Reads tokens. Keywords are compared in upper case; what is in quotes keeps its quotes, so it is no keyword."""

    def __init__(self, text: QueryTokens, budget: Budget) -> None:
        self._sql = text.sql
        self._tokens = [*text.tokens, *_AFTER_THE_END]
        self._words = [*text.words, *_AFTER_THE_END]
        self._numbers = text.numbers
        """Of each token, which of the text's tokens it is; None if they are all of them."""
        self._budget = budget
        self._at = 0
        self._open = 0
        self._columns: dict[str, Column] = {}
        """Columns without quotes and qualifiers, by their names: a node may stand in many places."""
        self._num_items = 0
        self._num_joined = 0
        self._num_values = 0
        self.has_stages = False
        """Whether the query takes more than one SELECT over one table."""

    # Tokens

    def _takes(self, word: str) -> bool:
        """Whether this word follows, which is taken."""
        if self._words[self._at] != word:
            return False
        self._at += 1
        return True

    def _takes_all(self, *words: str) -> bool:
        """Whether these words follow, which are taken."""
        end = self._at + len(words)
        if self._words[self._at : end] != list(words):
            return False
        self._at = end
        return True

    def _takes_any(self, words: frozenset[str]) -> bool:
        if self._words[self._at] not in words:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if self._words[self._at] != word:
            raise self._error(f"expected {word}")
        self._at += 1

    def _next(self, ahead: int = 1) -> str:
        """The word after the one that follows."""
        return self._words[self._at + ahead] if self._words[self._at] else END

    def _error(self, problem: str, back: int = 0) -> SqlParseError:
        """A syntax error at the token that follows, or at the last one."""
        at = max(0, min(self._at, len(self._tokens) - 1 - len(_AFTER_THE_END)) - back)
        return error_at(self._sql, self._place(at), problem)

    def _place(self, at: int) -> int:
        return place_of(self._sql, at if self._numbers is None else self._numbers[at])

    def _touches(self, at: int) -> bool:
        """Whether nothing stands between a token and the one before it."""
        return self._place(at - 1) + len(self._tokens[at - 1]) == self._place(at)

    def _no_expression(self) -> SqlParseError:
        before, word = self._words[self._at - 1] if self._at else END, self._words[self._at]
        if before == "," and (word in _AFTER_EXPRESSION or not word):
            return self._error("expected an expression after the comma")
        if word == "," and before in _BEFORE_EXPRESSION:
            return self._error("expected an expression before the comma")
        return self._error("expected an expression")

    # Lists and parentheses

    def _list(self, item: Callable[[], T]) -> list[T]:
        items = [item()]
        while self._takes(","):
            self._num_items += 1
            if self._num_items > limits.MAX_ITEMS:
                raise too_many("expressions in SELECT, GROUP BY, ORDER BY and calls", limits.MAX_ITEMS)
            items.append(item())
        return items

    def _within(self, read: Callable[[], T]) -> T:
        """Read what stands in parentheses."""
        self._expect("(")
        self._deeper()
        found = read()
        self._open -= 1
        self._expect(")")
        return found

    def _deeper(self) -> None:
        self._open += 1
        if self._open > limits.MAX_NESTING:
            raise self._error(limits.TOO_DEEP, back=1)

    # Names

    def _name(self) -> str:
        return self._word_not_in(RESERVED)

    def _any_word(self) -> str:
        """A name where no keyword could stand."""
        return self._word_not_in(frozenset())

    def _word_not_in(self, reserved: frozenset[str]) -> str:
        if not self._is_word(reserved):
            raise self._error("expected a name")
        self._at += 1
        return self._text(self._at - 1)

    def _text(self, at: int) -> str:
        """A name, which is not as long as a page: messages would be, too."""
        text = text_in(self._tokens[at])
        if len(text) > limits.MAX_NAME_CHARS:
            raise SqlParseError(f"name too long starts={text[:20]} chars={len(text)} limit={limits.MAX_NAME_CHARS}")
        return text

    def _is_word(self, reserved: frozenset[str]) -> bool:
        first = self._tokens[self._at][:1]
        if first in _QUOTES and first:
            return True
        return _starts_name(first) and self._words[self._at] not in reserved and not self._is_hex_text()

    def _is_hex_text(self) -> bool:
        return self._tokens[self._at][1:2] == "'"

    def _names(self) -> list[str]:
        return self._within(lambda: self._list(self._name))

    # What expressions may hold of queries

    def _query(self) -> Query:
        """A query, which a parser of queries reads."""
        raise NotImplementedError

    def _subquery(self) -> Query:
        self.has_stages = True
        return self._query()

    def _order_by(self) -> list[Ordered]:
        """What follows ORDER BY."""
        return self._list(self._ordered)

    def _ordered(self) -> Ordered:
        value = self._expression()
        is_descending = False
        if not self._takes("ASC"):
            is_descending = self._takes("DESC")
        nulls_first = is_descending
        if self._takes("NULLS"):
            nulls_first = self._takes("FIRST")
            if not nulls_first and not self._takes("LAST"):
                raise self._error("expected FIRST or LAST")
        return Ordered(value, is_descending, nulls_first)

    def _starts_query(self) -> bool:
        """Whether a query begins here, perhaps in parentheses, and not an expression that begins with one."""
        at = self._at
        while self._words[at] == "(":
            at += 1
        if self._words[at] not in QUERY_STARTS:
            return False
        return at == self._at or self._is_query_to_the_end(at)

    def _is_query_to_the_end(self, start: int) -> bool:
        at, depth = start, start - self._at
        while depth and self._words[at]:
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            at += 1
        return self._words[at] == ")" or self._words[at] in SET_OPERATIONS or self._words[at] in _QUERY_ENDS

    # Conditions

    def _expression(self) -> Node:
        """Any expression."""
        first = self._conjunction()
        if self._words[self._at] != "OR":
            if self._words[self._at] == "XOR":
                raise UnsupportedSqlError("XOR")
            return first
        parts = [first]
        while self._words[self._at] == "OR":
            if not self._plain_run("OR", parts):
                self._at += 1
                self._join()
                parts.append(self._conjunction())
        return Or(parts)

    def _conjunction(self) -> Node:
        first = self._condition()
        if self._words[self._at] != "AND":
            return first
        parts = [first]
        while self._words[self._at] == "AND":
            if not self._plain_run("AND", parts):
                self._at += 1
                self._join()
                parts.append(self._condition())
        return And(parts)

    def _plain_run(self, word: str, parts: list[Node]) -> bool:
        """Read `OR column = constant` as often as it follows; whether it does at all. Most conditions of long texts are
        such, and take a third of the time."""
        before = len(parts)
        while self._words[self._at] == word:
            comparison = self._plain_comparison(self._at + 1)
            if comparison is None or (word == "OR" and self._words[self._at + 4] == "AND"):
                break
            self._budget.step()
            self._join()
            parts.append(comparison)
            self._at += 4
        return len(parts) > before

    def _plain_comparison(self, at: int) -> Node | None:
        """`column = constant` at a token, with nothing more after it; None for any other condition."""
        words = self._words
        function = _COMPARISONS.get(words[at + 1])
        if function is None or words[at + 3] not in _AFTER_COMPARISON:
            return None
        column = self._columns.get(self._tokens[at])
        if column is None:
            return None
        constant = self._tokens[at + 2]
        if constant.isdigit():
            return Comparison(function, column, Number(constant))
        return Comparison(function, column, Text(text_in(constant))) if constant[:1] == "'" else None

    def _join(self) -> None:
        """Count a condition that is joined to another."""
        self._num_joined += 1
        if self._num_joined > limits.MAX_PREDICATES:
            raise too_many("conditions joined by AND, OR and WHEN", limits.MAX_PREDICATES)

    def _condition(self) -> Node:
        self._budget.step()
        num_nots = 0
        while self._takes("NOT"):
            num_nots += 1
            if num_nots > MAX_RUN:
                raise self._error(limits.TOO_DEEP, back=1)
        found = self._test()
        for _ in range(num_nots):
            found = Not(found)
        return found

    def _test(self) -> Node:
        left = self._value()
        word = self._words[self._at]
        function = _COMPARISONS.get(word)
        if function is not None:
            self._at += 1
            found: Node = Comparison(function, left, self._right_side())
        elif word in _COMPARING or self._is_list():
            found = self._compared(left, word)
        else:
            return left
        word = self._words[self._at]
        if word in _COMPARISONS or word in _COMPARING or self._is_list():
            raise self._error("a comparison of a comparison needs parentheses")
        return found

    def _right_side(self) -> Node:
        """The right side of a comparison."""
        if self._words[self._at] not in _QUANTIFIERS or self._next() != "(":
            return self._value()
        is_all = self._words[self._at] == "ALL"
        self._at += 1
        return Quantified(is_all, self._within(self._query_of_quantifier))

    def _query_of_quantifier(self) -> Query:
        if not self._starts_query():
            raise UnsupportedSqlError("ANY and ALL of anything but a subquery")
        return self._subquery()

    def _is_list(self) -> bool:
        """Whether a long list of constants follows, its IN included."""
        return len(self._tokens[self._at]) > MIN_LIST_CHARS and self._words[self._at][:2] == "IN" and self._is_closed()

    def _is_closed(self) -> bool:
        return self._tokens[self._at][-1] == ")"

    def _compared(self, left: Node, word: str) -> Node:
        """What follows the left side of a comparison by words."""
        if word == "NOT":
            if self._next() == "NULL":
                self._at += 2
                return Not(IsNull(left))
            self._at += 1
            return self._negated(left)
        if self._is_list():
            return self._in_list(left)
        self._at += 1
        if word == "IS":
            return self._is(left)
        if word == "<=>":
            return Distinct(left, self._right_side(), is_same=True)
        if word == "ISNULL":
            return IsNull(left)
        if word == "NOTNULL":
            return Not(IsNull(left))
        return self._range(left, word)

    def _negated(self, left: Node) -> Node:
        """What follows `a NOT`."""
        if self._is_list():
            return Not(self._in_list(left))
        word = self._words[self._at]
        self._at += 1
        found = self._range(left, word)
        if isinstance(found, Like):
            found.is_negated = True
            return found
        return Not(found)

    def _range(self, left: Node, word: str) -> Node:
        """What follows BETWEEN, IN or LIKE."""
        if word == "BETWEEN":
            is_symmetric = self._takes("SYMMETRIC")
            if not is_symmetric:
                self._takes("ASYMMETRIC")
            low = self._value()
            self._expect("AND")
            return Between(left, low, self._value(), is_symmetric)
        if word == "IN":
            return self._in(left)
        if word == "ILIKE":
            raise UnsupportedSqlError("ILIKE")
        if word != "LIKE":
            self._at -= 1
            raise self._error("expected BETWEEN, IN or LIKE after NOT")
        if self._words[self._at] in _QUANTIFIERS and self._next() == "(":
            raise UnsupportedSqlError(f"LIKE {self._words[self._at]}")
        pattern = self._value()
        return Like(left, pattern, self._value() if self._takes("ESCAPE") else None)

    def _in(self, left: Node) -> Node:
        if self._words[self._at] != "(":
            self._value()
            raise UnsupportedSqlError("IN without values in parentheses")
        if self._next() == ")":
            raise SqlParseError("IN needs at least one value")
        self._at += 1
        if self._starts_query():
            self._at -= 1
            return InQuery(left, self._within(self._subquery))
        self._deeper()
        items = [self._expression()]
        while self._takes(","):
            items.append(self._expression())
        self._open -= 1
        self._expect(")")
        self._count_values(len(items))
        return In(left, items)

    def _in_list(self, left: Node) -> Node:
        self._budget.look()
        constants = constants_in(self._tokens[self._at])
        self._at += 1
        self._count_values(len(constants.values))
        return In(left, [constants])

    def _count_values(self, number: int) -> None:
        self._num_values += number
        if self._num_values > limits.MAX_IN_VALUES:
            raise too_many("values in IN", limits.MAX_IN_VALUES, self._num_values)

    def _is(self, left: Node) -> Node:
        is_negated = self._takes("NOT")
        if self._takes_all("DISTINCT", "FROM"):
            return Distinct(left, self._value(), is_same=is_negated)
        word = self._words[self._at]
        if word in ("NULL", "UNKNOWN"):
            found: Node = IsNull(left)
        elif word in ("TRUE", "FALSE"):
            found = IsTruth(left, word == "TRUE")
        else:
            raise self._error("expected NULL, TRUE, FALSE or DISTINCT FROM after IS")
        self._at += 1
        return Not(found) if is_negated else found

    # Values

    def _value(self) -> Node:
        """An operand of comparisons."""
        left = self._operand()
        if self._words[self._at] not in _OPERATIONS:
            if self._words[self._at] in _NO_OPERATORS or self._words[self._at] == "AT":
                self._refuse_operator()
            return left
        return self._operations(left, 0)

    def _operations(self, left: Node, lowest: int) -> Node:
        """The operators that follow an operand and bind at least as tightly as `lowest`."""
        num_operators = 0
        while (operation := _OPERATIONS.get(self._words[self._at])) is not None and operation[0] >= lowest:
            precedence, function = operation
            num_operators += 1
            if num_operators > MAX_CHAIN:
                raise SqlParseError(f"expression nested deeper than {MAX_CHAIN} levels")
            self._at += 1
            right = self._operand()
            following = _OPERATIONS.get(self._words[self._at])
            if following is not None and following[0] > precedence:
                right = self._operations(right, following[0])
            left = Operation(function, left, right)
        if operation is None and (self._words[self._at] in _NO_OPERATORS or self._words[self._at] == "AT"):
            self._refuse_operator()
        return left

    def _refuse_operator(self) -> None:
        word = self._words[self._at]
        if word == "AT":
            if self._words[self._at : self._at + 3] == ["AT", "TIME", "ZONE"]:
                raise UnsupportedSqlError("AT TIME ZONE: write TODATETIME")
        elif word != "XOR":
            raise UnsupportedSqlError(_NO_OPERATORS[word])

    def _operand(self) -> Node:
        word = self._words[self._at]
        if word == "-" or word == "+" or word == "~":
            return self._signed()
        return self._primary(word)

    def _signed(self) -> Node:
        num_minuses = num_signs = 0
        while (sign := self._words[self._at]) in ("-", "+", "~"):
            if sign == "~":
                raise UnsupportedSqlError(_NO_OPERATORS["~"])
            num_minuses += sign == "-"
            num_signs += 1
            if num_signs > MAX_RUN:
                raise self._error(limits.TOO_DEEP)
            self._at += 1
        found = self._primary(self._words[self._at])
        for _ in range(num_minuses):
            found = Negative(found)
        return found

    def _primary(self, word: str) -> Node:
        token = self._tokens[self._at]
        first = token[:1]
        following = self._words[self._at + 1] if word else END
        found: Node
        if first in _DIGITS and first:
            found = self._number(token)
        elif first == "'":
            found = self._string(token)
        elif (special := _SPECIAL.get(word)) is not None and (word not in _CALLED or following == "("):
            self._at += 1
            found = special(self)
        elif first in _NAME_STARTS or first in _QUOTES or _starts_name(first):
            found = self._named(token, word, following)
        else:
            raise self._no_expression()
        while self._words[self._at] == "[":
            self._at += 1
            found = self._element(found)
        return found

    def _number(self, token: str) -> Node:
        self._at += 1
        return HexText(token[2:]) if token[1:2] in "xX" and len(token) > 1 else Number(token)

    def _string(self, token: str) -> Node:
        self._at += 1
        if self._tokens[self._at][:1] == "'":
            raise self._error("expected an operator between texts")
        return Text(token[1:-1].replace("''", "'") if "''" in token else token[1:-1])

    def _named(self, token: str, word: str, following: str) -> Node:
        """A column, a call, or what begins as one."""
        if following == "(" and word not in STRUCTURE:
            self._at += 1
            return self._call(self._text(self._at - 1))
        if following[:1] == "'" and word in TYPED_TEXTS:
            self._at += 1
            return Cast(self._string(self._tokens[self._at]), word)
        if token[1:2] == "'":
            return self._hex_text(token)
        if word in RESERVED:
            raise self._no_expression()
        if following == ".":
            return self._path()
        if following[:1] == "'" or following == "&":
            self._refuse_prefix(word)
        self._at += 1
        if token[0] in _QUOTES:
            return Column(self._text(self._at - 1), "", is_quoted=True)
        column = self._columns.get(token)
        if column is None:
            column = self._columns[token] = Column(self._text(self._at - 1))
        return column

    def _hex_text(self, token: str) -> Node:
        digits = token[2:-1]
        try:
            int(digits or "0", 16)
        except ValueError:
            raise self._error("expected hexadecimal digits between the quotes") from None
        self._at += 1
        return HexText(digits)

    def _refuse_prefix(self, word: str) -> None:
        """Refuse `N'text'` and its like."""
        at = self._at + 1
        if word == "U" and self._tokens[at] == "&" and self._tokens[at + 1][:1] == "'":
            raise UnsupportedSqlError("U&'…': write the characters themselves")
        if self._tokens[at][:1] == "'" and self._touches(at):
            how = "write '…'" if word == "N" else "write a text, or bytes as X'…'"
            raise UnsupportedSqlError(f"{word[:20]}'…': {how}")

    def _path(self) -> Node:
        """`a.b.c`, `a.*`"""
        is_quoted = False
        names = [self._text(self._at)]
        self._at += 1
        while self._takes("."):
            if self._takes("*"):
                return Star(_qualifier(names))
            is_quoted = self._tokens[self._at][:1] in _QUOTES
            names.append(self._any_word())
        if self._words[self._at] == "(":
            raise UnsupportedSqlError("a name of such parts")
        return Column(names[-1], _qualifier(names[:-1]), is_quoted)

    def _element(self, subject: Node) -> Node:
        """`1]`"""
        places = self._list(self._expression)
        if self._words[self._at] == ":":
            raise UnsupportedSqlError("a part of a list ([a:b])")
        self._expect("]")
        return Element(subject, places)

    # Calls

    def _call(self, name: str) -> Node:
        """Arguments, and what may stand after them."""
        word, instead = _WORDS_IN_CALLS.get(name.upper(), ("", ""))
        if word:
            self._refuse_word(name, word, instead)
        return self._call_ends(self._within(lambda: self._arguments(name)))

    def _call_ends(self, call: Node) -> Node:
        found = call
        if self._takes_all("WITHIN", "GROUP"):
            found = WithinGroup(found, self._within(self._order_of_group))
        if self._takes("FILTER"):
            found = Filter(found, self._within(self._filter))
        found = self._nulls_treated(found)
        if self._takes("OVER"):
            self.has_stages = True
            if self._words[self._at] == "(":
                return Window(found, self._within(self._window))
            return Window(found, WindowDefinition(self._name()))
        return found

    def _refuse_word(self, name: str, word: str, instead: str) -> None:
        """Refuse SQL's `FLOOR(at TO DAY)`: it has the word between its parentheses."""
        at, depth = self._at, 0
        while self._words[at]:
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            if not depth:
                return
            if depth == 1 and self._words[at] == word:
                raise UnsupportedSqlError(f"{name.upper()}(… {word} …): write {instead}")
            at += 1

    def _order_of_group(self) -> list[Ordered]:
        self._expect("ORDER")
        self._expect("BY")
        return self._order_by()

    def _filter(self) -> Node:
        self._expect("WHERE")
        return self._expression()

    def _nulls_treated(self, call: Node) -> Node:
        if self._words[self._at] in _TREATMENTS and self._next() == "NULLS":
            self._at += 2
            return NullsTreated(call, self._words[self._at - 2] == "IGNORE")
        return call

    def _arguments(self, name: str) -> Node:
        if self._words[self._at] == ")":
            return Call(name, ())
        if self._words[self._at] == "*" and self._next() == ")":
            self._at += 1
            return Call(name, [Star()])
        is_distinct = self._takes("DISTINCT")
        if not is_distinct and self._words[self._at] == "ALL" and self._next() != "(":
            self._at += 1
        if self._starts_query():
            raise UnsupportedSqlError("subquery")
        call = Call(name, self._list(self._expression), is_distinct)
        if self._takes_all("ORDER", "BY"):
            raise UnsupportedSqlError(f"ORDER BY in {name.upper()}")
        return self._nulls_treated(call)

    # Windows

    def _window(self) -> WindowDefinition:
        found = WindowDefinition()
        starts = self._words[self._at : self._at + 2]
        if starts[0] not in _FRAMES and starts not in (["PARTITION", "BY"], ["ORDER", "BY"]) and starts[0] != ")":
            found.name = self._name()
        if self._takes_all("PARTITION", "BY"):
            found.partition_by = self._list(self._expression)
        if self._takes_all("ORDER", "BY"):
            found.order = self._order_by()
        if self._words[self._at] in _FRAMES:
            found.frame = self._frame()
        return found

    def _frame(self) -> Frame:
        kind = self._words[self._at]
        self._at += 1
        end = FrameBound("CURRENT ROW")
        if self._takes("BETWEEN"):
            start = self._bound()
            self._expect("AND")
            end = self._bound()
        else:
            start = self._bound()
        return Frame(kind, start, end, self._left_out() if self._takes("EXCLUDE") else "")

    def _left_out(self) -> str:
        for words in (("CURRENT", "ROW"), ("NO", "OTHERS"), ("GROUP",), ("TIES",)):
            if self._takes_all(*words):
                return " ".join(words)
        raise self._error("expected CURRENT ROW, GROUP, TIES or NO OTHERS")

    def _bound(self) -> FrameBound:
        if self._takes_all("CURRENT", "ROW"):
            return FrameBound("CURRENT ROW")
        is_unbounded = self._takes("UNBOUNDED")
        distance = None if is_unbounded else self._value()
        side = self._words[self._at]
        if side not in ("PRECEDING", "FOLLOWING"):
            raise self._error("expected PRECEDING or FOLLOWING")
        self._at += 1
        return FrameBound(f"UNBOUNDED {side}" if is_unbounded else side, distance)

    # Expressions with words of their own, after their first one

    def _parenthesis(self) -> Node:
        self._at -= 1
        return self._within(self._in_parenthesis)

    def _in_parenthesis(self) -> Node:
        if self._starts_query():
            query = self._subquery()
            return query if isinstance(query, Subquery) and not query.order else Subquery(query)
        items = self._list(self._expression)
        return Paren(items[0]) if len(items) == 1 else Row(items)

    def _case(self) -> Node:
        self._deeper()
        subject = self._expression() if self._words[self._at] != "WHEN" else None
        self._expect("WHEN")
        branches = [self._branch()]
        while self._takes("WHEN"):
            self._join()
            branches.append(self._branch())
        default = self._expression() if self._takes("ELSE") else None
        self._expect("END")
        self._open -= 1
        return Case(subject, branches, default)

    def _branch(self) -> tuple[Node, Node]:
        test = self._expression()
        self._expect("THEN")
        return test, self._expression()

    def _try_cast(self) -> Node:
        raise UnsupportedSqlError("TRY_CAST: write CAST")

    def _cast(self) -> Node:
        self._expect("(")
        self._deeper()
        operand = self._expression()
        self._expect("AS")
        found = Cast(operand, self._type())
        self._open -= 1
        self._expect(")")
        return found

    def _type(self) -> str:
        """Its words, without lengths in parentheses."""
        if not self._is_word(STRUCTURE) or self._tokens[self._at][0] in _QUOTES:
            raise self._error("expected a type")
        name = self._words[self._at]
        self._at += 1
        if self._words[self._at] == "(":
            self._within(lambda: self._list(self._value))
        for words in _TYPE_ENDS:
            if self._takes_all(*words):
                name = " ".join([name, *words])
        if self._words[self._at] in ("<", "["):
            raise UnsupportedSqlError(f"type {name}{self._words[self._at]}…")
        if self._words[self._at] == "(":
            self._within(lambda: self._list(self._value))
        return TYPES.get(name, name)

    def _extract(self) -> Node:
        self._expect("(")
        field = self._any_word()
        self._expect("FROM")
        self._deeper()
        found = Extract(field, self._expression())
        self._open -= 1
        self._expect(")")
        return found

    def _trim(self) -> Node:
        """`TRIM(LEADING 'x' FROM a)` is `LTRIM(a, 'x')`; a column may be called LEADING."""
        return self._call_ends(self._within(lambda name=self._text(self._at - 1): self._trim_arguments(name)))

    def _trim_arguments(self, name: str) -> Node:
        args: list[Node] = []
        if self._words[self._at] in _TRIMS and self._next() not in (")", ",", "."):
            name = _TRIMS[self._words[self._at]]
            self._at += 1
        if self._words[self._at] not in ("FROM", ")"):
            args = self._list(self._expression)
        if self._takes("FROM"):
            args = [self._value(), *args]
        return Call(name, args)

    def _substring(self) -> Node:
        """`SUBSTRING(a FROM 2 FOR 3)` is `SUBSTRING(a, 2, 3)`."""
        return self._call_ends(self._within(lambda name=self._text(self._at - 1): self._substring_arguments(name)))

    def _substring_arguments(self, name: str) -> Node:
        args = self._list(self._expression) if self._words[self._at] != ")" else []
        if self._takes("FROM"):
            args.append(self._value())
        if self._takes("FOR"):
            args += [*([Number("1")] if len(args) == 1 else []), self._value()]
        return Call(name, args)

    def _exists(self) -> Node:
        return Exists(self._within(self._query_of_exists))

    def _query_of_exists(self) -> Query:
        if not self._starts_query():
            raise self._error("expected a query")
        return self._subquery()

    def _interval(self) -> Node:
        """`INTERVAL` as a name; `INTERVAL '1' DAY` is refused."""
        token = self._tokens[self._at]
        if token[:1] in _DIGITS or token[:1] in ("'", "(") or self._is_word(RESERVED):
            raise UnsupportedSqlError("INTERVAL: write TIMESTAMPADD")
        self._at -= 1
        if self._next() == ".":
            return self._path()
        self._at += 1
        return Column(self._text(self._at - 1))

    def _array(self) -> Node:
        if self._words[self._at] == "(":
            return self._call(self._text(self._at - 1))
        self._expect("[")
        return self._brackets()

    def _brackets(self) -> Node:
        if self._takes("]"):
            return Array(())
        items = self._list(self._expression)
        self._expect("]")
        return Array(items)

    def _fraction(self) -> Node:
        """`.5`"""
        token = self._tokens[self._at]
        if not token[:1].isdigit() or "." in token:
            raise self._error("expected digits after the point")
        self._at += 1
        return Number(f"0.{token}")

    def _null(self) -> Node:
        return Null()

    def _true(self) -> Node:
        return Boolean(value=True)

    def _false(self) -> Node:
        return Boolean(value=False)

    def _placeholder(self) -> Node:
        raise UnsupportedSqlError("query parameter (?)")

    def _parameter(self) -> Node:
        raise UnsupportedSqlError("query parameter (@)")


def too_many(what: str, limit: int, got: int | None = None) -> SqlValidationError:
    """An error of a text that has too much of something."""
    return SqlValidationError(f"too many {what} got={limit + 1 if got is None else got} limit={limit}")


def _starts_name(first: str) -> bool:
    return first in _NAME_STARTS or (first > "\x7f" and first.isalpha())


def _qualifier(names: list[str]) -> str:
    """What stands before a column's name, without the name of the only database."""
    return ".".join(names[1:] if names[:1] == ["default"] else names)


_SPECIAL: Final[dict[str, Callable[[Expressions], Node]]] = {
    "(": Expressions._parenthesis,
    "CASE": Expressions._case,
    "CAST": Expressions._cast,
    "TRY_CAST": Expressions._try_cast,
    "EXTRACT": Expressions._extract,
    "TRIM": Expressions._trim,
    "SUBSTRING": Expressions._substring,
    "EXISTS": Expressions._exists,
    "INTERVAL": Expressions._interval,
    "ARRAY": Expressions._array,
    "[": Expressions._brackets,
    ".": Expressions._fraction,
    "@": Expressions._parameter,
    ":": Expressions._placeholder,
    "?": Expressions._placeholder,
    "NULL": Expressions._null,
    "TRUE": Expressions._true,
    "FALSE": Expressions._false,
}

"""Parse expressions from tokens to nodes: a method for each level of SQL's grammar. Pure and safe on any thread.

Parts of SQL that are not supported are refused by name; everything else that does not fit is a syntax error.
Recursion is as deep as parentheses, CASEs and signs, which are limited.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from merlot.sql import limits
from merlot.sql.keywords import CALLED_FORMS, FORMS, QUERY_STARTS, RESERVED, SET_OPERATIONS, STRUCTURE, TYPED_TEXTS
from merlot.sql.lexer import END, constants_in, is_list, text_in
from merlot.sql.syntax import (
    And,
    Between,
    Cast,
    Column,
    Comparison,
    Distinct,
    Element,
    HexText,
    In,
    InQuery,
    IsNull,
    IsTruth,
    Like,
    Negative,
    Node,
    Not,
    Number,
    Operation,
    Or,
    Ordered,
    Quantified,
    Query,
    Star,
    Text,
)
from merlot.sql.token_reader import NAME_STARTS, QUOTES, TokenReader, qualifier_of, starts_name, too_many
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError

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
"""Precedence of an operator, and its function; a higher precedence binds more tightly."""
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
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_COLLECTIONS: Final = frozenset({"MAP", "MULTISET"})
_QUANTIFIERS: Final = frozenset({"ANY", "ALL", "SOME"})
_QUERY_ENDS: Final = frozenset({"ORDER", "LIMIT", "OFFSET", "FETCH"})
_AFTER_COMPARISON: Final = frozenset({"AND", "OR", "GROUP", "HAVING", "LIMIT", "ORDER", "THEN", ")", ",", END})


class ExpressionParser(TokenReader):
    """Parses conditions and values."""

    # Queries, forms and calls within expressions

    def _query(self) -> Query:
        """Read a query. `Parser` implements it."""
        raise NotImplementedError

    def _form(self, word: str) -> Node:
        """Read the expression after a keyword of `FORMS`. `FormParser` implements it."""
        raise NotImplementedError

    def _call(self, name: str) -> Node:
        """Read the arguments of a call, and the clauses after them. `FormParser` implements it."""
        raise NotImplementedError

    def _subquery(self) -> Query:
        self.has_stages = True
        return self._query()

    def _order_by(self) -> list[Ordered]:
        """Read the keys after ORDER BY."""
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
        """Return True if a query begins here, perhaps in parentheses, rather than an expression that begins with a
        query."""
        at = self._at
        while self._words[at] == "(":
            at += 1
        if self._words[at] not in QUERY_STARTS:
            return False
        if at == self._at:
            return True
        after = self._words[self._end_of(self._at)]
        return after == ")" or after in SET_OPERATIONS or after in _QUERY_ENDS

    def _end_of(self, opening: int) -> int:
        """Return the position after the parenthesis at `opening`; the end of the text if nothing closes it."""
        if self._ends is None:
            self._ends = _ends_of(self._words)
        return self._ends.get(opening, len(self._words) - 1)

    # Conditions

    def _expression(self) -> Node:
        """Read any expression."""
        first = self._conjunction()
        if self._words[self._at] != "OR":
            if self._words[self._at] == "XOR":
                raise UnsupportedSqlError("XOR")
            return first
        parts = [first]
        while self._words[self._at] == "OR":
            if not self._plain_run("OR", parts):
                self._at += 1
                self._count_condition()
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
                self._count_condition()
                parts.append(self._condition())
        return And(parts)

    def _plain_run(self, word: str, parts: list[Node]) -> bool:
        """Read `OR column = constant` (or AND) as often as it follows; return True if it follows at all. Most
        conditions of long texts have this form, and take a third of the time this way."""
        before = len(parts)
        while self._words[self._at] == word:
            comparison = self._plain_comparison(self._at + 1)
            if comparison is None or (word == "OR" and self._words[self._at + 4] == "AND"):
                break
            self._budget.step()
            self._count_condition()
            parts.append(comparison)
            self._at += 4
        return len(parts) > before

    def _plain_comparison(self, at: int) -> Node | None:
        """Return the condition at a token if it is `column = constant` and nothing more; None for any other."""
        words = self._words
        function = _COMPARISONS.get(words[at + 1])
        if function is None or words[at + 3] not in _AFTER_COMPARISON:
            return None
        column = self._columns.get(self._tokens[at])
        if column is None:
            return None
        constant = self._tokens[at + 2]
        if constant.isascii() and constant.isdigit():
            return Comparison(function, column, Number(constant))
        return Comparison(function, column, Text(text_in(constant))) if constant[:1] == "'" else None

    def _count_condition(self) -> None:
        """Count a condition that AND, OR or WHEN adds."""
        self._num_joined += 1
        if self._num_joined > limits.MAX_PREDICATES:
            raise too_many("conditions joined by AND, OR and WHEN", limits.MAX_PREDICATES)

    def _condition(self) -> Node:
        self._budget.step()
        num_nots = 0
        while self._takes("NOT"):
            num_nots += 1
            if num_nots > limits.MAX_RUN:
                raise self._error(limits.TOO_DEEP, back=1)
        node = self._test()
        for _ in range(num_nots):
            node = Not(node)
        return node

    def _test(self) -> Node:
        left = self._value()
        word = self._words[self._at]
        function = _COMPARISONS.get(word)
        if function is not None:
            self._at += 1
            node: Node = Comparison(function, left, self._right_side())
        elif word in _COMPARING or is_list(self._tokens[self._at]):
            node = self._compared(left, word)
        else:
            return left
        word = self._words[self._at]
        if word in _COMPARISONS or word in _COMPARING or is_list(self._tokens[self._at]):
            raise self._error("a comparison of a comparison needs parentheses")
        return node

    def _right_side(self) -> Node:
        """Read the right side of a comparison."""
        if self._words[self._at] not in _QUANTIFIERS or self._next() != "(":
            return self._value()
        is_all = self._words[self._at] == "ALL"
        self._at += 1
        return Quantified(is_all, self._within(self._query_of_quantifier))

    def _query_of_quantifier(self) -> Query:
        if not self._starts_query():
            raise UnsupportedSqlError("ANY and ALL of anything but a subquery")
        return self._subquery()

    def _compared(self, left: Node, word: str) -> Node:
        """Read the rest of a comparison by keywords, after its left side."""
        if word == "NOT":
            if self._next() == "NULL":
                self._at += 2
                return Not(IsNull(left))
            self._at += 1
            return self._negated(left)
        if is_list(self._tokens[self._at]):
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
        """Read the condition after `a NOT`."""
        if is_list(self._tokens[self._at]):
            return Not(self._in_list(left))
        word = self._words[self._at]
        self._at += 1
        node = self._range(left, word)
        if isinstance(node, Like):
            node.is_negated = True
            return node
        return Not(node)

    def _range(self, left: Node, word: str) -> Node:
        """Read the operands of BETWEEN, IN or LIKE."""
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
            node: Node = IsNull(left)
        elif word in ("TRUE", "FALSE"):
            node = IsTruth(left, word == "TRUE")
        else:
            raise self._error("expected NULL, TRUE, FALSE or DISTINCT FROM after IS")
        self._at += 1
        return Not(node) if is_negated else node

    # Values

    def _value(self) -> Node:
        """Read an operand of a comparison."""
        left = self._operand()
        if self._words[self._at] not in _OPERATIONS:
            if self._words[self._at] in _NO_OPERATORS or self._words[self._at] == "AT":
                self._refuse_operator()
            return left
        return self._operations(left, 0)

    def _operations(self, left: Node, lowest: int) -> Node:
        """Read the operators after an operand that bind at least as tightly as `lowest`."""
        num_operators = 0
        while (operation := _OPERATIONS.get(self._words[self._at])) is not None and operation[0] >= lowest:
            precedence, function = operation
            num_operators += 1
            if num_operators > limits.MAX_CHAIN:
                raise SqlParseError(f"expression nested deeper than {limits.MAX_CHAIN} levels")
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
            if num_signs > limits.MAX_RUN:
                raise self._error(limits.TOO_DEEP)
            self._at += 1
        node = self._primary(self._words[self._at])
        for _ in range(num_minuses):
            node = Negative(node)
        return node

    def _primary(self, word: str) -> Node:
        token = self._tokens[self._at]
        first = token[:1]
        following = self._words[self._at + 1] if word else END
        node: Node
        if first in _DIGITS and first:
            node = self._number(token)
        elif first == "'":
            node = self._string(token)
        elif word in FORMS and (following == "(" or word not in CALLED_FORMS):
            self._at += 1
            node = self._form(word)
        elif first in NAME_STARTS or first in QUOTES or starts_name(first):
            node = self._named(token, word, following)
        else:
            raise self._no_expression()
        while self._words[self._at] == "[":
            self._at += 1
            node = self._element(node)
        return node

    def _number(self, token: str) -> Node:
        self._at += 1
        return HexText(token[2:]) if token[1:2] in "xX" and len(token) > 1 else Number(token)

    def _string(self, token: str) -> Node:
        self._at += 1
        if self._tokens[self._at][:1] == "'":
            raise self._error("expected an operator between texts")
        return Text(token[1:-1].replace("''", "'") if "''" in token else token[1:-1])

    def _named(self, token: str, word: str, following: str) -> Node:
        """Read a column, a call, or a form that begins like one."""
        if following == "(" and word not in STRUCTURE:
            self._at += 1
            return self._call(self._text(self._at - 1))
        if following[:1] == "'" and word in TYPED_TEXTS:
            self._at += 1
            return self._typed_text(word)
        if token[1:2] == "'":
            return self._hex_text(token)
        if word in RESERVED or is_list(token):
            raise self._no_expression()
        if following == ".":
            return self._path()
        if following[:1] == "'" or following == "&":
            self._refuse_prefix(word)
        self._at += 1
        if token[0] in QUOTES:
            return Column(self._text(self._at - 1), "", is_quoted=True, token=self._number_of(self._at - 1))
        column = self._columns.get(token)
        if column is None:
            column = self._columns[token] = Column(self._text(self._at - 1), token=self._number_of(self._at - 1))
        return column

    def _typed_text(self, type_: str) -> Node:
        """Read the text of `TIMESTAMP '…'`, or of `DATE '…'`, the TIMESTAMP at which that day begins."""
        if type_ == "TIME":
            raise UnsupportedSqlError("TIME '…': write TIMESTAMP '…'")
        text = self._string(self._tokens[self._at])
        if type_ != "DATE":
            return Cast(text, type_)
        assert isinstance(text, Text)
        if _DATE.fullmatch(text.value) is None:
            raise SqlValidationError(f"a date is written as 2020-01-31, not {text.value[:40]}")
        return Cast(text, "TIMESTAMP")

    def _hex_text(self, token: str) -> Node:
        digits = token[2:-1]
        try:
            int(digits or "0", 16)
        except ValueError:
            raise self._error("expected hexadecimal digits between the quotes") from None
        self._at += 1
        return HexText(digits)

    def _refuse_prefix(self, word: str) -> None:
        """Refuse `N'text'` and the like."""
        at = self._at + 1
        if word == "U" and self._tokens[at] == "&" and self._tokens[at + 1][:1] == "'":
            raise UnsupportedSqlError("U&'…': write the characters themselves")
        if self._tokens[at][:1] == "'" and self._touches(at):
            how = "write '…'" if word == "N" else "write a text, or bytes as X'…'"
            raise UnsupportedSqlError(f"{word[:20]}'…': {how}")

    def _path(self) -> Node:
        """Read `a.b.c` or `a.*`."""
        is_quoted = False
        names = [self._text(self._at)]
        token = self._number_of(self._at)
        self._at += 1
        while self._takes("."):
            if self._takes("*"):
                return Star(qualifier_of(names))
            is_quoted = self._tokens[self._at][:1] in QUOTES
            names.append(self._any_word())
        if self._words[self._at] == "(":
            raise UnsupportedSqlError("a name of such parts")
        return Column(names[-1], qualifier_of(names[:-1]), is_quoted, token)

    def _element(self, subject: Node) -> Node:
        """Read the rest of `list[1]` after its opening bracket."""
        self._deeper()
        indexes = self._list(self._expression)
        if len(indexes) > 1 and isinstance(subject, Column) and subject.name.upper() in _COLLECTIONS:
            raise UnsupportedSqlError(f"{subject.name.upper()}[…]")
        self._open -= 1
        if self._words[self._at] == ":":
            raise UnsupportedSqlError("a part of a list ([a:b])")
        self._expect("]")
        return Element(subject, indexes)


def _ends_of(words: Sequence[str]) -> dict[int, int]:
    """Map each opening parenthesis that is closed to the position after the closing one."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for at, word in enumerate(words):
        if word == "(":
            opened.append(at)
        elif word == ")" and opened:
            ends[opened.pop()] = at + 1
    return ends

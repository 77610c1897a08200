"""The grammar of expressions, over a text's tokens: what `grammar` knows of them. Pure and safe on any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot.tokenizer_core import Token

from merlot.sql import syntax_errors
from merlot.sql.budget import Budget
from merlot.sql.grammar_words import (
    BINARY,
    COMPARISONS,
    END,
    NUMBER,
    QUERY_STARTS,
    QUOTED,
    RESERVED,
    ROWS,
    SET_OPERATIONS,
    STRING,
    STRUCTURE,
    TYPED_TEXTS,
    words_of,
)
from merlot.tree.errors import SqlParseError, UnsupportedSqlError


class Expressions:
    """Reads tokens by their words: keywords in upper case, `NUMBER`, `STRING` and `QUOTED` for what is none."""

    def __init__(self, tokens: Sequence[Token], sql: str, budget: Budget) -> None:
        self._tokens = tokens
        self._sql = sql
        self._budget = budget
        self._words = words_of(tokens)
        self._at = 0

    # Tokens

    def _next(self, ahead: int = 1) -> str:
        return self._words[self._at + ahead]

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
        if not self._takes(word):
            raise self._error(f"expected {word}")

    def _error(self, problem: str) -> SqlParseError:
        place = min(self._at, len(self._tokens) - 1)
        return syntax_errors.at(self._sql, self._tokens[place].start, problem)

    def _list(self, item: Callable[[], None]) -> None:
        item()
        while self._takes(","):
            item()

    def _within(self, read: Callable[[], None]) -> None:
        """Read what stands in parentheses."""
        self._expect("(")
        read()
        self._expect(")")

    def _skip_parentheses(self) -> None:
        """Skip what no query here can have, up to its closing parenthesis: binding refuses it by name."""
        self._expect("(")
        depth = 1
        while depth and self._words[self._at] != END:
            depth += {"(": 1, ")": -1}.get(self._words[self._at], 0)
            self._at += 1

    # Names

    def _path(self) -> None:
        """`a.b.c`"""
        self._name()
        while self._takes("."):
            self._any_word()

    def _any_word(self) -> None:
        """A name where no keyword could stand."""
        if not self._is_word(frozenset()):
            raise self._error("expected a name")
        self._at += 1

    def _names(self) -> None:
        self._within(lambda: self._list(self._name))

    def _name(self) -> None:
        if not self._is_word(RESERVED):
            raise self._error("expected a name")
        self._at += 1

    def _is_word(self, reserved: frozenset[str]) -> bool:
        word = self._words[self._at]
        return word == QUOTED or ((word[:1].isalpha() or word[:1] in "_$") and word not in reserved and word != END)

    # What expressions may hold of queries

    def _query(self) -> None:
        """A query, which a grammar of queries reads."""
        raise NotImplementedError

    def _ordering(self) -> None:
        """ORDER BY, and LIMIT, OFFSET and FETCH after it, in any order of theirs."""
        if self._takes("ORDER BY"):
            self._list(self._ordered)
        while True:
            if self._takes("LIMIT"):
                if not self._takes("ALL"):
                    self._value()
                if self._takes(","):
                    self._value()
            elif self._takes("OFFSET"):
                self._value()
                self._takes_any(ROWS)
            elif self._takes("FETCH"):
                self._fetch()
            else:
                return

    def _ordered(self) -> None:
        self._condition()
        if not self._takes("ASC"):
            self._takes("DESC")
        if self._takes("NULLS") and not (self._takes("FIRST") or self._takes("LAST")):
            raise self._error("expected FIRST or LAST")

    def _fetch(self) -> None:
        if not (self._takes("FIRST") or self._takes("NEXT")):
            raise self._error("expected FIRST or NEXT")
        if self._words[self._at] not in ROWS:
            self._value()
            self._takes("PERCENT")
        if not self._takes_any(ROWS):
            raise self._error("expected ROWS")
        if not (self._takes("ONLY") or self._takes_all("WITH", "TIES")):
            raise self._error("expected ONLY")

    # Expressions

    def _condition(self) -> None:
        """Any expression."""
        self._test()
        while self._takes_any(_CONNECTORS):
            self._test()

    def _test(self) -> None:
        self._budget.step()
        while self._takes("NOT"):
            pass
        self._value()
        if not self._compared():
            return
        second = self._at
        if self._compared():
            self._at = second
            raise self._error("a comparison of a comparison needs parentheses")

    def _compared(self) -> bool:
        """Whether a comparison follows, which is read."""
        if self._words[self._at] not in _COMPARING:
            return False
        if self._takes_any(COMPARISONS):
            self._operand()
            return True
        if self._takes("IS"):
            self._is_what()
            return True
        if self._takes("ISNULL") or self._takes("NOTNULL") or self._takes_all("NOT", "NULL"):
            return True
        self._takes("NOT")
        if self._takes("BETWEEN"):
            self._between()
        elif self._takes("IN"):
            self._in()
        elif self._takes("LIKE") or self._takes("ILIKE"):
            self._operand()
            if self._takes("ESCAPE"):
                self._value()
        else:
            raise self._error("expected BETWEEN, IN or LIKE after NOT")
        return True

    def _operand(self) -> None:
        """The right side of a comparison."""
        if self._words[self._at] in _QUANTIFIERS and self._next() == "(":
            self._at += 1
            self._in()
        else:
            self._value()

    def _is_what(self) -> None:
        self._takes("NOT")
        if self._takes_all("DISTINCT", "FROM"):
            self._value()
        elif not self._takes_any(_TRUTHS):
            raise self._error("expected NULL, TRUE, FALSE or DISTINCT FROM after IS")

    def _between(self) -> None:
        if not self._takes("SYMMETRIC"):
            self._takes("ASYMMETRIC")
        self._value()
        self._expect("AND")
        self._value()

    def _in(self) -> None:
        if self._takes_all("(", ")"):  # a list that was cut out; binding refuses an empty one
            return
        if self._words[self._at] == "(":
            self._within(self._query_or_list)
        else:
            self._value()

    def _query_or_list(self) -> None:
        if self._is_query():
            self._query()
        else:
            self._list(self._condition)

    def _is_query(self) -> bool:
        at = self._at
        while self._words[at] == "(":
            at += 1
        if self._words[at] not in QUERY_STARTS:
            return False
        return at == self._at or self._is_query_to_the_end(at)

    def _is_query_to_the_end(self, start: int) -> bool:
        """Whether `((SELECT …) …` is a query of queries, not an expression or list that begins with one."""
        at, depth = start, start - self._at
        while depth and self._words[at] != END:
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            at += 1
        return self._words[at] == ")" or self._words[at] in SET_OPERATIONS or self._words[at] in _QUERY_ENDS

    def _value(self) -> None:
        """Read an operand of arithmetic."""
        self._primary()
        while True:
            if self._takes_any(BINARY) or self._takes_all("<", "<") or self._takes_all(">", ">"):
                self._primary()
            elif self._takes("COLLATE"):
                self._path()
            elif self._takes_all("AT", "TIME", "ZONE"):
                self._primary()
            else:
                return

    def _primary(self) -> None:
        while self._takes_any(_SIGNS):
            pass
        word = self._words[self._at]
        special = _SPECIAL.get(word)
        if word in (NUMBER, STRING):
            self._at += 1
            if self._words[self._at] == STRING:
                raise self._error("expected an operator between texts")
        elif special is not None and (word not in _CALLED or self._next() == "("):
            self._at += 1
            special(self)
        elif word in TYPED_TEXTS and self._next() == STRING:
            self._at += 2
        elif self._next() == "(" and self._is_word(STRUCTURE):
            self._at += 1
            self._call()
        elif self._is_word(RESERVED):
            self._column()
        else:
            raise self._error("expected an expression")
        while self._takes("["):
            self._element()

    def _element(self) -> None:
        """`1]`, and `1:2]`, which no query here has."""
        self._list(self._condition)
        if self._takes(":"):
            self._condition()
        self._expect("]")

    def _column(self) -> None:
        self._at += 1
        while self._takes("."):
            if self._takes("*"):
                return
            self._any_word()
        if self._words[self._at - 1 : self._at + 2] == ["U", "&", STRING]:
            raise UnsupportedSqlError("U&'…': write the characters themselves")
        if self._words[self._at] == STRING and self._tokens[self._at - 1].end + 1 == self._tokens[self._at].start:
            raise UnsupportedSqlError(f"{self._words[self._at - 1][:20]}'…': write a text, or bytes as X'…'")
        if self._words[self._at] == "(":  # a call with a path before it
            self._call()

    def _call(self) -> None:
        """Arguments, and what may stand after them."""
        self._within(self._arguments)
        if self._takes_all("WITHIN", "GROUP"):
            self._within(self._ordering)
        if self._takes("FILTER"):
            self._expect("(")
            self._expect("WHERE")
            self._condition()
            self._expect(")")
        self._nulls_treatment()
        if self._takes("OVER"):
            if self._words[self._at] == "(":
                self._within(self._window)
            else:
                self._name()

    def _nulls_treatment(self) -> None:
        if self._words[self._at] in _TREATMENTS and self._next() == "NULLS":
            self._at += 2

    def _arguments(self) -> None:
        if self._words[self._at] == ")" or self._takes("*"):
            return
        if not self._takes("DISTINCT"):
            self._takes("ALL")
        self._query_or_list()
        self._nulls_treatment()
        self._ordering()

    def _named_window(self) -> None:
        self._name()
        self._expect("AS")
        self._within(self._window)

    def _window(self) -> None:
        if self._words[self._at] not in _FRAMES and self._is_word(_WINDOW_WORDS):
            self._at += 1
        if self._takes("PARTITION BY"):
            self._list(self._condition)
        if self._takes("ORDER BY"):
            self._list(self._ordered)
        if not self._takes_any(_FRAMES):
            return
        if self._takes("BETWEEN"):
            self._bound()
            self._expect("AND")
        self._bound()
        if self._takes("EXCLUDE"):
            self._left_out()

    def _left_out(self) -> None:
        is_known = self._takes_all("CURRENT", "ROW") or self._takes_all("NO", "OTHERS")
        if not (is_known or self._takes("GROUP") or self._takes("TIES")):
            raise self._error("expected CURRENT ROW, GROUP, TIES or NO OTHERS")

    def _bound(self) -> None:
        if self._takes_all("CURRENT", "ROW"):
            return
        if not self._takes("UNBOUNDED"):
            self._value()
        if not (self._takes("PRECEDING") or self._takes("FOLLOWING")):
            raise self._error("expected PRECEDING or FOLLOWING")

    # Expressions with words of their own, after their first one

    def _parenthesis(self) -> None:
        self._query_or_list()
        self._expect(")")

    def _case(self) -> None:
        if self._words[self._at] != "WHEN":
            self._condition()
        self._expect("WHEN")
        while True:
            self._condition()
            self._expect("THEN")
            self._condition()
            if not self._takes("WHEN"):
                break
        if self._takes("ELSE"):
            self._condition()
        self._expect("END")

    def _cast(self) -> None:
        self._expect("(")
        self._condition()
        self._expect("AS")
        self._type()
        self._expect(")")

    def _type(self) -> None:
        """Its words, lengths in parentheses, and brackets."""
        if not self._is_word(STRUCTURE):
            raise self._error("expected a type")
        while self._words[self._at] not in (")", END):
            if self._words[self._at] == "(":
                self._within(lambda: self._list(self._value))
            else:
                self._at += 1

    def _extract(self) -> None:
        self._expect("(")
        self._any_word()
        self._expect("FROM")
        self._condition()
        self._expect(")")

    def _trim(self) -> None:
        self._within(self._trim_arguments)

    def _trim_arguments(self) -> None:
        if self._words[self._at] in _SIDES and self._next() not in (")", ",", "."):
            self._at += 1
        if not self._takes("FROM"):
            self._list(self._condition)
            if not self._takes("FROM"):
                return
        self._value()

    def _substring(self) -> None:
        self._expect("(")
        self._list(self._condition)
        if self._takes("FROM"):
            self._value()
        if self._takes("FOR"):
            self._value()
        self._expect(")")

    def _exists(self) -> None:
        self._within(self._query)

    def _interval(self) -> None:
        """`INTERVAL '1' DAY`, and `INTERVAL` as a name."""
        if self._words[self._at] in (NUMBER, STRING, "(") or self._is_word(RESERVED):
            self._value()
            if self._is_word(RESERVED):
                self._at += 1

    def _array(self) -> None:
        if self._words[self._at] == "(":
            self._call()
        elif self._takes_all("[", "]"):
            return
        elif self._words[self._at] != "[":
            raise self._error("expected [ after ARRAY")

    def _brackets(self) -> None:
        if not self._takes("]"):
            self._list(self._condition)
            self._expect("]")

    def _fraction(self) -> None:
        """`.5`"""
        self._expect(NUMBER)

    def _parameter(self) -> None:
        """`@name`, `:name`"""
        self._at += 1

    def _nothing(self) -> None:
        """A word that is an expression by itself."""


_SPECIAL: Final[dict[str, Callable[[Expressions], None]]] = {
    "(": Expressions._parenthesis,
    "CASE": Expressions._case,
    "CAST": Expressions._cast,
    "TRY_CAST": Expressions._cast,
    "EXTRACT": Expressions._extract,
    "TRIM": Expressions._trim,
    "SUBSTRING": Expressions._substring,
    "EXISTS": Expressions._exists,
    "INTERVAL": Expressions._interval,
    "ARRAY": Expressions._array,
    "[": Expressions._brackets,
    ".": Expressions._fraction,
    "@": Expressions._parameter,
    ":": Expressions._parameter,
    **dict.fromkeys(("NULL", "TRUE", "FALSE", "?"), Expressions._nothing),
}
_CALLED: Final = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "EXISTS"})
_COMPARING: Final = COMPARISONS | {"IS", "ISNULL", "NOTNULL", "NOT", "BETWEEN", "IN", "LIKE", "ILIKE"}
_CONNECTORS: Final = frozenset({"AND", "OR", "XOR"})
_FRAMES: Final = frozenset({"ROWS", "RANGE", "GROUPS"})
_QUANTIFIERS: Final = frozenset({"ANY", "ALL", "SOME"})
_QUERY_ENDS: Final = frozenset({"ORDER BY", "LIMIT", "OFFSET", "FETCH"})
_SIDES: Final = frozenset({"BOTH", "LEADING", "TRAILING"})
_SIGNS: Final = frozenset({"-", "+", "~"})
_TREATMENTS: Final = frozenset({"IGNORE", "RESPECT"})
_TRUTHS: Final = frozenset({"NULL", "TRUE", "FALSE", "UNKNOWN"})
_WINDOW_WORDS: Final = RESERVED | {"PARTITION BY", "ORDER BY"}

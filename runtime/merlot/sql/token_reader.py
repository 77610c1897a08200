"""Take the tokens of a query one after the other, and offer what any rule of the grammar needs.

Keywords are compared in upper case. Quoted tokens keep their quotes, so they are no keywords. Pure and safe on any
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from merlot.sql import limits
from merlot.sql.budget import Budget
from merlot.sql.excerpts import error_at, excerpt, unsupported_at
from merlot.sql.keywords import RESERVED
from merlot.sql.lexer import END, is_list, offset_of_token, text_in
from merlot.sql.syntax import Column
from merlot.sql.unsupported_features import CONSTRUCTS
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError

T = TypeVar("T")

NAME_STARTS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$")
QUOTES: Final = frozenset('"`')
_AFTER_EXPRESSION: Final = frozenset({",", ")", "FROM", "WHERE", "GROUP", "HAVING", "ORDER"})
_BEFORE_EXPRESSION: Final = frozenset({"SELECT", "(", "BY"})
_MOST_WORDS_OF_FEATURE: Final = 6
_AFTER_THE_END: Final = (END,) * 5
"""Ends of the text: at least the number of tokens that a rule may look ahead."""


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """The tokens of one query."""

    sql: str
    """Text that the tokens are from."""
    tokens: Sequence[str]
    words: Sequence[str]
    """The tokens in upper case."""
    numbers: Sequence[int] | None = None
    """Position of each token among the text's tokens; None if these are all of them."""


class TokenReader:
    """Base class of parsers: a position among the tokens, and methods that test and take the next ones."""

    def __init__(self, text: QueryTokens, budget: Budget) -> None:
        self._sql = text.sql
        self._tokens = [*text.tokens, *_AFTER_THE_END]
        self._words = [*text.words, *_AFTER_THE_END]
        self._numbers = text.numbers
        """Position of each token among the text's tokens; None if these are all of them."""
        self._budget = budget
        self._at = 0
        self._open = 0
        self._columns: dict[str, Column] = {}
        """Columns of the SELECT without quotes and qualifiers, by name: a tree may have a node more than once."""
        self._ends: dict[int, int] | None = None
        """Position after the closing parenthesis, by the position of the opening one; None until it is needed."""
        self._num_items = 0
        self._num_joined = 0
        self._num_values = 0
        self.has_stages = False
        """True if the query needs more than a SELECT over one table."""

    # Tokens

    def _takes(self, word: str) -> bool:
        """Take the next word if it is `word`; return True if it was."""
        if self._words[self._at] != word:
            return False
        self._at += 1
        return True

    def _takes_all(self, *words: str) -> bool:
        """Take the next words if they are `words`; return True if they were."""
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
        """Return a later word without taking it: by default the one after the next."""
        return self._words[self._at + ahead] if self._words[self._at] else END

    def _error(self, problem: str, back: int = 0) -> SqlParseError:
        """Return a syntax error at the next token, or at the last one if none is left."""
        at = max(0, min(self._at, len(self._tokens) - 1 - len(_AFTER_THE_END)) - back)
        return error_at(self._sql, self._place(at), problem)

    def _place(self, at: int) -> int:
        return offset_of_token(self._sql, self._number_of(at))

    def show_feature(self, error: UnsupportedSqlError) -> None:
        """Give an error that was raised here an excerpt: at the last word of the feature's name, or else at
        the next token."""
        names = error.feature.partition(":")[0].replace("(", " ").split()
        last_words = range(self._at, max(-1, self._at - _MOST_WORDS_OF_FEATURE), -1)
        at = next((at for at in last_words if self._words[at] in names), self._at)
        error.excerpt = excerpt(self._sql, self._place(at))

    def refuse_construct(self) -> None:
        """Raise UnsupportedSqlError if the tokens that do not fit are a construct that has a name."""
        for at in range(self._at, max(-1, self._at - _MOST_WORDS_OF_FEATURE), -1):
            for words, feature in CONSTRUCTS:
                if self._words[at : at + len(words)] == list(words):
                    raise unsupported_at(self._sql, self._place(at), feature)

    def _number_of(self, at: int) -> int:
        """Return the position among the text's tokens of the token at `at`."""
        return at if self._numbers is None else self._numbers[at]

    def _touches(self, at: int) -> bool:
        """Return True if nothing stands between the token at `at` and the one before it."""
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
        """Read an expression or list in parentheses."""
        self._expect("(")
        self._deeper()
        result = read()
        self._open -= 1
        self._expect(")")
        return result

    def _deeper(self) -> None:
        self._open += 1
        if self._open > limits.MAX_NESTING:
            raise self._error(limits.TOO_DEEP, back=1)

    # Names

    def _name(self) -> str:
        return self._word_not_in(RESERVED)

    def _any_word(self) -> str:
        """Read a name where no keyword can stand."""
        return self._word_not_in(frozenset())

    def _word_not_in(self, reserved: frozenset[str]) -> str:
        if not self._is_word(reserved):
            raise self._error("expected a name")
        self._at += 1
        return self._text(self._at - 1)

    def _text(self, at: int) -> str:
        """Return a token's name. Raise SqlParseError if it is longer than MAX_NAME_CHARS, since messages quote it."""
        text = text_in(self._tokens[at])
        if len(text) > limits.MAX_NAME_CHARS:
            raise SqlParseError(f"name too long starts={text[:20]} chars={len(text)} limit={limits.MAX_NAME_CHARS}")
        return text

    def _is_word(self, reserved: frozenset[str]) -> bool:
        first = self._tokens[self._at][:1]
        if first in QUOTES and first:
            return True
        token = self._tokens[self._at]
        return starts_name(first) and self._words[self._at] not in reserved and token[1:2] != "'" and not is_list(token)

    def _names(self) -> list[str]:
        return self._within(lambda: self._list(self._name))


def too_many(what: str, limit: int, got: int | None = None) -> SqlValidationError:
    """Return the error for a text that has too many of something."""
    return SqlValidationError(f"too many {what} got={limit + 1 if got is None else got} limit={limit}")


def starts_name(first: str) -> bool:
    return first in NAME_STARTS or (first > "\x7f" and first.isalpha())


def qualifier_of(names: list[str]) -> str:
    """Return the qualifier of a column, without the name of the only database."""
    return ".".join(names[1:] if names[:1] == ["default"] else names)

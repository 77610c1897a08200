"""The grammar of queries, checked token by token: texts that the dialect's parser would take for something else.

The parser is lenient: it takes `JOIN u ON` for a cross join, `BETWEEN 1 5` for a range and clauses in any order, and
drops a GROUP BY without keys. A text that it has parsed is read here once more, from its first token to its last, by
the grammar alone: no tree is made. What SQL has and Merlot lacks passes, since binding refuses it by its name. Pure and
safe on any thread; recursion is as deep as parentheses, which `sql.parse` limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token

from merlot.sql.budget import Budget
from merlot.sql.grammar_expressions import Expressions
from merlot.sql.grammar_words import (
    END,
    JOIN_WORDS,
    NO_ALIASES,
    NUMBER,
    QUERY_STARTS,
    SET_OPERATIONS,
    STRING,
    STRUCTURE,
)


def check(tokens: Sequence[Token], sql: str, budget: Budget) -> None:
    """Raise SqlParseError at the first token that does not belong where it stands."""
    _Queries(tokens, sql, budget).statement()


class _Queries(Expressions):
    """Reads clauses in their order."""

    def statement(self) -> None:
        """All of the text."""
        self._query()
        if self._takes_all("FOR", "UPDATE") or self._takes_all("FOR", "SHARE"):
            return
        if self._words[self._at] != END:
            raise self._error("unexpected token")

    def _query(self) -> None:
        if self._takes("WITH"):
            self._takes("RECURSIVE")
            self._list(self._common)
        self._set_term()
        while self._takes_any(SET_OPERATIONS):
            if not self._takes("ALL"):
                self._takes("DISTINCT")
            self._takes_all("BY", "NAME")
            self._set_term()
        self._ordering()

    def _common(self) -> None:
        """`name [(columns)] AS (query)`"""
        self._name()
        if self._words[self._at] == "(":
            self._names()
        self._expect("AS")
        self._takes("NOT")
        self._takes("MATERIALIZED")
        self._within(self._query)

    def _set_term(self) -> None:
        if self._words[self._at] == "(":
            self._within(self._query)
        elif self._takes("VALUES"):
            self._rows()
        else:
            self._select()

    def _rows(self) -> None:
        self._list(self._value)

    def _select(self) -> None:
        self._expect("SELECT")
        if not self._takes("DISTINCT"):
            self._takes("ALL")
        if self._words[self._at] in _AFTER_OUTPUTS:
            raise self._error("SELECT needs at least one expression")
        self._list(self._output)
        if self._takes("INTO"):
            self._path()
        if self._takes("FROM"):
            self._from()
        if self._takes("WHERE"):
            self._condition()
        if self._takes("GROUP BY"):
            self._group_by()
        if self._takes("HAVING"):
            self._condition()
        for _ in range(2):
            if self._takes("WINDOW"):
                self._list(self._named_window)
            elif self._takes("QUALIFY"):
                self._condition()

    def _output(self) -> None:
        if self._takes("*"):
            return self._star_ends()
        self._condition()
        if self._words[self._at - 1] == "*":
            return self._star_ends()
        return self._alias(_NO_OUTPUTS)

    def _star_ends(self) -> None:
        """`* EXCEPT (a)`, which no query here has."""
        if self._words[self._at] in _STAR_WORDS and self._next() == "(" and self._next(2) not in QUERY_STARTS:
            self._at += 1
            self._skip_parentheses()

    def _alias(self, reserved: frozenset[str]) -> None:
        """`AS name`, which may be a word that is a keyword elsewhere, or a name alone, which may not."""
        if self._takes("AS"):
            if not self._is_word(STRUCTURE) and self._words[self._at] != STRING:
                raise self._error("expected a name after AS")
            self._at += 1
        elif self._is_word(reserved):
            before = self._tokens[self._at - 1]
            if before.end + 1 == self._tokens[self._at].start and self._words[self._at - 1] in (NUMBER, STRING):
                raise self._error("expected a space before a name")
            self._at += 1

    def _group_by(self) -> None:
        if self._takes("ALL"):
            return
        self._list(self._grouped)
        if self._takes("WITH") and not self._takes_any(_TOTALS):
            raise self._error("expected ROLLUP, CUBE or TOTALS")

    def _grouped(self) -> None:
        if self._words[self._at] in _GROUPINGS and self._next() == "(":
            self._at += 1
            self._within(lambda: self._list(self._grouped))
        elif not self._takes_all("(", ")"):
            self._condition()

    # Relations

    def _from(self) -> None:
        self._relation()
        while True:
            if self._takes(","):
                self._relation()
            elif self._words[self._at] in JOIN_WORDS:
                self._join()
            else:
                return

    def _join(self) -> None:
        start = self._at
        while self._takes_any(_JOIN_KINDS):
            pass
        kinds = self._words[start : self._at]
        if kinds == ["CROSS"] and self._takes("APPLY"):
            return self._relation()
        self._expect("JOIN")
        self._relation()
        if self._takes("MATCH_CONDITION"):
            self._within(self._condition)
        if self._takes("ON"):
            return self._condition()
        if self._takes("USING"):
            return self._names()
        if "CROSS" not in kinds and "NATURAL" not in kinds:
            raise self._error(f"{' '.join([*kinds, 'JOIN'])} needs ON or USING")
        return None

    def _relation(self) -> None:
        self._takes("LATERAL")
        if self._words[self._at] == "(":
            self._within(self._query_or_joins)
        elif self._takes("VALUES"):
            self._rows()
        elif self._words[self._at] == "UNNEST" and self._next() == "(":
            self._at += 1
            self._within(lambda: self._list(self._condition))
            if self._takes("WITH") and not self._takes_any(_PLACES):
                raise self._error("expected ORDINALITY")
        else:
            self._path()
            if self._words[self._at] == "(":
                self._skip_parentheses()
        self._relation_ends()

    def _query_or_joins(self) -> None:
        if self._is_query():
            self._query()
        else:
            self._from()

    def _relation_ends(self) -> None:
        """An alias, its columns, and what no query here has."""
        self._alias(_NO_RELATIONS)
        if self._words[self._at] == "(":
            self._names()
        while self._takes_any(_TABLE_WORDS):
            while self._words[self._at] not in ("(", END):
                self._at += 1
            self._skip_parentheses()
            self._alias(_NO_RELATIONS)


_AFTER_OUTPUTS: Final = frozenset({"FROM", ")", END})
_GROUPINGS: Final = frozenset({"ROLLUP", "CUBE", "GROUPING SETS"})
_JOIN_KINDS: Final = JOIN_WORDS - {"JOIN"}
_NO_OUTPUTS: Final = NO_ALIASES | {"BY"}
_NO_RELATIONS: Final = NO_ALIASES | JOIN_WORDS | {"APPLY", "BY", "MATCH_CONDITION", "PIVOT", "TABLESAMPLE", "UNPIVOT"}
_PLACES: Final = frozenset({"ORDINALITY", "OFFSET"})
_STAR_WORDS: Final = frozenset({"EXCEPT", "EXCLUDE", "REPLACE", "RENAME"})
_TOTALS: Final = frozenset({"ROLLUP", "CUBE", "TOTALS"})
_TABLE_WORDS: Final = frozenset({"TABLESAMPLE", "PIVOT", "UNPIVOT"})

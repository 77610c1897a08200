"""Parse a query from tokens to nodes: clauses in their order, relations and joins. Pure and safe on any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from merlot.sql import limits
from merlot.sql.expression_parser import ORDERED
from merlot.sql.form_parser import FormParser
from merlot.sql.keywords import JOIN_WORDS, NO_ALIASES, NO_RELATION_ALIASES, QUERY_STARTS, STRUCTURE
from merlot.sql.syntax import (
    Alias,
    Common,
    Comparison,
    Cube,
    Derived,
    GroupingSets,
    Join,
    Node,
    Number,
    Query,
    Relation,
    Rollup,
    Row,
    Select,
    SetOperation,
    Star,
    Subquery,
    Table,
    Unnest,
    Values,
    WindowDefinition,
)
from merlot.tree import literals
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError

MAX_LIMIT: Final = literals.INT_MAX

_AFTER_OUTPUTS: Final = frozenset({"FROM", ")", ""})
_JOIN_KINDS: Final = JOIN_WORDS - {"JOIN"}
_STAR_WORDS: Final = frozenset({"EXCEPT", "EXCLUDE", "REPLACE", "RENAME"})
_TOTALS: Final = frozenset({"ROLLUP", "CUBE", "TOTALS"})
_ROWS: Final = frozenset({"ROW", "ROWS"})
_MAX_PARTS: Final = 3
"""Most parts of a table's name: catalog, database and table."""


class Parser(FormParser):
    """Parses one query. Recursive descent: a method for each rule of the grammar."""

    _num_terms = 0
    _rows_read: tuple[int, int, Values] = (-1, -1, Values(()))
    """Places before and after rows of VALUES that a query begins with, and the rows: they are not read again."""

    def statement(self) -> Query:
        """Parse the whole text as one query. Raise SqlParseError, SqlValidationError or UnsupportedSqlError."""
        query = self._query()
        if self._words[self._at : self._at + 2] in (["FOR", "UPDATE"], ["FOR", "SHARE"]):
            raise UnsupportedSqlError("FOR UPDATE")
        if self._words[self._at]:
            raise self._error("unexpected token")
        return query

    def _query(self) -> Query:
        common = self._with() if self._takes("WITH") else ()
        query = self._set_terms()
        if common or self._words[self._at] in _ENDS:
            query.common = common
            self._ordering(query)
        return query

    def _with(self) -> list[Common]:
        self.has_stages = True
        if self._takes("RECURSIVE"):
            raise UnsupportedSqlError("WITH RECURSIVE: write each step as a query of WITH")
        return self._list(self._common)

    def _common(self) -> Common:
        """Read `name [(columns)] AS (query)`."""
        name = self._name()
        columns = self._names() if self._words[self._at] == "(" else []
        self._expect("AS")
        self._takes("NOT")
        self._takes("MATERIALIZED")
        return Common(name, columns, self._within(self._query))

    def _set_terms(self) -> Query:
        """Read queries that UNION and EXCEPT combine, from the left; INTERSECT binds more tightly."""
        left = self._intersections()
        while (kind := self._set_kind(("UNION", "EXCEPT"))) is not None:
            left = self._set_operation(kind, left, self._intersections)
        return left

    def _intersections(self) -> Query:
        left = self._set_term()
        while (kind := self._set_kind(("INTERSECT",))) is not None:
            left = self._set_operation(kind, left, self._set_term)
        return left

    def _set_kind(self, kinds: tuple[str, ...]) -> str | None:
        """Take the next word if it is one of these set operations; MINUS between queries is EXCEPT."""
        word = "EXCEPT" if self._is_minus() else self._words[self._at]
        if word not in kinds:
            return None
        self._at += 1
        return word

    def _set_operation(self, kind: str, left: Query, read: Callable[[], Query]) -> SetOperation:
        self.has_stages = True
        is_all = self._takes("ALL")
        if not is_all:
            self._takes("DISTINCT")
        if self._takes_all("BY", "NAME"):
            raise UnsupportedSqlError(f"{kind} BY NAME")
        self._num_terms += 1
        if self._num_terms > limits.MAX_TERMS:
            raise SqlParseError(f"too many queries joined limit={limits.MAX_TERMS}")
        return SetOperation(kind, is_all, left, read())

    def _is_minus(self) -> bool:
        """Return True if MINUS and a query follow. MINUS may also be a name."""
        if self._words[self._at] != "MINUS":
            return False
        at = self._at + 1
        at += self._words[at] in ("ALL", "DISTINCT")
        at += self._words[at] == "("
        return self._words[at] in QUERY_STARTS

    def _set_term(self) -> Query:
        self._budget.step()
        if self._words[self._at] == "(":
            self.has_stages = True
            return Subquery(self._within(self._query))
        if self._takes("VALUES"):
            self.has_stages = True
            return Select([Star()], source=self._rows())
        return self._select()

    def _rows(self) -> Values:
        start, end, rows = self._rows_read
        if start != self._at:
            return Values(self._list(self._row))
        self._at = end
        return rows

    def _row(self) -> list[Node]:
        value = self._value()
        return list(value.items) if isinstance(value, Row) else [getattr(value, "inner", value)]

    # SELECT

    def _select(self) -> Select:
        self._expect("SELECT")
        outer_columns, self._columns = self._columns, {}
        select = self._clauses()
        self._columns = outer_columns
        return select

    def _clauses(self) -> Select:
        is_distinct = self._takes("DISTINCT")
        if is_distinct and self._words[self._at] == "ON" and self._next() == "(":
            raise UnsupportedSqlError("DISTINCT ON")
        if not is_distinct:
            self._takes("ALL")
        if self._words[self._at] in _AFTER_OUTPUTS:
            raise self._error("SELECT needs at least one expression")
        select = Select(self._list(self._output), is_distinct)
        if self._takes("INTO"):
            raise UnsupportedSqlError("SELECT INTO")
        if self._takes("FROM"):
            self._from(select)
        if self._takes("WHERE"):
            select.where = self._expression()
        if self._takes("GROUP"):
            self._expect("BY")
            select.group = self._group_by()
        if self._takes("HAVING"):
            select.having = self._expression()
        if self._words[self._at] in ("WINDOW", "QUALIFY"):
            self._windows(select)
        return select

    def _windows(self, select: Select) -> None:
        self.has_stages = True
        for _ in range(2):
            if not select.windows and self._takes("WINDOW"):
                select.windows = self._list(self._named_window)
            elif select.qualify is None and self._takes("QUALIFY"):
                select.qualify = self._expression()

    def _named_window(self) -> tuple[str, WindowDefinition]:
        name = self._name()
        self._expect("AS")
        return name, self._within(self._window)

    def _output(self) -> Node:
        if self._takes("*"):
            output: Node = Star()
        else:
            output = self._expression()
        if isinstance(output, Star):
            if self._words[self._at] in _STAR_WORDS and self._next() == "(" and self._next(2) not in QUERY_STARTS:
                raise UnsupportedSqlError("SELECT * with EXCEPT, REPLACE or RENAME")
            return output
        alias = self._alias(NO_ALIASES)
        return Alias(output, alias) if alias is not None else output

    def _alias(self, reserved: frozenset[str]) -> str | None:
        """Read an alias. After AS it may be almost any keyword, without AS no reserved word. A name in single quotes,
        as Grafana writes it, is an alias after AS too."""
        if self._takes("AS"):
            if not self._is_word(STRUCTURE) and self._tokens[self._at][:1] != "'":
                raise self._error("expected a name after AS")
        elif not self._is_word(reserved) or self._is_minus():
            return None
        elif self._tokens[self._at - 1][:1] in "0123456789'" and self._touches(self._at):
            raise self._error("expected a space before a name")
        self._at += 1
        return self._text(self._at - 1)

    def _group_by(self) -> list[Node]:
        if self._takes("ALL"):
            raise UnsupportedSqlError("GROUP BY ALL")
        keys = self._list(self._grouped)
        if self._takes("WITH"):
            word = self._words[self._at]
            if word not in _TOTALS:
                raise self._error("expected ROLLUP, CUBE or TOTALS")
            raise UnsupportedSqlError(f"GROUP BY {word}")
        return keys

    def _grouped(self) -> Node:
        word, following = self._words[self._at], self._next()
        if following == "(" and word in ("ROLLUP", "CUBE"):
            self._at += 1
            self.has_stages = True
            keys = self._within(lambda: self._list(self._key))
            return Rollup(keys) if word == "ROLLUP" else Cube(keys)
        if word == "GROUPING" and following == "SETS":
            self._at += 2
            self.has_stages = True
            return GroupingSets(self._within(lambda: self._list(self._grouped)))
        return self._key()

    def _key(self) -> Node:
        return Row(()) if self._takes_all("(", ")") else self._expression()

    # Relations

    def _from(self, select: Select) -> None:
        select.source = self._relation()
        joins: list[Join] = []
        while True:
            if self._takes(","):
                joins.append(Join(self._relation(), ""))
            elif self._words[self._at] in JOIN_WORDS:
                joins.append(self._join_clause())
            else:
                break
        if joins:
            self.has_stages = True
            select.joins = joins

    def _join_clause(self) -> Join:
        start = self._at
        while self._takes_any(_JOIN_KINDS):
            pass
        words = self._words[start : self._at]
        if words == ["CROSS"] and self._words[self._at] == "APPLY":
            raise UnsupportedSqlError("CROSS APPLY")
        self._expect("JOIN")
        join = Join(self._relation(), " ".join(words) or "INNER")
        if self._takes("MATCH_CONDITION"):
            join.match_condition = self._within(self._match)
        if self._takes("ON"):
            join.on = self._expression()
        elif self._takes("USING"):
            join.using = self._names()
        elif "CROSS" not in words and "NATURAL" not in words:
            raise self._error(f"{' '.join([*words, 'JOIN'])} needs ON or USING")
        return join

    def _match(self) -> Node:
        """Read a comparison such as `a.at >= b.at`."""
        left = self._value()
        function = ORDERED.get(self._words[self._at])
        if function is None:
            raise self._error("MATCH_CONDITION compares two values by <, <=, > or >=")
        self._at += 1
        return Comparison(function, left, self._value())

    def _relation(self) -> Relation:
        self._budget.step()
        relation = self._read_relation()
        alias = self._alias(NO_RELATION_ALIASES)
        relation.alias = alias or ""
        if self._words[self._at] == "(":
            relation.columns = self._names()
        if self._words[self._at] in ("TABLESAMPLE", "PIVOT", "UNPIVOT"):
            raise UnsupportedSqlError(self._words[self._at])
        return relation

    def _read_relation(self) -> Relation:
        is_lateral = self._takes("LATERAL")
        if self._words[self._at] == "(":
            self.has_stages = True
            return self._within(lambda: self._derived(is_lateral=is_lateral))
        if is_lateral:
            raise UnsupportedSqlError("LATERAL of anything but a subquery")
        if self._takes("VALUES"):
            self.has_stages = True
            return self._rows()
        if self._words[self._at] == "UNNEST" and self._next() == "(":
            return self._unnest()
        return self._table()

    def _derived(self, *, is_lateral: bool) -> Relation:
        start = self._at
        if self._takes("VALUES") and not is_lateral:
            rows = self._rows()
            if self._words[self._at] == ")":
                return rows
            self._rows_read = start + 1, self._at, rows
        self._at = start
        if self._starts_query():
            return Derived(self._query(), is_lateral)
        inner = self._relation()
        if self._words[self._at] in JOIN_WORDS or self._words[self._at] == ",":
            raise UnsupportedSqlError(
                "a join in parentheses: write its tables one after another, or as (SELECT … FROM … JOIN …) AS name"
            )
        if isinstance(inner, Table):
            raise UnsupportedSqlError("a table in parentheses")
        return inner

    def _unnest(self) -> Unnest:
        self.has_stages = True
        self._at += 1
        lists = self._within(lambda: self._list(self._expression))
        has_places = self._takes("WITH")
        if has_places:
            self._expect("ORDINALITY")
        return Unnest(lists, has_places)

    def _table(self) -> Table:
        parts = [self._name()]
        while self._takes("."):
            parts.append(self._any_word())
        if self._words[self._at] == "(" or len(parts) > _MAX_PARTS:
            raise UnsupportedSqlError("a function or a path in FROM")
        return Table(".".join(part for part in parts if part != "default"))

    # ORDER BY, LIMIT, OFFSET and FETCH

    def _ordering(self, query: Query) -> None:
        """Read the clauses after a query: ORDER BY first, the others in any order, each at most once."""
        if self._takes("ORDER"):
            self._expect("BY")
            query.order = self._order_by()
        seen: set[str] = set()
        while (word := self._words[self._at]) in _LIMITING:
            self._at += 1
            if not seen.isdisjoint(_LIMITING[word]):
                raise self._error(f"{word} stands twice", back=1)
            seen.add(word)
            if word == "LIMIT":
                self._limit(query, seen)
            elif word == "OFFSET":
                query.offset = self._whole_number("OFFSET")
                self._takes_any(_ROWS)
            else:
                query.limit = self._fetch()

    def _limit(self, query: Query, seen: set[str]) -> None:
        """Read `10`, or `5, 10`, which skips the first five rows."""
        query.limit = self._whole_number("LIMIT")
        if self._takes(","):
            seen.add("OFFSET")
            query.offset, query.limit = query.limit, self._whole_number("LIMIT")
        if self._words[self._at] == "BY":
            raise UnsupportedSqlError("LIMIT BY")

    def _fetch(self) -> int:
        if not (self._takes("FIRST") or self._takes("NEXT")):
            raise self._error("expected FIRST or NEXT")
        count = 1 if self._words[self._at] in _ROWS else self._whole_number("FETCH")
        if self._takes("PERCENT"):
            raise UnsupportedSqlError("FETCH with PERCENT or TIES")
        if not self._takes_any(_ROWS):
            raise self._error("expected ROWS")
        if self._takes_all("WITH", "TIES"):
            raise UnsupportedSqlError("FETCH with PERCENT or TIES")
        self._expect("ONLY")
        return count

    def _whole_number(self, place: str) -> int:
        node = self._value()
        if not isinstance(node, Number) or not node.text.isdigit():
            raise SqlParseError(_NO_NUMBER.format(place))
        value = int(node.text[:20])
        if value > MAX_LIMIT:
            raise SqlValidationError(f"{place} out of range value={node.text[:20]} limit={MAX_LIMIT}")
        return value


_LIMITING: Final = {"LIMIT": ("LIMIT", "FETCH"), "FETCH": ("LIMIT", "FETCH"), "OFFSET": ("OFFSET",)}
"""Clauses of LIMIT, and for each the clauses that must not have come before it."""
_ENDS: Final = frozenset({"ORDER", *_LIMITING})
_NO_NUMBER: Final = "{} needs a whole number that is not negative"

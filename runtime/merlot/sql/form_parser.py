"""Parse forms with keywords of their own, from tokens to nodes: calls, windows, CASE, CAST and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from merlot.sql.escapes import FUNCTION, TIMES, unescaped
from merlot.sql.expression_parser import ExpressionParser
from merlot.sql.keywords import RESERVED, STRUCTURE, TYPES
from merlot.sql.syntax import (
    Array,
    Boolean,
    Call,
    Case,
    Cast,
    Column,
    Exists,
    Extract,
    Filter,
    Frame,
    Node,
    Null,
    NullsTreated,
    Number,
    Operation,
    Ordered,
    Paren,
    Query,
    Row,
    Star,
    Subquery,
    Window,
    WindowDefinition,
    WithinGroup,
)
from merlot.sql.syntax import Bound as FrameBound
from merlot.sql.token_reader import QUOTES
from merlot.tree.errors import UnsupportedSqlError

_DIGITS: Final = frozenset("0123456789")
_WORDS_IN_CALLS: Final = {
    "FLOOR": ("TO", "DATETRUNC"),
    "CEIL": ("TO", "DATETRUNC"),
    "CEILING": ("TO", "DATETRUNC"),
    "OVERLAY": ("PLACING", "CONCAT and SUBSTR"),
    "CONVERT": ("USING", "the text itself"),
    "TRANSLATE": ("USING", "the text itself"),
    "GROUP_CONCAT": ("SEPARATOR", "LISTAGG"),
    "SAFE_CAST": ("AS", "CAST"),
    **dict.fromkeys(("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS"), ("RETURNING", "JSON_EXTRACT_SCALAR")),
}
"""Functions that SQL calls with a keyword between the arguments, which is refused, and what to write instead."""
_MOST_WORDS_BEFORE: Final = 100
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
_FRAMES: Final = frozenset({"ROWS", "RANGE", "GROUPS"})


class FormParser(ExpressionParser):
    """Parses expressions that begin with a keyword, or with a name and a parenthesis."""

    def _form(self, word: str) -> Node:
        return _FORMS[word](self)

    # Calls

    def _call(self, name: str) -> Node:
        """Read the arguments of a call, and the clauses after them."""
        word, instead = _WORDS_IN_CALLS.get(name.upper(), ("", ""))
        if word:
            self._refuse_word(name, word, instead)
        return self._called(name, self._arguments)

    def _called(self, name: str, read: Callable[[str, int], Node]) -> Node:
        """Read a call and the clauses after it. `read(name, token)` reads the arguments; `token` is the number of the
        name's token, which was taken last."""
        token = self._number_of(self._at - 1)
        return self._call_ends(self._within(lambda: read(name, token)))

    def _call_ends(self, call: Node) -> Node:
        node = call
        if self._takes_all("WITHIN", "GROUP"):
            node = WithinGroup(node, self._within(self._order_of_group))
        if self._takes("FILTER"):
            node = Filter(node, self._within(self._filter))
        node = self._nulls_treated(node)
        if self._takes("OVER"):
            self.has_stages = True
            if self._words[self._at] == "(":
                return Window(node, self._within(self._window))
            return Window(node, WindowDefinition(self._name()))
        return node

    def _refuse_word(self, name: str, word: str, instead: str) -> None:
        """Refuse a call with this keyword between its parentheses, as SQL's `FLOOR(at TO DAY)`. Only the first
        _MOST_WORDS_BEFORE words are searched."""
        depth = 0
        for other in self._words[self._at : self._at + _MOST_WORDS_BEFORE]:
            depth += {"(": 1, ")": -1}.get(other, 0)
            if not depth:
                return
            if depth == 1 and other == word:
                raise UnsupportedSqlError(f"{name.upper()}(… {word} …): write {instead}")

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

    def _arguments(self, name: str, token: int) -> Node:
        if self._words[self._at] == ")":
            return Call(name, (), token=token)
        if self._takes("*"):
            return Call(name, [Star()], token=token)
        is_distinct = self._takes("DISTINCT")
        if not is_distinct and self._words[self._at] == "ALL" and self._next() != "(":
            self._at += 1
        if self._starts_query():
            raise UnsupportedSqlError("subquery")
        call = Call(name, self._list(self._expression), is_distinct, token)
        if self._takes_all("ORDER", "BY"):
            raise UnsupportedSqlError(f"ORDER BY in {name.upper()}")
        return self._nulls_treated(call)

    # Windows

    def _window(self) -> WindowDefinition:
        window = WindowDefinition()
        starts = self._words[self._at : self._at + 2]
        if starts[0] not in _FRAMES and starts not in (["PARTITION", "BY"], ["ORDER", "BY"]) and starts[0] != ")":
            window.name = self._name()
        if self._takes_all("PARTITION", "BY"):
            window.partition_by = self._list(self._expression)
        if self._takes_all("ORDER", "BY"):
            window.order = self._order_by()
        if self._words[self._at] in _FRAMES:
            window.frame = self._frame()
        return window

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
        return Frame(kind, start, end, self._exclusion() if self._takes("EXCLUDE") else "")

    def _exclusion(self) -> str:
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

    # Expressions with keywords of their own, after the first keyword

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
        branches: list[tuple[Node, Node]] = []
        while not branches or self._words[self._at] == "WHEN":
            self._expect("WHEN")
            self._count_condition()
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
        cast = Cast(operand, self._type())
        self._open -= 1
        self._expect(")")
        return cast

    def _type(self) -> str:
        """Read a type's words, without lengths in parentheses."""
        if not self._is_word(STRUCTURE) or self._tokens[self._at][0] in QUOTES:
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
        extract = Extract(field, self._expression())
        self._open -= 1
        self._expect(")")
        return extract

    def _trim(self) -> Node:
        """Read `TRIM(LEADING 'x' FROM a)` as `LTRIM(a, 'x')`; a column may be called LEADING."""
        return self._called(self._text(self._at - 1), self._trim_arguments)

    def _trim_arguments(self, name: str, token: int) -> Node:
        args: list[Node] = []
        if self._words[self._at] in _TRIMS and self._next() not in (")", ",", "."):
            name = _TRIMS[self._words[self._at]]
            self._at += 1
        if self._words[self._at] not in ("FROM", ")"):
            args = self._list(self._expression)
        if self._takes("FROM"):
            args = [self._value(), *args]
        return Call(name, args, token=token)

    def _substring(self) -> Node:
        """Read `SUBSTRING(a FROM 2 FOR 3)` as `SUBSTRING(a, 2, 3)`."""
        return self._called(self._text(self._at - 1), self._substring_arguments)

    def _substring_arguments(self, name: str, token: int) -> Node:
        args = self._list(self._expression) if self._words[self._at] != ")" else []
        if self._takes("FROM"):
            args.append(self._value())
        if self._takes("FOR"):
            args += [*([Number("1")] if len(args) == 1 else []), self._value()]
        return Call(name, args, token=token)

    def _position(self) -> Node:
        """Read `POSITION(a IN b)` as `(STRPOS(b, a) + 1)`, since STRPOS counts from 0; other arguments stay a call."""
        return self._called(self._text(self._at - 1), self._position_arguments)

    def _position_arguments(self, name: str, token: int) -> Node:
        wanted = self._value()
        if not self._takes("IN"):
            return Call(name, [wanted, *(self._list(self._expression) if self._takes(",") else ())], token=token)
        place = Call("STRPOS", [self._value(), wanted], token=token)
        if self._words[self._at] == "FROM":
            raise UnsupportedSqlError("POSITION(… IN … FROM …): write STRPOS")
        return Paren(Operation("plus", place, Number("1")))

    def _exists(self) -> Node:
        return Exists(self._within(self._query_of_exists))

    def _query_of_exists(self) -> Query:
        if not self._starts_query():
            raise self._error("expected a query")
        return self._subquery()

    def _interval(self) -> Node:
        """Read INTERVAL as a name; refuse `INTERVAL '1' DAY`."""
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
        self._deeper()
        items = self._list(self._expression)
        self._open -= 1
        self._expect("]")
        return Array(items)

    def _fraction(self) -> Node:
        """Read the digits of `.5`."""
        token = self._tokens[self._at]
        if not token[:1].isdigit() or not token.isascii() or "." in token:
            raise self._error("expected digits after the point")
        self._at += 1
        return Number(f"0.{token}")

    def _null(self) -> Node:
        return Null()

    def _true(self) -> Node:
        return Boolean(value=True)

    def _false(self) -> Node:
        return Boolean(value=False)

    def _escape(self) -> Node:
        """Read the rest of `{fn UCASE(a)}`, `{ts '2020-01-31 00:00:00'}` or `{d '2020-01-31'}`."""
        word = self._words[self._at]
        if word != FUNCTION and word not in TIMES:
            raise self._error("expected fn, ts or d after {")
        self._at += 1
        self._deeper()
        if word == FUNCTION and self._next() == "(":
            node = unescaped(self._primary(self._words[self._at]))
        elif word == FUNCTION:
            raise self._error("expected a function")
        elif self._tokens[self._at][:1] == "'":
            node = self._typed_text(TIMES[word])
        else:
            raise self._error("expected a text")
        self._open -= 1
        self._expect("}")
        return node

    def _placeholder(self) -> Node:
        raise UnsupportedSqlError("query parameter (?)")

    def _parameter(self) -> Node:
        raise UnsupportedSqlError("query parameter (@)")


_FORMS: Final[dict[str, Callable[[FormParser], Node]]] = {
    "(": FormParser._parenthesis,
    "CASE": FormParser._case,
    "CAST": FormParser._cast,
    "TRY_CAST": FormParser._try_cast,
    "EXTRACT": FormParser._extract,
    "TRIM": FormParser._trim,
    "SUBSTRING": FormParser._substring,
    "POSITION": FormParser._position,
    "EXISTS": FormParser._exists,
    "INTERVAL": FormParser._interval,
    "ARRAY": FormParser._array,
    "[": FormParser._brackets,
    "{": FormParser._escape,
    ".": FormParser._fraction,
    "@": FormParser._parameter,
    ":": FormParser._placeholder,
    "?": FormParser._placeholder,
    "NULL": FormParser._null,
    "TRUE": FormParser._true,
    "FALSE": FormParser._false,
}

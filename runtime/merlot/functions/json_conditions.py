"""Conditions of JSON paths, `[?(@.a > 1 && @.b in ['x', 'y'])]`, compared as Jayway's JsonPath does.

A path that finds nothing is equal to nothing, not even to null, and so different from everything. A number is equal to
a text that writes it. Apart from that only values of one type are equal, and only two numbers or two texts have an
order.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol

from merlot.tree.errors import SqlValidationError

Condition = Callable[[Any, Any], bool]
"""Function of a value and its document."""
_Operand = Callable[[Any, Any], Any]
_NOTHING: Final = object()
_MAX_DEPTH: Final = 20
_TOKEN: Final = re.compile(
    r""" *(?P<word>&&|\|\||===|!==|==|!=|<=|>=|=~|<|>|!|\(|\)|\[|\]|,|@|\$|(?:in|nin|contains|true|false|null)\b"""
    r"""|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
)


class DefinitePath(Protocol):
    """Path that finds one value at most."""

    def nodes(self, document: Any) -> list[Any]: ...


ParsePath = Callable[[str, int], tuple[DefinitePath, int]]


def parse_condition(path: str, place: int, parse_path: ParsePath) -> tuple[Condition, int]:
    """Return the condition in parentheses at a place, and where it ends; raise SqlValidationError."""
    parser = _ConditionParser(path, place, parse_path)
    parser.expect("(")
    condition = parser.any_of(0)
    parser.expect(")")
    return condition, parser.place


class _ConditionParser:
    def __init__(self, path: str, place: int, parse_path: ParsePath) -> None:
        self._path = path
        self.place = place
        self._parse_path = parse_path

    def any_of(self, depth: int) -> Condition:
        """Parse operands of ||."""
        parts = [self._all_of(depth)]
        while self._take("||"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda value, root: any(part(value, root) for part in parts)

    def expect(self, word: str) -> None:
        if not self._take(word):
            raise self._refused()

    def _all_of(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._take("&&"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda value, root: all(part(value, root) for part in parts)

    def _one(self, depth: int) -> Condition:
        if depth > _MAX_DEPTH:
            raise self._refused()
        if self._take("!"):
            negated = self._one(depth + 1)
            return lambda value, root: not negated(value, root)
        if self._take("("):
            inner = self.any_of(depth + 1)
            self.expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        is_path = self._next() in ("@", "$")
        left = self._operand()
        word = self._next()
        if word not in _COMPARISONS:
            if not is_path:
                raise self._refused()
            return lambda value, root: left(value, root) is not _NOTHING
        self._take(word)
        right, compare = self._operand(), _COMPARISONS[word]
        return lambda value, root: compare(left(value, root), right(value, root))

    def _operand(self) -> _Operand:
        word = self._next()
        self._take(word)
        if word in ("@", "$"):
            path, self.place = self._parse_path(self._path, self.place)
            return _at(path, is_root=word == "$")
        if word == "[":
            several = [] if self._next() == "]" else [self._constant(self._taken())]
            while self._take(","):
                several.append(self._constant(self._taken()))
            self.expect("]")
            return lambda value, root: several
        constant = self._constant(word)
        return lambda value, root: constant

    def _constant(self, word: str) -> Any:
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        if word[:1] in ("'", '"'):
            return re.sub(r"\\(.)", r"\1", word[1:-1])
        if word[:1] == "-" or word[:1].isdigit():
            return int(word) if word.lstrip("-").isdigit() else float(word)
        raise self._refused()

    def _next(self) -> str:
        match = _TOKEN.match(self._path, self.place)
        return "" if match is None else match["word"]

    def _take(self, word: str) -> bool:
        match = _TOKEN.match(self._path, self.place)
        if match is None or match["word"] != word:
            return False
        self.place = match.end()
        return True

    def _taken(self) -> str:
        word = self._next()
        self._take(word)
        return word

    def _refused(self) -> SqlValidationError:
        rest = self._path[self.place :]
        return SqlValidationError(
            f"JSON path has a condition that is not supported path='{self._path:.100}' at='{rest:.30}' "
            "expected=@.name, constants, == != < <= > >= in nin contains && || !"
        )


def _at(path: DefinitePath, *, is_root: bool) -> _Operand:
    def operand(value: Any, root: Any) -> Any:
        nodes = path.nodes(root if is_root else value)
        return nodes[0].value if nodes else _NOTHING

    return operand


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(left: Any, right: Any) -> bool:
    if left is _NOTHING or right is _NOTHING:
        return False
    if _is_number(left) and isinstance(right, str):
        try:
            return Decimal(right) == Decimal(str(left))
        except InvalidOperation:
            return False
    if isinstance(left, str) and _is_number(right):
        return left == str(right)
    return ((_is_number(left) and _is_number(right)) or type(left) is type(right)) and bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(left: Any, right: Any) -> bool:
        alike = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
        return alike and compare(left, right)

    return holds


def _is_in(left: Any, right: Any) -> bool:
    return isinstance(right, list) and any(_equal(left, item) for item in right)


def _contains(left: Any, right: Any) -> bool:
    return (isinstance(left, str) and isinstance(right, str) and right in left) or _is_in(right, left)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "===": lambda left, right: _equal(left, right) and _is_number(left) == _is_number(right),
    "!=": lambda left, right: not _equal(left, right),
    "!==": lambda left, right: not (_equal(left, right) and _is_number(left) == _is_number(right)),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": _is_in,
    "nin": lambda left, right: not _is_in(left, right),
    "contains": _contains,
}

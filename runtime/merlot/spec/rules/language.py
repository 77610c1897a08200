"""Language for rules of a manifest. A rule is stated once, and judged both by Python and by an API server.

A condition is a predicate over the plain document and also the CEL text by which an API server judges the stored
object. The predicate takes a document as it is written, without the defaults that an API server fills in. If a value
has another type than an operand needs, the predicate raises MalformedError and the rule is skipped: the model and the
schema report such a value.

Operators: `has`; `equals`, `is_in`, `matches`, `starts_with`, `contains` and comparisons of an operand; `&`, `|`, `~`
and `>>` (implies) of conditions; `every`, `some`, `unique` and `pairs` over lists and over the keys of mappings. A rule
that CEL cannot express, or not within its cost limits, is a function in `merlot.spec.manifest`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

Names = Mapping[str, Any]
"""Values of variables: `self` and the variables that `every`, `some`, `unique` and `pairs` bind."""
Failures = Callable[[Names], Sequence[str]]
"""Function that returns where a condition fails, as suffixes of a path: `[1]` for an item of a list, empty for the
whole."""

_ABSENT: Final = object()
_ATOM, _RELATION, _AND, _OR = 3, 2, 1, 0
"""Precedence of a CEL expression; higher binds tighter."""


class MalformedError(Exception):
    """Raised if a value is missing, or of another type than an operand needs."""


@dataclass(frozen=True)
class RuleCondition:
    """Condition of a rule, in Python and in CEL."""

    cel: str
    failures: Failures
    precedence: int = _ATOM
    negation: str = ""
    """CEL of the negated condition, if it is more than a leading `!`."""

    def holds(self, names: Names) -> bool:
        """Return True if the condition holds; raise MalformedError if a value has the wrong type or is missing."""
        return not self.failures(names)

    def operand(self, precedence: int) -> str:
        """Return the CEL text as an operand of an operator of this precedence, in parentheses if it binds less
        tightly."""
        return self.cel if self.precedence >= precedence else f"({self.cel})"

    def __and__(self, other: RuleCondition) -> RuleCondition:
        cel = f"{self.operand(_AND)} && {other.operand(_AND)}"
        return RuleCondition(cel, lambda names: self.failures(names) or other.failures(names), _AND)

    def __or__(self, other: RuleCondition) -> RuleCondition:
        cel = f"{self.operand(_OR)} || {other.operand(_OR)}"
        return RuleCondition(cel, lambda names: () if self.holds(names) else other.failures(names), _OR)

    def __invert__(self) -> RuleCondition:
        cel, precedence = self.negation or f"!{self.operand(_ATOM)}", _RELATION if self.negation else _ATOM
        return _predicate(cel, lambda names: not self.holds(names), precedence, self.cel)

    def same_as(self, other: RuleCondition) -> RuleCondition:
        """Return the condition that either both conditions hold or neither does."""
        return _equality(
            self.operand(_ATOM), other.operand(_ATOM), lambda names: self.holds(names) == other.holds(names)
        )

    def __rshift__(self, other: RuleCondition) -> RuleCondition:
        """Return the condition that the other condition holds if this one does."""
        return ~self | other


def _predicate(cel: str, holds: Callable[[Names], bool], precedence: int = _ATOM, negation: str = "") -> RuleCondition:
    return RuleCondition(cel, lambda names: () if holds(names) else ("",), precedence, negation)


def _equality(first: str, second: str, holds: Callable[[Names], bool]) -> RuleCondition:
    return _predicate(f"{first} == {second}", holds, _RELATION, f"{first} != {second}")


@dataclass(frozen=True)
class Operand:
    """Value of a document."""

    cel: str
    find: Callable[[Names], Any]
    """Function that returns the value, or `_ABSENT`; raises MalformedError if its parent is no mapping."""
    chain: tuple[str, ...] = ()
    """CEL of the optional fields on the way to it, itself included."""
    is_in_list: bool = False
    """True if an API server fills in no defaults here, as within lists."""
    default: Any = _ABSENT
    allowed: Collection[str] = ()
    """Values that it may have, if restricted; any other value is malformed."""

    def part(self, name: str) -> Operand:
        """Return an object below it that is always present: it is required, or the API server fills it in."""
        return replace(self, cel=f"{self.cel}.{name}", find=_member(self, name))

    def field(self, path: str, default: Any = _ABSENT, allowed: Collection[str] = ()) -> Operand:
        """Return an optional field below it, such as `tenants.server`. default: its value if it is left out."""
        leaf = self
        for name in path.split("."):
            cel = f"{leaf.cel}.{name}"
            leaf = replace(self, cel=cel, find=_member(leaf, name), chain=(*leaf.chain, cel))
        if self.is_in_list and default is not _ABSENT:
            given = " && ".join(f"has({cel})" for cel in leaf.chain)
            leaf = replace(leaf, cel=f"({given} ? {leaf.cel} : {_literal(default)})")
        return replace(leaf, default=default, allowed=allowed)

    def value(self, names: Names, type_: type | tuple[type, ...] = object) -> Any:
        """Return the value or the default; raise MalformedError if there is neither, or the type or word is wrong."""
        value = self.find(names)
        value = self.default if value is _ABSENT else value
        is_wrong = not isinstance(value, type_) or (isinstance(value, bool) and type_ is int)
        if value is _ABSENT or is_wrong or (self.allowed and value not in self.allowed):
            raise MalformedError(self.cel)
        return value

    def is_true(self) -> RuleCondition:
        """Return the condition that the value is true."""
        return _predicate(self.cel, lambda names: bool(self.value(names, bool)))

    def equals(self, other: str | int | Operand) -> RuleCondition:
        """Return the condition that the value equals another operand's, or this constant."""
        if isinstance(other, Operand):
            return _equality(self.cel, other.cel, lambda names: bool(self.value(names) == other.value(names)))
        return _equality(self.cel, _literal(other), lambda names: bool(self.value(names, type(other)) == other))

    def at_most(self, most: int) -> RuleCondition:
        """Return the condition that the number is at most `most`."""
        return _predicate(f"{self.cel} <= {most}", lambda names: bool(self.value(names, int) <= most), _RELATION)

    def at_least(self, other: Operand) -> RuleCondition:
        """Return the condition that the number is not below another."""
        return self._ordered(">=", other, operator.ge, int)

    def before(self, other: Operand) -> RuleCondition:
        """Return the condition that the text sorts before another."""
        return self._ordered("<", other, operator.lt, str)

    def is_in(self, *values: str) -> RuleCondition:
        """Return the condition that the text is one of these."""
        return _predicate(
            f"{self.cel} in {_literal(values)}", lambda names: self.value(names, str) in values, _RELATION
        )

    def is_member_of(self, other: Operand) -> RuleCondition:
        """Return the condition that the value is an item of a list, or a key of a mapping."""
        return _predicate(
            f"{self.cel} in {other.cel}",
            lambda names: self.value(names) in other.value(names, (list, dict)),
            _RELATION,
        )

    def holds_item(self, value: str) -> RuleCondition:
        """Return the condition that the list or mapping has this item or key."""
        return _predicate(
            f"{_literal(value)} in {self.cel}", lambda names: value in self.value(names, (list, dict)), _RELATION
        )

    def matches(self, pattern: str) -> RuleCondition:
        """Return the condition that a regular expression of RE2 matches somewhere in the text."""
        # RE2's $ matches only at the end of the text; Python's also matches before a final line feed.
        compiled = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
        cel = f"{self.cel}.matches({_literal(pattern)})"
        return _predicate(cel, lambda names: compiled.search(self.value(names, str)) is not None)

    def starts_with(self, prefix: str) -> RuleCondition:
        """Return the condition that the text has this prefix."""
        cel = f"{self.cel}.startsWith({_literal(prefix)})"
        return _predicate(cel, lambda names: self.value(names, str).startswith(prefix))

    def ends_with(self, suffix: str) -> RuleCondition:
        """Return the condition that the text has this suffix."""
        cel = f"{self.cel}.endsWith({_literal(suffix)})"
        return _predicate(cel, lambda names: self.value(names, str).endswith(suffix))

    def contains(self, part: str) -> RuleCondition:
        """Return the condition that the text contains this part."""
        cel = f"{self.cel}.contains({_literal(part)})"
        return _predicate(cel, lambda names: part in self.value(names, str))

    def size(self) -> Operand:
        """Return an operand: the number of items of a list or mapping."""
        return Operand(f"size({self.cel})", lambda names: len(self.value(names, (list, dict))))

    def lower(self) -> Operand:
        """Return an operand: the text, which is ASCII, in lower case."""
        return Operand(f"{self.cel}.lowerAscii()", lambda names: self.value(names, str).lower())

    def _ordered(self, sign: str, other: Operand, holds: Callable[[Any, Any], bool], type_: type) -> RuleCondition:
        return _predicate(
            f"{self.cel} {sign} {other.cel}",
            lambda names: holds(self.value(names, type_), other.value(names, type_)),
            _RELATION,
        )


def _member(parent: Operand, name: str) -> Callable[[Names], Any]:
    def find(names: Names) -> Any:
        above = parent.find(names)
        if above is _ABSENT:
            return _ABSENT
        if not isinstance(above, dict):
            raise MalformedError(parent.cel)
        return above.get(name, _ABSENT)

    return find


def _variable(name: str, cel: str = "", *, is_in_list: bool) -> Operand:
    def find(names: Names) -> Any:
        if name not in names:
            raise MalformedError(name)
        return names[name]

    return Operand(cel or name, find, is_in_list=is_in_list)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value)


SELF: Final = _variable("self", is_in_list=False)
"""Object to which a rule applies."""
ITEM: Final = _variable("self", is_in_list=True)
"""Object to which a rule applies, if it is an item of a list."""
OLD: Final = _variable("oldSelf", is_in_list=False)
"""Object before the change. A rule that names it judges only changes."""
OLD_ITEM: Final = _variable("oldSelf", is_in_list=True)
"""Object before the change, if it is an item of a list."""


def has(operand: Operand) -> RuleCondition:
    """Return the condition that a field and all its parents are written."""
    cel = " && ".join(f"has({field})" for field in operand.chain)
    precedence = _ATOM if len(operand.chain) == 1 else _AND
    return _predicate(cel, lambda names: operand.find(names) is not _ABSENT, precedence)


def is_empty(operand: Operand) -> RuleCondition:
    """Return the condition that a list or mapping is absent or has no items."""
    return ~has(operand) | operand.size().equals(0)


def unchanged(now: Operand, before: Operand) -> RuleCondition:
    """Return the condition that an optional field has not changed."""
    return has(now).same_as(has(before)) & (~has(now) | now.equals(before))


def any_of(conditions: Sequence[RuleCondition]) -> RuleCondition:
    """Return the condition that at least one of several holds."""
    first, *others = conditions
    for other in others:
        first |= other
    return first


def every(items: Operand, name: str, condition: Callable[[Operand], RuleCondition]) -> RuleCondition:
    """Return the condition that each item of a list, or each key of a mapping, meets a condition. name: variable in
    CEL."""
    body = condition(_variable(name, is_in_list=True))
    return RuleCondition(f"{items.cel}.all({name}, {body.cel})", lambda names: _failing(items, name, body, names))


def some(items: Operand, name: str, condition: Callable[[Operand], RuleCondition]) -> RuleCondition:
    """Return the condition that at least one item of a list meets a condition. A malformed item is taken to meet it."""
    body = condition(_variable(name, is_in_list=True))
    return _predicate(
        f"{items.cel}.exists({name}, {body.cel})",
        lambda names: any(_holds_of(body, {**names, name: value}) for value in items.value(names, list)),
    )


def _failing(items: Operand, name: str, body: RuleCondition, names: Names) -> list[str]:
    values = items.value(names, (list, dict))
    suffixes = []
    for position, value in enumerate(values):
        suffix = f".{value}" if isinstance(values, dict) else f"[{position}]"
        if not _holds_of(body, {**names, name: value}):
            suffixes.append(suffix)
    return suffixes


def _holds_of(condition: RuleCondition, names: Names) -> bool:
    try:
        return condition.holds(names)
    except MalformedError:
        return True


def unique(items: Operand, key: Callable[[Operand], Operand] = lambda item: item, at: str = "") -> RuleCondition:
    """Return the condition that no two items of a list have the same key. at: suffix of an item's path where a failure
    is."""
    first, second = (_variable(name, is_in_list=True) for name in "ab")
    cel = f"{items.cel}.all(a, {items.cel}.exists_one(b, {key(first).cel} == {key(second).cel}))"

    def failures(names: Names) -> list[str]:
        keys = [_value_of(key(first), {"a": item}) for item in items.value(names, list)]
        return [f"[{n}]{at}" for n, value in enumerate(keys) if value is not _ABSENT and value in keys[:n]]

    return RuleCondition(cel, failures)


def _value_of(operand: Operand, names: Names) -> Any:
    try:
        return operand.value(names)
    except MalformedError:
        return _ABSENT


def pairs(
    items: Operand, most: int, condition: Callable[[Operand, Operand], RuleCondition], at: str = ""
) -> RuleCondition:
    """Return the condition that each item of a list meets a condition with each item before it. most: maximum length of
    the list."""
    before, after = (_variable(name, f"{items.cel}[{name}]", is_in_list=True) for name in "ij")
    body = condition(before, after)
    outer, inner = _literal(list(range(1, most))), _literal(list(range(most - 1)))
    cel = f"{outer}.all(j, j >= size({items.cel}) || {inner}.all(i, i >= j || {body.cel}))"

    def failures(names: Names) -> list[str]:
        values = items.value(names, list)
        is_wrong = (
            any(not _holds_of(body, {**names, "i": earlier, "j": value}) for earlier in values[:n])
            for n, value in enumerate(values)
        )
        return [f"[{n}]{at}" for n, wrong in enumerate(is_wrong) if wrong]

    return RuleCondition(cel, failures)

"""Definition of a scalar function: its signature, its rules, its code, and examples of it that a test runs.

Most functions have `apply`: vectors in, values out, null where an argument is. `lazy` functions see more of the rows:
they are given their arguments unevaluated. Others are short forms of another expression, which `rewrite` writes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol, TypedDict, Unpack

from merlot.functions.sizes import MostBytes
from merlot.functions.source import ColumnSource
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

VectorFunction = Callable[[SqlType, Sequence[Vector]], Any]
"""Function from the result type and the arguments to the values: a numpy or Arrow array, a constant if the arguments
are constants, or an `Attempt`."""
Evaluate = Callable[[Expr, ColumnSource], Vector]
Lazy = Callable[[Call, ColumnSource, Evaluate], Vector]
Bounds = tuple[int, int]
"""Smallest and largest whole number, inclusive."""


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """Types that an argument may have, and what users call them."""

    words: str
    types: frozenset[TypeName]


def _kind(words: str, *types: TypeName) -> ArgumentKind:
    return ArgumentKind(words, frozenset(types))


WHOLE: Final = _kind("whole numbers", TypeName.INT, TypeName.LONG)
NUMBERS: Final = ArgumentKind(
    "numbers",
    WHOLE.types | {TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL, TypeName.TIMESTAMP},
)
"""TIMESTAMP counts as LONG."""
TEXTS: Final = _kind("strings", TypeName.STRING, TypeName.JSON)
BINARY: Final = _kind("bytes", TypeName.BYTES)
INSTANTS: Final = _kind("a TIMESTAMP, LONG or INT", TypeName.TIMESTAMP, TypeName.LONG, TypeName.INT)
CONDITIONS: Final = _kind("a condition", TypeName.BOOLEAN)
ANYTHING: Final = ArgumentKind("values", frozenset(TypeName))
"""NULL counts as one of the values."""


class Lists(Enum):
    """Treatment of an argument that is a list, as a multi-value column is."""

    REFUSED = "refused"
    ANY_VALUE = "any value"
    """The function is a predicate: it is true where it is true of any value of its first argument. `not_equals` and
    `not_in` are true where no value is equal."""
    PASSED_WHOLE = "taken whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Argument of a function. A constant argument is the same for all rows and known when the query is bound."""

    name: str
    kind: ArgumentKind
    is_constant: bool = False
    is_optional: bool = False
    repeats: bool = False
    """True if the last argument may be repeated any number of times."""
    is_list: bool = False

    def check(self, function: str, arg: Expr) -> None:
        """Raise SqlValidationError or UnsupportedSqlError if the expression cannot be this argument."""
        if arg.type.is_array != self.is_list:
            if self.is_list:
                raise SqlValidationError(f"{function} needs a multi-value column, not {arg.type}")
            raise UnsupportedSqlError(f"function {function.upper()} of a multi-value column")
        if arg.type.base not in self.kind.types:
            raise SqlValidationError(f"{function} needs {self.kind.words}, not {arg.type}")
        if self.is_constant and not isinstance(arg, Literal):
            raise SqlValidationError(f"{function} needs its {self.name} as a constant")


class Binding(Protocol):
    """Query in which functions are bound."""

    @property
    def nulls(self) -> bool:
        """True if null handling is on."""
        ...

    def equal(self, left: Expr, right: Expr) -> Expr:
        """Return the predicate that two expressions are equal; raise SqlValidationError if they cannot be compared."""
        ...

    def predicate(self, expr: Expr) -> Expr:
        """Return a condition as a predicate; raise SqlValidationError if it is none."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, the same for the whole query; raise SqlValidationError where there is no
        current time."""
        ...


Result = SqlType | Callable[[Sequence[Expr]], SqlType]
Rewrite = Callable[[Binding, tuple[Expr, ...]], Expr]


class Traits(TypedDict, total=False):
    """Keyword arguments that describe a function besides its code."""

    aliases: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    result: Result
    complete: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] | None
    check_complete: Callable[[tuple[Expr, ...]], None]
    syntax: str
    lists: Lists
    sees_nulls: bool
    is_light: bool
    is_predicate: bool
    takes_scaled: bool
    most_bytes: MostBytes
    bounds: Callable[[Sequence[Bounds]], Bounds]
    rising: Callable[[Call], Expr | None]
    examples: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """Function of the values of one row."""

    name: str
    aliases: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    result: Result | None = None
    """Type of a call's result. An expression with a syntax of its own may have the type that binding gives it."""
    apply: VectorFunction | None = None
    lazy: Lazy | None = None
    rewrite: Rewrite | None = None
    complete: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] | None = None
    """Function that checks arguments of the right types further, and fills in defaults; raises SqlValidationError."""
    check_complete: Callable[[tuple[Expr, ...]], None] | None = None
    """Function that checks arguments as `complete` returns them, if `complete` would not take them itself; raises
    SqlValidationError."""
    syntax: str = ""
    """Notation of the function, if it is not written as a call."""
    lists: Lists = Lists.REFUSED
    sees_nulls: bool = False
    """True if a result may have a value although an argument is null."""
    is_light: bool = False
    """True if a row costs a few nanoseconds, whatever it holds, so that a query may be answered on the event loop."""
    is_predicate: bool = False
    takes_scaled: bool = False
    """True if its code takes BIG_DECIMAL as whole numbers of a scale, too (`vectors.scaled`)."""
    most_bytes: MostBytes | None = None
    """Limit of the bytes of a result, if that may be longer than `sizes.usual` says."""
    bounds: Callable[[Sequence[Bounds]], Bounds] | None = None
    """Function from the bounds of the arguments to those of the result, all whole numbers."""
    rising: Callable[[Call], Expr | None] | None = None
    """Function that returns the operand in which a call is non-decreasing, the others being constants; None if there is
    none."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Expressions, and their values as query answers show them."""

    def bind(self, binding: Binding, args: tuple[Expr, ...]) -> Expr:
        """Return the typed call, or the expression that it is short for; raise SqlValidationError,
        UnsupportedSqlError."""
        self._check(args)
        if self.rewrite is not None:
            return self.rewrite(binding, args)
        if self.complete is not None:
            args = self.complete(args)
        result = self.result
        assert result is not None, f"{self.name} is no call"
        return Call(self.name, args, result if isinstance(result, SqlType) else result(args))

    def check(self, call: Call) -> None:
        """Raise SqlValidationError or UnsupportedSqlError for a call that `bind` would not have made."""
        if self.rewrite is not None or self.result is None:
            raise SqlValidationError(f"{self.name} is no call")
        if self.check_complete is not None:
            self.check_complete(call.args)
        else:
            self._check(call.args)
            if self.complete is not None and self.complete(call.args) != call.args:
                raise SqlValidationError(f"{self.name} has arguments that are not complete")
        result = self.result if isinstance(self.result, SqlType) else self.result(call.args)
        if call.type != result:
            raise SqlValidationError(f"{self.name} answers {result}, not {call.type}")

    @property
    def arity(self) -> tuple[int, int | None]:
        """Least and greatest number of arguments; None for no limit."""
        least = sum(not parameter.is_optional for parameter in self.parameters)
        repeats = any(parameter.repeats for parameter in self.parameters)
        return least, None if repeats else len(self.parameters)

    def parameter(self, position: int) -> Parameter:
        """Return the parameter of an argument; the function has to have parameters."""
        return self.parameters[min(position, len(self.parameters) - 1)]

    def wants_list(self, position: int) -> bool:
        """Return True if the argument at the position has to be a list."""
        return bool(self.parameters) and self.parameter(position).is_list

    def _check(self, args: tuple[Expr, ...]) -> None:
        least, most = self.arity
        if len(args) < least or (most is not None and len(args) > most):
            raise SqlValidationError(f"{self.name} takes {arity(least, most)}, got {len(args)}")
        for position, arg in enumerate(args):
            parameter = self.parameter(position)
            if self.lists is Lists.ANY_VALUE and position == 0 and arg.type.is_array:
                parameter = replace(parameter, is_list=True)
            parameter.check(self.name, arg)


def arity(least: int, most: int | None) -> str:
    """Return the number of arguments in words."""
    if most is None:
        return f"at least {least} argument{'s' if least != 1 else ''}"
    return f"{least} argument{'s' if least != 1 else ''}" if least == most else f"{least} to {most} arguments"


class Family:
    """Functions that belong together. A module has one family, and adds functions to it by decorating their code."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.functions: list[ScalarFunction] = []

    def strict(self, name: str, **traits: Unpack[Traits]) -> Callable[[VectorFunction], VectorFunction]:
        """Add a function that is null where an argument is, by code over vectors."""

        def add(apply: VectorFunction) -> VectorFunction:
            self.functions.append(ScalarFunction(name=name, apply=apply, **traits))
            return apply

        return add

    def lazy(self, name: str, **traits: Unpack[Traits]) -> Callable[[Lazy], Lazy]:
        """Add a function that is given its arguments unevaluated."""

        def add(lazy: Lazy) -> Lazy:
            self.functions.append(ScalarFunction(name=name, lazy=lazy, **traits))
            return lazy

        return add

    def rewriting(self, name: str, **traits: Unpack[Traits]) -> Callable[[Rewrite], Rewrite]:
        """Add a function that is a short form of another expression."""

        def add(rewrite: Rewrite) -> Rewrite:
            self.functions.append(ScalarFunction(name=name, rewrite=rewrite, **traits))
            return rewrite

        return add


def number(name: str = "x", *, is_optional: bool = False, repeats: bool = False) -> Parameter:
    """Return a parameter that takes a number of any numeric type."""
    return Parameter(name=name, kind=NUMBERS, is_optional=is_optional, repeats=repeats)


def whole(name: str = "x", *, is_optional: bool = False, repeats: bool = False) -> Parameter:
    """Return a parameter that takes an INT or LONG."""
    return Parameter(name=name, kind=WHOLE, is_optional=is_optional, repeats=repeats)


def text(name: str = "text", *, is_optional: bool = False, repeats: bool = False) -> Parameter:
    """Return a parameter that takes a STRING, or JSON as its text."""
    return Parameter(name=name, kind=TEXTS, is_optional=is_optional, repeats=repeats)


def word(name: str, *, is_optional: bool = False) -> Parameter:
    """Return a parameter that takes a constant text."""
    return Parameter(name=name, kind=TEXTS, is_constant=True, is_optional=is_optional)


def size(name: str, *, is_optional: bool = False) -> Parameter:
    """Return a parameter that takes a constant whole number."""
    return Parameter(name=name, kind=WHOLE, is_constant=True, is_optional=is_optional)


def constant(name: str, *, is_optional: bool = False, repeats: bool = False) -> Parameter:
    """Return a parameter that takes a constant of any type."""
    return Parameter(name=name, kind=ANYTHING, is_constant=True, is_optional=is_optional, repeats=repeats)


def instant(name: str = "at") -> Parameter:
    """Return a parameter that takes an instant, as a TIMESTAMP or a whole number."""
    return Parameter(name=name, kind=INSTANTS)


def anything(name: str = "x", *, is_optional: bool = False, repeats: bool = False) -> Parameter:
    """Return a parameter that takes a value of any type."""
    return Parameter(name=name, kind=ANYTHING, is_optional=is_optional, repeats=repeats)

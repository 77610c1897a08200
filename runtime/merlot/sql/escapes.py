"""Translate escapes of ODBC and JDBC, such as `{fn UCASE(a)}`, to expressions. Drivers of other databases do this;
tools that know only the standard send escapes to any database. Pure and safe on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from merlot.sql.keywords import TYPES
from merlot.sql.syntax import Call, Cast, Column, Node, Number, Operation, Paren, Text
from merlot.tree.errors import SqlValidationError

TIMES: Final = {"TS": "TIMESTAMP", "D": "DATE"}
"""Words that begin an escape of a time, and the types of their constants."""
FUNCTION: Final = "FN"
_UNIT_PREFIX: Final = "SQL_TSI_"
_TYPE_PREFIX: Final = "SQL_"
_NAMES: Final = {
    "LCASE": "LOWER",
    "UCASE": "UPPER",
    "LEFT": "LEFTSUBSTR",
    "RIGHT": "RIGHTSUBSTR",
    "IFNULL": "COALESCE",
    "ROUND": "ROUNDDECIMAL",
    "CEILING": "CEIL",
}
"""Functions that have the same arguments under another name here. ROUND of ODBC has digits, that of Pinot a bucket."""


def unescaped(node: Node) -> Node:
    """Return the expression of an escape of a function, whose function has the name and the arguments of ODBC."""
    if not isinstance(node, Call):
        return node
    name = node.name.upper()
    special = _SPECIAL.get(name)
    if special is not None:
        return special(node, list(node.args))
    return Call(_NAMES.get(name, node.name), node.args, token=node.token)


def _converted(call: Call, args: Sequence[Node]) -> Node:
    """Read `CONVERT(a, SQL_BIGINT)` as CAST."""
    target = args[1] if len(args) == 2 else None
    if not isinstance(target, Column):
        raise SqlValidationError("CONVERT takes a value and a type, as in {fn CONVERT(a, SQL_BIGINT)}")
    written = target.name.upper().removeprefix(_TYPE_PREFIX)
    return Cast(args[0], TYPES.get(written, written))


def _shifted(call: Call, args: Sequence[Node]) -> Node:
    """Read the unit SQL_TSI_DAY of TIMESTAMPADD and TIMESTAMPDIFF as DAY."""
    first = args[0] if args else None
    if isinstance(first, Column) and first.name.upper().startswith(_UNIT_PREFIX):
        args = [Text(first.name.upper().removeprefix(_UNIT_PREFIX)), *args[1:]]
    return Call(call.name, args, token=call.token)


def _located(call: Call, args: Sequence[Node]) -> Node:
    """Read `LOCATE(a, b)` as the place of a in b, which counts from 1."""
    if len(args) != 2:
        raise SqlValidationError(f"LOCATE takes 2 arguments, got {len(args)}")
    return Paren(Operation("plus", Call("STRPOS", [args[1], args[0]], token=call.token), Number("1")))


def _day_of_week(call: Call, args: Sequence[Node]) -> Node:
    """Count days of the week from Sunday, 1, as ODBC does; DAYOFWEEK counts from Monday."""
    number = Call(call.name, args, token=call.token)
    return Paren(Operation("plus", Operation("mod", number, Number("7")), Number("1")))


def _now(call: Call, args: Sequence[Node]) -> Node:
    return Cast(Call(call.name, args, token=call.token), "TIMESTAMP")


_SPECIAL: Final[dict[str, Callable[[Call, Sequence[Node]], Node]]] = {
    "CONVERT": _converted,
    "TIMESTAMPADD": _shifted,
    "TIMESTAMPDIFF": _shifted,
    "LOCATE": _located,
    "DAYOFWEEK": _day_of_week,
    "NOW": _now,
}

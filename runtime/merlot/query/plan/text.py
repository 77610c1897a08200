"""Texts of expressions for readers of a plan: operators as in SQL, all other functions as calls."""

from __future__ import annotations

from typing import Final, assert_never

from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal

MAX_VALUES: Final = 10
MAX_CHARS: Final = 100
_SYMBOLS: Final = {
    "equals": "=",
    "not_equals": "<>",
    "less_than": "<",
    "less_than_or_equal": "<=",
    "greater_than": ">",
    "greater_than_or_equal": ">=",
    "like": "LIKE",
}
_LISTS: Final = {"in": "IN", "not_in": "NOT IN"}
_TESTS: Final = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}


def text_of(expr: Expr) -> str:
    """Return an expression in one line; long constants and long lists are cut short."""
    match expr:
        case Literal():
            return _constant(expr)
        case Column():
            return expr.name
        case Aggregate():
            args = ", ".join(map(text_of, expr.args)) or "*"
            return f"{expr.function}({args})" + (
                "" if expr.filter is None else f" FILTER(WHERE {text_of(expr.filter)})"
            )
        case Call():
            return _call(expr)
    assert_never(expr)


def _call(call: Call) -> str:
    function, args = call.function, call.args
    if function in _SYMBOLS:
        return f"{text_of(args[0])} {_SYMBOLS[function]} {text_of(args[1])}"
    if function in _LISTS:
        shown = [text_of(arg) for arg in args[1 : 1 + MAX_VALUES]]
        more = f",… {len(args) - 1} values" if len(args) - 1 > MAX_VALUES else ""
        return f"{text_of(args[0])} {_LISTS[function]} ({','.join(shown)}{more})"
    if function in _TESTS:
        return f"{text_of(args[0])} {_TESTS[function]}"
    if function == "between":
        return f"{text_of(args[0])} BETWEEN {text_of(args[1])} AND {text_of(args[2])}"
    if function in ("and", "or"):
        return f" {function.upper()} ".join(f"({text_of(arg)})" for arg in args)
    if function == "not":
        return f"NOT ({text_of(args[0])})"
    if function == "cast":
        return f"cast({text_of(args[0])} AS {call.type})"
    return f"{function}({','.join(map(text_of, args))})"


def _constant(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, bytes):
        text = f"x'{value.hex()}'"
    else:
        text = "null" if value is None else f"'{str(value).lower() if isinstance(value, bool) else value}'"
    shown = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in shown)

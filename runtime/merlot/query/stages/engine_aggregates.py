"""Aggregates above leaves (ADR 53): the engine's own where it computes as we do.

Any other aggregate is ours, called with a list of each group's rows (`engine_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from merlot.query.stages.engine_calls import ENGINE_TYPES, field_name
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.nodes import Expr
from merlot.tree.types import BIG_DECIMAL, LONG, SqlType
from merlot.values.types import TypeName

_PLAIN: Final[Mapping[str, str]] = {
    "min": "min",
    "max": "max",
    "minlong": "min",
    "maxlong": "max",
    "minstring": "min",
    "maxstring": "max",
    "booland": "bool_and",
    "boolor": "bool_or",
}
_OF_DOUBLES: Final[Mapping[str, str]] = {
    "varpop": "var_pop",
    "varsamp": "var_samp",
    "stddevpop": "stddev_pop",
    "stddevsamp": "stddev_samp",
    "covarpop": "covar_pop",
    "covarsamp": "covar_samp",
    "corr": "corr",
}
_COUNTS_AND_SUMS: Final = frozenset({"count", "distinctcount", "sum", "sumlong", "avg"})


def is_native(name: str, args: Sequence[Expr]) -> bool:
    """Return whether the engine has the aggregate for such arguments."""
    if args and args[0].type.base is TypeName.BYTES:
        return name in ("count", "distinctcount")  # for other aggregates, BYTES are stored states
    return name in _COUNTS_AND_SUMS or name in _PLAIN or name in _OF_DOUBLES


def native_text(
    name: str, args: Sequence[Expr], written: Sequence[str], type_: SqlType
) -> tuple[str, Callable[[str], str]]:
    """Return the engine's aggregate, and a function that completes its text."""
    if name == "count":
        return (f"count({written[0]})" if written else "count(*)"), _as_it_is
    if name == "distinctcount":
        return f"count(DISTINCT {_counted(written)})", lambda text: f"CAST({text} AS {ENGINE_TYPES[type_.base]})"
    if name in ("sum", "sumlong"):
        return _sum(written[0], type_)
    if name == "avg":
        if args[0].type.base in (TypeName.FLOAT, TypeName.DOUBLE):
            return f"favg(CAST({written[0]} AS DOUBLE))", _with_infinities
        number = f"CAST({written[0]} AS BIGINT)" if args[0].type.base is TypeName.BOOLEAN else written[0]
        return f"avg({number})", lambda text: f"CAST({text} AS DOUBLE)"
    if name in _PLAIN:
        return f"{_PLAIN[name]}({', '.join(written)})", _as_it_is
    function = _OF_DOUBLES.get(name)
    if function is None:
        raise UnsupportedSqlError(f"{name.upper()} OVER a window")
    text = f"{function}({', '.join(f'CAST({arg} AS DOUBLE)' for arg in written)})"
    # A constant has no correlation, which the engine returns as NaN.
    return text, (lambda call: f"nullif({call}, CAST('NaN' AS DOUBLE))") if name == "corr" else _as_it_is


def row_of(values: Sequence[str]) -> str:
    """Return an element of the lists that our functions get: one value, or a row of several."""
    if len(values) == 1:
        return values[0]
    return f"struct_pack({', '.join(f'{field_name(at)} := {value}' for at, value in enumerate(values))})"


def _sum(written: str, type_: SqlType) -> tuple[str, Callable[[str], str]]:
    if type_ == LONG:
        return f"sum(CAST({written} AS BIGINT))", lambda text: f"CAST({text} AS BIGINT)"
    if type_ == BIG_DECIMAL:
        return f"sum({written})", _as_it_is
    return f"fsum(CAST({written} AS DOUBLE))", _with_infinities


def _as_it_is(text: str) -> str:
    return text


def _with_infinities(text: str) -> str:
    """Return a compensated sum or mean (`fsum` or `favg`), or the plain `sum` or `avg` of infinities, for which those
    return NaN."""
    return f"(CASE WHEN isnan({text}) THEN {text.removeprefix('f')} ELSE {text} END)"


def _counted(written: Sequence[str]) -> str:
    """Return the argument of COUNT(DISTINCT …). Rows of several values count only if none of the values is NULL."""
    if len(written) == 1:
        return written[0]
    are_present = " AND ".join(f"{value} IS NOT NULL" for value in written)
    return f"CASE WHEN {are_present} THEN ROW({', '.join(written)}) END"

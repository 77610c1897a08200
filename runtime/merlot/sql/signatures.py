"""Every scalar function that queries may call: canonical name, aliases, argument checks and result type.

Names are looked up without case and underscores. Arithmetic on integers is exact in LONG and overflow is an error; with
a FLOAT or DOUBLE operand it is DOUBLE, with a BIG_DECIMAL one BIG_DECIMAL; `divide` is DOUBLE. Aggregates are in
`aggregates.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from merlot.sql.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import BIG_DECIMAL, DOUBLE, INT, LONG, STRING, SqlType
from merlot.values.types import TypeName

Resolve = Callable[[str, tuple[Expr, ...]], Call]

TRUNC_UNITS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
TIME_UNITS = ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarSignature:
    """A function of one row. `resolve` checks and types the arguments, and may complete them with defaults."""

    name: str
    min_args: int
    max_args: int
    resolve: Resolve
    aliases: tuple[str, ...] = ()


def scalar(name: str, args: tuple[Expr, ...]) -> Call:
    """The typed call; raises UnsupportedSqlError for an unknown name, SqlValidationError for wrong arguments."""
    signature = SCALARS.get(canonical_key(name))
    if signature is None:
        raise UnsupportedSqlError(f"function {name.upper()}")
    if not signature.min_args <= len(args) <= signature.max_args:
        raise SqlValidationError(
            f"{signature.name} takes {arity(signature.min_args, signature.max_args)}, got {len(args)}"
        )
    if any(arg.type.is_array for arg in args):
        raise UnsupportedSqlError(f"function {name.upper()} of a multi-value column")
    return signature.resolve(signature.name, args)


def arity(least: int, most: int) -> str:
    """How many arguments, in words."""
    return f"{least} argument{'s' if least != 1 else ''}" if least == most else f"{least} to {most} arguments"


def _number_type(name: str, arg: Expr) -> SqlType:
    """An argument's type as a number: TIMESTAMP counts as LONG."""
    if arg.type.base is TypeName.TIMESTAMP:
        return LONG
    if not arg.type.is_numeric:
        raise SqlValidationError(f"{name} needs numbers, not {arg.type}")
    return arg.type


def _arithmetic(name: str, args: tuple[Expr, ...]) -> Call:
    types = [_number_type(name, arg) for arg in args]
    if any(type_ == BIG_DECIMAL for type_ in types):
        return Call(name, args, BIG_DECIMAL)
    return Call(name, args, LONG if all(type_.is_integer for type_ in types) else DOUBLE)


def _division(name: str, args: tuple[Expr, ...]) -> Call:
    for arg in args:
        _number_type(name, arg)
    return Call(name, args, DOUBLE)


def _same_number(name: str, args: tuple[Expr, ...]) -> Call:
    type_ = _number_type(name, args[0])
    return Call(name, args, LONG if type_.is_integer else DOUBLE if type_ != BIG_DECIMAL else BIG_DECIMAL)


def _round_down(_name: str, args: tuple[Expr, ...]) -> Call:
    """ROUND(value, bucket) of whole numbers: the multiple of the bucket towards zero (Pinot's time bucketing)."""
    if not all(_number_type("round", arg).is_integer for arg in args):
        raise UnsupportedSqlError("ROUND of anything but whole numbers")
    return Call("minus", (args[0], Call("mod", args, LONG)), LONG)


def _text(result: SqlType) -> Resolve:
    def resolve(name: str, args: tuple[Expr, ...]) -> Call:
        _need_text(name, args)
        return Call(name, args, result)

    return resolve


def _need_text(name: str, args: Sequence[Expr]) -> None:
    for arg in args:
        if arg.type.base not in (TypeName.STRING, TypeName.JSON):
            raise SqlValidationError(f"{name} needs strings, not {arg.type}")


def _substr(name: str, args: tuple[Expr, ...]) -> Call:
    _need_text(name, args[:1])
    for arg in args[1:]:
        if not arg.type.is_integer:
            raise SqlValidationError(f"{name} needs whole numbers as positions, not {arg.type}")
    return Call(name, args, STRING)


def _datetrunc(name: str, args: tuple[Expr, ...]) -> Call:
    """Complete to unit, value, input unit, time zone, output unit (Pinot's DateTruncTransformFunction); LONG."""
    unit = _word(name, args[0], "unit").upper()
    if unit not in TRUNC_UNITS:
        raise SqlValidationError(f"{name}: unknown unit '{unit}' expected={'|'.join(TRUNC_UNITS)}")
    value = args[1]
    if not (value.type.is_integer or value.type.base is TypeName.TIMESTAMP):
        raise SqlValidationError(f"{name} needs a TIMESTAMP, LONG or INT, not {value.type}")
    input_unit = _time_unit(name, args[2]) if len(args) > 2 else "MILLISECONDS"
    zone = _zone(name, args[3]) if len(args) > 3 else "UTC"
    output_unit = _time_unit(name, args[4]) if len(args) > 4 else input_unit
    completed = (_word_literal(unit), value, _word_literal(input_unit), _word_literal(zone), _word_literal(output_unit))
    return Call(name, completed, LONG)


def _word(name: str, arg: Expr, what: str) -> str:
    if not (isinstance(arg, Literal) and isinstance(arg.value, str)):
        raise SqlValidationError(f"{name} needs its {what} as a string constant")
    return arg.value


def _word_literal(word: str) -> Literal:
    return Literal(word, STRING)


def _time_unit(name: str, arg: Expr) -> str:
    unit = _word(name, arg, "time unit").upper()
    if unit not in TIME_UNITS:
        raise SqlValidationError(f"{name}: unknown time unit '{unit}' expected={'|'.join(TIME_UNITS)}")
    return unit


def _zone(name: str, arg: Expr) -> str:
    zone = _word(name, arg, "time zone")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SqlValidationError(f"{name}: unknown time zone '{zone}'") from error
    return zone


_SCALAR_LIST = (
    ScalarSignature(name="plus", min_args=2, max_args=2, resolve=_arithmetic, aliases=("add",)),
    ScalarSignature(name="minus", min_args=2, max_args=2, resolve=_arithmetic, aliases=("sub",)),
    ScalarSignature(name="times", min_args=2, max_args=2, resolve=_arithmetic, aliases=("mult",)),
    ScalarSignature(name="divide", min_args=2, max_args=2, resolve=_division, aliases=("div",)),
    ScalarSignature(name="mod", min_args=2, max_args=2, resolve=_arithmetic),
    ScalarSignature(name="negate", min_args=1, max_args=1, resolve=_same_number),
    ScalarSignature(name="abs", min_args=1, max_args=1, resolve=_same_number),
    ScalarSignature(name="round", min_args=2, max_args=2, resolve=_round_down),
    ScalarSignature(name="upper", min_args=1, max_args=1, resolve=_text(STRING)),
    ScalarSignature(name="lower", min_args=1, max_args=1, resolve=_text(STRING)),
    ScalarSignature(name="length", min_args=1, max_args=1, resolve=_text(INT)),
    ScalarSignature(name="concat", min_args=2, max_args=3, resolve=_text(STRING)),
    ScalarSignature(name="substr", min_args=2, max_args=3, resolve=_substr),
    ScalarSignature(name="datetrunc", min_args=2, max_args=5, resolve=_datetrunc),
)

SCALARS = {key: signature for signature in _SCALAR_LIST for key in (signature.name, *signature.aliases)}

CAST_TYPES = {
    "INT": TypeName.INT,
    "INTEGER": TypeName.INT,
    "BIGINT": TypeName.LONG,
    "LONG": TypeName.LONG,
    "FLOAT": TypeName.FLOAT,
    "REAL": TypeName.FLOAT,
    "DOUBLE": TypeName.DOUBLE,
    "DECIMAL": TypeName.BIG_DECIMAL,
    "BIGDECIMAL": TypeName.BIG_DECIMAL,
    "BIG_DECIMAL": TypeName.BIG_DECIMAL,
    "BOOLEAN": TypeName.BOOLEAN,
    "TIMESTAMP": TypeName.TIMESTAMP,
    "VARCHAR": TypeName.STRING,
    "TEXT": TypeName.STRING,
    "CHAR": TypeName.STRING,
    "STRING": TypeName.STRING,
    "JSON": TypeName.JSON,
    "BYTES": TypeName.BYTES,
    "VARBINARY": TypeName.BYTES,
    "BINARY": TypeName.BYTES,
}
"""Names of types in CAST: Pinot's, and what other dialects call them."""

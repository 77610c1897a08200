"""JSON by paths: each distinct text is read once. Of Jayway's paths names, places and [*] are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merlot.functions.by_value import by_value
from merlot.functions.function import NUMBERS, TEXTS, WHOLE, Family, Parameter, constant, text, word
from merlot.functions.time_words import constant_text
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BOOLEAN, DOUBLE, JSON, LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Attempt, Vector

JSON_TEXT: Final = Family("JSON")
Step = str | int | None
"""A name, a place, or all values."""
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]*()'"?@$ ]+)|\['(?P<quoted>[^']*)'\]|\["(?P<double>[^"]*)"\]"""
    r"""|\[(?P<place>-?[0-9]{1,9})\]|(?P<all>\.\*|\[\*\])"""
)
_TYPES: Final = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP", "STRING", "JSON")
_ABSENT: Final = object()


@lru_cache(maxsize=1_024)
def _path(path: str) -> tuple[Step, ...]:
    """Steps of `$.a['b'][0][*]`; raises SqlValidationError."""
    steps: list[Step] = []
    place = 1
    while path.startswith("$") and place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            break
        place = match.end()
        if match["place"] is not None:
            steps.append(int(match["place"]))
        else:
            steps.append(
                None if match["all"] else next(filter(None, (match["name"], match["quoted"], match["double"])), "")
            )
    if not path.startswith("$") or place < len(path):
        raise SqlValidationError(f"JSON path is not supported path='{path:.100}' expected=$.name['name'][0][*]")
    return tuple(steps)


def _found(value: Any, steps: tuple[Step, ...]) -> Any:
    """What lies at the path; a list where it has [*]."""
    for number, step in enumerate(steps):
        if step is None:
            inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
            found = [_found(item, steps[number + 1 :]) for item in inner]
            flat = [item for item in found if item is not _ABSENT]
            return [item for part in flat for item in part] if None in steps[number + 1 :] else flat
        if isinstance(step, str):
            value = value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else _ABSENT
        if value is _ABSENT:
            return _ABSENT
    return value


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _read(value: str) -> Any:
    try:
        return json.loads(value, parse_constant=_refused)
    except (ValueError, RecursionError):
        return _ABSENT


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _converted(value: Any, base: TypeName) -> Any:
    """The JSON value in a type; None if it is none of it."""
    if base is TypeName.STRING:
        return _written(value)
    if base is TypeName.JSON:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict | list):
        return None
    try:
        given = literals.number(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
        literal = given or Literal(value, BOOLEAN if isinstance(value, bool) else STRING)
        return literals.convert(literal, SqlType(base)).value
    except SqlValidationError:
        return None


def _extracted(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """JSON, path, type, default of that type."""
    name = constant_text(args[2]).upper()
    base = name.removesuffix("_ARRAY")
    if base not in _TYPES or (name.endswith("_ARRAY") and base in ("BIG_DECIMAL", "JSON")):
        raise SqlValidationError(f"jsonextractscalar: unknown type '{name:.100}' expected={'|'.join(_TYPES)}")
    steps = _path(constant_text(args[1]))
    if None in steps and not name.endswith("_ARRAY"):
        raise SqlValidationError(f"jsonextractscalar: a path with [*] needs an array type, not {name}")
    fixed: list[Expr] = [args[0], args[1], Literal(name, STRING)]
    if len(args) > 3:
        if name.endswith("_ARRAY"):
            raise SqlValidationError("jsonextractscalar: a list has no default but the empty one")
        assert isinstance(args[3], Literal)
        fixed.append(literals.convert(args[3], SqlType(TypeName(base))))
    return tuple(fixed)


def _named_type(args: Sequence[Expr]) -> SqlType:
    return SqlType.parse(constant_text(args[2]))


@JSON_TEXT.strict(
    "jsonextractscalar",
    parameters=(text("json"), word("path"), word("type"), constant("default", is_optional=True)),
    result=_named_type,
    complete=_extracted,
    examples={
        """JSONEXTRACTSCALAR('{"a":{"b":[7,8]}}', '$.a.b[1]', 'INT')""": 8,
        """JSON_EXTRACT_SCALAR('{"a":1.5}', '$.a', 'STRING')""": "1.5",
        """JSONEXTRACTSCALAR('{"a":1}', '$.x', 'LONG', -1)""": -1,
        """JSONEXTRACTSCALAR('{"a":["x","y"]}', '$.a[*]', 'STRING_ARRAY')""": ["x", "y"],
    },
)
def _extract_scalar(type_: SqlType, args: Sequence[Vector]) -> Any:
    """The value at the path; without a default a text that lacks it fails."""
    steps = _path(args[1].data.as_py())
    default = _default(args[3]) if len(args) > 3 else None
    if type_.is_array:
        return by_value(type_, args[:1], lambda value: _list_at(value, steps, type_.base))

    def compute(value: str) -> Any:
        found = _found(_read(value), steps)
        converted = None if found is _ABSENT or found is None else _converted(found, type_.base)
        return default if converted is None else converted

    if type_.base is TypeName.BIG_DECIMAL:
        texts = by_value(STRING, args[:1], lambda value: _plain(compute(value)), _NO_VALUE)
        return Attempt(_decimals(texts.data), texts.failure)
    return by_value(type_, args[:1], compute, _NO_VALUE)


_NO_VALUE: Final = "no value at the JSON path, and no default function=jsonextractscalar"


def _plain(value: Any) -> str | None:
    return None if value is None else str(value)


def _decimals(texts: Any) -> Any:
    if isinstance(texts, pa.Scalar):
        return _object(Decimal(texts.as_py() or 0))
    out = np.empty(len(texts), object)
    out[:] = [Decimal(text or 0) for text in texts.to_pylist()]
    return out


def _object(value: Decimal) -> Any:
    out = np.empty((), object)
    out[()] = value
    return out


def _list_at(value: str, steps: tuple[Step, ...], base: TypeName) -> list[Any]:
    found = _found(_read(value), steps)
    items = found if isinstance(found, list) else [] if found is _ABSENT or found is None else [found]
    converted = [None if item is None else _converted(item, base) for item in items]
    return [item for item in converted if item is not None]


def _default(vector: Vector) -> Any:
    return vector.data.as_py() if isinstance(vector.data, pa.Scalar) else vector.data[()]


def _path_checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    _path(constant_text(args[1]))
    return args


def _at_path(base: TypeName, nothing: Any) -> Callable[[SqlType, Sequence[Vector]], Any]:
    """The value at a path, or the default, or what Pinot takes for none."""

    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        steps = _path(args[1].data.as_py())
        default = _default(args[2]) if len(args) > 2 else nothing

        def compute(value: str) -> Any:
            found = _found(_read(value), steps)
            converted = None if found is _ABSENT or found is None else _converted(found, base)
            return default if converted is None else converted

        return by_value(type_, args[:1], compute)

    return apply


for _name, _type, _kind, _nothing, _example in (
    ("jsonpathstring", STRING, TEXTS, "null", "x"),
    ("jsonpathlong", LONG, WHOLE, -(2**63), 12),
    ("jsonpathdouble", DOUBLE, NUMBERS, float("nan"), 1.5),
):
    JSON_TEXT.strict(
        _name,
        parameters=(
            text("json"),
            word("path"),
            Parameter(name="default", kind=_kind, is_constant=True, is_optional=True),
        ),
        result=_type,
        complete=_path_checked,
        examples={f"""{_name.upper()}('{{"a":{json.dumps(_example)}}}', '$.a')""": _example},
    )(_at_path(_type.base, _nothing))


@JSON_TEXT.strict(
    "jsonpatharray",
    aliases=("jsonpatharraydefaultempty",),
    parameters=(text("json"), word("path")),
    result=SqlType(TypeName.STRING, is_array=True),
    complete=_path_checked,
    examples={"""JSONPATHARRAY('{"a":[{"b":1},{"b":"x"}]}', '$.a[*].b')""": ["1", "x"]},
)
def _path_array(type_: SqlType, args: Sequence[Vector]) -> Any:
    """The values at the path as texts; empty where there are none."""
    steps = _path(args[1].data.as_py())
    return by_value(
        SqlType(TypeName.STRING, is_array=True), args[:1], lambda value: _list_at(value, steps, TypeName.STRING)
    )


@JSON_TEXT.strict(
    "jsonformat",
    parameters=(text("json"),),
    result=STRING,
    examples={"""JSONFORMAT(CAST('{"a": [1, 2]}' AS JSON))""": '{"a":[1,2]}', "JSONFORMAT('a\"b')": '"a\\"b"'},
)
def _format(_type: SqlType, args: Sequence[Vector]) -> Any:
    """JSON without blanks; a STRING as a JSON string."""
    if args[0].type == JSON:
        return by_value(STRING, args, _compact, "text is no JSON function=jsonformat")
    return by_value(STRING, args, lambda value: json.dumps(value, ensure_ascii=False))


def _compact(value: str) -> str | None:
    read = _read(value)
    return None if read is _ABSENT else json.dumps(read, ensure_ascii=False, separators=(",", ":"))


@JSON_TEXT.strict(
    "isjson", parameters=(text(),), result=BOOLEAN, examples={"ISJSON('[1]')": True, "ISJSON('[1')": False}
)
def _is_json(_type: SqlType, args: Sequence[Vector]) -> Any:
    return by_value(BOOLEAN, args, lambda value: _read(value) is not _ABSENT)

"""Functions that read JSON: they extract values at paths (`json_path`) from a column at once (`json_columns`), write
JSON without blanks, and test for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions import sizes
from merlot.functions.by_value import by_value
from merlot.functions.function import NUMBERS, TEXTS, WHOLE, Family, Parameter, constant, text, word
from merlot.functions.json_columns import at_path, read_json
from merlot.functions.json_path import ABSENT, parse_path
from merlot.functions.time_words import constant_text
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BOOLEAN, DOUBLE, INT, JSON, LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Attempt, Vector

JSON_TEXT: Final = Family("JSON")
MAX_DEPTH: Final = 1_024
"""Greatest depth of nested lists and objects that is counted. The reader of Python 3.11 refuses more than 1,000."""
_TYPES: Final = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP", "STRING", "JSON")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _converted(value: Any, base: TypeName) -> Any:
    """Return the JSON value in a type; None if it does not fit."""
    if base is TypeName.STRING:
        return _written(value)
    if base is TypeName.JSON:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict | list):
        return None
    try:
        return literals.convert(_literal(value), SqlType(base)).value
    except SqlValidationError:
        return None


def _literal(value: Any) -> Literal:
    """Return a scalar of JSON as a literal. A number beyond the range of a double is read as infinity."""
    if isinstance(value, int) and not isinstance(value, bool):
        return literals.number(repr(value))
    return Literal(value, BOOLEAN if isinstance(value, bool) else DOUBLE if isinstance(value, float) else STRING)


def _extracted(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to JSON, path, type, and default in that type."""
    name = constant_text(args[2]).upper()
    base = name.removesuffix("_ARRAY")
    if base not in _TYPES or (name.endswith("_ARRAY") and base in ("BIG_DECIMAL", "JSON")):
        raise SqlValidationError(f"jsonextractscalar: unknown type '{name:.100}' expected={'|'.join(_TYPES)}")
    path = parse_path(constant_text(args[1]))
    if not (path.is_definite or name.endswith("_ARRAY") or base in ("STRING", "JSON")):
        raise SqlValidationError(f"jsonextractscalar: a path that finds many values needs an array type, not {name}")
    fixed: list[Expr] = [args[0], args[1], Literal(name, STRING)]
    if len(args) > 3:
        if name.endswith("_ARRAY"):
            raise SqlValidationError("jsonextractscalar: a list has no default but the empty one")
        assert isinstance(args[3], Literal)
        fixed.append(literals.convert(args[3], SqlType(TypeName(base))))
    return tuple(fixed)


def _most_found(args: Sequence[Vector]) -> int:
    """Bound the bytes of the values that a path finds. It finds values again if it repeats a name or place; and with
    `..` it finds nested values again at every depth."""
    rows, default = sizes.num_rows(args), sum([sizes.bytes_of(arg) for arg in args[2:]])
    descents = sizes.word(args[1]).count("..")
    repeats = parse_path(sizes.word(args[1])).most_repeats
    if not descents:
        return sizes.growing(6 * repeats)(args) + rows * default
    texts = pa.array([sizes.word(args[0])]) if args[0].is_constant else args[0].data
    opened = pc.count_substring_regex(texts, r"[\[{]").to_numpy(zero_copy_only=False)
    depths = np.minimum(opened, MAX_DEPTH) + 1.0
    bounds = sizes.lengths_of(args[0]) * depths**descents * repeats
    return int(bounds.sum()) + rows * (default + sizes.ROW_BYTES)


def _named_type(args: Sequence[Expr]) -> SqlType:
    return SqlType.parse(constant_text(args[2]))


@JSON_TEXT.strict(
    "jsonextractscalar",
    aliases=("jsonextractindex",),
    parameters=(text("json"), word("path"), word("type"), constant("default", is_optional=True)),
    result=_named_type,
    complete=_extracted,
    most_bytes=_most_found,
    examples={
        """JSONEXTRACTSCALAR('{"a":{"b":[7,8]}}', '$.a.b[1]', 'INT')""": 8,
        """JSON_EXTRACT_SCALAR('{"a":1.5}', '$.a', 'STRING')""": "1.5",
        """JSONEXTRACTSCALAR('{"a":1}', '$.x', 'LONG', -1)""": -1,
        """JSONEXTRACTSCALAR('{"a":["x","y"]}', '$.a[*]', 'STRING_ARRAY')""": ["x", "y"],
        """JSONEXTRACTSCALAR('{"a":[{"b":1},{"b":3,"c":7}]}', '$.a[?(@.b > 1)].c', 'INT_ARRAY')""": [7],
        """JSONEXTRACTSCALAR('{"a":{"b":1},"c":{"b":[2]}}', '$..b', 'STRING')""": "[1,[2]]",
    },
)
def _extract_scalar(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the value at the path, or the default if a text has no value there that fits the type. Without a default
    such a text fails; for an array type it gives an empty list."""
    path = parse_path(args[1].data.as_py())
    default = _default(args[3]) if len(args) > 3 else None
    if type_.is_array:
        return at_path(type_, args[0], path, lambda result: _listed(result, type_.base))

    def convert(result: Any) -> Any:
        converted = None if result is ABSENT or result is None else _converted(result, type_.base)
        return default if converted is None else converted

    if type_.base is TypeName.BIG_DECIMAL:
        texts = at_path(STRING, args[0], path, lambda result: _plain(convert(result)), _NO_VALUE)
        return Attempt(_decimals(texts.data), texts.failure)
    return at_path(type_, args[0], path, convert, _NO_VALUE, is_cast=True)


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


def _listed(result: Any, base: TypeName) -> list[Any]:
    items = result if isinstance(result, list) else [] if result is ABSENT or result is None else [result]
    converted = [None if item is None else _converted(item, base) for item in items]
    return [item for item in converted if item is not None]


def _default(vector: Vector) -> Any:
    return vector.data.as_py() if isinstance(vector.data, pa.Scalar) else vector.data[()]


def path_checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    parse_path(constant_text(args[1]))
    return args


def _at_path(base: TypeName, nothing: Any) -> Callable[[SqlType, Sequence[Vector]], Any]:
    """Return a function that gives the value at a path, or the default, or what Pinot gives if there is none."""

    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        path = parse_path(args[1].data.as_py())
        default = _default(args[2]) if len(args) > 2 else nothing

        def convert(result: Any) -> Any:
            converted = None if result is ABSENT or result is None else _converted(result, base)
            return default if converted is None else converted

        return at_path(type_, args[0], path, convert, is_cast=True)

    return apply


def _fit_default(type_: SqlType) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return a function that checks the path, and converts the default to the type."""

    def complete(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        path_checked(args)
        given = args[2:]
        return (*args[:2], *(literals.convert(arg, type_) for arg in given if isinstance(arg, Literal)))

    return complete


for _name, _aliases, _type, _kind, _nothing, _example in (
    ("jsonpathstring", ("jsonpath",), STRING, TEXTS, "null", "x"),
    ("jsonpathint", (), INT, WHOLE, -(2**31), 12),
    ("jsonpathlong", (), LONG, WHOLE, -(2**63), 12),
    ("jsonpathdouble", (), DOUBLE, NUMBERS, float("nan"), 1.5),
):
    JSON_TEXT.strict(
        _name,
        aliases=_aliases,
        parameters=(
            text("json"),
            word("path"),
            Parameter(name="default", kind=_kind, is_constant=True, is_optional=True),
        ),
        result=_type,
        most_bytes=_most_found,
        complete=_fit_default(_type),
        examples={f"""{_name.upper()}('{{"a":{json.dumps(_example)}}}', '$.a')""": _example},
    )(_at_path(_type.base, _nothing))


@JSON_TEXT.strict(
    "jsonpatharray",
    aliases=("jsonpatharraydefaultempty",),
    parameters=(text("json"), word("path")),
    result=SqlType(TypeName.STRING, is_array=True),
    most_bytes=_most_found,
    complete=path_checked,
    examples={"""JSONPATHARRAY('{"a":[{"b":1},{"b":"x"}]}', '$.a[*].b')""": ["1", "x"]},
)
def _path_array(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the values at the path as texts; an empty list where there are none."""
    path = parse_path(args[1].data.as_py())
    return at_path(
        SqlType(TypeName.STRING, is_array=True), args[0], path, lambda result: _listed(result, TypeName.STRING)
    )


@JSON_TEXT.strict(
    "jsonformat",
    parameters=(text("json"),),
    result=STRING,
    examples={"""JSONFORMAT(CAST('{"a": [1, 2]}' AS JSON))""": '{"a":[1,2]}', "JSONFORMAT('a\"b')": '"a\\"b"'},
)
def _format(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return JSON without blanks; a STRING as a JSON string."""
    if args[0].type == JSON:
        return by_value(STRING, args, _compact, "text is no JSON function=jsonformat")
    return by_value(STRING, args, lambda value: json.dumps(value, ensure_ascii=False))


def _compact(value: str) -> str | None:
    read = read_json(value)
    return None if read is ABSENT else json.dumps(read, ensure_ascii=False, separators=(",", ":"))


@JSON_TEXT.strict(
    "isjson", parameters=(text(),), result=BOOLEAN, examples={"ISJSON('[1]')": True, "ISJSON('[1')": False}
)
def _is_json(_type: SqlType, args: Sequence[Vector]) -> Any:
    return by_value(BOOLEAN, args, lambda value: read_json(value) is not ABSENT)

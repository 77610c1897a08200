"""Functions that tell whether a JSON path finds anything, and the paths of what it finds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from merlot.functions.by_value import by_value
from merlot.functions.function import Family, text, word
from merlot.functions.json_columns import at_path, read_json
from merlot.functions.json_path import ABSENT, JsonNode, JsonPath, parse_path
from merlot.functions.json_text import path_checked
from merlot.functions.time_words import constant_text
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

JSON_KEYS: Final = Family("Keys of JSON")
_STRINGS: Final = SqlType(TypeName.STRING, is_array=True)
_ALL: Final = ("", "$..**", "$..")
"""Paths by which Pinot means every key, nested keys after the key that holds them."""


@JSON_KEYS.strict(
    "jsonpathexists",
    parameters=(text("json"), word("path")),
    result=BOOLEAN,
    complete=path_checked,
    examples={
        """JSONPATHEXISTS('{"a":{"b":1}}', '$.a.b')""": True,
        """JSONPATHEXISTS('{"a":[1,2]}', '$.a[?(@ > 2)]')""": False,
    },
)
def _exists(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return True for texts in which the path finds a value that is not null."""
    path = parse_path(args[1].data.as_py())
    if path.is_definite:
        return at_path(BOOLEAN, args[0], path, lambda result: result is not ABSENT and result is not None)
    return by_value(BOOLEAN, args[:1], lambda value: _finds(path, read_json(value)))


def _finds(path: JsonPath, document: Any) -> bool:
    return document is not ABSENT and any(node.value is not None for node in path.nodes(document))


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of JSONEXTRACTKEY: 'maxDepth=2;dotNotation=true'."""

    max_depth: int = sys.maxsize
    is_dotted: bool = False

    @classmethod
    def parse(cls, given: str) -> _Options:
        """Parse options; raise SqlValidationError."""
        max_depth, is_dotted = sys.maxsize, False
        for part in filter(None, map(str.strip, given.split(";"))):
            name, _, value = (side.strip().upper() for side in part.partition("="))
            if name == "MAXDEPTH" and value.removeprefix("-").isdecimal() and len(value) < 10:
                max_depth = int(value) if int(value) >= 0 else sys.maxsize
            elif name == "DOTNOTATION" and value in ("TRUE", "FALSE"):
                is_dotted = value == "TRUE"
            else:
                raise SqlValidationError(
                    f"jsonextractkey: unknown option '{part:.100}' expected=maxDepth=n;dotNotation=true"
                )
        return cls(max_depth, is_dotted)

    def written(self, keys: Sequence[str | int]) -> str:
        if self.is_dotted:
            return ".".join(map(str, keys))
        return "$" + "".join(f"[{key}]" if isinstance(key, int) else f"['{key}']" for key in keys)


def _checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    path = constant_text(args[1])
    if path not in _ALL:
        parse_path(path)
    if len(args) > 2:
        _Options.parse(constant_text(args[2]))
    return args


@JSON_KEYS.strict(
    "jsonextractkey",
    parameters=(text("json"), word("path"), word("options", is_optional=True)),
    result=_STRINGS,
    complete=_checked,
    examples={
        """JSONEXTRACTKEY('{"a":1,"b":{"c":[2]}}', '$.*')""": ["$['a']", "$['b']"],
        """JSON_EXTRACT_KEY('{"a":1,"b":{"c":[2]}}', '$..**')""": ["$['a']", "$['b']", "$['b']['c']", "$['b']['c'][0]"],
        """JSONEXTRACTKEY('{"a":1,"b":{"c":[2]}}', '', 'maxDepth=2;dotNotation=true')""": ["a", "b", "b.c"],
    },
)
def _extract_key(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the paths of the values that a path finds; none for a text that is no JSON."""
    path = args[1].data.as_py()
    options = _Options.parse(args[2].data.as_py()) if len(args) > 2 else _Options()
    asked = None if path in _ALL else parse_path(path)

    def compute(value: str) -> list[str]:
        document = read_json(value)
        if document is ABSENT:
            return []
        nodes = _every(document, options.max_depth) if asked is None else asked.nodes(document)
        paths = (node.keys() for node in nodes)
        return account.gathered(options.written(keys) for keys in paths if len(keys) <= options.max_depth)

    return by_value(_STRINGS, args[:1], compute)


def _every(document: Any, max_depth: int) -> Iterable[JsonNode]:
    """Yield each value below the root, nested values after the value that holds them."""
    pending = [(node, 1) for node in JsonNode(document).children()][::-1]
    while pending:
        node, depth = pending.pop()
        yield node
        if depth < max_depth:
            pending += [(child, depth + 1) for child in node.children()][::-1]

"""Find records that are nested too deep, count more items than their bytes hold, or have decimals of too many bytes,
before fastavro reads them.

fastavro recurses on the stack of its thread, makes as many objects as a count says, and converts a decimal in the
square of its length: none of it ends in an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import avro_scan, avro_walk

LEAVES: Final[Mapping[str, int]] = {
    "null": avro_scan.NOTHING,
    "boolean": avro_scan.BOOLEAN,
    "int": avro_scan.VARINT,
    "long": avro_scan.VARINT,
    "float": avro_scan.FLOAT,
    "double": avro_scan.DOUBLE,
    "string": avro_scan.STRING,
    "bytes": avro_scan.STRING,
}
"""Operations of the kernels for types that have no name and no parts."""
MOST_DECIMAL_BYTES: Final = 420
"""Bytes of the longest decimal that fastavro may read, enough for 1,000 digits. A megabyte would take it 40 s, in which
no other thread runs."""


@dataclass(frozen=True, slots=True)
class AvroShape:
    """A schema as `kernels.avro_walk` reads it."""

    nodes: NDArray[np.int64]
    children: NDArray[np.int64]

    def unbounded(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return True for the records that fastavro must not read; record i is data[begins[i]:ends[i]]."""
        is_bad = np.zeros(len(begins), np.bool_)
        frames = np.zeros((avro_walk.MAX_DEPTH, 2), np.int64)
        avro_walk.find_unbounded(data, begins, ends, self.nodes, self.children, frames, is_bad.view(np.uint8))
        return is_bad


def shape_of(schema: Any) -> AvroShape:
    """Return the shape of a record's schema as fastavro parsed it."""
    writer = _ShapeWriter()
    writer.add(schema)
    return AvroShape(np.array(writer.nodes, np.int64).reshape(-1, 3), np.array(writer.children, np.int64))


class _ShapeWriter:
    """Writer of the nodes of a schema. A named type has one node, which its uses share."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, int]] = []
        self.children: list[int] = []
        self._named: dict[str, int] = {}

    def add(self, schema: Any) -> int:
        """Add the nodes of a schema, and return the number of its own node."""
        if isinstance(schema, list):
            return self._parent(self._reserve(), avro_walk.UNION, schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return self.add(kind)
        is_decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
        if kind == "bytes" and is_decimal:
            return self._leaf(avro_walk.DECIMAL, MOST_DECIMAL_BYTES)
        if kind in LEAVES:
            return self._leaf(LEAVES[kind], 0)
        match kind:
            case "array" | "map":
                node = self._reserve()
                item = self.add(schema["items" if kind == "array" else "values"])
                self.nodes[node] = (avro_walk.ARRAY if kind == "array" else avro_walk.MAP, item, 0)
                return node
            case "record" | "error":
                node = self._named[schema["name"]] = self._reserve()
                return self._parent(node, avro_walk.RECORD, [field["type"] for field in schema["fields"]])
            case "enum":
                node = self._named[schema["name"]] = self._leaf(avro_scan.ENUM, len(schema["symbols"]))
                return node
            case "fixed":
                # No value has -1 bytes.
                size = -1 if is_decimal and schema["size"] > MOST_DECIMAL_BYTES else schema["size"]
                node = self._named[schema["name"]] = self._leaf(avro_scan.FIXED, size)
                return node
            case _:
                return self._named[kind]

    def _reserve(self) -> int:
        self.nodes.append((avro_scan.NOTHING, 0, 0))
        return len(self.nodes) - 1

    def _leaf(self, operation: int, bound: int) -> int:
        self.nodes.append((operation, bound, 0))
        return len(self.nodes) - 1

    def _parent(self, node: int, operation: int, schemas: list[Any]) -> int:
        inner = [self.add(schema) for schema in schemas]
        self.nodes[node] = (operation, len(self.children), len(inner))
        self.children += inner
        return node

"""Read an Avro schema: which field is which column, and how its values are written.

Flat schemas become a program for a kernel. Others (with lists, maps, records or unions of several types in wanted
columns) are read by fastavro, one record at a time, to the same values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.ingest.decoders import avro_values
from merlot.ingest.decoders.avro_bounds import LEAVES, AvroShape, shape_of
from merlot.ingest.decoders.protocol import Wanted
from merlot.ingest.source import names
from merlot.kernels import avro_scan

Schema = Any
OPERATIONS = {**LEAVES, "fixed": avro_scan.FIXED, "enum": avro_scan.ENUM}
ARROW = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
MOST_PARTS = 10_000
"""Limit for the types of one column or one record, each counted where it is used. If each record contains the next one
twice, sixty levels have 2^60 types, more than can be written out."""
MOST_DIGITS = 38
MOST_BYTES_DIGITS = 1_000
UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class AvroField:
    """A wanted column of a record."""

    column: str
    """Name in the table."""
    name: str
    """Name in the record."""
    kind: str
    """Avro's type; that of the other branch if null is one of two; `union` for other unions."""
    raw: pa.DataType | None
    """Type of its values without their logical type; None for values of several types, which become text or JSON."""
    arrow: pa.DataType | None
    """Type of its values with their logical type."""
    symbols: tuple[str, ...] = ()
    as_json: bool = False
    """True if values of several types are wanted as JSON instead of text."""

    @property
    def is_decimal(self) -> bool:
        """True if values are written as the bytes of a number."""
        return self.arrow is not None and pa.types.is_decimal(self.arrow)


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """Fields of records of one schema, and how they are read."""

    fields: tuple[AvroField, ...]
    program: NDArray[np.int64] | None
    """Program for the kernel; None if fastavro has to read the records."""
    parsed: Schema
    """Schema for fastavro: columns without logical types, values within others with them."""
    shape: AvroShape
    """Shape for the walk over records before fastavro reads them."""


class _NotFlatError(Exception):
    """Raised if the kernel cannot read such records."""


class _TypeBudget:
    """Limit for the types that are written out."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def are_too_many(self) -> bool:
        """Count one more type; return True if there are too many now."""
        self._left -= 1
        return self._left < 0


def read_schema(text: str, wanted: Wanted) -> RecordSchema:
    """Read a schema. Raises InvalidInputError if it is no schema of a record, or if a column may mean several of its
    fields."""
    try:
        full = fastavro.parse_schema(json.loads(text))
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"wrong Avro schema reason={error}") from error
    if not isinstance(full, dict) or full["type"] != "record":
        raise InvalidInputError("wrong Avro schema reason=it is not of a record")
    named = full["__named_schemas"]
    parsed = fastavro.parse_schema(_ReaderSchema(named).record(full))
    types = {field["name"]: field["type"] for field in full["fields"]}
    field_names = {name: names.find(name, list(types), "an Avro schema") for name in wanted.columns}
    fields = tuple(
        _field(column, name, types[name], named, as_json=column in wanted.as_json)
        for column, name in field_names.items()
        if name is not None
    )
    positions = {field.name: position for position, field in enumerate(fields)}
    try:
        budget = _TypeBudget()
        steps = [step for name, kind in types.items() for step in _steps(kind, named, positions.get(name, -1), budget)]
        program = np.array(steps, np.int64).reshape(-1, 4)
    except (_NotFlatError, RecursionError):
        program = None
    return RecordSchema(fields, program, parsed, shape_of(parsed))


class _ReaderSchema:
    """Writer of the schema that fastavro reads by. Values of columns come without logical types, as from the kernel.
    Values within others come with them, because only the schema tells which of the inner values has one."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named
        self._defined: set[str] = set()

    def record(self, schema: Schema) -> Schema:
        """Return the schema of a message's record."""
        fields = [
            {"name": field["name"], "type": self._type(field["type"], is_inner=False)} for field in schema["fields"]
        ]
        return {"type": "record", "name": schema["name"], "fields": fields}

    def _type(self, schema: Schema, *, is_inner: bool) -> Schema:
        if isinstance(schema, list):
            has_several = _optional(schema, self._named)[1] < 0
            return [self._type(branch, is_inner=is_inner or has_several) for branch in schema]
        resolved = _resolved(schema, self._named)
        if isinstance(resolved, list):
            return self._type(resolved, is_inner=is_inner)
        match resolved["type"]:
            case "array":
                return {"type": "array", "items": self._type(resolved["items"], is_inner=True)}
            case "map":
                return {"type": "map", "values": self._type(resolved["values"], is_inner=True)}
            case "record" | "enum" | "fixed":
                return self._named_type(resolved, is_inner=is_inner)
            case kind:
                return {"type": kind, **(_annotations(resolved) if is_inner else {})}

    def _named_type(self, schema: Schema, *, is_inner: bool) -> Schema:
        """Return the definition of a named type at its first use, then its name. Inner types have other names, and may
        have logical types."""
        kind = schema["type"]
        is_inner = is_inner or kind == "record"
        name = f"{schema['name']}__inner" if is_inner else schema["name"]
        if name in self._defined:
            return name
        self._defined.add(name)
        if kind == "enum":
            return {"type": kind, "name": name, "symbols": schema["symbols"]}
        if kind == "fixed":
            more = _annotations(schema) if is_inner else {}
            return {"type": kind, "name": name, "size": schema["size"], **more}
        fields = [
            {"name": field["name"], "type": self._type(field["type"], is_inner=True)} for field in schema["fields"]
        ]
        return {"type": kind, "name": name, "fields": fields}


def _annotations(schema: Schema) -> Schema:
    """Return the logical type of a value, if it makes a difference."""
    kind, logical = schema["type"], schema.get("logicalType")
    if (kind, logical) in LOGICAL or _fastavro_name(schema) in avro_values.READERS:
        return {"logicalType": logical}
    if not _is_decimal(schema):
        return {}
    # fastavro rounds to the precision, which bytes may exceed.
    precision = MOST_BYTES_DIGITS if kind == "bytes" else schema["precision"]
    return {"logicalType": "decimal", "precision": precision, "scale": schema.get("scale", 0)}


def _fastavro_name(schema: Schema) -> str:
    """Return the name that fastavro has for a logical type."""
    size = schema.get("size", UUID_BYTES)
    return f"{schema['type']}-{schema.get('logicalType')}" if size == UUID_BYTES else ""


def _is_decimal(schema: Schema) -> bool:
    is_written = schema.get("logicalType") == "decimal" and schema["type"] in ("bytes", "fixed")
    return is_written and 0 <= schema.get("scale", 0) <= MOST_DIGITS


def _resolved(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """Resolve names: return a dict with a type, or a list for a union."""
    while isinstance(schema, str) or (isinstance(schema, dict) and isinstance(schema["type"], dict | list)):
        if isinstance(schema, dict):
            schema = schema["type"]
        elif schema in named:
            schema = named[schema]
        else:
            return {"type": schema}
    return schema


def _optional(schema: Schema, named: Mapping[str, Schema]) -> tuple[Schema, int]:
    """Return a schema without its null, and the number of the null branch; -1 if it is no union of null and one other
    type."""
    resolved = _resolved(schema, named)
    if not isinstance(resolved, list):
        return resolved, -1
    branches = [_resolved(branch, named) for branch in resolved]
    is_null = [isinstance(branch, dict) and branch["type"] == "null" for branch in branches]
    nulls = [position for position, holds in enumerate(is_null) if holds]
    if len(branches) != 2 or len(nulls) != 1:
        return resolved, -1
    return branches[1 - nulls[0]], nulls[0]


def _field(column: str, name: str, schema: Schema, named: Mapping[str, Schema], *, as_json: bool) -> AvroField:
    inner, _ = _optional(schema, named)
    if isinstance(inner, list):
        return AvroField(column, name, "union", None, None, as_json=as_json)
    kind = inner["type"]
    arrow = _logical(inner) if kind in ARROW else _arrow(inner, named, (), _TypeBudget())
    raw = ARROW.get(kind, arrow)
    return AvroField(column, name, kind, raw, arrow, tuple(inner.get("symbols", ())), as_json=as_json)


def _logical(schema: Schema) -> pa.DataType:
    """Return the Arrow type of a plain value with its logical type."""
    kind, logical = schema["type"], schema.get("logicalType")
    if _is_decimal(schema):
        return pa.decimal128(MOST_DIGITS, schema.get("scale", 0))
    if (kind, logical, schema.get("size")) == ("fixed", "uuid", UUID_BYTES):
        return pa.uuid()
    return LOGICAL.get((kind, logical), ARROW[kind])


def _arrow(
    schema: Schema, named: Mapping[str, Schema], above: tuple[str, ...], budget: _TypeBudget
) -> pa.DataType | None:
    """Return the Arrow type of values within others; None if they are of several types, nested in themselves, or too
    many."""
    inner, _ = _optional(schema, named)
    if isinstance(inner, list) or budget.are_too_many():
        return None
    match inner["type"]:
        case "array":
            element = _arrow(inner["items"], named, above, budget)
            return None if element is None else pa.list_(element)
        case "map":
            element = _arrow(inner["values"], named, above, budget)
            return None if element is None else pa.map_(pa.string(), element)
        case "record":
            if inner["name"] in above:
                return None
            members = []
            for field in inner["fields"]:
                kind = _arrow(field["type"], named, (*above, inner["name"]), budget)
                if kind is None:
                    return None
                members.append((field["name"], kind))
            return pa.struct(members)
        case _:
            return _logical(inner)


def _steps(
    schema: Schema, named: Mapping[str, Schema], column: int, budget: _TypeBudget
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rows of the kernel's program. Records that are not wanted are written out, so that the kernel skips
    them."""
    if budget.are_too_many():
        raise _NotFlatError
    inner, null_branch = _optional(schema, named)
    if isinstance(inner, dict) and inner["type"] == "record" and null_branch < 0 and column < 0:
        for field in inner["fields"]:
            yield from _steps(field["type"], named, -1, budget)
        return
    if isinstance(inner, list) or inner["type"] not in OPERATIONS:
        raise _NotFlatError
    kind = inner["type"]
    bound = {"int": 2**31, "fixed": inner.get("size", 0), "enum": len(inner.get("symbols", ()))}.get(kind, 0)
    yield OPERATIONS[kind], column, null_branch, bound

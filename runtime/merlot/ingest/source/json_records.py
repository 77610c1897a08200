"""Decode lines of JSON into columns: wanted keys as text or lists of texts, and the lines that are no record.

`msgspec` finds the values in a line without making objects of them, so that no digit is lost and nested values stay as
they are written.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec
import pyarrow as pa

from merlot.ingest.source import json_values
from merlot.ingest.source.blocks import is_utf8
from merlot.ingest.source.json_values import RawColumn

_NOT_A_RECORD = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_NOTHING = msgspec.Raw(b"")
Values = Sequence[msgspec.Raw]


class RecordColumns:
    """Reader of the wanted keys of records. columns: the wanted keys, each with True if it holds lists. Values of the
    keys in `as_written` stay JSON. Immutable."""

    def __init__(self, columns: Mapping[str, bool], as_written: Set[str] = frozenset()) -> None:
        self._columns = columns
        self._as_written = as_written
        self._decode_all = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._fields = [f"f{number}" for number in range(len(columns))]
        # msgspec compares keys of a struct as they are written, so a name with an escape in it needs a map.
        self._are_maps = any(_as_key(name) != name for name in columns)
        self._decode = self._decode_all if self._are_maps else _struct_decoder(self._fields, columns)

    def read(self, text: bytes, lines: Sequence[bytes]) -> tuple[dict[str, pa.Array], list[int]]:
        """Return the columns of lines that are records, and the numbers of lines that are none. `text` holds all lines.
        A column that no record has is left out."""
        check = _unchecked if is_utf8(text) else _only_utf8
        records, corrupt = _decoded(check(self._decode), lines)
        columns = self._raw_columns(records, are_maps=self._are_maps)
        # Other spellings are searched only if a key is missing: the search takes as long as decoding.
        incomplete = [name for name, column in columns.items() if column.is_absent.any()]
        if others := {name: keys for name in incomplete if (keys := _other_spellings(name, text))}:
            records, corrupt = _decoded(check(_tolerant(self._decode_all, others)), lines)
            columns = self._raw_columns(records, are_maps=True)
        values = {name: self._values(name, column) for name, column in columns.items() if not column.is_absent.all()}
        return values, corrupt

    def _values(self, name: str, column: RawColumn) -> pa.Array:
        if name in self._as_written:
            return json_values.written(column)
        return (json_values.lists if self._columns[name] else json_values.texts)(column)

    def _raw_columns(self, records: Sequence[Any], *, are_maps: bool) -> dict[str, RawColumn]:
        if not records or not self._columns:
            return {}
        columns: Iterable[Values]
        if are_maps:
            columns = ([record.get(name, _NOTHING) for record in records] for name in self._columns)
        elif len(self._fields) == 1:
            columns = [[record.f0 for record in records]]
        else:
            columns = zip(*map(operator.attrgetter(*self._fields), records), strict=True)
        return {name: RawColumn.of(values) for name, values in zip(self._columns, columns, strict=True)}


def _as_key(name: str) -> str:
    """Return a name as JSON writes it, without its quotes."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _struct_decoder(fields: Sequence[str], names: Iterable[str]) -> Callable[[bytes], Any]:
    """Return a decoder of the wanted keys alone, which makes no map of all keys."""
    members = [
        (field, msgspec.Raw, msgspec.field(default=_NOTHING, name=name))
        for field, name in zip(fields, names, strict=True)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Record", members, gc=False)).decode


def _decoded(decode: Callable[[bytes], Any], lines: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """Return the records, and the numbers of lines that are none."""
    try:
        return list(map(decode, lines)), []
    except _NOT_A_RECORD:
        pass
    records, corrupt = [], []
    for row, line in enumerate(lines):
        try:
            records.append(decode(line))
        except _NOT_A_RECORD:
            corrupt.append(row)
    return records, corrupt


def _other_spellings(name: str, text: bytes) -> set[str]:
    """Return keys that differ from a column's name by case alone. Some may be in nested values only."""
    keys = re.findall(rb'"(' + re.escape(_as_key(name).encode()) + rb')"\s*:', text, re.IGNORECASE)
    return {json.loads(b'"' + key + b'"') for key in set(keys)} - {name}


def _tolerant(
    decode: Callable[[bytes], dict[str, msgspec.Raw]], others: Mapping[str, set[str]]
) -> Callable[[bytes], dict[str, msgspec.Raw]]:
    """Return a decoder of records whose keys may differ from the columns' names in case. A line with several spellings
    of a column's name, none of them exact, is no record."""

    def decode_tolerantly(line: bytes) -> dict[str, msgspec.Raw]:
        record = decode(line)
        for name, spellings in others.items():
            if name not in record and (matches := spellings & record.keys()):
                if len(matches) > 1:
                    raise msgspec.DecodeError(f"several keys may be meant column={name}")
                record[name] = record[matches.pop()]
        return record

    return decode_tolerantly


def _unchecked(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    return decode


def _only_utf8(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_text(line: bytes) -> Any:
        line.decode()
        return decode(line)

    return decode_text

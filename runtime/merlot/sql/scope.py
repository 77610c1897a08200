"""Resolve the names of a query: columns of the schema, virtual columns, and aliases of the SELECT list."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from merlot.spec.derived import derived_of, unit_of
from merlot.spec.schema import TableSchema
from merlot.tree.errors import UnknownColumnError, UnsupportedSqlError
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import INT, LONG, STRING, TIMESTAMP, SqlType
from merlot.values.types import TypeName

VIRTUAL_COLUMNS = {
    "$segmentName": Column("$segmentName", STRING),
    "$docId": Column("$docId", INT),
    "$hostName": Column("$hostName", STRING),
    "$totalDocs": Column("$totalDocs", INT),
    "$crc": Column("$crc", LONG),
    "$creationTime": Column("$creationTime", TIMESTAMP),
    "$startTime": Column("$startTime", TIMESTAMP),
    "$endTime": Column("$endTime", TIMESTAMP),
}
_REFUSED_VIRTUAL = frozenset({"$partitionId"})
MAX_HINT_CHARS: Final = 64
"""Longest name that is suggested for another. Comparing two names of 200 characters takes some 6 ms."""
_MAX_HINT_NAMES: Final = 1_000
"""Most names that are compared with an unknown one."""


def parts_of_name(name: str, qualifier: str) -> Iterator[tuple[str, str]]:
    """Yield each relation and column that a name with dots may mean, the most likely first. For `a.b.c` these are `c`
    of `a.b`, then `b.c` of `a`, then `a.b.c` of any relation."""
    words = [*qualifier.split("."), name] if qualifier else [name]
    if qualifier:
        yield qualifier, name
    if len(words) > 2:
        yield words[0], ".".join(words[1:])
    yield "", ".".join(words)


def hint(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest of these names; empty if none is near."""
    if len(name) > MAX_HINT_CHARS:
        return ""
    short = (candidate for candidate in names if len(candidate) <= MAX_HINT_CHARS)
    near = difflib.get_close_matches(name, list(islice(short, _MAX_HINT_NAMES)), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class NameScope(Protocol):
    """Names that an expression may use."""

    def column(self, name: str, qualifier: str = "") -> Expr:
        """Return the column of a name. Raise UnknownColumnError."""
        ...

    def find(self, name: str) -> Expr | None:
        """Return the column of a name without a qualifier; None if there is none."""
        ...

    def alias(self, name: str) -> Expr | None:
        """Return the SELECT item of an alias; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that a query of one stage may use.

    A column is found by its exact name, or by the only name that differs in case.
    """

    table: str | None
    schema: TableSchema | None
    qualifiers: frozenset[str] = field(default=frozenset())
    aliases: Mapping[str, Expr] = field(default_factory=dict)
    masks: Mapping[str, Expr] = field(default_factory=dict)
    """Expressions that stand for columns, by the schema's name of the column."""
    has_virtual_columns: bool = True

    def all_columns(self, qualifier: str = "") -> tuple[tuple[str, Expr], ...]:
        """Return the columns that `*` stands for with their names, in the schema's order. Raise UnknownColumnError for
        another table's `u.*`."""
        if self.schema is None:
            raise UnknownColumnError("SELECT * needs a FROM")
        if qualifier and qualifier.lower() not in self.qualifiers:
            raise UnknownColumnError(f"unknown relation name={qualifier}")
        return tuple((name, self._seen(name)) for name in self.schema.names)

    def column(self, name: str, qualifier: str = "") -> Expr:
        """Return the column of a name. Raise UnknownColumnError, which suggests the nearest name."""
        column = self.named(name, qualifier)
        if column is None:
            raise self._unknown(name, qualifier)
        return column

    def named(self, name: str, qualifier: str = "") -> Expr | None:
        """Return the column of a qualified name, or of a name with dots in it, which Pinot accepts without quotes; None
        if there is none."""
        for relation, column_name in parts_of_name(name, qualifier):
            is_own = not relation or relation.lower() in self.qualifiers
            if is_own and (column := self.find(column_name)) is not None:
                return column
        return None

    def spelling(self, name: str, qualifier: str = "") -> str:
        """Return the schema's name of a column, for the label of an answer; names of no column stay as they are."""
        for relation, column_name in parts_of_name(name, qualifier):
            if not relation or relation.lower() in self.qualifiers:
                virtual = VIRTUAL_COLUMNS.get(column_name) if self.has_virtual_columns else None
                spelled = self._spelled(column_name) if virtual is None else virtual.name
                if spelled is not None:
                    return spelled
        return name

    def find(self, name: str) -> Expr | None:
        """Return the column of a name; None if there is none. A derived column, `$ts$DAY`, is the call that computes
        it. Raise UnsupportedSqlError for `$partitionId`."""
        if name.startswith("$"):
            if name in _REFUSED_VIRTUAL:
                raise UnsupportedSqlError(
                    f"virtual column {name}: partitions are in /segments/{{table}}/{{segment}}/metadata"
                )
            if self.schema is None:
                return None
            virtual = VIRTUAL_COLUMNS.get(name) if self.has_virtual_columns else None
            return virtual or self._derived(name)
        spelled = self._spelled(name)
        return None if spelled is None else self._seen(spelled)

    def _spelled(self, name: str) -> str | None:
        if self.schema is None:
            return None
        if self.schema.field(name) is not None:
            return name
        lowered = name.lower()
        same = [candidate for candidate in self.schema.names if candidate.lower() == lowered]
        return same[0] if len(same) == 1 else None

    def _derived(self, name: str) -> Expr | None:
        """Return the call that computes a derived column. It has the type of its column's times: TIMESTAMP, or the
        numbers of a unit."""
        derived = derived_of(name)
        spelled = None if derived is None else self._spelled(derived.column)
        if derived is None or spelled is None:
            return None
        assert self.schema is not None
        column, field = self._seen(spelled), self.schema.field(spelled)
        unit = None if field is None else unit_of(field.type, field.format)
        if unit is None or column.type.is_array or column.type != self._typed(spelled).type:
            return None
        words = [Literal(word, STRING) for word in (str(derived.granularity), unit, "UTC", unit)]
        call = Call("datetrunc", (words[0], column, *words[1:]), LONG)
        return Call("cast", (call,), column.type) if column.type.base is TypeName.TIMESTAMP else call

    def alias(self, name: str) -> Expr | None:
        """Return the SELECT item of an alias; None if there is none."""
        return self.aliases.get(name)

    def _seen(self, name: str) -> Expr:
        return self.masks.get(name) or self._typed(name)

    def _typed(self, name: str) -> Column:
        assert self.schema is not None
        spec = self.schema.field(name)
        assert spec is not None
        return Column(name, SqlType(TypeName(spec.type), spec.multi_value))

    def _unknown(self, name: str, qualifier: str) -> UnknownColumnError:
        written = f"{qualifier}.{name}" if qualifier else name
        place = f" table={self.table}" if self.table else ""
        names = () if self.schema is None else (*self.schema.names, *self.aliases)
        suggestion = hint(written, names) or hint(name, names)
        return UnknownColumnError(f"unknown column name={written}{place}{suggestion}")

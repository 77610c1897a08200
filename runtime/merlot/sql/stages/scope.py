"""Resolve the names of a SELECT over relations: columns of its FROM, its aliases, and names of the queries around
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from merlot.sql.scope import VIRTUAL_COLUMNS, hint, parts_of_name
from merlot.tree.errors import SqlValidationError, UnknownNameError
from merlot.tree.nodes import Column, Expr


@dataclass(frozen=True, slots=True)
class ScopeRelation:
    """A relation of FROM: its qualifiers, and its columns by name, in order."""

    id: str
    qualifiers: frozenset[str]
    """Names of the relation, in lower case."""
    columns: tuple[tuple[str, Column], ...]
    is_table: bool = False

    def find(self, name: str) -> list[Column]:
        """Return the columns of a name: by the exact name, otherwise without regard to case."""
        if self.is_table and name in VIRTUAL_COLUMNS:
            return [Column(f"{self.id}.{name}", VIRTUAL_COLUMNS[name].type)]
        exact = [column for label, column in self.columns if label == name]
        return exact or [column for label, column in self.columns if label.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class StageScope:
    """Names that a SELECT may use. Its own names hide those of the queries around it."""

    sources: Sequence[ScopeRelation] = ()
    merged: Mapping[str, Expr] = field(default_factory=dict)
    """Columns that USING merged, by name in lower case."""
    aliases: Mapping[str, Expr] = field(default_factory=dict)
    outer: StageScope | None = None

    def all_columns(self, qualifier: str = "") -> list[tuple[str, Expr]]:
        """Return the columns that `*`, or `t.*`, stands for; merged columns come once, and first."""
        if qualifier:
            return list(self._source(qualifier).columns)
        if not self.sources:
            raise UnknownNameError("SELECT * needs a FROM")
        columns = [column for source in self.sources for column in source.columns]
        names = {name.lower(): name for name, _ in reversed(columns)}
        merged = [(names[name], expr) for name, expr in self.merged.items() if name in names]  # no virtual column
        return [*merged, *((name, column) for name, column in columns if name.lower() not in self.merged)]

    def column(self, name: str, qualifier: str = "") -> Expr:
        """Return the column of a name, here or in a query around this one. Raise UnknownNameError."""
        column = self._named(name, qualifier)
        if column is None:
            written = f"{qualifier}.{name}" if qualifier else name
            raise UnknownNameError(f"unknown column name={written}{hint(name, [*self._names(), *self.aliases])}")
        return column

    def _named(self, name: str, qualifier: str) -> Expr | None:
        for relation, column_name in parts_of_name(name, qualifier):
            column = self._qualified(column_name, relation) if relation else self.find(column_name)
            if column is not None:
                return column
        return None

    def find(self, name: str) -> Expr | None:
        """Return the column of a name; None if there is none. Raise SqlValidationError if several relations have it."""
        merged = self.merged.get(name.lower())
        if merged is not None:
            return merged
        matches = [column for source in self.sources for column in source.find(name)]
        if len(matches) > 1:
            raise SqlValidationError(f"column name is ambiguous name={name}")
        if matches:
            return matches[0]
        return self.outer.find(name) if self.outer is not None else None

    def alias(self, name: str) -> Expr | None:
        """Return the SELECT item of an alias; None if there is none."""
        return self.aliases.get(name)

    def _qualified(self, name: str, qualifier: str) -> Expr | None:
        for source in self.sources:
            if qualifier.lower() in source.qualifiers:
                matches = source.find(name)
                if len(matches) > 1:
                    raise SqlValidationError(f"column name is ambiguous name={qualifier}.{name}")
                return matches[0] if matches else None
        return self.outer._qualified(name, qualifier) if self.outer is not None else None

    def _source(self, qualifier: str) -> ScopeRelation:
        for source in self.sources:
            if qualifier.lower() in source.qualifiers:
                return source
        raise UnknownNameError(f"unknown relation name={qualifier}")

    def _names(self) -> Iterator[str]:
        for source in self.sources:
            yield from (name for name, _ in source.columns)
        if self.outer is not None:
            yield from self.outer._names()

"""Names of a SELECT over relations: columns of its FROM, its aliases, and what the queries around it have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from merlot.sql.scope import VIRTUAL_COLUMNS, parts_of_name
from merlot.tree.errors import SqlValidationError, UnknownNameError
from merlot.tree.nodes import Column, Expr


@dataclass(frozen=True, slots=True)
class Source:
    """A relation in a FROM: what it may be called by, and its columns by name, in order."""

    id: str
    qualifiers: frozenset[str]
    """In lower case."""
    columns: tuple[tuple[str, Column], ...]
    is_table: bool = False

    def find(self, name: str) -> list[Column]:
        """Columns of that name: by the exact name, else without regard to case."""
        if self.is_table and name in VIRTUAL_COLUMNS:
            return [Column(f"{self.id}.{name}", VIRTUAL_COLUMNS[name].type)]
        exact = [column for known, column in self.columns if known == name]
        return exact or [column for known, column in self.columns if known.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class StageScope:
    """What a SELECT may name. A name of its own hides those of the queries around it."""

    sources: Sequence[Source] = ()
    merged: Mapping[str, Expr] = field(default_factory=dict)
    """Columns that USING made one, by name in lower case."""
    aliases: Mapping[str, Expr] = field(default_factory=dict)
    outer: StageScope | None = None

    def all_columns(self, qualifier: str = "") -> list[tuple[str, Expr]]:
        """What `*`, or `t.*`, stands for; merged columns once, first."""
        if qualifier:
            return list(self._source(qualifier).columns)
        if not self.sources:
            raise UnknownNameError("SELECT * needs a FROM")
        found: list[tuple[str, Expr]] = [(self._written(name), expr) for name, expr in self.merged.items()]
        rest = (one for source in self.sources for one in source.columns if one[0].lower() not in self.merged)
        return [*found, *rest]

    def column(self, name: str, qualifier: str = "") -> Expr:
        """The column of that name, here or further out; raises UnknownNameError."""
        found = self._named(name, qualifier)
        if found is None:
            written = f"{qualifier}.{name}" if qualifier else name
            known = [*self._names(), *self.aliases]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownNameError(f"unknown column name={written}{hint}")
        return found

    def _named(self, name: str, qualifier: str) -> Expr | None:
        for place, rest in parts_of_name(name, qualifier):
            found = self._qualified(rest, place) if place else self.find(rest)
            if found is not None:
                return found
        return None

    def find(self, name: str) -> Expr | None:
        """The column of that name; SqlValidationError if several relations have one."""
        merged = self.merged.get(name.lower())
        if merged is not None:
            return merged
        found = [column for source in self.sources for column in source.find(name)]
        if len(found) > 1:
            raise SqlValidationError(f"column name is ambiguous name={name}")
        if found:
            return found[0]
        return self.outer.find(name) if self.outer is not None else None

    def alias(self, name: str) -> Expr | None:
        """The SELECT item of that alias, or None."""
        return self.aliases.get(name)

    def _qualified(self, name: str, qualifier: str) -> Expr | None:
        for source in self.sources:
            if qualifier.lower() in source.qualifiers:
                found = source.find(name)
                if len(found) > 1:
                    raise SqlValidationError(f"column name is ambiguous name={qualifier}.{name}")
                return found[0] if found else None
        return self.outer._qualified(name, qualifier) if self.outer is not None else None

    def _source(self, qualifier: str) -> Source:
        for source in self.sources:
            if qualifier.lower() in source.qualifiers:
                return source
        raise UnknownNameError(f"unknown relation name={qualifier}")

    def _written(self, lowered: str) -> str:
        return next(name for source in self.sources for name, _ in source.columns if name.lower() == lowered)

    def _names(self) -> Iterator[str]:
        for source in self.sources:
            yield from (name for name, _ in source.columns)
        if self.outer is not None:
            yield from self.outer._names()

"""Decide what an identity may do: rights, rows and columns of tables, and limits. Pure values; ADR 101 has the rules.

Grants of all roles of an identity are united: nobody sees less because of another role. Names of tables are compared
without their type and without regard to case, as SQL finds tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from merlot.ids import raw_name

ALL_TABLES: Final = "*"
"""Pattern that matches every table; whoever has a right for it has the right for the cluster, too."""
N = TypeVar("N", int, float)


class Right(StrEnum):
    """Right to do something with a table, or with the cluster."""

    QUERY = "query"
    """Read rows, and what the table's schema, status and segments are."""
    INSERT = "insert"
    """Publish segments and rows."""
    MANAGE = "manage"
    """Declare, change and delete tables, and run their jobs."""
    ADMIN = "admin"
    """Everything else, such as draining servers and reading the audit log. Implies all other rights."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who makes a request. Names of different authenticators are kept apart by the prefixes that these give."""

    name: str
    groups: frozenset[str] = frozenset()
    method: str = "none"
    """How the identity was proved: `basic`, `token`, `jwt`, `kubernetes`, `certificate`, or `none`."""

    @property
    def is_anonymous(self) -> bool:
        """Return True if no credential proved the identity."""
        return self.method == "none"


ANONYMOUS: Final = Identity("anonymous")


@dataclass(frozen=True, slots=True)
class UnitedFilter:
    """A predicate that is true if all predicates of at least one alternative are. Each text in it is parsed alone: none
    can end the parentheses of another."""

    alternatives: tuple[tuple[RowFilter, ...], ...]

    def __str__(self) -> str:
        return " OR ".join(f"({' AND '.join(f'({each})' for each in every)})" for every in self.alternatives)


RowFilter: TypeAlias = str | UnitedFilter
"""A predicate over the rows of a table. `str` gives the text of either kind, to be read by people alone."""


@dataclass(frozen=True, slots=True)
class AccessView:
    """View of a table by an identity that may query it. Names of columns are in lower case, and stand for columns of
    any spelling."""

    row_filters: tuple[RowFilter, ...] = ()
    """SQL predicates; a row is seen only if all of them are true."""
    hidden: frozenset[str] = frozenset()
    """Columns that do not exist for the identity."""
    masks: Mapping[str, str] = field(default_factory=dict)
    """SQL expression by the column that it replaces."""

    def __hash__(self) -> int:
        return hash((self.row_filters, self.hidden, frozenset(self.masks.items())))

    @property
    def is_whole(self) -> bool:
        """Return True if nothing of the table is left out or replaced."""
        return not (self.row_filters or self.hidden or self.masks)


WHOLE_TABLE: Final = AccessView()


@dataclass(frozen=True, slots=True)
class IdentityLimits:
    """Largest use of the query API by one identity; None for no limit."""

    queries_per_second: float | None = None
    concurrent: int | None = None


NO_LIMITS: Final = IdentityLimits()


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights to the tables that match a pattern, and what QUERY shows of them."""

    tables: tuple[str, ...]
    rights: frozenset[Right]
    view: AccessView = WHOLE_TABLE
    excepted: tuple[str, ...] = ()
    """Patterns of tables that are not granted. A grant with any is never of the whole cluster."""

    def covers(self, table: str | None) -> bool:
        """Return True if the grant is about the table, or, for None, about the whole cluster."""
        if table is None:
            return ALL_TABLES in self.tables and not self.excepted
        name = folded(table)
        return _fits(name, self.tables) and not _fits(name, self.excepted)

    def gives(self, right: Right) -> bool:
        """Return True if the grant contains the right, or ADMIN, which implies it."""
        return right in self.rights or Right.ADMIN in self.rights


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def folded(table: str) -> str:
    """Return a table's name as patterns are compared with: `flights` for `Flights_OFFLINE`, and for a name with several
    types, since a handler may take off one after the other."""
    name = table.upper()
    while (shorter := raw_name(name)) != name:
        name = shorter
    return name.lower()


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Everything that an access document says, ready to be asked. Immutable: a new document makes a new one."""

    grants: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    """Grants by role."""
    user_roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    group_roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    user_limits: Mapping[str, IdentityLimits] = field(default_factory=dict)
    group_limits: Mapping[str, IdentityLimits] = field(default_factory=dict)

    def allows(self, identity: Identity, right: Right, table: str | None) -> bool:
        """Return True if the identity has the right to the table; None asks for the cluster, or for all tables."""
        return any(grant.gives(right) and grant.covers(table) for grant in self._grants_of(identity))

    def allows_any(self, identity: Identity, right: Right) -> bool:
        """Return True if the identity has the right to at least one table that may exist."""
        return any(grant.gives(right) for grant in self._grants_of(identity))

    def view(self, identity: Identity, table: str) -> AccessView | None:
        """Return what the identity sees of a table; None if it may not query the table."""
        grants = [g for g in self._grants_of(identity) if g.gives(Right.QUERY) and g.covers(table)]
        return united([grant.view for grant in grants]) if grants else None

    def limits(self, identity: Identity) -> IdentityLimits:
        """Return the limits of the identity itself, or else the loosest of its groups that have any."""
        own = self.user_limits.get(identity.name)
        if own is not None:
            return own
        of_groups = [self.group_limits[name] for name in identity.groups if name in self.group_limits]
        rates = [limits.queries_per_second for limits in of_groups]
        numbers = [limits.concurrent for limits in of_groups]
        return IdentityLimits(_largest(rates), _largest(numbers)) if of_groups else NO_LIMITS

    def roles_of(self, identity: Identity) -> frozenset[str]:
        """Return the names of the identity's roles, its own and those of its groups."""
        of_groups = (self.group_roles.get(name, frozenset()) for name in identity.groups)
        return self.user_roles.get(identity.name, frozenset()).union(*of_groups)

    def _grants_of(self, identity: Identity) -> Iterable[Grant]:
        """Return grants in the order of the roles' names, so that answers do not depend on that of sets."""
        return (grant for role in sorted(self.roles_of(identity)) for grant in self.grants.get(role, ()))


_EVERYTHING: Final = Grant((ALL_TABLES,), frozenset(Right))
OPEN: Final = AccessPolicy({"everybody": (_EVERYTHING,)}, user_roles={ANONYMOUS.name: frozenset({"everybody"})})
"""Access without a document: anonymous may do everything."""


def united(views: Iterable[AccessView]) -> AccessView:
    """Return what somebody sees who has all of these views: a row or a column that any of them shows is seen.

    A column is masked if every view that shows it masks it; if the masks differ, the first holds."""
    first, *others = views
    if not others or first.is_whole:
        return first
    every = (first, *others)
    hidden = frozenset.intersection(*(view.hidden for view in every))
    return AccessView(_either(every), hidden, _masks(every, hidden))


def _either(views: tuple[AccessView, ...]) -> tuple[RowFilter, ...]:
    """Return the filter of rows that pass all filters of at least one view. Views of equal filters are one."""
    alternatives = dict.fromkeys(view.row_filters for view in views)
    if () in alternatives:
        return ()
    if len(alternatives) == 1:
        return next(iter(alternatives))
    return (UnitedFilter(tuple(alternatives)),)


def _masks(views: tuple[AccessView, ...], hidden: frozenset[str]) -> Mapping[str, str]:
    columns = dict.fromkeys(column for view in views for column in view.masks if column not in hidden)
    masks = {}
    for column in columns:
        showing = [view for view in views if column not in view.hidden]
        if all(column in view.masks for view in showing):
            masks[column] = showing[0].masks[column]
    return MappingProxyType(masks)


def _largest(values: list[N | None]) -> N | None:
    given = [value for value in values if value is not None]
    return max(given) if len(given) == len(values) else None

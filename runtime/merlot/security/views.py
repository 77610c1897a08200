"""What one identity sees of each table, as queries ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from merlot.security.access import Access, Identity, Right, TableView


class Views(Protocol):
    """What the asker of a query sees of tables. Names of tables may have a type, and any case."""

    def view(self, table: str) -> TableView | None:
        """Return what is seen of a table; None if the table must not be queried."""
        ...

    def may_manage(self, table: str) -> bool:
        """Return True if the asker may know what the access document says of the table."""
        ...


@dataclass(frozen=True, slots=True)
class IdentityViews:
    """The views of an identity under one access document."""

    access: Access
    identity: Identity

    def view(self, table: str) -> TableView | None:
        """Return what the identity sees of a table; None if it may not query the table."""
        return self.access.view(self.identity, table)

    def may_manage(self, table: str) -> bool:
        """Return True if the identity has the right to manage the table."""
        return self.access.allows(self.identity, Right.MANAGE, table)

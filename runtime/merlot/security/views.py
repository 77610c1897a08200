"""Views of tables by one identity, as queries ask for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from merlot.errors import AccessDeniedError
from merlot.security.access import AccessPolicy, AccessView, Identity, Right
from merlot.security.door import refusal


class Views(Protocol):
    """Tables as the asker of a query sees them. Their names may have a type, and any case."""

    def view(self, table: str) -> AccessView | None:
        """Return what is seen of a table; None if the table must not be queried."""
        ...

    def may_manage(self, table: str) -> bool:
        """Return True if the asker may know what the access document says of the table."""
        ...

    def refusal(self, table: str) -> AccessDeniedError:
        """Return the error of a query of a table that must not be queried."""
        ...


@dataclass(frozen=True, slots=True)
class IdentityViews:
    """The views of an identity under one access document."""

    access: AccessPolicy
    identity: Identity

    def view(self, table: str) -> AccessView | None:
        """Return what the identity sees of a table; None if it may not query the table."""
        return self.access.view(self.identity, table)

    def may_manage(self, table: str) -> bool:
        """Return True if the identity has the right to manage the table."""
        return self.access.allows(self.identity, Right.MANAGE, table)

    def refusal(self, table: str) -> AccessDeniedError:
        """Return the error of a query of a table that must not be queried; it does not say whether the table exists."""
        return refusal(self.identity, Right.QUERY, table)

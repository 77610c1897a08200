"""Askers who see a part of each table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merlot.errors import AccessDeniedError
from merlot.security.access import WHOLE_TABLE, AccessView


@dataclass(frozen=True)
class Viewer:
    """An asker, by views of tables with names in lower case; every other table is seen whole."""

    views: Mapping[str, AccessView | None]
    manages: bool = False

    def view(self, table: str) -> AccessView | None:
        return self.views.get(table.lower().removesuffix("_offline"), WHOLE_TABLE)

    def may_manage(self, table: str) -> bool:
        return self.manages

    def refusal(self, table: str) -> AccessDeniedError:
        return AccessDeniedError(f"permission denied right=query table={table}")

"""Estimates of how much smaller the groups of a leaf are than its rows. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from merlot.query.stages.key_filters import estimated_rows
from merlot.tree.nodes import Expr

MIN_ROWS: Final = 10_000
"""Least rows of a leaf for which grouping is worth the larger statement."""
MIN_RATIO: Final = 4
"""Least ratio of estimated rows to groups at which servers group: a group costs them about as much as sending four
rows."""
MAX_GROUPS: Final = 500_000
"""Most estimated groups of a leaf. Tables limit the groups of a query, but not its rows."""


class TableSizes(Protocol):
    """Estimates for the tables of a statement, by their names as written."""

    def num_rows(self, table: str) -> int | None:
        """Return the rows of a table; None if unknown."""

    def num_groups(self, table: str, columns: Collection[str]) -> int | None:
        """Return an upper bound for the groups that servers send if they group a table by columns; None if unknown."""


class UnknownSizes:
    """Sizes of tables of which nothing is known, so that no leaf groups for the sake of size."""

    def num_rows(self, table: str) -> int | None:
        """Return None."""
        del table
        return None

    def num_groups(self, table: str, columns: Collection[str]) -> int | None:
        """Return None."""
        del table, columns
        return None


def grouping_pays(sizes: TableSizes, table: str, columns: Collection[str], where: Expr | None) -> bool:
    """Return whether servers should group the rows of a table that pass a filter, instead of sending them."""
    num_docs, num_groups = sizes.num_rows(table), sizes.num_groups(table, columns)
    if num_docs is None or num_groups is None or num_groups > MAX_GROUPS:
        return False
    num_rows = estimated_rows(num_docs, where)
    return num_rows >= MIN_ROWS and num_groups * MIN_RATIO <= num_rows

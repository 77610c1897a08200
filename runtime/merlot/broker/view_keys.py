"""Find plans by what the asker sees of the tables: identities with equal views share plans, others never do.

Which tables a text reads is known once it was planned, whoever asked. The cache remembers that by the text's digest. A
plan also says which views it was made for, and is used only for an asker who has the same: a wrong key could lose a
plan, but never show one to somebody else. Used on the event loop.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from merlot.ids import TableName, raw_name
from merlot.security.access import WHOLE_TABLE, AccessView
from merlot.security.views import Views

MAX_TEXTS: Final = 4_000
"""Plans of as many texts, and as many shapes, are cached."""
ViewKey = tuple[tuple[TableName, AccessView], ...]
"""Tables of which something is left out or replaced, with the views."""
TextKey = tuple[str, str] | tuple[str, str, ViewKey]
"""A text and its options, as sent; behind them the views, unless all tables are seen whole."""


def seen(views: Views | None, table: str) -> AccessView:
    """Return what is seen of a table, given its name; as written if there is no such table. Raise AccessDeniedError if
    it must not be queried: whether it exists shows for tables only that may be queried."""
    if views is None:
        return WHOLE_TABLE
    view = views.view(table)
    if view is None:
        raise views.refusal(raw_name(table))
    return WHOLE_TABLE if view.is_whole else view


def are_seen(made_for: Mapping[TableName, AccessView], tables: Iterable[TableName], views: Views) -> bool:
    """Return True if a plan for these tables was made for what the asker sees of them."""
    for table in tables:
        view = views.view(table)
        if view is None or (WHOLE_TABLE if view.is_whole else view) != made_for.get(table, WHOLE_TABLE):
            return False
    return True


class ViewKeys:
    """Remembers which tables texts read."""

    def __init__(self) -> None:
        self._tables: OrderedDict[bytes, tuple[TableName, ...]] = OrderedDict()

    def find(self, text: str, options: str, views: Views) -> TextKey | None:
        """Return the key of a text's plan; None if its tables are not known, or one must not be queried."""
        digest = _digest(text, options)
        tables = self._tables.get(digest)
        if tables is None:
            return None
        self._tables.move_to_end(digest)
        return _key(text, options, tables, views)

    def note(self, text: str, options: str, tables: Iterable[TableName], views: Views) -> TextKey | None:
        """Remember a text's tables, and return the key of its plan."""
        digest, sorted_tables = _digest(text, options), tuple(sorted(tables))
        self._tables[digest] = sorted_tables
        self._tables.move_to_end(digest)
        if len(self._tables) > MAX_TEXTS:
            self._tables.popitem(last=False)
        return _key(text, options, sorted_tables, views)


def _key(text: str, options: str, tables: tuple[TableName, ...], views: Views) -> TextKey | None:
    restricted = []
    for table in tables:
        view = views.view(table)
        if view is None:
            return None
        if not view.is_whole:
            restricted.append((table, view))
    return (text, options, tuple(restricted)) if restricted else (text, options)


def _digest(text: str, options: str) -> bytes:
    digest = hashlib.blake2b(f"{len(text)} ".encode(), digest_size=16)
    digest.update(text.encode(errors="surrogatepass"))
    digest.update(options.encode(errors="surrogatepass"))
    return digest.digest()

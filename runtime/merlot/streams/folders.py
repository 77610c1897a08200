"""Folders whose files streams may read: those that the process was started with, and what is below them.

The author of a Table names a folder, and the writers of that folder name files. Neither may have the process read
other files by a path or by a link, so a path is checked by where it leads.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from merlot.errors import InvalidInputError

HINT: Final = "whoever runs Merlot may allow more by --stream-folders (sources.prefixes of the chart)"
ROOT: Final = "/"


class PlaceNotAllowedError(InvalidInputError):
    """Raised if a stream names, or leads to, a host or a folder that Tables may not use."""


@dataclass(frozen=True, slots=True)
class AllowedFolders:
    """Allowed folders, `roots`. Links in them are followed too, once, when a path is compared."""

    roots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidInputError for a path that depends on the working directory."""
        for root in self.roots:
            if not os.path.isabs(root) or "\0" in root:
                raise InvalidInputError(f"a folder of streams must be a path from / on got={root!r}")

    def problem_of(self, folder: str) -> str | None:
        """Return why a Table may not name this folder, and which option would allow it."""
        try:
            self.resolved(Path(folder))
        except PlaceNotAllowedError as error:
            return str(error)
        return None

    def resolved(self, path: Path) -> Path:
        """Return the path without links; raise PlaceNotAllowedError unless it is below one of the folders."""
        if "\0" in str(path):
            raise PlaceNotAllowedError(f"a path has no NUL characters path={str(path)!r}")
        place = os.path.realpath(path)
        if not any(_holds(os.path.realpath(root), place) for root in self.roots):
            leads = "" if place == str(path) else f" leads to={place}"
            raise PlaceNotAllowedError(
                f"folder is not allowed path={path}{leads}: it must be below {_list(self.roots)}; {HINT}"
            )
        return Path(place)


EVERY_FOLDER: Final = AllowedFolders((ROOT,))
"""Every folder, for the user's own commands, which read what the user may read."""


def _holds(root: str, place: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")


def _list(folders: Collection[str]) -> str:
    return " or ".join(folders) or "a folder that is allowed, and none is"

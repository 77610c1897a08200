"""Follow an access document: read it again when it, or a file that it names, changes.

A version that cannot be read is refused with one line in the log, and the one before stays in force. At the start there
is none before, so the process ends. Files are read in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from merlot.errors import InvalidInputError, MerlotError
from merlot.security.door import Door
from merlot.security.rules import AccessRules

_LOG = logging.getLogger(__name__)

POLL_S: Final = 2.0
MAX_FILE_BYTES: Final = 4 << 20

ReadFile = Callable[[str], str]
Parse = Callable[[str, ReadFile], AccessRules]
"""Makes rules of a document's text and of the files that it names; raises InvalidInputError."""
Stamp = tuple[int, int, int]


class AccessFile:
    """An access document on disk. `read` may be called on any thread, by one caller at a time."""

    def __init__(self, path: Path, parse: Parse) -> None:
        self._path = path
        self._parse = parse
        self._stamps: dict[Path, Stamp | None] = {}

    def read(self) -> AccessRules:
        """Return the rules in the file. Raise InvalidInputError if it, or a file that it names, cannot be read."""
        self._stamps = {}
        text = self._text_of(self._path)
        return self._parse(text, lambda name: self._text_of(self._path.parent / name))

    def has_changed(self) -> bool:
        """Return True if a file that was read is another one now."""
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())

    def __str__(self) -> str:
        return str(self._path)

    def _text_of(self, path: Path) -> str:
        self._stamps[path] = _stamp(path)  # before it is read: a change meanwhile is seen at the next look
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidInputError(f"cannot be read path={path} reason={error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInputError(f"is too large path={path} limit={MAX_FILE_BYTES}")
        return data.decode(errors="replace")


async def follow(file: AccessFile, door: Door, poll_s: float = POLL_S) -> None:
    """Give the door each new version of the document, until cancelled."""
    while True:
        await asyncio.sleep(poll_s)
        if not await asyncio.to_thread(file.has_changed):
            continue
        try:
            door.use(await asyncio.to_thread(file.read))
        except MerlotError as error:
            _LOG.error("access document is refused, the one before stays in force path=%s cause=%s", file, error)
        else:
            _LOG.info("access document is in force path=%s", file)


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

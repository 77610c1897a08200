"""Record who did what: one JSON object a line, for each refused or changing request, and for queries if wanted.

Lines are written by a thread of their own, and never hold up a request: while the file cannot be written, up to
`MAX_WAITING` wait and later ones are counted. No line has credentials; a query is its fingerprint unless texts are
asked for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import orjson

from merlot.security.access import Identity

_LOG = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
MAX_TEXT: Final = 10_000
CLOSE_S: Final = 5.0
"""Longest wait for a file or a pipe that takes no lines when the process ends."""
STDOUT: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Place and content of an audit log."""

    path: str = STDOUT
    """File, or `-` for the standard output."""
    max_bytes: int = 64 << 20
    """Size of a file; then it is renamed to `.1`, and the one that was `.1` to `.2`."""
    num_files: int = 10
    """Number of older files that are kept."""
    with_queries: bool = False
    """True: queries are recorded, too."""
    with_texts: bool = False
    """True: queries are recorded with their texts, constants included."""


def entry(event: str, identity: Identity, client: str, **facts: Any) -> dict[str, Any]:
    """Return a line's members: when, what, who and from where, and facts about it."""
    return {
        "timeMs": time.time_ns() // 1_000_000,
        "event": event,
        "user": identity.name,
        "method": identity.method,
        "from": client,
        **facts,
    }


class AuditLog:
    """An audit log, open until `close`. Safe on every thread."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._file: IO[bytes] | None = None
        self._num_lost = 0
        self._open()
        self._writer = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._writer.start()

    def record(self, entry: Mapping[str, Any]) -> None:
        """Append one line."""
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE, default=str)
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._num_lost += 1

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Write what waits, and close. Lines that cannot be written within `wait_s` are lost."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=wait_s)
        self._writer.join(wait_s)
        if self._writer.is_alive():
            _LOG.error(
                "audit log cannot be written to its end path=%s lines=%d", self.settings.path, self._lines.qsize()
            )
            return
        if self._file is not None and self._file is not sys.stdout.buffer:
            self._file.close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._write(line)
                if self._num_lost:
                    lost, self._num_lost = self._num_lost, 0
                    self._write(orjson.dumps({"lostLines": lost}, option=orjson.OPT_APPEND_NEWLINE))
            except OSError as error:
                self._num_lost += 1
                _LOG.error("audit log cannot be written path=%s cause=%s", self.settings.path, error)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        assert self._file is not None
        if self.settings.path != STDOUT and self._file.tell() + len(line) > self.settings.max_bytes:
            self._rotate()
        self._file.write(line)
        self._file.flush()

    def _open(self) -> None:
        if self.settings.path == STDOUT:
            self._file = sys.stdout.buffer
            return
        descriptor = os.open(self.settings.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab")

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        path = Path(self.settings.path)
        for number in range(self.settings.num_files, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            newer = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)
        if not self.settings.num_files:
            path.unlink(missing_ok=True)
        self._open()

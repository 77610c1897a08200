"""Skip a message that kills the process when it is decoded.

Before messages are decoded, a file named after their offsets is written; afterwards it is deleted. A file that exists
at the start belongs to a process that died in between: its messages are decoded one by one, each under a file of its
own. A message that killed the process twice while it was decoded alone is not decoded again: it counts as a bad
message.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.stream import StreamRows
from merlot.streams.protocol import Messages

_LOG = logging.getLogger(__name__)

MOST_DEATHS: Final = 2
ENDED: Final = "the message ended the process each time that it was decoded"


class DecodeAttempts:
    """Offsets of one partition that were being decoded when processes died. Any thread may call; one process uses the
    folder."""

    def __init__(self, folder: Path, place: str) -> None:
        self._folder = folder
        self._place = place
        self._deaths: dict[tuple[int, int], int] = {}
        # On a disk that is full or broken, the partition is consumed without these files.
        with suppress(OSError, ValueError):
            folder.mkdir(parents=True, exist_ok=True)
            self._deaths = {_range(file): int(file.read_text() or 0) for file in folder.iterdir()}

    def decode(self, messages: Messages, rows: Callable[[Messages], StreamRows]) -> StreamRows:
        """Return the rows of messages. Messages at which a process died are decoded one at a time."""
        first, end = int(messages.offsets[0]), int(messages.offsets[-1]) + 1
        suspects = [span for span in list(self._deaths) if span[0] < end and first < span[1]]
        if not suspects:
            return self._marked((first, end), 0, messages, rows)
        pieces = []
        for row in range(len(messages)):
            pieces.append(self._alone(_slice(messages, row), rows))
            if pieces[-1].stopped_by is not None:
                return _joined(pieces)
        for span in suspects:
            if span[1] <= end and self._deaths[span] < MOST_DEATHS:
                self._forget(span)
        return _joined(pieces)

    def _alone(self, message: Messages, rows: Callable[[Messages], StreamRows]) -> StreamRows:
        offset = int(message.offsets[0])
        deaths = self._deaths.get((offset, offset + 1), 0)
        if deaths < MOST_DEATHS:
            return self._marked((offset, offset + 1), deaths, message, rows)
        _LOG.error("message skipped that ended the process %s offset=%d", self._place, offset)
        bad = BadRows({ENDED: 1}, (BadRow(ENDED, (), file=self._place, row_number=offset),))
        return replace(rows(_none_of(message)), bad=bad, next_offset=message.next_offset)

    def _marked(
        self, at: tuple[int, int], deaths: int, messages: Messages, rows: Callable[[Messages], StreamRows]
    ) -> StreamRows:
        file = self._file(at)
        with suppress(OSError):
            file.write_text(str(deaths + 1 if at[1] - at[0] == 1 else 1))
        try:
            return rows(messages)
        finally:
            with suppress(OSError):
                file.unlink()

    def _forget(self, at: tuple[int, int]) -> None:
        self._deaths.pop(at, None)
        with suppress(OSError):
            self._file(at).unlink()

    def _file(self, at: tuple[int, int]) -> Path:
        return self._folder / f"{at[0]}-{at[1]}"


def _range(file: Path) -> tuple[int, int]:
    first, _, end = file.name.partition("-")
    return int(first), int(end)


def _slice(messages: Messages, row: int) -> Messages:
    is_last = row == len(messages) - 1
    return replace(
        messages,
        values=messages.values.slice(row, 1),
        offsets=messages.offsets[row : row + 1],
        timestamps_ms=messages.timestamps_ms[row : row + 1],
        keys=None if messages.keys is None else messages.keys.slice(row, 1),
        headers=None if messages.headers is None else messages.headers[row : row + 1],
        next_offset=messages.next_offset if is_last else int(messages.offsets[row + 1]),
    )


def _none_of(message: Messages) -> Messages:
    return replace(
        message,
        values=message.values.slice(0, 0),
        offsets=message.offsets[:0],
        timestamps_ms=message.timestamps_ms[:0],
        keys=None if message.keys is None else message.keys.slice(0, 0),
        headers=None if message.headers is None else message.headers[:0],
    )


def _joined(pieces: list[StreamRows]) -> StreamRows:
    last = pieces[-1]
    return StreamRows(
        rows=pa.concat_tables([piece.rows for piece in pieces]),
        offsets=np.concatenate([piece.offsets for piece in pieces]),
        next_offset=last.next_offset,
        bad=functools.reduce(operator.add, (piece.bad for piece in pieces), BadRows()),
        cut=functools.reduce(operator.add, (Counter(piece.cut) for piece in pieces), Counter()),
        num_filtered=sum(piece.num_filtered for piece in pieces),
        num_tombstones=sum(piece.num_tombstones for piece in pieces),
        stopped_by=last.stopped_by,
    )

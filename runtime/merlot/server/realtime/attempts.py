"""Skip a message that kills the process when it is decoded.

Before messages are decoded, a file named after their offsets is written; afterwards it is deleted. A file that exists
at the start belongs to a process that died in between, most likely for another reason: its messages are decoded in
pieces, each under a file of its own, and those of a piece that is small enough one by one. A message that killed the
process twice while it was decoded alone is not decoded again: it counts as a bad message.
"""

from __future__ import annotations

import functools
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.stream import StreamRows, head, tail
from merlot.streams.protocol import Messages

_LOG = logging.getLogger(__name__)

MOST_DEATHS: Final = 2
PIECE: Final = 150
"""Most messages that are decoded one by one after a death, and the size of the pieces of more messages. About the root
of the most messages of a poll, so that a process that was killed by chance goes on after 150 short calls."""
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
        """Return the rows of messages. Messages at which a process died are decoded in pieces."""
        first, end = int(messages.offsets[0]), int(messages.offsets[-1]) + 1
        suspects = [span for span in list(self._deaths) if span[0] < end and first < span[1]]
        if not suspects:
            return self._marked((first, end), 0, messages, rows)
        decoded: list[StreamRows] = []
        for start, stop in _pieces(messages.offsets, suspects):
            piece = _slice(messages, start, stop)
            decoded.append(self._decoded(piece, rows))
            if decoded[-1].stopped_by is not None or decoded[-1].next_offset < piece.next_offset:
                break
        for span in suspects:
            if span[1] <= decoded[-1].next_offset and self._deaths[span] < MOST_DEATHS:
                self._forget(span)
        return _joined(decoded)

    def _decoded(self, piece: Messages, rows: Callable[[Messages], StreamRows]) -> StreamRows:
        if len(piece) == 1:
            return self._alone(piece, rows)
        return self._marked((int(piece.offsets[0]), int(piece.offsets[-1]) + 1), 0, piece, rows)

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


def _pieces(offsets: NDArray[np.int64], suspects: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the messages that are decoded at a time, as the first index and the one behind the last."""
    steps = np.full(len(offsets), len(offsets))
    for span in suspects:
        first, end = np.searchsorted(offsets, span)
        steps[first:end] = np.minimum(steps[first:end], PIECE if end - first > PIECE else 1)
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(offsets)]
    for first, end in itertools.pairwise(bounds):
        for start in range(first, end, int(steps[first])):
            yield start, min(end, start + int(steps[first]))


def _slice(messages: Messages, start: int, stop: int) -> Messages:
    return head(tail(messages, start), stop - start)


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

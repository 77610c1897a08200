"""A message that kills the process when it is decoded is skipped after a few deaths, and costs no other message.

A process that was killed by chance does not take long over the messages that it was decoding.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from merlot.ingest.stream import StreamRows
from merlot.server.realtime.attempts import PIECE, DecodeAttempts
from merlot.streams.protocol import Messages

SCRIPT = """
import ctypes, os, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from merlot.ingest.stream import StreamRows
from merlot.server.realtime.attempts import DecodeAttempts
from merlot.streams.protocol import Messages

def rows(messages):
    if killer in messages.offsets:
        ctypes.string_at(0)
    offsets = messages.offsets
    return StreamRows(rows=pa.table({"a": offsets}), offsets=offsets, next_offset=messages.next_offset)

def live():
    attempts = DecodeAttempts(Path(sys.argv[1]), "trips#0")
    bad, good = [], []
    for first in range(0, 40, 10):
        offsets = np.arange(first, first + 10)
        values = pa.array([b"x"] * 10, pa.large_binary())
        messages = Messages(values=values, offsets=offsets, timestamps_ms=offsets, next_offset=first + 10)
        decoded = attempts.decode(messages, rows)
        assert decoded.next_offset == first + 10 and decoded.rows.num_rows == len(decoded.offsets)
        bad += [sample.row_number for sample in decoded.bad.samples]
        good += decoded.offsets.tolist()
    print(bad, sorted({*range(40)} - {*good}), flush=True)

for killer in map(int, sys.argv[2:]):
    if not (child := os.fork()):
        live()
        os._exit(0)
    print("exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run(folder: Path, *killers: int) -> list[tuple[int, str]]:
    """Exit code and output of one process after the other, each with an offset whose message kills it."""
    command = [sys.executable, "-c", SCRIPT, str(folder), *map(str, killers)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lives = re.findall(r"(.*?)exit code (-?\d+)\n", ran.stdout, re.DOTALL)
    return [(int(code), output.strip()) for output, code in lives]


def test_message_that_kills_the_process_is_skipped_after_three_deaths_and_at_every_later_start(tmp_path: Path) -> None:
    folder = tmp_path / "attempts"
    assert run(folder, *[17] * 5) == [(-signal.SIGSEGV, "")] * 3 + [(0, "[17] [17]")] * 2


def test_process_that_was_killed_for_another_reason_skips_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "attempts"
    assert run(folder, 17, 99, 99) == [(-signal.SIGSEGV, ""), (0, "[] []"), (0, "[] []")]
    assert list(folder.iterdir()) == []


def test_folder_that_cannot_be_written_keeps_no_message_from_its_rows(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file" / "attempts", 99) == [(0, "[] []")]


MOST_MESSAGES = 20_000


class Decoder:
    """Decodes all messages, or at most `most` at a time, and is killed at a message."""

    def __init__(self, killer: int | None = None, most: int = MOST_MESSAGES) -> None:
        self.killer = killer
        self.most = most
        self.calls: list[tuple[int, int]] = []

    def rows(self, messages: Messages) -> StreamRows:
        first = int(messages.offsets[0]) if len(messages) else 0
        self.calls.append((first, len(messages)))
        if self.killer is not None and self.killer in messages.offsets:
            raise KeyboardInterrupt
        offsets = messages.offsets[: self.most]
        end = messages.next_offset if len(messages) <= self.most else int(messages.offsets[self.most])
        return StreamRows(rows=pa.table({"a": offsets}), offsets=offsets, next_offset=end)


def messages_from(first: int, count: int) -> Messages:
    offsets = np.arange(first, first + count)
    values = pa.array([b"x"] * count, pa.large_binary())
    return Messages(values=values, offsets=offsets, timestamps_ms=offsets, next_offset=first + count)


def folder_of(folder: Path, *spans: tuple[int, int]) -> Path:
    """A folder that a process left which died while it decoded these messages."""
    for first, end in spans:
        (folder / f"{first}-{end}").write_text("1")
    return folder


@pytest.mark.parametrize("span", [(0, MOST_MESSAGES), (0, 100_000), (7_000, 7_001), (50, 250), (19_900, 30_000)])
def test_death_by_chance_costs_few_calls(tmp_path: Path, span: tuple[int, int]) -> None:
    decoder = Decoder()
    decoded = DecodeAttempts(folder_of(tmp_path, span), "trips#0").decode(messages_from(0, MOST_MESSAGES), decoder.rows)
    assert decoded.offsets.tolist() == list(range(MOST_MESSAGES))
    assert len(decoder.calls) <= PIECE + 2
    assert (list(tmp_path.iterdir()) == []) == (span[1] <= MOST_MESSAGES), "kept as long as messages of it may come"


def test_message_among_many_is_found_by_four_deaths(tmp_path: Path) -> None:
    for _ in range(4):
        decoder = Decoder(killer=12_345)
        left = {file.name: file.read_text() for file in tmp_path.iterdir()}
        with pytest.raises(KeyboardInterrupt):
            DecodeAttempts(tmp_path, "trips#0").decode(messages_from(0, MOST_MESSAGES), decoder.rows)
        assert len(decoder.calls) <= 2 * PIECE
        first, count = decoder.calls[-1]
        deaths = int(left.get(f"{first}-{first + 1}", 0)) + 1 if count == 1 else 1
        for name, text in {**left, f"{first}-{first + count}": str(deaths)}.items():
            (tmp_path / name).write_text(text)  # a process that is killed leaves its files behind
    decoded = DecodeAttempts(tmp_path, "trips#0").decode(messages_from(0, MOST_MESSAGES), Decoder(killer=12_345).rows)
    assert [sample.row_number for sample in decoded.bad.samples] == [12_345]
    assert sorted({*range(MOST_MESSAGES)} - {*decoded.offsets.tolist()}) == [12_345]
    assert [file.name for file in tmp_path.iterdir()] == ["12345-12346"]


def test_rows_go_on_where_a_piece_ended_early(tmp_path: Path) -> None:
    attempts = DecodeAttempts(folder_of(tmp_path, (0, 400)), "trips#0")
    decoded = attempts.decode(messages_from(0, 1_000), Decoder(most=100).rows)
    assert (decoded.offsets.tolist(), decoded.next_offset) == (list(range(100)), 100)
    assert [file.name for file in tmp_path.iterdir()] == ["0-400"]

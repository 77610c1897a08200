"""A message that kills the process when it is decoded is skipped after three deaths, and costs no other message."""

import re
import signal
import subprocess
import sys
from pathlib import Path

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

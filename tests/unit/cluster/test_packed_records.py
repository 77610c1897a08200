"""Packed records expand to no more than they may, whatever a node holds."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest

from merlot.cluster import packing
from merlot.cluster.records import BucketRecord, TrashRecord
from merlot.errors import CorruptionError, InvalidInputError

BOMB = """
import resource, zlib
from pathlib import Path
from merlot.cluster.records import BucketRecord
from merlot.errors import CorruptionError
packer = zlib.compressobj()
data = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(250)), packer.flush()])
assert len(data) < 300_000
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
try:
    BucketRecord.from_bytes(data, "/SEGMENTS/t/7")
except CorruptionError as error:
    print(error)
"""


def test_a_node_that_expands_to_much_is_refused_with_little_memory() -> None:
    child = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, timeout=100, check=False)
    assert child.returncode == 0, child.stderr
    assert "expands to more than" in child.stdout
    assert "path=/SEGMENTS/t/7" in child.stdout


def test_a_packed_record_that_is_cut_or_no_stream_is_refused() -> None:
    whole = TrashRecord(deleted_ms=1, urls=tuple(f"file:///{number}" for number in range(1000))).to_bytes()
    assert TrashRecord.from_bytes(whole, "/t").urls[999] == "file:///999"
    for damaged in (whole[:-1], whole[:20], b"", b"{}", zlib.compress(b"{}")[:-4]):
        with pytest.raises(CorruptionError, match="path=/t"):
            TrashRecord.from_bytes(damaged, "/t")


def test_a_record_that_no_reader_would_take_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="too large"):
        TrashRecord(deleted_ms=1, urls=("file:///x",) * 200).to_bytes()
    assert BucketRecord.from_bytes(BucketRecord().to_bytes(), "/b") == BucketRecord()

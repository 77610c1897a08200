"""Pages of mapped files that are gone: zeros stand in their place, and whoever asks is told."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.budget import count

from merlot.errors import CorruptionError
from merlot.segment import lost_pages
from merlot.segment.mapping import Mapping, map_file

SIZE = 1 << 20
ROOT = Path(__file__).resolve().parents[3]
NUM_CUTS = count("MERLOT_CUTS", quick=8, every=60)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the handler of SIGBUS is for Linux")


def mapped(folder: Path, name: str = "file") -> tuple[Path, Mapping]:
    path = folder / name
    path.write_bytes(b"\x07" * SIZE)
    return path, map_file(path)


def total(mapping: Mapping) -> int:
    return int(np.frombuffer(mapping.view, np.uint8).sum())


def test_what_is_left_is_read_and_the_rest_is_zeros(tmp_path: Path) -> None:
    path, mapping = mapped(tmp_path)
    _, other = mapped(tmp_path, "other")
    before = lost_pages.num_faults()
    assert total(mapping) == 7 * SIZE
    os.truncate(path, 10_000)
    assert bytes(mapping.view[:10_000]) == b"\x07" * 10_000
    assert total(mapping) == 70_000
    assert zlib.crc32(mapping.view) == zlib.crc32(b"\x07" * 10_000 + bytes(SIZE - 10_000))
    assert lost_pages.num_faults() == before + 1
    assert lost_pages.is_lost(mapping.slot)
    assert not lost_pages.is_lost(other.slot)
    assert total(other) == 7 * SIZE


def test_a_slot_is_used_again_by_a_file_that_is_whole(tmp_path: Path) -> None:
    path, mapping = mapped(tmp_path)
    os.truncate(path, 0)
    assert total(mapping) == 0
    lost = mapping.slot
    assert lost_pages.is_lost(lost)
    del mapping
    assert not lost_pages.is_lost(lost)
    _, other = mapped(tmp_path, "other")
    assert other.slot == lost
    assert not lost_pages.is_lost(other.slot)


def test_threads_that_meet_the_loss_together_go_on(tmp_path: Path) -> None:
    for round_ in range(20):
        path, mapping = mapped(tmp_path, str(round_))
        os.truncate(path, 4096 * round_)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(total, [mapping] * 4)) == [7 * 4096 * round_] * 4


def test_work_over_lost_pages_is_an_error_when_it_ends(tmp_path: Path) -> None:
    path, mapping = mapped(tmp_path)
    with lost_pages.watched("a sum"):
        total(mapping)
    os.truncate(path, 0)
    with pytest.raises(CorruptionError, match="during=a sum"), lost_pages.watched("a sum"):
        total(mapping)


@pytest.mark.timeout(300)
def test_no_query_over_a_file_that_was_cut_ends_the_process() -> None:
    """MERLOT_SEED of a case that fails: `python -m tests.oracle.lost_pages CASE 1`."""
    command = [sys.executable, "-m", "tests.oracle.lost_pages", "1", str(NUM_CUTS)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"{lines[-1:]} {child.stderr[-2000:]}"
    assert not [line for line in lines if line.startswith("failed")]
    assert lines.count("lost") > NUM_CUTS // 2

"""How many processors a process counts on."""

import os
from pathlib import Path

import pytest

from merlot import cores


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (None, 16),
        ("max 100000", 16),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("6400000 100000", 16),
        ("nonsense", 16),
    ],
)
def test_a_quota_of_the_container_counts_if_it_is_less(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str | None, expected: int
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(f"{quota}\n")
    monkeypatch.setattr(cores, "_CGROUP_QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert cores.usable() == expected

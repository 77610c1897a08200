"""How many processors a process counts on."""

import os

import pytest

from merlot import cgroups, cores


@pytest.mark.parametrize(("quota", "expected"), [(None, 16), (2.0, 2), (1.5, 2), (0.1, 1), (64.0, 16)])
def test_a_quota_of_the_container_counts_if_it_is_less(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(cgroups, "num_cpus", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert cores.usable() == expected

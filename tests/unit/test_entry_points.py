"""Entry points of installed packages are scanned for once."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from tests.support.plugins import installed

from merlot import entry_points
from merlot.entry_points import entry_points_named
from merlot.spec import partition_functions, pruners, stream
from merlot.spec.indexing import PartitionFunctionSpec

MODULES = {"acme": "def of(spec):\n    return lambda text: 3\n"}


def test_a_package_that_is_installed_later_on_the_path_is_seen(tmp_path: Path) -> None:
    spec = PartitionFunctionSpec.model_validate({"functionName": "of_acme", "numPartitions": 4})
    assert not pruners.is_known("acme.geo")
    with installed(
        tmp_path,
        MODULES,
        {"merlot.segment_pruners": {"acme.geo": "acme:of"}, "merlot.partition_functions": {"of_acme": "acme:of"}},
    ):
        assert pruners.is_known("acme.geo")
        assert partition_functions.get(spec)("x") == 3
        assert entry_points_named("merlot.segment_pruners", "acme.geo")[0].load()(None)("x") == 3
    assert not pruners.is_known("acme.geo")


def test_a_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []

    def scan(**wanted: str) -> importlib.metadata.EntryPoints:
        scans.append(wanted["name"])
        return importlib.metadata.entry_points(**wanted)

    monkeypatch.setattr(entry_points, "entry_points", scan)
    names = [f"nobody.offers_{number}" for number in range(3)]
    for _ in range(5):
        assert not any(map(stream.is_known, names))
    assert scans == names

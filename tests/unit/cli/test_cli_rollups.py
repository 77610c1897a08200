"""Merges and upsert configs from the command line, against the controller's endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from merlot.cli.main import run
from merlot.cli.rollups import age
from merlot.cluster.manifests import rollups
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.ids import TableName

Captured = pytest.CaptureFixture[str]
DAY = 86_400_000
MANIFESTS = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: trips-merge}
spec:
  table: trips
  levels:
    - {name: daily, bucketTimePeriod: 1d, bufferTimePeriod: 1d, maxNumParallelBuckets: 2}
    - {name: monthly, bucketTimePeriod: 1mo, bufferTimePeriod: 7d}
---
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {name: latest}
spec: {mode: FULL, primaryKeyTtl: 1d}
"""
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  timeColumn: at
  schema: {fields: [{name: at, type: TIMESTAMP, role: dateTime}, {name: fare, type: LONG, role: metric}]}
"""


@pytest.fixture
def folder(node: Any, tmp_path: Path) -> Path:
    """Manifests of all kinds; the table's file comes last by name."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "merges.yaml").write_text(MANIFESTS)
    (folder / "table.yaml").write_text(TABLE)
    return folder


@pytest.fixture
def merges(node: Any, folder: Path, capsys: Captured) -> Any:
    """A node with a table of three days, and merges declared."""
    assert run(["apply", "-f", str(folder)]) == 0
    records = [
        SegmentRecord(
            name=f"s{day}", crc=1, size_bytes=1, url="", total_docs=5, start_time_ms=day * DAY, end_time_ms=day * DAY
        )
        for day in range(3)
    ]
    publish(node.metastore, TableName("trips_OFFLINE"), records)
    capsys.readouterr()
    return node


def test_a_folder_of_all_kinds_is_applied_tables_first(folder: Path, capsys: Captured) -> None:
    assert run(["apply", "-f", str(folder)]) == 0
    captured = capsys.readouterr()
    lines = ["table/trips created", "mergerolluptask/trips-merge created", "upsertconfig/latest created"]
    assert captured.out.splitlines() == lines
    assert "waits for it" not in captured.err


def test_a_merge_of_a_table_that_is_not_there_waits(node: Any, folder: Path, capsys: Captured) -> None:
    assert run(["apply", "-f", str(folder / "merges.yaml")]) == 0
    assert 'there is no table "trips" yet; waits for it' in capsys.readouterr().err
    assert run(["get", "rollups"]) == 0
    captured = capsys.readouterr()
    assert "Waiting" in captured.out
    assert 'trips-merge: there is no table "trips"' in captured.err


def test_rollups_are_listed_a_level_a_line(merges: Any, capsys: Captured) -> None:
    assert run(["rollup", "run", "trips-merge"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(["get", "rollups"]) == 0
    header, _, daily, monthly = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "TABLE", "LEVEL", "WATERMARK", "DELAY", "STATE", "LAST-RUN", "AGE"]
    assert daily.split()[:6] == ["trips-merge", "trips", "daily", "1970-01-01", "3", "Running"]
    assert monthly.split()[2] == "monthly"
    assert run(["get", "rollups", "trips-merge", "-o", "wide"]) == 0
    assert "BEHIND" in capsys.readouterr().out
    assert run(["get", "rollups", "-o", "name"]) == 0
    assert capsys.readouterr().out == "trips-merge\n"
    assert run(["get", "rollups", "trips-merge", "-o", "json"]) == 0
    assert [task["level"] for task in json.loads(capsys.readouterr().out)["tasks"]] == ["daily", "daily"]
    assert run(["rollup", "run", "trips-merge"]) == 0
    assert capsys.readouterr().out == "rollup/trips-merge has nothing new to merge now\n"


def test_what_is_not_there_is_said(node: Any, capsys: Captured) -> None:
    assert run(["get", "rollups"]) == 0
    assert "no merges" in capsys.readouterr().err
    assert run(["get", "upserts"]) == 0
    assert "no upsert configs" in capsys.readouterr().err
    assert run(["get", "rollups", "none"]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert run(["delete", "rollup", "none", "--yes"]) == 1


def test_upsert_configs_are_listed_and_deleted(merges: Any, capsys: Captured) -> None:
    assert run(["get", "upserts"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:4] == ["latest", "FULL", "1d", "Accepted"]
    assert run(["delete", "upsert", "latest", "--yes"]) == 0
    assert capsys.readouterr().out == "upsert/latest deleted\n"


def test_a_rollup_is_deleted(merges: Any, capsys: Captured) -> None:
    assert run(["delete", "rollup", "trips-merge", "--yes"]) == 0
    assert capsys.readouterr().out == "rollup/trips-merge deleted\n"
    assert not rollups.list_rollups(merges.metastore)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (125, "2m"), (7200, "2h"), (47 * 3600, "47h"), (400_000, "4d")]
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age(1000, now_s=1 + seconds) == text


def test_an_unknown_time_has_no_age() -> None:
    assert age(-1) == ""

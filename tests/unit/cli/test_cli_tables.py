"""`apply`, `get` and `delete` against the controller's endpoint."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from merlot.cli.main import run
from merlot.cluster.instances import liveness
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.records import InstanceRecord, PartitionRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.ids import InstanceId, TableName

FLIGHTS = Path(__file__).resolve().parents[3] / "examples" / "flights" / "table.yaml"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def flights(node: Any, capsys: Captured) -> Any:
    """A node that has the table."""
    assert run(["apply", "-f", str(FLIGHTS)]) == 0
    capsys.readouterr()
    return node


def add_segments(node: Any) -> None:
    records = [
        SegmentRecord(
            name=f"flights_{day}",
            crc=day,
            size_bytes=3 << 20,
            url=f"file:///store/flights_{day}@{day}.mseg",
            total_docs=1000,
            start_time_ms=1_356_998_400_000 + day * 86_400_000,
            end_time_ms=1_356_998_400_000 + day * 86_400_000 + 3_600_000,
        )
        for day in (2, 1)
    ]
    publish(node.metastore, TableName("flights_OFFLINE"), records)


def test_apply_tells_what_it_did(node: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "table.yaml"
    file.write_text(FLIGHTS.read_text())
    assert run(["apply", "-f", str(file), "--dry-run"]) == 0
    assert capsys.readouterr().out == "table/flights created (dry run)\n"
    assert run(["apply", "-f", str(file)]) == 0
    assert capsys.readouterr().out == "table/flights created\n"
    assert run(["apply", "-f", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "table/flights unchanged\n"
    file.write_text(FLIGHTS.read_text().replace("replication: 1", "replication: 2"))
    assert run(["apply", "-f", str(file)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "table/flights configured\n"
    assert "warning: spec.replication: 2 replicas wanted" in captured.err


def test_apply_shows_every_problem_and_applies_nothing(node: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "table.yaml"
    file.write_text(
        FLIGHTS.read_text().replace("origin, type: STRING", "origin, type: STR").replace("[carrier,", "[carr,")
    )
    assert run(["apply", "-f", str(file)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{file}: 2 problems, nothing is applied\n" in captured.err
    assert 'spec.schema.fields[13].type: unknown type "STR"; did you mean STRING?' in captured.err
    assert 'spec.indexing.inverted[0]: no column "carr" in spec.schema.fields; did you mean carrier?' in captured.err
    assert "line 3" in captured.err
    assert run(["get", "tables", "-o", "name"]) == 0
    assert capsys.readouterr().out == ""


def test_apply_refuses_what_a_live_table_cannot_become(flights: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "table.yaml"
    file.write_text(
        FLIGHTS.read_text().replace("timeColumn: time_hour", "pushType: REFRESH").replace("pushType: APPEND", "")
    )
    assert run(["apply", "-f", str(file)]) == 1
    error = capsys.readouterr().err
    assert "spec.timeColumn: cannot change from time_hour to none" in error
    assert "spec.pushType: cannot change from APPEND to REFRESH" in error


def test_apply_numbers_the_documents_of_a_file(node: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "two.yaml"
    good = FLIGHTS.read_text()
    file.write_text(
        f"{good}\n---\n{good.replace('name: flights #', 'name: other #').replace('replication: 1', 'replication: 0')}"
    )
    assert run(["apply", "-f", str(file)]) == 1
    assert re.search(r"document 2, line \d+: spec.replication: must be at least 1, got 0", capsys.readouterr().err)


def test_apply_reads_standard_input(node: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    with FLIGHTS.open() as text:
        monkeypatch.setattr("sys.stdin", text)
        assert run(["apply", "-f", "-"]) == 0
    assert capsys.readouterr().out == "table/flights created\n"


@pytest.mark.parametrize(
    ("name", "message"), [("nothing.yaml", "no such file: nothing.yaml"), (".", "no manifests in .")]
)
def test_apply_of_no_file_is_wrong_usage(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["apply", "-f", name]) == 2
    assert message in capsys.readouterr().err


def test_tables_are_listed(flights: Any, capsys: Captured) -> None:
    add_segments(flights)
    assert run(["get", "tables"]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SEGMENTS", "ROWS", "SIZE"]
    assert row.split() == ["flights", "2", "2,000", "6.0", "MiB"]
    assert run(["get", "tables", "-o", "name"]) == 0
    assert capsys.readouterr().out == "flights\n"
    assert run(["get", "tables", "flights", "-o", "wide"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == [
        *("flights", "2", "2,000", "6.0", "MiB", "20", "time_hour", "1", "1", "0/0"),
    ]
    assert run(["get", "tables", "-o", "json"]) == 0
    [table] = json.loads(capsys.readouterr().out)
    assert (table["rows"], table["sizeBytes"], table["columns"]) == (2000, 6 << 20, 20)


def test_no_tables_say_what_to_do(node: Any, capsys: Captured) -> None:
    assert run(["get", "tables"]) == 0
    assert "create one with `merlot apply" in capsys.readouterr().err


def test_segments_are_listed_by_time(flights: Any, capsys: Captured) -> None:
    add_segments(flights)
    assert run(["get", "segments", "flights", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["flights_1", "flights_2"]
    assert run(["get", "segments", "flights"]) == 0
    first = capsys.readouterr().out.splitlines()[2].split()
    times = ["2013-01-02", "00:00:00", "2013-01-02", "01:00:00"]
    assert first == ["flights_1", "1,000", "3.0", "MiB", *times, "0/0", "Visible"]


def test_segments_tell_whether_queries_see_them(
    flights: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def states() -> dict[str, str]:
        assert run(["get", "segments", "flights"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
        return {row[0]: row[-1] for row in rows}

    monkeypatch.setattr(replacements, "wait_until_loaded", lambda *_: None)
    store, table = flights.metastore, TableName("flights_OFFLINE")
    add_segments(flights)
    replacement = Replacement(segments_from=("flights_1",), segments_to=("merged",), entry="e")
    replacements.start_replacement(store, table, replacement)
    replacements.put_outputs(
        store, table, "e", [SegmentRecord(name="merged", crc=1, size_bytes=1, url="u", total_docs=1)]
    )
    assert states() == {"flights_1": "Visible", "flights_2": "Visible", "merged": "Pending"}
    replacements.end_replacement(store, table, "e")
    assert states() == {"flights_1": "Replaced", "flights_2": "Visible", "merged": "Visible"}
    replacements.revert_replacement(store, table, "e")
    assert states() == {"flights_1": "Visible", "flights_2": "Visible", "merged": "Reverted"}


def test_instances_are_listed(node: Any, capsys: Captured) -> None:
    record = InstanceRecord(
        id=InstanceId("Server_h_8098"), role=Role.SERVER, host="h", http_port=8097, query_port=8098, started_ms=0
    )
    registration = liveness.register(node.metastore, record)
    assert run(["get", "instances"]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split() == ["Server_h_8098", "server", "h:8097", "1970-01-01", "00:00:00"]
    registration.close()


def test_segment_is_deleted_after_asking(flights: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    add_segments(flights)
    assert run(["delete", "segment", "flights", "flights_1"]) == 2
    assert "pass --yes" in capsys.readouterr().err
    assert run(["delete", "segment", "flights", "flights_1", "--yes"]) == 0
    assert capsys.readouterr().out == "segment/flights_1 deleted\n"
    assert run(["get", "segments", "flights", "-o", "name"]) == 0
    assert capsys.readouterr().out == "flights_2\n"


def test_table_is_deleted(flights: Any, capsys: Captured) -> None:
    assert run(["delete", "table", "flights", "-y"]) == 0
    assert capsys.readouterr().out == "table/flights deleted\n"
    assert run(["get", "tables", "flights"]) == 1
    assert capsys.readouterr().err.startswith("error: table does not exist")


def test_segments_that_are_not_partitioned_are_counted_and_shown(node: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "table.yaml"
    partitioning = "partitioning: {columns: {carrier: {functionName: Murmur, numPartitions: 8}}}"
    file.write_text(FLIGHTS.read_text().replace("  replication: 1", f"  replication: 1\n  {partitioning}"))
    assert run(["apply", "-f", str(file)]) == 0
    add_segments(node)
    info = PartitionRecord(function_name="Murmur", num_partitions=8, partitions=(3,))
    record = SegmentRecord(name="flights_3", crc=3, size_bytes=1, url="", total_docs=1, partitions={"carrier": info})
    publish(node.metastore, TableName("flights_OFFLINE"), [record])
    capsys.readouterr()
    assert run(["get", "tables", "-o", "wide"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()[:3]
    assert row[head.index("UNPARTITIONED") :].split()[0] == "2"
    assert run(["get", "segments", "flights", "-o", "wide"]) == 0
    shown = capsys.readouterr().out
    assert "3 of 8 by Murmur(carrier)" in shown
    assert shown.count("none by carrier") == 2

"""The command line against a node that it started itself: declare, load, look, ask, delete, stop."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from merlot.catalog.publish import upload
from merlot.cli.main import run
from merlot.ingest.batch import build_from_tables
from merlot.spec import manifest
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.cluster

MANIFEST = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: day, type: TIMESTAMP, role: dateTime}
      - {name: city, type: STRING}
      - {name: fare, type: LONG, role: metric}
  timeColumn: day
  indexing: {sortedColumns: [day], inverted: [city]}
"""
DAY_MS = 86_400_000
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a node that `merlot serve` runs; MERLOT_URL points to it."""
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "merlot.cli.main", "serve", "--port", "0", "--data", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+:\d+", process.stdout.readline())
        assert url is not None
        monkeypatch.setenv("MERLOT_URL", url[0])
        yield folder
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0


def publish_trips(folder: Path) -> None:
    [table] = manifest.load(MANIFEST)
    days = [number // 10 for number in range(30)]
    rows = pa.table(
        {
            "day": pa.array([day * DAY_MS for day in days], pa.timestamp("ms")),
            "city": ["Oslo" if number % 3 else "Rome" for number in range(30)],
            "fare": list(range(30)),
        }
    )
    built = folder / "built"
    built.mkdir()
    store = DeepStore(str(folder / "deepstore"))
    segments = build_from_tables(table, [rows], built).segments
    records = [upload(store, one, table.name).model_dump(mode="json", by_alias=True) for one in segments]
    body = json.dumps({"publishId": "test", "records": records}).encode()
    request = urllib.request.Request(f"{os.environ['MERLOT_URL']}/segments/trips/publish", body)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert len(json.load(answer)["published"]) == 3


def wait_until_loaded(capsys: Captured) -> None:
    """Ask until the server has all rows: that is when the count is whole."""

    def is_loaded() -> bool:
        code = run(["query", "SELECT count(*) FROM trips", "-o", "csv"])
        return (code, capsys.readouterr().out) == (0, "count(*)\n30\n")

    wait_until(is_loaded)


def test_a_table_from_declaration_to_deletion(node: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "trips.yaml"
    file.write_text(MANIFEST)
    assert run(["apply", "-f", str(file)]) == 0
    assert capsys.readouterr() == ("table/trips created\n", "")
    publish_trips(node)
    wait_until_loaded(capsys)

    sql = "SELECT city, sum(fare) AS total FROM trips WHERE fare >= 10 GROUP BY city ORDER BY city"
    assert run(["query", sql, "-o", "csv"]) == 0
    assert capsys.readouterr().out == "city,total\nOslo,273.0\nRome,117.0\n"
    assert run(["get", "tables"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == ["trips", "3", "30"]
    assert run(["get", "segments", "trips"]) == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[2:]] == [["1/1", "Visible"]] * 3
    assert run(["get", "instances", "-o", "name"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4

    assert run(["query", "SELECT nothing FROM trips"]) == 1
    first, *excerpt = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: .*nothing.* \(error 710\)", first)
    assert excerpt == ["SELECT nothing FROM trips", "       ^"]
    file.write_text(MANIFEST.replace("fare, type: LONG", "fare, type: INT"))
    assert run(["apply", "-f", str(file)]) == 1
    assert "spec.schema.fields[2].type: column 'fare' is LONG and cannot become INT" in capsys.readouterr().err
    assert run(["delete", "table", "trips", "--yes"]) == 0

    def refusal() -> str:
        assert run(["query", "SELECT count(*) FROM trips"]) == 1
        return capsys.readouterr().err

    # A server may know of the deletion before the broker, whose answer is then flagged as not whole.
    wait_until(lambda: "(error 190)" in refusal())


def test_segment_files_are_inspected_and_verified(tmp_path: Path, capsys: Captured) -> None:
    [table] = manifest.load(MANIFEST)
    rows = pa.table({"day": [0, 1], "city": ["Oslo", None], "fare": [1, 2]})
    [built] = build_from_tables(table, [rows], tmp_path).segments
    assert run(["segment", "inspect", str(built.path)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^time +day from 1970-01-01 00:00:00 to 1970-01-01 00:00:00 UTC$", text, re.MULTILINE)
    assert re.search(r"^city +STRING ", text, re.MULTILINE)
    assert run(["segment", "inspect", str(built.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_docs"] == 2
    assert run(["segment", "verify", str(built.path)]) == 0
    assert capsys.readouterr().out == f"{built.path}: ok\n"

    damaged = bytearray(built.path.read_bytes())
    damaged[70] ^= 1
    built.path.write_bytes(damaged)
    assert run(["segment", "verify", str(built.path), "--json"]) == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)[0]["problems"]) == 1
    assert captured.err == "error: 1 file damaged: delete and fetch again, or rebuild\n"

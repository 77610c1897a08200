"""`merlot advise` on a node with real flights: what it says is what helps, and where nothing helps it says that."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.faults.flights_table import flights_rows
from tests.node.nodes import StartNode, ask, call, until_answer

from merlot.advice.candidates import Candidate
from merlot.advice.choice import Tried
from merlot.advice.trial import Trial
from merlot.catalog.publish import upload
from merlot.cli.main import run
from merlot.cli.starting import INTERRUPTED
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.segments.publish import publish
from merlot.embedded.node import METASTORE_FILE, EmbeddedNode
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.builder import BuiltSegment, build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.metadata import CreationFacts
from merlot.spec.manifest import load_tables
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

PLAIN = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  schema:
    fields:
      - { name: time_hour, type: TIMESTAMP, role: dateTime }
      - { name: carrier, type: STRING }
      - { name: origin, type: STRING }
      - { name: dest, type: STRING }
      - { name: tailnum, type: STRING }
      - { name: dep_delay, type: INT, role: metric }
      - { name: distance, type: INT, role: metric }
  timeColumn: time_hour
  indexing:
    sortedColumns: [time_hour] # by time
"""
BY_CARRIER = "SELECT carrier, origin, SUM(dep_delay), MAX(distance), COUNT(*) FROM flights GROUP BY carrier, origin"
NUM_ROWS = 336_776
FARTHEST = "SELECT MAX(dep_delay) FROM flights WHERE distance > 0"
FIRST = "SELECT * FROM flights LIMIT 3"


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[BuiltSegment]:
    """Flights of a year in two segments."""
    folder = tmp_path_factory.mktemp("flights")
    (table,) = load_tables(PLAIN)
    spec = table.spec
    rows = flights_rows().select([field.name for field in spec.table_schema.fields])
    half = rows.num_rows // 2
    built = []
    for number, part in enumerate([rows.slice(0, half), rows.slice(half)]):
        request = BuildRequest(
            name=f"flights_{number}",
            table="flights",
            schema=spec.table_schema,
            indexing=spec.indexing,
            time_column=spec.time_column,
            partitioning=None,
            creation=CreationFacts(),
        )
        built.append(build_segment(request, part, folder))
    return built


@pytest.fixture
async def node(start_node: StartNode, segments: list[BuiltSegment], tmp_path: Path) -> EmbeddedNode:
    """With the flights of a year."""

    def fill() -> None:
        folder = tmp_path / "node"
        folder.mkdir()
        (table,) = load_tables(PLAIN)
        store = DeepStore(str(folder / "deepstore"))
        metastore = SqliteMetastore(folder / METASTORE_FILE)
        put_table(metastore, table)
        publish(metastore, table.name, [upload(store, one, table.name) for one in segments])
        metastore.close()

    await asyncio.to_thread(fill)
    started: EmbeddedNode = await start_node()

    await until_answer(started, FIRST, "totalDocs", NUM_ROWS)
    return started


async def advised(node: EmbeddedNode, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What the command says, as JSON."""
    arguments = ["advise", "flights", "--url", node.url, "-o", "json", *options]
    assert await asyncio.to_thread(run, arguments) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


async def test_a_tree_is_advised_where_it_helps_and_the_written_manifest_gives_it_to_the_table(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "flights.yaml"
    manifest.write_text(PLAIN)
    for _ in range(3):
        before = await ask(node, BY_CARRIER)
    said = await advised(node, capsys, "--manifest", str(manifest), "--apply")
    (tree,) = said["indexing"]["starTreeIndexConfigs"]
    assert tree["dimensionsSplitOrder"] == ["carrier", "origin"]
    assert set(tree["functionColumnPairs"]) == {"COUNT__*", "SUM__dep_delay", "MAX__distance"}
    (query,) = [one for one in said["queries"] if one["sql"] == BY_CARRIER]
    assert (query["count"], said["changes"][0]["queries"]) == (3, [1 + said["queries"].index(query)])
    assert query["thenMs"] < query["nowMs"]
    assert said["sample"] == {"segments": 2, "of": 2, "rows": NUM_ROWS}
    assert "sortedColumns: [time_hour] # by time" in manifest.read_text()
    await call(node, "POST", "/apply", data=manifest.read_text(), headers={"Content-Type": "application/yaml"})

    async def is_used() -> bool:
        answer = await ask(node, f"EXPLAIN PLAN FOR {BY_CARRIER}")
        return "STARTREE" in json.dumps(answer["resultTable"]["rows"])

    await until(is_used)
    assert (await ask(node, BY_CARRIER))["resultTable"] == before["resultTable"]


async def test_where_nothing_helps_it_says_so(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = tmp_path / "queries.sql"
    queries.write_text(f"{FIRST};\n{FARTHEST}")
    said = await advised(node, capsys, "--queries", str(queries), "--segments", "1")
    assert [one["sql"] for one in said["queries"]] == [FIRST, FARTHEST]
    assert said["sample"]["segments"] == 1
    arguments = ["advise", "flights", "--url", node.url, "--queries", str(queries)]
    queries.write_text(FIRST)
    assert await asyncio.to_thread(run, arguments) == 0
    assert "no change pays" in capsys.readouterr().out


async def test_interrupted_it_shows_what_it_knows(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(node, BY_CARRIER)
    run_trial, tried = Trial.run, []

    def run_once(trial: Trial, candidate: Candidate) -> Tried:
        if tried:
            raise KeyboardInterrupt
        tried.append(candidate)
        return run_trial(trial, candidate)

    monkeypatch.setattr(Trial, "run", run_once)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    queries = tmp_path / "queries.sql"
    queries.write_text(f"{BY_CARRIER};SELECT dest, SUM(distance) FROM flights GROUP BY dest")
    arguments = ["advise", "flights", "--url", node.url, "--queries", str(queries), "-o", "json"]
    assert await asyncio.to_thread(run, arguments) == INTERRUPTED
    out, err = capsys.readouterr()
    assert [one["change"] for one in json.loads(out)["changes"]] == [tried[0].label]
    assert err.startswith("stopped: 1 change of ")
    assert not list(tmp_path.glob("merlot-advise-*"))

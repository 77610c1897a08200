"""Segments of a served table are replaced by others and back while queries run: none is wrong, none fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.budget import count
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses
from tests.support.sample import ORDERS, order_rows, orders_manifest, segment_name

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.metadata import CreationFacts
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, until
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_ROUNDS = count("MERLOT_REPLACEMENTS", quick=4, every=20)
DAYS = range(8)
NUM_DOCS = 100 * len(DAYS)


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as it is in the table, and the days that it holds."""

    name: str
    days: tuple[int, ...]


def build(store: DeepStore, part: Part) -> SegmentRecord:
    """A segment of some days' rows, uploaded."""
    spec = orders_manifest().spec
    request = BuildRequest(
        name=part.name,
        table="orders",
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=None,
        creation=CreationFacts(),
    )
    rows = pa.concat_tables([order_rows(day) for day in part.days])
    with tempfile.TemporaryDirectory() as folder:
        return upload(store, build_segment(request, rows, Path(folder)), ORDERS)


def call(cluster: ClusterProcesses, path: str, body: object = None, **query: str) -> Any:
    """A POST to the controller."""
    url = f"{cluster.controller.url}/segments/orders/{path}?{urllib.parse.urlencode(query)}"
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=2 * PATIENCE_S) as answer:
        return json.load(answer)


def replace(cluster: ClusterProcesses, old: Sequence[Part], new: Sequence[Part]) -> str:
    """Start, publish, end; returns the entry."""
    records = [build(cluster.deep_store, part).model_dump(mode="json", by_alias=True) for part in new]
    lists = {"segmentsFrom": [part.name for part in old], "segmentsTo": [part.name for part in new]}
    entry: str = call(cluster, "startReplaceSegments", lists)["segmentLineageEntryId"]
    call(cluster, "publish", {"records": records})
    call(cluster, "endReplaceSegments", segmentLineageEntryId=entry)
    return entry


def next_parts(parts: Sequence[Part], number: int) -> tuple[list[Part], list[Part]]:
    """What a round replaces by what: two neighbours become one segment, or one of several days is split again."""
    large = [part for part in parts if len(part.days) > 1]
    if number % 3 == 2 and large:
        return [large[0]], [Part(f"split_{number}_{day}", (day,)) for day in large[0].days]
    at = number % (len(parts) - 1)
    old = list(parts[at : at + 2])
    return old, [Part(f"joined_{number}", old[0].days + old[1].days)]


@pytest.fixture
def own_cluster(tmp_path: Path, own_zookeeper: ZooKeeper) -> Iterator[tuple[ClusterProcesses, ZooKeeper]]:
    """Two replicas of everything, and a ZooKeeper that may be hurt."""
    with ClusterProcesses(tmp_path / "cluster", f"{own_zookeeper.hosts}/replacing") as cluster:
        records = [build(cluster.deep_store, Part(segment_name(day), (day,))) for day in DAYS]
        cluster.add_table(orders_manifest(replication=2), records)
        cluster.wait_served(ORDERS, NUM_DOCS, num_replicas=2)
        yield cluster, own_zookeeper


async def test_replacements_and_some_reversals_are_unseen_by_queries(
    own_cluster: tuple[ClusterProcesses, ZooKeeper], cases: Mapping[str, list[list[Any]]]
) -> None:
    cluster, _ = own_cluster
    parts = [Part(segment_name(day), (day,)) for day in DAYS]
    num_reverted = 0
    async with QueryLoad(cluster.broker.url, cases) as load:
        for number in range(NUM_ROUNDS):
            old, new = next_parts(parts, number)
            entry = await asyncio.to_thread(replace, cluster, old, new)
            await load.answered(40)
            if number % 4 == 3:
                num_reverted += 1
                await asyncio.to_thread(call, cluster, "revertReplaceSegments", segmentLineageEntryId=entry)
                await load.answered(40)
                continue
            at = parts.index(old[0])
            parts = [*parts[:at], *new, *parts[at + len(old) :]]
        await load.answered(40)
    print(f"{NUM_ROUNDS} replacements, {num_reverted} reverted: {load.tally}")
    assert load.tally.wrong == []
    assert load.tally.num_flagged == 0
    await _comes_to(cluster, parts)


@pytest.mark.slow("test_lineage breaks replacements off at each write; test_zookeeper_silent hurts ZooKeeper")
async def test_a_replacement_goes_on_through_a_restart_of_zookeeper_and_of_the_controller(
    own_cluster: tuple[ClusterProcesses, ZooKeeper], cases: Mapping[str, list[list[Any]]]
) -> None:
    cluster, zookeeper = own_cluster
    old = [Part(segment_name(0), (0,)), Part(segment_name(1), (1,))]
    new = Part("joined", (0, 1))
    record = build(cluster.deep_store, new).model_dump(mode="json", by_alias=True)
    lists = {"segmentsFrom": [part.name for part in old], "segmentsTo": [new.name], "segmentLineageEntryId": "e"}
    async with QueryLoad(cluster.broker.url, cases) as load:
        call(cluster, "startReplaceSegments", lists)
        zookeeper.kill()
        await load.answered(40)
        zookeeper.start()
        await _repeatedly(lambda: call(cluster, "startReplaceSegments", lists))
        cluster.controller.kill()
        await load.answered(40)
        cluster.controller.start()
        cluster.controller.wait_ready()
        await _repeatedly(lambda: call(cluster, "publish", {"records": [record]}))
        zookeeper.kill()
        await load.answered(40)
        zookeeper.start()
        await _repeatedly(lambda: call(cluster, "endReplaceSegments", segmentLineageEntryId="e"))
        await load.answered(100)
    print(f"ZooKeeper twice and the controller once: {load.tally}")
    assert load.tally.wrong == []
    assert load.tally.num_flagged == 0
    await _comes_to(cluster, [new, *(Part(segment_name(day), (day,)) for day in DAYS[2:])])


async def _repeatedly(act: Any) -> None:
    """What a caller does whose request was not answered: ask again."""

    def is_answered() -> bool:
        with contextlib.suppress(OSError):
            act()
            return True
        return False

    await until(is_answered)


async def _comes_to(cluster: ClusterProcesses, parts: Sequence[Part]) -> None:
    """The table is exactly these segments, and the broker asks for them once it has heard of them. It may lag, above
    all behind a ZooKeeper that has just come back; what it answers meanwhile is right, as `load.tally` says."""
    listed = cluster.controller.get("/segments/orders?excludeReplacedSegments=true")[0]["OFFLINE"]
    assert listed == sorted(part.name for part in parts)
    await until(lambda: _is_asked_whole(cluster.query("SELECT count(*) FROM orders"), len(parts)))


def _is_asked_whole(answer: Mapping[str, Any], num_segments: int) -> bool:
    assert answer["resultTable"]["rows"] == [[NUM_DOCS]]
    return bool(answer["numSegmentsQueried"] == num_segments)

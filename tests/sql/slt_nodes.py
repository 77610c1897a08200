"""Layouts that are reached over HTTP: an embedded node, and a cluster of processes over ZooKeeper with two servers."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.demos.local_node import LocalNode
from tests.sql.slt_answers import Answer
from tests.sql.slt_data import Dataset
from tests.sql.slt_segments import uneven_segments
from tests.support.processes import ClusterProcesses

from merlot.catalog.publish import record_of
from merlot.cluster.records import SegmentRecord
from merlot.ids import offline
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.manifest import load_document
from merlot.spec.pruners import SEGMENT_PRUNERS
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot_spark.zookeeper import ZooKeeper


class QueryRefused(Exception):
    """The first exception of an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Remote:
    """A broker's `/query/sql`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, sql: str) -> Answer:
        """The answer as Pinot's JSON has it."""
        answer = self.post("/query/sql", {"sql": sql})
        if answer["exceptions"]:
            raise QueryRefused(answer["exceptions"][0]["errorCode"], answer["exceptions"][0]["message"])
        if answer["numServersResponded"] != answer["numServersQueried"]:
            raise AssertionError(f"a server is missing without a word: {answer}")
        table = answer["resultTable"]
        return Answer(table["dataSchema"]["columnNames"], table["dataSchema"]["columnDataTypes"], table["rows"])

    def post(self, path: str, body: Any) -> Any:
        """A JSON answer to a JSON body; an HTTP error is raised with what it says."""
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error

    def wait_for_rows(self, dataset: Dataset) -> None:
        """Until every row of a table can be queried."""

        def are_served() -> bool:
            with contextlib.suppress(QueryRefused):
                return self.query(f"SELECT COUNT(*) FROM {dataset.name}").rows == [[dataset.rows.num_rows]]
            return False

        wait_until(are_served)


def manifest(dataset: Dataset) -> dict[str, Any]:
    """The table as a user declares it."""
    schema = dataset.schema.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    needing = ("partition",) if dataset.time_column else ("partition", "time")
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": dataset.name},
        "spec": {
            "timeColumn": dataset.time_column,
            "schema": schema,
            "routing": {"segmentPruners": [name for name in SEGMENT_PRUNERS if name not in needing]},
        },
    }


def upload_segments(dataset: Dataset, folder: Path, store: DeepStore) -> list[SegmentRecord]:
    """Twelve uneven segments in the deep store."""
    records = []
    folder.mkdir(exist_ok=True)
    for path in uneven_segments(dataset, folder):
        with ImmutableSegment.open(path) as segment:
            url = store.url_of(offline(dataset.name), segment.metadata.key)
            store.put(path, url)
            records.append(record_of(segment.metadata, url, path.stat().st_size))
    return records


@contextmanager
def embedded_node(datasets: Sequence[Dataset], folder: Path) -> Iterator[Remote]:
    """Every role in one process, applied to and published to over HTTP."""
    store = DeepStore(str(folder / "data" / "deepstore"))
    node = LocalNode(folder / "data", 0)
    try:
        node.start()
        remote = Remote(node.url)
        for dataset in datasets:
            records = upload_segments(dataset, folder / "built", store)
            remote.post("/apply", manifest(dataset))
            listed = [record.model_dump(mode="json", by_alias=True) for record in records]
            remote.post(f"/segments/{dataset.name}/publish", {"publishId": "first", "records": listed})
            remote.wait_for_rows(dataset)
        yield remote
    finally:
        node.stop()


@contextmanager
def zookeeper_with_two_servers(datasets: Sequence[Dataset], folder: Path) -> Iterator[Remote]:
    """Processes; each segment is on one of the two servers."""
    with (
        ZooKeeper(folder / "zookeeper") as zookeeper,
        ClusterProcesses(folder / "cluster", f"{zookeeper.hosts}/slt", num_servers=2) as cluster,
    ):
        for dataset in datasets:
            records = upload_segments(dataset, folder / "built", cluster.deep_store)
            cluster.add_table(load_document(manifest(dataset)), records)
        yield Remote(cluster.broker.url)

"""Copies of manifests beside the files: what is copied, and that only a deletion deletes a copy."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from merlot.cluster.instances.leases import Lease
from merlot.cluster.manifests import rollups, tables, upserts
from merlot.cluster.manifests.tables import Files, readable_tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.controller.cleaning.manifest_copies import ManifestCopies, read_copies
from merlot.controller.service import ControllerService
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock

TABLE = TableName("t_OFFLINE")
OTHER = TableName("other_OFFLINE")
DOCUMENTS = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: NAME}
spec:
  schema: {fields: [{name: day, type: TIMESTAMP, role: dateTime}, {name: amount, type: LONG, role: metric}]}
  timeColumn: day
---
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: NAME-by-day}
spec:
  table: NAME
  levels: [{name: daily, mergeType: concat, bucketTimePeriod: 1d, bufferTimePeriod: 1d}]
"""
UPSERTS = """
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {name: latest}
spec: {mode: FULL, comparisonColumns: [at]}
---
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: NAME}
spec:
  schema: {primaryKey: [id], fields: [{name: id, type: LONG}, {name: at, type: TIMESTAMP, role: dateTime}]}
  timeColumn: at
  ingestion: {stream: {type: files, topic: /topic}}
  partitioning: {columns: {id: {functionName: Murmur, numPartitions: 1}}}
  upsert: {configRef: latest}
"""


PUT: dict[str, Any] = {
    "Table": tables.put_table,
    "MergeRollupTask": rollups.put_rollup,
    "UpsertConfig": upserts.put_upsert,
}


SEGMENT = SegmentRecord(name="s", crc=1, size_bytes=1, url="file:///d/t_OFFLINE/s@1.mseg", total_docs=1)


class CountingStore(DeepStore):
    """A deep store that counts writes, and does not answer for one table."""

    num_puts = 0
    silent: TableName | None = None

    def put(self, source: Path, url: str) -> None:
        if self.silent is not None and f"/{self.silent}." in url:
            raise UnavailableError("deep store does not answer")
        self.num_puts += 1
        super().put(source, url)


class Leader:
    """A controller that leads, as far as copies are concerned."""

    def __init__(self, metastore: SqliteMetastore, store: CountingStore) -> None:
        self.metastore, self.store, self.clock = metastore, store, FakeClock()
        self.copies = ManifestCopies(metastore, lambda _: store, self.clock)
        lease = Lease.acquire(metastore, "controller", "c1", self.clock)
        assert lease is not None
        self.copies.lead(lease)

    def apply(self, name: str, text: str = DOCUMENTS) -> None:
        for document in manifest.load(text.replace("NAME", name)):
            PUT[document.kind](self.metastore, document)
        tables.confirm_table(self.metastore, tables.get_table(self.metastore, name).name)

    def keep(self) -> None:
        self.copies.keep(readable_tables(self.metastore)[0])

    def kinds(self, table: TableName) -> list[tuple[str, str]]:
        copy = read_copies(self.store).get(table)
        return [] if copy is None else [(one["kind"], one["metadata"]["name"]) for one in copy.manifests]


@pytest.fixture
def leader(store: SqliteMetastore, tmp_path: Path) -> Leader:
    return Leader(store, CountingStore(str(tmp_path / "deep")))


def test_what_a_table_needs_is_copied_in_the_order_in_which_it_can_be_applied(leader: Leader) -> None:
    leader.apply("t")
    leader.apply("u", UPSERTS)
    leader.keep()
    assert leader.kinds(TABLE) == [("Table", "t"), ("MergeRollupTask", "t-by-day")]
    assert leader.kinds(TableName("u_OFFLINE")) == [("UpsertConfig", "latest"), ("Table", "u")]
    copy = read_copies(leader.store).get(TABLE)
    assert copy is not None
    assert copy.manifests[0] == tables.get_table(leader.metastore, "t").manifest


def test_only_changes_are_written(leader: Leader) -> None:
    leader.apply("t")
    leader.apply("other")
    leader.keep()
    leader.keep()
    assert leader.store.num_puts == 2
    leader.apply("t", DOCUMENTS.replace("role: metric}", "role: metric}, {name: more, type: INT}"))
    leader.keep()
    assert leader.store.num_puts == 3
    copy = read_copies(leader.store).get(TABLE)
    assert copy is not None
    assert len(copy.manifests[0]["spec"]["schema"]["fields"]) == 3
    rollups.delete_rollup(leader.metastore, "t-by-day")
    leader.keep()
    assert leader.kinds(TABLE) == [("Table", "t")]


@pytest.mark.parametrize("files", Files)
def test_the_copy_of_a_deleted_table_is_deleted(leader: Leader, files: Files) -> None:
    leader.apply("t")
    publish(leader.metastore, TABLE, [SEGMENT])
    leader.keep()
    assert leader.kinds(TABLE)
    tables.delete_table(leader.metastore, "t", files=files, clock=leader.clock)
    leader.keep()
    assert not leader.kinds(TABLE)
    leader.apply("t")
    leader.keep()
    assert leader.kinds(TABLE), "a table that is created again has a copy again"


def test_the_copy_of_a_table_that_is_merely_absent_stays(
    leader: Leader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leader.apply("t")
    publish(leader.metastore, TABLE, [SEGMENT])
    leader.keep()
    empty = SqliteMetastore(tmp_path / "empty.sqlite")
    after = Leader(empty, leader.store)
    after.apply("other")
    after.keep()
    assert leader.kinds(TABLE) == [("Table", "t"), ("MergeRollupTask", "t-by-day")]
    recovery = ControllerService(empty, after.clock).recovery
    recovery.open_files = lambda _: leader.store
    assert [(one["table"], len(one["manifests"])) for one in recovery.undeclared()] == [("t", 2)]
    with caplog.at_level(logging.ERROR):
        Leader(SqliteMetastore(tmp_path / "new.sqlite"), leader.store).keep()
    assert "run merlot recover --all tables=other_OFFLINE,t_OFFLINE" in caplog.text
    empty.close()


def test_damage_hides_only_what_is_damaged(leader: Leader, tmp_path: Path) -> None:
    for name in ("t", "other", "third"):
        leader.apply(name)
    leader.keep()
    folder = tmp_path / "deep"
    (folder / "_manifests" / "tables" / f"{OTHER}.json.z").write_bytes(b"torn")
    (folder / TABLE / "_catalog").mkdir(parents=True)
    (folder / TABLE / "_catalog" / "segments.json.z").write_bytes(b"torn")
    empty = SqliteMetastore(tmp_path / "empty.sqlite")
    recovery = ControllerService(empty, leader.clock).recovery
    recovery.open_files = lambda _: leader.store
    assert {one["table"]: bool(one["problem"]) for one in recovery.undeclared()} == {"t": True, "third": False}
    empty.close()


def test_a_table_whose_deep_store_does_not_answer_delays_no_other_and_is_copied_later(leader: Leader) -> None:
    leader.apply("t")
    leader.apply("other")
    leader.store.silent = TABLE
    leader.keep()
    assert (leader.kinds(TABLE), bool(leader.kinds(OTHER))) == ([], True)
    leader.store.silent = None
    leader.keep()
    assert leader.kinds(TABLE)

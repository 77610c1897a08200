"""Applying, changing and deleting tables."""

import pytest

from merlot.cluster import paths
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord, TrashRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.view import load
from merlot.errors import NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load as load_manifest
from merlot.spec.table import Table

FLIGHTS = TableName("flights_OFFLINE")


def manifest(*columns: str, replication: int = 1) -> Table:
    fields = "\n".join(f"      - {{name: {column.split(':')[0]}, type: {column.split(':')[1]}}}" for column in columns)
    text = f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: flights}}
spec:
  replication: {replication}
  schema:
    fields:
{fields}
"""
    return load_manifest(text)[0]


def segment(name: str, crc: int = 1) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///deep/{name}@{crc}.mseg", total_docs=3)


def test_a_manifest_creates_then_configures_then_changes_nothing(store: SqliteMetastore) -> None:
    outcomes = [
        tables.apply_table(store, one)
        for one in (manifest("a:INT"), manifest("a:INT", "b:STRING"), manifest("a:INT", "b:STRING"))
    ]
    assert [str(one.outcome) for one in outcomes] == ["created", "configured", "unchanged"]
    assert [one.record.revision for one in outcomes] == [1, 2, 2]
    assert tables.spec_of(tables.get_table(store, "flights")) == manifest("a:INT", "b:STRING")
    assert list(tables.list_tables(store)) == [FLIGHTS]


def test_a_change_that_would_reinterpret_segments_is_refused_with_reasons(store: SqliteMetastore) -> None:
    tables.put_table(store, manifest("a:INT", "b:STRING"))
    with pytest.raises(tables.EvolutionError) as refused:
        tables.put_table(store, manifest("a:STRING"))
    assert [problem.path for problem in refused.value.problems] == ["spec.schema.fields", "spec.schema.fields[0].type"]
    assert tables.get_table(store, "flights").revision == 1


def test_a_table_has_an_empty_view_from_its_first_moment(store: SqliteMetastore) -> None:
    tables.put_table(store, manifest("a:INT"))
    assert dict(load(store, FLIGHTS).segments) == {}
    with pytest.raises(NotFoundError):
        load(store, TableName("other_OFFLINE"))


def test_deleting_takes_everything_but_keeps_the_files_in_the_trash(store: SqliteMetastore) -> None:
    tables.put_table(store, manifest("a:INT"))
    publish(store, FLIGHTS, [segment("s1"), segment("s2")])
    write_report(store, FLIGHTS, InstanceId("Server_a_1"), ["s1@1"], {})
    tables.delete_table(store, "flights")
    assert tables.list_tables(store) == {}
    assert store.children(paths.SEGMENTS) == []
    assert store.children(paths.REPORTS) == []
    entries = [paths.child(paths.trash(FLIGHTS), name) for name in store.children(paths.trash(FLIGHTS))]
    nodes = [(path, store.get(path)) for path in entries]
    urls = [url for path, node in nodes if node for url in TrashRecord.from_bytes(node.data, path).urls]
    assert sorted(urls) == ["file:///deep/s1@1.mseg", "file:///deep/s2@1.mseg"]
    with pytest.raises(NotFoundError):
        tables.delete_table(store, "flights")


def test_a_table_created_again_starts_empty(store: SqliteMetastore) -> None:
    tables.put_table(store, manifest("a:INT"))
    publish(store, FLIGHTS, [segment("s1")])
    tables.delete_table(store, "flights")
    assert tables.apply_table(store, manifest("a:STRING")).outcome is tables.ApplyOutcome.CREATED
    assert dict(load(store, FLIGHTS).segments) == {}

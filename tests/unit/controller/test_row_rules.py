"""Whatever document says it, what decides which rows of a table count stays as it was when they came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from merlot.clock import SystemClock
from merlot.cluster.consuming.pinned import pin
from merlot.cluster.consuming.transactions import Begin, begin
from merlot.cluster.manifests import tables, upserts
from merlot.cluster.manifests.upserts import upserting_of
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.transaction import PutSegments, mutate
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.apply import ApplyError, apply_manifests
from merlot.ids import SegmentName, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.evolution import DECIDES_ROWS
from merlot.spec.upsert import UpsertConfig
from merlot.store.allowed import AllowedStores
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER

TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: board}}
spec:
  schema:
    fields:
      - {{name: id, type: INT}}
      - {{name: version, type: INT}}
      - {{name: other, type: INT}}
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: amount, type: INT, role: metric}}
      - {{name: gone, type: BOOLEAN}}
    primaryKey: [id]
  timeColumn: at
  partitioning: {{columns: {{id: {{functionName: Modulo, numPartitions: 2}}}}}}
  ingestion: {{stream: {{type: files, topic: /topic, flush: {{rows: 100}}}}}}
  upsert: {upsert}
"""
CONFIG = """
---
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {{name: {name}}}
spec: {{{spec}}}
"""
BOARD = TableName("board_OFFLINE")
FULL = "mode: FULL, comparisonColumns: [version]"
PARTIAL = "mode: PARTIAL, comparisonColumns: [version], partialUpsertStrategies: {amount: INCREMENT}"
FORBIDDEN = {
    "mode": (FULL, PARTIAL),
    "comparison_columns": (FULL, "mode: FULL, comparisonColumns: [other]"),
    "delete_record_column": (FULL, f"{FULL}, deleteRecordColumn: gone"),
    "partial_upsert_strategies": (PARTIAL, PARTIAL.replace("INCREMENT", "MAX")),
    "default_partial_upsert_strategy": (PARTIAL, f"{PARTIAL}, defaultPartialUpsertStrategy: IGNORE"),
}
PLACES = AllowedPlaces(AllowedStores(own=None), AllowedStreams(folders=EVERY_FOLDER))
ALLOWED = (f"{FULL}, primaryKeyTtl: '2'", f"{FULL}, compaction: {{bufferTimePeriod: 2d}}", f"{FULL}, snapshot: ENABLE")


def table(upsert: str) -> str:
    return TABLE.format(upsert=upsert)


def inline(spec: str) -> str:
    return table(f"{{config: {{{spec}}}}}")


def config(spec: str, name: str = "a") -> str:
    return CONFIG.format(spec=spec, name=name)


def named(name: str = "a") -> str:
    return table(f"{{configRef: {name}}}")


def apply(store: SqliteMetastore, text: str, *, dry_run: bool = False) -> list[str]:
    found = apply_manifests(store, text, SystemClock(), PLACES, dry_run=dry_run)
    return [one.result for one in found]


Change = tuple[Callable[[str], str], Callable[[str], str]]
WAYS: dict[str, Change] = {
    "in the table": (inline, inline),
    "from the table to a config": (inline, lambda spec: named() + config(spec)),
    "from a config to the table": (lambda spec: named() + config(spec), inline),
    "of a config alone": (lambda spec: named() + config(spec), config),
    "of a config beside its table": (lambda spec: named() + config(spec), lambda spec: named() + config(spec)),
    "of a config before its table": (lambda spec: named() + config(spec), lambda spec: config(spec) + "---" + named()),
    "to another config": (lambda spec: named() + config(spec), lambda spec: named("b") + config(spec, "b")),
}


def test_each_setting_that_decides_rows_has_a_case() -> None:
    assert FORBIDDEN.keys() == set(DECIDES_ROWS)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("setting", DECIDES_ROWS)
def test_what_decides_rows_cannot_change_in_any_way(
    store: SqliteMetastore, setting: str, way: str, *, dry_run: bool
) -> None:
    before, after = FORBIDDEN[setting]
    create, change = WAYS[way]
    apply(store, create(before))
    with pytest.raises(ApplyError, match="cannot change on tables that have rows"):
        apply(store, change(after), dry_run=dry_run)
    assert set(apply(store, create(before))) == {"unchanged"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", ALLOWED)
def test_what_decides_no_row_that_is_there_changes_in_every_way(store: SqliteMetastore, way: str, after: str) -> None:
    create, change = WAYS[way]
    apply(store, create(FULL))
    apply(store, change(FULL))
    assert "configured" in apply(store, change(after))


@pytest.mark.parametrize("declare", [inline, lambda spec: named() + config(spec)])
@pytest.mark.parametrize("column", ["id", "version"])
def test_keys_and_what_compares_them_keep_their_type(
    store: SqliteMetastore, declare: Callable[[str], str], column: str
) -> None:
    text = declare(FULL)
    apply(store, text)
    wider = text.replace(f"{{name: {column}, type: INT}}", f"{{name: {column}, type: LONG}}")
    with pytest.raises(ApplyError, match=f"column '{column}' decides which row of a key is the newest one: keep INT"):
        apply(store, wider)
    assert "configured" in apply(store, text.replace("{name: amount, type: INT,", "{name: amount, type: LONG,"))


def test_a_config_that_was_deleted_comes_back_as_the_rows_were_decided(store: SqliteMetastore) -> None:
    apply(store, named() + config(FULL))
    spec = tables.spec_of(tables.get_table(store, "board")).spec
    pinned = pin(spec, upserting_of(store, spec).spec)
    mutate(store, BOARD, lambda view: begin(view, [Begin(partition=0, offset=0, servers=())], pinned, 1))
    upserts.delete_upsert(store, "a")
    with pytest.raises(ApplyError, match="cannot change on tables that have rows"):
        apply(store, config("mode: FULL, comparisonColumns: [other]"))
    assert apply(store, config(f"{FULL}, primaryKeyTtl: '2'")) == ["created"]


def batch_named(name: str = "a") -> str:
    return named(name).replace("{stream: {type: files, topic: /topic, flush: {rows: 100}}}", "{}")


def add_rows(store: SqliteMetastore, *, to_stream: bool) -> None:
    """Add a segment, as the settings in force decide its rows."""
    spec = tables.spec_of(tables.get_table(store, "board")).spec
    if to_stream:
        pinned = pin(spec, upserting_of(store, spec).spec)
        mutate(store, BOARD, lambda view: begin(view, [Begin(partition=0, offset=0, servers=())], pinned, 1))
        return
    record = SegmentRecord(
        name=SegmentName("batch"), crc=1, size_bytes=1, url="file:///x", total_docs=5, creation_time_ms=0
    )
    mutate(store, BOARD, lambda _: [PutSegments((record,))])


OTHER = "mode: FULL, comparisonColumns: [other]"
Gone = Callable[[SqliteMetastore, str], None]


def delete_config(store: SqliteMetastore, _: str) -> None:
    upserts.delete_upsert(store, "a")


def name_another(store: SqliteMetastore, table: str) -> None:
    apply(store, table.replace("configRef: a", "configRef: b"))


def leave_files(store: SqliteMetastore, _: str) -> None:
    """Delete the table but for its files; nothing keeps its config from changing then."""
    tables.delete_table(store, "board", files=tables.Files.KEEP)


def outgrow(store: SqliteMetastore, _: str) -> None:
    """Write a config that does not fit the table any more, as the operator may."""
    (document,) = manifest.load(config(f"{FULL}, outOfOrderRecordColumn: amount").removeprefix("\n---"))
    assert isinstance(document, UpsertConfig)
    upserts.put_upsert(store, document)
    assert upserting_of(store, tables.spec_of(tables.get_table(store, "board")).spec).waits_for


BACK: dict[str, tuple[Gone, Callable[[str, str], str]]] = {
    "the config was deleted": (delete_config, lambda _, spec: config(spec)),
    "the table named one that was not there yet": (name_another, lambda _, spec: config(spec, "b")),
    "the table was deleted but for its files": (leave_files, lambda table, spec: table + config(spec)),
    "the config did not fit for a while": (outgrow, lambda _, spec: config(spec)),
}


@pytest.mark.parametrize("to_stream", [False, True])
@pytest.mark.parametrize("way", BACK)
def test_settings_that_come_back_decide_rows_as_they_were_decided(
    store: SqliteMetastore, way: str, *, to_stream: bool
) -> None:
    table, (take_away, bring_back) = named() if to_stream else batch_named(), BACK[way]
    apply(store, table + config(FULL))
    add_rows(store, to_stream=to_stream)
    take_away(store, table)
    with pytest.raises(ApplyError, match=r"cannot change on tables that have rows: keep it \(version\)"):
        apply(store, bring_back(table, OTHER))
    apply(store, bring_back(table, FULL))


@pytest.mark.parametrize("to_stream", [False, True])
@pytest.mark.parametrize("way", BACK)
def test_settings_of_a_table_without_rows_may_come_back_as_others(
    store: SqliteMetastore, way: str, *, to_stream: bool
) -> None:
    table, (take_away, bring_back) = named() if to_stream else batch_named(), BACK[way]
    apply(store, table + config(FULL))
    take_away(store, table)
    apply(store, bring_back(table, OTHER))


def test_a_config_that_changes_while_a_deleted_table_has_left_its_files_is_judged_with_the_next_table(
    store: SqliteMetastore,
) -> None:
    apply(store, batch_named() + config(FULL))
    add_rows(store, to_stream=False)
    leave_files(store, "")
    apply(store, config(OTHER))
    with pytest.raises(ApplyError, match="cannot change on tables that have rows"):
        apply(store, batch_named())

"""UpsertConfigs: every problem at once, and what a table says against them."""

from pathlib import Path

import pytest
import yaml

from merlot.cluster.consuming.pinned import decides_by_age, pin, pinned_upsert, unpin_upsert
from merlot.spec import manifest
from merlot.spec.evolution import compare
from merlot.spec.manifest import ManifestError
from merlot.spec.manifest.upsert_checks import against_table
from merlot.spec.upsert import UpsertConfig
from merlot.spec.upserting import UpsertMode, UpsertSpec

ROOT = Path(__file__).resolve().parents[3]
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  timeColumn: at
  partitioning: {columns: {id: {functionName: Murmur, numPartitions: 4}}}
  ingestion: {stream: {type: files, topic: trips, flush: {age: 1h}}}
  schema:
    primaryKey: [id]
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: id, type: LONG}
      - {name: version, type: LONG}
      - {name: city, type: STRING}
      - {name: gone, type: BOOLEAN}
      - {name: sent, type: TIMESTAMP}
      - {name: price, type: DOUBLE}
      - {name: tags, type: STRING, multiValue: true}
"""


TREE = "{dimensionsSplitOrder: [city], functionColumnPairs: [COUNT__*]}"
STREAM = "  ingestion: {stream: {type: files, topic: trips, flush: {age: 1h}}}\n"


def config(spec: str) -> UpsertConfig:
    text = f"apiVersion: merlot.dev/v1alpha1\nkind: UpsertConfig\nmetadata: {{name: latest}}\nspec: {{{spec}}}\n"
    [found] = manifest.load(text)
    assert isinstance(found, UpsertConfig)
    return found


def problems(spec: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        config(spec)
    return [str(problem) for problem in caught.value.problems]


def against(spec: str, table_text: str = TABLE) -> list[str]:
    [table] = manifest.load_tables(table_text)
    return [str(problem) for problem in against_table(config(spec).spec, table.spec)]


@pytest.mark.parametrize("name", ["flightboard", "carts"])
def test_the_example_fits_its_table(name: str) -> None:
    folder = ROOT / "examples" / name
    [found] = manifest.load((folder / "upsert.yaml").read_text())
    [table] = manifest.load_tables((folder / "table.yaml").read_text())
    assert isinstance(found, UpsertConfig)
    assert table.spec.upsert is not None
    assert table.spec.upsert.config_ref == found.metadata.name
    assert against_table(found.spec, table.spec) == []


def test_the_example_that_says_itself_what_it_wants_fits() -> None:
    [table] = manifest.load_tables((ROOT / "examples" / "clicks" / "table.yaml").read_text())
    assert table.spec.upsert is not None
    assert table.spec.upsert.config is not None
    assert against_table(table.spec.upsert.config, table.spec) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mode: FULL, primaryKeyTtl: 0d", "spec.primaryKeyTtl: a TTL is more than 0"),
        ("mode: FULL, primaryKeyTtl: 1 day", 'spec.primaryKeyTtl: "1 day" is not allowed; write a duration'),
        (
            "mode: FULL, preload: ENABLE",
            "spec.preload: unknown field; remove it: a restart takes keys from the snapshots",
        ),
        (
            "mode: FULL, consistencyMode: SYNC",
            "spec.consistencyMode: unknown field; remove it: queries always see one row",
        ),
        (
            "mode: FULL, newSegmentTrackingTimeMs: 9",
            "spec.newSegmentTrackingTimeMs: unknown field; remove it: queries ask",
        ),
        ("mode: FULL, upsertViewRefreshIntervalMs: 9", "spec.upsertViewRefreshIntervalMs: unknown field; remove it: "),
        ("mode: FULL, snapshot: ENABLE, snapshotStore: SEGMENT", "spec.snapshotStore: SEGMENT does not exist"),
        ("mode: FULL, snapshotStore: LOCAL", "spec.snapshotStore: snapshotStore needs snapshot: ENABLE"),
        ("mode: DEDUP, snapshot: ENABLE", "spec.snapshot: mode DEDUP has no snapshots"),
        ("mode: FULL, primaryKeyTtl: 1d, comparisonColumns: [a, b]", "spec.primaryKeyTtl: a TTL needs one comparison"),
        ("mode: FULL, primaryKeyTtl: 0010d", 'spec.primaryKeyTtl: "0010d" is not allowed; write a duration'),
        ("mode: FULL, primaryKeyTtl: 9999999999s", 'spec.primaryKeyTtl: "9999999999s" is not allowed'),
        ("mode: FULL, ttl: {unit: DAYS, value: 1000000000}", "spec.ttl.value: "),
        (
            "mode: FULL, deleteRecordColumn: gone, deletedKeysTtl: 010d",
            'spec.deletedKeysTtl: "010d" is not allowed; write a duration',
        ),
        (
            "mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 01h, messageTimeColumn: sent",
            'spec.maxFutureSkew: "01h" is not allowed',
        ),
        (
            "mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 0h, messageTimeColumn: sent",
            "spec.maxFutureSkew: write a duration such as 10m",
        ),
        (
            "mode: FULL, deleteRecordColumn: gone, deletedKeysTtl: '9', comparisonColumns: [a, b]",
            "spec.deletedKeysTtl: a TTL needs one comparison column",
        ),
        ("mode: FULL, deletedKeysTtl: 1d", "spec.deletedKeysTtl: deletedKeysTtl needs deleteRecordColumn"),
        ("mode: FULL, skipLateEvents: true", "spec.skipLateEvents: skipLateEvents needs primaryKeyTtl"),
        ("mode: FULL, isSkipLateEvents: true", "spec.isSkipLateEvents: isSkipLateEvents needs primaryKeyTtl"),
        ("mode: FULL, maxFutureSkew: 1h", "spec.maxFutureSkew: maxFutureSkew needs primaryKeyTtl"),
        ("mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 1h", "spec.maxFutureSkew: maxFutureSkew and messageTimeColumn"),
        ("mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: '3'", "spec.maxFutureSkew: write a duration such as 10m"),
        (
            "mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 1h, messageTimeColumn: sent, dropOutOfOrderRecord: true",
            "spec.maxFutureSkew: maxFutureSkew does not go with dropOutOfOrderRecord",
        ),
        (
            "mode: FULL, hashFunction: NONE",
            "spec.hashFunction: unknown field; remove it: keys of up to 16 bytes are kept whole",
        ),
        ("mode: DEDUP, deleteRecordColumn: gone", "spec.deleteRecordColumn: mode DEDUP keeps the first row of a key"),
        ("mode: DEDUP, dropOutOfOrderRecord: true", "spec.dropOutOfOrderRecord: mode DEDUP keeps"),
        ("mode: DEDUP, comparisonColumns: [a, b]", "spec.comparisonColumns: mode DEDUP compares nothing"),
        ("mode: DEDUP, partialUpsertStrategies: {a: MAX}", "spec.partialUpsertStrategies: only mode: PARTIAL merges"),
        ("mode: FULL, TtlUnit: DAYS", "spec.TtlUnit: TtlUnit and TtlValue go together"),
        (
            "mode: FULL, primaryKeyTtl: 1d, ttl: {unit: DAYS, value: 1}",
            "spec.primaryKeyTtl: the TTL is said in one way",
        ),
        ("mode: FULL, ttl: {unit: YEARS, value: 1}", 'spec.ttl.unit: unknown unit "YEARS"'),
        ("mode: FULL, pruning: ROTATION", "spec.pruning: pruning needs primaryKeyTtl"),
        ("mode: FULL, pruningInterval: 1h", "spec.pruningInterval: only pruning: SCAN"),
        ("mode: FULL, partialUpsertStrategies: {a: MAX}", "spec.partialUpsertStrategies: only mode: PARTIAL merges"),
        (
            "mode: PARTIAL, comparisonColumns: [a], partialUpsertStrategies: {a: MAX}",
            "spec.partialUpsertStrategies: a comparison column is never merged",
        ),
        (
            "mode: FULL, dropOutOfOrderRecord: true, outOfOrderRecordColumn: late",
            "spec.outOfOrderRecordColumn: rows out of order are dropped",
        ),
        ("mode: FULL, comparisonColumns: [a, b, a]", "spec.comparisonColumns[2]: a column is named twice"),
        (
            "mode: PARTIAL, partialUpsertStrategies: {city: OVERWRIT}",
            'spec.partialUpsertStrategies.city: "OVERWRIT" is not allowed; write a strategy such as OVERWRITE',
        ),
        ("mode: FUL", 'spec.mode: unknown mode "FUL"; did you mean FULL?'),
    ],
)
def test_what_does_not_go_together_is_refused(spec: str, problem: str) -> None:
    assert any(one.startswith(problem) for one in problems(spec)), problems(spec)


def test_all_problems_come_at_once() -> None:
    assert len(problems("mode: FULL, deletedKeysTtl: 1d, skipLateEvents: true, pruning: SCAN, snapshots: ENABLE")) == 4


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mode: FULL, comparisonColumns: [vrsion]", 'spec.comparisonColumns[0]: the table has no column "vrsion"'),
        ("mode: FULL, comparisonColumns: [city]", 'spec.comparisonColumns[0]: "city" is STRING; rows are compared by'),
        ("mode: FULL, primaryKeyTtl: 30m", "spec.primaryKeyTtl: 30m is not longer than ingestion.stream.flush.age, 1h"),
        ("mode: FULL, primaryKeyTtl: 1h", "spec.primaryKeyTtl: 1h is not longer than ingestion.stream.flush.age, 1h"),
        ("mode: FULL, ttl: {unit: MINUTES, value: 30}", "spec.primaryKeyTtl: 30m is not longer than"),
        (
            "mode: FULL, primaryKeyTtl: '100'",
            'spec.primaryKeyTtl: the comparison column "at" is a time; write a duration',
        ),
        (
            "mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 1h, messageTimeColumn: sent",
            "spec.messageTimeColumn: the table does not say ingestion.stream.metadata: {sent: timestamp}",
        ),
        (
            "mode: FULL, primaryKeyTtl: 1d, maxFutureSkew: 1h, messageTimeColumn: city",
            'spec.messageTimeColumn: "city" is STRING; it needs TIMESTAMP',
        ),
        (
            "mode: FULL, primaryKeyTtl: '9', comparisonColumns: [version], maxFutureSkew: 1h, messageTimeColumn: sent",
            "spec.maxFutureSkew: needs the table's timeColumn as comparison column",
        ),
        (
            "mode: DEDUP, comparisonColumns: [price], primaryKeyTtl: '9'",
            "spec.primaryKeyTtl: mode DEDUP expires keys by whole numbers and times",
        ),
        (
            "mode: PARTIAL, partialUpsertStrategies: {at: MAX}",
            "spec.partialUpsertStrategies.at: a comparison column is never merged",
        ),
        (
            "mode: PARTIAL, deleteRecordColumn: gone, partialUpsertStrategies: {gone: MAX}",
            "spec.partialUpsertStrategies.gone: a column that says what a row does to its key is never merged",
        ),
        (
            "mode: PARTIAL, defaultPartialUpsertStrategy: MAX",
            'spec.defaultPartialUpsertStrategy: MAX needs one value per row; "tags" is multi-valued; name its strategy',
        ),
        ("mode: FULL, comparisonColumns: [tags]", 'spec.comparisonColumns[0]: "tags" is multi-valued'),
        (
            "mode: FULL, comparisonColumns: [version], primaryKeyTtl: 1d",
            'spec.primaryKeyTtl: the comparison column "version" is no time; write a bare number',
        ),
        (
            "mode: FULL, comparisonColumns: [city], primaryKeyTtl: 1d",
            'spec.primaryKeyTtl: the comparison column "city" is STRING',
        ),
        (
            "mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, deletedKeysTtl: 1d",
            'spec.deletedKeysTtl: the comparison column "version" is no time; write a bare number',
        ),
        (
            "mode: FULL, deleteRecordColumn: gone, deletedKeysTtl: '9'",
            'spec.deletedKeysTtl: the comparison column "at" is a time; write a duration',
        ),
        ("mode: FULL, outOfOrderRecordColumn: city", 'spec.outOfOrderRecordColumn: "city" is STRING; it needs BOOLEAN'),
        ("mode: FULL, deleteRecordColumn: tags", 'spec.deleteRecordColumn: "tags" is multi-valued'),
        (
            "mode: PARTIAL, partialUpsertStrategies: {id: MAX}",
            "spec.partialUpsertStrategies.id: a column of the primary",
        ),
        (
            "mode: PARTIAL, partialUpsertStrategies: {city: UNION}",
            "spec.partialUpsertStrategies.city: UNION needs a multi",
        ),
        (
            "mode: PARTIAL, partialUpsertStrategies: {city: INCREMENT}",
            "spec.partialUpsertStrategies.city: INCREMENT needs",
        ),
        (
            "mode: PARTIAL, partialUpsertStrategies: {tags: MAX}",
            "spec.partialUpsertStrategies.tags: MAX needs one value",
        ),
        (
            "mode: PARTIAL, partialUpsertStrategies: {cit: MAX}",
            "spec.partialUpsertStrategies.cit: the table has no column",
        ),
    ],
)
def test_what_the_table_says_against_it(spec: str, problem: str) -> None:
    found = against(spec)
    assert any(one.startswith(problem) for one in found), found


def test_a_bare_number_is_a_ttl_of_a_version() -> None:
    assert against("mode: FULL, comparisonColumns: [version], primaryKeyTtl: '100', deleteRecordColumn: gone") == []


@pytest.mark.parametrize(
    ("upsert", "problem"),
    [
        ("mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone", None),
        ("mode: PARTIAL", "spec.mode: PARTIAL needs the order of a stream"),
        ("mode: DEDUP", "spec.mode: DEDUP needs the order of a stream"),
        ("mode: FULL, primaryKeyTtl: 1d", "spec.primaryKeyTtl: keys expire in the order of a stream"),
        ("mode: FULL, ttl: {unit: DAYS, value: 1}", "spec.primaryKeyTtl: keys expire in the order of a stream"),
        (
            "mode: FULL, deleteRecordColumn: gone, deletedKeysTtl: 1d",
            "spec.deletedKeysTtl: keys expire in the order of a stream",
        ),
        ("mode: FULL, dropOutOfOrderRecord: true", "spec.dropOutOfOrderRecord: rows of batches are stored already"),
        ("mode: FULL, outOfOrderRecordColumn: gone", "spec.outOfOrderRecordColumn: rows of batches are stored"),
        ("mode: FULL, snapshot: ENABLE", "spec.snapshot: snapshots are of a stream's segments"),
        ("mode: FULL, compaction: {}", "spec.compaction: compaction is of a stream's segments"),
    ],
)
def test_a_table_of_batches_takes_what_needs_no_order(upsert: str, problem: str | None) -> None:
    assert STREAM in TABLE
    found = against(upsert, TABLE.replace(STREAM, ""))
    assert not found if problem is None else [one for one in found if one.startswith(problem)], found


def test_a_table_of_batches_is_partitioned_by_one_column_and_may_be_sorted() -> None:
    table = TABLE.replace(STREAM, "").replace("  timeColumn", "  indexing: {sortedColumns: [city]}\n  timeColumn")
    assert against("mode: FULL", table) == []
    two = table.replace("primaryKey: [id]", "primaryKey: [id, city]").replace(
        "{columns: {id:", "{columns: {city: {functionName: Murmur, numPartitions: 4}, id:"
    )
    assert against("mode: FULL", two) == [
        "spec: the table is partitioned by several columns (city, id); upserts of batches go by one"
    ]


TREE = "{dimensionsSplitOrder: [city], functionColumnPairs: [COUNT__*]}"


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (
            ("flush: {age: 1h}}}", "flush: {age: 1h}}, batch: [{sourceUri: /x, format: CSV}]}"),
            "spec: the table has ingestion.batch",
        ),
        (
            ("  timeColumn", f"  indexing: {{starTreeIndexConfigs: [{TREE}]}}\n  timeColumn"),
            "spec: the table has indexing.starTreeIndexConfigs",
        ),
        (
            ("  timeColumn", "  indexing: {sortedColumns: [city]}\n  timeColumn"),
            "spec: the table has indexing.sortedColumns (city)",
        ),
        (
            ("  partitioning: {columns: {id: {functionName: Murmur, numPartitions: 4}}}\n", ""),
            "spec: the table declares no partitioning",
        ),
        (
            ("{columns: {id:", "{columns: {city:"),
            'spec: the table is partitioned by "city", which is not in schema.primaryKey',
        ),
    ],
)
def test_a_table_whose_rows_would_not_meet_is_refused(edit: tuple[str, str], problem: str) -> None:
    assert edit[0] in TABLE
    found = against("mode: FULL", TABLE.replace(*edit))
    assert any(one.startswith(problem) for one in found), found


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("TtlUnit: DAYS, TtlValue: '1'", "primaryKeyTtl: 1d"),
        ("ttl: {unit: HOURS, value: 36}", "primaryKeyTtl: 36h"),
        ("primaryKeyTtl: 1d, isSkipLateEvents: true", "primaryKeyTtl: 1d, skipLateEvents: true"),
        ("primaryKeyTtl: 1d, isSkipLateEvents: false", "primaryKeyTtl: 1d"),
    ],
)
def test_other_names_of_a_setting_are_read_and_written_back_in_one_form(written: str, read: str) -> None:
    found, same = config(f"mode: FULL, {written}"), config(f"mode: FULL, {read}")
    assert found == same
    assert manifest.dump(found) == manifest.dump(same)
    assert (
        manifest.from_stored(
            {**manifest.dump(found), "spec": yaml.safe_load(f"{{mode: FULL, {written}}}")}, UpsertConfig
        )
        == same
    )


def test_pinned_settings_that_name_what_changes_nothing_are_read() -> None:
    spec = config("mode: FULL, primaryKeyTtl: 1d").spec
    retired = '"hashFunction":"NONE","preload":"ENABLE","consistencyMode":"SYNC","newSegmentTrackingTimeMs":5'
    text = f'{{"mode":"FULL","TtlUnit":"DAYS","TtlValue":"1",{retired}}}'
    assert unpin_upsert(text) == UpsertSpec(mode=UpsertMode.FULL, primary_key_ttl=spec.primary_key_ttl)
    assert decides_by_age(text)


INLINE = TABLE.replace("spec:\n", "spec:\n  upsert: {config: {mode: FULL}}\n", 1)


def test_a_table_may_say_itself_how_it_is_upserted() -> None:
    [table] = manifest.load_tables(INLINE)
    assert table.spec.upsert is not None
    assert table.spec.upsert.config is not None
    assert against_table(table.spec.upsert.config, table.spec) == []


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (("{config: {mode: FULL}}", "{}"), "spec.upsert: write configRef, or config"),
        (("{config: {mode: FULL}}", "{config: {mode: FULL}, configRef: x}"), "spec.upsert: write configRef, or config"),
        (("mode: FULL", "mode: FULL, skipLateEvents: true"), "spec.upsert.config.skipLateEvents: skipLateEvents needs"),
        (("    primaryKey: [id]\n", ""), "spec.schema.primaryKey: an upsert table needs schema.primaryKey"),
    ],
)
def test_what_a_table_says_wrongly_of_its_upserts_is_refused(edit: tuple[str, str], problem: str) -> None:
    assert edit[0] in INLINE
    with pytest.raises(ManifestError) as caught:
        manifest.load_tables(INLINE.replace(*edit))
    assert any(str(one).startswith(problem) for one in caught.value.problems), caught.value.problems


def test_paths_are_those_of_the_table_if_it_says_so_itself() -> None:
    [table] = manifest.load_tables(INLINE.replace("mode: FULL", "mode: FULL, comparisonColumns: [city]"))
    assert table.spec.upsert is not None
    assert table.spec.upsert.config is not None
    [problem] = against_table(table.spec.upsert.config, table.spec)
    assert problem.path == "spec.upsert.config.comparisonColumns[0]"


def test_an_upsert_table_stays_one_and_what_decides_its_rows_stays() -> None:
    [plain], [upserted] = manifest.load_tables(TABLE), manifest.load_tables(INLINE)
    [other] = manifest.load_tables(INLINE.replace("mode: FULL", "mode: FULL, comparisonColumns: [version]"))
    [ttl] = manifest.load_tables(INLINE.replace("mode: FULL", "mode: FULL, primaryKeyTtl: 2d"))
    assert [one.path for one in compare(plain.spec, upserted.spec)] == ["spec.upsert"]
    assert [one.path for one in compare(upserted.spec, plain.spec)] == ["spec.upsert"]
    assert [one.path for one in compare(upserted.spec, other.spec)] == ["spec.upsert.config.comparisonColumns"]
    assert compare(upserted.spec, ttl.spec) == ()


@pytest.mark.parametrize(
    "field", ["primaryKeyTtl: 3d", "ttl: {unit: DAYS, value: 3}", "deleteRecordColumn: gone, deletedKeysTtl: 3d"]
)
def test_compaction_with_times_to_live_needs_checkpoints_in_the_deep_store(field: str) -> None:
    for more in ("", ", snapshot: ENABLE, snapshotStore: LOCAL"):
        [found] = problems(f"mode: FULL, {field}, compaction: {{}}{more}")
        assert "spec.compaction" in found
        assert "needs snapshot: ENABLE, in the DEEP_STORE" in found
    assert config(f"mode: FULL, {field}, compaction: {{}}, snapshot: ENABLE").spec.compaction is not None


def test_compaction_does_not_go_with_a_bound_on_the_future() -> None:
    more = "maxFutureSkew: 10m, messageTimeColumn: sent, snapshot: ENABLE"
    [found] = problems(f"mode: FULL, primaryKeyTtl: 3d, {more}, compaction: {{}}")
    assert "spec.compaction" in found
    assert "maxFutureSkew" in found


def test_compaction_does_not_go_with_mode_dedup() -> None:
    [found] = problems("mode: DEDUP, compaction: {}")
    assert "spec.compaction" in found


@pytest.mark.parametrize("field", ["primaryKeyTtl: 3d", "deletedKeysTtl: 3d, deleteRecordColumn: gone"])
def test_segments_are_not_merged_where_a_time_to_live_decides_rows(field: str) -> None:
    [found] = problems(f"mode: FULL, {field}, compaction: {{merge: {{}}}}, snapshot: ENABLE")
    assert "spec.compaction.merge" in found
    merge = config("mode: FULL, compaction: {merge: {}}").spec.compaction
    assert merge is not None
    assert merge.merge is not None
    assert (merge.merge.max_num_segments_per_task, merge.merge.max_num_records_per_segment) == (10, 5_000_000)


def test_compaction_has_defaults_and_decides_no_row() -> None:
    found = config("mode: FULL, compaction: {}").spec.compaction
    assert found is not None
    assert (found.buffer_time_period, found.invalid_records_threshold_percent, found.suspend) == ("1d", 30, False)
    [table] = manifest.load_tables(TABLE)
    plain, compacted = (config(f"mode: FULL{more}").spec for more in ("", ", compaction: {bufferTimePeriod: 1h}"))
    assert pin(table.spec, plain) == pin(table.spec, compacted)


@pytest.mark.parametrize(("spec", "is_kept"), [("mode: FULL", True), ("mode: PARTIAL", True), ("mode: DEDUP", False)])
def test_a_table_with_retention_keeps_snapshots_of_what_is_hidden(spec: str, *, is_kept: bool) -> None:
    """Rows that hide others are removed; who begins anew has to know what they had hidden."""
    [table] = manifest.load_tables(TABLE)
    retained = table.spec.model_copy(update={"retention": "30d"})
    upsert = config(spec).spec
    assert (unpin_upsert(pinned_upsert(pin(retained, upsert))).snapshots_in is not None) == is_kept
    assert unpin_upsert(pinned_upsert(pin(table.spec, upsert))).snapshots_in is None
    local = config("mode: FULL, snapshot: ENABLE, snapshotStore: LOCAL").spec
    assert pinned_upsert(pin(retained, local)) == pinned_upsert(pin(table.spec, local))


def test_snapshots_cannot_be_turned_off_under_retention() -> None:
    retained = TABLE + "  retention: 30d\n"
    [found] = against("mode: FULL, snapshot: DISABLE", retained)
    assert "spec.snapshot" in found
    assert "retention 30d" in found
    assert against("mode: FULL", retained) == []
    assert against("mode: DEDUP, snapshot: DISABLE", retained) == []
    assert against("mode: FULL, snapshot: DISABLE") == []

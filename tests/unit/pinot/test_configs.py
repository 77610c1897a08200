"""Pinot's configs become manifests, or a note each: nothing of them is lost in silence."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.unit.pinot.pinot_settings import SETTINGS
from typer.testing import CliRunner

from merlot.cli.app import app
from merlot.cli.main import run
from merlot.cluster.records import TableRecord
from merlot.errors import InvalidInputError
from merlot.ingest import stream_checks
from merlot.ingest.row_expressions import RowExpressions
from merlot.pinot import cluster_json
from merlot.pinot.configs.changes import applied
from merlot.pinot.configs.documents import Converted, convert
from merlot.spec import manifest
from merlot.spec.manifest.upsert_checks import against_table
from merlot.spec.table import Table

SCHEMA = {
    "schemaName": "rides",
    "primaryKeyColumns": ["ride"],
    "dimensionFieldSpecs": [
        {"name": "ride", "dataType": "LONG"},
        {"name": "city", "dataType": "STRING", "defaultNullValue": "nowhere", "maxLength": 40},
        {"name": "stops", "dataType": "STRING", "singleValueField": False},
        {"name": "note", "dataType": "JSON"},
    ],
    "metricFieldSpecs": [{"name": "fare", "dataType": "DOUBLE"}],
    "dateTimeFieldSpecs": [
        {"name": "at", "dataType": "LONG", "format": "1:SECONDS:EPOCH", "granularity": "1:SECONDS"},
        {"name": "day", "dataType": "INT", "format": "EPOCH|DAYS", "granularity": "DAYS|1"},
    ],
}
OFFLINE: dict[str, Any] = {
    "tableName": "rides_OFFLINE",
    "tableType": "OFFLINE",
    "segmentsConfig": {
        "timeColumnName": "at",
        "replication": "2",
        "retentionTimeUnit": "DAYS",
        "retentionTimeValue": "365",
        "segmentPushType": "APPEND",
    },
    "tenants": {"broker": "DefaultTenant", "server": "fast_OFFLINE"},
    "tableIndexConfig": {
        "loadMode": "MMAP",
        "invertedIndexColumns": ["city"],
        "sortedColumn": ["city"],
        "rangeIndexColumns": ["fare"],
        "jsonIndexColumns": ["note"],
        "bloomFilterConfigs": {"ride": {"fpp": 0.02}},
        "noDictionaryColumns": ["fare"],
        "starTreeIndexConfigs": [
            {
                "dimensionsSplitOrder": ["city", "day"],
                "skipStarNodeCreationForDimensions": [],
                "functionColumnPairs": ["SUM__fare"],
                "maxLeafRecords": 1000,
            }
        ],
        "segmentPartitionConfig": {"columnPartitionMap": {"ride": {"functionName": "Murmur", "numPartitions": 4}}},
        "nullHandlingEnabled": True,
    },
    "fieldConfigList": [
        {"name": "note", "encodingType": "RAW", "indexTypes": ["TEXT"], "compressionCodec": "ZSTANDARD"},
        {"name": "day", "indexes": {"inverted": {"enabled": "true"}}},
    ],
    "routing": {"segmentPrunerTypes": ["time", "partition"], "instanceSelectorType": "strictReplicaGroup"},
    "query": {"timeoutMs": 5000},
    "task": {
        "taskTypeConfigsMap": {
            "MergeRollupTask": {
                "1day.mergeType": "concat",
                "1day.bucketTimePeriod": "1d",
                "1day.bufferTimePeriod": "1d",
                "1day.maxNumRecordsPerSegment": "100000",
                "1month.mergeType": "rollup",
                "1month.bucketTimePeriod": "30d",
                "1month.bufferTimePeriod": "30d",
                "1month.roundBucketTimePeriod": "1d",
                "fare.aggregationType": "max",
            }
        }
    },
    "metadata": {"customConfigs": {}},
}
REALTIME: dict[str, Any] = {
    "tableName": "rides",
    "tableType": "REALTIME",
    "segmentsConfig": {"timeColumnName": "at", "replicasPerPartition": "2", "schemaName": "rides"},
    "tableIndexConfig": {
        "streamConfigs": {
            "streamType": "kafka",
            "stream.kafka.topic.name": "rides",
            "stream.kafka.broker.list": "kafka:9092",
            "stream.kafka.consumer.type": "lowlevel",
            "stream.kafka.consumer.factory.class.name": "org.apache.pinot.plugin.stream.kafka20.KafkaConsumerFactory",
            "stream.kafka.decoder.class.name": "org.apache.pinot.plugin.inputformat.json.JSONMessageDecoder",
            "stream.kafka.consumer.prop.auto.offset.reset": "smallest",
            "realtime.segment.flush.threshold.rows": "100000",
            "realtime.segment.flush.threshold.time": "12h",
        }
    },
    "ingestionConfig": {
        "transformConfigs": [{"columnName": "day", "transformFunction": "toEpochDays(at * 1000)"}],
        "filterConfig": {"filterFunction": "fare < 0"},
    },
    "routing": {"instanceSelectorType": "strictReplicaGroup"},
    "upsertConfig": {"mode": "FULL", "comparisonColumn": "at", "metadataTTL": 86400, "hashFunction": "MURMUR3"},
}


def without(config: dict[str, Any], *paths: str) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    for path in paths:
        inner = changed
        *parents, last = path.split("/")
        for name in parents:
            inner = inner[name]
        del inner[last]
    return changed


def spec_of(converted: Converted, kind: str = "Table") -> Any:
    """The spec of a kind, which the manifest's own rules have taken."""
    text = yaml.safe_dump_all(converted.manifests)
    manifest.load(text)
    (found,) = (one["spec"] for one in converted.manifests if one["kind"] == kind)
    return found


def test_a_table_of_batches_has_all_that_its_config_says() -> None:
    converted = convert([OFFLINE, SCHEMA])
    spec = spec_of(converted)
    fields = {field["name"]: field for field in spec["schema"]["fields"]}
    assert list(fields) == ["ride", "city", "stops", "note", "fare", "at", "day"]
    assert fields["city"] == {"name": "city", "type": "STRING", "maxLength": 40, "defaultNullValue": "nowhere"}
    assert fields["stops"]["multiValue"] is True
    assert fields["at"]["format"] == "1:SECONDS:EPOCH"
    assert spec["schema"]["primaryKey"] == ["ride"]
    assert (spec["timeColumn"], spec["replication"], spec["retention"]) == ("at", 2, "365d")
    assert spec["tenants"] == {"server": {"name": "fast"}}
    assert spec["indexing"] == {
        "inverted": ["city", "day"],
        "range": ["fare"],
        "jsonPaths": ["note"],
        "bloom": ["ride"],
        "noDictionary": ["fare", "note"],
        "text": ["note"],
        "sortedColumns": ["city"],
        "bloomFpp": {"ride": 0.02},
        "compression": {"note": "ZSTD"},
        "starTreeIndexConfigs": [
            {"dimensionsSplitOrder": ["city", "day"], "functionColumnPairs": ["SUM__fare"], "maxLeafRecords": 1000}
        ],
    }
    assert spec["partitioning"] == {"columns": {"ride": {"functionName": "Murmur", "numPartitions": 4}}}
    assert spec["routing"] == {"segmentPruners": ["time", "partition"], "instanceSelector": "strictReplicaGroup"}
    assert spec["limits"] == {"timeoutMs": 5000}
    assert converted.notes == ()


def test_a_merge_task_becomes_a_manifest_of_its_own() -> None:
    task = spec_of(convert([SCHEMA, OFFLINE]), "MergeRollupTask")
    daily, monthly = task["levels"]
    assert daily["maxNumRecordsPerSegment"] == 100_000
    assert (monthly["mergeType"], monthly["roundBucketTimePeriod"]) == ("rollup", "1d")
    assert task["aggregations"] == {"fare": {"aggregationType": "max"}}


def test_an_empty_delimiter_of_csv_is_the_default() -> None:
    stream = REALTIME["tableIndexConfig"]["streamConfigs"] | {
        "stream.kafka.decoder.class.name": "org.apache.pinot.plugin.inputformat.csv.CSVMessageDecoder",
        "stream.kafka.decoder.prop.header": "city,fare",
        "stream.kafka.decoder.prop.delimiter": "",
    }
    plain = {**without(REALTIME, "upsertConfig"), "tableIndexConfig": {"streamConfigs": stream}}
    csv = spec_of(convert([plain, SCHEMA]))["ingestion"]["stream"]["decoder"]["csv"]
    assert csv == {"columns": ["city", "fare"], "delimiter": ","}


def test_a_table_of_a_stream_consumes_the_same_topic_from_the_same_place() -> None:
    plain = without(REALTIME, "upsertConfig")
    spec = spec_of(convert([plain, SCHEMA]))
    assert spec["ingestion"]["stream"] == {
        "type": "kafka",
        "topic": "rides",
        "decoder": {"type": "JSON"},
        "start": "earliest",
        "flush": {"rows": 100_000, "age": "12h"},
        "properties": {"bootstrap.servers": "kafka:9092"},
        "derivedColumns": {"day": "toEpochDays(at * 1000)"},
        "filter": "(fare < 0) IS NOT TRUE",
    }


def test_a_time_to_live_in_units_of_the_comparison_column_becomes_a_length_of_time() -> None:
    upserts = {**REALTIME, "tableIndexConfig": {**REALTIME["tableIndexConfig"]}}
    upserts["tableIndexConfig"]["segmentPartitionConfig"] = OFFLINE["tableIndexConfig"]["segmentPartitionConfig"]
    spec = spec_of(convert([upserts, SCHEMA]))
    assert spec["upsert"] == {"config": {"mode": "FULL", "comparisonColumns": ["at"], "primaryKeyTtl": "1d"}}


def test_tables_without_duplicates_are_upsert_tables_of_a_mode() -> None:
    index = {
        **REALTIME["tableIndexConfig"],
        "segmentPartitionConfig": OFFLINE["tableIndexConfig"]["segmentPartitionConfig"],
    }
    first = {"dedupEnabled": True, "hashFunction": "MD5", "metadataTTL": 86400, "dedupTimeColumn": "at"}
    config = {**without(REALTIME, "upsertConfig"), "tableIndexConfig": index}
    spec = spec_of(convert([{**config, "dedupConfig": first}, SCHEMA]))
    assert spec["upsert"] == {"config": {"mode": "DEDUP", "comparisonColumns": ["at"], "primaryKeyTtl": "1d"}}
    assert "upsert" not in spec_of(convert([{**config, "dedupConfig": {**first, "dedupEnabled": False}}, SCHEMA]))


def test_upserts_of_batches_are_taken_without_what_they_have_no_use_for() -> None:
    config = {"mode": "FULL", "comparisonColumns": ["at"], "snapshot": "ENABLE", "preload": "ENABLE"}
    offline = without(OFFLINE, "task", "tableIndexConfig/starTreeIndexConfigs")
    converted = convert([{**offline, "upsertConfig": {**config, "hashFunction": "UUID"}}, SCHEMA])
    assert spec_of(converted)["upsert"] == {"config": {"mode": "FULL", "comparisonColumns": ["at"]}}
    (table,) = manifest.load(yaml.safe_dump_all(converted.manifests))
    assert isinstance(table, Table)
    assert table.spec.upsert is not None
    assert table.spec.upsert.config is not None
    assert against_table(table.spec.upsert.config, table.spec) == []
    assert [one.partition(":")[0] for one in converted.notes if "psert" in one] == [
        "upsertConfig.preload",
        "upsertConfig.hashFunction",
        "upsertConfig.snapshot",
    ]


def test_a_hash_function_is_left_out_with_a_word() -> None:
    (note,) = (one for one in convert([REALTIME, SCHEMA]).notes if "hashFunction" in one)
    assert note.startswith("upsertConfig.hashFunction: MURMUR3 is left out: keys of up to 16 bytes are kept whole")
    plain = {**REALTIME, "upsertConfig": {**REALTIME["upsertConfig"], "hashFunction": "NONE"}}
    assert not [one for one in convert([plain, SCHEMA]).notes if "hashFunction" in one]


@pytest.mark.parametrize(
    ("name", "asks", "asks_nothing"),
    [
        ("preload", "ENABLE", "DEFAULT"),
        ("enablePreload", True, False),
        ("consistencyMode", "SYNC", "NONE"),
        ("upsertViewRefreshIntervalMs", 3_000, None),
        ("newSegmentTrackingTimeMs", 10_000, None),
    ],
)
def test_settings_that_change_nothing_are_left_out_with_a_word(name: str, asks: object, asks_nothing: object) -> None:
    upsert = REALTIME["upsertConfig"]
    (note,) = [
        one for one in convert([{**REALTIME, "upsertConfig": {**upsert, name: asks}}, SCHEMA]).notes if name in one
    ]
    assert note.startswith(f"upsertConfig.{name}: {asks} is left out: ")
    plain = convert([{**REALTIME, "upsertConfig": {**upsert, name: asks_nothing}}, SCHEMA])
    assert not [one for one in plain.notes if name in one]
    assert name not in spec_of(plain)["upsert"]["config"]


def test_both_parts_become_one_table() -> None:
    offline = without(OFFLINE, "task")
    converted = convert([without(REALTIME, "upsertConfig"), offline, SCHEMA])
    spec = spec_of(converted)
    assert spec["ingestion"]["timeBoundary"] == {}
    assert spec["ingestion"]["stream"]["topic"] == "rides"
    assert spec["retention"] == "365d"
    together = {
        "tableName": "rides",
        "schema": SCHEMA,
        "offline": offline,
        "realtime": without(REALTIME, "upsertConfig"),
    }
    assert convert([together]).manifests == converted.manifests


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("quota", {"storage": "10G"}, "quota.storage: files of a table"),
        ("isDimTable", True, "isDimTable: a table is not copied"),
        ("nobodyKnowsThis", 1, "nobodyKnowsThis: has no equivalent"),
        ("tableIndexConfig/aggregateMetrics", True, "tableIndexConfig.aggregateMetrics: rows of a stream"),
        ("tableIndexConfig/newThing", ["a"], "tableIndexConfig.newThing: has no equivalent"),
        ("fieldConfigList", [{"name": "city", "indexTypes": ["FST"]}], "city: there is no such index"),
        ("fieldConfigList", [{"name": "city", "compressionCodec": "CLP"}], "CLP has no equivalent"),
        ("task/taskTypeConfigsMap/PurgeTask", {"a": "b"}, "PurgeTask: there is no such task"),
        (
            "ingestionConfig",
            {"transformConfigs": [{"columnName": "day", "transformFunction": "at"}]},
            "belongs to each source",
        ),
    ],
)
def test_what_has_no_equivalent_is_a_note(where: str, value: Any, words: str) -> None:
    config = copy.deepcopy(OFFLINE)
    *parents, last = where.split("/")
    inner = config
    for name in parents:
        inner = inner[name]
    inner[last] = value
    (note,) = convert([config, SCHEMA]).notes
    assert words in note


@pytest.mark.parametrize("name", sorted(OFFLINE["tableIndexConfig"]))
def test_no_setting_is_lost_whatever_else_is_there(name: str) -> None:
    """A setting that is spelt otherwise is not taken for granted: it is noted."""
    config = copy.deepcopy(OFFLINE)
    config["tableIndexConfig"][f"{name}X"] = config["tableIndexConfig"].pop(name)
    assert any(f"{name}X" in note for note in convert([config, SCHEMA]).notes)


def _with(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    inner: Any = changed
    *parents, last = path.split("/")
    for name in parents:
        inner = inner[int(name)] if isinstance(inner, list) else inner.setdefault(name, {})
    inner[last] = value
    return changed


@pytest.mark.parametrize("part", ["batches", "stream"])
def test_each_setting_alone_ends_in_a_manifest_or_in_a_line(part: str) -> None:
    config = {"batches": without(OFFLINE, "task", "query", "routing", "fieldConfigList"),
              "stream": without(REALTIME, "upsertConfig", "ingestionConfig", "routing")}[part]  # fmt: skip
    before = convert([config, SCHEMA])
    lost = []
    for kind in ("schema", "table", *(["stream"] if part == "stream" else [])):
        for path, value in SETTINGS[kind]:
            made = [_with(SCHEMA if kind == "schema" else config, path, value)]
            found = convert([*made, config if kind == "schema" else SCHEMA])
            if found.manifests == before.manifests and set(found.notes) <= set(before.notes):
                lost.append((path, value))
    assert lost == []


def test_every_replica_of_a_stream_is_taken_as_pinot_takes_it() -> None:
    counts = {"replication": "1", "replicasPerPartition": "3"}
    config = _with(without(REALTIME, "upsertConfig"), "segmentsConfig", {"timeColumnName": "at", **counts})
    converted = convert([config, SCHEMA])
    assert spec_of(converted)["replication"] == 3
    assert any(one.startswith("segmentsConfig.replication: 1 is not taken") for one in converted.notes)


def test_what_pinot_ignores_or_a_table_works_without_is_left_out_with_a_note() -> None:
    trees = [
        {"dimensionsSplitOrder": ["city"], "functionColumnPairs": ["AVGMV__stops", "COUNTMV__stops"]},
        {"dimensionsSplitOrder": ["city"], "functionColumnPairs": ["SUM__fare"]},
        {"dimensionsSplitOrder": ["gone"], "functionColumnPairs": ["SUM__fare", "SUMMV__stops"]},
        {"dimensionsSplitOrder": ["day"], "functionColumnPairs": ["SUMMV__stops", "MAX__fare", "COUNTMV__stops"]},
    ]
    config = {
        "tableName": "rides",
        "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "1", "retentionTimeUnit": "DAYS", "retentionTimeValue": "7"},
        "tableIndexConfig": {
            "starTreeIndexConfigs": trees,
            "invertedIndexColumns": ["fare", "city"],
            "noDictionaryColumns": ["fare"],
        },
        "routing": {"segmentPrunerTypes": ["time", "partition"]},
    }
    converted = convert([config, SCHEMA])
    spec = spec_of(converted)
    assert spec["indexing"]["starTreeIndexConfigs"] == [trees[1], {**trees[3], "functionColumnPairs": ["MAX__fare"]}]
    assert (spec["indexing"]["inverted"], spec["indexing"]["noDictionary"]) == (["city"], ["fare"])
    assert "retention" not in spec
    assert spec.get("routing", {}).get("segmentPruners", []) == []
    notes = dict(one.split(": ", 1) for one in converted.notes)
    pairs = [f"indexing.starTreeIndexConfigs[{place}].functionColumnPairs" for place in (0, 3)]
    assert notes.keys() == {
        *(f"{pairs[0]}[{place}]" for place in (0, 1)),
        *(f"{pairs[1]}[{place}]" for place in (0, 2)),
        *("indexing.starTreeIndexConfigs[2]", "indexing.inverted[0]", "retention"),
        *("routing.segmentPruners[0]", "routing.segmentPruners[1]"),
    }
    for place, function in ((0, "AVGMV"), (1, "COUNTMV")):
        expected = f"{function}__stops is left out, a star-tree cannot keep {function}: it takes lists"
        assert notes[f"{pairs[0]}[{place}]"] == expected


def test_columns_that_pinot_fills_from_beside_a_message_are_filled() -> None:
    names = ["__key", "__header$trace.id", "__metadata$offset", "__metadata$recordTimestamp", "__metadata$other"]
    more = [{"name": name, "dataType": "STRING"} for name in names]
    schema = {**SCHEMA, "dimensionFieldSpecs": [*SCHEMA["dimensionFieldSpecs"], *more]}
    config = without(REALTIME, "upsertConfig")

    def metadata(streams: dict[str, str]) -> dict[str, str]:
        made = _with(
            config, "tableIndexConfig/streamConfigs", {**config["tableIndexConfig"]["streamConfigs"], **streams}
        )
        converted = convert([schema, made])
        manifest.load_document(converted.manifests[0])
        assert not any("metadata.populate" in note for note in converted.notes)
        found: dict[str, str] = spec_of(converted)["ingestion"]["stream"]["metadata"]
        return found

    assert metadata({}) == metadata({"stream.kafka.metadata.populate": "false"}) == {"__key": "key"}
    assert metadata({"stream.kafka.metadata.populate": "true"}) == {
        "__key": "key",
        "__header$trace.id": "headers.trace.id",
        "__metadata$offset": "offset",
        "__metadata$recordTimestamp": "timestamp",
    }


NESTED = [
    {"name": "payload||size", "dataType": "INT"},
    {"name": 'payload||o\'k||"x"', "dataType": "STRING"},
    {"name": "payload||labels", "dataType": "STRING", "singleValueField": False},
    {"name": "payload||commits||sha", "dataType": "STRING"},
    {"name": "renamed||a", "dataType": "STRING"},
    {"name": "payload||'\"", "dataType": "STRING"},
    {"name": "payload||set", "dataType": "STRING"},
    {"name": "group||id", "dataType": "LONG"},
]


@pytest.mark.parametrize("part", ["batches", "stream"])
def test_columns_of_nested_messages_are_derived(part: str) -> None:
    schema = {**SCHEMA, "dimensionFieldSpecs": [*SCHEMA["dimensionFieldSpecs"], *NESTED]}
    nested = {
        "delimiter": "||",
        "fieldsToUnnest": ["payload||commits"],
        "prefixesToRename": {"payload||inner||": "renamed||"},
        "collectionNotUnnestedToJson": "NON_PRIMITIVE",
    }
    config = {"batches": without(OFFLINE, "task"), "stream": without(REALTIME, "upsertConfig")}[part]
    transforms = [{"columnName": "payload||set", "transformFunction": "upper(city)"}]
    converted = convert([schema, {**config, "ingestionConfig": {
        "complexTypeConfig": nested, "transformConfigs": transforms}}])  # fmt: skip
    manifest.load_document(converted.manifests[0])
    for name in ("payload||commits||sha", "payload||'\""):
        assert any(f"{name} stays null" in note for note in converted.notes)
    if part == "batches":
        (note,) = [one for one in converted.notes if one.startswith("ingestionConfig: belongs to each source")]
        assert "'payload||size': '`payload`.`size`'" in note
        return
    derived = spec_of(converted)["ingestion"]["stream"]["derivedColumns"]
    assert derived == {
        "payload||set": "upper(city)",
        "payload||size": "NULLIF(jsonPathString(\"payload\", '$[''size'']'), 'null')",
        'payload||o\'k||"x"': "NULLIF(jsonPathString(\"payload\", '$[\"o''k\"][''\"x\"'']'), 'null')",
        "payload||labels": "jsonPathArray(\"payload\", '$[''labels'']')",
        "renamed||a": "NULLIF(jsonPathString(\"payload\", '$[''inner''][''a'']'), 'null')",
        "group||id": "NULLIF(jsonPathString(\"group\", '$[''id'']'), 'null')",
    }
    table = _model(converted)
    assert stream_checks.problems_of(table.spec) == []
    message = {"payload": {"size": 3, "o'k": {'"x"': "deep"}, "labels": ["p", "q"], "inner": {"a": "b"}}}
    rows = pa.table(
        {"payload": [json.dumps(message["payload"]), "{}"], "city": ["rome", None], "group": ['{"id": 7}', None]}
    )
    judged = RowExpressions(table.spec.table_schema, None, derived).evaluate(rows)
    assert judged.bad.count == 0
    first, second = judged.rows.select(list(derived)).to_pylist()
    assert list(first.values()) == ["ROME", "3", "deep", ["p", "q"], "b", "7"]
    assert [value or None for value in second.values()] == [None] * 6


def test_filter_of_a_transformed_column_sees_what_it_is_worked_out_by() -> None:
    transforms = [
        {"columnName": "day", "transformFunction": "toEpochDays(at * 1000)"},
        {"columnName": "note", "transformFunction": "concat(day, 'day', '')"},
    ]
    config = {**without(REALTIME, "upsertConfig")}
    config["ingestionConfig"] = {
        "transformConfigs": transforms,
        "filterConfig": {"filterFunction": "note = 'day' OR \"day\" > 5 OR day(at) = 3"},
    }
    wanted = "(concat((toEpochDays(at * 1000)), 'day', '')) = 'day' OR (toEpochDays(at * 1000)) > 5 OR day(at) = 3"
    assert spec_of(convert([config, SCHEMA]))["ingestion"]["stream"]["filter"] == f"({wanted}) IS NOT TRUE"


def test_groovy_and_secrets_are_left_out_and_said() -> None:
    config = copy.deepcopy(without(REALTIME, "upsertConfig"))
    config["ingestionConfig"]["transformConfigs"][0]["transformFunction"] = "Groovy({at / 86400}, at)"
    streams = config["tableIndexConfig"]["streamConfigs"]
    streams |= {"sasl.jaas.config": "password=secret", "security.protocol": "SASL_SSL", "stream.kafka.zk.path": "x"}
    converted = convert([config, SCHEMA])
    stream = spec_of(converted)["ingestion"]["stream"]
    assert "derivedColumns" not in stream
    assert stream["properties"] == {"bootstrap.servers": "kafka:9092", "security.protocol": "SASL_SSL"}
    assert any("Groovy" in note for note in converted.notes)
    assert any("sasl.jaas.config" in note and "secret" not in note.partition(": is")[0] for note in converted.notes)
    assert "password=secret" not in str(converted)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([OFFLINE], "give one schema"),
        ([SCHEMA], "give one schema"),
        ([SCHEMA, OFFLINE, OFFLINE], "not of one table"),
        ([SCHEMA, OFFLINE, {**REALTIME, "tableName": "others"}], "not of one table: others, rides"),
        ([SCHEMA, {"a": 1}], "neither a table config"),
        ([SCHEMA, {**OFFLINE, "segmentsConfig": []}], "segmentsConfig is no object"),
        ([SCHEMA, {**OFFLINE, "fieldConfigList": {}}], "fieldConfigList is no list"),
    ],
)
def test_documents_that_are_not_one_table_are_refused(documents: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        convert(documents)


def files(folder: Path, *documents: dict[str, Any]) -> list[str]:
    paths = [folder / f"{place}.json" for place in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    return [str(path) for path in paths]


def test_the_command_writes_manifests_that_can_be_applied(tmp_path: Path) -> None:
    out = tmp_path / "table.yaml"
    answer = CliRunner().invoke(app, ["import", *files(tmp_path, OFFLINE, SCHEMA), "-o", str(out)])
    assert answer.exit_code == 0, answer.output
    assert "2 manifests" in answer.output
    assert len(manifest.load(out.read_text())) == 2


def test_the_command_says_what_would_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**OFFLINE, "segmentsConfig": {**OFFLINE["segmentsConfig"], "timeColumnName": "tomorrow"}}
    assert run(["import", *files(tmp_path, wrong, SCHEMA)]) == 1
    printed = capsys.readouterr()
    assert "timeColumn: tomorrow" in printed.out
    assert "spec.timeColumn: timeColumn must be one of schema.fields" in printed.err
    assert "spec.timeColumn" in printed.err


def test_the_command_says_what_a_controller_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transforms = [{"columnName": "city", "transformFunction": "nosuch(ride)"}]
    wrong = {**REALTIME, "ingestionConfig": {"transformConfigs": transforms}}
    wrong["tableIndexConfig"] = without(REALTIME["tableIndexConfig"])
    wrong["tableIndexConfig"].pop("segmentPartitionConfig", None)
    assert run(["import", *files(tmp_path, wrong, SCHEMA)]) == 1
    printed = capsys.readouterr().err
    assert "the table declares no partitioning" in printed
    assert "spec.ingestion.stream.derivedColumns.city: not supported yet: function NOSUCH" in printed


def test_the_command_was_called_wrongly_if_a_file_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no json")
    for path in (tmp_path / "text", tmp_path / "nothing", tmp_path):
        assert run(["import", str(path)]) == 2


def test_the_command_says_why_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "nowhere" / "table.yaml"
    assert run(["import", *files(tmp_path, OFFLINE, SCHEMA), "-o", str(out)]) == 2
    assert capsys.readouterr().err == f"error: cannot write {out}: No such file or directory\n"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every member of a document, inner ones too."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in members:
        yield (*path, name)
        yield from _places(inner, (*path, name))


@pytest.mark.parametrize("document", [OFFLINE, REALTIME, SCHEMA], ids=["batches", "stream", "schema"])
def test_a_value_of_another_kind_is_refused_or_noted_wherever_it_stands(document: dict[str, Any]) -> None:
    odd = (None, 5, -1, 1e300, True, "x", "²", "1e400", "9" * 5000, "1d", [], {}, ["x"], [1], [{"name": 1}], {"a": {}})
    for path in list(_places(document)):
        for value in odd:
            changed = copy.deepcopy(document)
            inner: Any = changed
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = value
            others = [one for one in ([OFFLINE, SCHEMA] if document is SCHEMA else [SCHEMA]) if one is not document]
            with contextlib.suppress(InvalidInputError):
                found = convert([changed, *others])
                assert json.dumps(found.manifests, allow_nan=False), (path, value)


def _model(converted: Converted) -> Table:
    text = "\n---\n".join(map(json.dumps, converted.manifests))
    (table,) = manifest.load_tables(text)
    return table


def _half(half: dict[str, Any], table: Table) -> dict[str, Any]:
    """The config that a controller answers for the table made of it."""
    record = TableRecord(name=table.name, revision=1, manifest=manifest.dump(table))
    answered: dict[str, Any] = cluster_json.table_config(record, table.spec)[half["tableType"]]
    return answered


BATCHES = {
    **OFFLINE,
    "quota": {"maxQueriesPerSecond": "10"},
    "query": {"timeoutMs": 5000, "maxServerResponseSizeBytes": 1000000},
    "upsertConfig": {"mode": "NONE"},
}
DEDUP = {
    **without(REALTIME, "upsertConfig"),
    "dedupConfig": {"dedupEnabled": True, "dedupTimeColumn": "at", "metadataTTL": 60},
}
"""Of a stream, without repeated rows."""


@pytest.mark.parametrize("config", [BATCHES, REALTIME, DEDUP], ids=["batches", "upserts", "dedup"])
def test_what_a_controller_answers_makes_the_same_table_again(config: dict[str, Any]) -> None:
    made = _model(convert([SCHEMA, config]))
    again = _model(convert([SCHEMA, _half(config, made)]))
    assert _without_filter(again) == _without_filter(made)


@pytest.mark.parametrize("config", [BATCHES, REALTIME, DEDUP], ids=["batches", "upserts", "dedup"])
def test_what_is_taken_out_of_an_answer_is_taken_out_of_the_table(config: dict[str, Any]) -> None:
    made = _model(convert([SCHEMA, config]))
    answered = _half(config, made)
    before = convert([SCHEMA, answered])
    now = Converted((manifest.dump(made),), ())
    outer = ("tableIndexConfig", "query", "quota", "routing", "fieldConfigList", "ingestionConfig", "upsertConfig")
    places = [(name, inner) for name in outer for inner in answered.get(name, ()) if isinstance(inner, str)]
    num_changes = 0
    for name, inner in places:
        wanted = convert([SCHEMA, without(answered, f"{name}/{inner}")])
        if wanted.manifests[0] == before.manifests[0] or inner == "streamIngestionConfig":  # no table is without
            continue
        (changed, *_) = applied(now, before, wanted).manifests
        assert _without_filter(manifest.from_stored(changed)) == _without_filter(
            manifest.from_stored(wanted.manifests[0])
        ), inner
        num_changes += _without_filter(manifest.from_stored(changed)) != _without_filter(made)
    assert num_changes >= 2


def _without_filter(table: Table) -> dict[str, Any]:
    """Of a stream's filter, the negation of a negation is answered."""
    spec = table.spec.model_dump()
    if spec["ingestion"]["stream"]:
        spec["ingestion"]["stream"]["filter"] = None
    return spec

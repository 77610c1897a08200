"""A manifest is read whole or refused with every problem, each at its path."""

from pathlib import Path

import pytest

from merlot.spec import manifest
from merlot.spec.manifest import ManifestError
from merlot.spec.manifest.problems import PINOTS_NAMES
from merlot.spec.table import FieldRole, PushType, Table
from merlot.values.types import TypeName

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
GOOD = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata:
  name: trips
spec:
  schema:
    fields:
      - {name: city, type: STRING}
      - {name: tags, type: STRING, multiValue: true}
      - {name: fare, type: DOUBLE, role: metric}
      - {name: day, type: INT, role: dateTime, format: EPOCH|DAYS}
    primaryKey: [city]
  timeColumn: day
  retention: 30d
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        manifest.load(text)
    return [str(problem) for problem in caught.value.problems]


def good_with(lines: str) -> str:
    return GOOD + "".join(f"  {line}\n" for line in lines.splitlines())


def load_one(text: str) -> Table:
    [table] = manifest.load(text)
    return table


def test_manifest_is_read() -> None:
    table = load_one(GOOD)
    assert table.name == "trips_OFFLINE"
    assert table.spec.table_schema.names == ("city", "tags", "fare", "day")
    assert table.spec.retention_ms == 30 * 86_400_000
    assert table.spec.push_type is PushType.APPEND
    fare = table.spec.table_schema.field("fare")
    assert fare is not None
    assert (fare.type, fare.role, fare.default_value) == (TypeName.DOUBLE, FieldRole.METRIC, 0.0)
    assert table.spec.table_schema.field("nothing") is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("table.yaml")), ids=lambda path: path.parent.name)
def test_examples_are_valid(path: Path) -> None:
    assert load_one(path.read_text()).metadata.name == path.parent.name


def test_every_problem_is_named_with_its_path_and_line() -> None:
    text = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: 9trips}
spec:
  schema:
    fields:
      - {name: a, type: STRING}
      - {name: b, type: LNG}
      - {name: c, type: LONG, role: dateTime}
      - {name: d, type: BOOLEAN, role: metric, multiValue: true}
  replicaton: 2
  replication: many
  timeColumn: cc
  indexing: {inverted: [aa], sortedColumns: [d]}
"""
    with pytest.raises(ManifestError) as caught:
        manifest.load(text)
    found = sorted((problem.line or 0, str(problem)) for problem in caught.value.problems)
    assert found == [
        (
            3,
            (
                'metadata.name: "9trips" is not allowed; a name has letters, digits, underscores and dashes, '
                "a letter first"
            ),
        ),
        (8, 'spec.schema.fields[1].type: unknown type "LNG"; did you mean LONG?'),
        (
            9,
            (
                "spec.schema.fields[2].format: a dateTime column that is no TIMESTAMP needs a format, "
                "such as EPOCH|DAYS or SIMPLE_DATE_FORMAT|yyyyMMdd"
            ),
        ),
        (10, "spec.schema.fields[3].multiValue: only a dimension can be multi-valued"),
        (
            10,
            (
                "spec.schema.fields[3].role: a metric is one of INT, LONG, FLOAT, DOUBLE, BIG_DECIMAL, STRING, BYTES; "
                "make it a dimension"
            ),
        ),
        (11, "spec.replicaton: unknown field; did you mean replication?"),
        (12, 'spec.replication: must be a whole number, got "many"'),
        (13, "spec.timeColumn: timeColumn must be one of schema.fields, with role: dateTime"),
        (14, 'spec.indexing.inverted[0]: no column "aa" in spec.schema.fields; did you mean a?'),
        (14, 'spec.indexing.sortedColumns[0]: column "d" is multi-valued and has no order'),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("upsert: {}", "spec.upsert: write configRef, or config: one of the two"),
        (
            "routing: {segmentPruners: [tmie]}",
            (
                "spec.routing.segmentPruners[0]: unknown segment pruner; one of empty, time, range, partition, bloom, "
                "or a package's, which has a dot in its name; did you mean time?"
            ),
        ),
        (
            "deepStore: {uri: 'hdfs://h/p', secretRef: merlot-keys}",
            "spec.deepStore.secretRef: only a deep store of s3 takes a Secret; others have the credentials of their",
        ),
        (
            "deepStore: {uri: 'gs://b/p', secretRef: merlot-keys}",
            "spec.deepStore.secretRef: only a deep store of s3 takes a Secret; others have the credentials of their",
        ),
        (
            "routing: {segmentPruners: [partition]}",
            "spec.routing.segmentPruners[0]: the pruner partition needs spec.partitioning",
        ),
        (
            "routing: {segmentPruners: [acme.geo]}",
            'spec.routing.segmentPruners[0]: unknown segment pruner "acme.geo"; no installed package offers it',
        ),
        (
            "pushType: REFRESH",
            "spec.retention: a REFRESH table is replaced as a whole; remove retention or use APPEND",
        ),
        ("pushType: append", 'spec.pushType: unknown pushType "append"; did you mean APPEND?'),
        (
            "indexing: {noDictionary: [fare], inverted: [fare]}",
            (
                "spec.indexing.inverted[0]: an inverted index needs a dictionary; "
                'take "fare" out of here, or out of the raw columns'
            ),
        ),
        (
            "indexing: {noDictionary: [fare], encodings: {fare: DICTIONARY}}",
            'spec.indexing.encodings.fare: DICTIONARY contradicts spec.indexing.noDictionary, which also names "fare"',
        ),
        (
            "indexing: {encodings: {city: DICTIONARY}, compression: {city: ZSTD}}",
            (
                "spec.indexing.compression.city: only raw columns are compressed; "
                "write encodings: {city: RAW}, or remove it"
            ),
        ),
        ("indexing: {compression: {city: GZIP}}", 'unknown city "GZIP"; one of NONE, LZ4, ZSTD'),
        ("indexing: {inverted: [city, city]}", 'spec.indexing.inverted[1]: "city" is named twice; keep one'),
        (
            "partitioning: {columns: {tags: {functionName: Murmur, numPartitions: 4}}}",
            'spec.partitioning.columns.tags: column "tags" is multi-valued; a partition needs one value per row',
        ),
        (
            "partitioning: {columns: {fare: {functionName: Murmur, numPartitions: 4}}}",
            'spec.partitioning.columns.fare: column "fare" is DOUBLE; partition by an exact type',
        ),
        (
            "partitioning: {columns: {city: {functionName: Murmr, numPartitions: 4}}}",
            (
                "spec.partitioning.columns.city: unknown partition function 'Murmr'; one of "
                "Modulo, Murmur, Murmur2, Murmur3, HashCode, ByteArray, FNV, BoundedColumnValue"
            ),
        ),
        (
            "partitioning: {columns: {city: {functionName: Murmur, numPartitions: 0}}}",
            "spec.partitioning.columns.city.numPartitions: must be at least 1, got 0",
        ),
        (
            "ingestion: {batch: [{sourceUri: 'ftp://x/y', format: CSV}]}",
            'unknown scheme "ftp"; write s3://, gs://, abfss://, hdfs://, file:// or a path',
        ),
        (
            "ingestion: {batch: [{sourceUri: /x, format: PARQUET, csv: {}}]}",
            "spec.ingestion.batch[0].csv: csv goes with format: CSV only; remove it, or write format: CSV",
        ),
        (
            "ingestion: {batch: [{sourceUri: /x, format: ORC, derivedColumns: {cty: upper(city)}}]}",
            'spec.ingestion.batch[0].derivedColumns.cty: no column "cty" in spec.schema.fields; did you mean city?',
        ),
        (
            "ingestion: {batch: [{sourceUri: /x, format: ORC}, {sourceUri: /y, format: ORC}]}",
            'spec.ingestion.batch[1].name: two sources are named "default"; give each its own name',
        ),
        (
            "deepStore: {uri: /segments}",
            "spec.deepStore.uri: a deep store is s3://bucket/path, gs://bucket/path, hdfs://host/path or file:///path",
        ),
        ("deepStore: {uri: 's3:///x'}", "spec.deepStore.uri: 's3:///x' names no bucket or host"),
        (
            "tenants: {server: {resources: {requests: {memory: 4 GB}}}}",
            '.server.resources.requests.memory: "4 GB" is not allowed; write a quantity such as 2, 500m or 4Gi',
        ),
        ("limits: {timeoutMs: -1}", "spec.limits.timeoutMs: must be at least 1, got -1"),
        ("limits: 3", "spec.limits: must be a mapping, got 3"),
    ],
)
def test_problem_says_what_would_be_right(lines: str, expected: str) -> None:
    [problem] = problems_of(good_with(lines))
    assert expected in problem


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: trips", "name: trips_OFFLINE", 'metadata.name: "_OFFLINE" is added by the cluster; write trips'),
        ("name: trips", "name: trips_offline", 'metadata.name: "_OFFLINE" is added by the cluster; write trips'),
        ("kind: Table", "kind: Tabel", 'kind: unknown kind "Tabel"; did you mean Table?'),
        ("  name: trips", "  nam: trips", "metadata.name: is missing"),
        (
            "timeColumn: day",
            "timeColumn: city",
            "spec.timeColumn: timeColumn must be one of schema.fields, with role: dateTime",
        ),
        ("  timeColumn: day\n", "", "spec.retention: retention needs timeColumn, which tells how old a segment is"),
        (
            "primaryKey: [city]",
            "primaryKey: [tags]",
            'spec.schema.primaryKey[0]: column "tags" is multi-valued; a key has one value per row',
        ),
        (
            "name: fare",
            "name: City",
            'spec.schema.fields[2].name: column "City" differs from "city" in case only; SQL would mix them up',
        ),
        ("name: fare", "name: city", 'spec.schema.fields[2].name: column "city" is declared twice; keep one'),
        ("name: fare", "name: true", "spec.schema.fields[2].name: must be text (put it in quotes), got true"),
        (
            "type: DOUBLE",
            "type: UNKNOWN",
            (
                "spec.schema.fields[2].type: a column cannot be UNKNOWN; one of INT, LONG, FLOAT, DOUBLE, BIG_DECIMAL, "
                "BOOLEAN, TIMESTAMP, STRING, JSON, BYTES"
            ),
        ),
        (
            "type: DOUBLE",
            "type: DOUBLE, defaultNullValue: none",
            "spec.schema.fields[2].defaultNullValue: 'none' is no DOUBLE; write a number, or '-Infinity' in quotes",
        ),
        (
            "type: DOUBLE",
            "type: DOUBLE, format: TIMESTAMP",
            "spec.schema.fields[2].format: only a dateTime column has a format; set role: dateTime or remove it",
        ),
        (
            "type: DOUBLE",
            "type: DOUBLE, maxLength: 5",
            "spec.schema.fields[2].maxLength: only STRING, BYTES and JSON have a length; remove it",
        ),
        (
            "EPOCH|DAYS",
            "EPOCH|DAY",
            (
                "spec.schema.fields[3].format: unknown unit 'DAY' in 'EPOCH|DAY'; "
                "one of NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS"
            ),
        ),
        (
            "retention: 30d",
            "retention: 30 days",
            'spec.retention: "30 days" is not allowed; write a duration such as 30d, 12h, 90m, 45s or 2w',
        ),
        ("retention: 30d", "retention: 30d\n  retention: 40d", "spec.retention: is written twice; keep one"),
    ],
)
def test_wrong_edit_is_named(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert any(expected in problem for problem in problems_of(GOOD.replace(old, new, 1)))


def test_several_documents_are_read_and_their_problems_numbered() -> None:
    other = GOOD.replace("name: trips", "name: rides")
    assert [table.metadata.name for table in manifest.load(f"---\n{GOOD}---\n{other}---\n")] == ["trips", "rides"]
    wrong = other.replace("DOUBLE", "DUBLE")
    assert problems_of(f"{GOOD}---\n{wrong}") == [
        'document 2: spec.schema.fields[2].type: unknown type "DUBLE"; did you mean DOUBLE?'
    ]
    assert problems_of(f"{GOOD}---\n{GOOD}") == ["metadata.name: table 'trips' is declared 2 times; keep one"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the manifest is empty; write a document with kind: Table"),
        ("# nothing\n---\n", "the manifest is empty; write a document with kind: Table"),
        ("[1, 2]", "a manifest is a mapping with apiVersion, kind, metadata and spec"),
        ("a: [1\n", "expected ',' or ']'"),
        ("a: !!python/object:os.system x", "not YAML: could not determine a constructor for the tag"),
        ("a: &x [*x]", "not YAML: more than 50 levels"),
        ("[" * 900, "not YAML: more than 50 levels"),
        ("[" * 100_000, "not YAML: "),  # libyaml has a bound of its own from 0.2.6 on, and words of its own
        ("a: [" + "1," * 1_000_000, "100,000 values"),
        ("a: 1\n---\n" * 200_000, "100,000 values"),
        ("a: !!int ''", "a value is not what its tag says"),
        ("a: !!bool x", "a value is not what its tag says"),
        ("a: !!timestamp x", "a value is not what its tag says"),
        ("a: 0x" + "f" * 5_000, "a number has 5002 characters"),
        ("a: " + "9" * 5_000, "a number has 5000 characters"),
        ("\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]" for n in range(9)), "100,000 values"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, expected: str) -> None:
    assert expected in problems_of(text)[0]


def test_dates_stay_text() -> None:
    text = GOOD.replace("{name: city, type: STRING}", "{name: city, type: STRING, defaultNullValue: 2013-01-01}")
    city = load_one(text).spec.table_schema.field("city")
    assert city is not None
    assert city.default_value == "2013-01-01"


def test_what_kubectl_prints_can_be_applied_again() -> None:
    printed = GOOD.replace("  name: trips", "  name: trips\n  uid: 1-2\n  generation: 3\n  managedFields: []")
    assert load_one(printed + "status: {segments: 3}\n") == load_one(GOOD)


def test_null_is_the_same_as_nothing() -> None:
    assert load_one(good_with("replication:\nlimits: {maxRows: ~}")) == load_one(GOOD)


def test_snake_case_is_not_accepted_in_manifests() -> None:
    assert problems_of(good_with("push_type: APPEND")) == ["spec.push_type: unknown field; did you mean pushType?"]


def test_stored_table_reads_back_and_survives_fields_of_a_newer_version() -> None:
    table = load_one(GOOD)
    document = manifest.dump(table)
    assert manifest.from_stored(document) == table
    document["spec"]["fromTheFuture"] = {"a": 1}
    document["spec"]["schema"]["fields"][0]["alsoNew"] = True
    assert manifest.from_stored(document) == table
    assert manifest.load_document(manifest.dump(table)) == table


def test_stored_nonsense_is_refused() -> None:
    with pytest.raises(ManifestError, match="spec: is missing"):
        manifest.from_stored({"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": "x"}})


def test_a_table_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_one(GOOD).spec.replication = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{mode: FULL, metadataTTL: 5}", "metadataTTL: unknown field; it is called primaryKeyTtl here"),
        ("{mode: NONE}", 'mode: unknown mode "NONE"; a table without spec.upsert has none'),
        ("{mode: FULL, primaryKeyTtl: 86400}", "primaryKeyTtl: must be text (put it in quotes), got 86400"),
        ("{mode: FULL, enableSnapshot: true}", "enableSnapshot: unknown field; write snapshot: ENABLE"),
    ],
)
def test_pinots_words_for_upserts_are_answered_with_ours(config: str, problem: str) -> None:
    [found] = problems_of(good_with(f"upsert: {{config: {config}}}"))
    assert found.partition("spec.upsert.config.")[2] == problem


def test_every_name_of_pinots_that_is_answered_is_none_of_ours() -> None:
    for name, hint in PINOTS_NAMES.items():
        [found] = problems_of(good_with(f"{name}: 1"))
        assert found.endswith(f"spec.{name}: unknown field{hint}")


ROLLUP = """\
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: trips}
spec:
  table: trips
  levels: [{name: daily, bucketTimePeriod: 1d, bufferTimePeriod: soon}]
"""
STAR_TREE = "indexing: {{starTreeIndexConfigs: [{{dimensionsSplitOrder: [{order}], functionColumnPairs: [{pairs}]}}]}}"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (GOOD.replace("type: DOUBLE, role", "tipe: DOUBLE, type: DOUBLE, role"), "spec.schema.fields[2].tipe"),
        (
            f"{GOOD[: GOOD.index('    fields:')]}    fields: [{{name: a, type: LNG}}]\n",
            "spec.schema.fields[0].type",
        ),
        (ROLLUP, "spec.levels[0].bufferTimePeriod"),
        (
            good_with(STAR_TREE.format(order="1", pairs="COUNT__*")),
            "spec.indexing.starTreeIndexConfigs[0].dimensionsSplitOrder[0]",
        ),
        (
            good_with(STAR_TREE.format(order="city", pairs="1")),
            "spec.indexing.starTreeIndexConfigs[0].functionColumnPairs[0]",
        ),
        (
            good_with("partitioning: {columns: {city: {functionName: Murmur, numPartitions: many}}}"),
            "spec.partitioning.columns.city.numPartitions",
        ),
    ],
)
def test_a_wrong_item_is_one_problem_and_not_a_list_that_is_too_short(text: str, path: str) -> None:
    [problem] = problems_of(text)
    assert path in problem


def test_an_empty_list_is_too_short() -> None:
    [problem] = problems_of(ROLLUP.replace("[{name: daily, bucketTimePeriod: 1d, bufferTimePeriod: soon}]", "[]"))
    assert "spec.levels: must hold at least 1, got a list" in problem

"""UpsertConfigs: every problem at once, and what a table says against them."""

from pathlib import Path

import pytest

from merlot.spec import manifest
from merlot.spec.manifest import ManifestError
from merlot.spec.manifest.upsert_checks import against_table
from merlot.spec.upsert import UpsertConfig

ROOT = Path(__file__).resolve().parents[3]
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  timeColumn: at
  schema:
    primaryKey: [id]
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: id, type: LONG}
      - {name: version, type: LONG}
      - {name: city, type: STRING}
      - {name: gone, type: BOOLEAN}
      - {name: tags, type: STRING, multiValue: true}
"""


def config(spec: str) -> UpsertConfig:
    text = f"apiVersion: merlot.dev/v1alpha1\nkind: UpsertConfig\nmetadata: {{name: latest}}\nspec: {{{spec}}}\n"
    [found] = manifest.load(text)
    assert isinstance(found, UpsertConfig)
    return found


def problems(spec: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        config(spec)
    return [str(problem) for problem in caught.value.problems]


def against(spec: str) -> list[str]:
    [table] = manifest.load_tables(TABLE)
    return [str(problem) for problem in against_table(config(spec).spec, table.spec)]


def test_the_example_fits_its_table() -> None:
    folder = ROOT / "examples" / "orders"
    [found] = manifest.load((folder / "upsert.yaml").read_text())
    [table] = manifest.load_tables((folder / "table.yaml").read_text())
    assert isinstance(found, UpsertConfig)
    assert against_table(found.spec, table.spec) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mode: FULL, primaryKeyTtl: 0d", 'spec.primaryKeyTtl: "0d" is no time at all'),
        ("mode: FULL, primaryKeyTtl: 1 day", 'spec.primaryKeyTtl: "1 day" is not allowed; write a duration'),
        ("mode: FULL, primaryKeyTtl: 1d, snapshot: DISABLE", "spec.snapshot: primaryKeyTtl needs snapshots"),
        ("mode: FULL, primaryKeyTtl: 1d, comparisonColumns: [a, b]", "spec.primaryKeyTtl: needs one comparison column"),
        ("mode: FULL, deletedKeysTtl: 1d", "spec.deletedKeysTtl: needs deleteRecordColumn"),
        ("mode: FULL, skipLateEvents: true", "spec.skipLateEvents: needs primaryKeyTtl"),
        ("mode: FULL, pruning: ROTATION", "spec.pruning: needs primaryKeyTtl"),
        ("mode: FULL, pruningInterval: 1h", "spec.pruningInterval: only pruning: SCAN"),
        ("mode: FULL, partialUpsertStrategies: {a: MAX}", "spec.partialUpsertStrategies: FULL replaces whole rows"),
        (
            "mode: PARTIAL, comparisonColumns: [a], partialUpsertStrategies: {a: MAX}",
            "spec.partialUpsertStrategies.a: a comparison column is never merged",
        ),
        (
            "mode: FULL, dropOutOfOrderRecord: true, outOfOrderRecordColumn: late",
            "spec.outOfOrderRecordColumn: rows out of order are dropped",
        ),
        (
            "mode: FULL, consistencyMode: SYNC, newSegmentTrackingTimeMs: 0",
            "spec.newSegmentTrackingTimeMs: consistencyMode SYNC needs more than 0",
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
        ("mode: FULL, comparisonColumns: [tags]", 'spec.comparisonColumns[0]: "tags" is multi-valued'),
        (
            "mode: FULL, comparisonColumns: [version], primaryKeyTtl: 1d",
            'spec.primaryKeyTtl: the comparison column "version" is no time; write a bare number',
        ),
        (
            "mode: FULL, comparisonColumns: [city], primaryKeyTtl: 1d",
            'spec.primaryKeyTtl: the comparison column "city" is STRING',
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

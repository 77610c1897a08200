"""Whatever a manifest's text is, it is read or refused with problems."""

from __future__ import annotations

import contextlib

from tests.fuzz.fuzzing import cases, spoiled_text

from merlot.spec import manifest
from merlot.spec.manifest import ManifestError

FULL = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips, labels: {a: b}, annotations: &all {x: "y"}}
spec:
  schema:
    fields:
      - {name: city, type: STRING, defaultNullValue: x, maxLength: 3}
      - {name: tags, type: STRING, multiValue: true}
      - {name: fare, type: DOUBLE, role: metric, description: d}
      - name: day
        type: INT
        role: dateTime
        format: EPOCH|DAYS
        granularity: DAYS|1
    primaryKey: [city]
  timeColumn: day
  retention: 30d
  replication: 2
  indexing: {sortedColumns: [day], inverted: [city], noDictionary: [fare]}
  partitioning:
    columns: {city: {functionName: Murmur3, numPartitions: 4, functionConfig: {seed: '1'}}}
  routing: {instanceSelector: balanced, segmentPruners: [time, bloom]}
  ingestion:
    batch:
      - name: files
        sourceUri: s3://b/x
        format: CSV
        filter: >-
          city <> ''
        derivedColumns: {day: 'f(x)'}
        maxBadRowShare: 0.5
  limits: {timeoutMs: 1000, maxRows: 1_000, maxGroups: 0x10, maxBytes: 1e9}
---
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: trips}
spec:
  table: trips
  schedule: "0 * * * *"
  levels:
    - {name: day, bucketTimePeriod: 1d, bufferTimePeriod: 2d, mergeType: rollup, roundBucketTimePeriod: 1d}
"""
WORDS = (
    *(
        "&a ",
        "*a",
        "*all",
        "<<: *all",
        "? ",
        "- ",
        ": ",
        ":",
        "---\n",
        "...\n",
        "!!int ",
        "!!binary ",
        "!x ",
        "%YAML 1.1\n",
        "#",
    ),
    *(
        "|\n",
        ">-\n  ",
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        ",",
        "~",
        "null",
        ".nan",
        "-.inf",
        "0x" + "f" * 5000,
        "9" * 4400,
        "1e999",
    ),
    *(
        "2013-01-01",
        "yes",
        "\t",
        "\r",
        "\ufeff",
        "\u2028",
        "\0",
        "\\x00",
        "\\ud800",
        "\ud800",
        "1:30",
        "0b1",
        "-0",
        "=",
        "@",
        "`",
    ),
    *("spec:", "name:", "type: STRING", "\n", "\n  ", "\n    ", " " * 300, "[" * 60, "{a: " * 60, "x" * 5000),
)


def test_a_manifest_is_read_or_refused() -> None:
    kept = [FULL] * 20
    for rng in cases("manifest", quick=150, every=750):
        text = spoiled_text(rng, rng.choice(kept), WORDS)
        if rng.random() < 0.2:
            kept[rng.randrange(len(kept))] = text[:10_000]
        with contextlib.suppress(ManifestError):
            try:
                manifest.load(text)
            except (Exception, RecursionError) as error:
                if not isinstance(error, ManifestError):
                    print(repr(text))
                raise

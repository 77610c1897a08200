"""Whatever is written, a manifest is read or refused with problems: it never fails in another way."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import count, examples

from merlot.spec import manifest
from merlot.spec.manifest import ManifestError, ManifestProblem

FULL = yaml.safe_load("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips, labels: {a: b}}
spec:
  schema:
    fields:
      - {name: city, type: STRING, defaultNullValue: x, maxLength: 3}
      - {name: tags, type: STRING, multiValue: true}
      - {name: fare, type: DOUBLE, role: metric, description: d}
      - {name: day, type: INT, role: dateTime, format: EPOCH|DAYS, granularity: DAYS|1}
    primaryKey: [city]
  timeColumn: day
  retention: 30d
  replication: 2
  indexing:
    sortedColumns: [day]
    inverted: [city]
    noDictionary: [fare]
    encodings: {tags: DICTIONARY}
    compression: {fare: LZ4}
  partitioning:
    columns: {city: {functionName: Murmur3, numPartitions: 4, functionConfig: {seed: '1'}}}
    enforce: assert
  routing: {instanceSelector: balanced, segmentPruners: []}
  ingestion:
    batch:
      - name: files
        sourceUri: s3://b/x
        format: CSV
        csv: {header: true, delimiter: ';', nullValue: NA}
        filter: city <> ''
        derivedColumns: {day: 'f(x)'}
        maxBadRowShare: 0.5
  limits: {timeoutMs: 1, maxRows: 1, maxGroups: 1, maxBytes: 1}
  tenants:
    server: {name: big, replicas: 2, resources: {requests: {cpu: 2, memory: 4Gi}, limits: {cpu: 500m}, storage: 1Ti}}
  deepStore: {uri: 's3://b/x'}
  suspend: true
""")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["city", "tags", "day", "nothing", "DOUBLE", "UNKNOWN", "dateTime", "RAW", "EPOCH|DAYS", "30d", "://["]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in items for found in [(*path, key), *places(one, (*path, key))]]


PLACES = places(FULL)


def problems_of(document: object) -> tuple[ManifestProblem, ...] | None:
    """What is wrong, or None if nothing is; then the table reads back from its stored form."""
    try:
        table = manifest.load_document(document)
    except ManifestError as error:
        return error.problems
    assert manifest.from_stored(manifest.dump(table)) == table
    return None


def check(document: object) -> None:
    found = problems_of(document)
    assert found is None or found
    assert all(problem.message and "\n" not in problem.message for problem in found or ())


def test_full_manifest_is_good() -> None:
    manifest.load_document(FULL)


def set_value(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set the value at a path, if an earlier edit has left the path there."""
    *parents, last = path
    for key in parents:
        if not isinstance(document, dict | list) or key not in (
            document if isinstance(document, dict) else range(len(document))
        ):
            return
        document = document[key]
    if isinstance(document, dict) or (isinstance(document, list) and last in range(len(document))):
        document[last] = value


@settings(max_examples=count("MERLOT_EDITS", quick=60, every=300, fuzz=10_000))
@given(edits=st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3))
def test_any_edit_is_read_or_refused(edits: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = copy.deepcopy(FULL)
    for path, value in edits:
        set_value(document, path, value)
    check(document)


@settings(max_examples=examples(100))
@given(document=values)
def test_any_value_is_refused(document: object) -> None:
    assert problems_of(document)


@settings(max_examples=examples(200))
@given(text=st.text(alphabet=st.sampled_from(list("ab:{}[]-,&*!|>'\"#? \n\t0%@`")), max_size=60))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        manifest.load(text)

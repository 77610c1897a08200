"""A real API server takes MergeRollupTasks and UpsertConfigs, and refuses wrong ones as `merlot apply` does."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.operator_parts import Api

from merlot.spec import manifest
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
ROLLUP = ROOT / "examples" / "orders" / "rollup.yaml"
UPSERT = ROOT / "examples" / "orders" / "upsert.yaml"
UPSERTS = sorted(ROOT.glob("examples/*/upsert.yaml"))
ROLLUPS = [path for path in sorted(ROOT.glob("examples/*/*.yaml")) if "kind: MergeRollupTask" in path.read_text()]


@pytest.fixture
def within(merlot_api: Any, api: Api) -> Any:
    """kubectl in the namespace of the test."""
    return merlot_api.within(api.namespace)


def refusal(api: Api, text: str) -> str:
    """What the API server says against a manifest, of a new object or of one that is there."""
    body = yaml.safe_load(text)
    plural = f"{body['kind'].lower()}s"
    there = api.get(plural, body["metadata"]["name"]) is not None
    return api.change_refusal(plural, body) if there else api.refusal(plural, body)


def edited(path: Path, *edits: tuple[str, str]) -> str:
    text = path.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("path", [*ROLLUPS, *UPSERTS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_example_is_accepted_and_means_the_same(within: Any, path: Path) -> None:
    within.check("apply", "-f", path)
    [declared] = manifest.load(path.read_text())
    kind = "rollup" if isinstance(declared, MergeRollupTask) else "upsert"
    stored = json.loads(within.check("get", f"{kind}/{declared.metadata.name}", "-o", "json"))
    assert manifest.load_document(stored, type(declared)).spec == declared.spec
    assert f"/{declared.metadata.name}" in within.check("get", "merlot", "-o", "name")


def test_columns_show_how_far_merges_are(within: Any) -> None:
    within.check("apply", "-f", ROLLUP)
    status = {
        "level": "monthly",
        "watermark": "2026-01-01T00:00:00Z",
        "delay": 3,
        "state": "Running",
        "lastRun": "2026-01-01T00:00:00Z",
        "levels": [{"name": "daily", "delay": 0}, {"name": "monthly", "delay": 3, "bucketsToDo": 3}],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
    patch = json.dumps({"status": status})
    within.check("patch", "rollup/orders-merge", "--subresource=status", "--type=merge", "-p", patch)
    header, row = within.check("get", "rollups").splitlines()
    assert header.split() == ["NAME", "TABLE", "LEVEL", "WATERMARK", "DELAY", "STATE", "LAST-RUN", "AGE"]
    assert row.split()[:6] == ["orders-merge", "orders", "monthly", "2026-01-01T00:00:00Z", "3", "Running"]


WRONG_ROLLUPS = [
    (("table: orders #", "table: orders_OFFLINE #"), "_OFFLINE and _REALTIME are added by the cluster"),
    (("name: monthly", "name: Daily"), "two levels have the same name"),
    (("bucketTimePeriod: 1mo", "bucketTimePeriod: 12h"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 7d"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 2mo"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 0d"), "0 is no time at all"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 1y"), "should match"),
    (("bucketTimePeriod: 1d\n", "\n"), "spec.levels[0].bucketTimePeriod: Required value"),
    (("bufferTimePeriod: 7d", "bufferTimePeriod: 12h"), "is not less than those of the finer levels"),
    (("roundBucketTimePeriod: 1d", "roundBucketTimePeriod: 2d"), "whole multiple of roundBucketTimePeriod"),
    (("roundBucketTimePeriod: 1d", "roundBucketTimePeriod: 0h"), "0 is no time at all"),
    (("mergeType: rollup", "mergeType: concat"), "concat compares no rows"),
    (("mergeType: rollup", "mergeType: rollupp"), 'Unsupported value: "rollupp"'),
    (("mergeType: rollup", "mergeType: dedup"), "no level rolls up"),
    (("[tags, details]", "[tags, tags]"), "Duplicate value"),
    (("aggregationType: sum", "aggregationType: median"), 'Unsupported value: "median"'),
    (("maxNumRecordsPerTask: 50000000", "maxNumRecordsPerTask: 0"), "should be greater than or equal to 1000"),
    (("schedule: 10m", "schedule: 0 0 3 * * ?"), "or cron of five fields"),
    (("schedule: 10m", "schedule: 0m"), "or cron of five fields"),
    (("executor: minion", "executor: flink"), 'Unsupported value: "flink"'),
    (("suspend: false", "suspended: false"), 'unknown field "spec.suspended"'),
]


def test_a_level_rounds_to_multiples_of_what_the_one_before_it_did(api: Api) -> None:
    text = edited(
        ROLLUP,
        ("bucketTimePeriod: 1d", "bucketTimePeriod: 1d\n      roundBucketTimePeriod: 12h"),
        ("roundBucketTimePeriod: 1d", "roundBucketTimePeriod: 8h"),
    )
    refused = refusal(api, text)
    assert "each roundBucketTimePeriod is a whole multiple of those of the finer levels before it" in refused
    assert refusal(api, text.replace("8h", "1d")) == ""


@pytest.mark.parametrize(("edit", "message"), WRONG_ROLLUPS)
def test_wrong_rollup_is_refused(api: Api, edit: tuple[str, str], message: str) -> None:
    refused = refusal(api, edited(ROLLUP, edit))
    assert message in refused
    with pytest.raises(manifest.ManifestError):
        manifest.load(edited(ROLLUP, edit))


def test_the_table_of_a_rollup_cannot_change(api: Api) -> None:
    api.create("mergerolluptasks", yaml.safe_load(ROLLUP.read_text()))
    refused = refusal(api, edited(ROLLUP, ("table: orders #", "table: trips #")))
    assert "table cannot change" in refused
    again = edited(ROLLUP, ("bufferTimePeriod: 7d", "bufferTimePeriod: 8d"))
    assert refusal(api, again) == ""


WRONG_UPSERTS = [
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 0d"), "a TTL is more than 0"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30 days"), "should match"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  preload: ENABLE"), 'unknown field "spec.preload"'),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  compaction: {}"), "compaction with a TTL needs snapshot"),
    (("[ordered_ms]", "[ordered_ms, order_id]"), "a TTL needs one comparison column"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  deletedKeysTtl: 7d"), "deletedKeysTtl needs deleteRecordColumn"),
    (("primaryKeyTtl: 30d\n  skipLateEvents: false", "skipLateEvents: true"), "skipLateEvents needs primaryKeyTtl"),
    (("primaryKeyTtl: 30d\n  skipLateEvents: false", "pruningInterval: 1h"), "only pruning: SCAN has an interval"),
    (("pruning: COMMIT", "pruning: SWEEP"), 'Unsupported value: "SWEEP"'),
    (("mode: FULL", "partialUpsertStrategies: {tags: UNION}\n  mode: FULL"), "only mode: PARTIAL merges columns"),
    (("mode: FULL", "partialUpsertStrategies: {tags: ADD}\n  mode: PARTIAL"), "should match"),
    (("mode: FULL", "mode: DEDUP\n  deleteRecordColumn: paid"), "mode DEDUP keeps the first row of a key"),
    (("mode: FULL", "mode: FULL\n  hashFunction: MD5"), 'unknown field "spec.hashFunction"'),
    (("mode: FULL", "mode: FULL\n  maxFutureSkew: 1h"), "maxFutureSkew and messageTimeColumn go together"),
    (
        ("mode: FULL", "mode: FULL\n  maxFutureSkew: 1h\n  messageTimeColumn: sent\n  dropOutOfOrderRecord: true"),
        "maxFutureSkew does not go with dropOutOfOrderRecord",
    ),
    (("mode: FULL", "modus: FULL"), 'unknown field "spec.modus"'),
    (
        ("mode: FULL", "partialUpsertStrategies: {ordered_ms: MAX}\n  mode: PARTIAL"),
        "a comparison column is never merged",
    ),
    (
        ("pruning: COMMIT", "dropOutOfOrderRecord: true\n  outOfOrderRecordColumn: paid\n  pruning: COMMIT"),
        "rows out of order are dropped",
    ),
]


@pytest.mark.parametrize(("edit", "message"), WRONG_UPSERTS)
def test_wrong_upsert_config_is_refused(api: Api, edit: tuple[str, str], message: str) -> None:
    refused = refusal(api, edited(UPSERT, edit))
    assert message in refused
    with pytest.raises(manifest.ManifestError):
        manifest.load(edited(UPSERT, edit))


def test_ttl_of_a_column_that_is_no_time_is_a_bare_number(api: Api) -> None:
    text = edited(UPSERT, ("primaryKeyTtl: 30d", 'primaryKeyTtl: "1000"'))
    assert refusal(api, text) == ""
    [declared] = manifest.load(text)
    assert isinstance(declared, UpsertConfig)
    assert declared.spec.primary_key_ttl == "1000"

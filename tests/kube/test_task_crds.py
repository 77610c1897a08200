"""A real API server takes MergeRollupTasks and UpsertConfigs, and refuses wrong ones as `merlot apply` does."""

import json
from pathlib import Path
from typing import Any

import pytest

from merlot.spec import manifest
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
ROLLUP = ROOT / "examples" / "orders" / "rollup.yaml"
UPSERT = ROOT / "examples" / "orders" / "upsert.yaml"
UPSERTS = sorted(ROOT.glob("examples/*/upsert.yaml"))
ROLLUPS = [path for path in sorted(ROOT.glob("examples/*/*.yaml")) if "kind: MergeRollupTask" in path.read_text()]


@pytest.fixture(scope="module")
def server(kubectl: Any) -> Any:
    """An API server that knows both kinds."""
    for name, plural in (("mergerolluptask", "mergerolluptasks"), ("upsertconfig", "upsertconfigs")):
        kubectl.check("apply", "-f", ROOT / "crds" / f"{name}.yaml")
        kubectl.check("wait", "--for=condition=Established", "--timeout=30s", f"crd/{plural}.merlot.dev")
        definition = json.loads(kubectl.check("get", f"crd/{plural}.merlot.dev", "-o", "json"))
        assert "NonStructuralSchema" not in {one["type"] for one in definition["status"]["conditions"]}
    return kubectl


def edited(path: Path, *edits: tuple[str, str]) -> str:
    text = path.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("path", [*ROLLUPS, *UPSERTS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_example_is_accepted_and_means_the_same(server: Any, path: Path) -> None:
    server.check("apply", "-f", path)
    [declared] = manifest.load(path.read_text())
    kind = "rollup" if isinstance(declared, MergeRollupTask) else "upsert"
    stored = json.loads(server.check("get", f"{kind}/{declared.metadata.name}", "-o", "json"))
    assert manifest.load_document(stored, type(declared)).spec == declared.spec
    assert f"/{declared.metadata.name}" in server.check("get", "merlot", "-o", "name")
    server.check("delete", "-f", path)


def test_columns_show_how_far_merges_are(server: Any) -> None:
    server.check("apply", "-f", ROLLUP)
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
    server.check("patch", "rollup/orders-merge", "--subresource=status", "--type=merge", "-p", patch)
    header, row = server.check("get", "rollups").splitlines()
    assert header.split() == ["NAME", "TABLE", "LEVEL", "WATERMARK", "DELAY", "STATE", "LAST-RUN", "AGE"]
    assert row.split()[:6] == ["orders-merge", "orders", "monthly", "2026-01-01T00:00:00Z", "3", "Running"]
    server.check("delete", "-f", ROLLUP)


WRONG_ROLLUPS = [
    (("table: orders #", "table: orders_OFFLINE #"), "_OFFLINE and _REALTIME are added by the cluster"),
    (("name: monthly", "name: Daily"), "two levels have the same name"),
    (("bucketTimePeriod: 1mo", "bucketTimePeriod: 12h"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 7d"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 2mo"), "each bucketTimePeriod is a whole multiple"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 0d"), "0 is no time at all"),
    (("bucketTimePeriod: 1d", "bucketTimePeriod: 1y"), "should match"),
    (("bucketTimePeriod: 1d\n", "\n"), "spec.levels[0].bucketTimePeriod: Required value"),
    (("bufferTimePeriod: 7d", "bufferTimePeriod: 12h"), "is not less than that of the finer level"),
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


def test_a_level_rounds_to_multiples_of_what_the_one_before_it_did(server: Any) -> None:
    text = edited(
        ROLLUP,
        ("bucketTimePeriod: 1d", "bucketTimePeriod: 1d\n      roundBucketTimePeriod: 12h"),
        ("roundBucketTimePeriod: 1d", "roundBucketTimePeriod: 8h"),
    )
    refused = server("apply", "--dry-run=server", "-f", "-", text=text)
    assert refused.returncode != 0
    assert "each roundBucketTimePeriod is a whole multiple of the one of the finer level before it" in refused.stderr
    server.check("apply", "--dry-run=server", "-f", "-", text=text.replace("8h", "1d"))


@pytest.mark.parametrize(("edit", "message"), WRONG_ROLLUPS)
def test_wrong_rollup_is_refused(server: Any, edit: tuple[str, str], message: str) -> None:
    refused = server("apply", "--dry-run=server", "-f", "-", text=edited(ROLLUP, edit))
    assert refused.returncode != 0
    assert message in refused.stderr
    with pytest.raises(manifest.ManifestError):
        manifest.load(edited(ROLLUP, edit))


def test_the_table_of_a_rollup_cannot_change(server: Any) -> None:
    server.check("apply", "-f", ROLLUP)
    refused = server("apply", "--dry-run=server", "-f", "-", text=edited(ROLLUP, ("table: orders #", "table: trips #")))
    assert refused.returncode != 0
    assert "table cannot change" in refused.stderr
    again = edited(ROLLUP, ("bufferTimePeriod: 7d", "bufferTimePeriod: 8d"))
    assert "configured" in server.check("apply", "--dry-run=server", "-f", "-", text=again)
    server.check("delete", "-f", ROLLUP)


WRONG_UPSERTS = [
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 0d"), "a TTL is more than 0"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30 days"), "should match"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  snapshot: DISABLE\n  preload: ENABLE"), "preload needs snapshot"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  compaction: {}"), "compaction with a time to live needs snapshot"),
    (("[ordered_ms]", "[ordered_ms, order_id]"), "primaryKeyTtl needs one comparison column"),
    (("primaryKeyTtl: 30d", "primaryKeyTtl: 30d\n  deletedKeysTtl: 7d"), "deletedKeysTtl needs deleteRecordColumn"),
    (("primaryKeyTtl: 30d\n  skipLateEvents: false", "skipLateEvents: true"), "skipLateEvents needs primaryKeyTtl"),
    (("primaryKeyTtl: 30d\n  skipLateEvents: false", "pruningInterval: 1h"), "only pruning: SCAN has an interval"),
    (("pruning: COMMIT", "pruning: SWEEP"), 'Unsupported value: "SWEEP"'),
    (("mode: FULL", "partialUpsertStrategies: {tags: UNION}\n  mode: FULL"), "only mode: PARTIAL merges columns"),
    (("mode: FULL", "partialUpsertStrategies: {tags: ADD}\n  mode: PARTIAL"), "should match"),
    (("mode: FULL", "mode: DEDUP\n  deleteRecordColumn: paid"), "mode DEDUP keeps the first row of a key"),
    (("mode: FULL", "mode: FULL\n  hashFunction: MD5"), "128 bits of a hash that nobody chooses"),
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
        "exclude each other",
    ),
    (
        ("pruning: COMMIT", "consistencyMode: SYNC\n  newSegmentTrackingTimeMs: 0\n  pruning: COMMIT"),
        "newSegmentTrackingTimeMs above 0",
    ),
]


@pytest.mark.parametrize(("edit", "message"), WRONG_UPSERTS)
def test_wrong_upsert_config_is_refused(server: Any, edit: tuple[str, str], message: str) -> None:
    refused = server("apply", "--dry-run=server", "-f", "-", text=edited(UPSERT, edit))
    assert refused.returncode != 0
    assert message in refused.stderr
    with pytest.raises(manifest.ManifestError):
        manifest.load(edited(UPSERT, edit))


def test_ttl_of_a_column_that_is_no_time_is_a_bare_number(server: Any) -> None:
    text = edited(UPSERT, ("primaryKeyTtl: 30d", 'primaryKeyTtl: "1000"'))
    assert "created" in server.check("apply", "--dry-run=server", "-f", "-", text=text)
    [declared] = manifest.load(text)
    assert isinstance(declared, UpsertConfig)
    assert declared.spec.primary_key_ttl == "1000"

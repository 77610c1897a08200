"""Python and a real API server judge manifests alike: the same rules are broken, with the same messages.

Documents are drawn at random, valid by their schemas. Of each rule some documents are asked that break it, and of each
kind some that break none."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.budget import count, seed
from tests.kube.operator_parts import Api
from tests.unit.spec.rule_changes import CHANGES, OLD

from merlot.spec import manifest
from merlot.spec.rules import rollup, table, upsert
from merlot.spec.rules.rule import Rules, violations
from merlot.spec.table import Table
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

Json = dict[str, Any]
DRAWN = 20_000
"""Documents that are judged in Python to find some for each rule."""
EACH = count("MERLOT_RULE_CASES", quick=2, every=8, fuzz=40)
"""Documents of each rule that the API server judges too, and valid ones in the same measure."""
PERIODS = ("0d", "1h", "6h", "12h", "1d", "2d", "7d", "1w", "0mo", "1mo", "3mo", "86400s", "1440m", "30d", "999999w")
TTLS = ("0", "0d", "00", "1d", "12h", "30d", "100", "7")
COLUMNS = ("at", "version", "gone")
COLUMN_TYPES = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP", "STRING", "JSON", "BYTES")
URIS = (
    *(
        "s3://bucket/x",
        "s3://KEY:hush@bucket/x",
        "S3://hush@bucket/x",
        "s3a://hush@bucket",
        "gs://bucket/x?access_key=1",
    ),
    *("hdfs://u:hush@host/x", "hdfs://host:9000/x", "file:///x", "ftp://host/x", "/x", "x", "s3://b/x?region=eu&a=1"),
)


def chosen(draw: random.Random, options: Mapping[str, tuple[Any, ...]], share: float) -> Json:
    """A mapping with some of the members, each with one of its values."""
    return {name: copy.deepcopy(draw.choice(values)) for name, values in options.items() if draw.random() < share}


UPSERT: Mapping[str, tuple[Any, ...]] = {
    "comparisonColumns": ([], ["at"], ["at", "version"], ["at", "at"]),
    "deleteRecordColumn": COLUMNS,
    "dropOutOfOrderRecord": (True, False),
    "outOfOrderRecordColumn": COLUMNS,
    "partialUpsertStrategies": ({}, {"at": "MAX"}, {"price": "MIN"}),
    "defaultPartialUpsertStrategy": ("OVERWRITE", "IGNORE"),
    "primaryKeyTtl": TTLS,
    "ttl": ({"unit": "DAYS", "value": 1},),
    "TtlUnit": ("HOURS",),
    "TtlValue": ("3",),
    "maxFutureSkew": ("10m", "0", "15"),
    "messageTimeColumn": COLUMNS,
    "deletedKeysTtl": TTLS,
    "skipLateEvents": (True, False),
    "isSkipLateEvents": (True, False),
    "pruning": ("COMMIT", "SCAN", "ROTATION"),
    "pruningInterval": ("10m",),
    "snapshot": ("ENABLE", "DISABLE", "DEFAULT"),
    "snapshotStore": ("LOCAL", "DEEP_STORE", "SEGMENT"),
    "compaction": ({}, {"merge": {}}),
}


def upsert_settings(draw: random.Random) -> Json:
    """Settings of upserts."""
    return {"mode": draw.choice(("FULL", "PARTIAL", "DEDUP")), **chosen(draw, UPSERT, draw.choice((0.05, 0.15, 0.4)))}


def drawn_level(draw: random.Random) -> Json:
    """A level of a MergeRollupTask."""
    return {
        "name": draw.choice(("daily", "Daily", "monthly", "x", "y", "z")),
        "bucketTimePeriod": draw.choice(PERIODS),
        "bufferTimePeriod": draw.choice(PERIODS),
        **chosen(
            draw,
            {
                "mergeType": ("concat", "rollup", "dedup"),
                "roundBucketTimePeriod": PERIODS,
                "eraseDimensionValues": ([], ["tags"]),
            },
            0.4,
        ),
    }


def rollup_spec(draw: random.Random) -> Json:
    """The spec of a MergeRollupTask."""
    levels = [drawn_level(draw) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    schedules = ("10m", "0m", "00d", "@daily", "0 3 * * *", "0 0 3 * * ?", "soon", "1y", " 1m")
    options = {"aggregations": ({}, {"clicks": {}}), "schedule": schedules}
    names = ("orders", "trips", "orders_OFFLINE", "orders_REALTIME")
    return {"table": draw.choice(names), "levels": levels, **chosen(draw, options, 0.3)}


COLUMN = {
    "role": ("dimension", "metric", "dateTime"),
    "multiValue": (True, False),
    "format": ("EPOCH|DAYS", "TIMESTAMP"),
    "granularity": ("DAYS|1",),
    "maxLength": (5,),
}
KEYS = (
    "team",
    "merlot.dev/x",
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.apparmor.security.beta.kubernetes.io/x",
)
VARIABLES = ("MERLOT_X", "TZ", "LD_PRELOAD", "http_proxy", "HTTP_PROXY_X", "PATH", "PATHS", "SPARK_HOME", "X\nPATH")
PROPERTIES = ("client.id", "sasl.password", "group.id", "ssl.ca.location", "bootstrap.servers", "metadata.broker.list")


def pods(draw: random.Random, role: str) -> Json:
    """Part of a template of pods."""
    environment = [{"name": name} for name in draw.sample(VARIABLES, 2)]
    metadata = {kind: {draw.choice(KEYS): "x"} for kind in ("labels", "annotations")}
    return {"metadata": metadata, "spec": {"containers": [{"name": role, "env": environment}]}}


def drawn_stream(draw: random.Random) -> Json:
    """A stream."""
    decoder: Mapping[str, tuple[Any, ...]] = {
        "type": ("JSON", "CSV", "AVRO", "PROTOBUF", "ARROW"),
        "csv": ({},),
        "schemaRegistry": ("http://registry",),
        "avroSchema": ("{}",),
        "descriptorSet": ("x",),
        "message": ("a.B",),
    }
    options = {
        "topic": ("trips", "rides"),
        "start": ("earliest", "latest"),
        "decoder": (chosen(draw, decoder, 0.3),),
        "secretRef": ("merlot-kafka",),
    }
    properties = dict.fromkeys(draw.sample(PROPERTIES, draw.randrange(3)), "x")
    more = {"properties": properties} if draw.random() < 0.8 else {}
    return {"type": draw.choice(("kafka", "files", "acme.pulsar", "kafak")), **chosen(draw, options, 0.8), **more}


def drawn_batch(draw: random.Random, name: str) -> Json:
    """A batch source."""
    times = ("2013-01-01", "2014-01-01", "2013-01-01T00:00:00Z")
    window = {"start": draw.choice(times), "end": draw.choice(times)}
    options = {"csv": ({"header": False},), "overwrite": (window,)}
    format_ = draw.choice(("CSV", "ORC", "JSON", "PARQUET"))
    return {"name": name, "sourceUri": draw.choice(URIS), "format": format_, **chosen(draw, options, 0.3)}


def drawn_ingestion(draw: random.Random) -> Json:
    """Where rows come from."""
    options = {
        "batch": ([drawn_batch(draw, name) for name in ("one", "two")],),
        "stream": (drawn_stream(draw),),
        "daysPerSegment": (1, 7),
        "timeBoundary": ({},),
    }
    return chosen(draw, options, 0.3)


def table_spec(draw: random.Random) -> Json:
    """The spec of a Table."""
    fields = [
        {"name": name, "type": draw.choice(COLUMN_TYPES), **chosen(draw, COLUMN, 0.15)}
        for name in ("id", "price", "city")
    ]
    fields.append({"name": "at", "type": "TIMESTAMP", **({"role": "dateTime"} if draw.random() < 0.9 else {})})
    tree = {
        "dimensionsSplitOrder": ["city", "DATETRUNC('DAY', at)"],
        "functionColumnPairs": ["COUNT__*"],
        "skipStarNodeCreationForDimensions": draw.choice((["city"], ["id"], ["$at$DAY"], [])),
    }
    server = {"replicas": (0, 1, 2, 3), "name": ("default", "own-trips", "big"), "podTemplate": (pods(draw, "server"),)}
    tenants = {"server": chosen(draw, server, 0.5), "broker": {"podTemplate": pods(draw, "broker")}}
    pruners = ("time", "partition", "tmie", "acme.geo", "empty")
    partitioning = {"columns": {"id": {"functionName": "Murmur", "numPartitions": 4}}}
    options: Mapping[str, tuple[Any, ...]] = {
        "timeColumn": ("at", "at", "id", "nothing"),
        "retention": ("30d",),
        "replication": (1, 2, 3),
        "pushType": ("APPEND", "REFRESH"),
        "indexing": ({"starTreeIndexConfigs": [tree]},),
        "partitioning": (partitioning,),
        "routing": ({"segmentPruners": draw.choices(pruners, k=2)}, {"segmentPruners": []}),
        "ingestion": (drawn_ingestion(draw),),
        "tenants": (tenants,),
        "deepStore": tuple({"uri": uri, **chosen(draw, {"secretRef": ("merlot-keys",)}, 0.3)} for uri in URIS),
        "upsert": (
            {"configRef": "latest"},
            {"config": upsert_settings(draw)},
            {"configRef": "x", "config": {"mode": "FULL"}},
            {},
        ),
    }
    key = {"primaryKey": draw.choice((["id"], []))} if draw.random() < 0.5 else {}
    return {"schema": {"fields": fields, **key}, **chosen(draw, options, draw.choice((0.05, 0.2, 0.4)))}


KINDS: Mapping[str, tuple[Rules, Callable[[random.Random], Json]]] = {
    "UpsertConfig": (upsert.RULES, upsert_settings),
    "MergeRollupTask": (rollup.RULES, rollup_spec),
    "Table": (table.RULES, table_spec),
}


MODELS: Mapping[str, Any] = {"UpsertConfig": UpsertConfig, "MergeRollupTask": MergeRollupTask, "Table": Table}


def document(kind: str, spec: Json) -> Json:
    """A manifest."""
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": kind, "metadata": {"name": "drawn"}, "spec": spec}


def in_python(rules: Rules, new: Json, old: Json | None = None) -> set[tuple[str, str]]:
    """Fields and messages of the rules that are broken."""
    return {(one.field, one.message) for one in violations(rules, new, old, as_api_server=True)}


def rules_of(rules: Rules, *, changes: bool) -> set[tuple[str, str]]:
    """Fields and messages of the rules that judge changes alone, or of all others."""
    return {
        (f"{scope}.{rule.path}" if rule.path else scope, rule.message)
        for scope, each in rules.items()
        for rule in each
        if ("oldSelf" in rule.condition.cel) is changes
    }


def without_places(broken: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The same with `[]` for every place in a list."""
    return {(re.sub(r"\[\d+\]", "[]", field), message) for field, message in broken}


def documents(kind: str) -> Iterator[tuple[Json, set[tuple[str, str]]]]:
    """Documents and the rules that they break: for each rule some that break it, and some that break none."""
    rules, spec_of = KINDS[kind]
    draw, left, valid = random.Random(seed()), dict.fromkeys(rules_of(rules, changes=False), EACH), EACH * 10
    for _ in range(DRAWN):
        drawn = document(kind, spec_of(draw))
        broken = in_python(rules, drawn)
        wanted = without_places(broken)
        if any(left[one] > 0 for one in wanted) or (not broken and valid > 0):
            valid -= not broken
            left |= {one: left[one] - 1 for one in wanted}
            yield drawn, broken
        if valid <= 0 and all(number <= 0 for number in left.values()):
            return
    assert not [one for one, number in left.items() if number > 0], "no document breaks these rules"
    raise AssertionError(f"only {EACH * 10 - valid} documents break no rule")


@pytest.mark.parametrize("kind", KINDS)
def test_an_api_server_says_of_a_new_object_what_python_says(api: Api, kind: str) -> None:
    for drawn, broken in documents(kind):
        assert api.broken_rules(f"{kind.lower()}s", drawn) == broken, drawn


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_means_what_was_written(api: Api, kind: str) -> None:
    """The same rules hold of an object with the defaults that an API server fills in."""
    num_stored = 0
    for drawn, broken in documents(kind):
        if not broken:
            stored = api.create(f"{kind.lower()}s", drawn)
            api.delete(f"{kind.lower()}s", "drawn")
            assert in_python(KINDS[kind][0], stored) == set(), drawn
            assert meaning(stored) == meaning(drawn), drawn
            num_stored += 1
    assert num_stored


def meaning(body: Json) -> object:
    """What a manifest is read as, or all that is wrong with it that no rule says."""
    try:
        return manifest.load_document(body, MODELS[body["kind"]]).spec
    except manifest.ManifestError as error:
        return error.problems


@pytest.mark.parametrize("kind", CHANGES)
def test_an_api_server_says_of_a_change_what_python_says(api: Api, kind: str) -> None:
    plural, (rules, _), broken = f"{kind.lower()}s", KINDS[kind], set()
    for spec in OLD[kind]:
        old = document(kind, spec)
        api.create(plural, old)
        for change in CHANGES[kind]:
            new = copy.deepcopy(old)
            change(new["spec"])
            expected = in_python(rules, new, old)
            assert api.broken_rules(plural, new, is_change=True) == expected, new
            broken |= without_places(expected)
        api.delete(plural, "drawn")
    assert rules_of(rules, changes=True) <= broken

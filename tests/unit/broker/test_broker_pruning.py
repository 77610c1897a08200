"""From records to routes: what is left out, what is kept because nothing sure is known, what cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merlot import telemetry
from merlot.broker.routing import pruning, routes
from merlot.broker.routing.distincts import TableDistincts
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.pruning import TablePruning
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot
from merlot.cluster.records import BucketRecord, PartitionRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName
from merlot.query.plan.binding import bind
from merlot.segment.index import bloom
from merlot.spec.manifest import load
from merlot.spec.table import TableSpec
from merlot.sql.parse import parse
from merlot.values.types import TypeName

TABLE = TableName("flights_OFFLINE")
A, B = InstanceId("Server_host_1"), InstanceId("Server_host_2")
COLUMNS = "day:LONG,id:STRING,price:FLOAT"


def spec_of(*pruners: str) -> TableSpec:
    spec = load("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  timeColumn: day
  indexing: {sortedColumns: [price]}
  partitioning: {columns: {id: {functionName: Murmur, numPartitions: 4}}}
  schema:
    fields:
      - {name: day, type: LONG, role: dateTime, format: "1:DAYS:EPOCH"}
      - {name: id, type: STRING}
      - {name: price, type: DOUBLE}
""")[0].spec
    return spec.model_copy(update={"routing": spec.routing.model_copy(update={"segment_pruners": pruners})})


def record(name: str, **fields: Any) -> SegmentRecord:
    return SegmentRecord(
        **{"crc": 1, "size_bytes": 1, "url": name, "total_docs": 10, "columns": COLUMNS, "name": name, **fields}
    )


def partition(*numbers: int, function: str = "Murmur") -> dict[str, PartitionRecord]:
    return {"id": PartitionRecord(function_name=function, num_partitions=4, partitions=numbers)}


def filter_of(*ids: str) -> str:
    """As a record has it."""
    return bloom.to_text(bloom.write(TypeName.STRING, pa.array(ids, pa.string()), 0.001)[bloom.WORDS])


RECORDS = (
    record("s0", ranges={"day": (10, 60), "price": (0.1, 5.0)}, partitions=partition(0)),
    record("s1", ranges={"day": (20, 30), "price": (5.0, 9.0)}, partitions=partition(3)),
    record("s2", ranges={"day": (50, 65), "price": (1.0, 2.0)}),
    record("s3"),
)


def snapshot_of(*records: SegmentRecord, holders: dict[InstanceId, set[str]] | None = None) -> RoutingSnapshot:
    bucket = Bucket("x", {one.name: one for one in records}, {one.name: (A,) for one in records})
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: bucket})
    reports = holders or {A: {str(one.key) for one in records}}
    everyone = dict.fromkeys(reports, ServerStanding.PREFERRED)
    return routes.build(RoutingInputs(view=view, reports=reports, standings=everyone, now_ms=1 << 60))


def built(snapshot: RoutingSnapshot, *pruners: str) -> TablePruning:
    made = pruning.build(snapshot, spec_of(*pruners), None)
    assert made is not None
    return made


def asked(made: TablePruning, condition: str, number: int = 0) -> set[str]:
    where = bind(parse(f"SELECT count(*) FROM flights WHERE {condition}"), spec_of().table_schema, {}).where
    selection = made.select(where, number, null_handling=False)
    keys = {key.removesuffix("@1") for route in selection.routes for key in route.segments}
    keys |= {key.removesuffix("@1") for key in selection.unavailable}
    assert selection.num_pruned == len(made.keys) - len(keys)
    return keys


def metric(gauge: Any) -> float:
    value: float = gauge.labels(TABLE)._value.get()
    return value


def test_distinct_values_are_counted_once_whether_or_not_the_table_prunes() -> None:
    made = TableDistincts.of_snapshot(snapshot_of(*RECORDS[1:]))
    assert made.num_docs == made.num_groups(["day"]) == 30
    assert TableDistincts.of_snapshot(snapshot_of(*RECORDS[1:]), made) is made
    assert TableDistincts.of_snapshot(snapshot_of(*RECORDS), made).num_docs == 40


@pytest.mark.parametrize(
    ("pruners", "condition", "expected"),
    [
        (("time",), "day = 40", {"s0", "s3"}),
        (("time",), "day < 0", {"s3"}),
        (("time",), "price > 8", {"s0", "s1", "s2", "s3"}),
        (("range",), "price > 8", {"s1", "s3"}),
        (("range",), "day = 40", {"s0", "s1", "s2", "s3"}),
        (("time", "range"), "day = 25 AND price < 3", {"s0", "s3"}),
        (("partition",), "id = '1'", {"s1", "s2", "s3"}),
        (("partition", "time"), "id = '1' AND day > 50", {"s2", "s3"}),
        (("partition", "time"), "id = '1' OR day = 15", {"s0", "s1", "s2", "s3"}),
    ],
)
def test_pruners_of_the_table_decide_what_is_asked(
    pruners: tuple[str, ...], condition: str, expected: set[str]
) -> None:
    assert asked(built(snapshot_of(*RECORDS), *pruners), condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id = 'u1'", {"b1", "none"}),
        ("id IN ('u1', 'u5')", {"b1", "b2", "none"}),
        ("id = 'u9'", {"none"}),
        ("NOT id = 'u9'", {"b1", "b2", "none"}),
        ("NOT (id <> 'u1')", {"b1", "none"}),
        ("id NOT IN ('u1', 'u9')", {"b1", "b2", "none"}),
        ("NOT (id = 'u9' OR day = 1)", {"b1", "b2", "none"}),
        ("id > 'u1'", {"b1", "b2", "none"}),
        ("id = 'u1' AND price = 3", {"b1", "none"}),
    ],
)
def test_small_bloom_filters_prune_what_surely_lacks_a_value(condition: str, expected: set[str]) -> None:
    records = (
        record("b1", blooms={"id": filter_of("u1", "u2")}),
        record("b2", blooms={"id": filter_of("u3", "u4", "u5")}),
        record("none"),
    )
    reread = BucketRecord.from_bytes(BucketRecord(segments=records).to_bytes(), "/x").segments
    assert asked(built(snapshot_of(*reread), "bloom"), condition) == expected
    assert asked(built(snapshot_of(*reread), "time"), condition) == {"b1", "b2", "none"}
    assert metric(telemetry.BROKER_UNREADABLE_PRUNING) == 0


def test_a_float_bound_is_read_as_the_float_that_it_was() -> None:
    """The column was FLOAT and is DOUBLE now: its 0.1 is 0.10000000149011612."""
    made = built(snapshot_of(*RECORDS), "range")
    assert "s0" in asked(made, "price = 0.10000000149011612")
    assert "s0" not in asked(made, "price = 0.1")


def test_no_pruner_no_pruning() -> None:
    assert pruning.build(snapshot_of(*RECORDS), spec_of(), None) is None


def test_empty_segments_are_left_out_even_without_a_filter() -> None:
    made = built(snapshot_of(record("full"), record("empty", total_docs=0)), "empty")
    assert asked(made, "day = 1") == {"full"}
    assert made.select(None, 0, null_handling=False).num_pruned == 1


def test_a_pruner_that_this_version_lacks_turns_pruning_off_and_is_counted() -> None:
    assert pruning.build(snapshot_of(*RECORDS), spec_of("time", "quantum"), None) is None
    assert metric(telemetry.BROKER_UNKNOWN_PRUNERS) == 1
    built(snapshot_of(*RECORDS), "time")
    assert metric(telemetry.BROKER_UNKNOWN_PRUNERS) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"ranges": {"day": ("soon", "later")}},
        {"ranges": {"day": (60, 10)}},
        {"ranges": {"day": ({}, [])}},
        {"ranges": "nonsense"},
        {"ranges": {"day": [1, 2, 3]}},
        {"ranges": {"day": (10**30, 10**31)}},
        {"ranges": {"price": (10**400, 10**401)}},
        {"ranges": {"price": (-1e39, 1e39)}},
        {"columns": "day:EON,id:STRING,price:FLOAT", "ranges": {"day": (50, 60)}},
        {"columns": "day,id:STRING[][],price", "ranges": {"day": (50, 60)}},
        {"partitions": partition()},
        {"partitions": partition(0, function="Quantum")},
        {"partitions": {"id": {"functionName": 7}}},
        {"partitions": [1]},
        {"blooms": {"id": "nonsense"}},
        {"blooms": {"id": filter_of("1")[:-8]}},
        {"blooms": [1]},
    ],
)
def test_what_cannot_be_read_prunes_nothing_and_is_counted(fields: dict[str, Any]) -> None:
    odd = record("odd", **fields)
    reread = BucketRecord.from_bytes(BucketRecord(segments=(odd,)).to_bytes(), "/x").segments[0]
    made = built(snapshot_of(*RECORDS, reread), "time", "range", "partition", "bloom")
    assert asked(made, "day = -5 AND id = '1'") == {"s3", "odd"}
    assert metric(telemetry.BROKER_UNREADABLE_PRUNING) == 1
    (problem,) = made.problems()
    assert "segments=1" in problem


def test_a_record_of_another_version_says_nothing_of_the_routed_one() -> None:
    """This broker started amid a refresh: the old version is served, only the new one's record is there."""
    new = record("s", crc=2, ranges={"day": (1, 2)})
    made = built(snapshot_of(new, holders={A: {"s@1"}}), "time")
    assert asked(made, "day = 40") == {"s"}


def test_replicas_take_turns_for_the_segments_that_are_left() -> None:
    held = {f"s{number}@1" for number in range(4)}
    made = built(snapshot_of(*RECORDS, holders={A: held, B: held}), "time")
    where = bind(parse("SELECT count(*) FROM flights WHERE day = 25"), spec_of().table_schema, {}).where
    first, second = (made.select(where, number, null_handling=False).routes for number in range(2))
    kept = {"s0@1", "s1@1", "s3@1"}
    assert set().union(*(route.segments for route in first)) == kept
    assert {route.instance: kept - set(route.segments) for route in first} == {
        route.instance: set(route.segments) for route in second
    }


def test_only_unavailable_segments_that_a_query_needs_are_missed() -> None:
    served = routes.build(
        RoutingInputs(
            view=TableView(
                TABLE,
                RootRecord(epoch=1, num_buckets=1),
                1,
                {0: Bucket("x", {one.name: one for one in RECORDS}, {one.name: (A,) for one in RECORDS})},
            ),
            reports={A: {"s0@1", "s2@1", "s3@1"}, B: {"s1@1"}},
            standings={A: ServerStanding.PREFERRED},
            now_ms=1 << 60,
        )
    )
    assert served.unavailable == ("s1@1",)
    made = built(served, "time")
    where = bind(parse("SELECT count(*) FROM flights WHERE day = 62"), spec_of().table_schema, {}).where
    assert made.select(where, 0, null_handling=False).unavailable == ()
    where = bind(parse("SELECT count(*) FROM flights WHERE day = 25"), spec_of().table_schema, {}).where
    assert made.select(where, 0, null_handling=False).unavailable == ("s1@1",)


def test_explain_tells_each_pruners_share() -> None:
    made = built(snapshot_of(*RECORDS, record("none", total_docs=0)), "partition", "empty", "time")
    where = bind(parse("SELECT count(*) FROM flights WHERE day = 25 AND id = '1'"), spec_of().table_schema, {}).where
    assert made.explain(where, null_handling=False) == [("empty", 1), ("time", 1), ("partition", 1)]


def test_statistics_are_kept_while_the_records_are_the_same() -> None:
    first = built(snapshot_of(*RECORDS), "time")
    again = pruning.build(snapshot_of(*RECORDS), first.spec, first)
    assert again is not None
    assert again.stages is first.stages
    other = pruning.build(snapshot_of(*RECORDS[:3]), first.spec, again)
    assert other is not None
    assert other.statistics.num_segments == 3
    assert np.array_equal(other.statistics.ranges["day"].low >= 0, [True] * 3)

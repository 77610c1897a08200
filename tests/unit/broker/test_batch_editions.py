"""Partitions of an upsert table of batches are routed as a server knows them: all of an edition, or the one before."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Set

from merlot.broker.routing import pruning
from merlot.broker.routing.edition_steps import follow
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build, reroute
from merlot.cluster.records import PartitionRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.editions import editions_of, is_edition
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName
from merlot.query.plan.binding import bind
from merlot.spec.manifest import load
from merlot.spec.table import Table
from merlot.sql.parse import parse

TABLE = TableName("board_OFFLINE")
NOW_MS = 1_700_000_000_000
SERVERS = A, B = tuple(InstanceId(f"Server_host_{port}") for port in (1, 2))
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: board}
spec:
  schema:
    fields: [{name: id, type: LONG}, {name: at, type: LONG}]
    primaryKey: [id]
  routing: {segmentPruners: [range, partition]}
  indexing: {sortedColumns: [at]}
  partitioning: {columns: {id: {functionName: Modulo, numPartitions: 2}}}
  upsert: {config: {mode: FULL, comparisonColumns: [at]}}
"""
Reports = Mapping[InstanceId, Set[str]]


def table() -> Table:
    [found] = load(MANIFEST)
    assert isinstance(found, Table)
    return found


SPEC = table().spec
assert SPEC.partitioning is not None
PARTITIONING = SPEC.partitioning


def segment(name: str, crc: int = 1) -> SegmentRecord:
    """Its partition is the name's last digit, its range the first."""
    held = PartitionRecord(function_name="Modulo", num_partitions=2, partitions=(int(name[-1]),))
    first = 10 * int(name[0])
    return SegmentRecord(
        name=name,
        crc=crc,
        size_bytes=1,
        url="x",
        total_docs=10,
        push_time_ms=NOW_MS,
        partitions={"id": held},
        ranges={"at": (first, first + 9)},
        columns="id:LONG,at:LONG",
    )


def known(*sets: Iterable[SegmentRecord]) -> set[str]:
    """What a server reports that knows these editions."""
    found: set[str] = set()
    for records in sets:
        held = list(records)
        found |= {one.key_text for one in held} | {one.key for one in editions_of(held, PARTITIONING).values()}
    return found


def snapshot_of(
    records: Iterable[SegmentRecord], reports: Reports, previous: RoutingSnapshot | None = None, now_ms: int = NOW_MS
) -> RoutingSnapshot:
    return build(inputs_of(records, reports, now_ms), previous)


def inputs_of(
    records: Iterable[SegmentRecord], reports: Reports, now_ms: int = NOW_MS, epoch: int = 1
) -> RoutingInputs:
    held = list(records)
    bucket = Bucket("x", {one.name: one for one in held}, {one.name: SERVERS for one in held})
    return RoutingInputs(
        view=TableView(TABLE, RootRecord(epoch=epoch, num_buckets=1), 1, {0: bucket}),
        reports=reports,
        standings=dict.fromkeys(reports, ServerStanding.PREFERRED),
        now_ms=now_ms,
        is_strict=True,
        partitioning=PARTITIONING,
    )


def asked(snapshot: RoutingSnapshot) -> set[str]:
    return {key for route in snapshot.select(0) for key in route.segments}


OLD = [segment("1a0"), segment("2a0"), segment("1a1")]
MORE = [*OLD, segment("3a0"), segment("3a1")]


def test_a_push_is_routed_once_a_server_knows_all_it_comes_to() -> None:
    before = snapshot_of(OLD, {A: known(OLD)})
    assert asked(before) == known(OLD)
    waiting = snapshot_of(MORE, {A: known(OLD)}, before)
    assert asked(waiting) == known(OLD)
    one = [*OLD, segment("3a0")]
    half = known(OLD, [record for record in one if record.name.endswith("0")])
    assert asked(snapshot_of(MORE, {A: half}, waiting)) == known(OLD)
    assert asked(snapshot_of(MORE, {A: known(OLD, MORE)}, waiting)) == known(MORE)


def test_a_deletion_is_routed_once_a_server_knows_what_it_uncovers() -> None:
    before, fewer = snapshot_of(OLD, {A: known(OLD)}), OLD[1:]
    waiting = snapshot_of(fewer, {A: known(OLD)}, before)
    assert asked(waiting) == known(OLD)
    assert waiting.unavailable == ()
    assert asked(snapshot_of(fewer, {A: known(OLD, fewer)}, waiting)) == known(fewer)


def test_a_partition_is_asked_of_a_server_that_knows_its_edition() -> None:
    found = snapshot_of(MORE, {A: known(OLD), B: known(OLD, MORE)})
    assert {route.instance for turn in found.turns for route in turn} == {B}
    both = snapshot_of(MORE, {A: known(MORE), B: known(MORE)})
    for turn in both.turns:
        places = {key: route.instance for route in turn for key in route.segments}
        for edition in editions_of(MORE, PARTITIONING).values():
            assert len({places[key] for key in (edition.key, *edition.keys)}) == 1
    moved = reroute(both, [one for one in asked(both) if is_edition(one)], {A}, set())
    assert {route.instance for route in moved.routes} == {B}


def test_steady_pushes_are_routed_as_servers_follow_them() -> None:
    """Each is heard of before the one before is answered for."""
    pushes = [[*OLD, *(segment(f"{3 + later % 5}{later:03}0") for later in range(count))] for count in range(12)]
    followed = follow(inputs_of(pushes[0], {A: known(pushes[0])}, epoch=1), None)
    routed = []
    for number, records in enumerate(pushes[1:], start=1):
        reports = {A: known(pushes[0], pushes[number - 1])}
        followed = follow(inputs_of(records, reports, epoch=number + 1), followed)
        followed = follow(inputs_of(records, reports, epoch=number + 1), followed)
        routed.append(asked(followed.snapshot))
        assert followed.snapshot.unavailable == ()
        assert followed.snapshot.epoch == number + 1
    assert routed == [known(records) for records in pushes[:-1]]
    followed = follow(inputs_of(pushes[-1], {A: known(pushes[-1])}, epoch=12), followed)
    assert asked(followed.snapshot) == known(pushes[-1])
    assert followed.unrouted_views == ()


def test_what_nobody_comes_to_in_five_minutes_is_said_to_be_missing() -> None:
    before = snapshot_of(OLD, {A: known(OLD)})
    waiting = snapshot_of(MORE, {A: known(OLD)}, before)
    late = snapshot_of(MORE, {A: known(OLD)}, waiting, NOW_MS + 10 * 60_000)
    assert {key for key in late.unavailable if is_edition(key)} == {key for key in known(MORE) if is_edition(key)}


def test_a_broker_that_starts_amid_a_push_does_not_take_another_edition_for_the_one_it_needs() -> None:
    found = snapshot_of(OLD[1:], {A: known(OLD)})
    of_zero = editions_of(OLD, PARTITIONING)["upsert/0"].key
    assert of_zero not in asked(found)


def test_a_broker_that_starts_amid_a_push_routes_what_was_there_before_it() -> None:
    found = snapshot_of(MORE, {A: known(OLD)})
    assert asked(found) == known(OLD)
    assert found.unavailable == ()
    assert asked(snapshot_of(MORE, {A: known(OLD, MORE)}, found)) == known(MORE)


def test_pruning_names_the_editions_of_the_segments_that_are_left() -> None:
    draw = random.Random(4)
    records = [segment(f"{draw.randrange(10)}{number:03}{draw.randrange(2)}") for number in range(60)]
    snapshot = snapshot_of(records, {A: known(records), B: known(records)})
    pruned = pruning.build(snapshot, SPEC, None)
    assert pruned is not None
    editions = editions_of(records, PARTITIONING)
    for low, high in ((0, 99), (0, 9), (35, 41), (200, 300)):
        where = bind(parse(f"SELECT id FROM board WHERE at BETWEEN {low} AND {high}"), SPEC.table_schema, {}).where
        for number in range(3):
            selection = pruned.select(where, number, null_handling=False)
            wanted = {one.key_text for one in records if one.ranges["at"][0] <= high and one.ranges["at"][1] >= low}
            held = {key for route in selection.routes for key in route.segments}
            assert {key for key in held if not is_edition(key)} == wanted
            assert {key for key in held if is_edition(key)} == {
                one.key for one in editions.values() if wanted.intersection(one.keys)
            }
            assert selection.num_pruned == len(records) - len(wanted)
            places = {key: route.instance for route in selection.routes for key in route.segments}
            for one in editions.values():
                assert len({places[key] for key in (one.key, *one.keys) if key in places}) <= 1
    by_key = bind(parse("SELECT id FROM board WHERE id = 5"), SPEC.table_schema, {}).where
    one = pruned.select(by_key, 0, null_handling=False)
    assert {key for route in one.routes for key in route.segments if is_edition(key)} == {editions["upsert/1"].key}

"""A partition is asked of one server as a whole, whatever servers hold of it, and whichever of them fail."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, ServerRoute, build, reroute
from merlot.broker.scatter_gather import scatter
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.scatter_gather.scatter import Gathered, ScatterRequest
from merlot.cluster.records import (
    ConsumingStatus,
    InstanceRecord,
    PartitionRecord,
    Role,
    RootRecord,
    SegmentRecord,
    StreamSegmentRecord,
)
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.wire.client import Handler, LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

TABLE = TableName("events_OFFLINE")
NOW_MS = 1_700_000_000_000
SERVERS = A, B, C = tuple(InstanceId(f"Server_host_{port}") for port in (1, 2, 3))
NUM_PARTITIONS = 2
SCHEMA = pa.schema([("segment", pa.string()), ("server", pa.string())])


def segment(partition: int, sequence: int, *, is_open: bool = False) -> StreamSegmentRecord:
    return StreamSegmentRecord(
        name=f"events__{partition}__{sequence}__20260101T0000Z",
        crc=0 if is_open else sequence + 1,
        size_bytes=1,
        url="" if is_open else "x",
        total_docs=0 if is_open else 10,
        push_time_ms=-1 if is_open else NOW_MS,
        creation_time_ms=NOW_MS,
        status=(ConsumingStatus.CONSUMING if is_open else ConsumingStatus.DONE).value,
        partition=partition,
        sequence=sequence,
        start_offset=10 * sequence,
        end_offset=None if is_open else 10 * sequence + 10,
    )


def chain(partition: int, num_done: int) -> list[SegmentRecord]:
    return [*(segment(partition, number) for number in range(num_done)), segment(partition, num_done, is_open=True)]


def merged(partition: int) -> SegmentRecord:
    """What took the place of a partition's first segments."""
    name = f"merged_{partition}"
    offsets = f"{partition}:0-10"
    return SegmentRecord(name=name, crc=7, size_bytes=1, url="x", total_docs=10, stream_offsets=offsets)


def batch(number: int) -> SegmentRecord:
    partitions = {"id": PartitionRecord(function_name="Murmur", num_partitions=4, partitions=(number % 2,))}
    return SegmentRecord(name=f"b{number}", crc=1, size_bytes=1, url="x", total_docs=10, partitions=partitions)


def snapshot_of(
    records: list[SegmentRecord],
    reports: Mapping[InstanceId, set[str]],
    standings: Mapping[InstanceId, ServerStanding] | None = None,
    previous: RoutingSnapshot | None = None,
) -> RoutingSnapshot:
    bucket = Bucket("x", {one.name: one for one in records}, {one.name: SERVERS for one in records})
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: bucket})
    standings = standings or dict.fromkeys(reports, ServerStanding.PREFERRED)
    inputs = RoutingInputs(view=view, reports=reports, standings=standings, now_ms=10**15, is_strict=True)
    return build(inputs, previous)


def partition_of(key: str) -> str:
    if "__" in key:
        return f"stream {key.split('__')[1]}"
    return f"stream {key.split('_')[1].partition('@')[0]}" if key.startswith("merged") else f"batch {int(key[1]) % 2}"


def servers_by_partition(routes: tuple[ServerRoute, ...]) -> dict[str, set[InstanceId]]:
    found: dict[str, set[InstanceId]] = defaultdict(set)
    for route in routes:
        for key in route.segments:
            found[partition_of(key)].add(route.instance)
    return found


def consumed(partition: int, sequence: int) -> str:
    return f"{segment(partition, sequence).name}@0"


def keys_of(partition: int, num_done: int) -> set[str]:
    """All that a server can hold of a partition."""
    records = [merged(partition), *(segment(partition, number) for number in range(num_done))]
    return {one.key_text for one in records} | {consumed(partition, number) for number in range(num_done + 1)}


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), nums_done=st.lists(st.integers(0, 3), min_size=NUM_PARTITIONS, max_size=NUM_PARTITIONS))
def test_all_of_a_partition_is_asked_of_one_server_that_holds_it(data: st.DataObject, nums_done: list[int]) -> None:
    records: list[SegmentRecord] = [batch(number) for number in range(4)]
    possible = {one.key_text for one in records}
    for partition, num_done in enumerate(nums_done):
        records += [merged(partition), *chain(partition, num_done)]
        possible |= keys_of(partition, num_done)
    holding = st.sets(st.sampled_from(sorted(possible)))
    reports = {server: data.draw(holding, server) for server in SERVERS}
    standings = {server: data.draw(st.sampled_from(ServerStanding), server) for server in SERVERS}
    snapshot = snapshot_of(records, reports, standings)
    for routes in snapshot.turns:
        asked = [key for route in routes for key in route.segments]
        assert len(asked) == len(set(asked))
        assert set(asked) | set(snapshot.unavailable) == set(snapshot.by_key)
        assert all(set(route.segments) <= reports[route.instance] for route in routes)
        assert all(len(servers) == 1 for servers in servers_by_partition(routes).values())
        for route in routes:
            rerouted = reroute(snapshot, route.segments, {route.instance}, set())
            assert all(len(servers) == 1 for servers in servers_by_partition(rerouted.routes).values())
            assert all(set(one.segments) <= reports[one.instance] for one in rerouted.routes)
            asked_again = {key for one in rerouted.routes for key in one.segments}
            assert asked_again | set(rerouted.lost) == set(route.segments)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), num_done=st.integers(1, 4))
def test_nothing_is_missed_of_a_partition_that_some_server_has_in_whatever_form(
    data: st.DataObject, num_done: int
) -> None:
    """One server has all from some segment on as it was consumed, and those before it sealed; others have anything."""
    at = data.draw(st.integers(0, num_done))
    whole = {segment(0, number).key_text for number in range(at)} | {consumed(0, at), merged(0).key_text}
    anything = st.sets(st.sampled_from(sorted(keys_of(0, num_done))))
    reports = {A: whole, B: data.draw(anything, "B"), C: data.draw(anything, "C")}
    snapshot = snapshot_of([merged(0), *chain(0, num_done)], reports)
    assert snapshot.unavailable == ()
    assert all(len(servers) == 1 for servers in servers_by_partition(snapshot.select(0)).values())


def test_partitions_take_turns_with_their_servers() -> None:
    records = [*chain(0, 2), *chain(1, 2)]
    held = keys_of(0, 2) | keys_of(1, 2)
    snapshot = snapshot_of(records, {A: held, B: held})
    first, second = (servers_by_partition(routes) for routes in snapshot.turns)
    assert first == {"stream 0": {A}, "stream 1": {B}}
    assert second == {"stream 0": {B}, "stream 1": {A}}


def test_a_commit_that_one_replica_has_not_heard_of_keeps_to_the_other() -> None:
    records = chain(0, 1)
    ahead = {segment(0, 0).key_text, consumed(0, 0), consumed(0, 1)}
    behind = {consumed(0, 0)}
    snapshot = snapshot_of(records, {A: ahead, B: behind})
    assert servers_by_partition(snapshot.select(0)) == servers_by_partition(snapshot.select(1)) == {"stream 0": {A}}
    alone = snapshot_of(records, {B: behind}, previous=snapshot)
    assert servers_by_partition(alone.select(0)) == {"stream 0": {B}}
    assert alone.unavailable == ()


def test_replicas_that_lack_different_segments_are_not_mixed() -> None:
    """A loaded the first file and lacks the second, B the other way round; both answer for all from the first on."""
    records = chain(0, 2)
    both = {consumed(0, 0), consumed(0, 2)}
    snapshot = snapshot_of(records, {A: both | {segment(0, 0).key_text}, B: both | {segment(0, 1).key_text}})
    (route,) = snapshot.select(0)
    assert route.segments == (consumed(0, 0),)
    assert snapshot.unavailable == ()


async def gather(handlers: Mapping[InstanceId, Handler], snapshot: RoutingSnapshot) -> Gathered:
    channels = Channels(lambda record: LocalChannel(handlers[record.id]))
    channels.observe({one: InstanceRecord(id=one, role=Role.SERVER, host="h") for one in handlers})
    request = ScatterRequest(
        request_id="1",
        table=TABLE,
        query=b"",
        snapshot=snapshot,
        routes=snapshot.select(0),
        deadline=asyncio.get_running_loop().time() + 5.0,
        schema=SCHEMA,
    )
    gathered = await scatter.gather(request, channels, lambda *_: None)
    await channels.close()
    return gathered


def handler(server: InstanceId, lacks: frozenset[str] = frozenset()) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        keys = [key for key in request.segments if key not in lacks]
        rows = pa.table({"segment": keys, "server": [server] * len(keys)})
        missing = tuple(key for key in request.segments if key in lacks)
        return ServerResponse(partial=Partial(rows, QueryStats()), missing=missing)

    return answer


async def test_what_a_server_answers_of_a_partition_that_it_lacks_a_part_of_does_not_count() -> None:
    records = [*chain(0, 2), *chain(1, 1)]
    held = keys_of(0, 2) | keys_of(1, 1)
    snapshot = snapshot_of(records, {A: held, B: held})
    gathered = await gather({A: handler(A, frozenset({segment(0, 1).key_text})), B: handler(B)}, snapshot)
    assert gathered.exceptions() == ()
    rows = [row for partial in gathered.partials for row in partial.data.to_pylist()]
    assert sorted(row["segment"] for row in rows) == sorted(snapshot.by_key)
    assert {row["server"] for row in rows if partition_of(row["segment"]) == "stream 0"} == {B}


async def test_a_partition_that_no_server_has_as_a_whole_is_missed_rather_than_mixed() -> None:
    held = keys_of(0, 2)
    snapshot = snapshot_of(chain(0, 2), {A: held, B: held})
    lacking = {A: handler(A, frozenset({segment(0, 0).key_text})), B: handler(B, frozenset({segment(0, 1).key_text}))}
    gathered = await gather(lacking, snapshot)
    assert gathered.partials == []
    assert sorted(gathered.lost) == sorted(snapshot.by_key)
    assert gathered.exceptions()

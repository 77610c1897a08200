"""The end of a stream's partition is asked for as one; where it begins moves with each commit, in one snapshot."""

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import count, examples

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import NEW_SEGMENT_MS, RoutingInputs, RoutingSnapshot, build
from merlot.cluster.records import ConsumingStatus, RootRecord, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName

TABLE = TableName("flights_OFFLINE")
NOW_MS = 1_700_000_000_000
A, B = (InstanceId(f"Server_host_{port}") for port in (1, 2))
ROWS = 10
CASES = count("MERLOT_ROUTING_CASES", quick=50, every=100, fuzz=5000)


def segment(sequence: int, status: ConsumingStatus = ConsumingStatus.DONE, partition: int = 0) -> StreamSegmentRecord:
    is_done = status is ConsumingStatus.DONE
    return StreamSegmentRecord(
        name=f"flights__{partition}__{sequence}__20260101T0000Z",
        crc=sequence + 1 if is_done else 0,
        size_bytes=1,
        url="file:///x" if is_done else "",
        total_docs=ROWS if is_done else 0,
        push_time_ms=NOW_MS if is_done else -1,
        creation_time_ms=NOW_MS,
        status=status.value,
        partition=partition,
        sequence=sequence,
        start_offset=sequence * ROWS,
        end_offset=(sequence + 1) * ROWS if is_done else None,
    )


def chain(num_done: int, last: ConsumingStatus | None = ConsumingStatus.CONSUMING) -> list[SegmentRecord]:
    records: list[SegmentRecord] = [segment(number) for number in range(num_done)]
    return records if last is None else [*records, segment(num_done, last)]


def rewritten(sequence: int, partition: int = 0) -> StreamSegmentRecord:
    """Another file of the segment, with some of its rows."""
    return segment(sequence, partition=partition).model_copy(update={"crc": 900 + sequence, "total_docs": 3})


def snapshot_of(
    records: Sequence[SegmentRecord],
    reports: Mapping[InstanceId, set[str]],
    previous: RoutingSnapshot | None = None,
    now_ms: int = NOW_MS,
    backups: frozenset[InstanceId] = frozenset(),
    *,
    is_strict: bool = False,
) -> RoutingSnapshot:
    bucket = Bucket("x", {one.name: one for one in records}, {one.name: (A, B) for one in records})
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: bucket})
    standings = {one: ServerStanding.BACKUP if one in backups else ServerStanding.PREFERRED for one in reports}
    inputs = RoutingInputs(view=view, reports=reports, standings=standings, now_ms=now_ms, is_strict=is_strict)
    return build(inputs, previous)


def consumed(sequence: int) -> str:
    return f"{segment(sequence).name}@0"


def sealed(sequence: int) -> str:
    return segment(sequence).key_text


def keys_of(snapshot: RoutingSnapshot) -> set[str]:
    return {key for route in snapshot.select(0) for key in route.segments}


def test_a_consuming_segment_is_asked_for_by_where_it_begins() -> None:
    snapshot = snapshot_of(chain(1), {A: {sealed(0), consumed(1)}})
    assert keys_of(snapshot) == {sealed(0), consumed(1)}
    assert snapshot.total_docs == ROWS
    assert (snapshot.unavailable, snapshot.pending) == ((), frozenset())


def test_a_commit_is_followed_once_a_replica_has_the_file_and_the_next_segment() -> None:
    before = snapshot_of(chain(0), {A: {consumed(0)}, B: {consumed(0)}})
    assert keys_of(before) == {consumed(0)}
    during = snapshot_of(chain(1), {A: {consumed(0), sealed(0)}, B: {consumed(0)}}, before)
    assert (keys_of(during), during.pending) == ({consumed(0)}, frozenset())
    after = snapshot_of(chain(1), {A: {consumed(0), sealed(0), consumed(1)}, B: {consumed(0)}}, during)
    assert keys_of(after) == {sealed(0), consumed(1)}
    assert after.swaps == ()


def test_the_cut_moves_back_when_the_only_holder_of_a_sealed_segment_is_gone() -> None:
    after = snapshot_of(chain(1), {A: {sealed(0), consumed(1)}, B: {consumed(0)}})
    assert keys_of(after) == {sealed(0), consumed(1)}
    alone = snapshot_of(chain(1), {B: {consumed(0)}}, after)
    assert (keys_of(alone), alone.unavailable) == ({consumed(0)}, ())


def test_the_cut_stays_behind_what_only_a_server_that_leaves_has_sealed() -> None:
    reports = {A: {sealed(0), consumed(1)}, B: {consumed(0), consumed(1)}}
    after = snapshot_of(chain(1), reports, backups=frozenset({A}))
    assert {(route.instance, *route.segments) for route in after.select(0)} == {(B, consumed(0))}
    alone = snapshot_of(chain(1), {A: reports[A]}, after, backups=frozenset({A}))
    assert keys_of(alone) == {sealed(0), consumed(1)}


def test_what_followed_a_tail_is_missed_when_nobody_answers_for_it_any_more() -> None:
    """Both servers died, and one is back with sealed segments only: the rows behind them are not new, but gone."""
    before = snapshot_of(chain(1), {A: {sealed(0), consumed(1)}, B: {consumed(0), consumed(1)}})
    opened = snapshot_of(chain(1), {A: {sealed(0)}}, before)
    assert (keys_of(opened), opened.unavailable) == ({sealed(0)}, (consumed(1),))
    committed = snapshot_of(chain(2), {A: {sealed(0), sealed(1)}}, before)
    assert (keys_of(committed), committed.unavailable) == ({sealed(0), sealed(1)}, (consumed(2),))
    later = snapshot_of(chain(2), {A: {sealed(0)}}, committed)
    assert set(later.unavailable) == {sealed(1), consumed(2)}
    behind = snapshot_of(chain(3), {A: {sealed(0), sealed(1)}}, opened)
    assert set(behind.unavailable) == {sealed(2), consumed(3)}
    loaded = snapshot_of(chain(3), {A: {sealed(0), sealed(1), sealed(2)}}, behind)
    assert loaded.unavailable == (consumed(3),)
    again = snapshot_of(chain(2), {A: {sealed(0), sealed(1), consumed(2)}}, committed)
    assert (keys_of(again), again.unavailable) == ({sealed(0), sealed(1), consumed(2)}, ())


def test_a_broker_that_starts_hears_from_a_dead_server_what_was_answered() -> None:
    bucket = Bucket("x", {one.name: one for one in chain(1)}, {one.name: (A, B) for one in chain(1)})
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: bucket})
    reports = {A: {sealed(0)}, B: {consumed(0)}}
    inputs = RoutingInputs(view=view, reports=reports, standings={A: ServerStanding.PREFERRED}, now_ms=NOW_MS)
    snapshot = build(inputs, None)
    assert (keys_of(snapshot), snapshot.unavailable) == ({sealed(0)}, (consumed(1),))


def test_a_partition_that_goes_on_after_a_pause_is_new_until_somebody_consumes_it() -> None:
    paused = snapshot_of(chain(1, ConsumingStatus.PAUSED), {A: {sealed(0)}})
    assert (keys_of(paused), paused.unavailable) == ({sealed(0)}, ())
    resumed = snapshot_of(chain(1), {A: {sealed(0)}}, paused)
    assert (keys_of(resumed), resumed.unavailable) == ({sealed(0)}, ())


def test_two_commits_that_a_broker_hears_of_at_once_are_one_step() -> None:
    before = snapshot_of(chain(0), {A: {consumed(0)}})
    after = snapshot_of(chain(2), {A: {consumed(0), sealed(0), consumed(1), sealed(1), consumed(2)}}, before)
    assert keys_of(after) == {sealed(0), sealed(1), consumed(2)}


def test_two_commits_and_a_refresh_that_a_broker_hears_of_at_once_do_not_wait_for_each_other() -> None:
    batch = SegmentRecord(name="batch", crc=1, size_bytes=1, url="x", total_docs=5, push_time_ms=NOW_MS)
    newer = batch.model_copy(update={"crc": 2})
    before = snapshot_of([batch, *chain(0)], {A: {"batch@1", consumed(0)}})
    held = {"batch@1", consumed(0), sealed(0), consumed(1), sealed(1), consumed(2)}
    after = snapshot_of([newer, *chain(2)], {A: held}, before)
    assert keys_of(after) == {"batch@1", sealed(0), sealed(1), consumed(2)}


def test_a_paused_partition_is_its_sealed_segments() -> None:
    running = snapshot_of(chain(0), {A: {consumed(0)}})
    paused = snapshot_of(chain(1, ConsumingStatus.PAUSED), {A: {consumed(0), sealed(0)}}, running)
    assert (keys_of(paused), paused.pending, paused.unavailable) == ({sealed(0)}, frozenset(), ())
    late = snapshot_of(chain(1, ConsumingStatus.PAUSED), {A: {sealed(0)}}, paused, NOW_MS + 2 * NEW_SEGMENT_MS)
    assert (keys_of(late), late.unavailable) == ({sealed(0)}, ())


def test_a_segment_that_its_only_server_consumed_is_missed_when_that_is_gone() -> None:
    before = snapshot_of(chain(0), {A: {consumed(0)}})
    assert snapshot_of(chain(0), {}, before).unavailable == (consumed(0),)


def test_a_segment_without_rows_is_asked_for_until_somebody_reports_the_next() -> None:
    """It ends without a record; of an upsert table, rows of the next replace those that are asked for."""
    empty, following = segment(1, ConsumingStatus.CONSUMING), segment(2, ConsumingStatus.CONSUMING)
    before = snapshot_of([segment(0), empty], {A: {sealed(0), consumed(1)}})
    during = snapshot_of([segment(0), following], {A: {sealed(0), consumed(1)}}, before)
    assert keys_of(during) == {sealed(0), consumed(1)}
    assert (during.unavailable, during.pending) == ((), frozenset())
    after = snapshot_of([segment(0), following], {A: {sealed(0), consumed(1), consumed(2)}}, during)
    assert keys_of(after) == {sealed(0), consumed(2)}


def test_what_was_replaced_is_not_asked_for_by_an_older_beginning() -> None:
    """The middle one of three is merged away: its rows are elsewhere, and everything from the first on has them too."""
    records = [segment(0), segment(2), segment(3, ConsumingStatus.CONSUMING)]
    held = {consumed(0), sealed(0), sealed(2), consumed(2), consumed(3)}
    assert keys_of(snapshot_of(records, {A: held})) == {sealed(0), sealed(2), consumed(3)}
    lacking = snapshot_of(records, {A: {consumed(0), sealed(2), consumed(3)}})
    assert keys_of(lacking) == {sealed(2), consumed(3)}
    assert lacking.pending == {segment(0).name}


def test_other_segments_of_the_table_are_not_held_up_by_a_commit() -> None:
    batch = SegmentRecord(name="batch", crc=1, size_bytes=1, url="x", total_docs=5, push_time_ms=NOW_MS)
    newer = batch.model_copy(update={"crc": 2})
    before = snapshot_of([batch, *chain(0)], {A: {"batch@1", consumed(0)}})
    both = snapshot_of([newer, *chain(1)], {A: {"batch@2", consumed(0)}}, before)
    assert keys_of(both) == {"batch@2", consumed(0)}


def test_a_rewritten_segment_is_asked_for_as_it_was_until_somebody_has_its_new_file() -> None:
    held = {sealed(0), sealed(1), consumed(2)}
    before = snapshot_of(chain(2), {A: held})
    after = snapshot_of([rewritten(0), *chain(2)[1:]], {A: held}, before)
    assert (keys_of(after), after.unavailable) == (held, ())
    loaded = snapshot_of([rewritten(0), *chain(2)[1:]], {A: held | {rewritten(0).key_text}}, after)
    assert keys_of(loaded) == {rewritten(0).key_text, sealed(1), consumed(2)}


def test_segments_that_were_rewritten_at_once_do_not_wait_for_each_other() -> None:
    """The cut moves back to one that nobody has, and on once somebody has it, whatever becomes of the other."""
    records = [rewritten(0), segment(1), rewritten(2), segment(3, ConsumingStatus.CONSUMING)]
    held = {sealed(0), sealed(1), sealed(2), consumed(2), consumed(3)}
    before = snapshot_of(chain(3), {A: held})
    assert keys_of(before) == {sealed(0), sealed(1), sealed(2), consumed(3)}
    back = snapshot_of(records, {A: held}, before)
    assert keys_of(back) == {sealed(0), sealed(1), consumed(2)}
    on = snapshot_of(records, {A: held | {rewritten(2).key_text}}, back)
    assert keys_of(on) == {sealed(0), sealed(1), rewritten(2).key_text, consumed(3)}


def held_of(number: int) -> st.SearchStrategy[set[str]]:
    """Any keys of a chain whose sealed segments may have been rewritten."""
    keys = [key for one in range(number + 1) for key in (sealed(one), rewritten(one).key_text, consumed(one))]
    return st.sets(st.sampled_from(keys))


@settings(max_examples=CASES, deadline=None)
@given(data=st.data(), num_done=st.integers(0, 3))
def test_whatever_becomes_of_segments_and_servers_no_row_is_asked_for_twice(data: st.DataObject, num_done: int) -> None:
    """Segments are committed, rewritten and removed, beside a batch that others replace; servers come and go."""
    snapshot, files, batches = None, [segment(one) for one in range(num_done)], ["x"]
    for _ in range(data.draw(st.integers(2, 5), "steps")):
        for place, one in enumerate(files):
            if data.draw(st.booleans(), f"rewrite {one.sequence}"):
                files[place] = rewritten(one.sequence)
        if files and data.draw(st.integers(0, 4), "remove") == 0:
            files.pop(0)
        if num_done < 4 and data.draw(st.booleans(), "commit"):
            files.append(segment(num_done))
            num_done += 1
        if data.draw(st.booleans(), "replace"):
            batches = ["y", "z"] if batches == ["x"] else ["x"]
        others = [SegmentRecord(name=one, crc=1, size_bytes=1, url="x", total_docs=5) for one in batches]
        reports = {server: data.draw(held_of(num_done), server) | {"x@1", "y@1"} for server in (A, B)}
        is_strict = data.draw(st.booleans(), "strict")
        records: list[SegmentRecord] = [*others, *files, segment(num_done, ConsumingStatus.CONSUMING)]
        snapshot = snapshot_of(records, reports, snapshot, is_strict=is_strict)
        for turn in snapshot.turns:
            asked = [key for route in turn for key in route.segments if "__" in key]
            names = [key.partition("@")[0] for key in asked]
            assert len(names) == len(set(names))
            cuts = [number for number in range(num_done + 1) if consumed(number) in asked]
            assert len(cuts) <= 1
            assert not cuts or all(name <= segment(cuts[0]).name for name in names)
            assert all(set(route.segments) <= reports[route.instance] for route in turn)


@settings(max_examples=examples(300), deadline=None)
@given(
    num_done=st.integers(0, 4),
    reports=st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 4), st.booleans()), max_size=16),
    steps=st.integers(1, 3),
)
def test_whatever_is_held_each_segment_is_asked_for_once_or_told_as_missing(
    num_done: int, reports: list[tuple[InstanceId, int, bool]], steps: int
) -> None:
    held: dict[InstanceId, set[str]] = {A: set(), B: set()}
    for server, number, is_sealed in reports:
        held[server].add(sealed(number) if is_sealed else consumed(number))
    snapshot = None
    for number in range(max(0, num_done - steps), num_done + 1):
        snapshot = snapshot_of(chain(number), held, snapshot)
    assert snapshot is not None
    asked = sorted(keys_of(snapshot))
    cuts = [number for number in range(num_done + 1) if consumed(number) in asked]
    assert len(cuts) <= 1
    whole = {number for number in range(num_done) if sealed(number) in asked}
    tail = set(range(cuts[0], num_done + 1)) if cuts else set()
    assert whole.isdisjoint(tail)
    missing = {key.partition("@")[0] for key in snapshot.unavailable} | snapshot.pending
    assert whole | tail | {n for n in range(num_done + 1) if segment(n).name in missing} == set(range(num_done + 1))
    for route in snapshot.select(0):
        assert set(route.segments) <= held[route.instance]

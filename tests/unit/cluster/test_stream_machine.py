"""What a partition's replica does next, step by step; `tests/simulation` plays whole histories."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from merlot.cluster.consuming import machine
from merlot.cluster.consuming.machine import LOST, Limits, Replica, ReplicaPhase
from merlot.cluster.consuming.steps import (
    Action,
    Build,
    Commit,
    Download,
    Downloaded,
    Event,
    Failed,
    FileBuilt,
    HeldRows,
    Leave,
    MessageLost,
    Peers,
    Propose,
    Publish,
    Read,
    RowEnd,
    SegmentLookedUp,
    SegmentSwitched,
    Switch,
    TakeOver,
    Tick,
    Upload,
    Uploaded,
)
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, StreamSegmentRecord
from merlot.ids import InstanceId

A, B = InstanceId("a"), InstanceId("b")
LIMITS = Limits(max_bytes=1_000, max_age_ms=60_000)
CRC = 7


def record(sequence: int = 0, start: int = 100, pinned: str = "p", **fields: object) -> StreamSegmentRecord:
    return StreamSegmentRecord.model_validate(
        {
            "name": f"t__0__{sequence}__20240101T0000Z",
            "crc": 0,
            "size_bytes": 0,
            "url": "",
            "total_docs": 0,
            "creation_time_ms": 0,
            "partition": 0,
            "sequence": sequence,
            "start_offset": start,
            "pinned": pinned,
            "pinned_id": f"id of {pinned}",
            "status": ConsumingStatus.CONSUMING,
            **fields,
        }
    )


FIRST = record()
NEXT = record(1, 140)


def sealing(end: int = 140, sealer: InstanceId = A) -> StreamSegmentRecord:
    return record(status=ConsumingStatus.SEALING, end_offset=end, sealer=sealer)


def done(end: int = 140, crc: int = CRC) -> StreamSegmentRecord:
    fields = {"status": ConsumingStatus.DONE, "end_offset": end, "crc": crc, "url": "u", "sealer": A}
    return record(**fields).model_copy(update={"pinned": ""})


@dataclass
class Driver:
    """Feeds one replica and keeps what it asks for."""

    replica: Replica = field(default_factory=lambda: machine.start(A, FIRST, LIMITS, 0))
    now_ms: int = 0
    epoch: int = 0

    def give(self, event: Event, after_ms: int = 0) -> tuple[Action, ...]:
        self.now_ms += after_ms
        self.replica, actions = machine.step(self.replica, event, self.now_ms)
        return actions

    def read(
        self, offset: int, docs: int | None = None, num_bytes: int = 0, row_end: RowEnd | None = None
    ) -> tuple[Action, ...]:
        docs = offset - self.replica.record.start_offset if docs is None else docs
        held = HeldRows(offset=offset, docs=docs, num_bytes=num_bytes, row_end=row_end)
        return self.give(Read(self.replica.record.name, held, has_caught_up=True))

    def see(
        self, seen: StreamSegmentRecord | None, following: StreamSegmentRecord | None = None, *, mine: bool = True
    ) -> tuple[Action, ...]:
        self.epoch += 1
        name = self.replica.record.name
        return self.give(
            SegmentLookedUp(segment=name, epoch=self.epoch, record=seen, following=following, is_assigned=mine)
        )

    def peers(self, *positions: PositionRecord, live: frozenset[InstanceId] = frozenset({A, B})) -> tuple[Action, ...]:
        found = {one.instance: one for one in positions}
        return self.give(Peers(FIRST.name, found, assigned=frozenset({A, B}), live=live))


def position(instance: InstanceId, offset: int, reason: str = "AGE", resume: int | None = None) -> PositionRecord:
    return PositionRecord(segment=FIRST.name, instance=instance, offset=offset, reason=reason, resume=resume)


def proposed(actions: tuple[Action, ...]) -> tuple[int, InstanceId, int | None]:
    (action,) = actions
    assert isinstance(action, Propose)
    return action.end.offset, action.end.sealer, action.end.next_offset


def test_rows_are_read_until_there_is_a_reason_to_end() -> None:
    driver = Driver()
    assert driver.read(139, num_bytes=999) == ()
    assert driver.give(Tick(), after_ms=59_999) == ()
    assert driver.replica.phase is ReplicaPhase.CONSUMING
    assert machine.may_read(driver.replica)


def test_by_rows_the_end_is_proposed_at_once_and_reading_goes_on() -> None:
    driver = Driver()
    assert proposed(driver.read(145, row_end=RowEnd(140, 40))) == (140, A, None)
    assert driver.read(150, row_end=RowEnd(140, 40)) == (), "it has been asked for"
    assert machine.may_read(driver.replica)
    driver.read(180, row_end=RowEnd(140, 40))
    assert not machine.may_read(driver.replica), "the tail is as long as a segment"


def test_size_age_a_wish_and_a_peer_are_reasons_to_publish_a_position() -> None:
    reasons = {}
    for name in ("SIZE", "AGE", "FORCE", "PEER"):
        driver = Driver()
        actions = driver.read(130, num_bytes=1_000 if name == "SIZE" else 1)
        if name == "AGE":
            actions = driver.give(Tick(), after_ms=60_000)
        if name == "FORCE":
            actions = driver.see(record(asked_end=AskedEnd.FORCE))
        if name == "PEER":
            actions = driver.peers(position(B, 120))
        (action,) = actions
        assert isinstance(action, Publish)
        reasons[name] = (action.position.reason, action.position.offset)
    assert reasons == {name: (name, 130) for name in reasons}


def test_the_greatest_position_of_those_that_live_is_the_end_and_nobody_stops_reading() -> None:
    driver = Driver()
    driver.read(120)
    driver.see(record(asked_end=AskedEnd.FORCE))
    driver.read(130)
    assert driver.peers(position(A, 120, "FORCE")) == (), "b lives, and has not told its position"
    assert proposed(driver.peers(position(A, 120, "FORCE"), position(B, 140))) == (140, B, None)
    assert machine.may_read(driver.replica)


def test_a_replica_that_is_silent_is_not_waited_for_long() -> None:
    driver = Driver()
    driver.read(130, num_bytes=1_000)
    driver.peers(position(A, 130, "SIZE"))
    assert driver.give(Tick(), after_ms=LIMITS.hold_ms - 1) == ()
    assert proposed(driver.give(Tick(), after_ms=1)) == (130, A, None)


def test_a_replica_behind_reads_on_to_the_end_and_then_makes_the_file_if_it_is_to() -> None:
    driver = Driver()
    driver.read(120)
    assert driver.see(sealing()) == ()
    assert driver.replica.phase is ReplicaPhase.CATCHING_UP
    assert driver.read(150) == (Build(FIRST.name, 140),)
    assert driver.give(FileBuilt(FIRST.name, CRC, 40)) == (Upload(FIRST.name, CRC),)
    commit = Commit(segment=FIRST.name, start_offset=100, end_offset=140, crc=CRC, url="u")
    assert driver.give(Uploaded(FIRST.name, "u")) == (commit,)
    assert driver.see(done(), NEXT) == (Switch(record=NEXT, keep=True, carry=True),)
    assert not machine.may_read(driver.replica)
    assert driver.give(SegmentSwitched(NEXT, HeldRows(offset=150, docs=10))) == ()
    assert (driver.replica.phase, driver.replica.record, driver.replica.held.docs) == (ReplicaPhase.CONSUMING, NEXT, 10)


def test_a_segment_without_rows_is_committed_without_a_file() -> None:
    driver = Driver()
    driver.see(sealing(end=100))
    driver.give(FileBuilt(FIRST.name, CRC, 0))
    assert driver.replica.doing == Commit(segment=FIRST.name, start_offset=100, end_offset=100, crc=CRC, url=None)
    assert driver.see(None, record(1, 100)) == (Switch(record=record(1, 100), keep=False, carry=True),)


def test_the_other_replicas_keep_what_is_equal_and_load_what_is_not() -> None:
    for crc, expected in ((CRC, Switch(record=NEXT, keep=True, carry=True)), (CRC + 1, Download(done()))):
        driver = Driver()
        driver.read(140)
        assert driver.see(sealing(sealer=B)) == ()
        assert driver.replica.phase is ReplicaPhase.WAITING
        assert driver.see(done(), NEXT) == (Build(FIRST.name, 140),)
        assert driver.give(FileBuilt(FIRST.name, crc, 40)) == (expected,)


def test_a_committed_file_that_cannot_be_made_here_is_loaded() -> None:
    driver = Driver()
    driver.read(140)
    (build,) = driver.see(done(), NEXT)
    assert driver.give(Failed(build)) == (Download(done()),)
    assert not machine.makes_file(driver.replica)


def test_a_replica_that_lacks_rows_loads_the_committed_file() -> None:
    driver = Driver()
    driver.read(120)
    assert driver.see(done(), NEXT) == (Download(done()),)
    assert driver.give(Downloaded(FIRST.name)) == (Switch(record=NEXT, keep=False, carry=False),)


def test_a_tail_is_read_again_if_the_settings_have_changed() -> None:
    driver = Driver()
    driver.read(150)
    driver.see(done(), record(1, 140, pinned="q"))
    assert driver.give(Downloaded(FIRST.name)) == (Switch(record=record(1, 140, pinned="q"), keep=False, carry=False),)


def test_a_late_replica_goes_along_the_chain_with_its_tail() -> None:
    second = record(1, 140, status=ConsumingStatus.DONE, end_offset=160, crc=8, url="v").model_copy(
        update={"pinned": ""}
    )
    driver = Driver()
    driver.read(170)
    driver.see(done(), second)
    assert driver.give(FileBuilt(FIRST.name, CRC, 40)) == (Switch(record=second, keep=True, carry=True),)
    driver.give(SegmentSwitched(second, HeldRows(offset=170, docs=30)))
    assert driver.see(second, record(2, 160)) == (Build(second.name, 160),)
    assert driver.give(FileBuilt(second.name, 8, 20)) == (Switch(record=record(2, 160), keep=True, carry=True),)


def test_a_sealer_that_dies_or_hangs_is_replaced() -> None:
    for live, wait_ms in ((frozenset({A}), LIMITS.hold_ms), (frozenset({A, B}), LIMITS.seal_ms)):
        driver = Driver()
        driver.read(140)
        driver.see(sealing(sealer=B))
        driver.peers(live=live)
        assert driver.give(Tick(), after_ms=wait_ms - 1) == ()
        assert driver.give(Tick(), after_ms=1) == (TakeOver(FIRST.name, B),)
        assert driver.see(sealing(sealer=A)) == (Build(FIRST.name, 140),)


def test_what_fails_is_tried_again_after_a_growing_pause() -> None:
    driver = Driver()
    driver.read(140)
    (build,) = driver.see(sealing())
    for pause_ms in (LIMITS.retry_ms, 2 * LIMITS.retry_ms, 4 * LIMITS.retry_ms):
        assert driver.give(Failed(build)) == ()
        assert driver.give(Tick(), after_ms=pause_ms - 1) == ()
        assert driver.give(Tick(), after_ms=1) == (build,)


def test_answers_that_are_late_or_of_another_segment_change_nothing() -> None:
    driver = Driver()
    before = driver.replica
    for event in (FileBuilt("other", 1, 1), Uploaded("other", "u"), Downloaded("other"), Failed(Build("other", 1))):
        assert driver.give(event) == ()
        assert driver.replica == before
    driver.see(sealing())
    driver.epoch = -2
    driver.see(FIRST)
    assert driver.replica.record == sealing(), "an older view"


def test_a_look_for_a_former_segment_says_nothing_of_the_one_that_is_worked_on() -> None:
    driver = Driver()
    driver.read(150)
    late = SegmentLookedUp(segment=FIRST.name, epoch=9, record=None, following=NEXT, is_assigned=True)
    driver.give(late)
    driver.give(SegmentSwitched(NEXT, HeldRows(offset=150, docs=10)))
    before = driver.replica
    assert driver.give(late) == (), "it was answered twice, or came late"
    assert driver.replica == before


def test_an_action_that_is_not_wanted_any_more_is_known() -> None:
    driver = Driver()
    driver.read(140)
    (build,) = driver.see(sealing())
    assert machine.is_wanted(driver.replica, build)
    driver.see(sealing(sealer=B))
    assert not machine.is_wanted(driver.replica, build)


def test_lost_messages_end_a_segment_only_if_every_replica_has_lost_them() -> None:
    driver = Driver()
    driver.read(120)
    (publish,) = driver.give(MessageLost(FIRST.name, 300))
    assert isinstance(publish, Publish)
    assert (publish.position.reason, publish.position.offset, publish.position.resume) == (LOST, 120, 300)
    mine = publish.position
    assert driver.peers(mine, live=frozenset({A})) == (), "b is silent, but may have them"
    assert proposed(driver.peers(mine, position(B, 120))) == (120, A, None)
    assert proposed(driver.peers(mine, position(B, 110, LOST, 310))) == (120, A, 300)


def test_lost_messages_are_given_up_when_the_others_are_silent_for_long() -> None:
    driver = Driver()
    driver.give(MessageLost(FIRST.name, 300))
    driver.peers(position(A, 100, LOST, 300), live=frozenset({A}))
    assert proposed(driver.give(Tick(), after_ms=LIMITS.lost_hold_ms)) == (100, A, 300)


def test_a_policy_to_stop_stops_and_tells() -> None:
    driver = Driver()
    assert driver.give(MessageLost(FIRST.name, None)) == ()
    assert driver.replica.phase is ReplicaPhase.STOPPED
    assert machine.may_read(driver.replica), "they may come back"
    assert driver.read(110) == ()
    assert driver.replica.phase is ReplicaPhase.CONSUMING


@pytest.mark.parametrize("status", [ConsumingStatus.PAUSED, ConsumingStatus.CONSUMING])
def test_a_pause_stops_and_a_partition_that_is_given_away_is_left(status: ConsumingStatus) -> None:
    driver = Driver()
    driver.see(record(status=status))
    assert machine.may_read(driver.replica) == (status == ConsumingStatus.CONSUMING)
    assert driver.see(record(status=status), mine=False) == (Leave(),)
    assert driver.replica.phase is ReplicaPhase.LEFT


def test_a_replica_that_has_just_begun_has_no_say_in_when_a_segment_ends() -> None:
    for reason in ("FORCE", "AGE"):
        driver = Driver(replica=machine.start(A, FIRST, LIMITS, 60_000), now_ms=60_000)
        driver.give(Read(FIRST.name, HeldRows(offset=101, docs=1)))
        if reason == "FORCE":
            driver.see(record(asked_end=AskedEnd.FORCE))
        former = position(A, 130, "FORCE")
        assert driver.peers(former) == (), "what it had read in a former life is gone"
        assert driver.give(Tick(), after_ms=LIMITS.catch_up_ms - 1) == ()
        (action,) = driver.give(Tick(), after_ms=1)
        assert isinstance(action, Publish)
        assert (action.position.offset, action.position.reason) == (101, reason)


def test_a_replica_that_has_just_begun_goes_along_with_a_peer() -> None:
    driver = Driver()
    driver.give(Read(FIRST.name, HeldRows(offset=101, docs=1)))
    driver.peers(position(B, 140))
    assert proposed(driver.peers(position(A, 101, "PEER"), position(B, 140))) == (140, B, None)


def test_the_age_of_a_segment_outlives_its_replicas() -> None:
    driver = Driver(replica=machine.start(A, FIRST, LIMITS, 50_000), now_ms=50_000)
    assert driver.read(110) == ()
    (action,) = driver.give(Tick(), after_ms=10_000)
    assert isinstance(action, Publish)
    assert action.position.reason == "AGE"


def test_a_segment_ends_when_the_memory_of_the_server_is_used_up() -> None:
    driver = Driver()
    (action,) = driver.give(Read(FIRST.name, HeldRows(offset=110, docs=10, exceeds_memory=True)))
    assert isinstance(action, Publish)
    assert action.position.reason == "SIZE"


@pytest.mark.parametrize(
    "fields",
    [{"asked_end": AskedEnd.PAUSE}, {"next_pinned": "q"}, {"next_offset": 500}],
    ids=["a pause", "other settings", "another place"],
)
def test_nothing_is_read_behind_an_end_that_the_next_segment_does_not_take_up(fields: dict[str, object]) -> None:
    driver = Driver()
    ended = sealing(sealer=B).model_copy(update=fields)
    driver.read(130)
    driver.see(ended)
    assert machine.may_read(driver.replica), "it has not come to the end"
    driver.read(150)
    assert not machine.may_read(driver.replica)
    assert machine.takes_tail(driver.replica) == ("asked_end" in fields), "what was read before a pause stays"


def test_a_file_that_could_not_be_committed_is_uploaded_again_after_a_pause() -> None:
    driver = Driver()
    driver.read(140)
    driver.see(sealing())
    driver.give(FileBuilt(FIRST.name, CRC, 40))
    (commit,) = driver.give(Uploaded(FIRST.name, "u"))
    assert driver.give(Failed(commit)) == ()
    assert driver.give(Tick(), after_ms=LIMITS.retry_ms - 1) == ()
    assert driver.give(Tick(), after_ms=1) == (Upload(FIRST.name, CRC),)


def test_whoever_finds_its_place_again_gives_nothing_up() -> None:
    driver = Driver()
    driver.give(MessageLost(FIRST.name, 300))
    driver.read(110)
    assert driver.replica.phase is ReplicaPhase.CONSUMING
    assert driver.peers(position(A, 100, LOST, 300)) == ()


def test_a_file_is_fetched_only_if_it_cannot_be_made() -> None:
    driver = Driver()
    driver.read(120)
    driver.see(sealing(sealer=B))
    assert machine.makes_file(driver.replica)
    driver.see(done())
    assert not machine.makes_file(driver.replica), "its chain is broken, and nothing goes on"
    driver.see(done(), NEXT)
    assert driver.replica.phase is ReplicaPhase.DOWNLOADING
    assert not machine.makes_file(driver.replica)

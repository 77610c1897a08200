"""State machine of a partition's replica: what it does next, given all that it knows. Pure: events in, actions out.

A step takes an event's facts into the state, derives the replica's phase from them (`ReplicaPhase`), and requests the
action that this phase needs, once, until it is answered. So nothing depends on the order of events, on their number, or
on a missed one: the next look at the tree brings the same facts again.

CONSUMING ─► ENDING ─► CATCHING_UP ─► BUILDING ─► UPLOADING ─► COMMITTING ─► SWITCHING ─► CONSUMING …
                              └─────► WAITING ──► KEEPING or DOWNLOADING ──────┘

Example. Two replicas, a and b; the segment starts at 100 and ends by its age.
1. a has read up to 140. The segment is too old: a publishes 140. Phase ENDING.
2. b sees that position, has 135, and publishes 135.
3. Both see both positions; the first of them proposes the end 140, to be sealed by a. The segment is SEALING.
4. a builds the file of [100, 140), uploads and commits it: DONE, and the next segment, from 140 on, is CONSUMING.
   Both have read on: the rows of a after 140 are its tail, which it carries into the next segment.
5. b reads up to 140 and beyond, waits for the commit, builds its own file, finds it equal, and keeps it.
If the segment ends by rows, steps 1 to 3 are one: both know the end, and the first to propose it makes the file.

A replica that has just begun has no say in ends that rows and memory do not decide, until it has caught up with the
stream: it would end the segment at its first rows. It takes part once another replica has a reason, since the greatest
position becomes the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

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
    SegmentLookedUp,
    SegmentSwitched,
    Switch,
    TakeOver,
    Upload,
    Uploaded,
)
from merlot.cluster.consuming.transactions import End
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, StreamSegmentRecord
from merlot.ids import InstanceId

LOST = "LOST"
"""Reason of a position: the stream no longer has the next message."""


class ReplicaPhase(StrEnum):
    """Phase of a replica. It reads on in all of them but SWITCHING, STOPPED and LEFT (`may_read`)."""

    CONSUMING = "CONSUMING"
    """It reads and appends; no replica has a reason to end the segment."""
    ENDING = "ENDING"
    """It has a reason to end the segment, and waits until the end is agreed."""
    CATCHING_UP = "CATCHING_UP"
    """The end is agreed, and it lacks rows before the end."""
    WAITING = "WAITING"
    """It has all rows, and another replica makes the file; or the segment is committed, and the next segment does not
    exist yet."""
    BUILDING = "BUILDING"
    UPLOADING = "UPLOADING"
    COMMITTING = "COMMITTING"
    KEEPING = "KEEPING"
    """The segment is committed, and it has all rows: it builds its own file, to compare it and keep it."""
    DOWNLOADING = "DOWNLOADING"
    """The segment is committed, and it lacks rows, or has built other content."""
    SWITCHING = "SWITCHING"
    """It has the committed file, and continues with the next segment."""
    STOPPED = "STOPPED"
    """The partition is paused, or has lost its place in the stream and its policy is to stop."""
    LEFT = "LEFT"
    """The partition is no longer assigned to it, or its segment is gone and no other follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits at which a segment ends, besides its number of rows, and how long a replica waits for others."""

    max_bytes: int
    max_age_ms: int
    hold_ms: int = 3_000
    """Wait for positions of live replicas, and before another replica takes over from a sealer that seems dead."""
    lost_hold_ms: int = 60_000
    """Wait for any replica before rows that the stream has lost are given up: a silent replica may have them."""
    seal_ms: int = 120_000
    """Wait for a live sealer."""
    catch_up_ms: int = 10_000
    """Time after which a replica has a say even if it is behind the stream, perhaps by hours, or cannot read at all."""
    retry_ms: int = 500
    max_retry_ms: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """Everything that a replica knows. `record` is its segment as last seen."""

    instance: InstanceId
    record: StreamSegmentRecord
    settings: str
    """Settings by which its rows are read: those that the record pinned when it began. Empty if it was DONE before."""
    settings_id: str
    limits: Limits
    held: HeldRows
    phase: ReplicaPhase = ReplicaPhase.CONSUMING
    phase_ms: int
    """Time since which it is in its phase."""
    begun_ms: int
    has_caught_up: bool = False
    """True if it has the rows that the stream had when it began."""
    epoch: int = -1
    is_gone: bool = False
    """True if the record is gone: the segment had no rows, or was removed or merged since."""
    is_assigned: bool = True
    following: StreamSegmentRecord | None = None
    end_reason: str = ""
    """Reason why it would end the segment; the first reason is kept."""
    reached: int = -1
    """Offset that it had reached when it got the reason. It reads on."""
    lost: MessageLost | None = None
    positions: Mapping[InstanceId, PositionRecord] = field(default_factory=dict)
    live: Set[InstanceId] = frozenset()
    assigned: Set[InstanceId] = frozenset()
    sealer_ms: int = -1
    """Time since which it knows of the record's sealer."""
    built: FileBuilt | None = None
    url: str | None = None
    is_downloaded: bool = False
    doing: Action | None = None
    """Action that it has requested and that is not answered yet."""
    retry_at_ms: int = 0
    num_failures: int = 0


def start(
    instance: InstanceId, record: StreamSegmentRecord, limits: Limits, now_ms: int, held: HeldRows | None = None
) -> Replica:
    """Return the replica of a partition that begins at its open segment."""
    return Replica(
        instance=instance,
        record=record,
        settings=record.pinned,
        settings_id=record.pinned_id,
        limits=limits,
        held=held or HeldRows(offset=record.start_offset),
        phase_ms=now_ms,
        begun_ms=now_ms,
        sealer_ms=now_ms,
    )


def step(replica: Replica, event: Event, now_ms: int) -> tuple[Replica, tuple[Action, ...]]:
    """Apply the event; return the state after it, and the actions to carry out now."""
    after = _with_reason(_with_facts(replica, event, now_ms), now_ms)
    phase = _phase(after)
    if phase is not after.phase:
        after = replace(after, phase=phase, phase_ms=now_ms)
        if not isinstance(event, Failed):
            after = replace(after, retry_at_ms=0, num_failures=0)
    action = _next_action(after, now_ms)
    if action is None:
        return after if after.doing is None else replace(after, doing=None), ()
    if action == after.doing or now_ms < after.retry_at_ms:
        return after, ()
    return replace(after, doing=action), (action,)


def is_wanted(replica: Replica, action: Action) -> bool:
    """Return True if the replica still wants this action: by now it may want another, or none."""
    return replica.doing == action


def may_read(replica: Replica) -> bool:
    """Return True if the next messages may be read and appended. Lost messages may be requested now and then: they may
    come back.

    Messages behind the end are the tail. While files cannot be uploaded, it may become as large as a segment."""
    if not replica.settings:
        return False
    match replica.phase:
        case ReplicaPhase.STOPPED:
            return replica.lost is not None and replica.record.status == ConsumingStatus.CONSUMING
        case ReplicaPhase.LEFT | ReplicaPhase.SWITCHING:
            return False
        case ReplicaPhase.CONSUMING | ReplicaPhase.CATCHING_UP:
            return True
        case _ if has_all(replica):
            return _has_room(replica) and _may_read_tail(replica)
        case _:
            return _has_room(replica)


def has_all(replica: Replica) -> bool:
    """Return True if the replica has every row before the agreed end."""
    end = replica.record.end_offset
    return end is not None and replica.held.offset >= end


def takes_tail(replica: Replica) -> bool:
    """Return True if, as far as known, rows behind the agreed end belong to the next segment: it starts there, and
    reads them by the same settings. Rows that were read by other settings must not stay, or replicas would differ."""
    record, following = replica.record, replica.following
    end = record.end_offset
    if following is None:
        is_same = replica.record.next_pinned in ("", replica.settings)
        return is_same and end is not None and record.next_offset in (None, end)
    first = record.start_offset if end is None else end
    is_held = first <= following.start_offset <= replica.held.offset
    return is_held and following.pinned_id == replica.settings_id


def makes_file(replica: Replica) -> bool:
    """Return True if the replica may still get its segment's sealed file by itself, without fetching it."""
    is_stuck = replica.record.status == ConsumingStatus.DONE and replica.following is None
    return not replica.is_gone and not is_stuck and replica.phase not in (ReplicaPhase.DOWNLOADING, ReplicaPhase.LEFT)


def _may_read_tail(replica: Replica) -> bool:
    """Return True if reading behind the agreed end is of use."""
    following = replica.following
    if following is None:
        return takes_tail(replica) and replica.record.asked_end is not AskedEnd.PAUSE
    return takes_tail(replica) and following.status != ConsumingStatus.PAUSED


def _has_room(replica: Replica) -> bool:
    held = replica.held
    is_full_again = held.row_end is not None and held.docs >= 2 * held.row_end.docs
    return not is_full_again and held.num_bytes < 2 * replica.limits.max_bytes


def _with_facts(replica: Replica, event: Event, now_ms: int) -> Replica:
    """Return the state with the event's facts; facts about other segments are ignored."""
    name = replica.record.name
    match event:
        case Read(segment=segment) if segment == name:
            return _read(replica, event)
        case MessageLost(segment=segment) if segment == name:
            return replace(replica, lost=event)
        case SegmentLookedUp(segment=segment) if segment == name:
            return _seen(replica, event, now_ms)
        case Peers(segment=segment) if segment == name:
            return _with_peers(replica, event)
        case FileBuilt(segment=segment) if segment == name:
            return replace(replica, built=event)
        case Uploaded(segment=segment, url=url) if segment == name:
            return replace(replica, url=url)
        case Downloaded(segment=segment) if segment == name:
            return replace(replica, is_downloaded=True)
        case SegmentSwitched(record=record, held=held):
            return _switched(replica, record, held, now_ms)
        case Failed(action=action) if action == replica.doing:
            return _failed(replica, action, now_ms)
        case _:
            return replica


def _with_peers(replica: Replica, event: Peers) -> Replica:
    peers = (replica.positions, replica.live, replica.assigned)
    if peers == (event.positions, event.live, event.assigned):
        return replica
    return replace(replica, positions=event.positions, live=event.live, assigned=event.assigned)


def _read(replica: Replica, event: Read) -> Replica:
    """Apply what was read. A replica that reads has not lost its place in the stream, or has found it again."""
    if event.held == replica.held and replica.lost is None and replica.has_caught_up >= event.has_caught_up:
        return replica
    reason = "" if replica.end_reason == LOST else replica.end_reason
    has_caught_up = replica.has_caught_up or event.has_caught_up
    return replace(replica, held=event.held, lost=None, end_reason=reason, has_caught_up=has_caught_up)


def _failed(replica: Replica, action: Action, now_ms: int) -> Replica:
    """Schedule a retry. After a failed commit the file is uploaded again: it may have been deleted since. A file that
    cannot be built here, but that another replica has committed, is downloaded."""
    if isinstance(action, Build) and replica.record.status == ConsumingStatus.DONE:
        return replace(replica, doing=None, built=FileBuilt(action.segment, 0, 0))
    limits = replica.limits
    wait_ms = min(limits.max_retry_ms, limits.retry_ms << min(replica.num_failures, 16))
    return replace(
        replica,
        doing=None,
        url=None if isinstance(action, Commit) else replica.url,
        retry_at_ms=now_ms + wait_ms,
        num_failures=replica.num_failures + 1,
    )


def _switched(replica: Replica, record: StreamSegmentRecord, held: HeldRows, now_ms: int) -> Replica:
    begun = start(replica.instance, record, replica.limits, now_ms, held)
    is_same = record.pinned_id == replica.settings_id
    return replace(
        begun,
        settings=record.pinned or (replica.settings if is_same else ""),
        epoch=replica.epoch,
        live=replica.live,
        begun_ms=replica.begun_ms,
        has_caught_up=replica.has_caught_up,
    )


def _seen(replica: Replica, event: SegmentLookedUp, now_ms: int) -> Replica:
    if event.epoch < replica.epoch:
        return replica
    is_known = event.record is replica.record and event.following is replica.following and not replica.is_gone
    if is_known and event.epoch == replica.epoch and event.is_assigned == replica.is_assigned:
        return replica
    record = event.record or replica.record
    is_same_end = record.end_offset == replica.record.end_offset or replica.record.end_offset is None
    return replace(
        replica,
        epoch=event.epoch,
        built=replica.built if is_same_end else None,
        url=replica.url if is_same_end else None,
        record=record,
        is_gone=event.record is None,
        is_assigned=event.is_assigned,
        following=event.following,
        sealer_ms=now_ms if record.sealer != replica.record.sealer else replica.sealer_ms,
    )


def _with_reason(replica: Replica, now_ms: int) -> Replica:
    """Set the reason to end a consuming segment, if there is one."""
    if replica.end_reason or replica.record.status != ConsumingStatus.CONSUMING:
        return replica
    held, limits = replica.held, replica.limits
    has_say = replica.has_caught_up or now_ms - replica.begun_ms >= limits.catch_up_ms
    reason = ""
    if held.row_end is not None:
        reason = "ROWS"
    elif replica.lost is not None and replica.lost.resume is not None:
        reason = LOST
    elif has_say and replica.record.asked_end is not AskedEnd.NO:
        reason = "FORCE"
    elif replica.positions.keys() - {replica.instance}:
        reason = "PEER"  # its own position may come from an earlier process, which had read more
    elif held.docs and (held.num_bytes >= limits.max_bytes or held.exceeds_memory):
        reason = "SIZE"
    elif held.docs and has_say and now_ms - replica.record.creation_time_ms >= limits.max_age_ms:
        reason = "AGE"
    return replace(replica, end_reason=reason, reached=held.offset) if reason else replica


def _phase(replica: Replica) -> ReplicaPhase:
    """Return the phase that follows from the facts."""
    if not replica.is_assigned or (replica.is_gone and replica.following is None):
        return ReplicaPhase.LEFT
    if replica.is_gone:
        return ReplicaPhase.SWITCHING
    match replica.record.status:
        case ConsumingStatus.PAUSED:
            return ReplicaPhase.STOPPED
        case ConsumingStatus.CONSUMING if replica.end_reason:
            return ReplicaPhase.ENDING
        case ConsumingStatus.CONSUMING:
            return ReplicaPhase.STOPPED if replica.lost is not None else ReplicaPhase.CONSUMING
        case ConsumingStatus.SEALING:
            return _phase_of_sealing(replica)
        case _:
            return _phase_of_done(replica)


def _phase_of_sealing(replica: Replica) -> ReplicaPhase:
    if not has_all(replica):
        return ReplicaPhase.CATCHING_UP
    if replica.record.sealer != replica.instance:
        return ReplicaPhase.WAITING
    if replica.built is None:
        return ReplicaPhase.BUILDING
    return ReplicaPhase.UPLOADING if replica.built.docs and replica.url is None else ReplicaPhase.COMMITTING


def _phase_of_done(replica: Replica) -> ReplicaPhase:
    if replica.following is None:
        return ReplicaPhase.WAITING
    if replica.is_downloaded or _is_kept(replica):
        return ReplicaPhase.SWITCHING
    return ReplicaPhase.KEEPING if replica.built is None and has_all(replica) else ReplicaPhase.DOWNLOADING


def _is_kept(replica: Replica) -> bool:
    """Return True if the file that was built here has the committed content."""
    return replica.built is not None and replica.built.crc == replica.record.crc


def _next_action(replica: Replica, now_ms: int) -> Action | None:
    """Return the action that the phase needs; None to wait, or just to read."""
    record = replica.record
    match replica.phase:
        case ReplicaPhase.ENDING:
            return _action_to_end(replica, now_ms)
        case ReplicaPhase.CATCHING_UP:
            return _publish(replica) if replica.lost is not None else None
        case ReplicaPhase.WAITING:
            return _takeover_if_late(replica, now_ms)
        case ReplicaPhase.BUILDING | ReplicaPhase.KEEPING:
            assert record.end_offset is not None
            return Build(record.name, record.end_offset)
        case ReplicaPhase.UPLOADING:
            assert replica.built is not None
            return Upload(record.name, replica.built.crc)
        case ReplicaPhase.COMMITTING:
            return _commit(replica)
        case ReplicaPhase.DOWNLOADING:
            return Download(record)
        case ReplicaPhase.SWITCHING:
            return _switch(replica)
        case ReplicaPhase.LEFT:
            return Leave()
        case _:
            return None


def _action_to_end(replica: Replica, now_ms: int) -> Action | None:
    """Propose the end if the rows decide it. Else publish the position, and propose the greatest position once all live
    replicas have published theirs."""
    held = replica.held
    if held.row_end is not None:
        return _propose(replica, held.row_end.offset, replica.instance, None)
    mine = _publish(replica)
    if mine is not None:
        return mine
    positions = replica.positions.values()
    # A replica that still reads will reach the rows that others have lost: they are given up only if none reads.
    is_lost = all(position.resume is not None for position in positions)
    awaited = replica.assigned if is_lost else replica.live
    hold_ms = replica.limits.lost_hold_ms if is_lost else replica.limits.hold_ms
    if not awaited <= replica.positions.keys() and now_ms - replica.phase_ms < hold_ms:
        return None
    best = max(
        positions, key=lambda position: (position.offset, position.instance == replica.instance, position.instance)
    )
    return _propose(replica, best.offset, best.instance, best.resume if is_lost else None)


def _propose(replica: Replica, offset: int, sealer: InstanceId, resume: int | None) -> Propose:
    end = End(segment=replica.record.name, offset=offset, sealer=sealer, now_ms=replica.phase_ms, next_offset=resume)
    return Propose(end)


def _publish(replica: Replica) -> Publish | None:
    """Return the action that publishes the position; None if it is published."""
    mine = PositionRecord(
        segment=replica.record.name,
        instance=replica.instance,
        offset=replica.reached if replica.lost is None and replica.reached >= 0 else replica.held.offset,
        reason=LOST if replica.lost is not None else replica.end_reason,
        resume=None if replica.lost is None else replica.lost.resume,
    )
    return None if replica.positions.get(replica.instance) == mine else Publish(mine)


def _takeover_if_late(replica: Replica, now_ms: int) -> Action | None:
    """Take over from the sealer if it is late: it may have died, or hang."""
    record = replica.record
    if record.status != ConsumingStatus.SEALING:
        return None
    waited_ms = now_ms - replica.sealer_ms
    position = replica.positions.get(InstanceId(record.sealer))
    is_unable = record.sealer not in replica.live or (position is not None and position.reason == LOST)
    is_late = waited_ms >= (replica.limits.hold_ms if is_unable else replica.limits.seal_ms)
    return TakeOver(record.name, record.sealer) if is_late else None


def _commit(replica: Replica) -> Commit:
    record, built = replica.record, replica.built
    assert built is not None
    assert record.end_offset is not None
    return Commit(
        segment=record.name,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        crc=built.crc,
        url=replica.url if built.docs else None,
    )


def _switch(replica: Replica) -> Switch:
    following = replica.following
    assert following is not None
    return Switch(record=following, keep=not replica.is_gone and _is_kept(replica), carry=takes_tail(replica))

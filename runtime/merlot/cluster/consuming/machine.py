"""The life of a partition's replica: what it does next, given all that it knows. Pure: events in, actions out.

A step takes an event's facts into the state, looks where they leave the replica (`Phase`), and asks for what that phase
needs, once, until it is answered. So nothing depends on the order of events, on how many there are, or on whether one
was missed: the next look at the tree tells the same again.

CONSUMING ─► ENDING ─► CATCHING_UP ─► BUILDING ─► UPLOADING ─► COMMITTING ─► SWITCHING ─► CONSUMING …
                              └─────► WAITING ──► KEEPING or DOWNLOADING ──────┘

Example. Two replicas, a and b; the segment starts at 100 and shall end by its age.
1. a has read up to 140. Its age is over: a publishes 140. Phase ENDING.
2. b sees that position, has 135, and publishes that.
3. Both see both positions; whoever comes first proposes the end 140, to be sealed by a. The segment is SEALING.
4. a builds the file of [100, 140), uploads and commits it: DONE, and the next segment, from 140 on, is CONSUMING.
   Nobody has stopped reading: what a has after 140 is its tail, which it carries into the next segment.
5. b reads up to 140 and goes beyond, waits for the commit, builds its own file, finds it equal, and keeps it.
By rows, steps 1 to 3 are one: both know the end without asking, and the first who says so makes the file.

A replica that has just begun has no say in ends that rows and memory do not decide, until it has caught up with the
stream: it would end the segment at its first rows. It takes part when another one has a reason, for the greatest
position holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from merlot.cluster.consuming.steps import (
    Action,
    Build,
    Built,
    Commit,
    Download,
    Downloaded,
    Event,
    Failed,
    Held,
    Leave,
    Lost,
    Peers,
    Propose,
    Publish,
    Read,
    Seen,
    Switch,
    Switched,
    TakeOver,
    Upload,
    Uploaded,
)
from merlot.cluster.consuming.transactions import End
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, StreamSegmentRecord
from merlot.ids import InstanceId

LOST = "LOST"
"""Reason of a position: the stream does not have the next message."""


class Phase(StrEnum):
    """Where a replica is. It reads on in all of them but SWITCHING, STOPPED and LEFT (`may_read`)."""

    CONSUMING = "CONSUMING"
    """It reads and appends; nobody has a reason to end the segment."""
    ENDING = "ENDING"
    """It would end the segment, and waits until the end is agreed."""
    CATCHING_UP = "CATCHING_UP"
    """The end is agreed, and it lacks rows before it."""
    WAITING = "WAITING"
    """It has all rows; another replica makes the file."""
    BUILDING = "BUILDING"
    UPLOADING = "UPLOADING"
    COMMITTING = "COMMITTING"
    KEEPING = "KEEPING"
    """The segment is committed, and it has all rows: it builds its own file, to compare and keep it."""
    DOWNLOADING = "DOWNLOADING"
    """The segment is committed, and it lacks rows, or made other content of them."""
    SWITCHING = "SWITCHING"
    """It has the committed file, and goes on with the next segment."""
    STOPPED = "STOPPED"
    """The partition is paused, or has lost its place in the stream and its policy is to stop."""
    LEFT = "LEFT"
    """The partition is not its to consume any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a segment ends by itself, beside its number of rows. And how long a replica waits for others."""

    max_bytes: int
    max_age_ms: int
    hold_ms: int = 3_000
    """For positions of replicas that live, and before the work of a sealer that seems dead is taken over."""
    lost_hold_ms: int = 60_000
    """For any replica, before rows are given up that the stream has lost: one that is silent may have them."""
    seal_ms: int = 120_000
    """For a sealer that lives."""
    catch_up_ms: int = 10_000
    """After so long a replica has its say though it is behind the stream, by hours maybe, or cannot read at all."""
    retry_ms: int = 500
    max_retry_ms: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """All that a replica knows. `record` is the segment it works on, as it was last seen."""

    instance: InstanceId
    record: StreamSegmentRecord
    settings: str
    """What its rows are read by: what the record pinned when it began. Empty if it was DONE before."""
    settings_id: str
    limits: Limits
    held: Held
    phase: Phase = Phase.CONSUMING
    phase_ms: int
    """Since when it is in its phase."""
    begun_ms: int
    has_caught_up: bool = False
    """It has what the stream had when it began."""
    epoch: int = -1
    is_gone: bool = False
    """The record is: it had no rows, or was removed or merged since."""
    is_assigned: bool = True
    following: StreamSegmentRecord | None = None
    end_reason: str = ""
    """Why it would end the segment; once it has a reason, it keeps it."""
    reached: int = -1
    """How far it had come then. It reads on."""
    lost: Lost | None = None
    positions: Mapping[InstanceId, PositionRecord] = field(default_factory=dict)
    live: Set[InstanceId] = frozenset()
    assigned: Set[InstanceId] = frozenset()
    sealer_ms: int = -1
    """Since when it knows of the record's sealer."""
    built: Built | None = None
    url: str | None = None
    is_downloaded: bool = False
    doing: Action | None = None
    """What it has asked for and has no answer to."""
    retry_at_ms: int = 0
    num_failures: int = 0


def start(
    instance: InstanceId, record: StreamSegmentRecord, limits: Limits, now_ms: int, held: Held | None = None
) -> Replica:
    """A replica that takes up a partition at its open segment."""
    return Replica(
        instance=instance,
        record=record,
        settings=record.pinned,
        settings_id=record.pinned_id,
        limits=limits,
        held=held or Held(offset=record.start_offset),
        phase_ms=now_ms,
        begun_ms=now_ms,
        sealer_ms=now_ms,
    )


def step(replica: Replica, event: Event, now_ms: int) -> tuple[Replica, tuple[Action, ...]]:
    """Take up the event; returns the state after it and what to do now."""
    known = _with_reason(_informed(replica, event, now_ms), now_ms)
    phase = _phase(known)
    if phase is not known.phase:
        known = replace(known, phase=phase, phase_ms=now_ms)
        if not isinstance(event, Failed):
            known = replace(known, retry_at_ms=0, num_failures=0)
    action = _wanted(known, now_ms)
    if action is None:
        return known if known.doing is None else replace(known, doing=None), ()
    if action == known.doing or now_ms < known.retry_at_ms:
        return known, ()
    return replace(known, doing=action), (action,)


def is_wanted(replica: Replica, action: Action) -> bool:
    """Whether the action is still to be carried out: by now the replica may want another, or none."""
    return replica.doing == action


def may_read(replica: Replica) -> bool:
    """Whether the next messages may be read and appended. While they are lost, they may be asked for now and then: they
    may come back.

    What is read beyond the end is the tail; it may become as large as a segment, while files cannot be uploaded.
    """
    if not replica.settings:
        return False
    match replica.phase:
        case Phase.STOPPED:
            return replica.lost is not None and replica.record.status == ConsumingStatus.CONSUMING
        case Phase.LEFT | Phase.SWITCHING:
            return False
        case Phase.CONSUMING | Phase.CATCHING_UP:
            return True
        case _ if has_all(replica):
            return _has_room(replica) and _goes_on(replica)
        case _:
            return _has_room(replica)


def has_all(replica: Replica) -> bool:
    """Whether it has every row before the agreed end."""
    end = replica.record.end_offset
    return end is not None and replica.held.offset >= end


def takes_tail(replica: Replica) -> bool:
    """Whether rows behind the agreed end are the next segment's, as far as is known: it starts there, and reads them by
    the same settings. Replicas would differ if those that were read by others stayed."""
    record, following = replica.record, replica.following
    end = record.end_offset
    if following is None:
        is_same = replica.record.next_pinned in ("", replica.settings)
        return is_same and end is not None and record.next_offset in (None, end)
    first = record.start_offset if end is None else end
    is_held = first <= following.start_offset <= replica.held.offset
    return is_held and following.pinned_id == replica.settings_id


def makes_file(replica: Replica) -> bool:
    """Whether the replica may come to have its segment's sealed file by itself, so that nobody need fetch it."""
    is_stuck = replica.record.status == ConsumingStatus.DONE and replica.following is None
    return not replica.is_gone and not is_stuck and replica.phase not in (Phase.DOWNLOADING, Phase.LEFT)


def _goes_on(replica: Replica) -> bool:
    """Whether there is a point in reading behind the agreed end."""
    following = replica.following
    if following is None:
        return takes_tail(replica) and replica.record.asked_end is not AskedEnd.PAUSE
    return takes_tail(replica) and following.status != ConsumingStatus.PAUSED


def _has_room(replica: Replica) -> bool:
    held = replica.held
    is_full_again = held.row_end is not None and held.docs >= 2 * held.row_end.docs
    return not is_full_again and held.num_bytes < 2 * replica.limits.max_bytes


def _informed(replica: Replica, event: Event, now_ms: int) -> Replica:
    """The state with the event's facts; those of other segments are of no use."""
    name = replica.record.name
    match event:
        case Read(segment=segment) if segment == name:
            return _read(replica, event)
        case Lost(segment=segment) if segment == name:
            return replace(replica, lost=event)
        case Seen(segment=segment) if segment == name:
            return _seen(replica, event, now_ms)
        case Peers(segment=segment) if segment == name:
            return _with_peers(replica, event)
        case Built(segment=segment) if segment == name:
            return replace(replica, built=event)
        case Uploaded(segment=segment, url=url) if segment == name:
            return replace(replica, url=url)
        case Downloaded(segment=segment) if segment == name:
            return replace(replica, is_downloaded=True)
        case Switched(record=record, held=held):
            return _switched(replica, record, held, now_ms)
        case Failed(action=action) if action == replica.doing:
            return _failed(replica, action, now_ms)
        case _:
            return replica


def _with_peers(replica: Replica, event: Peers) -> Replica:
    known = (replica.positions, replica.live, replica.assigned)
    if known == (event.positions, event.live, event.assigned):
        return replica
    return replace(replica, positions=event.positions, live=event.live, assigned=event.assigned)


def _read(replica: Replica, event: Read) -> Replica:
    """Whoever reads on has not lost its place, or has found it again."""
    if event.held == replica.held and replica.lost is None and replica.has_caught_up >= event.has_caught_up:
        return replica
    reason = "" if replica.end_reason == LOST else replica.end_reason
    has_caught_up = replica.has_caught_up or event.has_caught_up
    return replace(replica, held=event.held, lost=None, end_reason=reason, has_caught_up=has_caught_up)


def _failed(replica: Replica, action: Action, now_ms: int) -> Replica:
    """Try again later; a file that could not be committed may have been deleted since, and is uploaded again. One that
    another replica has made already, and that cannot be made here, is loaded."""
    if isinstance(action, Build) and replica.record.status == ConsumingStatus.DONE:
        return replace(replica, doing=None, built=Built(action.segment, 0, 0))
    limits = replica.limits
    wait_ms = min(limits.max_retry_ms, limits.retry_ms << min(replica.num_failures, 16))
    return replace(
        replica,
        doing=None,
        url=None if isinstance(action, Commit) else replica.url,
        retry_at_ms=now_ms + wait_ms,
        num_failures=replica.num_failures + 1,
    )


def _switched(replica: Replica, record: StreamSegmentRecord, held: Held, now_ms: int) -> Replica:
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


def _seen(replica: Replica, event: Seen, now_ms: int) -> Replica:
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
    """Why a consuming segment shall end, if it shall."""
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
        reason = "PEER"  # a position of its own may be from a former life, which had read more
    elif held.docs and (held.num_bytes >= limits.max_bytes or held.is_too_much):
        reason = "SIZE"
    elif held.docs and has_say and now_ms - replica.record.creation_time_ms >= limits.max_age_ms:
        reason = "AGE"
    return replace(replica, end_reason=reason, reached=held.offset) if reason else replica


def _phase(replica: Replica) -> Phase:
    """Where the facts leave the replica."""
    if not replica.is_assigned or (replica.is_gone and replica.following is None):
        return Phase.LEFT
    if replica.is_gone:
        return Phase.SWITCHING
    match replica.record.status:
        case ConsumingStatus.PAUSED:
            return Phase.STOPPED
        case ConsumingStatus.CONSUMING if replica.end_reason:
            return Phase.ENDING
        case ConsumingStatus.CONSUMING:
            return Phase.STOPPED if replica.lost is not None else Phase.CONSUMING
        case ConsumingStatus.SEALING:
            return _phase_of_sealing(replica)
        case _:
            return _phase_of_done(replica)


def _phase_of_sealing(replica: Replica) -> Phase:
    if not has_all(replica):
        return Phase.CATCHING_UP
    if replica.record.sealer != replica.instance:
        return Phase.WAITING
    if replica.built is None:
        return Phase.BUILDING
    return Phase.UPLOADING if replica.built.docs and replica.url is None else Phase.COMMITTING


def _phase_of_done(replica: Replica) -> Phase:
    if replica.following is None:
        return Phase.WAITING
    if replica.is_downloaded or _is_kept(replica):
        return Phase.SWITCHING
    return Phase.KEEPING if replica.built is None and has_all(replica) else Phase.DOWNLOADING


def _is_kept(replica: Replica) -> bool:
    """Whether what was built here is what was committed."""
    return replica.built is not None and replica.built.crc == replica.record.crc


def _wanted(replica: Replica, now_ms: int) -> Action | None:
    """What the phase needs; None: to wait, or just to read."""
    record = replica.record
    match replica.phase:
        case Phase.ENDING:
            return _wanted_to_end(replica, now_ms)
        case Phase.CATCHING_UP:
            return _publish(replica) if replica.lost is not None else None
        case Phase.WAITING:
            return _wanted_of_sealer(replica, now_ms)
        case Phase.BUILDING | Phase.KEEPING:
            assert record.end_offset is not None
            return Build(record.name, record.end_offset)
        case Phase.UPLOADING:
            assert replica.built is not None
            return Upload(record.name, replica.built.crc)
        case Phase.COMMITTING:
            return _commit(replica)
        case Phase.DOWNLOADING:
            return Download(record)
        case Phase.SWITCHING:
            return _switch(replica)
        case Phase.LEFT:
            return Leave()
        case _:
            return None


def _wanted_to_end(replica: Replica, now_ms: int) -> Action | None:
    """By rows: say so. Else publish the position, and propose the greatest when all who live have told theirs."""
    held = replica.held
    if held.row_end is not None:
        return _propose(replica, held.row_end.offset, replica.instance, None)
    mine = _publish(replica)
    if mine is not None:
        return mine
    positions = replica.positions.values()
    # Whoever still reads will come to what others have lost: only if nobody does, rows are given up.
    is_lost = all(one.resume is not None for one in positions)
    awaited = replica.assigned if is_lost else replica.live
    hold_ms = replica.limits.lost_hold_ms if is_lost else replica.limits.hold_ms
    if not awaited <= replica.positions.keys() and now_ms - replica.phase_ms < hold_ms:
        return None
    best = max(positions, key=lambda one: (one.offset, one.instance == replica.instance, one.instance))
    return _propose(replica, best.offset, best.instance, best.resume if is_lost else None)


def _propose(replica: Replica, offset: int, sealer: InstanceId, resume: int | None) -> Propose:
    end = End(segment=replica.record.name, offset=offset, sealer=sealer, now_ms=replica.phase_ms, next_offset=resume)
    return Propose(end)


def _publish(replica: Replica) -> Publish | None:
    """The position, unless it is published."""
    mine = PositionRecord(
        segment=replica.record.name,
        instance=replica.instance,
        offset=replica.reached if replica.lost is None and replica.reached >= 0 else replica.held.offset,
        reason=LOST if replica.lost is not None else replica.end_reason,
        resume=None if replica.lost is None else replica.lost.resume,
    )
    return None if replica.positions.get(replica.instance) == mine else Publish(mine)


def _wanted_of_sealer(replica: Replica, now_ms: int) -> Action | None:
    """Whoever makes the file may have died, or hang: then somebody else does it."""
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

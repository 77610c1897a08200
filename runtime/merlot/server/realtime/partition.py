"""Consume one partition: a thread drives the partition's replica, and reads and appends rows while the replica may
read.

`cluster.consuming.machine` alone decides what to do next. Events come in: what shared state says (`follow`,
`follow_peers`), what was read, results of actions. Actions are carried out as long as they are wanted: those that block
on other threads (`actions`), switching to the next segment here (`open_segments`). No failure stops the rest: while a
stream cannot be read, segments are committed, and the other way round.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from typing import Final

from merlot import telemetry
from merlot.cluster.consuming import machine
from merlot.cluster.consuming.machine import Limits, Replica, ReplicaPhase
from merlot.cluster.consuming.positions import Positions
from merlot.cluster.consuming.progress import StreamProblem
from merlot.cluster.consuming.steps import (
    Action,
    Download,
    Downloaded,
    Event,
    Failed,
    FileBuilt,
    Leave,
    MessageLost,
    Read,
    SegmentSwitched,
    Switch,
    Tick,
)
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.errors import MerlotError
from merlot.ids import InstanceId
from merlot.server.realtime.actions import ActionResult, ActionRunner
from merlot.server.realtime.open_segments import OpenSegments
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.partition_log import PartitionLog
from merlot.server.realtime.poller import PollCounts, RowBatch
from merlot.server.realtime.reading import POLL_S, StreamReading
from merlot.server.realtime.replica_view import PeerState, ReplicaView, SegmentChain
from merlot.server.realtime.sealing import Sealing
from merlot.server.realtime.status_text import StatusText

_LOG = logging.getLogger(__name__)

ANSWER_S: Final = 0.01
"""Longest wait for messages while an action is under way."""


class PartitionConsumer:
    """Consumer of one partition of a table; `start` runs its thread. Any thread may use the public members."""

    def __init__(self, partition: int, deps: PartitionDeps) -> None:
        self.partition = partition
        self.has_left = False
        """True if the partition is another server's by now: it is not queried here any more, and can be stopped."""
        self._deps = deps
        self._replica_view = ReplicaView(partition)
        self._reading = StreamReading(partition, deps)
        self._listener = deps.listener_of(partition, lambda: self._replica_view.chain.records)
        self._segments = OpenSegments(deps, self._listener)
        self._sealing = Sealing(partition, deps)
        self._inbox: queue.SimpleQueue[ActionResult] = queue.SimpleQueue()
        self._actions = ActionRunner(deps, self._sealing, self._is_wanted, self._inbox.put)
        self._status = StatusText(f"table={deps.table} partition={partition}")
        self._replica: Replica | None = None
        self._reported: tuple[object, ...] = ()
        self._num_bugs = 0
        self._is_stopping = threading.Event()
        name = f"consume-{deps.table}-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading; what the consumer has can be queried until `join`."""
        self._is_stopping.set()
        self._listener.stop()

    def join(self) -> None:
        """Wait until the thread has ended, and release what it held."""
        if self._thread.is_alive():
            self._thread.join()
        self._segments.close()
        self._sealing.close()
        self._listener.close()

    def follow(self, records: Mapping[int, StreamSegmentRecord], epoch: int, servers: Collection[InstanceId]) -> None:
        """Follow what shared state says of the partition's segments, by sequence; `servers` consume it."""
        self._replica_view.read = SegmentChain(records, epoch, frozenset(servers))

    def follow_peers(self, positions: Positions, live: Collection[InstanceId], held: Set[str] | None) -> None:
        """Follow the positions of replicas that want to end segments, the live servers, and the keys that other servers
        report, if these were read."""
        self._replica_view.others = PeerState(positions, frozenset(live), held)

    def let_go(self, *, is_gone: bool) -> None:
        """Note whether the partition is another server's."""
        self._replica_view.is_let_go = is_gone

    @property
    def making(self) -> str:
        """Segment whose sealed file it may get without fetching it; empty if there is none."""
        replica = self._replica
        return replica.record.name if replica is not None and machine.makes_file(replica) else ""

    @property
    def log(self) -> PartitionLog:
        """Log of the partition as it is now."""
        return self._segments.log

    @property
    def counts(self) -> PollCounts:
        """Counts of messages and rows that came in."""
        return self._reading.counts

    @property
    def problem(self) -> StreamProblem:
        """Problem that `error` describes."""
        return self._status.problem

    @property
    def error(self) -> str:
        """Error because of which it is not consumed as it should be; empty if it is."""
        return self._status.text

    @property
    def is_ready(self) -> bool:
        """True if its rows can be queried."""
        return self._reading.is_ready

    @property
    def is_paused(self) -> bool:
        """True if nothing is to be consumed."""
        return self._replica is None or self._replica.phase is ReplicaPhase.STOPPED

    @property
    def names(self) -> list[str]:
        """Segments that can be queried as `name@0`, as the report shows them."""
        return self.log.names() if self.is_ready and not self.has_left else []

    @property
    def next_offset(self) -> int | None:
        """Offset up to which it has read; None if it has not begun."""
        return self._segments.next_offset

    # The methods below belong to the thread.

    def _run(self) -> None:
        self._sealing.sweep()
        while not self._is_stopping.is_set():
            try:
                self._turn()
                self._num_bugs = 0
            except MerlotError as error:
                self._reading.fail(error)
                self._is_stopping.wait(POLL_S)  # no call that can fail here: its error would go unnoticed
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop
                _LOG.exception("partition not consumed by a bug table=%s number=%d", self._deps.table, self.partition)
                self._reading.fail(error)
                self._is_stopping.wait(self._deps.tuning.wait_s(self._num_bugs))
                self._num_bugs += 1
            self._publish()
        self._reading.close()

    def _turn(self) -> None:
        while not self._inbox.empty():
            self._take(self._inbox.get())
        if self._replica is None:
            self.has_left = self._replica_view.is_let_go
            if self.has_left or not self._begin():
                self._rest()
                return
        self._look()
        self._finish_download()
        self._refresh()
        self._listener.settle()
        self._segments.release()
        self._segments.report_memory()
        if machine.may_read(self._current) and self._reading.may_try():
            self._read()
        else:
            self._rest()
            self._give(Tick() if self._current.lost is not None else self._as_read())

    @property
    def _current(self) -> Replica:
        assert self._replica is not None
        return self._replica

    def _rest(self) -> None:
        """Wait for the result of an action."""
        try:
            self._take(self._inbox.get(timeout=POLL_S))
        except queue.Empty:
            return

    def _begin(self) -> bool:
        """Begin with the open segment; return False if there is none to consume, or if it is too early."""
        records = self._replica_view.chain.records
        last = records[max(records)] if records else None
        if last is None or not self._listener.may_begin() or not self._reading.may_try():
            return False
        if last.status not in (ConsumingStatus.CONSUMING, ConsumingStatus.SEALING):
            return False
        settings = self._reading.use(last)
        self._segments.begin(last, settings)
        self._replica = machine.start(self._deps.instance, last, _limits(settings), self._deps.clock.now_ms())
        return True

    def _look(self) -> None:
        """Tell the replica what has changed in shared state."""
        if self._replica_view.has_news(self._current.record.name):
            self._give(self._replica_view.seen(self._current.record))
            self._give(self._replica_view.peers(self._current.record))

    def _refresh(self) -> None:
        """Apply changed settings of the table that are not pinned."""
        replica = self._current
        if not replica.record.pinned:
            return
        try:
            limits = _limits(self._reading.use(replica.record))
        except MerlotError as error:
            self._reading.fail(error)
            return
        if limits != replica.limits:
            self._replica = replace(replica, limits=limits)

    def _finish_download(self) -> None:
        """Tell the replica once the committed file is loaded, or is not for this server to load. The table data manager
        fetches it, like any other segment."""
        action = self._current.doing
        if not isinstance(action, Download):
            return
        record = action.record
        if self._deps.is_loaded(record.key_text) or not self._deps.is_to_hold(record.name):
            self._give(Downloaded(record.name))

    def _read(self) -> None:
        replica = self._current
        offset = self._segments.next_offset
        assert offset is not None
        polled = self._reading.poll(replica.record.name, offset, POLL_S if replica.doing is None else ANSWER_S)
        if isinstance(polled, MessageLost):
            self._give(polled)
        elif isinstance(polled, RowBatch):
            self._segments.append(polled, self._deps.clock.now_ms())
            self._reading.took()
            self._give(self._as_read())

    def _as_read(self) -> Read:
        """Describe what is here now, as an event."""
        offset = self._segments.next_offset
        assert offset is not None
        self._reading.note(offset, is_alone=not self._replica_view.is_held_elsewhere)
        held = self._segments.held(self._reading.settings.flush.rows)
        return Read(self._current.record.name, held, has_caught_up=self._reading.is_ready)

    def _give(self, event: Event) -> None:
        """Step the replica, and do what it asks for. An action that cannot be begun is asked for again later."""
        before = self._current.phase
        self._replica, actions = machine.step(self._current, event, self._deps.clock.now_ms())
        try:
            self._end()
            for action in actions:
                self._carry_out(action)
        except BaseException:
            for action in actions:
                self._replica, _ = machine.step(self._current, Failed(action), self._deps.clock.now_ms())
            raise
        self.has_left = self._current.phase is ReplicaPhase.LEFT
        if self._current.phase is ReplicaPhase.DOWNLOADING and before is not ReplicaPhase.DOWNLOADING:
            self._deps.on_made()

    def _end(self) -> None:
        replica = self._current
        if machine.has_all(replica) and not replica.is_gone:
            assert replica.record.end_offset is not None
            self._segments.end(replica.record.end_offset, takes_tail=machine.takes_tail(replica))

    def _carry_out(self, action: Action) -> None:
        match action:
            case Switch():
                self._switch(action)
            case Download() | Leave():
                return  # see `_finish_download`, `has_left`
            case _:
                self._actions.begin(action, self._segments.worked.rows)

    def _switch(self, action: Switch) -> None:
        """Switch to the next segment. Steps that can fail come first, so that they can be repeated."""
        replica = self._current
        try:
            if action.keep:
                self._sealing.keep(replica.record.name)
            settings = self._reading.use(action.record)
            if not action.carry:
                self._reading.seek(action.record.start_offset)
        except MerlotError as error:
            self._status.note_failure(action, str(error))
            self._give(Failed(action))
            return
        self._segments.switch(action, None if replica.is_gone else replica.record, settings)
        self._sealing.forget()
        self._status.note_committed()
        self._give(SegmentSwitched(action.record, self._segments.held(settings.flush.rows)))
        self._deps.on_made()

    def _take(self, result: ActionResult) -> None:
        """Handle the result of an action."""
        if self._replica is None:
            return
        match result.outcome:
            case None:
                if self._is_wanted(result.action):
                    self._status.note_failure(result.action, result.error)
                self._give(Failed(result.action))
                return
            case TableView() as view:
                self._replica_view.note_written(view)
                self._look()
            case Mapping() as positions:
                self._replica_view.note_positions(positions)
                self._give(self._replica_view.peers(self._current.record))
            case event:
                self._note_difference(event)
                self._give(event)
        self._status.note_success(result.action)

    def _note_difference(self, event: Event) -> None:
        """Report a replica whose rows differ from the committed file: that is a bug somewhere. The committed file
        counts."""
        record = self._current.record
        is_other = isinstance(event, FileBuilt) and record.status == ConsumingStatus.DONE and event.crc != record.crc
        if is_other:
            _LOG.error("replica has other rows than the committed segment, which it loads segment=%s", record.key_text)
            telemetry.STREAM_COMMITS.labels(self._deps.table, "differs").inc()

    def _is_wanted(self, action: Action) -> bool:
        return self._replica is not None and machine.is_wanted(self._replica, action)

    def _publish(self) -> None:
        """Publish what can be queried, and what is wrong."""
        is_reading = self._replica is None or machine.may_read(self._current)
        self._status.note_reading(self._reading.error if is_reading else None, self._reading.stopped_at)
        reported = (self.names, self.error)
        if reported != self._reported:
            self._reported = reported
            self._deps.on_change()


def _limits(settings: SegmentSettings) -> Limits:
    return Limits(max_bytes=settings.flush.bytes, max_age_ms=settings.flush.age_ms)

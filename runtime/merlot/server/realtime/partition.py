"""Consumes one partition: a thread that drives the partition's replica, and reads and appends while that may read.

What to do next is decided by `cluster.consuming.machine` alone. Events come in: what shared state says (`follow`,
`follow_peers`), what was read, what came of actions. Its actions are carried out as long as they are wanted: those that
block on other threads (`acting`), switching to the next segment here (`heads`). Nothing that fails stops the rest:
while a stream cannot be read, segments are committed, and the other way round.
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
from merlot.cluster.consuming.machine import Limits, Phase, Replica
from merlot.cluster.consuming.positions import Positions
from merlot.cluster.consuming.progress import StreamProblem
from merlot.cluster.consuming.steps import (
    Action,
    Built,
    Download,
    Downloaded,
    Event,
    Failed,
    Leave,
    Lost,
    Read,
    Switch,
    Switched,
    Tick,
)
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.errors import MerlotError
from merlot.ids import InstanceId
from merlot.server.realtime.acting import Acting, Answer
from merlot.server.realtime.around import Around, Settings
from merlot.server.realtime.heads import Heads
from merlot.server.realtime.intake import Batch, Counts
from merlot.server.realtime.line import Line
from merlot.server.realtime.reading import LONGEST_RETRY_S, POLL_S, RETRY_S, Reading
from merlot.server.realtime.sealing import Sealing
from merlot.server.realtime.sight import Chain, Others, Sight
from merlot.server.realtime.telling import Troubles

_LOG = logging.getLogger(__name__)

ANSWER_S: Final = 0.01
"""Longest wait for messages while an action is under way."""


class PartitionConsumer:
    """One partition of a table; `start` runs its thread. What has no underscore may be read by anybody."""

    def __init__(self, partition: int, around: Around) -> None:
        self.partition = partition
        self.has_left = False
        """Whether it is another server's by now: it is asked for no more, and can be stopped."""
        self._around = around
        self._sight = Sight(partition)
        self._reading = Reading(partition, around)
        self._sink = around.sink_of(partition, lambda: self._sight.chain.records)
        self._heads = Heads(around, self._sink)
        self._sealing = Sealing(partition, around)
        self._inbox: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._acting = Acting(around, self._sealing, self._is_wanted, self._inbox.put)
        self._troubles = Troubles(f"table={around.table} partition={partition}")
        self._replica: Replica | None = None
        self._reported: tuple[object, ...] = ()
        self._num_bugs = 0
        self._is_stopping = threading.Event()
        name = f"consume-{around.table}-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; what it has may be asked for until `join`."""
        self._is_stopping.set()

    def join(self) -> None:
        """Wait until the thread has ended, and give back what it held."""
        if self._thread.is_alive():
            self._thread.join()
        self._heads.close()
        self._sealing.close()
        self._sink.close()

    def follow(self, records: Mapping[int, StreamSegmentRecord], epoch: int, servers: Collection[InstanceId]) -> None:
        """Take up what shared state says of the partition's segments, by sequence; `servers` consume it."""
        self._sight.told = Chain(records, epoch, frozenset(servers))

    def follow_peers(self, positions: Positions, live: Collection[InstanceId], held: Set[str]) -> None:
        """Take up how far replicas have come that would end segments, which servers live, and which keys other ones
        report."""
        self._sight.others = Others(positions, frozenset(live), held)

    def let_go(self, *, is_gone: bool) -> None:
        """Tell whether the partition is another server's."""
        self._sight.is_let_go = is_gone

    @property
    def making(self) -> str:
        """The segment whose sealed file it may come to have without fetching it; empty: none."""
        replica = self._replica
        return replica.record.name if replica is not None and machine.makes_file(replica) else ""

    @property
    def line(self) -> Line:
        """What is here."""
        return self._heads.line

    @property
    def counts(self) -> Counts:
        """What came in."""
        return self._reading.counts

    @property
    def problem(self) -> StreamProblem:
        """What `error` is about."""
        return self._troubles.problem

    @property
    def error(self) -> str:
        """Why it is not consumed as it should be; empty: it is."""
        return self._troubles.text

    @property
    def is_ready(self) -> bool:
        """Whether its rows may be asked for."""
        return self._reading.is_ready

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be consumed."""
        return self._replica is None or self._replica.phase is Phase.STOPPED

    @property
    def names(self) -> list[str]:
        """Segments that may be asked for as `name@0`, as the report has them."""
        return self.line.names() if self.is_ready and not self.has_left else []

    @property
    def next_offset(self) -> int | None:
        """How far it has come; None if it has not begun."""
        return self._heads.next_offset

    # What follows is the thread's.

    def _run(self) -> None:
        self._sealing.sweep()
        while not self._is_stopping.is_set():
            try:
                self._turn()
                self._num_bugs = 0
            except MerlotError as error:
                self._reading.fail(error)
                self._is_stopping.wait(POLL_S)  # nothing that can fail: nobody would hear of it
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop
                _LOG.exception("partition not consumed by a bug table=%s number=%d", self._around.table, self.partition)
                self._reading.fail(error)
                self._is_stopping.wait(min(LONGEST_RETRY_S, RETRY_S * 2 ** min(self._num_bugs, 10)))
                self._num_bugs += 1
            self._tell()
        self._reading.close()

    def _turn(self) -> None:
        while not self._inbox.empty():
            self._take(self._inbox.get())
        if self._replica is None and not self._begin():
            self._rest()
            return
        self._look()
        self._finish_download()
        self._refresh()
        self._sink.settle()
        self._heads.release()
        self._heads.tell_room()
        if machine.may_read(self._known) and self._reading.may_try():
            self._read()
        else:
            self._rest()
            self._give(Tick() if self._known.lost is not None else self._as_read())

    @property
    def _known(self) -> Replica:
        assert self._replica is not None
        return self._replica

    def _rest(self) -> None:
        """Wait for answers."""
        try:
            self._take(self._inbox.get(timeout=POLL_S))
        except queue.Empty:
            return

    def _begin(self) -> bool:
        """Take up the open segment, if there is one to consume."""
        records = self._sight.chain.records
        last = records[max(records)] if records else None
        if last is None or not self._sink.may_begin() or not self._reading.may_try():
            return False
        if last.status not in (ConsumingStatus.CONSUMING, ConsumingStatus.SEALING):
            return False
        settings = self._reading.use(last)
        self._heads.begin(last, settings)
        self._replica = machine.start(self._around.instance, last, _limits(settings), self._around.clock.now_ms())
        return True

    def _look(self) -> None:
        """Tell the replica what has changed around it."""
        if self._sight.has_news(self._known.record.name):
            self._give(self._sight.seen(self._known.record))
            self._give(self._sight.peers(self._known.record))

    def _refresh(self) -> None:
        """Take up what has changed of the table's settings, and is not pinned."""
        known = self._known
        if not known.record.pinned:
            return
        try:
            limits = _limits(self._reading.use(known.record))
        except MerlotError as error:
            self._reading.fail(error)
            return
        if limits != known.limits:
            self._replica = replace(known, limits=limits)

    def _finish_download(self) -> None:
        """The keeper of the table's files fetches what is committed, like any other segment."""
        action = self._known.doing
        if not isinstance(action, Download):
            return
        record = action.record
        if self._around.is_loaded(record.key_text) or not self._around.is_to_hold(record.name):
            self._give(Downloaded(record.name))

    def _read(self) -> None:
        known = self._known
        offset = self._heads.next_offset
        assert offset is not None
        got = self._reading.poll(known.record.name, offset, POLL_S if known.doing is None else ANSWER_S)
        if isinstance(got, Lost):
            self._give(got)
        elif isinstance(got, Batch):
            self._heads.append(got, self._around.clock.now_ms())
            self._reading.took()
            self._give(self._as_read())

    def _as_read(self) -> Read:
        """What is here now."""
        offset = self._heads.next_offset
        assert offset is not None
        self._reading.note(offset, is_alone=not self._sight.is_held_elsewhere)
        held = self._heads.held(self._reading.settings.flush.rows)
        return Read(self._known.record.name, held, has_caught_up=self._reading.is_ready)

    def _give(self, event: Event) -> None:
        """Step the replica, and do what it asks for. What cannot be begun is asked for again, later."""
        before = self._known.phase
        self._replica, actions = machine.step(self._known, event, self._around.clock.now_ms())
        try:
            self._end()
            for action in actions:
                self._carry_out(action)
        except BaseException:
            for action in actions:
                self._replica, _ = machine.step(self._known, Failed(action), self._around.clock.now_ms())
            raise
        self.has_left = self._known.phase is Phase.LEFT
        if self._known.phase is Phase.DOWNLOADING and before is not Phase.DOWNLOADING:
            self._around.on_made()

    def _end(self) -> None:
        known = self._known
        if machine.has_all(known) and not known.is_gone:
            assert known.record.end_offset is not None
            self._heads.end(known.record.end_offset, takes_tail=machine.takes_tail(known))

    def _carry_out(self, action: Action) -> None:
        match action:
            case Switch():
                self._switch(action)
            case Download() | Leave():
                return  # see `_finish_download`, `has_left`
            case _:
                self._acting.begin(action, self._heads.worked.rows)

    def _switch(self, action: Switch) -> None:
        """What can fail comes first: it is tried again."""
        known = self._known
        try:
            if action.keep:
                self._sealing.keep(known.record.name)
            settings = self._reading.use(action.record)
            if not action.carry:
                self._reading.seek(action.record.start_offset)
        except MerlotError as error:
            self._troubles.failed(action, str(error))
            self._give(Failed(action))
            return
        self._heads.switch(action, None if known.is_gone else known.record, settings)
        self._sealing.forget()
        self._troubles.switched()
        self._give(Switched(action.record, self._heads.held(settings.flush.rows)))
        self._around.on_made()

    def _take(self, answer: Answer) -> None:
        """What came of an action."""
        if self._replica is None:
            return
        match answer.outcome:
            case None:
                if self._is_wanted(answer.action):
                    self._troubles.failed(answer.action, answer.error)
                self._give(Failed(answer.action))
                return
            case TableView() as view:
                self._sight.note_written(view)
                self._look()
            case Mapping() as positions:
                self._sight.note_positions(positions)
                self._give(self._sight.peers(self._known.record))
            case event:
                self._note_difference(event)
                self._give(event)
        self._troubles.done(answer.action)

    def _note_difference(self, event: Event) -> None:
        """Rows of which replicas make different files are a bug somewhere: the committed file counts, and it is
        said."""
        record = self._known.record
        is_other = isinstance(event, Built) and record.status == ConsumingStatus.DONE and event.crc != record.crc
        if is_other:
            _LOG.error("replica has other rows than the committed segment, which it loads segment=%s", record.key_text)
            telemetry.STREAM_COMMITS.labels(self._around.table, "differs").inc()

    def _is_wanted(self, action: Action) -> bool:
        return self._replica is not None and machine.is_wanted(self._replica, action)

    def _tell(self) -> None:
        """Have it known what may be asked for, and what is wrong."""
        is_reading = self._replica is None or machine.may_read(self._known)
        self._troubles.note_reading(self._reading.error if is_reading else None, self._reading.stopped_at)
        reported = (self.names, self.error)
        if reported != self._reported:
            self._reported = reported
            self._around.on_change()


def _limits(settings: Settings) -> Limits:
    return Limits(max_bytes=settings.flush.bytes, max_age_ms=settings.flush.age_ms)

"""Stream of one table on one server: which partitions it consumes, what answers for them, and its progress reports.

Used on the event loop, except for methods that block. The table data manager passes on every change of shared state;
partitions have threads.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.consuming import stream_facts
from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.consuming.pinned import unpin, unpin_upsert, upsert_id
from merlot.cluster.consuming.positions import read_positions
from merlot.cluster.consuming.progress import (
    MemoryProgress,
    PartitionProgress,
    ProgressRecord,
    StreamProblem,
    UpsertProgress,
    remove_progress,
    write_progress,
)
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.records import Role, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.tasks.compactions import compaction_config, compactions_of, is_reported, report_valid_docs
from merlot.errors import MerlotError, UnavailableError
from merlot.ids import InstanceId, TableName, raw_name
from merlot.ingest.stream import Pipeline
from merlot.metastore.protocol import Metastore
from merlot.segment.build.request import BuildRequest
from merlot.segment.reader import Segment
from merlot.server.files import LocalSegmentFiles
from merlot.server.realtime.attempts import DecodeAttempts
from merlot.server.realtime.indexed import IndexDeps
from merlot.server.realtime.key_memory import KeyMemory
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.partition import PartitionConsumer
from merlot.server.realtime.partition_check import misplaced
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.partition_log import CONSUMING_SUFFIX, LogPart
from merlot.server.realtime.poller import DecodeSlots, PollCounts, Poller
from merlot.server.realtime.problems import problem_of
from merlot.server.realtime.progress import Rates, remove_gauges
from merlot.server.realtime.read_view import ConsumedPartition, StreamReadView
from merlot.server.realtime.rewritten import Records, files_to_keep
from merlot.server.realtime.row_listener import PlainListener, RowListener
from merlot.server.realtime.snapshot_files import SnapshotFolder
from merlot.server.realtime.snapshots import SnapshotDeps, Snapshots
from merlot.server.realtime.stream_clients import StreamClients
from merlot.server.realtime.upserts import UpsertListener
from merlot.server.tuning import StreamTuning
from merlot.spec.stream import StreamIngestion
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.opening import after_gap, first_offset
from merlot.upsert.rules import Rules

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two checks of the stream and of its consumers."""
LINGER_S: Final = 1.0
"""Seconds for which a partition that has left the report is still served."""
ASK_AGAIN_S: Final = 10.0
"""Seconds after which a stream that did not answer is asked again how far its partitions go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamThreads:
    """Threads, memory and folders that the streams of all tables of a server share."""

    seals: Executor
    """Executor that makes and uploads files."""
    writes: Executor
    """Executor that writes to the metastore, which may be slow."""
    looks: Executor
    """Executor that asks streams for their state, which may not answer for seconds."""
    snapshots: Executor
    """Executor that writes and uploads checkpoints of upsert tables."""
    turns: DecodeSlots
    memory: MemoryBudget
    folder: Path
    """Folder for files that are being made."""
    snapshot_folder: Path
    """Folder for checkpoints, with a folder per table."""
    secrets_of: Callable[[str], Mapping[str, str]]
    """Return the properties in a Secret, by its name."""
    allowed: AllowedStreams = field(default_factory=AllowedStreams)
    """Hosts and folders that streams of tables may name."""
    keys: KeyMemory = field(default_factory=KeyMemory)
    """Memory that the keys of upsert tables take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStreamDeps:
    """Dependencies that the table data manager provides."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    files: LocalSegmentFiles
    clock: Clock
    store_of: Callable[[TableSpec], DeepStore]
    grace_s: float
    tuning: StreamTuning = field(default_factory=StreamTuning)
    reported_as_of: Callable[[], float]
    """Return the monotonic time whose state the table's report in the metastore shows."""
    is_loaded: Callable[[str], bool]
    borrow: Callable[[str], AbstractContextManager[Segment | None]]
    """Hold a sealed segment as it is stored while it is read; None if it is not loaded. Any thread but the loop's."""
    on_change: Callable[[], None]
    """Called when what is served has changed; from any thread."""
    on_made: Callable[[], None]
    """Called when a file that was being made is there, or has to be fetched; from any thread."""


class TableStream:
    """Part of a table's stream that this server consumes."""

    def __init__(self, deps: TableStreamDeps, threads: StreamThreads) -> None:
        self._deps = deps
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._spec: TableSpec | None = None
        self._view: TableView | None = None
        self._consumers: dict[int, PartitionConsumer] = {}
        self._sources: dict[int, ConsumedPartition] = {}
        """Consumers as requests see them."""
        self._listeners: dict[int, UpsertListener] = {}
        """Listeners of an upsert table's partitions."""
        self._leaving: dict[int, PartitionConsumer] = {}
        """Partitions that were given to other servers: they are queried here until these have them."""
        self._revision = 0
        """Number of changes of the table's own settings."""
        self._streams = StreamClients(threads.secrets_of, threads.allowed, self._recorded_id)
        self._held_elsewhere: frozenset[str] = frozenset()
        self._rates = Rates()
        self._next_ask = 0.0
        """Time before which the stream is not asked, since it did not answer."""
        self._may_have_progress = True
        """True unless this server's progress record is known to be gone."""
        self._partition_deps = self._make_partition_deps()

    def follow(self, spec: TableSpec, view: TableView) -> None:
        """Consume what this server is assigned."""
        self._revision += self._spec is not None and self._spec != spec
        self._spec, self._view = spec, view
        records_of = chains(view.stream_segments)
        mine = {number for number, records in records_of.items() if self._is_mine(view, records[max(records)])}
        for number in mine - self._consumers.keys():
            self._begin(number)
        for number in self._consumers.keys() - mine:
            self._leaving[number] = self._consumers[number]
        for number in mine:
            self._leaving.pop(number, None)
            self._consumers[number].let_go(is_gone=False)
        for number, consumer in self._consumers.items():
            records = records_of.get(number, {})
            consumer.follow(records, view.epoch, view.servers_of(records[max(records)].name) if records else ())

    def making(self) -> frozenset[str]:
        """Return the segments whose sealed files are made here, so that they need not be fetched."""
        return frozenset(consumer.making for consumer in self._consumers.values())

    def keys(self) -> list[str]:
        """Return the keys that can be queried, as the report shows them."""
        return [
            name + CONSUMING_SUFFIX
            for number, consumer in self._consumers.items()
            if number not in self._listeners or self._listeners[number].view is not None
            for name in consumer.names
        ]

    def needed(self, view: TableView) -> set[str]:
        """Return the files of sealed segments by which an index numbers docs until it has followed their
        replacements."""
        keys_of = {
            number: listener.view.keys for number, listener in self._listeners.items() if listener.view is not None
        }
        return files_to_keep(keys_of, view.stream_segments) if keys_of else set()

    def errors(self) -> dict[str, str]:
        """Return the errors of partitions that are not consumed as they should be, by the key of their segments."""
        return {
            (consumer.log.parts[-1].name if consumer.log.parts else f"partition {number}")
            + CONSUMING_SUFFIX: consumer.error
            for number, consumer in self._consumers.items()
            if consumer.error
        }

    def cut(self) -> StreamReadView:
        """Return the read view of this moment, for one request."""
        return StreamReadView(self._sources, self._deps.is_loaded)

    def answerable(self, keys: Collection[str]) -> list[str]:
        """Return the sealed segments whose valid docs are known."""
        return [key for key in keys if self._is_known(key)]

    def _is_known(self, key: str) -> bool:
        name = StreamSegmentName.parse(key.rpartition("@")[0])
        listener = None if name is None else self._listeners.get(name.partition)
        view = None if listener is None else listener.view
        if name is None or view is None or not view.knows(name.sequence, key):
            return False
        if key in view.former or name.sequence in view.keys or self._view is None:
            return True
        record = self._view.segment(name.segment)
        return record is None or COMPACTED not in record.custom_map

    async def run(self) -> None:
        """Check the stream and report on it, until cancelled."""
        while True:
            try:
                if self._spec is not None and self._spec.ingestion.stream is not None:
                    look = partial(self._look, self._spec, self._spec.ingestion.stream)
                    await self._loop.run_in_executor(self._threads.looks, look)
                    await self._hand_over_partitions()
            except MerlotError as error:
                _LOG.warning("stream not looked at table=%s cause=%s", self._deps.table, error)
            except Exception:  # noqa: BLE001 - the outermost loop
                _LOG.exception("stream not looked at table=%s", self._deps.table)
            await asyncio.sleep(LOOK_S)

    async def forget(self) -> None:
        """Delete everything of the table on the disk: the table is gone."""
        await asyncio.to_thread(shutil.rmtree, self._threads.snapshot_folder / self._deps.table, ignore_errors=True)

    async def stop(self) -> None:
        """End all threads; nothing is queried any more."""
        self._may_have_progress = False  # the record stays true
        consumers, self._consumers = list(self._consumers.values()), {}
        for consumer in consumers:
            consumer.stop()
            remove_gauges(self._deps.table, consumer.partition)
        for consumer in consumers:
            await asyncio.to_thread(consumer.join)
        await asyncio.to_thread(self._streams.close)
        self._threads.keys.forget(self._deps.table)

    def _begin(self, number: int) -> None:
        consumer = self._consumers[number] = PartitionConsumer(number, self._partition_deps)
        self._sources[number] = ConsumedPartition(consumer, self._listeners.get(number))
        consumer.start()
        _LOG.info("partition is consumed table=%s partition=%d", self._deps.table, number)

    def _is_mine(self, view: TableView, record: StreamSegmentRecord) -> bool:
        return record.is_open and self._deps.instance in view.servers_of(record.name)

    async def _hand_over_partitions(self) -> None:
        """Stop partitions that other servers consume now. A partition that no other server has goes on."""
        for number, consumer in list(self._leaving.items()):
            last = consumer.names[-1:]
            if not last or last[0] + CONSUMING_SUFFIX in self._held_elsewhere:
                consumer.let_go(is_gone=True)
                self._leaving.pop(number, None)
        left = {number: consumer for number, consumer in self._consumers.items() if consumer.has_left}
        if left:
            await self._end(left)

    async def _end(self, left: Mapping[int, PartitionConsumer]) -> None:
        """End consumers that have left the report, after a while: queries that were sent before are still answered."""
        await asyncio.sleep(LINGER_S)
        left = {number: consumer for number, consumer in left.items() if consumer.has_left}
        for number, consumer in left.items():
            _LOG.info("partition is consumed no more table=%s partition=%d", self._deps.table, number)
            for held in (self._consumers, self._leaving, self._sources, self._listeners):
                held.pop(number, None)
            consumer.stop()
            remove_gauges(self._deps.table, number)
        for number, consumer in left.items():
            await asyncio.to_thread(consumer.join)
            await asyncio.to_thread(self._snapshot_folder(number).clear)
        if self._spec is not None and self._view is not None:
            self.follow(self._spec, self._view)

    def _keys_elsewhere(self, live: Collection[InstanceId]) -> frozenset[str] | None:
        """Return the keys that other servers report; None if that does not matter at the moment."""
        consumers = list(self._consumers.values())
        is_waiting = any(self._is_moved(part) for consumer in consumers for part in consumer.log.parts)
        if not self._leaving and not is_waiting and all(consumer.is_ready for consumer in consumers):
            return None
        reports = ReportReader(self._deps.metastore, self._deps.table).read()
        others = set(live) - {self._deps.instance}
        return frozenset(key for instance in others if instance in reports for key in reports[instance].loaded)

    # The methods below block.

    def _look(self, spec: TableSpec, declared: StreamIngestion) -> None:
        deps = self._deps
        live = live_instances(deps.metastore, Role.SERVER)
        tenant = spec.tenants.server.name
        servers = [server for server, record in live.items() if record.tenant == tenant]
        stream = stream_facts.find_stream(deps.metastore, deps.table)
        if deps.instance in servers and stream_facts.is_due(stream, deps.instance, servers, deps.clock.now_ms()):
            self._find_partitions(declared, {} if stream is None else stream.starts)
        if stream is not None and not stream.topic_id and self._streams.identity:
            stream_facts.record_topic_id(deps.metastore, deps.table, self._streams.identity)
        positions = read_positions(deps.metastore, deps.table)
        held = self._keys_elsewhere(live)
        self._held_elsewhere = held or frozenset()
        for consumer in list(self._consumers.values()):
            consumer.follow_peers(positions, live, held)
        if spec.upsert is not None:
            self._publish_valid_docs()
        self._measure(declared)

    def _publish_valid_docs(self) -> None:
        """Publish the valid docs of segments that are to be rewritten."""
        deps = self._deps
        for task in compactions_of(deps.metastore, deps.table):
            config = compaction_config(task.record)
            listener = self._listeners.get(config.partition)
            settled = None if listener is None else listener.files.settled.bitmap(config.segments)
            if settled is not None and not is_reported(deps.metastore, task.record.id):
                bitmap, num_docs = settled
                report_valid_docs(deps.metastore, task.record.id, config.segment, num_docs, bitmap, deps.instance)

    def _find_partitions(self, declared: StreamIngestion, starts_before: Mapping[int, int]) -> None:
        deps, failure = self._deps, (StreamProblem.NONE, "")
        starts: dict[int, int] = {}
        try:
            stream = self._streams.of(declared)
            for number in stream.partitions():
                if number not in starts_before:
                    starts[number] = first_offset(declared, stream, number, is_new=bool(starts_before))
        except MerlotError as problem:
            failure = (problem_of(problem), str(problem))
            telemetry.STREAM_FAILURES.labels(deps.table, type(problem).__name__).inc()
        stream_facts.record_stream(deps.metastore, deps.table, starts, deps.instance, deps.clock.now_ms(), failure)

    def _recorded_id(self) -> str:
        stream = stream_facts.find_stream(self._deps.metastore, self._deps.table)
        return "" if stream is None else stream.topic_id

    def _measure(self, declared: StreamIngestion) -> None:
        """Report lag and rates, to metrics and to the metastore."""
        if not self._consumers:
            if self._may_have_progress:
                remove_progress(self._deps.metastore, self._deps.table, self._deps.instance)
            self._may_have_progress = False
            return
        self._may_have_progress = True
        now_ms = self._deps.clock.now_ms()
        partitions = tuple(
            self._measured(number, consumer, declared, now_ms) for number, consumer in sorted(self._consumers.items())
        )
        record = ProgressRecord(
            instance=self._deps.instance, at_ms=now_ms, partitions=partitions, memory=self._memory(partitions)
        )
        write_progress(self._deps.metastore, self._deps.table, record)

    def _measured(
        self, number: int, consumer: PartitionConsumer, declared: StreamIngestion, now_ms: int
    ) -> PartitionProgress:
        log, counts, offset = consumer.log, consumer.counts, consumer.next_offset
        latest = self._latest_of(number, declared)
        lag = None if latest is None or offset is None else max(0, latest - offset)
        lag_ms = 0 if lag == 0 or counts.newest_ms < 0 else max(0, now_ms - counts.newest_ms)
        open_part = log.open_part
        rows = 0 if open_part is None or open_part.rows is None else open_part.rows.num_docs
        labels = (self._deps.table, str(number))
        telemetry.STREAM_LAG.labels(*labels).set(lag or 0)
        telemetry.STREAM_LAG_SECONDS.labels(*labels).set(lag_ms / 1000)
        telemetry.STREAM_ROWS.labels(*labels).set(counts.rows)
        telemetry.STREAM_BAD.labels(*labels).set(counts.bad)
        listener = self._listeners.get(number)
        if listener is not None:
            telemetry.STREAM_MISPLACED.labels(*labels).set(listener.num_misplaced)
        return PartitionProgress(
            partition=number,
            segment="" if not log.parts else log.parts[-1].name,
            offset=offset,
            latest=latest,
            lag=lag,
            lag_ms=lag_ms,
            rows=rows,
            total_rows=counts.rows,
            rows_per_s=self._rates.of(number, counts.rows, self._deps.clock.monotonic()),
            memory_bytes=sum(part.rows.memory_bytes for part in log.parts if part.rows is not None),
            num_bad=counts.bad,
            samples=counts.bad_rows.to_status(),
            upsert=_upsert_progress(listener),
            state=_state(consumer),
            error=consumer.error,
            problem=consumer.problem,
        )

    def _memory(self, partitions: Sequence[PartitionProgress]) -> MemoryProgress | None:
        """Return the memory that the keys of all upsert tables take and need, if this is one of them; else None."""
        upserts = {progress.partition: progress.upsert for progress in partitions if progress.upsert is not None}
        if not upserts:
            return None
        for number, upsert in upserts.items():
            labels = (self._deps.table, str(number))
            telemetry.UPSERT_KEYS.labels(*labels).set(upsert.keys)
            telemetry.UPSERT_BYTES.labels(*labels).set(upsert.memory_bytes)
        return self._threads.keys.tell(self._deps.table, sum(upsert.memory_bytes for upsert in upserts.values()))

    def _latest_of(self, number: int, declared: StreamIngestion) -> int | None:
        if self._deps.clock.monotonic() < self._next_ask:
            return None
        try:
            return self._streams.of(declared).offsets(number).latest
        except UnavailableError:
            self._next_ask = self._deps.clock.monotonic() + ASK_AGAIN_S
            return None
        except MerlotError:
            return None  # the partition's own thread reports why

    def _make_partition_deps(self) -> PartitionDeps:
        deps = self._deps
        return PartitionDeps(
            metastore=deps.metastore,
            table=deps.table,
            instance=deps.instance,
            files=deps.files,
            store=self._store,
            folder=self._threads.folder / deps.table,
            clock=deps.clock,
            seals=self._threads.seals,
            writes=self._threads.writes,
            memory=self._threads.memory,
            settings_of=self._settings_of,
            revision=lambda: self._revision,
            listener_of=self._listener_of,
            is_loaded=deps.is_loaded,
            is_to_hold=self._is_to_hold,
            is_elsewhere=self._is_elsewhere,
            on_change=deps.on_change,
            on_made=deps.on_made,
            reported_as_of=deps.reported_as_of,
            grace_s=deps.grace_s,
            tuning=deps.tuning,
        )

    def _listener_of(self, number: int, records: Callable[[], Records]) -> RowListener:
        assert self._spec is not None
        if self._spec.upsert is None:
            return PlainListener()
        deps = IndexDeps(
            where=f"table={self._deps.table} partition={number}",
            rules_of=self._rules_of,
            scan_s_of=lambda record: unpin_upsert(record.upsert).scan_ms / 1000,
            misplaced=partial(self._misplaced, number),
            clock=self._deps.clock,
            borrow=self._deps.borrow,
            on_change=self._deps.on_change,
            snapshots=self._snapshots_of(number),
            tuning=self._deps.tuning,
        )
        listener = self._listeners[number] = UpsertListener(deps, records)
        return listener

    def _snapshots_of(self, number: int) -> Snapshots:
        deps = self._deps
        return Snapshots(
            SnapshotDeps(
                metastore=deps.metastore,
                table=deps.table,
                partition=number,
                instance=deps.instance,
                folder=self._snapshot_folder(number),
                store=self._store,
                clock=deps.clock,
                executor=self._threads.snapshots,
                tuning=deps.tuning,
            )
        )

    def _snapshot_folder(self, number: int) -> SnapshotFolder:
        return SnapshotFolder(self._threads.snapshot_folder / self._deps.table / str(number))

    def _rules_of(self, record: StreamSegmentRecord) -> Rules:
        assert self._spec is not None
        spec = unpin(record.pinned, self._spec) if record.pinned else self._spec
        return Rules.of(unpin_upsert(record.upsert), spec.table_schema, spec.time_column)

    def _misplaced(self, number: int, rows: pa.Table) -> int:
        assert self._spec is not None
        return misplaced(self._spec, rows, number)

    def _is_to_hold(self, segment: str) -> bool:
        return self._view is not None and self._deps.instance in self._view.servers_of(segment)

    def _is_elsewhere(self, key: str) -> bool:
        name = key.rpartition("@")[0]
        if self._view is None or self._is_to_hold(name):
            return False
        record = self._view.segment(name)
        return record is None or record.key_text in self._held_elsewhere

    def _is_moved(self, part: LogPart) -> bool:
        """Return True if the part's segment was given to other servers before its file was loaded here."""
        return bool(part.key) and part.loaded_at is None and not self._is_to_hold(part.name)

    def _store(self) -> DeepStore:
        assert self._spec is not None
        return self._deps.store_of(self._spec)

    def _settings_of(self, record: StreamSegmentRecord) -> SegmentSettings:
        """Return the settings of a segment; runs on a partition's thread."""
        assert self._spec is not None
        spec = unpin(record.pinned, self._spec) if record.pinned else self._spec
        declared, current = spec.ingestion.stream, self._spec.ingestion.stream
        assert declared is not None
        assert current is not None
        number = record.partition

        def open_poller(start: int, counts: PollCounts) -> Poller:
            # The schema registry has its user and password there.
            open_pipeline = partial(Pipeline, spec, declared, number, self._streams.secrets_of(declared))
            attempts = DecodeAttempts(
                self._threads.snapshot_folder / self._deps.table / f"{number}.attempts",
                f"{declared.topic or declared.type}#{number}",
            )
            reader = self._streams.of(declared).reader(number, start)
            return Poller(reader, open_pipeline, self._threads.turns, counts, attempts)

        return SegmentSettings(
            request=BuildRequest(
                name=record.name,
                table=raw_name(self._deps.table),
                schema=spec.table_schema,
                indexing=spec.indexing,
                time_column=spec.time_column,
                partitioning=spec.partitioning,
            ),
            flush=current.flush,
            access=declared.model_dump_json(include={"properties", "secret_ref"}),
            latest=lambda: self._streams.of(declared).offsets(number),
            open_poller=open_poller,
            after_gap=partial(after_gap, current.on_offset_out_of_range),
        )


def _upsert_progress(listener: UpsertListener | None) -> UpsertProgress | None:
    if listener is None:
        return None
    stats = listener.stats
    return UpsertProgress(
        is_built=listener.view is not None and not listener.is_building,
        keys=stats.keys,
        valid=stats.valid,
        invalid=stats.invalid,
        expired=stats.expired,
        out_of_order=stats.out_of_order,
        late=stats.late,
        dropped=stats.dropped,
        misplaced=listener.num_misplaced,
        memory_bytes=stats.memory_bytes,
        waits_for=listener.waits_for,
        settings=upsert_id(listener.settings),
        **_snapshot_progress(listener),
        replaced=listener.files.settled.replaced,
        unsettled=listener.files.settled.unsettled(listener.records.values()),
    )


def _snapshot_progress(listener: UpsertListener) -> dict[str, Any]:
    snapshots = listener.snapshots
    if snapshots is None or snapshots.kept_in is None:
        return {}
    return {
        "snapshot": snapshots.kept_in.value,
        "snapshot_ms": snapshots.at_ms,
        "snapshots_missing": snapshots.num_missing(listener.records),
        "snapshot_error": snapshots.error,
    }


def _state(consumer: PartitionConsumer) -> str:
    if consumer.problem not in (StreamProblem.NONE, StreamProblem.NOT_COMMITTED):
        return "ERROR"
    if consumer.is_paused:
        return "PAUSED"
    return "CONSUMING" if consumer.is_ready else "CATCHING_UP"

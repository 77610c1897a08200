"""Requests of users about streams: show positions, pause, resume, commit, read again. Every call blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from merlot.clock import Clock
from merlot.cluster.backfill_record import BackfillRecord
from merlot.cluster.consuming import backfills, partitions, stream_facts, transactions
from merlot.cluster.consuming.progress import ProgressRecord, read_progress
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.manifests.upserts import upserting_of
from merlot.cluster.records import AskedEnd
from merlot.cluster.segments.editions import editions_of, partitioning_of
from merlot.cluster.segments.transaction import WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.controller.realtime.backfill import refused
from merlot.errors import InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.metastore.protocol import Metastore

STALE_MS = 15_000
"""Greatest age of a server's report that counts."""

Json = dict[str, Any]


class StreamService:
    """Operations on the streams of a cluster's tables."""

    def __init__(self, metastore: Metastore, clock: Clock, view_of: Callable[[str], TableView]) -> None:
        self._metastore = metastore
        self._clock = clock
        self._view_of = view_of

    def partitions(self, name: str) -> Json:
        """Return every partition with its replicas; no partitions for a table without a stream."""
        table = self._table(name)
        view = self._view_of(name)
        control = stream_facts.find_control(self._metastore, table)
        stream = stream_facts.find_stream(self._metastore, table)
        progress = read_progress(self._metastore, table)
        lost = partitions.lost_ranges(view)
        now_ms = self._clock.now_ms()
        return {
            "table": raw_name(table),
            "isPaused": control.is_paused,
            "error": self._waits_for(name) or ("" if stream is None else stream.error),
            "topicId": "" if stream is None else stream.topic_id,
            "partitions": [
                {
                    "partition": number,
                    "segment": record.name,
                    "status": record.status,
                    "startOffset": record.start_offset,
                    "endOffset": record.end_offset,
                    "sinceMs": record.creation_time_ms,
                    "lost": [list(span) for span in lost.get(number, ())],
                    "replicas": {
                        server: _replica(progress.get(server), number, now_ms)
                        for server in view.servers_of(record.name)
                    },
                }
                for number, record in sorted(partitions.open_segments(view).items())
            ],
        }

    def keys(self, name: str) -> Json:
        """Return what the replicas of an upsert table's partitions report about their keys."""
        table, view, now_ms = self._with_upserts(name), self._view_of(name), self._clock.now_ms()
        spec, progress = spec_of(get_table(self._metastore, name)).spec, read_progress(self._metastore, table)
        segments = {number: record.name for number, record in partitions.open_segments(view).items()}
        partitioning = partitioning_of(spec)
        if partitioning is not None:
            editions = editions_of(view.visible.values(), partitioning).values()
            segments = {edition.partition: edition.members[-1].name for edition in editions}
        return {
            "table": raw_name(table),
            "waitsFor": upserting_of(self._metastore, spec).waits_for,
            "partitions": [
                {
                    "partition": number,
                    "replicas": {
                        server: _keys(_replica(progress.get(server), number, now_ms))
                        for server in view.servers_of(segment)
                    },
                }
                for number, segment in sorted(segments.items())
            ],
        }

    def _waits_for(self, name: str) -> str:
        """Return why an upsert table is not consumed; empty if it is."""
        waits_for = upserting_of(self._metastore, spec_of(get_table(self._metastore, name)).spec).waits_for
        return f"nothing is consumed: {waits_for}" if waits_for else ""

    def pause(self, name: str, *, paused: bool) -> Json:
        """Stop consuming once what was read is committed, or consume again."""
        table = self._with_stream(name)
        record = stream_facts.set_paused(self._metastore, table, paused=paused, now_ms=self._clock.now_ms())
        return {"isPaused": record.is_paused, "sinceMs": record.since_ms}

    def commit(self, name: str, numbers: Collection[int] | None = None) -> Json:
        """End the open segments of these partitions, or of all, as soon as possible."""
        return self._ask(name, numbers, {})

    def consume_from(self, name: str, offsets: Mapping[int, int]) -> Json:
        """Continue from other offsets. Rows that were read stay, and are read again where an offset goes back."""
        wrong = {number: offset for number, offset in offsets.items() if offset < 0}
        if wrong or not offsets:
            raise InvalidInputError(f"offsets to consume from must be given, and not be negative got={dict(offsets)}")
        return self._ask(name, offsets.keys(), offsets)

    def backfill(self, name: str) -> Json:
        """Return the last backfill of an upsert table. Raise NotFoundError if there was none."""
        table = self._with_upserts(name)
        record = backfills.find_backfill(self._metastore, table)
        if record is None:
            raise NotFoundError(f"table was never backfilled table={raw_name(table)}")
        return _backfill(record)

    def begin_backfill(self, name: str, offsets: Mapping[int, int] | None, *, ignores_memory: bool = False) -> Json:
        """Begin to read rows again whose keys may have expired: from these offsets on, or as they are produced anew."""
        table, now_ms = self._with_stream(self._with_upserts(name)), self._clock.now_ms()
        upserting = upserting_of(self._metastore, spec_of(get_table(self._metastore, name)).spec)
        if upserting.spec is None:
            raise InvalidInputError(f"nothing is consumed: {upserting.waits_for}")
        if upserting.backfill_of(raw_name(table)) is not None:
            raise InvalidInputError("its UpsertConfig declares a backfill; change spec.backfill there")
        problems = refused(offsets, upserting.spec, self._view_of(name))
        if problems:
            raise InvalidInputError(f"table cannot be backfilled table={raw_name(table)}: {'; '.join(problems)}")

        def begin(before: BackfillRecord | None) -> BackfillRecord:
            return backfills.begun(
                before, f"{raw_name(table)}-{now_ms}", now_ms, offsets=offsets, ignores_memory=ignores_memory
            )

        return self._changed(table, begin)

    def finish_backfill(self, name: str, *, cancelled: bool) -> Json:
        """Note that everything to load has been produced, or cancel the backfill."""
        table, now_ms = self._with_upserts(name), self._clock.now_ms()

        def finish(before: BackfillRecord | None) -> BackfillRecord:
            if before is None or before.is_over:
                raise InvalidInputError(f"no backfill is under way table={raw_name(table)}")
            if before.is_declared:
                raise InvalidInputError("its UpsertConfig declares the backfill; change spec.backfill there")
            return backfills.cancelled(before, now_ms) if cancelled else backfills.mark_loaded(before, now_ms)

        return self._changed(table, finish)

    def _changed(self, table: TableName, change: Callable[[BackfillRecord | None], BackfillRecord]) -> Json:
        record = backfills.change_backfill(self._metastore, table, change)
        assert record is not None
        return _backfill(record)

    def _with_upserts(self, name: str) -> TableName:
        record = get_table(self._metastore, name)
        if spec_of(record).spec.upsert is None:
            raise InvalidInputError(f"table is no upsert table table={raw_name(record.name)}")
        return record.name

    def _ask(self, name: str, numbers: Collection[int] | None, offsets: Mapping[int, int]) -> Json:
        table = self._with_stream(name)
        existing = partitions.open_segments(self._view_of(name)).keys()
        unknown = set(numbers or ()) - existing
        if unknown:
            raise InvalidInputError(f"no such partition table={raw_name(table)} partitions={sorted(unknown)}")
        now_ms = self._clock.now_ms()
        view = mutate(
            self._metastore,
            table,
            lambda view: transactions.ask_to_end(view, numbers, AskedEnd.FORCE, now_ms, next_offsets=offsets or None),
            context=WriteContext(clock=self._clock),
        )
        opened = partitions.open_segments(view)
        return {
            "segments": sorted(
                segment.name for number, segment in opened.items() if numbers is None or number in numbers
            )
        }

    def _table(self, name: str) -> TableName:
        return get_table(self._metastore, name).name

    def _with_stream(self, name: str) -> TableName:
        record = get_table(self._metastore, name)
        if spec_of(record).spec.ingestion.stream is None:
            raise InvalidInputError(f"table has no stream table={raw_name(record.name)}")
        return record.name


def _backfill(record: BackfillRecord) -> Json:
    return {
        "name": record.name,
        "step": record.step.value,
        "message": record.message,
        "beganMs": record.begun_ms,
        "sinceMs": record.since_ms,
        "fromOffsets": None
        if record.offsets is None
        else {str(number): offset for number, offset in record.offsets.items()},
        "isCancelled": record.is_cancelled,
    }


def _keys(replica: Json) -> Json:
    """Return the part of a replica's report that is about its keys."""
    return {
        **{name: replica[name] for name in ("state", "error", "atMs") if name in replica},
        **(replica.get("upsert") or {}),
    }


def _replica(record: ProgressRecord | None, partition: int, now_ms: int) -> Json:
    """Return how far a replica is. `state` is UNKNOWN if its server has not reported for a while."""
    entry = None if record is None else next((part for part in record.partitions if part.partition == partition), None)
    if record is None or entry is None:
        return {"state": "UNKNOWN"}
    fields: Json = entry.model_dump(mode="json", by_alias=True, exclude={"partition"})
    if now_ms - record.at_ms > STALE_MS:
        fields["state"] = "UNKNOWN"
    if entry.upsert is not None:
        taken_ms = entry.upsert.snapshot_ms
        fields["upsert"]["snapshotAgeMs"] = None if taken_ms is None else max(0, now_ms - taken_ms)
    return {**fields, "atMs": record.at_ms}

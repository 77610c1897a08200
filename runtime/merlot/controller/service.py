"""Operations of the endpoint, without HTTP: reads and writes of shared state. Every call blocks; any thread may
call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from merlot.clock import Clock, SystemClock
from merlot.cluster.consuming.progress import read_progress, rows_of
from merlot.cluster.fence import Fence, Fenced
from merlot.cluster.instances import drains, liveness
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests import tables
from merlot.cluster.records import AnnotationRecord, DrainRecord, InstanceRecord, Role, TableRecord
from merlot.cluster.segments.annotate import AnnotateResult, annotate
from merlot.cluster.segments.editions import check_partitions, partitioning_of
from merlot.cluster.segments.publish import PublishRequest, PublishResult, check_files, publish_request
from merlot.cluster.segments.shapes import check_shape
from merlot.cluster.segments.transaction import RemoveSegments, WriteContext, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.segments.visibility import visibility
from merlot.controller.access import ClusterAccess
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.apply import AppliedDocument, Authorize, applier, apply_manifests
from merlot.controller.merges.service import MergeService
from merlot.controller.placement.rebalance_service import Rebalancing
from merlot.controller.recovery import Recovery
from merlot.controller.status.source import StatusAnswer, StatusSource
from merlot.controller.streams import StreamService
from merlot.controller.uploads import Uploads
from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName, offline, raw_name
from merlot.metastore.protocol import Metastore
from merlot.pinot import cluster_json, schema_json
from merlot.pinot.by_table_type import names_by_table_type
from merlot.pinot.cluster_json import Json
from merlot.pinot.reads import PinotReads
from merlot.pinot.writes import PinotWrites
from merlot.spec.manifest import ManifestProblem
from merlot.spec.shape import shape_of
from merlot.spec.table import TableSpec


class ControllerService:
    """Operations on one cluster. `places`: deep stores and streams that its tables may name."""

    def __init__(
        self, metastore: Metastore, clock: Clock | None = None, *, places: AllowedPlaces | None = None
    ) -> None:
        self._metastore = metastore
        self._places = places or AllowedPlaces()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._views: dict[TableName, TableView] = {}
        self.merges = MergeService(metastore, self._clock, self.view)
        """MergeRollupTasks and UpsertConfigs."""
        self.status_extras: Callable[[], Mapping[str, Json]] = self.merges.status
        """Function that returns members that others add to the cluster's status."""
        self._status = StatusSource(metastore, self._places.stores, self._extras)
        self.streams = StreamService(metastore, self._clock, self.view)
        self.reading = PinotReads(metastore, self.view)
        self.pinot_writes = PinotWrites(metastore, self._clock, applier(self._clock, self._places), self.reading)
        access = ClusterAccess(
            metastore=metastore,
            stores=self._places.stores,
            clock=self._clock,
            publish=self.publish,
            view_of=self.view,
        )
        self.uploads = Uploads(access)
        self.recovery = Recovery(access)
        self.rebalancing = Rebalancing(metastore, self._clock)

    def status(self) -> StatusAnswer:
        """Return the status of the whole cluster."""
        return self._status.read()

    def _extras(self) -> Mapping[str, Json]:
        return self.status_extras()

    def drain(self, name: str, *, leaving: bool, fence: Fence | None = None) -> DrainRecord:
        """Have brokers route around an instance that is about to stop; it need not be live any more.

        Operators call it with their fence. Raise SupersededError if another operator has taken over."""
        return drains.mark(self._fenced(fence), InstanceId(name), leaving=leaving, now_ms=self._clock.now_ms())

    def undrain(self, name: str, *, fence: Fence | None = None) -> None:
        """Remove the mark, if there is one."""
        drains.unmark(self._fenced(fence), InstanceId(name))

    def _fenced(self, fence: Fence | None) -> Metastore:
        return self._metastore if fence is None else Fenced(self._metastore, fence)

    def close(self) -> None:
        """Stop watching."""
        self._status.close()

    def apply(
        self, text: str, *, dry_run: bool = False, authorize: Authorize = lambda _: None
    ) -> list[AppliedDocument]:
        """Apply all documents or, if any is wrong, none. Raise ManifestError or ApplyError with all problems, and
        whatever `authorize` raises for a table that a document is about."""
        return apply_manifests(self._metastore, text, self._clock, self._places, dry_run=dry_run, authorize=authorize)

    def table_names(self) -> list[str]:
        """Return the raw names of all tables, sorted."""
        return sorted(raw_name(name) for name in tables.table_names(self._metastore))

    def table(self, name: str) -> TableRecord:
        """Return a table's record. Raise NotFoundError if there is no such table."""
        return tables.get_table(self._metastore, name)

    def expected_of_publishers(self, name: str) -> Json:
        """Return what publishers have to comply with.

        `deepStore` is the URI of the store that a table's files have to be in; None if the table names one that is not
        allowed here, or names none and this process has none. `shape` is what segments have to be built for."""
        spec = tables.spec_of(self.table(name)).spec
        try:
            store = self._places.stores.uri_of(spec.deep_store_uri)
        except InvalidInputError:
            store = None
        return {"deepStore": store, "shape": dict(shape_of(spec))}

    def schema(self, name: str) -> Json:
        """Return a table's schema in Pinot's form."""
        return schema_json.to_pinot(raw_name(name), tables.spec_of(self.table(name)).spec.table_schema)

    def size(self, name: str) -> Json:
        """Return a table's bytes by segment and in total."""
        return cluster_json.size(raw_name(name), self.view(name), tables.spec_of(self.table(name)).spec)

    def metadata(self, name: str) -> Json:
        """Return a table's counts of segments, rows and bytes."""
        return cluster_json.metadata(self.view(name), tables.spec_of(self.table(name)).spec)

    def instances_of_table(self, name: str) -> Json:
        """Return the brokers and servers of a table."""
        spec = tables.spec_of(self.table(name)).spec
        return cluster_json.instances_of_table(raw_name(name), self.view(name), spec, self.instances().values())

    def instances(self) -> Mapping[InstanceId, InstanceRecord]:
        """Return all live processes."""
        return liveness.live_instances(self._metastore)

    def instance(self, name: str) -> InstanceRecord:
        """Return one live process. Raise NotFoundError if it is not live."""
        record = self.instances().get(InstanceId(name))
        if record is None:
            raise NotFoundError(f"instance is not live instance={name}")
        return record

    def brokers(self) -> list[Json]:
        """Return the live brokers; each serves every table."""
        return list(map(cluster_json.broker, self.broker_records()))

    def broker_records(self) -> list[InstanceRecord]:
        """Return the records of the live brokers, by name."""
        records = liveness.live_instances(self._metastore, Role.BROKER)
        return [records[name] for name in sorted(records)]

    @property
    def lineage_source(self) -> tuple[Metastore, WriteContext]:
        """Return the metastore and the write context of replacements."""
        return self._metastore, WriteContext(clock=self._clock)

    def segments(self, name: str, *, only_visible: bool = False) -> list[Json]:
        """Return names of segments by half. only_visible: without those that a replacement hides."""
        return names_by_table_type(self.view(name), tables.spec_of(self.table(name)).spec, only_visible=only_visible)

    def segment_statuses(self, name: str, segment: str | None = None) -> Json:
        """Return segments' records, servers with their states, defaulted columns, and visibility to queries, by
        segment."""
        view = self.view(name)
        spec = tables.spec_of(self.table(name)).spec
        if segment is not None and segment not in view.segments:
            raise NotFoundError(f"segment does not exist table={raw_name(name)} segment={segment}")
        reports = ReportReader(self._metastore, view.table).read()
        live = liveness.live_instances(self._metastore, Role.SERVER)
        progress = [record for server, record in read_progress(self._metastore, view.table).items() if server in live]
        statuses = {}
        for record in [view.segments[segment]] if segment is not None else view.segments.values():
            key = record.key_text
            states = {
                server: "ONLINE" if key in report.loaded else "ERROR" if key in report.errors else "LOADING"
                for server, report in reports.items()
                if server in live
            }
            status = cluster_json.segment_status(record, view.servers_of(record.name), states, spec)
            if record.is_open:
                status["totalDocs"] = rows_of(progress, record.name)
            status["visible"] = record.name in view.visible
            status["visibility"] = visibility(record, view.lineage)
            status["errors"] = {
                server: report.errors[key] for server, report in reports.items() if key in report.errors
            }
            statuses[record.name] = status
        return statuses

    def publish(self, name: str, request: PublishRequest) -> PublishResult:
        """Make segments visible whose files are the table's own, and that were built for the table as it is."""
        record = self.table(name)
        spec = tables.spec_of(record).spec
        table = record.name
        if spec.upsert is not None:
            _check_upsert_records(table, spec, request)
        check_shape(raw_name(table), spec, request)
        check_files(table, request.records, self._places.stores.uri_of(spec.deep_store_uri))
        context = WriteContext(clock=self._clock)
        return publish_request(self._metastore, table, request, context=context, previous=self.view(table))

    def annotate(self, name: str, annotations: Sequence[AnnotationRecord]) -> AnnotateResult:
        """Complete the records of published segments."""
        table = self.table(name).name
        context = WriteContext(clock=self._clock)
        return annotate(self._metastore, table, annotations, context=context, previous=self.view(table))

    def check_segment(self, name: str, segment: str | None) -> None:
        """Raise NotFoundError if the table, or a segment of it, does not exist."""
        self.table(name)
        if segment is not None and self.view(name).segment(segment) is None:
            raise NotFoundError(f"segment does not exist table={raw_name(name)} segment={segment}")

    def delete_segments(self, name: str, choose: Callable[[TableView], Iterable[str]]) -> list[str]:
        """Remove segments, whatever their versions, all or none; return their names, sorted.

        Their files follow after the grace period. Raise NotFoundError if any of them does not exist."""
        table = self.table(name).name
        chosen: list[str] = []

        def decide(view: TableView) -> Sequence[RemoveSegments]:
            chosen[:] = sorted(set(choose(view)))
            records = [(segment, view.segment(segment)) for segment in chosen]
            absent = [segment for segment, record in records if record is None]
            if absent:
                more = f" (and {len(absent) - 1} more of {len(chosen)}; none was deleted)" if len(absent) > 1 else ""
                raise NotFoundError(f"segment does not exist table={raw_name(name)} segment={absent[0]}{more}")
            return [RemoveSegments(tuple(record.key for _, record in records if record is not None))]

        mutate(self._metastore, table, decide, previous=self.view(table), context=WriteContext(clock=self._clock))
        return chosen

    def set_suspended(self, name: str, *, is_suspended: bool) -> None:
        """Have queries of a table refused, or answered again. Raise ConflictError as `delete_table` does."""
        self._check_halves(name, "suspended")
        self.pinot_writes.set_suspended(name, is_suspended=is_suspended)

    def delete_table(self, name: str) -> None:
        """Remove a table with all of its segments.

        Raise ConflictError if only one of two halves is named, or if an operator declares the table."""
        self.pinot_writes.check_owner(f"table {raw_name(name)}")
        self._check_halves(name, "deleted")
        tables.delete_table(self._metastore, name, clock=self._clock)
        with self._lock:
            self._views.pop(offline(raw_name(name)), None)

    def _check_halves(self, name: str, done: str) -> None:
        """Raise ConflictError if the name is of one half of a hybrid table, since both are one table with one
        manifest."""
        present = self.reading.typed_names_of(name)
        if raw_name(name) == name or present == [name]:
            return
        if name not in present:
            raise NotFoundError(
                f"table has no such half table={raw_name(name)} half={name} halves={', '.join(present)}"
            )
        raise ConflictError(
            f"one half of a hybrid table cannot be {done} alone half={name} halves={', '.join(present)}: "
            f"name the table, {raw_name(name)}, for both"
        )

    def delete_table_and_schema(self, name: str) -> None:
        """Remove a table, and the schema of its name if one was written apart."""
        self.delete_table(name)
        with contextlib.suppress(NotFoundError):
            self.pinot_writes.delete_schema(raw_name(name))

    def view(self, name: str) -> TableView:
        """Return the table's current view. Buckets that have not changed since the last call are not read again."""
        table = offline(raw_name(name))
        with self._lock:
            previous = self._views.get(table)
        view = load(self._metastore, table, previous)
        with self._lock:
            self._views[table] = view
        return view

    def ping(self) -> None:
        """Raise UnavailableError if the metastore does not answer."""
        self._metastore.get("/")


def _check_upsert_records(table: TableName, spec: TableSpec, request: PublishRequest) -> None:
    partitioning = partitioning_of(spec)
    if partitioning is None:
        # Nothing says which rows of the same keys these rows would replace, so no server would answer for them.
        raise InvalidInputError(f"an upsert table of a stream takes rows of its stream only table={table}")
    check_partitions(request.records, partitioning)


def problems_of(error: MerlotError) -> tuple[ManifestProblem, ...]:
    """Return the single problems of an error about manifests."""
    problems: tuple[ManifestProblem, ...] = getattr(error, "problems", ())
    return problems

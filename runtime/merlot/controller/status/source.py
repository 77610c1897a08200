"""Source of `GET /status`: reads again only what changed, and renders again only if something did.

Blocking; any thread may call, one at a time. A controller that nobody asks has no watches.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import orjson

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.consuming.backfills import find_backfill, pinned_of
from merlot.cluster.consuming.progress import ProgressRecord, read_progress
from merlot.cluster.consuming.stream_facts import find_control, find_stream
from merlot.cluster.instances.drains import marks
from merlot.cluster.instances.echoes import read_echoes
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.losses import find_lost
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.manifests.upserts import upserting_of
from merlot.cluster.records import Role
from merlot.cluster.segments.editions import partitioning_of
from merlot.cluster.segments.view import load
from merlot.cluster.tasks.compactions import UPSERT_COMPACTION, compactions_of
from merlot.cluster.tasks.queue import history
from merlot.controller.status.cluster import ClusterFacts, TableFacts, instances_status, table_status
from merlot.controller.status.compactions import compaction_status
from merlot.controller.status.streams import StreamFacts, is_news, stream_status
from merlot.controller.status.upserts import UpsertFacts, upsert_status
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName, raw_name
from merlot.metastore.protocol import Metastore, Watch
from merlot.pinot.cluster_json import Json
from merlot.spec.upserting import CompactionSpec
from merlot.store import credentials
from merlot.store.allowed import AllowedStores

_LOG = logging.getLogger(__name__)

READERS = 4
"""Number of tables that are read at once. A table takes a dozen answers of the metastore, one after the other."""
LAG_MS = 10_000
"""Least time between two answers that differ in lag alone, since clients record each of them."""


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """A rendered answer. `etag` changes exactly when `body` does."""

    body: bytes
    etag: str


class StatusSource:
    """Source that follows every table from the first call on. `extras` returns more members of the answer."""

    def __init__(
        self,
        metastore: Metastore,
        stores: AllowedStores,
        extras: Callable[[], Mapping[str, Json]] = dict,
        clock: Clock | None = None,
    ) -> None:
        self._metastore = metastore
        self._clock = clock or SystemClock()
        self._stores = stores
        self._extras = extras
        self._tables: dict[TableName, _TableSource] = {}
        self._cluster: ClusterFacts | None = None
        self._rendered: tuple[Mapping[str, Json], ClusterFacts, Mapping[str, Json], StatusAnswer] | None = None
        self._lock = threading.Lock()

    def read(self) -> StatusAnswer:
        """Return the cluster's current status."""
        with self._lock:
            cluster = self._read_cluster()
            tables = self._read_tables(cluster)
            return self._render(tables, cluster, self._extras())

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            for source in self._tables.values():
                source.close()
            self._tables = {}

    def _read_cluster(self) -> ClusterFacts:
        live = live_instances(self._metastore)
        brokers = sorted(instance for instance, record in live.items() if record.role is Role.BROKER)
        echoes = read_echoes(self._metastore, brokers)
        cluster = ClusterFacts(live=live, echoes=echoes, drains=marks(self._metastore))
        if self._cluster is None or self._cluster != cluster:
            self._cluster = cluster
        return self._cluster

    def _read_tables(self, cluster: ClusterFacts) -> dict[str, Json]:
        names = {TableName(name) for name in self._metastore.children(paths.TABLES)}
        for name in self._tables.keys() - names:
            self._tables.pop(name).close()
        for name in names - self._tables.keys():
            self._tables[name] = _TableSource(self._metastore, name, self._stores)
        stale = [source for source in self._tables.values() if source.is_stale]
        now_ms = self._clock.now_ms()
        with ThreadPoolExecutor(READERS, thread_name_prefix="status-read") as readers:
            for _ in readers.map(_TableSource.refresh, stale):
                pass
            reported = [source for source in self._tables.values() if source.has_progress]
            for _ in readers.map(lambda source: source.refresh_progress(cluster, now_ms), reported):
                pass
        statuses = {raw_name(name): self._tables[name].status(cluster) for name in sorted(names)}
        return {name: status for name, status in statuses.items() if status is not None}

    def _render(self, tables: Mapping[str, Json], cluster: ClusterFacts, extras: Mapping[str, Json]) -> StatusAnswer:
        """Render anew only if a part has changed: a status of 1,000 tables is megabytes."""
        if self._rendered is not None:
            old_tables, old_cluster, old_extras, answer = self._rendered
            if old_cluster is cluster and old_extras == extras and _are_same(old_tables, tables):
                return answer
        body = {"tables": tables, "instances": instances_status(cluster, tables), "rollups": {}, "tasks": {}, **extras}
        plain = orjson.dumps(body)
        epoch = f"{zlib.crc32(plain):08x}{len(plain):x}"
        answer = StatusAnswer(orjson.dumps({"epoch": epoch, **body}), epoch)
        self._rendered = (tables, cluster, extras, answer)
        return answer


def _are_same(before: Mapping[str, Json], after: Mapping[str, Json]) -> bool:
    return before.keys() == after.keys() and all(before[name] is after[name] for name in after)


class _TableSource:
    """A table's facts, and the status that was made from them."""

    def __init__(self, metastore: Metastore, name: TableName, stores: AllowedStores) -> None:
        self._metastore = metastore
        self._stores = stores
        self._name = name
        self._has_changed = threading.Event()
        self._has_changed.set()
        self._facts: TableFacts | None = None
        self._problem: MerlotError | None = None
        self._rendered: tuple[TableFacts, ClusterFacts, Json] | None = None
        self._stream: Json | None = None
        self._stream_at_ms = 0
        self._upsert: Json | None = None
        self._reader = ReportReader(metastore, name)
        self._watches: list[Watch] = []
        self._is_watched = False

    @property
    def is_stale(self) -> bool:
        """Return whether the table has to be read again."""
        return self._has_changed.is_set()

    def refresh(self) -> None:
        """Read the table again."""
        self._has_changed.clear()
        try:
            self._watch()
            self._facts, self._problem = self._read_anew(self._facts), None
        except (NotFoundError, CorruptionError, InvalidInputError) as error:
            self._problem = error
            self._has_changed.set()
        except BaseException:
            self._has_changed.set()
            raise

    @property
    def has_progress(self) -> bool:
        """Return whether servers report the progress of the table's stream or the state of its keys."""
        spec = None if self._facts is None else self._facts.spec
        return spec is not None and (spec.ingestion.stream is not None or spec.upsert is not None)

    def refresh_progress(self, cluster: ClusterFacts, now_ms: int) -> None:
        """Read what servers report about stream and keys. It changes every second, so there is no watch on it."""
        assert self._facts is not None, "refreshed before"
        try:
            self._read_progress(self._facts, cluster, now_ms)
        except (CorruptionError, InvalidInputError) as error:
            self._problem = self._problem or error
            self._has_changed.set()

    def _read_progress(self, facts: TableFacts, cluster: ClusterFacts, now_ms: int) -> None:
        tenant = facts.spec.tenants.server.name
        live = {server for server in cluster.of_role(Role.SERVER) if cluster.live[server].tenant == tenant}
        progress = read_progress(self._metastore, self._name)
        if facts.spec.ingestion.stream is not None:
            self._read_stream(facts, cluster, progress, live, now_ms)
        if facts.spec.upsert is not None:
            self._upsert = self._read_upserts(facts, progress, live, now_ms)

    def _read_stream(
        self,
        facts: TableFacts,
        cluster: ClusterFacts,
        progress: Mapping[InstanceId, ProgressRecord],
        live: Set[InstanceId],
        now_ms: int,
    ) -> None:
        status = stream_status(
            facts.view,
            StreamFacts(
                control=find_control(self._metastore, self._name),
                looked=find_stream(self._metastore, self._name),
                progress=progress,
                staying=live - cluster.drains.keys(),
                draining={server: mark.since_ms for server, mark in cluster.drains.items() if server in live},
                now_ms=now_ms,
            ),
        )
        if is_news(self._stream, status) or now_ms - self._stream_at_ms >= LAG_MS:
            self._stream, self._stream_at_ms = status, now_ms

    def _read_upserts(
        self, facts: TableFacts, progress: Mapping[InstanceId, ProgressRecord], live: Set[InstanceId], now_ms: int
    ) -> Json:
        """Return the status of an upsert table's keys."""
        upserting = upserting_of(self._metastore, facts.spec)
        filling = find_backfill(self._metastore, self._name)
        upsert_facts = UpsertFacts(
            upserting=upserting,
            pinned=pinned_of(facts.spec, upserting.spec, filling),
            filling=filling,
            progress=progress,
            live=live,
            now_ms=now_ms,
            partitioning=partitioning_of(facts.spec),
            compaction=self._read_compaction(None if upserting.spec is None else upserting.spec.compaction),
        )
        return upsert_status(facts.view, upsert_facts)

    def _read_compaction(self, spec: CompactionSpec | None) -> Json | None:
        if spec is None:
            return None
        done = history(self._metastore, UPSERT_COMPACTION, self._name)
        return compaction_status(spec, done, compactions_of(self._metastore, self._name))

    def status(self, cluster: ClusterFacts) -> Json | None:
        """Return the table's status; None while the table is being created or deleted."""
        if isinstance(self._problem, NotFoundError):
            return None
        if self._problem is not None:
            _LOG.warning("table has no status table=%s cause=%s", self._name, self._problem)
            return {"name": raw_name(self._name), "error": str(self._problem), "servers": {}, "brokers": {}}
        facts, rendered = self._facts, self._rendered
        assert facts is not None, "refreshed before"
        problem = "" if facts.spec.deep_store_uri is None else self._problem_of(facts.spec.deep_store_uri)
        members = {"stream": self._stream, "upsert": self._upsert}
        members = {name: value for name, value in members.items() if value is not None}
        if rendered is not None:
            old_facts, old_cluster, status = rendered
            is_same = old_facts is facts and old_cluster is cluster and status["storeProblem"] == problem
            if is_same and all(status.get(name) == value for name, value in members.items()):
                return status
        status = {**table_status(facts, cluster), "storeProblem": problem, **members}
        self._rendered = (facts, cluster, status)
        return status

    def _problem_of(self, uri: str) -> str:
        """Return why nobody can open a deep store now; empty if it can be opened."""
        return self._stores.problem_of(uri) or credentials.problem_of(uri)

    def _watch(self) -> None:
        if self._is_watched:
            return
        self.close()
        for path in (paths.table_config(self._name), paths.segments_root(self._name), paths.lost(self._name)):
            self._watches.append(self._metastore.watch(path, self._has_changed.set))
        self._reader.watch(self._has_changed.set)
        self._is_watched = True

    def _read_anew(self, before: TableFacts | None) -> TableFacts:
        record = get_table(self._metastore, self._name)
        is_same = before is not None and before.record.version == record.version
        if before is not None and before.record.created_ms != record.created_ms:
            self._stream = self._upsert = None
        return TableFacts(
            record=record,
            spec=before.spec if before is not None and is_same else spec_of(record).spec,
            reports=self._reader.read(),
            view=load(self._metastore, self._name, None if before is None else before.view),
            lost=find_lost(self._metastore, self._name),
        )

    def close(self) -> None:
        """Stop watching."""
        while self._watches:
            self._watches.pop().cancel()
        self._reader.close()

"""Keeps what `GET /status` tells ready: reads again only what changed, and renders again only if something did.

Blocking; any thread, one at a time. A controller that nobody asks watches nothing.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from merlot.cluster import paths
from merlot.cluster.drains import marks
from merlot.cluster.echoes import read_echoes
from merlot.cluster.liveness import live_instances
from merlot.cluster.metastore import Metastore
from merlot.cluster.records import Role
from merlot.cluster.reports import ReportReader
from merlot.cluster.tables import get_table, spec_of
from merlot.cluster.view import load
from merlot.controller.pinot_json import Json
from merlot.controller.status import ClusterFacts, TableFacts, instances_status, table_status
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """A rendered answer; `etag` changes exactly with `body`."""

    body: bytes
    etag: str


class StatusSource:
    """Follows every table from the first call on. `extras` adds members to the answer."""

    def __init__(self, metastore: Metastore, extras: Callable[[], Mapping[str, Json]] = dict) -> None:
        self._metastore = metastore
        self._extras = extras
        self._tables: dict[TableName, _TableSource] = {}
        self._cluster: ClusterFacts | None = None
        self._rendered: tuple[Mapping[str, Json], ClusterFacts, Mapping[str, Json], StatusAnswer] | None = None
        self._lock = threading.Lock()

    def read(self) -> StatusAnswer:
        """The cluster as it is now."""
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
        brokers = sorted(one for one, record in live.items() if record.role is Role.BROKER)
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
            self._tables[name] = _TableSource(self._metastore, name)
        statuses = {raw_name(name): self._tables[name].status(cluster) for name in sorted(names)}
        return {name: status for name, status in statuses.items() if status is not None}

    def _render(self, tables: Mapping[str, Json], cluster: ClusterFacts, extras: Mapping[str, Json]) -> StatusAnswer:
        """Anew only if a part is: a status of 1,000 tables is megabytes."""
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
    """One table's facts and what was made of them."""

    def __init__(self, metastore: Metastore, name: TableName) -> None:
        self._metastore = metastore
        self._name = name
        self._is_stale = threading.Event()
        self._is_stale.set()
        self._facts: TableFacts | None = None
        self._made: tuple[TableFacts, ClusterFacts, Json] | None = None
        self._reader = ReportReader(metastore, name)
        self._reader.watch(self._is_stale.set)
        nodes = (paths.table_config(name), paths.segments_root(name))
        self._watches = [metastore.watch(path, self._is_stale.set) for path in nodes]

    def status(self, cluster: ClusterFacts) -> Json | None:
        """None while the table is on its way in or out."""
        try:
            facts = self._read()
        except NotFoundError:
            return None
        except (CorruptionError, InvalidInputError) as error:
            _LOG.warning("table has no status table=%s cause=%s", self._name, error)
            return {"name": raw_name(self._name), "error": str(error), "servers": {}, "brokers": {}}
        made = self._made
        if made is None or made[0] is not facts or made[1] is not cluster:
            made = self._made = (facts, cluster, table_status(facts, cluster))
        return made[2]

    def _read(self) -> TableFacts:
        if self._facts is not None and not self._is_stale.is_set():
            return self._facts
        self._is_stale.clear()
        try:
            self._facts = self._read_anew(self._facts)
        except BaseException:
            self._is_stale.set()
            raise
        return self._facts

    def _read_anew(self, before: TableFacts | None) -> TableFacts:
        record = get_table(self._metastore, self._name)
        is_same = before is not None and before.record.revision == record.revision
        return TableFacts(
            record=record,
            spec=before.spec if before is not None and is_same else spec_of(record).spec,
            reports=self._reader.read(),
            view=load(self._metastore, self._name, None if before is None else before.view),
        )

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.cancel()
        self._reader.close()

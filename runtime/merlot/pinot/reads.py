"""Answers of Pinot's reading paths about a cluster. Every call blocks; any thread may call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from merlot.cluster.consuming import stream_facts
from merlot.cluster.consuming.progress import read_progress
from merlot.cluster.instances import liveness
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests import tables
from merlot.cluster.records import Role
from merlot.cluster.segments.table_types import typed_names
from merlot.cluster.segments.view import TableView
from merlot.errors import NotFoundError
from merlot.ids import InstanceId, TableName, raw_name
from merlot.metastore.protocol import Metastore
from merlot.pinot import by_table_type, cluster_json, schema_json
from merlot.spec.table import TableSpec
from merlot.uris import redact

Json = dict[str, Any]


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _redacted(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_redacted(member) for member in value]
    return redact(value) if isinstance(value, str) else value


class PinotReads:
    """Reads of one cluster. None changes it."""

    def __init__(self, metastore: Metastore, view_of: Callable[[str], TableView]) -> None:
        self._metastore = metastore
        self._view_of = view_of

    def ping(self) -> None:
        """Raise UnavailableError if the metastore does not answer."""
        self._metastore.get("/")

    def table_names(self) -> list[str]:
        """Return the raw names of all tables, sorted."""
        return sorted(raw_name(name) for name in tables.table_names(self._metastore))

    def typed_names(self) -> list[TableName]:
        """Return the names of all tables' halves, sorted."""
        return sorted(half for name in self.table_names() for half in self.typed_names_of(name))

    def typed_names_of(self, name: str) -> list[TableName]:
        """Return the names of a table's halves."""
        return typed_names(raw_name(name), self._spec(name))

    def schema(self, name: str) -> Json:
        """Return a table's schema in Pinot's form."""
        return schema_json.to_pinot(raw_name(name), self._spec(name).table_schema)

    def table_configs(self, name: str) -> Json:
        """Return Pinot's TableConfigs: the schema and the halves' configs."""
        configs = self.configs_by_half(name)
        answer: Json = {"tableName": raw_name(name), "schema": self.schema(name)}
        return answer | {half.lower(): config for half, config in configs.items()}

    def configs_by_half(self, name: str) -> Json:
        """Return Pinot's table configs by OFFLINE and REALTIME. Secrets in URIs of properties are redacted."""
        record = tables.get_table(self._metastore, name)
        configs: Json = _redacted(cluster_json.table_config(record, tables.spec_of(record).spec))
        return configs

    def ideal_state(self, name: str) -> Json:
        """Return the states that servers should have, by half and segment."""
        spec = self._spec(name)
        return by_table_type.ideal_state(self._view_of(name), spec)

    def external_view(self, name: str) -> Json:
        """Return the states that live servers report, by half and segment."""
        spec, view = self._spec(name), self._view_of(name)
        return by_table_type.external_view(view, spec, self._reported_states(view))

    def segment_states(self, name: str) -> list[Json]:
        """Return GOOD, PARTIAL or BAD for each segment."""
        self._spec(name)
        view = self._view_of(name)
        return by_table_type.segment_states(view, self._reported_states(view))

    def state(self, name: str) -> Json:
        """Return `enabled`, or `disabled` for a suspended table."""
        return {"state": "disabled" if self._spec(name).suspend else "enabled"}

    def pause_status(self, name: str) -> Json:
        """Return Pinot's PauseStatusDetails."""
        spec, view = self._spec(name), self._view_of(name)
        if spec.ingestion.stream is None:
            raise NotFoundError(f"table has no stream table={raw_name(name)}")
        paused = stream_facts.find_control(self._metastore, view.table).is_paused
        consuming = sorted(record.name for record in view.segments.values() if record.is_open)
        return {"pauseFlag": paused, "consumingSegments": consuming, "comment": ""}

    def tenants(self) -> Json:
        """Return the tenants' names by role."""
        specs = [self._spec(name).tenants for name in self.table_names()]
        return {
            "SERVER_TENANTS": sorted({"default", *(spec.server.name for spec in specs)}),
            "BROKER_TENANTS": sorted({"default", *(spec.broker.name for spec in specs)}),
        }

    def tenant(self, name: str) -> Json:
        """Return the live instances of a tenant."""
        records = liveness.live_instances(self._metastore).values()
        servers = sorted(record.id for record in records if record.role is Role.SERVER and record.tenant == name)
        return {"tenantName": name, "ServerInstances": servers, "BrokerInstances": self.broker_names()}

    def broker_names(self) -> list[InstanceId]:
        """Return the names of live brokers, sorted."""
        return sorted(liveness.live_instances(self._metastore, Role.BROKER))

    def _spec(self, name: str) -> TableSpec:
        return tables.spec_of(tables.get_table(self._metastore, name)).spec

    def _reported_states(self, view: TableView) -> Mapping[str, Mapping[InstanceId, str]]:
        """Return the states that live servers report, by segment."""
        live = liveness.live_instances(self._metastore, Role.SERVER)
        reports = ReportReader(self._metastore, view.table).read()
        states: dict[str, dict[InstanceId, str]] = {}
        for server, progress in read_progress(self._metastore, view.table).items():
            for partition in progress.partitions if server in live else ():
                state = "ERROR" if partition.state == "ERROR" else "CONSUMING"
                states.setdefault(partition.segment, {})[server] = state
        for name, record in view.segments.items():
            key = record.key_text
            for server, report in reports.items():
                if server in live and not record.is_open and key in report.loaded:
                    states.setdefault(name, {})[server] = "ONLINE"
                elif server in live and key in report.errors:
                    states.setdefault(name, {})[server] = "ERROR"
        return states

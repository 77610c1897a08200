"""JSON in the shapes that only Pinot's clients expect. Pure: records and specs in, JSON-ready values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merlot.cluster.records import InstanceRecord, Role, SegmentRecord, StreamSegmentRecord, TableRecord
from merlot.cluster.segments.boundary import BEFORE_ALL
from merlot.cluster.segments.table_types import OFFLINE, REALTIME, table_type_of, table_types
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, raw_name
from merlot.pinot import config_json
from merlot.pinot.by_table_type import all_table_types
from merlot.spec.table import TableSpec
from merlot.values.periods import DAY_MS

Json = dict[str, Any]


def table_config(record: TableRecord, spec: TableSpec) -> Json:
    """Return the answer of `/tables/{t}`: Pinot's table configs, by table type."""
    segments: Json = {
        "schemaName": record.manifest["metadata"]["name"],
        "replication": str(spec.replication),
        "segmentPushType": str(spec.push_type),
    }
    if spec.time_column is not None:
        segments["timeColumnName"] = spec.time_column
    if spec.retention_ms is not None:
        is_days = spec.retention_ms % DAY_MS == 0
        segments["retentionTimeUnit"] = "DAYS" if is_days else "MILLISECONDS"
        segments["retentionTimeValue"] = str(spec.retention_ms // DAY_MS if is_days else spec.retention_ms)
    config: Json = {
        "segmentsConfig": segments,
        "tenants": {"broker": spec.tenants.broker.name, "server": spec.tenants.server.name},
        "metadata": {},
        "isDimTable": False,
        **config_json.shared_members(spec),
    }
    raw = raw_name(record.name)
    configs = {half: config | {"tableName": f"{raw}_{half}", "tableType": half} for half in table_types(spec)}
    if spec.ingestion.stream is not None:
        configs[REALTIME]["ingestionConfig"] = config_json.stream_members(spec.ingestion.stream)
    return configs


def size(name: str, view: TableView, spec: TableSpec) -> Json:
    """Return the answer of `/tables/{t}/size`, with null for the OFFLINE or REALTIME table if there is none. Every
    server holds the same bytes, so Pinot's "reported per replica" is one copy."""
    sizes = {half: _half_size(view, half) for half in all_table_types(view, spec)}
    total = sum(of_half["reportedSizeInBytes"] for of_half in sizes.values())
    return {
        "tableName": name,
        "reportedSizeInBytes": total,
        "estimatedSizeInBytes": total,
        "reportedSizePerReplicaInBytes": view.size_bytes,
        "offlineSegments": sizes.get(OFFLINE),
        "realtimeSegments": sizes.get(REALTIME),
    }


def _half_size(view: TableView, half: str) -> Json:
    segments = [segment for segment in view.visible.values() if table_type_of(segment) == half]
    sizes = {segment.name: segment.size_bytes * max(1, len(view.servers_of(segment.name))) for segment in segments}
    total = sum(sizes.values())
    return {
        "reportedSizeInBytes": total,
        "estimatedSizeInBytes": total,
        "reportedSizePerReplicaInBytes": sum(segment.size_bytes for segment in segments),
        "missingSegments": 0,
        "segments": {name: {"reportedSizeInBytes": size} for name, size in sizes.items()},
    }


def metadata(view: TableView, spec: TableSpec) -> Json:
    """Return the answer of `/tables/{t}/metadata`, with two members of Merlot's own.

    `numSegmentsUnpartitioned` counts segments that lack what partition pruning needs; 0 if the table declares no
    partitioning. `timeBoundaryMs` is the time from which a hybrid table's stream answers; null if it answers for all
    times, or the table is not hybrid."""
    boundary_ms = view.root.time_boundary_ms
    return {
        "tableName": view.table,
        "diskSizeInBytes": view.size_bytes,
        "numSegments": len(view.visible),
        "numRows": view.total_docs,
        "numSegmentsUnpartitioned": sum(bool(unpartitioned(record, spec)) for record in view.visible.values()),
        "timeBoundaryMs": None if boundary_ms == BEFORE_ALL else boundary_ms,
        "columnLengthMap": {},
        "columnCardinalityMap": {},
    }


def unpartitioned(record: SegmentRecord, spec: TableSpec) -> list[str]:
    """Return the table's partition columns that the record lacks; the segment is never pruned by them."""
    declared = () if spec.partitioning is None else spec.partitioning.columns
    return [column for column in declared if column not in record.partitions]


def instances_of_table(name: str, view: TableView, spec: TableSpec, live: Iterable[InstanceRecord]) -> Json:
    """Return the answer of `/tables/{t}/instances`: all brokers, since each serves every table, and the assigned
    servers."""
    present = table_types(spec)
    servers = sorted({server for assigned in view.assignment.values() for server in assigned})
    brokers = sorted(record.id for record in live if record.role is Role.BROKER)
    return {
        "tableName": name,
        "brokers": [{"tableType": half.lower(), "instances": brokers} for half in present],
        "server": [{"tableType": half.lower(), "instances": servers} for half in present],
    }


def broker(record: InstanceRecord) -> Json:
    """Return a live broker in the form that JDBC and the Spark connector read."""
    return {
        "host": record.host,
        "port": record.http_port,
        "instanceName": record.id,
        "grpcPort": record.query_port or -1,
    }


def instance(record: InstanceRecord) -> Json:
    """Return the answer of `/instances/{i}`."""
    return {
        "instanceName": record.id,
        "hostName": record.host,
        "enabled": True,
        "port": str(record.http_port),
        "grpcPort": record.query_port or -1 if record.role is Role.BROKER else -1,
        "queryPort": record.query_port or -1,
        "tags": [record.tenant, *record.tags],
        "role": str(record.role),
        "zone": record.zone,
        "startedMs": record.started_ms,
        "tls": record.tls,
        "version": record.version,
    }


def segment_status(
    record: SegmentRecord,
    assigned: tuple[InstanceId, ...],
    states: Mapping[InstanceId, str],
    spec: TableSpec,
) -> Json:
    """Return a segment's record, its servers, and the columns that it lacks.

    These are `defaultedColumns`, for which queries answer the default value, and partition columns that it is not
    partitioned by. `widenedColumns` are stored with another type than queries answer."""
    table_schema = spec.table_schema
    present = record.column_types
    defaulted = [name for name in table_schema.names if name not in present] if present else []
    widened = {
        name: {"stored": str(present[name][0]), "answered": str(field.type)}
        for name in table_schema.names
        if name in present and (field := table_schema.field(name)) is not None and field.type != present[name][0]
    }
    answer: Json = record.model_dump(mode="json", by_alias=True, exclude={"made_of"})
    if isinstance(record, StreamSegmentRecord) and record.snapshot_url:
        answer["segment.upsert.snapshot.download.url"] = record.snapshot_url
        answer["segment.upsert.snapshot.time"] = record.snapshot_time_ms
    answer["servers"] = {server: states.get(server, "OFFLINE") for server in assigned}
    answer["defaultedColumns"] = defaulted
    answer["widenedColumns"] = widened
    answer["unpartitionedColumns"] = unpartitioned(record, spec)
    return answer

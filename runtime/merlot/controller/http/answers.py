"""Schemas of the requests and responses of the controller's endpoints, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from merlot.http.described import (
    ANY,
    FLAG,
    OBJECT,
    TEXT,
    WHOLE,
    Schema,
    array,
    by_name,
    header,
    nullable,
    one_of,
    query,
    record,
)

NAMES: Final = array(TEXT)
STATUS: Final = record({"status": TEXT})
DONE: Final = record({"status": TEXT, "unrecognizedProperties": OBJECT, "notes": NAMES})
"""Answer to a write of Pinot's configs."""
VALIDATED: Final = record({"unrecognizedProperties": OBJECT, "notes": NAMES})
MAYBE_WHOLE: Final = nullable(WHOLE)
MAYBE_TEXT: Final = nullable(TEXT)

TABLE_CONFIG: Final = record(
    {
        "tableName": TEXT,
        "tableType": one_of("OFFLINE", "REALTIME"),
        "segmentsConfig": OBJECT,
        "tenants": OBJECT,
        "metadata": OBJECT,
        "isDimTable": FLAG,
    }
)
NEW_TABLE_CONFIG: Final = record({"tableName": TEXT, "tableType": TEXT}, segmentsConfig=OBJECT)
SCHEMA: Final = record(
    {"schemaName": TEXT},
    dimensionFieldSpecs=array(OBJECT),
    metricFieldSpecs=array(OBJECT),
    dateTimeFieldSpecs=array(OBJECT),
    primaryKeyColumns=NAMES,
)
TABLE_CONFIGS: Final = record({"tableName": TEXT, "schema": SCHEMA}, offline=TABLE_CONFIG, realtime=TABLE_CONFIG)
NEW_TABLE_CONFIGS: Final = record(
    {"schema": SCHEMA}, tableName=TEXT, offline=NEW_TABLE_CONFIG, realtime=NEW_TABLE_CONFIG
)
MANIFEST: Final = record(
    {"revision": WHOLE, "manifest": OBJECT, "deepStore": MAYBE_TEXT, "shape": by_name(TEXT)},
)
BROKER: Final = record({"host": TEXT, "port": WHOLE, "instanceName": TEXT, "grpcPort": WHOLE})
BROKERS: Final = array(BROKER)
INSTANCE: Final = record(
    {
        "instanceName": TEXT,
        "hostName": TEXT,
        "enabled": FLAG,
        "port": TEXT,
        "grpcPort": WHOLE,
        "queryPort": WHOLE,
        "tags": NAMES,
        "role": TEXT,
        "startedMs": WHOLE,
        "zone": TEXT,
        "tls": FLAG,
        "version": TEXT,
    }
)
_INSTANCES_BY_TYPE: Final = array(record({"tableType": TEXT, "instances": NAMES}))
TABLE_INSTANCES: Final = record({"tableName": TEXT, "brokers": _INSTANCES_BY_TYPE, "server": _INSTANCES_BY_TYPE})
_SIZES: Final = {"reportedSizeInBytes": WHOLE, "estimatedSizeInBytes": WHOLE, "reportedSizePerReplicaInBytes": WHOLE}
_TYPED_TABLE_SIZE: Final = nullable(
    record({**_SIZES, "missingSegments": WHOLE, "segments": by_name(record({"reportedSizeInBytes": WHOLE}))})
)
SIZE: Final = record(
    {"tableName": TEXT, **_SIZES, "offlineSegments": _TYPED_TABLE_SIZE, "realtimeSegments": _TYPED_TABLE_SIZE}
)
METADATA: Final = record(
    {
        "tableName": TEXT,
        "diskSizeInBytes": WHOLE,
        "numSegments": WHOLE,
        "numRows": WHOLE,
        "numSegmentsUnpartitioned": WHOLE,
        "timeBoundaryMs": MAYBE_WHOLE,
        "columnLengthMap": OBJECT,
        "columnCardinalityMap": OBJECT,
    }
)
REBALANCE: Final = record(
    {
        "table": TEXT,
        "status": one_of("NO_OP", "PLANNED", "IN_PROGRESS"),
        "segmentsToMove": WHOLE,
        "replicasToLoad": WHOLE,
        "bytesToLoad": WHOLE,
        "servers": by_name(record({"before": WHOLE, "after": WHOLE})),
        "moves": by_name(record({"from": NAMES, "to": NAMES})),
    },
    id=TEXT,
)
REBALANCE_PROGRESS: Final = record(
    {
        "table": TEXT,
        "id": MAYBE_TEXT,
        "status": one_of("IN_PROGRESS", "IDLE", "ABORTED", "DONE"),
        "startedMs": MAYBE_WHOLE,
        "segmentsMoving": WHOLE,
        "replicasToLoad": WHOLE,
        "bytesToLoad": WHOLE,
        "replicasLoaded": WHOLE,
        "replicasTotal": WHOLE,
    }
)
SEGMENT: Final = record(
    {
        "segment.name": TEXT,
        "servers": by_name(TEXT),
        "defaultedColumns": NAMES,
        "widenedColumns": by_name(record({"stored": TEXT, "answered": TEXT})),
        "unpartitionedColumns": NAMES,
        "visible": FLAG,
        "visibility": TEXT,
        "errors": by_name(TEXT),
    }
)
"""Answer about a segment. It also has the members of the segment's record, which are not listed here."""
BY_HALF: Final = array(by_name(NAMES))
STATES_BY_HALF: Final = by_name(nullable(by_name(by_name(TEXT))))
PUBLISHED: Final = record(
    {"published": NAMES, "unchanged": NAMES, "removed": NAMES, "replaced": NAMES, "rows": by_name(ANY), "epoch": WHOLE}
)
ANNOTATED: Final = record({"annotated": NAMES, "unchanged": NAMES, "replaced": NAMES, "epoch": WHOLE})
APPLIED: Final = array(record({"kind": TEXT, "name": TEXT, "result": TEXT, "revision": MAYBE_WHOLE, "warnings": NAMES}))
LINEAGE_ENTRY: Final = record(
    {
        "segmentsFrom": NAMES,
        "segmentsTo": NAMES,
        "state": TEXT,
        "timestamp": WHOLE,
        "createdMs": WHOLE,
        "customMap": by_name(TEXT),
    }
)
PARTITIONS: Final = record(
    {
        "table": TEXT,
        "isPaused": FLAG,
        "error": TEXT,
        "topicId": TEXT,
        "partitions": array(
            record(
                {
                    "partition": WHOLE,
                    "segment": TEXT,
                    "status": TEXT,
                    "startOffset": WHOLE,
                    "endOffset": MAYBE_WHOLE,
                    "sinceMs": WHOLE,
                    "lost": array(array(WHOLE)),
                    "replicas": by_name(record({"state": TEXT})),
                }
            )
        ),
    }
)
KEYS: Final = record(
    {
        "table": TEXT,
        "waitsFor": TEXT,
        "partitions": array(record({"partition": WHOLE, "replicas": by_name(record({"state": TEXT}))})),
    }
)
PAUSED: Final = record({"isPaused": FLAG, "sinceMs": WHOLE})
COMMITTED: Final = record({"segments": NAMES})
BACKFILL: Final = record(
    {
        "name": TEXT,
        "step": TEXT,
        "message": TEXT,
        "beganMs": WHOLE,
        "sinceMs": WHOLE,
        "fromOffsets": nullable(by_name(WHOLE)),
        "isCancelled": FLAG,
    }
)
RECOVERED: Final = record(
    {
        "recovered": NAMES,
        "missing": NAMES,
        "segments": WHOLE,
        "partitions": array(record({"partition": WHOLE, "segments": WHOLE, "offset": WHOLE})),
    }
)
UNDECLARED: Final = array(
    record(
        {
            "table": TEXT,
            "copiedMs": WHOLE,
            "segments": WHOLE,
            "rows": WHOLE,
            "problem": TEXT,
            "manifests": array(OBJECT),
        }
    )
)
TRASH: Final = array(record({"segment": TEXT, "url": TEXT, "deletedMs": WHOLE}))
_ROLLUP: Final[dict[str, Schema]] = {
    "name": TEXT,
    "table": TEXT,
    "revision": WHOLE,
    "state": TEXT,
    "message": TEXT,
    "mode": TEXT,
    "schedule": TEXT,
    "suspend": FLAG,
    "createdMs": WHOLE,
    "lastRunMs": MAYBE_WHOLE,
    "nextRunMs": MAYBE_WHOLE,
    "levels": array(OBJECT),
    "running": array(OBJECT),
    "history": array(OBJECT),
}
ROLLUPS: Final = record({"rollups": array(record(_ROLLUP))})
ROLLUP: Final = record({**_ROLLUP, "tasks": array(OBJECT), "manifest": OBJECT})
_UPSERT: Final[dict[str, Schema]] = {
    "name": TEXT,
    "revision": WHOLE,
    "createdMs": WHOLE,
    "state": TEXT,
    "message": TEXT,
    "mode": TEXT,
    "primaryKeyTtl": MAYBE_TEXT,
    "deletedKeysTtl": MAYBE_TEXT,
}
UPSERTS: Final = record({"upserts": array(record(_UPSERT))})
UPSERT: Final = record({**_UPSERT, "manifest": OBJECT})

TYPE: Final = query("type", "The half that is meant: OFFLINE or REALTIME.")
DRY_RUN: Final = query("dryRun", "Say what would be done, and do nothing.", FLAG)
START: Final = query("startTimestamp", "Epoch milliseconds at which the window begins.", WHOLE)
END: Final = query("endTimestamp", "Epoch milliseconds at which the window ends, which are not part of it.", WHOLE)
RETENTION: Final = query("retention", "0d or -1d: deleted segments are not kept.")
ENTRY: Final = query("segmentLineageEntryId", "The id that startReplaceSegments answered.", is_required=True)
FENCE: Final = header("Merlot-Fence", "The fence of an operator, which is refused once another has taken over.")

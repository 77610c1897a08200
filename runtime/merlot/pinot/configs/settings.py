"""Convert the rest of a table config: segments, routing, limits, transforms, upserts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from merlot.errors import InvalidInputError
from merlot.pinot.configs import nested
from merlot.pinot.configs.source import (
    REALTIME,
    ConfigReader,
    Json,
    duration,
    is_count,
    seconds_of,
    unit_seconds,
    without_empty,
)
from merlot.spec.upserting import RETIRED
from merlot.values import datetime_format

_TENANT_SUFFIXES: Final = ("_OFFLINE", "_REALTIME", "_BROKER")
_PRUNERS: Final = {"empty": "empty", "time": "time", "partition": "partition"}
_STRICT: Final = ("strictReplicaGroup", "multiStageReplicaGroup")
_SEGMENTS: Final[Mapping[str, str]] = {
    "completionConfig": "replicas converge by themselves, by download if they have to",
    "replicaGroupStrategyConfig": "set routing.instanceSelector: strictReplicaGroup",
    "peerSegmentDownloadScheme": "servers fetch from the deep store",
    "timeType": "the format of the time column says it",
    "minimizeDataMovement": "segments move no more than they have to in any case",
    "segmentPushFrequency": "batches come when they are started",
    "crypterClassName": "files are not encrypted; the deep store may do it",
    "deletedSegmentsRetentionPeriod": "a setting of the controller",
    "untrackedSegmentsDeletionBatchSize": "a setting of the controller",
}
_UPSERT_SAME: Final = (
    "comparisonColumns",
    "deleteRecordColumn",
    "dropOutOfOrderRecord",
    "outOfOrderRecordColumn",
    "partialUpsertStrategies",
    "defaultPartialUpsertStrategy",
    "snapshot",
)
_UPSERT: Final[Mapping[str, str]] = {
    "ttlOverrides": "a table has one time to live",
    "enableDeletedKeysCompactionConsistency": "compaction keeps what deletes a key until it expires in any case",
    "allowPartialUpsertConsumptionDuringCommit": "consuming goes on while a segment is sealed in any case",
}
_DISABLED: Final[tuple[object, ...]] = (None, "", "NONE", "DEFAULT", "DISABLE", False, [], {})


def segments(source: ConfigReader, type_: str) -> Json:
    """Convert `segmentsConfig` of the OFFLINE or REALTIME table to members of the spec."""
    source.ignore("schemaName")
    unit, value = source.text("retentionTimeUnit"), source.number("retentionTimeValue")
    push = source.text("segmentPushType").upper()
    if push not in ("", "APPEND", "REFRESH"):
        source.note("segmentPushType", f"{push} is neither APPEND nor REFRESH")
    members = {
        "timeColumn": source.text("timeColumnName"),
        "replication": _replication(source, type_),
        "retention": duration(value * unit_seconds(unit)) if unit and value else None,
        "pushType": push if push in ("APPEND", "REFRESH") else None,
    }
    source.leave(_SEGMENTS)
    return without_empty(members)


def _replication(source: ConfigReader, type_: str) -> int | None:
    """Return the replication that Pinot uses: for a stream, replicasPerPartition takes precedence."""
    first, second = "replication", "replicasPerPartition"
    if type_ == REALTIME:
        first, second = second, first
    replication, other = source.whole(first), source.whole(second)
    if replication and other and replication != other:
        source.note(second, f"{other} is not taken, as in Pinot: {first} of {type_} tables comes first")
    return replication or other or None


def tenants(source: ConfigReader) -> Json:
    """Return `tenants`, where they are not the default."""
    converted = {}
    for role in ("broker", "server"):
        name = source.text(role)
        for suffix in _TENANT_SUFFIXES:
            name = name.removesuffix(suffix)
        if name not in ("", "DefaultTenant"):
            converted[role] = {"name": name}
    source.leave({"tagOverrideConfig": "consuming and sealed segments are on the same servers"})
    return {"tenants": converted} if converted else {}


def routing(source: ConfigReader) -> Json:
    """Return `routing`; empty if nothing is set."""
    named = source.names("segmentPrunerTypes")
    pruners = [_PRUNERS[name] for name in named if name in _PRUNERS]
    for name in named:
        if name not in _PRUNERS:
            source.note("segmentPrunerTypes", f"there is no pruner {name}")
    selector = source.text("instanceSelectorType")
    if selector not in ("", "balanced", *_STRICT):
        source.note("instanceSelectorType", f"{selector} is left out: strictReplicaGroup, or any replica")
    members = {
        "segmentPruners": pruners,
        "instanceSelector": "strictReplicaGroup" if selector in _STRICT else None,
    }
    source.leave({"routingTableBuilderName": "instanceSelector alone says how segments are routed"})
    return without_empty({"routing": without_empty(members)})


def limits(source: ConfigReader, quota: ConfigReader) -> Json:
    """Convert `query` and `quota` to `limits`."""
    timeout, size = source.whole("timeoutMs"), source.whole("maxServerResponseSizeBytes")
    source.leave({"disableGroovy": "Groovy is never run"})
    source.leave({"useApproximateFunction": "queries say themselves what is approximate"})
    source.leave({"maxQueryResponseSizeBytes": "limits.maxBytes is of one server's answer"})
    members = without_empty({"timeoutMs": timeout, "maxBytes": size, "maxQueriesPerSecond": _rate(quota)})
    return {"limits": members} if members else {}


def _rate(quota: ConfigReader) -> float | None:
    quota.leave(dict.fromkeys(("rateLimiterUnit", "rateLimiterDuration"), "queries are counted by the second"))
    quota.leave({"storage": "files of a table are not limited"})
    return quota.number("maxQueriesPerSecond")


def transforms(source: ConfigReader, fields: Sequence[Json], of_columns: Mapping[str, str], type_: str) -> Json:
    """Convert `ingestionConfig` without its streams: the part that stream and batch sources share. of_columns:
    transforms of the schema, which those of the table override."""
    columns = dict(of_columns)
    columns |= {
        transform.text("columnName"): transform.text("transformFunction")
        for transform in source.each("transformConfigs")
    }
    for name, text in list(columns.items()):
        if text.lower().startswith("groovy"):
            source.note("transformConfigs", f"{name}: Groovy is not run; write it in SQL: {text:.80}")
            del columns[name]
    if source.has("complexTypeConfig"):
        flattened = nested.flattened(source.inner("complexTypeConfig"), fields, columns, type_)
        if not flattened:
            source.note("complexTypeConfig", "no column is filled by it: none has the delimiter in its name")
        columns |= flattened
    condition = source.inner("filterConfig").text("filterFunction")
    if condition.lower().startswith("groovy"):
        source.note("filterConfig", f"Groovy is not run; write rows to keep in SQL, as filter: {condition:.80}")
        condition = ""
    elif condition:
        # Pinot's filter selects the rows to leave out, and is evaluated after the transforms.
        condition = _with_transforms(condition, columns)
        source.note("filterConfig", "Pinot leaves out rows for which it is true; here it says which are kept")
    source.leave(
        {
            "continueOnError": "a row with an error is left out and counted; others go on in any case",
            "rowTimeValueCheck": "rows without a valid time are left out in any case",
            "segmentTimeValueCheck": "a segment's times are those of its rows",
            "retryOnSegmentBuildPrecheckFailure": "segments are built again in any case",
            "aggregationConfigs": "rows are not aggregated as they come; a MergeRollupTask rolls them up later",
        }
    )
    return without_empty({"derivedColumns": columns, "filter": f"({condition}) IS NOT TRUE" if condition else ""})


_WORDS: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*(?!\w*\s*\()")
"""Pattern of quoted text, and of names except those of functions."""


def _with_transforms(condition: str, columns: Mapping[str, str]) -> str:
    """Return a filter in which each transformed column is replaced by its expression: Merlot's filter sees the
    message."""
    for _ in columns:
        before = condition
        condition = _WORDS.sub(lambda word: _transformed(word[0], columns), condition)
        if condition == before:
            break
    return condition


def _transformed(word: str, columns: Mapping[str, str]) -> str:
    name = word.strip('"')
    return f"({columns[name]})" if not word.startswith("'") and name in columns else word


def upsert(source: ConfigReader) -> Json:
    """Return `upsertConfig` as the spec of an UpsertConfig; empty if upserts are not enabled."""
    mode = source.text("mode").upper()
    if mode in ("", "NONE"):
        return {}
    members: Json = {"mode": mode, **{name: source.take(name) for name in _UPSERT_SAME}}
    if source.flag("enableSnapshot"):
        members["snapshot"] = "ENABLE"
    column = source.text("comparisonColumn")
    if column:
        members["comparisonColumns"] = [column]
    for theirs, ours in (("metadataTTL", "primaryKeyTtl"), ("deletedKeysTTL", "deletedKeysTtl")):
        value = source.whole(theirs)
        if value:
            members[ours] = str(value)
    _leave_retired(source)
    source.leave(_UPSERT)
    return {name: value for name, value in members.items() if value not in _DISABLED}


def _leave_retired(source: ConfigReader) -> None:
    """Read settings that have no effect here, and note those with a value other than the default."""
    for name, reason in {**RETIRED, "enablePreload": RETIRED["preload"]}.items():
        value = source.take(name)
        if value not in _DISABLED and str(value).upper() not in _DISABLED:
            source.note(name, f"{value} is left out: {reason}")


def of_batches(upsert: Json, table: ConfigReader) -> Json:
    """Return `upsertConfig` of a table without a stream: without the snapshot, which such a table does not use."""
    if "snapshot" in upsert:
        table.note("upsertConfig.snapshot", "left out: a server takes keys from the segments of batches")
    return {name: value for name, value in upsert.items() if name != "snapshot"}


def dedup(source: ConfigReader) -> Json:
    """Return `dedupConfig` as the spec of an UpsertConfig; empty if deduplication is not enabled."""
    if not source.members() or str(source.take("dedupEnabled", "true")).lower() != "true":
        source.ignore("dedupEnabled", "hashFunction")
        return {}
    _leave_retired(source)
    column, to_live = source.text("dedupTimeColumn"), source.whole("metadataTTL")
    members = {"mode": "DEDUP", "comparisonColumns": [column] if column else []}
    return without_empty({**members, "primaryKeyTtl": str(to_live) if to_live else None})


def as_durations(upsert: Json, fields: Sequence[Json], time_column: str | None) -> Json:
    """Return the settings with times to live as durations if the comparison column is a time. Pinot counts them in the
    units of that column."""
    comparison = [*upsert.get("comparisonColumns", []), time_column][0]
    field = next(
        (candidate for candidate in fields if candidate["name"] == comparison and candidate.get("role") == "dateTime"),
        None,
    )
    if field is None:
        return upsert
    try:
        format_ = datetime_format.parse(field.get("format") or "TIMESTAMP")
    except InvalidInputError:
        return upsert
    step_ms = format_.step_ms if isinstance(format_, datetime_format.EpochFormat) else 1
    lives = {name: upsert[name] for name in ("primaryKeyTtl", "deletedKeysTtl") if name in upsert}
    return {**upsert, **{name: duration(float(int(text) * step_ms / 1000)) for name, text in lives.items()}}


_LEVEL: Final = {
    "mergeType": "mergeType",
    "bucketTimePeriod": "bucketTimePeriod",
    "bufferTimePeriod": "bufferTimePeriod",
    "roundBucketTimePeriod": "roundBucketTimePeriod",
    "maxNumRecordsPerSegment": "maxNumRecordsPerSegment",
    "maxNumRecordsPerTask": "maxNumRecordsPerTask",
    "maxNumParallelBuckets": "maxNumParallelBuckets",
    "eraseDimensionValues": "eraseDimensionValues",
}


def merges(source: ConfigReader) -> Json:
    """Return Pinot's MergeRollupTask as the spec of Merlot's, without its table; empty if it has no levels."""
    levels: dict[str, Json] = {}
    aggregations = {}
    for name in source.members():
        first, _, setting = name.partition(".")
        if setting in _LEVEL:
            levels.setdefault(first, {})[_LEVEL[setting]] = _setting(setting, source.text(name))
        elif setting == "aggregationType":
            aggregations[first] = {"aggregationType": source.text(name)}
    mode = source.text("mode")
    schedule = source.text("schedule")
    if schedule:
        source.note("schedule", f'"{schedule}" is Quartz cron; set schedule if every minute is too often')
    spec = {
        "levels": [{"name": name, "bufferTimePeriod": "0d", **level} for name, level in levels.items()],
        "aggregations": aggregations,
        "mode": mode if mode == "processAll" else None,
    }
    return without_empty(spec) if levels else {}


def _setting(name: str, text: str) -> object:
    if name.startswith("max"):
        if not is_count(text):
            raise InvalidInputError(f"{name} is no whole number: {text!r:.40}")
        return int(text)
    if name == "eraseDimensionValues":
        return [name.strip() for name in text.split(",") if name.strip()]
    return text if name == "mergeType" else duration(seconds_of(text)) if seconds_of(text) else "0d"

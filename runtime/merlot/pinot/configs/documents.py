"""Convert Pinot's documents to manifests: a table from its schema and its one or two table configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.pinot.configs import columns, settings, storage
from merlot.pinot.configs.refused import without_refused
from merlot.pinot.configs.source import OFFLINE, REALTIME, ConfigReader, Json, without_empty
from merlot.pinot.configs.streams import stream
from merlot.spec.table import API_VERSION

_NO_EQUIVALENT: Final[Mapping[str, str]] = {
    "tierConfigs": "there is one tier of servers",
    "instanceAssignmentConfigMap": "segments are spread by replication alone",
    "instancePartitionsMap": "segments are spread by replication alone",
    "isDimTable": "a table is not copied to every server",
    "dimensionTableConfig": "a table is not copied to every server",
    "tunerConfigs": "each segment chooses its encodings by its own values",
}


_BATCHES: Final[Mapping[str, str]] = {
    "segmentIngestionFrequency": "batches come when they are started",
    "consistentDataPush": "a batch is published as a whole in any case",
}
_TASKS: Final[Mapping[str, str]] = {
    "UpsertCompactionTask": "write compaction in the upsert's config",
    "UpsertCompactMergeTask": "write compaction.merge in the upsert's config",
    "RealtimeToOfflineSegmentsTask": "batches and a stream are one table; a MergeRollupTask merges both",
    "SegmentGenerationAndPushTask": "name the files in ingestion.batch",
    "RefreshSegmentTask": "servers build what was declared later by themselves",
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Manifests, as JSON objects, and a note for each setting that is missing in them or expressed differently."""

    manifests: tuple[Json, ...]
    notes: tuple[str, ...]


def convert(documents: Sequence[Mapping[str, Any]]) -> Converted:
    """Convert a schema and its one or two table configs, in any order, or Pinot's TableConfigs, which holds all of
    them.

    Raise InvalidInputError if they belong to several tables, or are something else."""
    notes: list[str] = []
    schemas, tables = _by_kind(documents, notes)
    if len(schemas) != 1 or not tables:
        raise InvalidInputError("give one schema and its table config (or two: OFFLINE and REALTIME), in any order")
    names = {_raw(table.text("tableName")) for table in tables}
    types = [table.text("tableType").upper() for table in tables]
    if len(names) != 1 or len(set(types)) != len(types):
        raise InvalidInputError(f"the table configs are not of one table: {', '.join(sorted(names))}")
    name = names.pop()
    of_columns: dict[str, str] = {}
    spec: Json = {"schema": columns.schema(schemas[0], of_columns)}
    more: list[Json] = []
    for table, type_ in sorted(zip(tables, types, strict=True), key=lambda pair: pair[1]):
        spec = _laid_over(spec, _part(table, type_, spec["schema"]["fields"], of_columns), table)
        more += _others(table, name)
    if "upsert" in spec:
        upsert = settings.as_durations(spec["upsert"]["config"], spec["schema"]["fields"], spec.get("timeColumn"))
        spec["upsert"] = {"config": upsert}
    if len(tables) > 1:
        spec["ingestion"] = {**spec.get("ingestion", {}), "timeBoundary": {}}
    for source in (*schemas, *tables):
        source.close()
    if name != name.lower() or "_" in name:
        notes.append(f"tableName: {name} cannot be a name in Kubernetes, which wants lower-case letters, digits and -")
    manifest, refused = without_refused(_manifest("Table", name, spec))
    return Converted((manifest, *more), (*notes, *refused))


def convert_schema(document: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Convert a schema alone. Return `spec.schema` and notes."""
    notes: list[str] = []
    source = ConfigReader(document, "", notes)
    table_schema = columns.schema(source)
    source.close()
    return table_schema, tuple(notes)


def _by_kind(documents: Sequence[Mapping[str, Any]], notes: list[str]) -> tuple[list[ConfigReader], list[ConfigReader]]:
    """Return readers of the schemas, and readers of the table configs."""
    schemas, tables = [], []
    for document in documents:
        if isinstance(document.get("schema"), dict):
            schemas.append(ConfigReader(document["schema"], "", notes))
            parts = [document.get(part) for part in ("offline", "realtime")]
            tables += [ConfigReader(part, "", notes) for part in parts if isinstance(part, dict)]
        elif "schemaName" in document and "tableType" not in document:
            schemas.append(ConfigReader(document, "", notes))
        elif "tableName" in document:
            tables.append(ConfigReader(document, "", notes))
        else:
            raise InvalidInputError("a document is neither a table config (tableName) nor a schema (schemaName)")
    return schemas, tables


def _raw(name: str) -> str:
    return name.removesuffix(f"_{OFFLINE}").removesuffix(f"_{REALTIME}")


def _manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _part(table: ConfigReader, type_: str, fields: Sequence[Json], of_columns: Mapping[str, str]) -> Json:
    """Convert the config of the OFFLINE or REALTIME table to a part of the spec. of_columns: transforms of the
    schema."""
    index = table.inner("tableIndexConfig")
    ingestion = table.inner("ingestionConfig")
    shared = settings.transforms(ingestion, fields, of_columns, type_)
    spec = {
        **settings.segments(table.inner("segmentsConfig"), type_),
        **storage.indexing(index, table.each("fieldConfigList")),
        **settings.tenants(table.inner("tenants")),
        **settings.routing(table.inner("routing")),
        **settings.limits(table.inner("query"), table.inner("quota")),
    }
    batch = ingestion.inner("batchIngestionConfig")
    batch.leave(_BATCHES)
    push = batch.text("segmentIngestionType").upper()
    if push in ("APPEND", "REFRESH"):
        spec["pushType"] = push
    elif push:
        batch.note("segmentIngestionType", f"{push} is neither APPEND nor REFRESH")
    if type_ == REALTIME:
        spec["ingestion"] = {"stream": {**_stream(index, ingestion, fields), **shared}}
        if upsert := settings.upsert(table.inner("upsertConfig")) or settings.dedup(table.inner("dedupConfig")):
            spec["upsert"] = {"config": upsert}
    else:
        if upsert := settings.upsert(table.inner("upsertConfig")):
            spec["upsert"] = {"config": settings.of_batches(upsert, table)}
        if shared:
            text = f"belongs to each source of ingestion.batch, and Spark SQL has other functions: {shared}"
            table.note("ingestionConfig", text)
    table.leave(_NO_EQUIVALENT)
    table.inner("metadata").leave({"customConfigs": "a manifest's metadata.annotations may hold them"})
    table.ignore("tableName", "tableType")
    return spec


def _stream(index: ConfigReader, ingestion: ConfigReader, fields: Sequence[Json]) -> Json:
    configs = ingestion.inner("streamIngestionConfig")
    maps = configs.each("streamConfigMaps") or [index.inner("streamConfigs")]
    if len(maps) > 1:
        configs.note("streamConfigMaps", "a table has one stream; only the first is here")
    configs.leave({"columnMajorSegmentBuilderEnabled": "segments are built column by column in any case"})
    configs.leave({"trackFilteredMessageOffsets": "offsets count whether rows are kept or not"})
    return stream(maps[0], [field["name"] for field in fields])


def _laid_over(spec: Json, part: Json, table: ConfigReader) -> Json:
    """Return the spec with a part added. OFFLINE and REALTIME tables share one spec; what the second contradicts is
    noted."""
    for name, value in part.items():
        before = spec.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            spec = {**spec, name: {**before, **value}}
        elif before is None:
            spec = {**spec, name: value}
        elif before != value:
            table.note(name, f"both parts of a table share it: {before} instead of {value}")
    return spec


def _others(table: ConfigReader, name: str) -> list[Json]:
    """Return the manifests beside the Table."""
    tasks = table.inner("task").inner("taskTypeConfigsMap")
    for task in tasks.members():
        if task != "MergeRollupTask":
            tasks.take(task)
            tasks.note(task, _TASKS.get(task, "there is no such task"))
    if "MergeRollupTask" not in tasks.members():
        return []
    spec = settings.merges(tasks.inner("MergeRollupTask"))
    return [_manifest("MergeRollupTask", name, without_empty({"table": name, **spec}))] if spec else []

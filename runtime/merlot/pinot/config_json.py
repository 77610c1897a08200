"""Convert a spec's indexes, routing, limits, streams and upserts to members of Pinot's table config: the reverse of
`pinot.configs`. Pure.

The result has these settings as Pinot writes them. So a client that removes a member from the
answer and writes it back removes that setting from the table.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.spec.indexing import Compression
from merlot.spec.star_tree import StarTreeSpec
from merlot.spec.stream import DecoderSpec, DecoderType, StreamIngestion
from merlot.spec.table import InstanceSelector, TableSpec
from merlot.spec.upserting import UpsertMode, UpsertSpec
from merlot.values import datetime_format
from merlot.values.durations import duration_ms

Json = dict[str, Any]

_DECODERS: Final = {
    DecoderType.JSON: "org.apache.pinot.plugin.inputformat.json.JSONMessageDecoder",
    DecoderType.CSV: "org.apache.pinot.plugin.inputformat.csv.CSVMessageDecoder",
    DecoderType.AVRO: "org.apache.pinot.plugin.inputformat.avro.SimpleAvroMessageDecoder",
    DecoderType.PROTOBUF: "org.apache.pinot.plugin.inputformat.protobuf.ProtoBufMessageDecoder",
    DecoderType.ARROW: "org.apache.pinot.plugin.inputformat.arrow.ArrowMessageDecoder",
}
_REGISTRY: Final = "org.apache.pinot.plugin.inputformat.avro.confluent.KafkaConfluentSchemaRegistryAvroMessageDecoder"
_CODECS: Final = {Compression.LZ4: "LZ4", Compression.ZSTD: "ZSTANDARD", Compression.NONE: "PASS_THROUGH"}
_STARTS: Final = {"earliest": "smallest", "latest": "largest"}
_PRUNERS: Final = ("empty", "time", "partition")


def shared_members(spec: TableSpec) -> Json:
    """Return the members that the OFFLINE and the REALTIME config share."""
    members: Json = {"tableIndexConfig": _indexing(spec), "fieldConfigList": _fields(spec)}
    routing: Json = {"segmentPrunerTypes": [name for name in spec.routing.segment_pruners if name in _PRUNERS]}
    if spec.routing.instance_selector is InstanceSelector.STRICT_REPLICA_GROUP:
        routing["instanceSelectorType"] = "strictReplicaGroup"
    query = {"timeoutMs": spec.limits.timeout_ms, "maxServerResponseSizeBytes": spec.limits.max_bytes}
    members["routing"], members["query"] = _without_empty(routing), _without_empty(query)
    if spec.limits.max_queries_per_second is not None:
        members["quota"] = {"maxQueriesPerSecond": str(spec.limits.max_queries_per_second)}
    if spec.upsert is not None and spec.upsert.config is not None:
        members |= _upsert(spec.upsert.config, spec)
    return {name: value for name, value in members.items() if value or name == "tableIndexConfig"}


def stream_members(stream: StreamIngestion) -> Json:
    """Return `ingestionConfig` of the REALTIME config."""
    columns = [{"columnName": name, "transformFunction": text} for name, text in stream.derived_columns.items()]
    return _without_empty(
        {
            "streamIngestionConfig": {"streamConfigMaps": [_stream(stream)]},
            "transformConfigs": columns,
            "filterConfig": None if stream.filter is None else {"filterFunction": f"({stream.filter}) IS NOT TRUE"},
        }
    )


def _indexing(spec: TableSpec) -> Json:
    indexing = spec.indexing
    members: Json = {
        "sortedColumn": list(indexing.sorted_columns),
        "invertedIndexColumns": list(indexing.inverted),
        "noDictionaryColumns": list(indexing.no_dictionary),
    }
    more: Json = {
        "rangeIndexColumns": list(indexing.range),
        "jsonIndexColumns": list(indexing.json_paths),
        "bloomFilterColumns": list(indexing.bloom),
        "bloomFilterConfigs": {name: {"fpp": share} for name, share in indexing.bloom_fpp.items()},
        "starTreeIndexConfigs": [_star_tree(tree) for tree in indexing.star_tree_index_configs],
        "enableDefaultStarTree": True if indexing.star_tree == "auto" else None,
    }
    if spec.partitioning is not None:
        columns = {
            name: _without_empty(function.model_dump(mode="json", by_alias=True))
            for name, function in spec.partitioning.columns.items()
        }
        more["segmentPartitionConfig"] = {"columnPartitionMap": columns}
    return members | _without_empty(more)


def _star_tree(tree: StarTreeSpec) -> Json:
    return {
        "dimensionsSplitOrder": list(tree.dimensions_split_order),
        "skipStarNodeCreationForDimensions": list(tree.skip_star_node_creation_for_dimensions),
        "functionColumnPairs": list(tree.function_column_pairs),
        "maxLeafRecords": tree.max_leaf_records,
    }


def _fields(spec: TableSpec) -> list[Json]:
    """Return a fieldConfigList for the settings of columns that tableIndexConfig has no list for."""
    indexing = spec.indexing
    configs: dict[str, Json] = {}
    for name in indexing.text:
        configs.setdefault(name, {"name": name})["indexTypes"] = ["TEXT"]
    for name, codec in indexing.compression.items():
        configs.setdefault(name, {"name": name})["compressionCodec"] = _CODECS[codec]
    for name, units in indexing.timestamp_granularities.items():
        configs.setdefault(name, {"name": name})["timestampConfig"] = {"granularities": [str(unit) for unit in units]}
    return list(configs.values())


def _stream(stream: StreamIngestion) -> Json:
    prefix = f"stream.{stream.type}."
    properties = dict(stream.properties)
    members = {
        "streamType": stream.type,
        f"{prefix}topic.name": stream.topic,
        f"{prefix}broker.list": properties.pop("bootstrap.servers", None),
        **_decoder(stream.decoder, prefix),
        f"{prefix}consumer.prop.auto.offset.reset": _STARTS.get(stream.start),
        "realtime.segment.flush.threshold.rows": str(stream.flush.rows),
        "realtime.segment.flush.threshold.time": f"{stream.flush.age_ms // 1000}s",
        "realtime.segment.flush.threshold.segment.size": str(stream.flush.bytes),
        **{f"{prefix}consumer.prop.{name}": value for name, value in properties.items()},
    }
    return _without_empty(members)


def _decoder(decoder: DecoderSpec, prefix: str) -> Json:
    options = f"{prefix}decoder.prop."
    has_registry = decoder.type is DecoderType.AVRO and decoder.schema_registry is not None
    members: Json = {
        f"{prefix}decoder.class.name": _REGISTRY if has_registry else _DECODERS[decoder.type],
        f"{options}schema.registry.rest.url": decoder.schema_registry,
        f"{options}schema": decoder.avro_schema,
    }
    if decoder.csv is not None:
        members[f"{options}header"] = decoder.csv.delimiter.join(decoder.csv.columns)
        members[f"{options}delimiter"] = decoder.csv.delimiter
    return members


def _upsert(upsert: UpsertSpec, spec: TableSpec) -> Json:
    to_live = _units(upsert.primary_key_ttl, upsert, spec)
    if upsert.mode is UpsertMode.DEDUP:
        column = next(iter(upsert.comparison_columns), None)
        return {
            "dedupConfig": _without_empty({"dedupEnabled": True, "dedupTimeColumn": column, "metadataTTL": to_live})
        }
    members = {
        "mode": str(upsert.mode),
        "comparisonColumns": list(upsert.comparison_columns),
        "deleteRecordColumn": upsert.delete_record_column,
        "dropOutOfOrderRecord": upsert.drop_out_of_order_record or None,
        "outOfOrderRecordColumn": upsert.out_of_order_record_column,
        "partialUpsertStrategies": {name: str(strategy) for name, strategy in upsert.partial_upsert_strategies.items()},
        "defaultPartialUpsertStrategy": str(upsert.default_partial_upsert_strategy),
        "metadataTTL": to_live,
        "deletedKeysTTL": _units(upsert.deleted_keys_ttl, upsert, spec),
        "snapshot": str(upsert.snapshot),
    }
    return {"upsertConfig": _without_empty(members)}


def _units(to_live: str | None, upsert: UpsertSpec, spec: TableSpec) -> int | None:
    """Return a time to live in units of the comparison column, as Pinot counts it; None if there is none."""
    if to_live is None or to_live.isdecimal():
        return None if to_live is None else int(to_live)
    column = next(iter(upsert.comparison_columns), spec.time_column)
    field = None if column is None else spec.table_schema.field(column)
    step_ms = Fraction(1)
    if field is not None:
        try:
            format_ = datetime_format.parse(field.format or "TIMESTAMP")
        except InvalidInputError:
            return None
        step_ms = format_.step_ms if isinstance(format_, datetime_format.EpochFormat) else Fraction(1)
    return duration_ms(to_live) // step_ms


def _without_empty(content: Json) -> Json:
    return {name: value for name, value in content.items() if value not in (None, "", [], {})}

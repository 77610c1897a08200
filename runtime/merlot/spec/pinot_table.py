"""What Pinot's table config says of indexes, routing, limits, streams and upserts, of a spec: the reverse of
`pinot_import`. Pure.

It has a member for all that a config of Pinot's could say, so that who takes one out of the answer and writes it back
takes it out of the table.
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
    """Members of the configs of both halves."""
    found: Json = {"tableIndexConfig": _indexing(spec), "fieldConfigList": _fields(spec)}
    routing: Json = {"segmentPrunerTypes": [name for name in spec.routing.segment_pruners if name in _PRUNERS]}
    if spec.routing.instance_selector is InstanceSelector.STRICT_REPLICA_GROUP:
        routing["instanceSelectorType"] = "strictReplicaGroup"
    query = {"timeoutMs": spec.limits.timeout_ms, "maxServerResponseSizeBytes": spec.limits.max_bytes}
    found["routing"], found["query"] = _told(routing), _told(query)
    if spec.limits.max_queries_per_second is not None:
        found["quota"] = {"maxQueriesPerSecond": str(spec.limits.max_queries_per_second)}
    if spec.upsert is not None and spec.upsert.config is not None:
        found |= _upsert(spec.upsert.config, spec)
    return {name: value for name, value in found.items() if value or name == "tableIndexConfig"}


def stream_members(stream: StreamIngestion) -> Json:
    """`ingestionConfig` of the half with the stream."""
    columns = [{"columnName": name, "transformFunction": text} for name, text in stream.derived_columns.items()]
    return _told(
        {
            "streamIngestionConfig": {"streamConfigMaps": [_stream(stream)]},
            "transformConfigs": columns,
            "filterConfig": None if stream.filter is None else {"filterFunction": f"({stream.filter}) IS NOT TRUE"},
        }
    )


def _indexing(spec: TableSpec) -> Json:
    indexing = spec.indexing
    found: Json = {
        "sortedColumn": list(indexing.sorted_columns),
        "invertedIndexColumns": list(indexing.inverted),
        "noDictionaryColumns": list(indexing.no_dictionary),
    }
    more: Json = {
        "rangeIndexColumns": list(indexing.range),
        "jsonIndexColumns": list(indexing.json_paths),
        "bloomFilterColumns": list(indexing.bloom),
        "bloomFilterConfigs": {name: {"fpp": share} for name, share in indexing.bloom_fpp.items()},
        "starTreeIndexConfigs": [_star_tree(one) for one in indexing.star_tree_index_configs],
        "enableDefaultStarTree": True if indexing.star_tree == "auto" else None,
    }
    if spec.partitioning is not None:
        columns = {
            name: _told(one.model_dump(mode="json", by_alias=True)) for name, one in spec.partitioning.columns.items()
        }
        more["segmentPartitionConfig"] = {"columnPartitionMap": columns}
    return found | _told(more)


def _star_tree(tree: StarTreeSpec) -> Json:
    return {
        "dimensionsSplitOrder": list(tree.dimensions_split_order),
        "skipStarNodeCreationForDimensions": list(tree.skip_star_node_creation_for_dimensions),
        "functionColumnPairs": list(tree.function_column_pairs),
        "maxLeafRecords": tree.max_leaf_records,
    }


def _fields(spec: TableSpec) -> list[Json]:
    """Of columns with something that tableIndexConfig has no list for."""
    indexing = spec.indexing
    found: dict[str, Json] = {}
    for name in indexing.text:
        found.setdefault(name, {"name": name})["indexTypes"] = ["TEXT"]
    for name, codec in indexing.compression.items():
        found.setdefault(name, {"name": name})["compressionCodec"] = _CODECS[codec]
    for name, units in indexing.timestamp_granularities.items():
        found.setdefault(name, {"name": name})["timestampConfig"] = {"granularities": [str(one) for one in units]}
    return list(found.values())


def _stream(stream: StreamIngestion) -> Json:
    prefix = f"stream.{stream.type}."
    properties = dict(stream.properties)
    found = {
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
    return _told(found)


def _decoder(decoder: DecoderSpec, prefix: str) -> Json:
    options = f"{prefix}decoder.prop."
    has_registry = decoder.type is DecoderType.AVRO and decoder.schema_registry is not None
    found: Json = {
        f"{prefix}decoder.class.name": _REGISTRY if has_registry else _DECODERS[decoder.type],
        f"{options}schema.registry.rest.url": decoder.schema_registry,
        f"{options}schema": decoder.avro_schema,
    }
    if decoder.csv is not None:
        found[f"{options}header"] = decoder.csv.delimiter.join(decoder.csv.columns)
        found[f"{options}delimiter"] = decoder.csv.delimiter
    return found


def _upsert(upsert: UpsertSpec, spec: TableSpec) -> Json:
    to_live = _units(upsert.primary_key_ttl, upsert, spec)
    if upsert.mode is UpsertMode.DEDUP:
        column = next(iter(upsert.comparison_columns), None)
        return {"dedupConfig": _told({"dedupEnabled": True, "dedupTimeColumn": column, "metadataTTL": to_live})}
    found = {
        "mode": str(upsert.mode),
        "comparisonColumns": list(upsert.comparison_columns),
        "deleteRecordColumn": upsert.delete_record_column,
        "dropOutOfOrderRecord": upsert.drop_out_of_order_record or None,
        "outOfOrderRecordColumn": upsert.out_of_order_record_column,
        "partialUpsertStrategies": {name: str(one) for name, one in upsert.partial_upsert_strategies.items()},
        "defaultPartialUpsertStrategy": str(upsert.default_partial_upsert_strategy),
        "metadataTTL": to_live,
        "deletedKeysTTL": _units(upsert.deleted_keys_ttl, upsert, spec),
        "snapshot": str(upsert.snapshot),
    }
    return {"upsertConfig": _told(found)}


def _units(to_live: str | None, upsert: UpsertSpec, spec: TableSpec) -> int | None:
    """In units of the comparison column, as Pinot counts them."""
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


def _told(content: Json) -> Json:
    return {name: value for name, value in content.items() if value not in (None, "", [], {})}

"""Convert Pinot's `tableIndexConfig` and `fieldConfigList` to `spec.indexing` and `spec.partitioning`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from merlot.pinot.configs.source import ConfigReader, Json, without_empty

_LISTS: Final = {
    "invertedIndexColumns": "inverted",
    "rangeIndexColumns": "range",
    "jsonIndexColumns": "jsonPaths",
    "bloomFilterColumns": "bloom",
    "noDictionaryColumns": "noDictionary",
}
_KINDS: Final = {"inverted": "inverted", "range": "range", "json": "jsonPaths", "text": "text", "bloom": "bloom"}
"""Kinds of index in `fieldConfigList`, by Pinot's names in lower case."""
_CODECS: Final = {"LZ4": "LZ4", "ZSTANDARD": "ZSTD", "PASS_THROUGH": "NONE"}


class Indexing:
    """Indexing settings of columns, collected from tableIndexConfig and fieldConfigList."""

    def __init__(self) -> None:
        self.columns: dict[str, list[str]] = {}
        self.settings: Json = {}

    def add(self, kind: str, column: str) -> None:
        """Add a column to an index, or to the columns without dictionary."""
        columns = self.columns.setdefault(kind, [])
        if column not in columns:
            columns.append(column)

    def put(self, setting: str, column: str, value: Any) -> None:
        """Set a setting of a column."""
        self.settings.setdefault(setting, {})[column] = value

    def document(self) -> Json:
        """Return `spec.indexing`."""
        return without_empty({**self.columns, **self.settings})


def indexing(index: ConfigReader, fields: Sequence[ConfigReader]) -> Json:
    """Convert tableIndexConfig without its streamConfigs, and the entries of fieldConfigList."""
    collected = Indexing()
    for theirs, ours in _LISTS.items():
        for column in index.names(theirs):
            collected.add(ours, column)
    collected.settings["sortedColumns"] = index.names("sortedColumn")
    _blooms(index.inner("bloomFilterConfigs"), collected)
    collected.settings["starTreeIndexConfigs"] = [_star_tree(tree) for tree in index.each("starTreeIndexConfigs")]
    if index.flag("enableDefaultStarTree"):
        collected.settings["starTree"] = "auto"
    for field in fields:
        _field(field, collected)
    partitioning = _partitioning(index.inner("segmentPartitionConfig"))
    _leave_rest(index)
    return without_empty({"indexing": collected.document(), "partitioning": partitioning})


def _blooms(source: ConfigReader, collected: Indexing) -> None:
    for column in source.members():
        _bloom(source.inner(column), column, collected)


def _bloom(source: ConfigReader, column: str, collected: Indexing) -> None:
    if _is_off(source):
        return
    collected.add("bloom", column)
    share = source.take("fpp")
    if share is not None:
        collected.put("bloomFpp", column, share)
    source.leave({"maxSizeInBytes": "a filter is as large as its share of false answers asks for"})
    source.leave({"loadOnHeap": "files are mapped"})


def _star_tree(source: ConfigReader) -> Json:
    pairs = source.names("functionColumnPairs")
    for aggregation in source.each("aggregationConfigs"):
        pairs.append(f"{aggregation.text('aggregationFunction').upper()}__{aggregation.text('columnName')}")
        aggregation.leave({"compressionCodec": "each segment chooses by itself"})
    return without_empty(
        {
            "dimensionsSplitOrder": source.names("dimensionsSplitOrder"),
            "skipStarNodeCreationForDimensions": source.names("skipStarNodeCreationForDimensions"),
            "functionColumnPairs": pairs,
            "maxLeafRecords": source.take("maxLeafRecords"),
        }
    )


def _partitioning(source: ConfigReader) -> Json | None:
    columns = source.inner("columnPartitionMap")
    functions = {}
    for name in columns.members():
        function = columns.inner(name)
        functions[name] = without_empty(
            {
                "functionName": function.text("functionName"),
                "numPartitions": function.take("numPartitions"),
                "functionConfig": function.texts("functionConfig"),
            }
        )
    return {"columns": functions} if functions else None


def _field(source: ConfigReader, collected: Indexing) -> None:
    column = source.text("name")
    encoding = source.text("encodingType").upper()
    if encoding == "RAW":
        collected.add("noDictionary", column)
    elif encoding not in ("", "DICTIONARY"):
        source.note("encodingType", f"{encoding} is neither RAW nor DICTIONARY")
    kinds = [*source.names("indexTypes"), *([kind] if (kind := source.text("indexType")) else [])]
    for kind in kinds:
        _index(source, kind, column, collected)
    indexes = source.inner("indexes")
    for kind in indexes.members():
        if kind.lower() == "bloom":
            _bloom(indexes.inner(kind), column, collected)
        else:
            declared = indexes.inner(kind)
            if not _is_off(declared):
                _index(indexes, kind, column, collected)
                if kind.lower() == "forward":
                    _codec(declared, column, collected)
    _codec(source, column, collected)
    granularities = source.inner("timestampConfig").names("granularities")
    if granularities:
        collected.put("timestampGranularities", column, granularities)
    source.leave({"properties": "settings of one index are not Merlot's"})


def _is_off(index: ConfigReader) -> bool:
    """Return True if the index is declared and turned off."""
    enabled = str(index.take("enabled", "true")).lower()
    return index.flag("disabled") or enabled == "false"


def _codec(source: ConfigReader, column: str, collected: Indexing) -> None:
    codec = source.text("compressionCodec").upper()
    if codec in _CODECS:
        collected.put("compression", column, _CODECS[codec])
    elif codec:
        source.note("compressionCodec", f"{codec} has no equivalent; each segment chooses by itself")


def _index(source: ConfigReader, kind: str, column: str, collected: Indexing) -> None:
    ours = _KINDS.get(kind.lower())
    if ours is not None:
        collected.add(ours, column)
    elif kind.lower() == "sorted":
        collected.settings["sortedColumns"] = [*collected.settings.get("sortedColumns", []), column]
    elif kind.lower() not in ("dictionary", "forward", "timestamp"):
        source.note(kind, f"{column}: there is no such index")


_REASONS: Final[Mapping[str, str]] = {
    "aggregateMetrics": "rows of a stream are not aggregated as they come; a MergeRollupTask rolls them up later",
    "enableDynamicStarTreeCreation": "trees are in segments that are built after they were declared",
    "noDictionaryConfig": "name the columns in noDictionaryColumns",
    "segmentFormatVersion": "segments have a format of their own",
    "autoGeneratedInvertedIndex": "name the columns in indexing.inverted",
    "createInvertedIndexDuringSegmentGeneration": "indexes are built with the segment in any case",
    "columnMajorSegmentBuilderEnabled": "segments are built column by column in any case",
    **dict.fromkeys(("onHeapDictionaryColumns", "varLengthDictionaryColumns"), "dictionaries are mapped as they are"),
    **dict.fromkeys(
        (
            *("optimizeDictionary", "optimizeDictionaryForMetrics"),
            *("noDictionarySizeRatioThreshold", "noDictionaryCardinalityRatioThreshold"),
        ),
        "each segment chooses its encodings by its own values",
    ),
}


def _leave_rest(index: ConfigReader) -> None:
    index.as_is("loadMode", "files are mapped", "MMAP")
    index.as_is("nullHandlingEnabled", "nulls are stored in any case", "TRUE")
    index.leave(_REASONS)

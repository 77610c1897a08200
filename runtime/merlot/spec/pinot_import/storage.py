"""Pinot's `tableIndexConfig` and `fieldConfigList` as `spec.indexing` and `spec.partitioning`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from merlot.spec.pinot_import.source import ConfigReader, Json, without_empty

_LISTS: Final = {
    "invertedIndexColumns": "inverted",
    "rangeIndexColumns": "range",
    "jsonIndexColumns": "jsonPaths",
    "bloomFilterColumns": "bloom",
    "noDictionaryColumns": "noDictionary",
}
_KINDS: Final = {"inverted": "inverted", "range": "range", "json": "jsonPaths", "text": "text", "bloom": "bloom"}
"""Indexes of `fieldConfigList`, by Pinot's names in lower case."""
_CODECS: Final = {"LZ4": "LZ4", "ZSTANDARD": "ZSTD", "PASS_THROUGH": "NONE"}


class Indexing:
    """What both places say of columns, together."""

    def __init__(self) -> None:
        self.columns: dict[str, list[str]] = {}
        self.settings: Json = {}

    def add(self, kind: str, column: str) -> None:
        """Ask for an index, or for no dictionary."""
        known = self.columns.setdefault(kind, [])
        if column not in known:
            known.append(column)

    def put(self, setting: str, column: str, value: Any) -> None:
        """Set what is set by column."""
        self.settings.setdefault(setting, {})[column] = value

    def document(self) -> Json:
        """`spec.indexing`."""
        return without_empty({**self.columns, **self.settings})


def indexing(index: ConfigReader, fields: Sequence[ConfigReader]) -> Json:
    """Of tableIndexConfig, all but its streamConfigs, and of the entries of fieldConfigList."""
    found = Indexing()
    for theirs, ours in _LISTS.items():
        for column in index.names(theirs):
            found.add(ours, column)
    found.settings["sortedColumns"] = index.names("sortedColumn")
    _blooms(index.inner("bloomFilterConfigs"), found)
    found.settings["starTreeIndexConfigs"] = [_star_tree(one) for one in index.each("starTreeIndexConfigs")]
    if index.flag("enableDefaultStarTree"):
        found.settings["starTree"] = "auto"
    for one in fields:
        _field(one, found)
    partitioning = _partitioning(index.inner("segmentPartitionConfig"))
    _leave_rest(index)
    return without_empty({"indexing": found.document(), "partitioning": partitioning})


def _blooms(source: ConfigReader, found: Indexing) -> None:
    for column in source.members():
        _bloom(source.inner(column), column, found)


def _bloom(source: ConfigReader, column: str, found: Indexing) -> None:
    if _is_off(source):
        return
    found.add("bloom", column)
    share = source.take("fpp")
    if share is not None:
        found.put("bloomFpp", column, share)
    source.leave({"maxSizeInBytes": "a filter is as large as its share of false answers asks for"})
    source.leave({"loadOnHeap": "files are mapped"})


def _star_tree(source: ConfigReader) -> Json:
    pairs = source.names("functionColumnPairs")
    for one in source.each("aggregationConfigs"):
        pairs.append(f"{one.text('aggregationFunction').upper()}__{one.text('columnName')}")
        one.leave({"compressionCodec": "each segment chooses by itself"})
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
    found = {}
    for name in columns.members():
        one = columns.inner(name)
        found[name] = without_empty(
            {
                "functionName": one.text("functionName"),
                "numPartitions": one.take("numPartitions"),
                "functionConfig": one.texts("functionConfig"),
            }
        )
    return {"columns": found} if found else None


def _field(source: ConfigReader, found: Indexing) -> None:
    column = source.text("name")
    encoding = source.text("encodingType").upper()
    if encoding == "RAW":
        found.add("noDictionary", column)
    elif encoding not in ("", "DICTIONARY"):
        source.note("encodingType", f"{encoding} is neither RAW nor DICTIONARY")
    kinds = [*source.names("indexTypes"), *([kind] if (kind := source.text("indexType")) else [])]
    for kind in kinds:
        _index(source, kind, column, found)
    indexes = source.inner("indexes")
    for kind in indexes.members():
        if kind.lower() == "bloom":
            _bloom(indexes.inner(kind), column, found)
        else:
            one = indexes.inner(kind)
            if not _is_off(one):
                _index(indexes, kind, column, found)
                if kind.lower() == "forward":
                    _codec(one, column, found)
    _codec(source, column, found)
    granularities = source.inner("timestampConfig").names("granularities")
    if granularities:
        found.put("timestampGranularities", column, granularities)
    source.leave({"properties": "settings of one index are not Merlot's"})


def _is_off(index: ConfigReader) -> bool:
    """Whether the index is declared and turned off."""
    enabled = str(index.take("enabled", "true")).lower()
    return index.flag("disabled") or enabled == "false"


def _codec(source: ConfigReader, column: str, found: Indexing) -> None:
    codec = source.text("compressionCodec").upper()
    if codec in _CODECS:
        found.put("compression", column, _CODECS[codec])
    elif codec:
        source.note("compressionCodec", f"{codec} has no equivalent; each segment chooses by itself")


def _index(source: ConfigReader, kind: str, column: str, found: Indexing) -> None:
    ours = _KINDS.get(kind.lower())
    if ours is not None:
        found.add(ours, column)
    elif kind.lower() == "sorted":
        found.settings["sortedColumns"] = [*found.settings.get("sortedColumns", []), column]
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

"""Datasets as segment files, in every encoding."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tests.sql.slt_data import Dataset
from tests.support.indexes import every_index

from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.spec.derived import unit_of
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.upserting import UpsertSpec
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

_PLAIN = IndexingSpec()
_INDEXINGS = {
    "things": (
        IndexingSpec(
            sorted_columns=("color", "small"),
            inverted=("tags", "signed", "scores"),
            bloom=("color", "small", "tags", "ratio", "exact", "digest", "active"),
        ),
        IndexingSpec(no_dictionary=("big", "price", "name", "note", "ratio", "counts", "created", "signed", "color")),
        IndexingSpec(
            no_dictionary=("revenue", "exact", "digest", "happened", "wide", "weights", "tags", "scores", "active"),
            inverted=("color",),
            bloom=("color", "name", "big", "price", "revenue", "happened", "counts", "note"),
            compression={"revenue": "ZSTD", "wide": "LZ4", "digest": "LZ4"},
        ),
        _PLAIN,
    ),
    "flights": (
        IndexingSpec(sorted_columns=("carrier",), inverted=("origin", "dest"), bloom=("tailnum", "distance")),
        IndexingSpec(no_dictionary=("distance", "dep_delay", "tailnum", "time_hour", "arr_delay")),
        IndexingSpec(sorted_columns=("time_hour",), compression={"air_time": "LZ4"}, no_dictionary=("air_time",)),
    ),
    "edges": (
        IndexingSpec(inverted=("few", "real"), sorted_columns=("yes",)),
        IndexingSpec(no_dictionary=("real", "single", "reals", "few", "far", "yes")),
        IndexingSpec(no_dictionary=("few", "single"), bloom=("real",)),
    ),
}
"""How segments of the many-segment layout are stored, in turn: every encoding meets every query."""


STAR_TREES = {
    "things": (
        {
            "dimensionsSplitOrder": ["color", "small", "active", "day"],
            "functionColumnPairs": [
                "COUNT__*",
                *(f"{name}__{column}" for name in ("SUM", "MINMAXRANGE") for column in ("sold", "price", "revenue")),
                *(f"{name}__{column}" for name in ("SUM", "MINMAXRANGE") for column in ("signed", "big", "exact")),
                *("DISTINCTCOUNTHLL__name", "DISTINCTCOUNTHLL__small"),
            ],
            "maxLeafRecords": 10,
        },
        {
            "dimensionsSplitOrder": ["small", "color", "note"],
            "skipStarNodeCreationForDimensions": ["color"],
            "functionColumnPairs": [
                *("AVG__sold", "SUMPRECISION__wide", "PERCENTILEEST__sold", "PERCENTILETDIGEST__price"),
                *("MIN__maybe", "MAX__maybe"),
            ],
            "maxLeafRecords": 100,
        },
    ),
    "flights": (
        {
            "dimensionsSplitOrder": ["carrier", "origin", "month"],
            "functionColumnPairs": ["COUNT__*", "AVG__distance", "MINMAXRANGE__air_time", "SUM__dep_delay"],
            "maxLeafRecords": 5,
        },
    ),
    "edges": (
        {
            "dimensionsSplitOrder": ["real", "few", "yes"],
            "functionColumnPairs": ["AVG__far", "SUM__single", "MINMAXRANGE__single"],
            "maxLeafRecords": 1,
        },
    ),
}
"""Trees by dataset."""


def star_trees_of(dataset: Dataset) -> IndexingSpec:
    """The dataset's trees, one that is chosen, and its times cut to units."""
    times = {
        field.name: ("DAY", "MONTH", "YEAR")
        for field in dataset.schema.fields
        if field.type in ("TIMESTAMP", "LONG") and not field.multi_value and unit_of(field.type, field.format)
    }
    trees = STAR_TREES.get(dataset.name, ())
    asked = {"starTreeIndexConfigs": trees, "starTree": "auto", "timestampGranularities": times}
    return IndexingSpec.model_validate(asked)


def uneven_edges(rows: int) -> list[int]:
    """Cuts for twelve segments, the first of a single row, the others ever larger."""
    return [0, 1, *(1 + (rows - 1) * number * number // 121 for number in range(1, 12))]


def varied_of(dataset: Dataset) -> Sequence[IndexingSpec]:
    """Every encoding. The last two have every index, on columns with dictionaries and on raw ones."""
    if dataset.indexings:
        return dataset.indexings
    names = dataset.schema.names
    return (*_INDEXINGS.get(dataset.name, (_PLAIN,)), every_index(dataset.schema), every_index(dataset.schema, names))


def build_paths(
    dataset: Dataset,
    folder: Path,
    edges: Sequence[int],
    *,
    varied: bool,
    indexing: IndexingSpec = _PLAIN,
    first: int = 0,
) -> list[Path]:
    """Segment files of the rows between neighbouring edges, numbered from `first` on; `varied` takes turns with the
    encodings."""
    request = BuildRequest(name="", table=dataset.name, schema=dataset.schema, time_column=dataset.time_column)
    indexings = varied_of(dataset) if varied else (indexing,)
    paths = []
    for number, (start, end) in enumerate(itertools.pairwise(edges), first):
        named = dataclasses.replace(
            request, name=f"{dataset.name}_{number}", indexing=indexings[number % len(indexings)]
        )
        paths.append(build_segment(named, dataset.rows.slice(start, end - start), folder).path)
    return paths


def uneven_segments(dataset: Dataset, folder: Path) -> Sequence[Path]:
    """Twelve segment files of uneven size, in turn in every encoding: built once for all layouts that have them."""
    if not dataset.uneven:
        dataset.uneven.extend(build_paths(dataset, folder, uneven_edges(dataset.rows.num_rows), varied=True))
    return dataset.uneven


def built_live(dataset: Dataset, folder: Path) -> Iterator[ImmutableSegment]:
    """Three segments that were built without any index and were given all of them later, in files beside them: with
    dictionaries, raw ones that get dictionaries for indexes and star-trees, and raw ones that stay so."""
    names, rows = dataset.schema.names, dataset.rows.num_rows
    raw = IndexingSpec(no_dictionary=names)
    every = every_index(dataset.schema)
    with_trees = every.model_copy(update=_trees(dataset))
    asked = (with_trees, with_trees, every_index(dataset.schema, names))
    edges = [0, rows // 4, rows // 2, rows]
    for number, (stored, indexing) in enumerate(zip((_PLAIN, raw, raw), asked, strict=True)):
        cut = edges[number : number + 2]
        yield indexed_beside(dataset, folder, cut, stored, indexing, number)


def indexed_beside(
    dataset: Dataset, folder: Path, cut: Sequence[int], stored: IndexingSpec, asked: IndexingSpec, number: int
) -> ImmutableSegment:
    """A segment of the rows of a cut that has what it lacks of what is asked in a file beside it."""
    (path,) = build_paths(dataset, folder, cut, varied=False, indexing=stored, first=number)
    segment = ImmutableSegment.open(path)
    plan = plan_of(segment.metadata, asked)
    if plan.is_empty:
        return segment
    return segment.beside(Sidecar.open(build_sidecar(segment, plan, asked, folder), segment.metadata, verify=True))


def _trees(dataset: Dataset) -> dict[str, object]:
    asked = star_trees_of(dataset)
    return {name: getattr(asked, name) for name in ("star_tree_index_configs", "star_tree", "timestamp_granularities")}


def overwritten(dataset: Dataset, folder: Path) -> Iterator[tuple[Segment, NDArray[np.bool_]]]:
    """Segments that hold an earlier version of every row before it, and which docs count: another row of the table, or
    half of the row's columns, into which the other half is merged.

    Sealed ones, plain, with every index and without dictionaries, then one that consumes."""
    rows = dataset.rows.num_rows
    edges = [rows * part // 4 for part in range(5)]
    indexings = (_PLAIN, every_index(dataset.schema), every_index(dataset.schema, dataset.schema.names))
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        docs = np.column_stack([(np.arange(start, end) * 7 + 1) % max(rows, 1), np.arange(start, end)]).ravel()
        is_valid = np.arange(len(docs)) % 2 == 1
        stored = dataset.rows.take(pa.array(docs))
        if number >= 2:
            stored, is_valid = merged_rows(dataset, start, end)
        request = BuildRequest(
            name=f"{dataset.name}_{number}",
            table=dataset.name,
            schema=dataset.schema,
            time_column=dataset.time_column,
            indexing=indexings[number % len(indexings)],
        )
        if number < len(indexings):
            yield ImmutableSegment.open(build_segment(request, stored, folder).path), is_valid
        else:
            growing = ConsumingSegment(request, 0)
            growing.append(stored, np.arange(stored.num_rows), stored.num_rows)
            yield growing.snapshot(), is_valid


def merged_rows(dataset: Dataset, start: int, end: int) -> tuple[pa.Table, NDArray[np.bool_]]:
    """What mode PARTIAL stores of rows each of which came in two halves, in batches that part some of them, and which
    docs count."""
    more = [{"name": "row_number", "type": "LONG"}, {"name": "half", "type": "LONG"}]
    fields = [*(field.model_dump(by_alias=True, exclude_none=True) for field in dataset.schema.fields), *more]
    schema = TableSchema.model_validate({"fields": fields, "primaryKey": ["row_number"]})
    settings = UpsertSpec.model_validate({"mode": "PARTIAL", "comparisonColumns": ["half"]})
    stored: list[pa.Table] = []

    def previous(_: NDArray[np.int64], docs: NDArray[np.int64], wanted: Sequence[FieldSpec]) -> pa.Table:
        known = pa.concat_tables(stored) if stored else halves.schema.empty_table()
        return known.select([field.name for field in wanted]).take(pa.array(docs))

    halves = _halves(dataset, start, end)
    upserts = PartitionUpserts(Rules.of(settings, schema, None), previous)
    for first in range(0, halves.num_rows, 301):
        stored.append(upserts.add(halves.slice(first, 301), 0, first).rows)
        upserts.publish()
    is_valid = np.zeros(halves.num_rows, np.bool_)
    if 0 in upserts.cut.segments:
        is_valid[upserts.cut.segments[0].live.docs()] = True
    rows = pa.concat_tables(stored) if stored else halves
    return rows.drop_columns(["row_number", "half"]), is_valid


def _halves(dataset: Dataset, start: int, end: int) -> pa.Table:
    """Every row twice: the first time without every other column, then without the others."""
    docs = np.repeat(np.arange(start, end), 2)
    is_second = np.arange(len(docs)) % 2 == 1
    rows = dataset.rows.take(pa.array(docs))
    for place, field in enumerate(rows.schema):
        column = rows.column(place).combine_chunks()
        given = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
        is_given = pa.array(is_second == (place % 2 == 1))
        rows = rows.set_column(place, field, pc.if_else(is_given, given, pa.scalar(None, field.type)))
    return rows.append_column("row_number", pa.array(docs)).append_column("half", pa.array(is_second.astype(np.int64)))


def consuming_segment(dataset: Dataset, start: int, stop: int) -> ConsumingSegment:
    """Rows [start, stop) as they come from a stream, one or some hundreds at a time."""
    request = BuildRequest(
        name=f"{dataset.name}__0__{start}", table=dataset.name, schema=dataset.schema, time_column=dataset.time_column
    )
    segment = ConsumingSegment(request, start)
    sizes = random.Random(start)
    while start < stop:
        end = min(stop, start + sizes.choice((1, 2, 60, 64, 700)))
        segment.append(dataset.rows.slice(start, end - start), np.arange(start, end), end)
        start = end
    return segment

"""Executors make of every value what docs/ingestion.md says, in folders and in S3, with expressions and without.

Many cases are one read: a file for each source and declared type, told apart by its folders' names.
"""

import functools
import itertools
import json
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.contracts.ingestion.grid import BAD, REFUSED, Section, Source, cell_of
from tests.contracts.ingestion.matrix import SECTIONS
from tests.contracts.ingestion.random_tables import COLUMNAR
from tests.spark.conftest import PLACES, Place
from tests.spark.opened_parcels import rows_and_counts

from merlot.errors import InvalidInputError
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot_spark import frames, parcels, sources
from merlot_spark.preparing import PrepareTask, TaskCounts

Cells = Mapping[tuple[str, str, str], str]
READS = [(section, name) for section in SECTIONS for name in sorted({source.format for source in section.sources})]


def reads_by_place() -> Iterator[Any]:
    """Each section and format in each place; at the quick level in one, such that each section and each format is in
    both, and that the two sources of a hundred files each are not in the bucket."""
    slow = pytest.mark.slow("the section is read in this place in another format, and the format for another section")
    for (section, file_format), place in itertools.product(READS, PLACES):
        is_in_folder = (section is SECTIONS[0]) == (file_format in COLUMNAR)
        marks = [] if is_in_folder == (place == "folder") else [slow]
        yield pytest.param(section, file_format, place, id=f"{section.title}-{file_format}-{place}", marks=marks)


def cases(section: Section, file_format: str) -> Iterator[tuple[int, Source, int, str, list[str]]]:
    """Sources and declared columns with their places and expected cells."""
    for place, source in enumerate(section.sources):
        if source.format == file_format:
            for column, (label, cells) in enumerate(
                zip(section.declared, zip(*source.cells(), strict=True), strict=True)
            ):
                yield place, source, column, label, list(cells)


def table_of(section: Section) -> Table:
    numbers = [{"name": name, "type": "INT"} for name in ("row", "s", "k")]
    columns = [{"name": f"c{place}", **field} for place, field in enumerate(section.declared.values())]
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "cases"},
        "spec": {"schema": {"fields": [*numbers, *columns]}},
    }
    (table,) = manifest.load(json.dumps(document))
    assert isinstance(table, Table)
    return table


@pytest.mark.parametrize(("section", "file_format", "place"), list(reads_by_place()))
def test_executors_make_of_each_value_what_the_page_says(
    spark: SparkSession, request: pytest.FixtureRequest, section: Section, file_format: str, place: str
) -> None:
    files: Place = request.getfixturevalue(place)
    # Those of a folder pass Spark beside the column that a filter names.
    expressions = {"filter": "row >= 0"} if place == "folder" else {}
    expected: dict[tuple[str, str, str], str] = {}
    root = f"{section.title}-{file_format}".replace(" ", "-")
    for number, source, column, label, cells in cases(section, file_format):
        if REFUSED not in cells:
            files.put(f"{root}/s={number}/k={column}/f", source.file([f"c{column}"]))
            expected |= {(source.name, label, row): cell for row, cell in zip(source.rows, cells, strict=True)}
    batch = {"sourceUri": files.uri(root), "format": file_format, **expressions}
    found, counts = read(spark, section, batch)
    assert {key: found.get(key, BAD) for key in expected} == expected
    assert (counts.rows_in, counts.bad.count) == (len(expected), len(expected) - len(found))


def read(spark: SparkSession, section: Section, batch: Mapping[str, Any]) -> tuple[Cells, TaskCounts]:
    table = table_of(section)
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    prepared = sources.read(spark, BatchIngestion.model_validate(batch), table).prepare(table, task)
    parcels_of_all = prepared.rows.orderBy(parcels.TASK, parcels.LOT).toArrow().to_batches()
    rows, told = rows_and_counts(parcels_of_all, table)
    counts = functools.reduce(operator.add, map(TaskCounts.from_json, told), TaskCounts())
    labels, types = list(section.declared), [field["type"] for field in section.declared.values()]
    found = {}
    for row in plain(rows).to_pylist():
        source, column = section.sources[row["s"]], row["k"]
        name = next(itertools.islice(source.rows, row["row"], None))
        found[source.name, labels[column], name] = cell_of(row[f"c{column}"], types[column]).strip()
    return found, counts


def plain(rows: pa.Table) -> pa.Table:
    """Instants as milliseconds: Python has none beyond the year 9999."""
    schema = pa.schema([(one.name, pa.int64() if pa.types.is_timestamp(one.type) else one.type) for one in rows.schema])
    return rows.cast(schema)


@pytest.mark.parametrize(("section", "file_format"), READS, ids=[f"{one.title}-{name}" for one, name in READS])
def test_the_driver_refuses_columns_that_the_page_says_are_refused(
    spark: SparkSession, folder: Place, section: Section, file_format: str
) -> None:
    table = table_of(section)
    for number, source, column, _, cells in cases(section, file_format):
        if REFUSED in cells:
            path = f"s={number}/k={column}/f"
            folder.put(path, source.file([f"c{column}"]))
            batch = BatchIngestion.model_validate({"sourceUri": folder.uri(path), "format": file_format})
            with pytest.raises(InvalidInputError, match=rf"file=.*{path} column=c{column} type="):
                sources.read(spark, batch, table)

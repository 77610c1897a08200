"""A manifest changes while a node backfills the table: each row is answered once, in the table's types."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.budget import count
from tests.node.nodes import StartNode, apply, ask, call, until_rows
from tests.unit.spec import built_rows, variants
from tests.unit.spec.variants import Variant

from merlot.catalog.publish import upload
from merlot.cli.backfiller import BackfillRequest, backfill
from merlot.cli.client import NodeClient
from merlot.cli.errors import CommandError
from merlot.cli.replacement import TimeWindow
from merlot.embedded.node import EmbeddedNode
from merlot.ingest.batch import build_from_tables
from merlot.spec import evolution, manifest, shape
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.values.periods import DAY_MS

FIRST_MS = built_rows.FIRST_DAY * DAY_MS
NUM_ROWS = built_rows.NUM_ROWS
TIME = "at"
MOST_OF_A_FIELD = count("MERLOT_VARIANTS", quick=1, every=2)


def live_changes(base: Table, name: str) -> list[Variant]:
    """What the base may become while it lives, of another shape: the first of each field."""
    found: dict[str, list[Variant]] = {}
    for variant in variants.every():
        before, after = base.spec, variants.in_own_store(variant.table).spec
        is_other = variant.base == name and shape.differences(shape.shape_of(before), shape.shape_of(after))
        takes_rows = is_other and built_rows.segments_of(variant.table)
        if takes_rows and not evolution.compare(variants.base(name).spec, variant.table.spec):
            found.setdefault(variant.path, []).append(variant)
    return [one for each in found.values() for one in each[:MOST_OF_A_FIELD]]


def named(table: Table, number: int) -> Table:
    metadata = table.metadata.model_copy(update={"name": f"t{number}"})
    return variants.in_own_store(table).model_copy(update={"metadata": metadata})


async def put(node: EmbeddedNode, table: Table) -> None:
    await apply(node, json.dumps(manifest.dump(table)))


async def publish(node: EmbeddedNode, table: Table, rows: pa.Table, folder: Path) -> None:
    """As a batch does that was built by the table's own manifest."""

    def built() -> list[dict[str, Any]]:
        folder.mkdir(parents=True)
        store = DeepStore(str(folder.parent / "node" / "deepstore"))
        made = [upload(store, one, table.name) for one in build_from_tables(table, [rows], folder).segments]
        return [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in made]

    body = {"records": await asyncio.to_thread(built), "shape": dict(shape.shape_of(table.spec))}
    await call(node, "POST", f"/segments/{table.raw_name}/publish", json=body)


async def answered(node: EmbeddedNode, table: Table) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Types of the columns, and all rows by time."""
    names = [one for one in table.spec.table_schema.names if one != "tags"]
    sql = f"SET enableNullHandling=true; SELECT {', '.join(names)} FROM {table.raw_name} ORDER BY {TIME} LIMIT 1000"
    answer = await ask(node, sql)
    assert answer["exceptions"] == [], answer
    schema = answer["resultTable"]["dataSchema"]
    types = dict(zip(schema["columnNames"], schema["columnDataTypes"], strict=True))
    return types, [dict(zip(names, row, strict=True)) for row in answer["resultTable"]["rows"]]


def check(variant: Variant, types: dict[str, str], rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """The rows are those from before, each once, in the types that the table has now."""
    declared = {one.name: str(one.type) for one in variant.table.spec.table_schema.fields}
    assert types == {name: declared[name] for name in types}, variant.id
    assert [row[TIME] for row in rows] == [row[TIME] for row in before], variant.id
    for row, wanted in zip(rows, before, strict=True):
        for name, value in wanted.items():
            now = row[name]
            is_cut = isinstance(value, str) and isinstance(now, str) and variant.path.endswith("maxLength")
            assert now == value or str(now) == str(value) or (is_cut and value.startswith(now)), (variant.id, name)


async def test_a_backfill_of_a_table_that_changes_meanwhile_is_refused_by_the_field_and_done_by_the_next_run(
    start_node: StartNode, tmp_path: Path
) -> None:
    node, base = await start_node(), variants.in_own_store(variants.base("append"))
    source = tmp_path / "rows.parquet"
    parquet.write_table(built_rows.ROWS, source)
    for number, variant in enumerate(live_changes(base, "append")):
        table = named(base, number)
        await put(node, table)
        await publish(node, table, built_rows.ROWS, tmp_path / f"built-{number}")
        await until_rows(node, f"SELECT COUNT(*) FROM {table.raw_name}", [[NUM_ROWS]])
        _, before = await answered(node, table)
        changed = named(variant.table, number)
        with pytest.raises(CommandError) as told:
            await asyncio.to_thread(run, node, table, source, changed)
        paths = shape.differences(shape.shape_of(base.spec), shape.shape_of(variant.table.spec))
        assert any(path in str(told.value) for path in paths), (variant.id, str(told.value))
        check(variant, *await answered(node, changed), before)
        await asyncio.to_thread(run, node, changed, source)
        check(variant, *await answered(node, changed), before)


def run(node: EmbeddedNode, table: Table, source: Path, changed: Table | None = None) -> None:
    """Backfill the table; before the segments are published it is changed."""
    client = NodeClient(node.url)

    def say(step: str) -> None:
        if step == "publishing" and changed is not None:
            client.post("/apply", json.dumps(manifest.dump(changed)).encode(), "application/yaml")

    window = TimeWindow(FIRST_MS, FIRST_MS + 2 * DAY_MS)
    ingestion = BatchIngestion.model_validate({"sourceUri": str(source), "format": "PARQUET"})
    backfill(BackfillRequest(client=client, table=table, window=window, source=ingestion, say=say))

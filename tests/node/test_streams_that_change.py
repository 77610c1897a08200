"""A manifest changes while a server consumes the table's stream: each row is answered once, in the table's types.

Servers seal segments by the settings that the controller has pinned to them, also one that has not read the changed
manifest yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count
from tests.node.nodes import StartNode, apply, call, until_rows
from tests.node.test_manifests_that_change import TIME, answered, check, live_changes, named
from tests.unit.spec import built_rows, variants
from tests.unit.spec.variants import Variant

from merlot.cluster.records import TableRecord
from merlot.embedded.node import EmbeddedNode
from merlot.metastore.protocol import Metastore
from merlot.server import table_data_manager
from merlot.spec import manifest
from merlot.spec.indexing import PartitioningSpec
from merlot.spec.stream import StreamIngestion
from merlot.spec.table import Table
from merlot.testing.patience import until

ROWS = [row for row in built_rows.ROWS.to_pylist() if row["city"] is not None]
"""Rows, each of a key of its own."""
VALUES = ("city", "rides", "miles", "share")
"""Columns that every table answers as the source has them."""
HALF = len(ROWS) // 2
MOST_OF_A_BASE = count("MERLOT_STREAM_VARIANTS", quick=4, every=1000)
AT_A_TIME = 6
"""Tables that change side by side."""


class LateServer:
    """Reader of manifests that does not see the changes of a table while the table is in `late`."""

    def __init__(self, read: Callable[[Metastore, str], TableRecord]) -> None:
        self._read = read
        self._seen: dict[str, TableRecord] = {}
        self.late: set[str] = set()

    def __call__(self, metastore: Metastore, table: str) -> TableRecord:
        if table not in self.late or table not in self._seen:
            self._seen[table] = self._read(metastore, table)
        return self._seen[table]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> LateServer:
    server = LateServer(table_data_manager.get_table)
    monkeypatch.setattr(table_data_manager, "get_table", server)
    return server


def of_stream(table: Table, folder: Path) -> Table:
    """Return the table with a stream alone, of files in a folder."""
    spec = table.spec
    decoder = {} if spec.ingestion.stream is None else {"decoder": spec.ingestion.stream.decoder}
    stream = StreamIngestion.model_validate({"type": "files", "topic": str(folder), **decoder})
    ingestion = spec.ingestion.model_copy(update={"stream": stream, "batch": (), "time_boundary": None})
    update: dict[str, object] = {"ingestion": ingestion}
    if spec.upsert is not None:  # the topic has one partition
        columns = {"city": {"functionName": "Murmur", "numPartitions": 1}}
        update["partitioning"] = PartitioningSpec.model_validate({"columns": columns})
    return table.model_copy(update={"spec": spec.model_copy(update=update)})


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    with file.open("a") as lines:
        lines.write("".join(f"{json.dumps(row)}\n" for row in rows))


class Streamed:
    """A table whose manifest changes, and the file of its stream."""

    def __init__(self, node: EmbeddedNode, folder: Path, variant: Variant, number: int) -> None:
        self.node, self.variant = node, variant
        self.base = of_stream(named(variants.base(variant.base), number), folder)
        self.changed = of_stream(named(variant.table, number), folder)
        self._count = f"SELECT COUNT(*) FROM {self.base.raw_name}"
        self._file = folder / "0" / "rows.json"
        self._file.parent.mkdir(parents=True)

    async def put(self, table: Table) -> None:
        await apply(self.node, json.dumps(manifest.dump(table)))

    async def write(self, rows: list[dict[str, Any]], total: int) -> None:
        """Have rows consumed; `total`: rows of the table then."""
        write(self._file, rows)
        await until_rows(self.node, self._count, [[total]])

    async def commit(self, total: int) -> None:
        """Seal the consumed rows, and wait until `total` rows are sealed. A changed manifest may have sealed some."""
        await call(self.node, "POST", f"/tables/{self.base.raw_name}/forceCommit")

        async def is_sealed() -> bool:
            segments = await call(self.node, "GET", f"/segments/{self.base.raw_name}/metadata")
            return total == sum(segment["totalDocs"] for segment in segments.values() if segment["crc"])

        await until(is_sealed)

    async def answered(self) -> tuple[dict[str, str], list[dict[str, Any]]]:
        return await answered(self.node, self.changed)


def other_pins(base: str) -> list[Variant]:
    """Return manifests that the base may become while it consumes, and that take its rows."""
    is_set = "spec.partitioning" if variants.base(base).spec.upsert is not None else "spec.ingestion.stream"
    changes = live_changes(variants.base(base), base)
    taken = [variant for variant in changes if not variant.path.startswith(is_set)]
    return taken[:: -(-len(taken) // MOST_OF_A_BASE)]


async def together(tables: list[Any]) -> None:
    for start in range(0, len(tables), AT_A_TIME):
        await asyncio.gather(*tables[start : start + AT_A_TIME])


@pytest.mark.parametrize(
    "is_late",
    [
        pytest.param(True, id="late"),
        pytest.param(False, id="at once", marks=pytest.mark.slow("a server that is late learns of it in the end, too")),
    ],
)
@pytest.mark.parametrize("base", ["hybrid", "upsert"])
async def test_a_stream_whose_manifest_changes_brings_each_row_once(
    start_node: StartNode, tmp_path: Path, server: LateServer, base: str, is_late: bool
) -> None:
    node, changes = await start_node(), other_pins(base)
    assert changes

    async def follow(number: int, variant: Variant) -> None:
        table = Streamed(node, tmp_path / str(number), variant, number)
        await table.put(table.base)
        await table.write(ROWS[:HALF], HALF)
        _, before = await answered(node, table.base)
        if is_late:
            server.late.add(table.base.name)
        await table.put(table.changed)
        await table.commit(HALF)
        await table.write(ROWS[HALF:], len(ROWS))
        await table.commit(len(ROWS))
        server.late.discard(table.base.name)
        await call(node, "POST", f"/tables/{table.base.raw_name}/forceCommit")
        await check_now(table, before)

    await together([follow(number, variant) for number, variant in enumerate(changes)])


async def check_now(table: Streamed, before: list[dict[str, Any]]) -> None:
    types, rows = await table.answered()
    assert len({row[TIME] for row in rows}) == len(rows) == len(ROWS), table.variant.id
    for row, source in zip(rows, sorted(ROWS, key=lambda row: row[TIME]), strict=True):
        for name in VALUES:
            is_cut = table.variant.path.endswith("maxLength") and str(source[name]).startswith(str(row[name]))
            assert str(row[name]) == str(source[name]) or is_cut, (table.variant.id, name)
    times = {row[TIME] for row in before}
    check(table.variant, types, [row for row in rows if row[TIME] in times], before)

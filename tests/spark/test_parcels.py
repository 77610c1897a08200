"""Parcels of rows as they are opened: what one claims to hold takes no memory that its bytes cannot fill."""

from __future__ import annotations

import random
import tracemalloc

import lz4.block
import pyarrow as pa
import pytest
from tests.budget import count
from tests.spark.opened_parcels import rows_and_counts

from merlot.errors import CorruptionError
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot_spark import parcels

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: text, type: STRING}]}}
"""
NUM_FORGERIES = count("MERLOT_PARCELS", quick=300, every=20_000)


@pytest.fixture(scope="module")
def table() -> Table:
    (found,) = manifest.load(MANIFEST)
    assert isinstance(found, Table)
    return found


def parcel(rows: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"task": 0, "lot": 0, "rows": rows, "counts": None}], parcels.SCHEMA)


def batch(table: Table, texts: list[str]) -> pa.RecordBatch:
    schema = parcels.rows_schema(table)
    keys = [[0] * len(texts) for _ in schema.names[1:]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for values, kind in zip((texts, *keys), schema.types, strict=True)], schema=schema
    )


@pytest.mark.parametrize("letters", [0, 1, 1 << 10, 1 << 20, 1 << 24])
def test_rows_that_compress_as_well_as_any_can_are_opened(table: Table, letters: int) -> None:
    rows = batch(table, ["x" * letters, ""])
    opened, _ = rows_and_counts([parcel(lz4.block.compress(rows.serialize()))], table)
    assert opened.to_batches() == [rows]


@pytest.mark.parametrize("claim", [1 << 20, 1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_a_parcel_takes_no_memory_for_what_it_cannot_hold(table: Table, claim: int) -> None:
    honest = lz4.block.compress(batch(table, ["a"]).serialize())
    forged = parcel(claim.to_bytes(4, "little") + honest[4:])
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError, match=f"claimed={claim}"):
            rows_and_counts([forged], table)
        assert tracemalloc.get_traced_memory()[1] < 1 << 19
    finally:
        tracemalloc.stop()


def test_damaged_parcels_are_refused_within_the_memory_of_sound_ones(table: Table) -> None:
    """Bytes of the frame change, or are missing; the rows within it are Arrow's to check."""
    chance = random.Random(11)
    honest = lz4.block.compress(batch(table, [f"row {number}" for number in range(200)]).serialize())
    tracemalloc.start()
    try:
        for _ in range(NUM_FORGERIES):
            cut = bytearray(honest[: chance.choice((chance.randrange(len(honest)), len(honest)))])
            for place in chance.sample(range(4), chance.randrange(1, 4)):
                cut[place : place + 1] = bytes([chance.randrange(256)])
            if cut[:4] == honest[:4]:
                continue
            with pytest.raises(CorruptionError):
                rows_and_counts([parcel(bytes(cut))], table)
        assert tracemalloc.get_traced_memory()[1] < 512 * len(honest)
    finally:
        tracemalloc.stop()

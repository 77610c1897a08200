"""A table of stored sketches, for SQL tests: `sketched`. Beside each row's sketches are the keys that they are of."""

from __future__ import annotations

import hashlib
import random
import struct
from functools import cache
from typing import Any

import pyarrow as pa
from datasketches import AccumulatorPolicy, PyObjectSerDe, update_theta_sketch, update_tuple_sketch

SKETCHED_ROWS = 240
SKETCHED_FIELDS = [
    {"name": "id", "type": "INT"},
    {"name": "part", "type": "STRING"},
    {"name": "clicks", "type": "INT"},
    {"name": "keys", "type": "LONG", "multiValue": True},
    {"name": "tuples", "type": "BYTES"},
    {"name": "thetas", "type": "BYTES"},
    {"name": "ulls", "type": "BYTES"},
]
"""Rows without sketches have no keys."""


class _IntegerSums(PyObjectSerDe):  # type: ignore[misc]
    """Java's IntegerSummary: its value, and how values are joined: 0 for a sum."""

    def get_size(self, _: int) -> int:
        return 5

    def to_bytes(self, value: int) -> bytes:
        return struct.pack("<iB", value, 0)


@cache
def sketched_rows() -> pa.Table:
    """Each row's keys, and sketches of them, in which each key has the row's clicks."""
    chance = random.Random(23)
    rows = [_row(number, chance) for number in range(SKETCHED_ROWS)]
    types = {"id": pa.int32(), "part": pa.string(), "clicks": pa.int32(), "keys": pa.list_(pa.int64())}
    names = [str(field["name"]) for field in SKETCHED_FIELDS]
    return pa.table({name: pa.array([row[name] for row in rows], types.get(name, pa.binary())) for name in names})


def _row(number: int, chance: random.Random) -> dict[str, Any]:
    keys = None if number % 11 == 3 else chance.sample(range(500), chance.randrange(1, 12))
    part, clicks = chance.choice("abcd"), chance.randrange(-3, 30)
    row: dict[str, Any] = {"id": number, "part": part, "clicks": clicks, "keys": keys}
    return (
        row | {"tuples": None, "thetas": None, "ulls": None}
        if keys is None
        else row | _sketches(keys, clicks) | {"ulls": _ultraloglog(keys, 11 + number % 2)}
    )


def _sketches(keys: list[int], clicks: int) -> dict[str, bytes]:
    tuples, thetas = update_tuple_sketch(AccumulatorPolicy(), 12), update_theta_sketch(12)
    for key in keys:
        tuples.update(key, clicks)
        thetas.update(key)
    return {"tuples": tuples.compact().serialize(_IntegerSums()), "thetas": thetas.compact().serialize()}


def _ultraloglog(keys: list[int], p: int) -> bytes:
    """By its definition: which bits each register met, of some hash; then the highest of them and the two below it."""
    met = [0] * (1 << p)
    for key in keys:
        hashed = int.from_bytes(hashlib.blake2b(key.to_bytes(8), digest_size=8).digest())
        rest = hashed & ((1 << (64 - p)) - 1)
        met[hashed >> (64 - p)] |= 1 << (64 - p - rest.bit_length() + p - 1)
    tops = [bits.bit_length() - 1 for bits in met]
    return bytes([p, *(4 * top + (bits >> (top - 2)) % 4 if bits else 0 for top, bits in zip(tops, met, strict=True))])
